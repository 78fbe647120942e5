//! The devices at the bottom of a stack.

mod disk;
mod disk_cache;
mod disk_model;
mod disk_profile;
mod file;
mod health;
mod memory;
mod nbd;
mod null;
mod opened_file;

pub use disk::SimulatedDisk;
pub use disk_model::{Access, DiskModel};
pub use disk_profile::{DiskProfile, FlashProfile, RotatingProfile};
pub use file::{FileDevice, FileOptions};
pub(crate) use health::Witness;
pub use memory::MemoryDevice;
pub use nbd::{NbdDevice, NbdUri};
pub use null::NullDevice;
