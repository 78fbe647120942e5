//! The load: what it writes where, how every block of it is recognised again, and what became of each.
//!
//! A [`Workload`] is a pure description: every worker's requests and contents are functions of the seed, the worker
//! and an index ([`stream`], [`content`]), so they can be replayed without I/O. [`run()`] sends them through a
//! [`Driver`], keeps the [`Oracle`] and, as the check, reads everything back; [`classify()`] says of every failing block
//! what it holds instead and who wrote that. [`target`] names contents before they are written, for faults that
//! follow them. [`personality`] is the other kind: loads of files, with an engine of their own.
//!
//! This crate knows nothing of subjects, exports or trials: the objects it works on are given to it.

mod block_sizes;
mod classify;
mod command;
pub mod content;
pub mod driver;
pub mod duplicates;
mod effort;
pub mod engine;
pub mod evidence;
pub mod failure;
mod history;
mod job;
pub mod layout;
mod mix;
pub mod object;
pub mod oracle;
mod pace;
mod parts;
mod pattern;
pub mod personality;
#[cfg(test)]
mod probe;
mod realised;
mod replay;
mod retry;
pub mod scan;
pub mod spec;
pub mod stream;
pub mod target;
mod worker_threads;
mod workload;

pub use block_sizes::{BlockSizes, SizeMix};
pub use classify::{Classifier, classify};
pub use command::{Command, CommandLine, CommandOutput};
pub use content::{Content, ContentId, Stage};
pub use driver::{
    BlockingFile, DeviceDriver, Driver, FAT_DEVICE_BYTES_MIN, FAT_FILE_BYTES_MAX, FAT_LIBRARY, FatSet,
    FileAccess, FileEngine, FileSet, HOLD_MAPPINGS, MappedFile, hold_mappings,
};
pub use duplicates::{Distribution, Duplicates, Profile};
pub use effort::{Effort, EffortPerRequest};
pub use engine::{LoadReport, Progress, RunOn, RunOptions, run};
pub use failure::{Classification, Failure, SectorFinding, Unflushed, Way, error_name};
pub use job::JobSpec;
pub use mix::{Mix, SimpleMix};
pub use object::ObjectInfo;
pub use oracle::Oracle;
pub use pace::{Arrivals, Burst, RampUp, Rate, ThinkAfter, ThinkTime};
pub use parts::{NoRoom, no_room};
pub use pattern::{Pattern, Zone};
pub use realised::{RealisedContent, realised};
pub use replay::{Pace, Trace};
pub use retry::{Retry, RetryOn};
pub use spec::{FilesSpec, LoadSpec};
pub use stream::{Step, TraceReport};
pub use workload::Workload;

/// The unit of content: what is generated, verified and targeted as one. The same as the fault engine's.
pub const BLOCK_BYTES: usize = 4096;

/// The largest request of a load: the largest buffer that is pooled.
pub const MAX_REQUEST_BYTES: u64 = 4 << 20;
