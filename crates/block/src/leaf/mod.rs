//! The devices at the bottom of a stack.

mod file;
mod memory;

pub use file::{FileDevice, FileOptions};
pub use memory::MemoryDevice;
