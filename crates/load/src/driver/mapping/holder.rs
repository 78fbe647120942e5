//! The process that holds mappings for another one: what it maps it does not touch itself.
//!
//! It serves no device and must never do so. What it has mapped stays until it ends.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use super::message::{Call, GREETING_WORD, Greeting, Reply, receive_descriptor};

/// Its threads only wait in calls.
const STACK_BYTES: usize = 256 << 10;

/// Maps what it is asked to over its standard input, a socket, until that is closed.
pub fn hold_mappings() -> Result<()> {
    let doing = || "taking orders from standard input".to_owned();
    let control: UnixStream = io::stdin().as_fd().try_clone_to_owned().doing(doing)?.into();
    if control.peer_addr().is_err() {
        let why = "standard input is no socket; `rotproof run` starts this by itself where it needs it";
        return Err(Error::new(ErrorKind::Invalid, why));
    }
    // SAFETY: plain numbers, and a string with its zero byte that lives across the call.
    unsafe {
        // What the other process cannot tell it any more when it has been killed; neither call can fail like this.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"rotproof-maps".as_ptr());
    }
    let greeting = Greeting { address: (&raw const GREETING_WORD).addr() as u64 };
    (&control).write_all(&greeting.bytes()).doing(doing)?;
    // The end of the connection, or none of its messages: nobody needs the mappings any more.
    while let Ok(Some(descriptor)) = receive_descriptor(&control) {
        let connection = UnixStream::from(descriptor);
        // Without a thread the connection is closed, which the caller sees.
        let _ = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || serve(connection));
    }
    Ok(())
}

fn serve(mut connection: UnixStream) {
    while let Ok(Some(call)) = Call::receive(&mut connection) {
        let reply = match call {
            Call::Map { len, is_writable, path } => map(&path, len, is_writable),
            Call::Sync { address, len } => sync(address, len).map(|()| 0),
        };
        if Reply(reply).send(&mut connection).is_err() {
            return;
        }
    }
}

fn map(path: &Path, len: u64, is_writable: bool) -> io::Result<u64> {
    let len = usize::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    let file = OpenOptions::new().read(true).write(is_writable).custom_flags(libc::O_CLOEXEC).open(path)?;
    let protection = libc::PROT_READ | if is_writable { libc::PROT_WRITE } else { 0 };
    // SAFETY: a new mapping at a place of the kernel's choice takes no memory away from anybody.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // A core dump of this process would otherwise read the whole file through the device. It is no harm if that fails.
    // SAFETY: the mapping was just made, with this length.
    unsafe { libc::madvise(start, len, libc::MADV_DONTDUMP) };
    Ok(start.addr() as u64)
}

fn sync(address: u64, len: u64) -> io::Result<()> {
    let out_of_range = |_| io::Error::from_raw_os_error(libc::ENOMEM);
    let (address, len) =
        (usize::try_from(address).map_err(out_of_range)?, usize::try_from(len).map_err(out_of_range)?);
    // SAFETY: the call changes no memory, and the kernel checks the range.
    match unsafe { libc::msync(std::ptr::without_provenance_mut(address), len, libc::MS_SYNC) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
