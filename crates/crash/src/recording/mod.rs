//! A recording: every request that a device was given and every answer, in their order, with the data, and marks that
//! the load sets in between.
//!
//! [`Recorder`] writes one, from many threads; [`Reader`] reads it as a stream. [`log_writes`] speaks the format of the
//! kernel's dm-log-writes. The format is described in `docs/format-recording.md`. This module knows nothing of crashes.

mod data;
mod encoder;
mod event;
mod format;
pub mod log_writes;
mod reader;
mod recorder;
mod same;

pub use data::Data;
pub use event::{Chunk, Event, What, Write};
pub use format::{CHUNK_BYTES, Header, SOURCE_BASE, SOURCE_ZEROS, Source};
pub use reader::{Ending, Reader};
pub(crate) use recorder::is_zero;
pub use recorder::{Recorder, RecorderOptions, Summary};

#[cfg(test)]
mod tests;
