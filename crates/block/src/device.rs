//! The core: a device has an information page and opens queues; a queue takes requests and completes them.
//!
//! Everything in Rotproof is an implementation of these two traits or a user of them. Optional abilities (resize,
//! versions, power cut) are separate small traits beside them, never more methods here, and are looked up by their type
//! ([`ability::find`](crate::ability::find)).

use std::rc::Rc;

use crate::ability::{Ability, Wanted};
use crate::{Buffer, Context, Error, ErrorKind, Result, Runtime, Submission};

/// Something that serves block requests: a *leaf* or a *layer* over other devices. The control plane.
///
/// A device is shared between threads; each thread opens its own [`Queue`] on its own [`Runtime`].
pub trait Device: Send + Sync {
    /// What this device is: size, block size, abilities. Constant while queues are open.
    fn info(&self) -> DeviceInfo;

    /// Opens a queue whose requests run on `runtime`, the runtime of the calling thread.
    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>>;

    /// The optional ability that is wanted, if this device has it. A layer over one device asks that one in the end.
    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        let _ = wanted;
        None
    }
}

/// The data plane of a device, bound to one thread.
///
/// # Contract
/// 1. **Order**: none between requests, but by [`Operation::Flush`] and by waiting for a completion.
/// 2. **Visibility**: a completed write is seen by every read submitted after it, on any queue of the device.
/// 3. **Durability**: only what completed before a flush was submitted is durable once that flush has completed,
///    and a write with `fua` once it has completed itself.
/// 4. **Completion**: exactly one for each request. The buffer comes back in it, whatever the result. A request
///    whose queue goes away completes with [`ErrorKind::Medium`] (EIO).
/// 5. **Atomicity**: a request may be torn at multiples of [`DeviceInfo::atomic_write_bytes`] only.
/// 6. **Context**: passed down unchanged, except where a layer makes children ([`Context::child`]).
/// 7. **Innocence**: an error never betrays that it was injected; only the ledger knows.
/// 8. **Bounds**: a request that does not fit [`DeviceInfo`] completes with an error of kind
///    [`ErrorKind::OutOfRange`] or [`ErrorKind::Misaligned`] and touches nothing ([`DeviceInfo::check`]). One of
///    length zero succeeds without effect.
/// 9. **Progress**: work may begin in `submit` or at the first poll of the [`Submission`], which the caller polls
///    promptly. A submission that is dropped before it completes may or may not have taken effect; its buffer
///    stays alive until the kernel is done with it.
pub trait Queue {
    /// Starts a request. Never blocks the thread.
    fn submit(&self, request: Request) -> Submission;
}

/// What is to be done to the bytes from `offset` on, for `length` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Fill the request's buffer.
    Read,
    /// Store the request's buffer; durable on completion if `fua` (force unit access).
    Write {
        /// Durable on completion.
        fua: bool,
    },
    /// Make every write completed before durable. Offset and length are zero.
    Flush,
    /// The content is not needed any more; reads afterwards return zeros on every leaf of ours.
    Discard,
    /// Store zeros.
    WriteZeroes,
}

impl Operation {
    /// A write without force unit access.
    pub const WRITE: Operation = Operation::Write { fua: false };

    /// Whether the operation changes what a later read returns.
    pub fn is_mutation(self) -> bool {
        matches!(self, Operation::Write { .. } | Operation::Discard | Operation::WriteZeroes)
    }

    /// Whether the request carries data in its buffer.
    pub fn has_payload(self) -> bool {
        matches!(self, Operation::Read | Operation::Write { .. })
    }
}

/// One request on its way down. The fields are open so that a layer that remaps or splits stays one function.
#[derive(Debug)]
pub struct Request {
    /// What to do.
    pub operation: Operation,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes concerned; for reads and writes equal to `buffer.len()`.
    pub length: u64,
    /// The data of a write, the space for a read; empty otherwise. Returned in the [`Completion`].
    pub buffer: Buffer,
    /// What is known of the request beyond offset and length.
    pub context: Context,
}

