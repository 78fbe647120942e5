//! The way in for requests: what one thread of the foreign stack asks.

use std::ffi::c_char;

use fault::{Gate, Header};
use rotproof_block::{Context, Operation, Phase, Tag, Time};

use crate::engine::{engine_of, rotproof_engine};
use crate::request::{Carried, rotproof_request};
use crate::status::{CallError, guard, rotproof_status};
use crate::text::optional;

/// What one thread asks. A queue and the requests that began on it are used by one thread at a time; another may go on
/// with them later.
#[expect(non_camel_case_types, reason = "its name in C")]
pub struct rotproof_queue {
    gate: Gate,
    device_bytes: u64,
    block_bytes: u32,
}

/// What a request does.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rotproof_operation {
    /// Fills `read_data`.
    Read = 0,
    /// Stores `write_data`.
    Write = 1,
    /// Makes what was written durable; offset and length are 0.
    Flush = 2,
    /// Gives a range up.
    Discard = 3,
    /// Stores zeros.
    WriteZeroes = 4,
}

impl rotproof_operation {
    const READ: u32 = Self::Read as u32;
    const WRITE: u32 = Self::Write as u32;
    const FLUSH: u32 = Self::Flush as u32;
    const DISCARD: u32 = Self::Discard as u32;
    const WRITE_ZEROES: u32 = Self::WriteZeroes as u32;
}

/// A request of the foreign stack.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rotproof_io {
    /// A `rotproof_operation`; as a number, so that a wrong one is refused.
    pub operation: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// For a write: `length` bytes, which are read and never changed.
    pub write_data: *const u8,
    /// For a read: room for `length` bytes.
    pub read_data: *mut u8,
    /// What the request is marked with, such as the name of a file; NULL for nothing. Kept for the life of the process,
    /// so marks are for sets that are bounded.
    pub tag: *const c_char,
    /// A number of the caller's for the ledger.
    pub id: u64,
    /// When it came, in nanoseconds since any beginning that all times of this engine have in common.
    pub now_ns: u64,
}

/// Makes a queue. `queue` gets what is to be freed with `rotproof_queue_free`, or NULL.
///
/// # Safety
/// `engine` was given by `rotproof_engine_new`; `queue` points to a valid object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_queue_new(
    engine: *const rotproof_engine,
    queue: *mut *mut rotproof_queue,
) -> rotproof_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let out =
            unsafe { queue.as_mut() }.ok_or_else(|| CallError::invalid("the place for the queue is NULL"))?;
        *out = std::ptr::null_mut();
        // SAFETY: as the caller promises.
        let rotproof_engine { engine, block_bytes } = unsafe { engine_of(engine) }?;
        let made = rotproof_queue {
            gate: engine.gate(),
            device_bytes: engine.device_size(),
            block_bytes: *block_bytes,
        };
        *out = Box::into_raw(Box::new(made));
        Ok(())
    })
}

/// Frees a queue. Requests that began on it stay good, for the thread that uses them. NULL is nothing to free.
///
/// # Safety
/// `queue` is NULL, or was given by `rotproof_queue_new` and has not been freed; no other thread uses it or its
/// requests meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_queue_free(queue: *mut rotproof_queue) {
    if !queue.is_null() {
        guard(|| {
            // SAFETY: it came from `Box::into_raw`, says the caller, and nobody uses it any more.
            drop(unsafe { Box::from_raw(queue) });
            Ok(())
        });
    }
}

/// Decides on a request before it is passed on. If nothing can happen to it, `request` gets NULL: pass it on, and that
/// is all. Else it gets the request, to be taken through its steps with `rotproof_next` and freed with
/// `rotproof_request_free`. Until then the data of `io` must stay where they are, those of a write as they are.
///
/// # Safety
/// `queue` was given by `rotproof_queue_new`, and no other thread uses it meanwhile; `io` and `request` point to valid
/// objects; the data of `io` are as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_begin(
    queue: *const rotproof_queue,
    io: *const rotproof_io,
    request: *mut *mut rotproof_request,
) -> rotproof_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { request.as_mut() }
            .ok_or_else(|| CallError::invalid("the place for the request is NULL"))?;
        *out = std::ptr::null_mut();
        // SAFETY: as the caller promises.
        let queue = unsafe { queue.as_ref() }.ok_or_else(|| CallError::invalid("the queue is NULL"))?;
        // SAFETY: as the caller promises.
        let io = unsafe { io.as_ref() }.ok_or_else(|| CallError::invalid("the request is NULL"))?;
        let operation = queue.check(io)?;
        if io.length == 0 && operation != Operation::Flush {
            return Ok(());
        }
        // SAFETY: NULL or a text, says the caller.
        let tag = unsafe { optional(io.tag, "the tag") }?.map_or(Tag::NONE, Tag::intern);
        let context =
            Context { id: io.id, submitted: Time(io.now_ns), tag, phase: Phase::Run, ..Context::default() };
        let header = Header { operation, offset: io.offset, length: io.length, context };
        let length = usize::try_from(io.length).map_err(|_| CallError::invalid("longer than memory"))?;
        let payload: &[u8] = match operation {
            // SAFETY: not NULL, as was checked, and so long, says the caller.
            Operation::Write { .. } => unsafe { std::slice::from_raw_parts(io.write_data, length) },
            _ => &[],
        };
        let Some(passage) = queue.gate.begin(&header, payload) else { return Ok(()) };
        let carried = Carried::new(passage);
        *out = Box::into_raw(Box::new(rotproof_request::new(carried, io.write_data, io.read_data)));
        Ok(())
    })
}

impl rotproof_queue {
    /// What a request does, if it is one that the device can carry out.
    fn check(&self, io: &rotproof_io) -> Result<Operation, CallError> {
        let operation = match io.operation {
            rotproof_operation::READ => Operation::Read,
            rotproof_operation::WRITE => Operation::WRITE,
            rotproof_operation::FLUSH => Operation::Flush,
            rotproof_operation::DISCARD => Operation::Discard,
            rotproof_operation::WRITE_ZEROES => Operation::WriteZeroes,
            other => return Err(CallError::invalid(format!("{other} is no operation; give 0 to 4"))),
        };
        let (offset, length) = (io.offset, io.length);
        if operation == Operation::Flush {
            let is_empty = offset == 0 && length == 0;
            return if is_empty {
                Ok(operation)
            } else {
                Err(CallError::invalid("a flush of a range; give 0 and 0"))
            };
        }
        let block = u64::from(self.block_bytes);
        if !offset.is_multiple_of(block) || !length.is_multiple_of(block) {
            let message = format!("{length} bytes at {offset} are no whole blocks of {block} bytes");
            return Err(CallError::invalid(message));
        }
        if offset.checked_add(length).is_none_or(|end| end > self.device_bytes) {
            let message =
                format!("{length} bytes at {offset} are beyond the device of {}", self.device_bytes);
            return Err(CallError::invalid(message));
        }
        let data = match operation {
            Operation::Read => io.read_data.cast_const(),
            Operation::Write { .. } => io.write_data,
            _ => return Ok(operation),
        };
        if data.is_null() && length > 0 {
            return Err(CallError::invalid("the data of the request are NULL"));
        }
        Ok(operation)
    }
}
