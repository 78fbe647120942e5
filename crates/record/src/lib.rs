//! What happened when: a load's requests by interval and one by one, marks on the same clock, the tables that hold
//! them, and what statistics say of them.
//!
//! A [`Recording`] belongs to a run. Each worker of a load, whatever engine drives it, gets a [`Recorder`] and tells it
//! of every request that has completed ([`Recorder::record`]); nothing there locks or, once warm, allocates. What has
//! become of an interval is handed over when it is past. [`RunFolder`] reads it all back.
//!
//! This crate knows nothing of devices, of how a load runs, or of what a trial is.

mod histogram;
mod interval;
mod mark;
mod outcome;
mod phase;
mod recorder;
mod recording;
mod remote;
mod run_folder;
mod samples;
mod scratch;
mod spec;
pub mod statistics;

pub mod table;

pub use histogram::Histogram;
pub use interval::{Interval, Latencies};
pub use mark::{Mark, MarkKind};
pub use outcome::{Measured, outcome_word};
pub use recorder::Recorder;
pub use recording::{Recording, RecordingOptions};
pub use remote::RemoteInterval;
pub use run_folder::RunFolder;
pub use samples::Sample;
pub use scratch::scratch_file;
pub use spec::{IntervalLength, RecordSpec};
pub use table::FORMAT;
