//! One access of a trace, whatever format it came in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was asked of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A read.
    Read,
    /// A write.
    Write,
    /// Everything before is to be durable.
    Flush,
    /// The content is no longer needed.
    Discard,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Flush, Self::Discard];

    /// As text formats of our own call it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        }
    }
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Access {
    /// When, in nanoseconds since the first access of the trace.
    pub at_ns: u64,
    /// What.
    pub operation: Operation,
    /// Which device or file: a number that the trace gives, or that of its name in the order of appearance.
    pub device: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub length: u64,
    /// How long it took, in nanoseconds, where the trace knows.
    pub took_ns: Option<u64>,
}
