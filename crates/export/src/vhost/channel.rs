//! Messages to and from one client: bytes, and the descriptors that come with them.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::message::{HEADER_BYTES, Header, REGIONS_MAX};

/// The most descriptors of a message: one for each region of memory.
const DESCRIPTORS_MAX: usize = REGIONS_MAX;
/// Room for the control message that carries them, and for one more beside it.
const CONTROL_WORDS: usize = 32;

/// A message as it came.
pub(super) struct Arrived {
    pub(super) header: Header,
    pub(super) body: Vec<u8>,
    pub(super) files: Vec<OwnedFd>,
}

/// Waits for a message. None if the client has left, which includes one that speaks another protocol.
pub(super) fn receive(socket: &OwnedFd) -> Option<Arrived> {
    let mut files = Vec::new();
    let mut header = [0; HEADER_BYTES];
    fill(socket, &mut header, &mut files).ok()?;
    let header = Header::parse(&header)?;
    let mut body = vec![0; header.body_bytes];
    fill(socket, &mut body, &mut files).ok()?;
    (files.len() <= DESCRIPTORS_MAX).then_some(Arrived { header, body, files })
}

/// Sends all bytes.
pub(super) fn send(socket: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the bytes live across the call.
        let sent =
            unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        match usize::try_from(sent) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(_) => interrupted()?,
        }
    }
    Ok(())
}

/// Fills all bytes; every descriptor that comes with them goes into `files`.
fn fill(socket: &OwnedFd, mut bytes: &mut [u8], files: &mut Vec<OwnedFd>) -> io::Result<()> {
    while !bytes.is_empty() {
        match receive_part(socket, bytes, files) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(received) => bytes = &mut bytes[received..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if files.len() > DESCRIPTORS_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(())
}

fn receive_part(socket: &OwnedFd, bytes: &mut [u8], files: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut control = [MaybeUninit::<u64>::uninit(); CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a valid header. The part and the control buffer, which is aligned for its headers, live
    // across the call, which writes no more than the lengths given. The macros walk what the kernel has written,
    // within the length that it has set; each descriptor in it is new and owned by nobody else.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        let received = libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC);
        let Ok(received) = usize::try_from(received) else { return Err(io::Error::last_os_error()) };
        let mut message = libc::CMSG_FIRSTHDR(&raw const header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS {
                let data_bytes = (*message).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(message).cast::<RawFd>();
                for index in 0..data_bytes / size_of::<RawFd>() {
                    files.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
        // The kernel has closed what did not fit.
        if header.msg_flags & libc::MSG_CTRUNC != 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(received)
    }
}

fn interrupted() -> io::Result<()> {
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}
