//! The abilities of a device that keeps everything more than once: reach each copy by itself, and change its members.
//!
//! A layer above that can tell a right copy from a wrong one, as a checksum can, reads and mends copies through
//! [`CopyQueue`]. Whoever looks after the machine sees and exchanges members through [`Members`]. A device over several
//! that have these abilities, such as a stripe over mirrors, has them too.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::{Device, Request, Result, Runtime, Submission};

/// A device that keeps everything more than once. Looked up by [`rotproof_block::ability::find`].
pub trait Copies: Send + Sync {
    /// How many copies there are of everything, those included that cannot be reached now; at least 2.
    fn count(&self) -> usize;

    /// Opens a queue to the copies on `runtime`, the runtime of the calling thread.
    fn open_copies(&self, runtime: &Runtime) -> Result<Rc<dyn CopyQueue>>;
}

/// The data plane of [`Copies`], bound to one thread.
pub trait CopyQueue {
    /// The copy that a read of this range is best answered from now: current there, and the least busy.
    fn choose(&self, offset: u64, length: u64) -> usize;

    /// Whether copy number `copy` can be reached and has missed no write of this range.
    fn is_current(&self, copy: usize, offset: u64, length: u64) -> bool;

    /// Sends a request to one copy alone, current or not. Fails with [`rotproof_block::ErrorKind::Gone`] where there is none
    /// to be reached. What fails here is not noted against the copy: the caller judges.
    fn submit_to(&self, copy: usize, request: Request) -> Submission;

    /// Says that this copy now has what the others have in this range: the caller has written it, and has kept other writes
    /// away meanwhile.
    fn set_current(&self, copy: usize, offset: u64, length: u64);

    /// Says that this copy of this range did not take what the others have.
    fn set_missed(&self, copy: usize, offset: u64, length: u64);
}

/// What a member of a device of several is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Has all that was written.
    Current,
    /// Takes part, but has missed some writes: that many bytes at most.
    Behind {
        /// Bytes of the member that may be old.
        missed_bytes: u64,
    },
    /// Takes no part any more.
    Failed {
        /// Why.
        why: String,
    },
}

/// The control plane of a device whose members come and go. Looked up by [`rotproof_block::ability::find`].
pub trait Members: Send + Sync {
    /// All members, in the order of the leaves from the left.
    fn states(&self) -> Vec<MemberState>;

    /// Takes a member out: it gets no request any more, and what is written from now on counts as missed. Fails with
    /// [`rotproof_block::ErrorKind::Refused`] if nothing would be left that has everything.
    fn fail(&self, member: usize, why: &str) -> Result<()>;

    /// Puts `device` in the place of a member. Of `missed`, in bytes of the member, it has nothing that counts; all of it for
    /// a new one. Queues that are open meet it with their next request. Fails with [`rotproof_block::ErrorKind::Invalid`] if
    /// it is too small.
    fn replace(&self, member: usize, device: Arc<dyn Device>, missed: &[Range<u64>]) -> Result<()>;

    /// What a member has missed, in bytes of the member, in order; coarse, never too little.
    fn missed(&self, member: usize) -> Vec<Range<u64>>;

    /// What some copy has missed, in bytes of this device, in order: what a rebuild has to go through.
    fn to_rebuild(&self) -> Vec<Range<u64>>;
}
