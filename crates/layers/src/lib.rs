//! Layers over devices, the description of a stack, and the factory that opens it.
//!
//! One file per layer: [`FaultDevice`] makes the device below lie, [`StatsDevice`] counts, [`DedupDevice`] stores equal
//! blocks once, [`WriteCacheDevice`] holds what a power cut loses, [`RecordDevice`] records. A [`StackSpec`] is what a trial file says of the stack, and [`open`] is the only way from there to
//! devices.
//!
//! This crate does not know what a trial is.

mod dedup;
mod dedup_spec;
mod disk_spec;
mod fault;
mod record;
mod stack;
mod stack_spec;
mod stats;
mod write_cache;

pub use dedup::{DedupDevice, DedupOptions, DedupReport};
pub use dedup_spec::DedupSpec;
pub use disk_spec::{DiskProfile, DiskSpec};
pub use fault::FaultDevice;
pub use record::{RecordDevice, header_of};
pub use stack::{LayerReport, Stack, StackEnvironment, open};
pub use stack_spec::{DeviceSpec, FileSpec, MemorySpec, StackSpec, StatsSpec};
pub use stats::{StatsDevice, StatsReport, StatsRow};
pub use write_cache::{Lies, WriteBack, WriteCacheDevice, WriteCacheOptions};
