//! Mounting a file system by the kernel's mount API of version 5.2 (`fsopen`, `fsconfig`, `fsmount`, `move_mount`),
//! because it says in words what it does not like; mount(2) only says "invalid argument".

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rotproof_block::{Error, ErrorKind, Result};

// include/uapi/linux/mount.h; the C library of some distributions is older than these.
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;

/// Options that belong to the mount and not to the file system.
const ATTRIBUTES: [(&str, libc::c_uint); 9] = [
    ("ro", 0x1),
    ("nosuid", 0x2),
    ("nodev", 0x4),
    ("noexec", 0x8),
    ("relatime", 0),
    ("noatime", 0x10),
    ("strictatime", 0x20),
    ("nodiratime", 0x80),
    ("defaults", 0),
];

/// Mounts the block device `source` on the folder `target`. `options` are as after `mount -o`, one or several,
/// separated by commas, in each.
pub fn mount(filesystem: &str, source: &Path, target: &Path, options: &[String]) -> Result<()> {
    let doing = || format!("mounting {filesystem} from {} on {}", source.display(), target.display());
    let name = c_string(filesystem.as_bytes())?;
    // SAFETY: `name` ends with zero and lives across the call.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, name.as_ptr(), FSOPEN_CLOEXEC) };
    let context = descriptor(context).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => {
            Error::new(ErrorKind::Missing, format!("the kernel has no file system {filesystem}"))
        }
        Some(libc::ENOSYS) => {
            Error::new(ErrorKind::Missing, "the kernel is older than 5.2; it cannot mount like this")
        }
        Some(libc::EPERM) => Error::new(ErrorKind::Missing, "mounting needs root; run it with sudo"),
        _ => Error::from_io(error, doing()),
    })?;
    let (parameters, attributes) = split_options(options);
    let source = c_string(source.as_os_str().as_bytes())?;
    let configured = configure(&context, FSCONFIG_SET_STRING, Some("source"), Some(&source))
        .and_then(|()| {
            parameters.iter().try_for_each(|parameter| match parameter.split_once('=') {
                Some((key, value)) => {
                    let value = c_string(value.as_bytes())?;
                    configure(&context, FSCONFIG_SET_STRING, Some(key), Some(&value))
                }
                None => configure(&context, FSCONFIG_SET_FLAG, Some(parameter), None),
            })
        })
        .and_then(|()| configure(&context, FSCONFIG_CMD_CREATE, None, None));
    configured.map_err(|error| {
        let words = words_of(&context);
        let error = if words.is_empty() { error } else { Error::new(error.kind(), words).caused_by(error) };
        error.while_doing(doing())
    })?;
    // SAFETY: takes numbers only.
    let mounted =
        unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, attributes) };
    let mounted = descriptor(mounted).map_err(|error| Error::from_io(error, doing()))?;
    let target = c_string(target.as_os_str().as_bytes())?;
    // SAFETY: both strings end with zero and live across the call.
    let moved = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mounted.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    if moved == 0 { Ok(()) } else { Err(Error::from_io(io::Error::last_os_error(), doing())) }
}

/// Parameters of the file system, and attributes of the mount.
fn split_options(options: &[String]) -> (Vec<&str>, libc::c_uint) {
    let mut parameters = Vec::new();
    let mut attributes = 0;
    for word in
        options.iter().flat_map(|option| option.split(',')).map(str::trim).filter(|word| !word.is_empty())
    {
        match ATTRIBUTES.iter().find(|(name, _)| *name == word) {
            Some((_, attribute)) => attributes |= attribute,
            None => parameters.push(word),
        }
    }
    (parameters, attributes)
}

fn configure(
    context: &OwnedFd,
    command: libc::c_uint,
    key: Option<&str>,
    value: Option<&CString>,
) -> Result<()> {
    let key_text = key.map(|key| c_string(key.as_bytes())).transpose()?;
    let pointer = |text: Option<&CString>| text.map_or(std::ptr::null(), |text| text.as_ptr());
    // SAFETY: the strings end with zero and live across the call; where there is none the kernel wants null.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            command,
            pointer(key_text.as_ref()),
            pointer(value),
            0,
        )
    };
    if answer == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(Error::from_io(error, key.map_or_else(|| "mounting".to_owned(), |key| format!("the option `{key}`"))))
}

/// What the kernel has noted in the context: one message a read, with a letter for its gravity in front.
fn words_of(context: &OwnedFd) -> String {
    let mut words = Vec::new();
    loop {
        let mut message = [MaybeUninit::<u8>::uninit(); 1024];
        // SAFETY: the buffer is ours and as long as said.
        let length = unsafe { libc::read(context.as_raw_fd(), message.as_mut_ptr().cast(), message.len()) };
        let Ok(length @ 1..) = usize::try_from(length) else { return words.join("; ") };
        // SAFETY: the kernel has written the first `length` bytes.
        let text = unsafe { std::slice::from_raw_parts(message.as_ptr().cast::<u8>(), length) };
        let text = String::from_utf8_lossy(text);
        let text = text.trim();
        words.push(text.strip_prefix(['e', 'w', 'i']).map_or(text, str::trim_start).to_owned());
    }
}

fn descriptor(answer: libc::c_long) -> io::Result<OwnedFd> {
    match libc::c_int::try_from(answer) {
        // SAFETY: just opened, owned by nobody else.
        Ok(number @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn c_string(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes)
        .map_err(|_| Error::new(ErrorKind::Invalid, "a path or mount option must not hold a zero byte"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_split_into_those_of_the_mount_and_those_of_the_file_system() {
        let options =
            ["noatime,nodev".to_owned(), "data=ordered".to_owned(), " ,barrier,defaults".to_owned()];
        assert_eq!(split_options(&options), (vec!["data=ordered", "barrier"], 0x14));
        assert_eq!(split_options(&[]), (vec![], 0));
    }
}
