//! The machine below a trial: what it is, what it has, what is in use, and what must not be touched.
//!
//! Most of it looks; only [`program`] and [`command`] start something, [`Claim`] locks and marks, and the [`registry`]
//! removes what a run created. It knows nothing of stacks, subjects or trials.

mod any_data;
pub mod cancel;
mod claim;
mod claimed_device;
pub mod command;
mod disk;
mod environment;
mod in_use;
pub mod kernel_log;
mod lock;
mod made_mark;
pub mod mounts;
mod polling;
pub mod process;
mod process_group;
pub mod program;
pub mod registry;
mod remote;
mod second_opinion;
mod signatures;
mod space;
mod thread;
mod usage;
mod whole_file;

pub use cancel::Cancel;
pub use claim::{Claim, Use, lock_folder};
pub use claimed_device::ClaimedDevice;
pub use disk::disk_of;
pub use environment::{Environment, ToolVersion, environment};
pub use kernel_log::KernelLog;
pub use lock::Locked;
pub use made_mark::Filled;
pub use polling::can_be_polled;
pub use process_group::Process;
pub use program::{Program, RunningProgram};
pub use remote::{Heard, Machine, Remote};
pub use space::{free_bytes, require_free, require_image_fits};
pub use thread::start_thread;
pub use usage::{ProcessorUse, Usage, UsageMeter};
pub use whole_file::write_whole;
