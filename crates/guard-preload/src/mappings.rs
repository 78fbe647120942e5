//! Mappings, which the kernel serves without asking anybody. A file that is mapped for reading is verified when it is mapped;
//! of one that is mapped for writing nothing is claimed any more.

use std::ffi::{c_int, c_void};

use libc::{off_t, sighandler_t, size_t};
use rotproof_guard::Trouble;
use rotproof_guard::fault;

use crate::data::verify;
use crate::guarded::{done, guarded, is_inside, is_on, within};
use crate::raw::{self, Behind, call};

/// # Safety
/// As `mmap`.
unsafe fn map(
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's word.
    let system =
        || unsafe { call!(SYS_mmap, at, length, protection, flags, descriptor, offset) as *mut c_void };
    if flags & libc::MAP_ANONYMOUS != 0 || descriptor < 0 || !is_on() || is_inside() {
        return system();
    }
    let open = match guarded(descriptor) {
        Ok(Some(open)) => open,
        Ok(None) => return system(),
        Err(errno) => {
            raw::set_errno(errno);
            return libc::MAP_FAILED;
        }
    };
    let kind = flags & libc::MAP_TYPE;
    // What may be written later counts too: `mprotect` asks nobody.
    let is_stored_to = matches!(kind, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE) && open.writes;
    let checked = within(move || match is_stored_to {
        true => open.file.disown().map_err(Trouble::from),
        false => verify(&open, offset.cast_unsigned(), length as u64),
    });
    if done(checked) < 0 { libc::MAP_FAILED } else { system() }
}

static SIGACTION: Behind = Behind::new(c"sigaction");
static SIGNAL: Behind = Behind::new(c"signal");

/// Whether the guard's handler stands in front of what a program wants to set.
fn is_hidden(signal: c_int) -> bool {
    signal == libc::SIGBUS && is_on() && !is_inside() && fault::is_prepared()
}

/// # Safety
/// As `sigaction`.
unsafe fn set_action(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    if !is_hidden(signal) {
        // SAFETY: it is the function by this name, and the caller's word.
        let behind: unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int =
            unsafe { std::mem::transmute(SIGACTION.get()) };
        // SAFETY: the caller's word.
        return unsafe { behind(signal, new, old) };
    }
    // SAFETY: the caller's word.
    let (new, old) = unsafe { (new.as_ref(), old.as_mut()) };
    let (handler, flags) = match new {
        Some(new) => fault::replace_handler(new.sa_sigaction, new.sa_flags),
        None => fault::handler(),
    };
    if let Some(old) = old {
        // SAFETY: all zeros is a valid value of it.
        *old = unsafe { std::mem::zeroed() };
        (old.sa_sigaction, old.sa_flags) = (handler, flags);
    }
    0
}

/// # Safety
/// As `signal`.
unsafe fn set_handler(signal: c_int, handler: sighandler_t) -> sighandler_t {
    if !is_hidden(signal) {
        // SAFETY: it is the function by this name.
        let behind: unsafe extern "C" fn(c_int, sighandler_t) -> sighandler_t =
            unsafe { std::mem::transmute(SIGNAL.get()) };
        // SAFETY: the caller's word.
        return unsafe { behind(signal, handler) };
    }
    fault::replace_handler(handler, 0).0
}

same!(mmap, mmap64 => map, (at: *mut c_void, length: size_t, protection: c_int, flags: c_int, descriptor: c_int, offset: off_t) -> *mut c_void);
same!(sigaction => set_action, (signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int);
same!(signal => set_handler, (signal: c_int, handler: sighandler_t) -> sighandler_t);