impl Request {
    /// Reads `buffer.len()` bytes from `offset`.
    pub fn read(offset: u64, buffer: Buffer, context: Context) -> Self {
        Self { operation: Operation::Read, offset, length: buffer.len() as u64, buffer, context }
    }

    /// Writes the whole buffer at `offset`.
    pub fn write(offset: u64, buffer: Buffer, context: Context) -> Self {
        Self { operation: Operation::WRITE, offset, length: buffer.len() as u64, buffer, context }
    }

    /// Makes everything completed so far durable.
    pub fn flush(context: Context) -> Self {
        Self { operation: Operation::Flush, offset: 0, length: 0, buffer: Buffer::empty(), context }
    }

    /// Gives up the content of a range.
    pub fn discard(offset: u64, length: u64, context: Context) -> Self {
        Self { operation: Operation::Discard, offset, length, buffer: Buffer::empty(), context }
    }

    /// Stores zeros in a range.
    pub fn write_zeroes(offset: u64, length: u64, context: Context) -> Self {
        Self { operation: Operation::WriteZeroes, offset, length, buffer: Buffer::empty(), context }
    }

    /// First byte after the range.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// Ends the request with success.
    pub fn succeed(self) -> Completion {
        Completion { result: Ok(()), buffer: self.buffer, context: self.context }
    }

    /// Ends the request with an error.
    pub fn fail(self, error: Error) -> Completion {
        Completion { result: Err(error), buffer: self.buffer, context: self.context }
    }
}

/// The one answer to a [`Request`].
#[derive(Debug)]
pub struct Completion {
    /// Whether the request took effect.
    pub result: Result<()>,
    /// The request's buffer, filled after a successful read. After a failed one its content means nothing.
    pub buffer: Buffer,
    /// The request's context.
    pub context: Context,
}

/// What a device is. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Capacity; a multiple of `block_size`.
    pub size: u64,
    /// Unit of addressing: every offset and length is a multiple of it. A power of two.
    pub block_size: u32,
    /// A write is never torn inside an aligned unit of this size. A power of two, at least `block_size`.
    pub atomic_write_bytes: u32,
    /// Refuses every mutation.
    pub read_only: bool,
    /// Which optional operations have an effect of their own.
    pub features: Features,
}

/// The optional operations of a device. One that is missing completes with [`ErrorKind::Unsupported`], except
/// flush and fua, which always succeed: without them the device simply has no volatile cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Has a volatile cache that flush empties.
    pub flush: bool,
    /// Honours force unit access by itself, cheaper than write and flush.
    pub fua: bool,
    /// Can discard.
    pub discard: bool,
    /// Can write zeros without a payload.
    pub write_zeroes: bool,
}

impl DeviceInfo {
    /// Checks a request against the contract's rule 8. Every leaf calls this first.
    pub fn check(&self, request: &Request) -> Result<()> {
        let Request { operation, offset, length, .. } = *request;
        if operation == Operation::Flush {
            return Ok(());
        }
        if operation.has_payload() && length != request.buffer.len() as u64 {
            return Err(Error::new(ErrorKind::OutOfRange, "the request's length is not its buffer's"));
        }
        if (offset | length) & u64::from(self.block_size - 1) != 0 {
            return Err(Error::new(
                ErrorKind::Misaligned,
                format!("offset {offset} or length {length} is no multiple of {} bytes", self.block_size),
            ));
        }
        if offset > self.size || length > self.size - offset {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                format!("{length} bytes at {offset} reach beyond the device's {} bytes", self.size),
            ));
        }
        if self.read_only && operation.is_mutation() {
            return Err(Error::new(ErrorKind::ReadOnly, "the device is read-only"));
        }
        let supported = match operation {
            Operation::Discard => self.features.discard,
            Operation::WriteZeroes => self.features.write_zeroes,
            _ => true,
        };
        if !supported {
            return Err(Error::new(ErrorKind::Unsupported, format!("the device has no {operation:?}")));
        }
        Ok(())
    }
}
