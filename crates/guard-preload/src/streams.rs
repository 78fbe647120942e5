//! Streams of stdio. The C library reads and writes for them by calls of its own, which nobody stands in front of; so a stream
//! of a guarded file is one with functions (`fopencookie`), and they are ours.
//!
//! `stdin`, `stdout` and `stderr` are replaced when their descriptor comes to stand for a guarded file. Which file that is
//! is asked at every call, so a later `dup2` is followed.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{FILE, off64_t, size_t, ssize_t};
use parking_lot::Mutex;

use crate::descriptors::{close_one, duplicate_to, open_at};
use crate::guarded::{forget, guarded, is_inside, is_on, tell};
use crate::raw::{self, Behind};

type ReadFunction = unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t;
type WriteFunction = unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t;
type SeekFunction = unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int;
type CloseFunction = unsafe extern "C" fn(*mut c_void) -> c_int;

/// `cookie_io_functions_t` of the C library.
#[repr(C)]
#[derive(Clone, Copy)]
struct Functions {
    read: ReadFunction,
    write: WriteFunction,
    seek: SeekFunction,
    close: CloseFunction,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    // What is called by a name of ours is ours, so the functions behind are asked for by `Behind`.
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
    fn read(descriptor: c_int, to: *mut c_void, length: size_t) -> ssize_t;
    fn write(descriptor: c_int, from: *const c_void, length: size_t) -> ssize_t;
}

/// Where glibc keeps the descriptor of a stream, in bytes from its beginning; it did not move since version 2.1.
const DESCRIPTOR_AT: usize = 112;

static FDOPEN: Behind = Behind::new(c"fdopen");
static FOPEN: Behind = Behind::new(c"fopen");
static FREOPEN: Behind = Behind::new(c"freopen");
static FCLOSE: Behind = Behind::new(c"fclose");

/// Streams that were made here and are not closed yet.
static STREAMS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

unsafe extern "C" fn read_stream(cookie: *mut c_void, to: *mut c_char, length: size_t) -> ssize_t {
    // SAFETY: the C library's buffer; `read` is the one in front.
    unsafe { read(cookie as usize as c_int, to.cast(), length) }
}

unsafe extern "C" fn write_stream(cookie: *mut c_void, from: *const c_char, length: size_t) -> ssize_t {
    let mut done = 0;
    while done < length {
        // SAFETY: as above.
        let count = unsafe { write(cookie as usize as c_int, from.add(done).cast(), length - done) };
        if count < 0 {
            // A stream is told of an error by fewer bytes; the C library wants 0 then.
            return done as ssize_t;
        }
        done += count as usize;
    }
    done as ssize_t
}

unsafe extern "C" fn seek_stream(cookie: *mut c_void, offset: *mut off64_t, whence: c_int) -> c_int {
    // SAFETY: the C library's number.
    let place = unsafe { raw::lseek(cookie as usize as c_int, *offset, whence) };
    if place < 0 {
        return -1;
    }
    // SAFETY: as above.
    unsafe { *offset = place };
    0
}

unsafe extern "C" fn close_stream(cookie: *mut c_void) -> c_int {
    close_one(cookie as usize as c_int)
}

const FUNCTIONS: Functions =
    Functions { read: read_stream, write: write_stream, seek: seek_stream, close: close_stream };

/// A stream with our functions over a descriptor. NULL with `errno` if there is no memory.
///
/// # Safety
/// `mode` ends with zero.
unsafe fn stream_over(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    // The extensions of modes are about opening, which is done.
    // SAFETY: the caller's word.
    let wanted = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let mut kept = [0 as c_char; 4];
    let letters =
        wanted.iter().take_while(|letter| **letter != b',').filter(|letter| b"rwa+".contains(letter));
    kept.iter_mut().take(3).zip(letters).for_each(|(place, letter)| *place = *letter as c_char);
    // SAFETY: a mode that ends with zero.
    let stream = unsafe { fopencookie(descriptor as usize as *mut c_void, kept.as_ptr(), FUNCTIONS) };
    if stream.is_null() {
        return stream;
    }
    // SAFETY: the place of the number in a stream of glibc. It is only looked at by `fileno`, which is asked at once.
    unsafe {
        stream.cast::<u8>().add(DESCRIPTOR_AT).cast::<c_int>().write(descriptor);
        if libc::fileno(stream) != descriptor {
            tell("the C library keeps its streams otherwise than is known here; their `fileno` is wrong");
        }
    }
    STREAMS.lock().push(stream as usize);
    stream
}

fn is_stream(stream: *mut FILE) -> bool {
    STREAMS.lock().contains(&(stream as usize))
}

/// A number has come to stand for something: if it is that of a standard stream, and a guarded file, the stream is replaced.
pub fn follow(descriptor: c_int) {
    static DONE: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
    if !(0..3).contains(&descriptor) || !is_on() || is_inside() {
        return;
    }
    let errno = raw::errno();
    if !matches!(guarded(descriptor), Ok(None)) && !DONE[descriptor as usize].swap(true, Ordering::Relaxed) {
        // SAFETY: the C library's own variables, which programs may set too; buffers come out first.
        unsafe {
            let place = match descriptor {
                0 => &raw mut stdin,
                1 => &raw mut stdout,
                _ => &raw mut stderr,
            };
            if descriptor > 0 && !(*place).is_null() {
                libc::fflush(*place);
            }
            let mode = if descriptor == 0 { c"r" } else { c"w" };
            let stream = stream_over(descriptor, mode.as_ptr());
            if stream.is_null() {
                tell("there is no memory for a stream; what is written by stdio goes past the guard");
            } else {
                if descriptor == 2 {
                    libc::setvbuf(stream, std::ptr::null_mut(), libc::_IONBF, 0);
                }
                *place = stream;
            }
        }
    }
    raw::set_errno(errno);
}

