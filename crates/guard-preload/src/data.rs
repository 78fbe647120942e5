//! Reading and writing.
//!
//! Positions are the kernel's, since processes share them. A read claims its stretch by moving the position over it, and
//! gives back what it did not get. A write asks and moves while it holds the file's lock of writers.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use libc::{iovec, size_t, ssize_t};
use rotproof_guard::Outcome;

use crate::guarded::{Open, answer, guarded, within};
use crate::raw::{self, call};

/// The kernel moves no more at once.
const LENGTH_MAX: usize = 0x7fff_f000;
/// Buffers of one vector, at most: IOV_MAX.
const VECTORS_MAX: c_int = 1024;

/// Where bytes go, or come from.
#[derive(Clone, Copy)]
enum FileOffset {
    /// At the position, which moves.
    Position,
    /// At an offset.
    At(u64),
}

fn place_of(offset: i64) -> Option<FileOffset> {
    u64::try_from(offset).ok().map(FileOffset::At)
}

/// # Safety
/// `to` is valid for writes of `length` bytes.
unsafe fn read_into(open: Arc<Open>, to: *mut c_void, length: usize, offset: u64) -> Option<Outcome<usize>> {
    let length = length.min(LENGTH_MAX);
    within(move || {
        // SAFETY: the caller's word, which is the program's.
        let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), length) };
        open.file.read_at(to, offset)
    })
}

/// Reads at the position: claims, reads, and gives back what was not there.
fn at_position(descriptor: c_int, length: usize, read: impl FnOnce(u64) -> Option<Outcome<usize>>) -> isize {
    let wanted = length.min(LENGTH_MAX) as i64;
    let end = raw::lseek(descriptor, wanted, libc::SEEK_CUR);
    if end < 0 {
        return -1;
    }
    let outcome = read((end - wanted).cast_unsigned());
    let got = match &outcome {
        Some(Ok(count)) => *count as i64,
        _ => 0,
    };
    if got < wanted {
        raw::lseek(descriptor, got - wanted, libc::SEEK_CUR);
    }
    answer(outcome)
}

/// Writes, and makes durable what is to be at once.
fn write_from(descriptor: c_int, open: Arc<Open>, from: &[u8], place: FileOffset) -> Option<Outcome<usize>> {
    within(move || {
        let done = match place {
            _ if open.appends => {
                let (at, done) = open.file.append(from, None)?;
                if matches!(place, FileOffset::Position) {
                    raw::lseek(descriptor, (at + done as u64).cast_signed(), libc::SEEK_SET);
                }
                done
            }
            FileOffset::At(offset) => open.file.write_at(from, offset)?,
            FileOffset::Position => open.file.write_at_place(
                from,
                || {
                    let at = raw::lseek(descriptor, 0, libc::SEEK_CUR);
                    u64::try_from(at).map_err(|_| std::io::Error::last_os_error())
                },
                |end| {
                    raw::lseek(descriptor, end.cast_signed(), libc::SEEK_SET);
                },
            )?,
        };
        if let Some(data_only) = open.syncs {
            open.file.sync_by(open.own(descriptor), data_only)?;
        }
        Ok(done)
    })
}

/// # Safety
/// As `read`.
unsafe fn read_one(descriptor: c_int, to: *mut c_void, length: size_t) -> ssize_t {
    match guarded(descriptor) {
        Ok(Some(open)) if open.reads && length > 0 => at_position(descriptor, length, |offset| {
            // SAFETY: the caller's word.
            unsafe { read_into(open, to, length, offset) }
        }),
        // SAFETY: the caller's word.
        Ok(_) => unsafe { call!(SYS_read, descriptor, to, length) as ssize_t },
        Err(errno) => raw::fail(errno) as ssize_t,
    }
}

/// # Safety
/// As `pread`.
unsafe fn read_one_at(descriptor: c_int, to: *mut c_void, length: size_t, offset: i64) -> ssize_t {
    match (guarded(descriptor), u64::try_from(offset)) {
        (Ok(Some(open)), Ok(offset)) if open.reads && length > 0 => {
            // SAFETY: the caller's word.
            answer(unsafe { read_into(open, to, length, offset) })
        }
        // SAFETY: the caller's word.
        (Ok(_), _) => unsafe { call!(SYS_pread64, descriptor, to, length, offset) as ssize_t },
        (Err(errno), _) => raw::fail(errno) as ssize_t,
    }
}

