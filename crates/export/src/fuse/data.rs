//! Reads, writes and their like: what a FUSE request asks of the file, told to the [`ByteQueue`], and its result answered.
//!
//! The file ends where the device ends: a read there is short, a write is short or fails, as on a block device.

use std::cell::Cell;
use std::rc::Rc;

use rotproof_block::{Buffer, Operation, Result};

use super::reply::Reply;
use super::wire::WriteOut;
use crate::byte_queue::ByteQueue;

/// A payload up to this size is copied out of the large buffer it arrived in when the device keeps payloads for a
/// while: that costs less than many large buffers in flight. A device that completes at once gets the buffer itself.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// The data of a write.
pub(super) enum Payload<'a> {
    /// At the beginning of a buffer that the next request will arrive in.
    Arrived(&'a mut Buffer),
    /// Nothing but the data.
    Own(Buffer),
}

impl Payload<'_> {
    /// Its first `length` bytes. Another buffer takes the place of the one it arrived in, if that is to be kept.
    fn keep(self, length: usize, is_kept_long: bool) -> Buffer {
        match self {
            Self::Arrived(arrived) if is_kept_long && length <= COPIED_BYTES_MAX => {
                Buffer::copy_of(&arrived[..length])
            }
            Self::Arrived(arrived) => {
                let room = arrived.len();
                let mut payload = std::mem::replace(arrived, Buffer::stale(room));
                payload.truncate(length);
                payload
            }
            Self::Own(mut payload) => {
                payload.truncate(length);
                payload
            }
        }
    }
}

/// The file as one thread serves it.
pub(super) struct DataPath {
    byte_queue: Rc<ByteQueue>,
    /// Whether the last write did not complete at once.
    writes_late: Cell<bool>,
}

impl DataPath {
    pub(super) fn new(byte_queue: ByteQueue) -> Self {
        Self { byte_queue: Rc::new(byte_queue), writes_late: Cell::default() }
    }

    /// Bytes `offset..offset + size` of the file; fewer at its end.
    pub(super) fn read(&self, reply: Reply, offset: u64, size: usize) {
        let length = self.byte_queue.clip(offset, size as u64) as usize;
        if length == 0 {
            return reply.data(&[]);
        }
        self.byte_queue.read(offset, length, move |result| match result {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(&error),
        });
    }

    /// Stores the first `size` bytes of `payload`. At the end of the device the write is short, and beyond it an
    /// error, as on a block device.
    pub(super) fn write(&self, reply: Reply, payload: Payload<'_>, offset: u64, size: usize, durable: bool) {
        let length = self.byte_queue.clip(offset, size as u64) as usize;
        if length == 0 {
            return if size == 0 { reply.plain(&WriteOut::default()) } else { reply.errno(libc::ENOSPC) };
        }
        let payload = payload.keep(length, self.writes_late.get());
        let late = self.byte_queue.write(offset, payload, durable, move |result| match result {
            Ok(()) => reply.plain(&WriteOut {
                size: u32::try_from(length).expect("a payload was checked to be 1 MiB at the most"),
                padding: 0,
            }),
            Err(error) => reply.error(&error),
        });
        self.writes_late.set(late);
    }

    /// Makes everything answered so far durable.
    pub(super) fn flush(&self, reply: Reply) {
        self.byte_queue.flush(|result| answer(reply, result));
    }

    /// `fallocate`: punching a hole is a discard, zeroing a range a write of zeros; both leave the size alone, so
    /// nothing happens beyond the end. Other modes are not supported.
    pub(super) fn allocate(&self, reply: Reply, offset: u64, length: u64, mode: u32) {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
        const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        let info = &self.byte_queue.info;
        let mode = mode.cast_signed();
        let operation = match mode {
            PUNCH if info.features.discard => Operation::Discard,
            // A hole reads as zeros, and that is all a program can tell.
            PUNCH | ZERO | ZERO_KEEP if info.features.write_zeroes => Operation::WriteZeroes,
            _ => return reply.errno(libc::EOPNOTSUPP),
        };
        let within = self.byte_queue.clip(offset, length);
        if mode == ZERO && within < length {
            return reply.errno(libc::ENOSPC);
        }
        if info.read_only {
            return reply.errno(libc::EROFS);
        }
        if within == 0 {
            return reply.status(if length == 0 { Err(libc::EINVAL) } else { Ok(()) });
        }
        self.byte_queue.clear(operation, offset, within, false, |result| answer(reply, result));
    }
}

fn answer(reply: Reply, result: Result<()>) {
    match result {
        Ok(()) => reply.status(Ok(())),
        Err(error) => reply.error(&error),
    }
}
