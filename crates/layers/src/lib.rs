//! Layers over devices, the description of a stack, and the factory that opens it.

mod stack_spec;

pub use stack_spec::{DeviceSpec, DiskProfile, DiskSpec, FileSpec, MemorySpec, StackSpec, StatsSpec};