/// Flags of `open` for a mode of `fopen`.
fn flags_of(mode: &[u8]) -> Option<c_int> {
    let letters = || mode.iter().take_while(|letter| **letter != b',');
    let both = letters().any(|letter| *letter == b'+');
    let access = |alone| if both { libc::O_RDWR } else { alone };
    let base = match mode.first()? {
        b'r' => access(libc::O_RDONLY),
        b'w' => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_TRUNC,
        b'a' => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_APPEND,
        _ => return None,
    };
    let with = |letter: u8, flag| if letters().any(|other| *other == letter) { flag } else { 0 };
    Some(base | with(b'x', libc::O_EXCL) | with(b'e', libc::O_CLOEXEC))
}

/// # Safety
/// As `fopen`.
unsafe fn open_stream(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: it is the function by this name.
    let behind: unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE =
        unsafe { std::mem::transmute(FOPEN.get()) };
    // SAFETY: the caller's word.
    let text = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let is_wide = text.windows(4).any(|part| part == b"ccs=");
    let flags = flags_of(text).filter(|_| is_on() && !is_inside() && !is_wide);
    let Some(flags) = flags else {
        // SAFETY: the caller's word.
        let stream = unsafe { behind(path, mode) };
        if is_wide && !stream.is_null() && !is_inside() {
            // SAFETY: a stream that was just made.
            let descriptor = unsafe { libc::fileno(stream) };
            if !matches!(guarded(descriptor), Ok(None)) {
                tell("a stream with `ccs=` goes past the guard");
            }
        }
        return stream;
    };
    // SAFETY: the caller's word.
    let opened = unsafe { open_at(libc::AT_FDCWD, path, flags, 0o666) };
    if opened < 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's word, and a number that was just opened.
    let stream = unsafe { open_over(opened, mode) };
    if stream.is_null() {
        let errno = raw::errno();
        close_one(opened);
        raw::set_errno(errno);
    }
    stream
}

/// # Safety
/// As `fdopen`.
unsafe fn open_over(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's word.
    let is_known = flags_of(unsafe { CStr::from_ptr(mode) }.to_bytes()).is_some();
    if is_known && matches!(guarded(descriptor), Ok(Some(_)) | Err(_)) {
        // SAFETY: the caller's word.
        return unsafe { stream_over(descriptor, mode) };
    }
    // SAFETY: it is the function by this name.
    let behind: unsafe extern "C" fn(c_int, *const c_char) -> *mut FILE =
        unsafe { std::mem::transmute(FDOPEN.get()) };
    // SAFETY: the caller's word.
    unsafe { behind(descriptor, mode) }
}

/// # Safety
/// As `freopen`.
unsafe fn reopen_stream(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
    // SAFETY: it is the function by this name, with the caller's word.
    let behind = || unsafe {
        let function: unsafe extern "C" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE =
            std::mem::transmute(FREOPEN.get());
        function(path, mode, stream)
    };
    if !is_on() || is_inside() || stream.is_null() {
        return behind();
    }
    let ours = is_stream(stream);
    if path.is_null() {
        // Another mode of the same file; ours have what they were opened for.
        return if ours { stream } else { behind() };
    }
    // SAFETY: the caller's word.
    let Some(flags) = flags_of(unsafe { CStr::from_ptr(mode) }.to_bytes()) else { return behind() };
    // SAFETY: the caller's word. It is cut once it is known whose it is.
    let opened = unsafe { open_at(libc::AT_FDCWD, path, flags & !libc::O_TRUNC, 0o666) };
    let is_guarded = opened >= 0 && !matches!(guarded(opened), Ok(None));
    if opened < 0 || (!ours && !is_guarded) {
        if opened >= 0 {
            close_one(opened);
        }
        // SAFETY: a stream.
        forget(unsafe { libc::fileno(stream) });
        return behind();
    }
    // SAFETY: a stream, and numbers.
    unsafe {
        libc::fflush(stream);
        let descriptor = libc::fileno(stream);
        if duplicate_to(opened, descriptor) < 0 {
            close_one(opened);
            return std::ptr::null_mut();
        }
        close_one(opened);
        if flags & libc::O_TRUNC != 0 {
            libc::ftruncate(descriptor, 0);
        }
        if ours {
            libc::clearerr(stream);
            return stream;
        }
        match descriptor {
            0 => stdin,
            1 => stdout,
            2 => stderr,
            _ => stream_over(descriptor, mode),
        }
    }
}

/// # Safety
/// As `fclose`.
unsafe fn shut_stream(stream: *mut FILE) -> c_int {
    // SAFETY: it is the function by this name.
    let behind: unsafe extern "C" fn(*mut FILE) -> c_int = unsafe { std::mem::transmute(FCLOSE.get()) };
    if is_on() && !is_inside() && !stream.is_null() {
        let mut streams = STREAMS.lock();
        match streams.iter().position(|known| *known == stream as usize) {
            Some(at) => {
                streams.swap_remove(at);
            }
            None => {
                drop(streams);
                // The C library closes it by a call of its own.
                // SAFETY: a stream, says the caller.
                forget(unsafe { libc::fileno(stream) });
            }
        }
    }
    // SAFETY: the caller's word.
    unsafe { behind(stream) }
}

same!(fopen, fopen64 => open_stream, (path: *const c_char, mode: *const c_char) -> *mut FILE);
same!(fdopen => open_over, (descriptor: c_int, mode: *const c_char) -> *mut FILE);
same!(freopen, freopen64 => reopen_stream, (path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE);
same!(fclose => shut_stream, (stream: *mut FILE) -> c_int);
