//! Guest kernels as a place for file systems: started on a disk of ours, ruled through a program inside, their file
//! system shown in a folder of this machine, their memory open to whoever wants to change it.
//!
//! User Mode Linux is the one kind so far. It runs as a user without rights, in namespaces of its own: a kernel in
//! whose memory bits flip may ask this machine for anything.
//!
//! It knows nothing of stacks, faults or loads.

mod agent;
mod console;
mod folder;
mod link;
mod memory;
mod uml;
mod xstate;

pub use console::{End, end_in_console};
pub use folder::GuestFolder;
pub use memory::GuestMemory;
pub use uml::{Guest, GuestOptions, MEMORY_DEFAULT, MEMORY_MIN, check_requirements};