/// # Safety
/// As `write`.
unsafe fn write_one(descriptor: c_int, from: *const c_void, length: size_t) -> ssize_t {
    match guarded(descriptor) {
        Ok(Some(open)) if open.writes && length > 0 => {
            // SAFETY: the caller's word.
            let from = unsafe { std::slice::from_raw_parts(from.cast(), length.min(LENGTH_MAX)) };
            answer(write_from(descriptor, open, from, FileOffset::Position))
        }
        // SAFETY: the caller's word.
        Ok(_) => unsafe { call!(SYS_write, descriptor, from, length) as ssize_t },
        Err(errno) => raw::fail(errno) as ssize_t,
    }
}

/// # Safety
/// As `pwrite`.
unsafe fn write_one_at(descriptor: c_int, from: *const c_void, length: size_t, offset: i64) -> ssize_t {
    match (guarded(descriptor), place_of(offset)) {
        (Ok(Some(open)), Some(place)) if open.writes && length > 0 => {
            // SAFETY: the caller's word.
            let from = unsafe { std::slice::from_raw_parts(from.cast(), length.min(LENGTH_MAX)) };
            answer(write_from(descriptor, open, from, place))
        }
        // SAFETY: the caller's word.
        (Ok(_), _) => unsafe { call!(SYS_pwrite64, descriptor, from, length, offset) as ssize_t },
        (Err(errno), _) => raw::fail(errno) as ssize_t,
    }
}

/// The buffers of a vector, and their bytes; `None` if the kernel would refuse it.
///
/// # Safety
/// `vectors` is valid for reads of `count` of them.
unsafe fn buffers<'a>(vectors: *const iovec, count: c_int) -> Option<(&'a [iovec], usize)> {
    if !(1..=VECTORS_MAX).contains(&count) {
        return None;
    }
    // SAFETY: the caller's word.
    let vectors = unsafe { std::slice::from_raw_parts(vectors, count as usize) };
    let total = vectors.iter().try_fold(0usize, |sum, vector| sum.checked_add(vector.iov_len))?;
    (total <= LENGTH_MAX && total > 0).then_some((vectors, total))
}

/// # Safety
/// Each buffer is valid for writes.
unsafe fn read_buffers(open: &Open, vectors: &[iovec], offset: u64) -> Outcome<usize> {
    let mut done = 0;
    for vector in vectors.iter().filter(|vector| vector.iov_len > 0) {
        // SAFETY: the caller's word.
        let to = unsafe { std::slice::from_raw_parts_mut(vector.iov_base.cast::<u8>(), vector.iov_len) };
        let count = match open.file.read_at(to, offset + done as u64) {
            Ok(count) => count,
            Err(_) if done > 0 => break,
            Err(trouble) => return Err(trouble),
        };
        done += count;
        if count < vector.iov_len {
            break;
        }
    }
    Ok(done)
}

/// # Safety
/// As `preadv`; without an offset as `readv`.
unsafe fn read_vector(
    descriptor: c_int,
    vectors: *const iovec,
    count: c_int,
    place: Option<FileOffset>,
) -> Option<ssize_t> {
    let open = match guarded(descriptor) {
        Ok(open) => open.filter(|open| open.reads)?,
        Err(errno) => return Some(raw::fail(errno) as ssize_t),
    };
    // SAFETY: the caller's word.
    let (vectors, total) = unsafe { buffers(vectors, count) }?;
    // SAFETY: the caller's word.
    let read = |offset| within(|| unsafe { read_buffers(&open, vectors, offset) });
    Some(match place? {
        FileOffset::Position => at_position(descriptor, total, read),
        FileOffset::At(offset) => answer(read(offset)),
    })
}

