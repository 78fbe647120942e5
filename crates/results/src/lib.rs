//! The folder that a run or a load leaves, and what is made of it afterwards: its page, comparisons, fio's form.
//!
//! It knows the files in the folder, by type ([`run`]), not the trial or the load that they come from.

pub mod compare;
pub mod fio;
pub mod folder;
pub mod page;
mod performance;
pub mod run;
mod run_file;

pub use performance::Performance;
pub use run_file::{RUN_FILE, parse_run, read_run, runs_in, write_run};

/// Version of the form of all files in a results folder.
pub const FORMAT: u32 = 2;

/// How a subject that does not come back after the load is told of among what was noticed.
pub const NO_REMOUNT: &str = "it could not be mounted again";

/// How the end of a guest is told of among what was noticed, one of these with more after it: its kernel panicked, its process
/// ended, it answers nothing.
pub const GUEST_ENDS: [&str; 3] =
    ["the kernel of the guest panicked", "the guest crashed", "the guest hangs"];
