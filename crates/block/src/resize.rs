//! The ability to become larger: of devices whose size somebody else may change.
//!
//! Beside [`crate::Device`], for whoever lets what stands on it grow.

use crate::Result;

/// A device over something that may have become larger since it was opened.
pub trait Resize: Send + Sync {
    /// Looks how large it is now, in bytes. Queues that are opened from then on reach as far; those that are open stay as they are. One
    /// that was opened for a part of what there is keeps its size.
    ///
    /// Fails with [`crate::ErrorKind::Gone`] if it has become smaller.
    fn measure(&self) -> Result<u64>;
}