/// # Safety
/// As `pwritev`; without an offset as `writev`.
unsafe fn write_vector(
    descriptor: c_int,
    vectors: *const iovec,
    count: c_int,
    place: Option<FileOffset>,
    wanted: Wanted,
) -> Option<ssize_t> {
    let open = match guarded(descriptor) {
        Ok(open) => open.filter(|open| open.writes)?,
        Err(errno) => return Some(raw::fail(errno) as ssize_t),
    };
    // SAFETY: the caller's word.
    let (vectors, total) = unsafe { buffers(vectors, count) }?;
    let place = place?;
    let open = wanted.of(open);
    // One write, so that those of others do not get in between.
    if let [only] = vectors {
        // SAFETY: the caller's word.
        let from = unsafe { std::slice::from_raw_parts(only.iov_base.cast(), only.iov_len) };
        return Some(answer(write_from(descriptor, open, from, place)));
    }
    let mut gathered = Vec::with_capacity(total);
    for vector in vectors.iter().filter(|vector| vector.iov_len > 0) {
        // SAFETY: the caller's word.
        gathered
            .extend_from_slice(unsafe { std::slice::from_raw_parts(vector.iov_base.cast(), vector.iov_len) });
    }
    Some(answer(write_from(descriptor, open, &gathered, place)))
}

/// What one write of a vector wants beside what its descriptor says.
#[derive(Clone, Copy, Default)]
struct Wanted {
    appends: bool,
    syncs: Option<bool>,
}

impl Wanted {
    fn of(self, open: Arc<Open>) -> Arc<Open> {
        if !self.appends && self.syncs.is_none() {
            return open;
        }
        Arc::new(Open {
            file: Arc::clone(&open.file),
            reads: open.reads,
            writes: open.writes,
            appends: open.appends || self.appends,
            syncs: self.syncs.or(open.syncs),
            seen: open.seen,
            own: Arc::clone(&open.own),
        })
    }
}

/// # Safety
/// As `readv`.
unsafe fn readv_all(descriptor: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's word.
    unsafe {
        read_vector(descriptor, vectors, count, Some(FileOffset::Position))
            .unwrap_or_else(|| call!(SYS_readv, descriptor, vectors, count) as ssize_t)
    }
}

/// # Safety
/// As `writev`.
unsafe fn writev_all(descriptor: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's word.
    unsafe {
        write_vector(descriptor, vectors, count, Some(FileOffset::Position), Wanted::default())
            .unwrap_or_else(|| call!(SYS_writev, descriptor, vectors, count) as ssize_t)
    }
}

/// # Safety
/// As `preadv`.
unsafe fn readv_at(descriptor: c_int, vectors: *const iovec, count: c_int, offset: i64) -> ssize_t {
    // SAFETY: the caller's word. The kernel takes an offset in two words, of which it wants one here.
    unsafe {
        read_vector(descriptor, vectors, count, place_of(offset))
            .unwrap_or_else(|| call!(SYS_preadv, descriptor, vectors, count, offset, 0) as ssize_t)
    }
}

/// # Safety
/// As `pwritev`.
unsafe fn writev_at(descriptor: c_int, vectors: *const iovec, count: c_int, offset: i64) -> ssize_t {
    // SAFETY: as above.
    unsafe {
        write_vector(descriptor, vectors, count, place_of(offset), Wanted::default())
            .unwrap_or_else(|| call!(SYS_pwritev, descriptor, vectors, count, offset, 0) as ssize_t)
    }
}

/// Where a vector with flags goes: -1 is the position.
fn place_or_position(offset: i64) -> Option<FileOffset> {
    if offset == -1 { Some(FileOffset::Position) } else { place_of(offset) }
}

