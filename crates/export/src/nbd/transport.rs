//! Bytes to and from one client: over its socket, or through TLS over it.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

/// A client's socket and what is between it and the protocol.
pub(super) struct Transport {
    socket: Arc<OwnedFd>,
    tls: Option<Box<ServerConnection>>,
}

/// Whether to wait for bytes that are not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Yes,
    /// Fail with [`io::ErrorKind::WouldBlock`].
    No,
}

impl Transport {
    pub(super) fn new(socket: Arc<OwnedFd>) -> Self {
        Self { socket, tls: None }
    }

    /// Readable when there may be something to receive.
    pub(super) fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Goes over to TLS; the client speaks first. A client that cannot is told why, as TLS has it.
    pub(super) fn start_tls(&mut self, config: &Arc<ServerConfig>) -> io::Result<()> {
        let mut tls = Box::new(ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?);
        let mut socket = Socket(&self.socket, Wait::Yes);
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        self.tls = Some(tls);
        Ok(())
    }

    /// Fills the parts in their order with what is there, at least one byte; 0 bytes are the end of the stream. The
    /// parts together have room.
    pub(super) fn receive(&mut self, parts: &mut [IoSliceMut<'_>], wait: Wait) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return receive(&self.socket, parts, wait) };
        loop {
            match tls.reader().read_vectored(parts) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A client that closes its socket without saying so in TLS has left all the same; every request has
                // its own length, so nothing can be cut off unseen.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                result => return result,
            }
            let mut socket = Socket(&self.socket, wait);
            tls.read_tls(&mut socket)?;
            tls.process_new_packets().map_err(io::Error::other)?;
            while tls.wants_write() {
                tls.write_tls(&mut Socket(&self.socket, Wait::Yes))?;
            }
        }
    }

    /// Sends all of the parts.
    pub(super) fn send(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut socket = Socket(&self.socket, Wait::Yes);
        let Some(tls) = &mut self.tls else { return write_all(&mut socket, parts) };
        for part in parts.iter() {
            let mut rest: &[u8] = part;
            while !rest.is_empty() {
                // It takes as much as it is willing to hold.
                let taken = tls.writer().write(rest)?;
                rest = &rest[taken..];
                while tls.wants_write() {
                    tls.write_tls(&mut socket)?;
                }
            }
        }
        Ok(())
    }

    /// Says goodbye where the protocol has a word for it.
    pub(super) fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            while tls.wants_write() {
                if tls.write_tls(&mut Socket(&self.socket, Wait::Yes)).is_err() {
                    return;
                }
            }
        }
    }
}

fn write_all(socket: &mut Socket<'_>, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        let sent = socket.write_vectored(parts)?;
        IoSlice::advance_slices(&mut parts, sent);
    }
    Ok(())
}

/// The bare socket, for TLS and for sending.
struct Socket<'a>(&'a OwnedFd, Wait);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        receive(self.0, &mut [IoSliceMut::new(buffer)], self.1)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        // SAFETY: all zeros is a valid header; the parts, which have the layout of `iovec`, live across the call.
        repeat(|| unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_iov = parts.as_ptr().cast_mut().cast();
            header.msg_iovlen = parts.len().min(libc::UIO_MAXIOV as usize) as _;
            libc::sendmsg(self.0.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn receive(socket: &OwnedFd, parts: &mut [IoSliceMut<'_>], wait: Wait) -> io::Result<usize> {
    let flags = if wait == Wait::Yes { 0 } else { libc::MSG_DONTWAIT };
    if let [part] = parts {
        // SAFETY: the part lives across the call, which writes at most its length.
        return repeat(|| unsafe {
            libc::recv(socket.as_raw_fd(), part.as_mut_ptr().cast(), part.len(), flags)
        });
    }
    // SAFETY: all zeros is a valid header; the parts, which have the layout of `iovec`, live across the call.
    repeat(|| unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = parts.as_mut_ptr().cast();
        header.msg_iovlen = parts.len() as _;
        libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags)
    })
}

fn repeat(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(bytes) => return Ok(bytes),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}
