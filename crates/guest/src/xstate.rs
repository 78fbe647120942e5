//! Whether the state of this machine's processor is larger than User Mode Linux can keep, and the library that helps there
//! (`xstate/`).

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

/// Empty where it could not be built.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xstate.so"));
static WHY_NOT: &str = include_str!(concat!(env!("OUT_DIR"), "/xstate-why-not"));

/// Bytes of the state that User Mode Linux 6.1 keeps (`HOST_FP_SIZE`, arch/x86/um/user-offsets.c).
const KEPT_BYTES: u32 = 2696;

/// Bytes of the state of this processor, with all that its kernel has switched on.
fn state_bytes() -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid_count;
        /// The leaf that tells of extended state.
        const XSTATE: u32 = 0xd;
        if __cpuid_count(0, 0).eax >= XSTATE { __cpuid_count(XSTATE, 0).ebx } else { 0 }
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// The library as a file that everybody may read who is handed it; `None` where a guest comes up without. Fails with
/// [`ErrorKind::Missing`] where this Rotproof was built without it.
pub(crate) fn library() -> Result<Option<File>> {
    if state_bytes() <= KEPT_BYTES {
        return Ok(None);
    }
    if LIBRARY.is_empty() {
        let context = format!(
            "User Mode Linux cannot keep the state of this processor, which has {} bytes (AMX), and this rotproof was built without \
             the library that helps: {WHY_NOT}",
            state_bytes()
        );
        return Err(Error::new(ErrorKind::Missing, context));
    }
    let doing = || "keeping a library for a guest in memory".to_owned();
    // SAFETY: a string with its zero byte.
    let fd = unsafe { libc::memfd_create(c"rotproof-xstate".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error()).doing(doing);
    }
    // SAFETY: just made, owned by nobody else.
    let mut file = unsafe { File::from_raw_fd(fd) };
    // SAFETY: takes numbers. Whatever the mask of this process says, its reader is somebody else.
    unsafe { libc::fchmod(file.as_raw_fd(), 0o755) };
    file.write_all(LIBRARY).doing(doing)?;
    Ok(Some(file))
}