/// # Safety
/// As `preadv2`.
unsafe fn readv_with(
    descriptor: c_int,
    vectors: *const iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> ssize_t {
    if flags & !libc::RWF_HIPRI != 0 && matches!(guarded(descriptor), Ok(Some(_))) {
        return raw::fail(libc::EOPNOTSUPP) as ssize_t;
    }
    // SAFETY: the caller's word.
    unsafe {
        read_vector(descriptor, vectors, count, place_or_position(offset))
            .unwrap_or_else(|| call!(SYS_preadv2, descriptor, vectors, count, offset, 0, flags) as ssize_t)
    }
}

/// # Safety
/// As `pwritev2`.
unsafe fn writev_with(
    descriptor: c_int,
    vectors: *const iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> ssize_t {
    let known = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_APPEND;
    if flags & !known != 0 && matches!(guarded(descriptor), Ok(Some(_))) {
        return raw::fail(libc::EOPNOTSUPP) as ssize_t;
    }
    let syncs = match flags & (libc::RWF_DSYNC | libc::RWF_SYNC) {
        0 => None,
        libc::RWF_DSYNC => Some(true),
        _ => Some(false),
    };
    let wanted = Wanted { appends: flags & libc::RWF_APPEND != 0, syncs };
    // SAFETY: the caller's word.
    unsafe {
        write_vector(descriptor, vectors, count, place_or_position(offset), wanted)
            .unwrap_or_else(|| call!(SYS_pwritev2, descriptor, vectors, count, offset, 0, flags) as ssize_t)
    }
}

/// The checked forms that compilers put in: they know how much room there is.
///
/// # Safety
/// As `read`.
unsafe fn read_checked(descriptor: c_int, to: *mut c_void, length: size_t, room: size_t) -> ssize_t {
    if length > room {
        overflow();
    }
    // SAFETY: the caller's word.
    unsafe { read_one(descriptor, to, length) }
}

/// # Safety
/// As `pread`.
unsafe fn read_checked_at(
    descriptor: c_int,
    to: *mut c_void,
    length: size_t,
    offset: i64,
    room: size_t,
) -> ssize_t {
    if length > room {
        overflow();
    }
    // SAFETY: the caller's word.
    unsafe { read_one_at(descriptor, to, length, offset) }
}

/// What the C library does where a program would write beyond its buffer.
fn overflow() -> ! {
    crate::guarded::tell("buffer overflow detected: terminated");
    // SAFETY: it does not return.
    unsafe { libc::abort() }
}

/// Reads a stretch of a file and throws it away: whether all of it is right.
pub fn verify(open: &Open, offset: u64, length: u64) -> Outcome<()> {
    let mut room = vec![0u8; 1 << 17];
    let end = offset.saturating_add(length).min(open.file.size());
    let mut at = offset;
    while at < end {
        let wanted = room.len().min((end - at) as usize);
        match open.file.read_at(&mut room[..wanted], at)? {
            0 => break,
            count => at += count as u64,
        }
    }
    Ok(())
}

same!(read => read_one, (descriptor: c_int, to: *mut c_void, length: size_t) -> ssize_t);
same!(write => write_one, (descriptor: c_int, from: *const c_void, length: size_t) -> ssize_t);
same!(pread, pread64 => read_one_at, (descriptor: c_int, to: *mut c_void, length: size_t, offset: i64) -> ssize_t);
same!(pwrite, pwrite64 => write_one_at, (descriptor: c_int, from: *const c_void, length: size_t, offset: i64) -> ssize_t);
same!(readv => readv_all, (descriptor: c_int, vectors: *const iovec, count: c_int) -> ssize_t);
same!(writev => writev_all, (descriptor: c_int, vectors: *const iovec, count: c_int) -> ssize_t);
same!(preadv, preadv64 => readv_at, (descriptor: c_int, vectors: *const iovec, count: c_int, offset: i64) -> ssize_t);
same!(pwritev, pwritev64 => writev_at, (descriptor: c_int, vectors: *const iovec, count: c_int, offset: i64) -> ssize_t);
same!(preadv2, preadv64v2 => readv_with, (descriptor: c_int, vectors: *const iovec, count: c_int, offset: i64, flags: c_int) -> ssize_t);
same!(pwritev2, pwritev64v2 => writev_with, (descriptor: c_int, vectors: *const iovec, count: c_int, offset: i64, flags: c_int) -> ssize_t);
same!(__read_chk => read_checked, (descriptor: c_int, to: *mut c_void, length: size_t, room: size_t) -> ssize_t);
same!(__pread_chk, __pread64_chk => read_checked_at, (descriptor: c_int, to: *mut c_void, length: size_t, offset: i64, room: size_t) -> ssize_t);
