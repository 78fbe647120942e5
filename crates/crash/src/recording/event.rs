//! What a recording holds, in the order in which it happened.

use std::sync::Arc;

use rotproof_block::ContentHash;

use super::format::Source;

/// One thing that happened. Positions count all of them from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number, which is also the name of a request that begins with it.
    pub position: u64,
    /// When, in nanoseconds of the runtime's clock; never before the event before it.
    pub time_ns: u64,
    /// What.
    pub what: What,
}

/// What happened. Offsets and lengths are in bytes of the device and multiples of its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A write was submitted.
    Write(Write),
    /// A flush was submitted.
    Flush,
    /// A discard was submitted.
    Discard {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// A write of zeros without data was submitted.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// A request completed.
    Done {
        /// Position of the event with which it was submitted.
        request: u64,
        /// Whether it succeeded.
        ok: bool,
    },
    /// The load says something: "fsync of file f returned".
    Mark(String),
    /// The recording was ended in order; nothing follows.
    End,
}

/// A write as it was submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Durable once it has completed.
    pub fua: bool,
    /// The application's tag, empty if it has none.
    pub tag: Arc<str>,
    /// Its data in pieces of [`super::CHUNK_BYTES`], the last may be shorter.
    pub chunks: Arc<[Chunk]>,
}

/// A piece of a write's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where its bytes are: zeros, or in the recording's file.
    pub source: Source,
    /// Bytes.
    pub length: u32,
    /// Hash of its bytes.
    pub hash: ContentHash,
}
