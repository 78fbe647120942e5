//! Calls that move data of files without showing them to the program. The guard could not verify what they move, so on its
//! files they are refused in the way in which programs know them refused; they then read and write.

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use libc::{aiocb, off_t, sigevent, size_t, ssize_t};

use crate::guarded::guarded;
use crate::raw::{self, call};

/// Whether a descriptor is a file of the guard, also if it cannot be guarded now.
fn is_guarded(descriptor: c_int) -> bool {
    !matches!(guarded(descriptor), Ok(None))
}

/// # Safety
/// As `sendfile`.
unsafe fn send(to: c_int, from: c_int, offset: *mut off_t, length: size_t) -> ssize_t {
    if is_guarded(to) || is_guarded(from) {
        return raw::fail(libc::EINVAL) as ssize_t;
    }
    // SAFETY: the caller's word.
    unsafe { call!(SYS_sendfile, to, from, offset, length) as ssize_t }
}

/// # Safety
/// As `copy_file_range`.
unsafe fn copy(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    if is_guarded(from) || is_guarded(to) {
        return raw::fail(libc::EXDEV) as ssize_t;
    }
    // SAFETY: the caller's word.
    unsafe { call!(SYS_copy_file_range, from, from_offset, to, to_offset, length, flags) as ssize_t }
}

/// # Safety
/// As `splice`.
unsafe fn splice_between(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    if is_guarded(from) || is_guarded(to) {
        return raw::fail(libc::EINVAL) as ssize_t;
    }
    // SAFETY: the caller's word.
    unsafe { call!(SYS_splice, from, from_offset, to, to_offset, length, flags) as ssize_t }
}

/// # Safety
/// As `ioctl`.
unsafe fn control(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    const CLONE: c_ulong = 0x4004_9409;
    const CLONE_RANGE: c_ulong = 0x4020_940D;
    const DEDUPE_RANGE: c_ulong = 0xC018_9436;
    if matches!(request, CLONE | CLONE_RANGE | DEDUPE_RANGE) && is_guarded(descriptor) {
        return raw::fail(libc::EOPNOTSUPP);
    }
    // SAFETY: the caller's word.
    unsafe { call!(SYS_ioctl, descriptor, request, argument) as c_int }
}

/// Reads and writes of the C library's own threads: refused for guarded files, with the system's functions for all else.
macro_rules! asynchronous {
    ($($name:ident, $wide:ident => $behind:ident, $text:literal;)+) => {
        $(
            static $behind: raw::Behind = raw::Behind::new($text);

            /// # Safety
            /// As the function of the C library by this name.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(block: *mut aiocb) -> c_int {
                // SAFETY: the caller's word.
                let descriptor = unsafe { (*block).aio_fildes };
                if is_guarded(descriptor) {
                    return raw::fail(libc::ENOSYS);
                }
                // SAFETY: it is the function by this name, with the caller's word.
                unsafe {
                    let behind: unsafe extern "C" fn(*mut aiocb) -> c_int =
                        std::mem::transmute($behind.get());
                    behind(block)
                }
            }

            /// # Safety
            /// As the function of the C library by this name.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $wide(block: *mut aiocb) -> c_int {
                // SAFETY: the caller's word; both forms are one where offsets have 64 bits.
                unsafe { $name(block) }
            }
        )+
    };
}

asynchronous! {
    aio_read, aio_read64 => AIO_READ, c"aio_read";
    aio_write, aio_write64 => AIO_WRITE, c"aio_write";
}

static LIO_LISTIO: raw::Behind = raw::Behind::new(c"lio_listio");

/// # Safety
/// As `lio_listio`.
unsafe fn list(mode: c_int, blocks: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int {
    for at in 0..count.max(0) as usize {
        // SAFETY: the caller's word: pointers to blocks, or NULL.
        let block = unsafe { (*blocks.add(at)).as_ref() };
        if block.is_some_and(|block| is_guarded(block.aio_fildes)) {
            return raw::fail(libc::ENOSYS);
        }
    }
    // SAFETY: it is the function by this name.
    let behind: unsafe extern "C" fn(c_int, *const *mut aiocb, c_int, *mut sigevent) -> c_int =
        unsafe { std::mem::transmute(LIO_LISTIO.get()) };
    // SAFETY: the caller's word.
    unsafe { behind(mode, blocks, count, event) }
}

same!(sendfile, sendfile64 => send, (to: c_int, from: c_int, offset: *mut off_t, length: size_t) -> ssize_t);
same!(copy_file_range => copy, (from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, length: size_t, flags: c_uint) -> ssize_t);
same!(splice => splice_between, (from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, length: size_t, flags: c_uint) -> ssize_t);
same!(ioctl => control, (descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int);
same!(lio_listio, lio_listio64 => list, (mode: c_int, blocks: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int);
