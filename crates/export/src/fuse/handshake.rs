//! The first message of a connection: both sides say what they can do, and what both can is used.

use std::os::fd::AsRawFd;

use rotproof_block::error::IoContext;
use rotproof_block::{Buffer, Error, ErrorKind, Result};

use super::channel::{Channel, Received};
use super::parse::{FuseOperation, TRANSFER_BYTES_MAX, parse};
use super::wire::{HEAD_BYTES, InitOut, MAJOR, MINOR, MINOR_MIN, Plain, init};

/// Everything asked for. No write-back cache: a write that a program saw complete has reached the device.
const WANTED: u64 = init::ASYNC_READ
    | init::BIG_WRITES
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::ABORT_ERROR
    | init::MAX_PAGES
    | init::HANDLE_KILLPRIV_V2
    | init::EXTENDED
    | init::DIRECT_IO_ALLOW_MMAP;
/// Asked for where every thread has a ring.
const WANTED_WITH_RINGS: u64 = WANTED | init::OVER_IO_URING;
/// Asynchronous requests under way at once; the kernel's default of 12 would bound every queue depth.
const BACKGROUND_MAX: u16 = 512;
const PAGE_BYTES: usize = 4096;
/// The kernel sends the message while it mounts, so it is there long before.
const PATIENCE_MS: libc::c_int = 10_000;

/// Answers the first message on the channel that was mounted. Returns whether requests are to come by io_uring, which can
/// only be if `has_rings`.
pub(super) fn shake_hands(channel: &Channel, has_rings: bool) -> Result<bool> {
    let mut wait = libc::pollfd { fd: channel.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives across the call. An error shows in the read.
    if unsafe { libc::poll(&raw mut wait, 1, PATIENCE_MS) } == 0 {
        return Err(Error::new(ErrorKind::TimedOut, "the kernel did not begin the FUSE connection in 10 s"));
    }
    let mut head = [0; HEAD_BYTES];
    let mut payload = Buffer::stale(TRANSFER_BYTES_MAX);
    let bytes =
        match channel.receive(&mut head, &mut payload).doing(|| "beginning the FUSE connection".into())? {
            Received::Request(bytes) => bytes,
            Received::Nothing | Received::End => {
                return Err(Error::new(ErrorKind::Gone, "the FUSE connection ended before it began"));
            }
        };
    let unexpected = || Error::new(ErrorKind::Internal, "the FUSE connection did not begin with INIT");
    let in_head = bytes.min(HEAD_BYTES);
    let message = parse(&head[..in_head], &payload[..bytes - in_head]).map_err(|_| unexpected())?;
    let FuseOperation::Init { major, minor, readahead_bytes_max, flags } = message.operation else {
        return Err(unexpected());
    };
    let wanted = if has_rings { WANTED_WITH_RINGS } else { WANTED };
    let result = answer(major, minor, readahead_bytes_max, flags & wanted);
    let sent = match &result {
        Ok(fields) => channel.send(message.unique, 0, fields.as_bytes()),
        Err(_) => channel.send(message.unique, -libc::EPROTO, &[]),
    };
    sent.doing(|| "answering the kernel's INIT".into())?;
    result.map(|agreed| u64::from(agreed.flags2) << 32 & init::OVER_IO_URING != 0)
}

/// The answer to a kernel that offers `agreed` of what we want.
fn answer(major: u32, minor: u32, readahead_bytes_max: u32, agreed: u64) -> Result<InitOut> {
    if major != MAJOR || minor < MINOR_MIN {
        return Err(Error::new(
            ErrorKind::Missing,
            format!("the kernel speaks FUSE {major}.{minor}; {MAJOR}.{MINOR_MIN} (Linux 4.20) is needed"),
        ));
    }
    if agreed & init::ASYNC_DIO == 0 {
        return Err(Error::new(ErrorKind::Missing, "the kernel's FUSE has no asynchronous direct I/O"));
    }
    let transfer_bytes_max = if agreed & init::MAX_PAGES == 0 { 32 * PAGE_BYTES } else { TRANSFER_BYTES_MAX };
    Ok(InitOut {
        major: MAJOR,
        minor: minor.min(MINOR),
        max_readahead: readahead_bytes_max,
        flags: agreed as u32,
        flags2: (agreed >> 32) as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write: transfer_bytes_max as u32,
        max_pages: (transfer_bytes_max / PAGE_BYTES) as u16,
        time_gran: 1,
        ..InitOut::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_agreed_on_that_the_kernel_did_not_offer() {
        let offered = init::ASYNC_DIO | init::MAX_PAGES | 1 << 16;
        let out = answer(7, 31, 131_072, offered & WANTED).expect("new enough");
        assert_eq!(u64::from(out.flags), init::ASYNC_DIO | init::MAX_PAGES);
        assert_eq!((out.flags2, out.minor, out.max_write, out.max_pages), (0, 31, 1 << 20, 256));
    }

    #[test]
    fn the_second_word_of_flags_is_used_where_there_is_one() {
        let out = answer(7, 45, 0, WANTED).expect("new enough");
        assert_eq!(u64::from(out.flags2) << 32, init::DIRECT_IO_ALLOW_MMAP);
        let out = answer(7, 45, 0, WANTED_WITH_RINGS).expect("new enough");
        assert_eq!(u64::from(out.flags2) << 32, init::DIRECT_IO_ALLOW_MMAP | init::OVER_IO_URING);
        assert_eq!(out.minor, MINOR);
    }

    #[test]
    fn a_kernel_that_is_too_old_is_named() {
        for (major, minor, flags) in [(7, 27, u64::MAX), (6, 40, u64::MAX), (7, 45, 0)] {
            let error = answer(major, minor, 0, flags).expect_err("too old");
            assert_eq!(error.kind(), ErrorKind::Missing);
        }
    }
}
