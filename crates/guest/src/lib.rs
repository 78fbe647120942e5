//! Guest kernels as a place for file systems: started on a disk of ours, ruled through a program inside, their file
//! system shown in a folder of this machine, their memory open to whoever wants to change it.
//!
//! User Mode Linux and QEMU carry them, as a user without rights and in namespaces of their own: a kernel in whose memory bits
//! flip may ask this machine for anything.
//!
//! It knows nothing of stacks, faults or loads.

mod agent;
mod console;
mod folder;
mod guest;
mod kernel;
mod link;
mod look;
mod memory;
mod qemu;
mod qmp;
mod snapshot;
mod start;
mod uml;
mod xstate;

pub use console::{End, end_in_console};
pub use folder::GuestFolder;
pub use guest::{CameUp, Guest};
pub use kernel::Kernel;
pub use look::{Answer, Question, sum_of};
pub use memory::GuestMemory;
pub use qemu::QEMU_MEMORY_MAX;
pub use snapshot::folder as snapshot_folder;
pub use start::{GuestDisk, GuestKind, GuestOptions};

use rotproof_block::Result;

/// Memory of a guest in bytes, if nothing else is said.
pub const MEMORY_DEFAULT: u64 = 256 << 20;
/// With less, a kernel with these file systems does not come up.
pub const MEMORY_MIN: u64 = 64 << 20;

/// Ok if the kernel of User Mode Linux has a file system, as far as the modules that are installed for it say. Fails with
/// [`Missing`](rotproof_block::ErrorKind::Missing) if it has not.
pub fn check_uml_file_system(file_system: &str) -> Result<()> {
    uml::check_file_system(file_system)
}

/// Ok if this machine can run guests of User Mode Linux, or of QEMU. Fails with [`Missing`](rotproof_block::ErrorKind::Missing) and
/// what to do.
pub fn check_requirements(with_qemu: bool) -> Result<()> {
    start::check_namespaces()?;
    if with_qemu { qemu::check_requirements() } else { uml::check_requirements() }
}
