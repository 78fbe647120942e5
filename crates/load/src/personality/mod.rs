//! Loads of files: filebench's personalities, a mail store and mdtest's phases, on files of a file system.
//!
//! What a thread does is a function of the seed, the thread and a number ([`script`], [`mail`]); every file has one
//! thread that changes it, so it is known at any time which files are there and what each of their bytes is. A file's
//! content names the file, its version and the block, so that what is read is verified, and what is found instead of it
//! is named. The calls are those of most programs: blocking, through the page cache, one thread for each that
//! the personality has.
//!
//! It knows nothing of devices, faults and trials; the folder that it works in is given to it.

mod check;
mod coupling;
mod data;
mod draws;
mod history;
mod job;
mod mail;
mod metadata;
mod oracle;
mod plan;
mod reading;
mod report;
mod ring;
mod run;
mod script;
mod seat;
mod slots;
mod spec;
mod state;
#[cfg(test)]
mod tests;
mod threads;
mod worker;

pub use history::{FileHistory, FileLoss, Kept, SetFileMark};
pub use oracle::FileOracle;
pub use plan::FilePlan;
pub use report::{FileIncident, FileOperation, FileOperationReport, FileReport, failures_of};
pub use run::{FileRunOptions, run};
pub use spec::{Figures, Personality, PersonalityKind, PersonalityOptions};

use crate::BLOCK_BYTES;
use crate::content::FILE_BLOCKS_MAX;

/// Files of a load, at most.
pub const FILES_MAX: u32 = 200_000;
const _: () = assert!(FILES_MAX < crate::content::FILES_END);

/// Bytes of a file, at most.
pub const FILE_BYTES_MAX: u64 = FILE_BLOCKS_MAX * BLOCK_BYTES as u64;
