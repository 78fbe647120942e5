//! The path everything travels: a [`Request`] with its [`Context`] going down a stack of [`Device`]s.
//!
//! Read [`device`] first; it is the whole abstraction. [`Runtime`] is where time, randomness and file I/O come
//! from, so that the same stack runs against io_uring and against a seeded simulation with virtual time.
//! [`leaf`] holds the devices at the bottom of a stack, [`conformance`] the tests every device must pass.
//!
//! This crate knows nothing of faults, files, exports or trials.

pub mod ability;
pub mod buffer;
pub mod byte_stream;
pub mod children;
pub mod conformance;
pub mod context;
pub mod device;
pub mod error;
pub mod extent_map;
pub mod hash;
pub mod leaf;
pub mod nbd;
mod pooled;
pub mod power;
mod resize;
pub mod runtime;
mod submission;
pub mod system_calls;
mod tag_scope;
pub mod turns;

pub use buffer::Buffer;
pub use byte_stream::ByteStream;
pub use context::{Context, Origin, Phase, Tag, current_phase_word};
pub use device::{Completion, Device, DeviceInfo, Features, Operation, Queue, Request};
pub use error::{Error, ErrorKind, Result};
pub use hash::ContentHash;
pub use power::{Kept, Power};
pub use resize::Resize;
pub use runtime::{Runtime, Time};
pub use submission::Submission;
