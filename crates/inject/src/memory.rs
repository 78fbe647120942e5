//! What can be searched and changed: the memory of a process, or of a machine.

use std::fmt;
use std::ops::Range;

use rotproof_block::Result;

use crate::maps::MappingKind;
use crate::needle::Needles;

/// A part of a memory that holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Addresses, in bytes.
    pub range: Range<u64>,
    /// What a process uses it for; `None` where that is not known by regions, as of the memory of a machine.
    pub kind: Option<MappingKind>,
}

/// A memory that can be searched, read and changed while its owner goes on.
pub trait Memory: Send + Sync + fmt::Debug {
    /// The parts that hold something now, in the order of their addresses. What was never written may be left out.
    fn regions(&self) -> Result<Vec<Region>>;

    /// Calls `found` with the number of the block and its address for every copy in `range`.
    fn find(&self, range: &Range<u64>, needles: &Needles, found: &mut dyn FnMut(usize, u64)) -> Result<()>;

    /// Fills `bytes` with what stands at `address` and after.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()>;

    /// Replaces `before` by `after` at `address`, one byte. Gives whether `before` was what stood there; if not, nothing is
    /// changed. Fails with [`ErrorKind::ReadOnly`](rotproof_block::ErrorKind::ReadOnly) where a process shares the pages of a file and
    /// may only read them: they are the kernel's.
    fn replace(&self, address: u64, before: u8, after: u8) -> Result<bool>;
}
