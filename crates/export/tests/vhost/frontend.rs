//! The side of the protocol that a virtual machine or SPDK's initiator has: messages over the socket, memory that is
//! shared. It checks nothing and can be told to say anything.

use std::io::{self, IoSlice, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use rotproof_export::vhost::message::code;

use crate::server::PATIENCE;

/// Bytes of configuration that SPDK's initiator asks for.
pub const SPDK_CONFIG_BYTES: u32 = 256;
const VERSION: u32 = 1;
const NEED_REPLY: u32 = 1 << 3;

/// A connection that has agreed on nothing.
pub struct Frontend {
    pub stream: UnixStream,
}

impl Frontend {
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.set_write_timeout(Some(PATIENCE)).expect("set");
        Self { stream }
    }

    /// Sends a message with descriptors.
    pub fn try_send(&self, code: u32, flags: u32, body: &[u8], files: &[RawFd]) -> io::Result<()> {
        let mut bytes: Vec<u8> = [code, VERSION | flags, body.len() as u32]
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .collect();
        bytes.extend(body);
        send_with(&self.stream, &bytes, files)
    }

    pub fn send(&self, code: u32, body: &[u8], files: &[RawFd]) {
        self.try_send(code, 0, body, files).expect("the server is there");
    }

    /// Sends numbers.
    pub fn send_words(&self, code: u32, words: &[u32]) {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.send(code, &body, &[]);
    }

    pub fn send_long(&self, code: u32, long: u64, files: &[RawFd]) {
        self.send(code, &long.to_ne_bytes(), files);
    }

    /// The body of the reply to a message. Fails if the server cuts the connection.
    pub fn try_receive(&mut self, code: u32) -> io::Result<Vec<u8>> {
        let mut header = [0; 12];
        self.stream.read_exact(&mut header)?;
        let [replied, flags, length] =
            [0, 4, 8].map(|at| u32::from_ne_bytes(header[at..at + 4].try_into().expect("four bytes")));
        assert_eq!((replied, flags), (code, VERSION | 1 << 2), "a reply to what was asked");
        let mut body = vec![0; length as usize];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    pub fn receive(&mut self, code: u32) -> Vec<u8> {
        self.try_receive(code).expect("the server replies")
    }

    /// Asks for a number.
    pub fn ask(&mut self, code: u32) -> u64 {
        self.send(code, &[], &[]);
        u64::from_ne_bytes(self.receive(code).try_into().expect("eight bytes"))
    }

    /// Sends a message that is acknowledged; returns whether it was done.
    pub fn acknowledged(&mut self, code: u32, body: &[u8], files: &[RawFd]) -> bool {
        self.try_send(code, NEED_REPLY, body, files).expect("the server is there");
        self.receive(code) == 0u64.to_ne_bytes()
    }

    /// The configuration, as far as the server gives it.
    pub fn config(&mut self, size: u32) -> Vec<u8> {
        let head = [0, size, 0].map(u32::to_ne_bytes);
        let body = [head.as_flattened(), &vec![0; size as usize]].concat();
        self.send(code::GET_CONFIG, &body, &[]);
        self.receive(code::GET_CONFIG)
    }

    /// Whether the server ends the connection.
    pub fn is_cut_off(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let mut bytes = [0; 64];
        while Instant::now() < deadline {
            match self.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => return true,
            }
        }
        false
    }
}

/// One `sendmsg(2)` for bytes and descriptors.
fn send_with(stream: &UnixStream, bytes: &[u8], files: &[RawFd]) -> io::Result<()> {
    let part = IoSlice::new(bytes);
    let mut control = [0u64; 64];
    // SAFETY: all zeros is a valid header. Part, control buffer and descriptors live across the call; the buffer has
    // room for all descriptors that tests send.
    let sent = unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = (&raw const part).cast_mut().cast();
        header.msg_iovlen = 1;
        if !files.is_empty() {
            let data_bytes = size_of_val(files) as u32;
            assert!(libc::CMSG_SPACE(data_bytes) as usize <= size_of_val(&control));
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(data_bytes) as _;
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(data_bytes) as _;
            std::ptr::copy_nonoverlapping(files.as_ptr(), libc::CMSG_DATA(message).cast(), files.len());
        }
        libc::sendmsg(stream.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL)
    };
    match usize::try_from(sent) {
        Ok(sent) => {
            assert_eq!(sent, bytes.len(), "messages are short");
            Ok(())
        }
        Err(_) => Err(io::Error::last_os_error()),
    }
}

pub fn eventfd() -> OwnedFd {
    // SAFETY: no pointers; the result is checked and owned by nobody else.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    }
}

/// Memory to share: a file without a name, mapped here.
pub struct Shared {
    pub file: OwnedFd,
    start: *mut u8,
    size: usize,
}

impl Shared {
    pub fn new(size: usize) -> Self {
        // SAFETY: the name is a string with its zero byte; what is opened and mapped is checked and owned by nobody
        // else.
        unsafe {
            let fd = libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
            assert!(fd >= 0);
            assert_eq!(libc::ftruncate(fd, size as libc::off_t), 0);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(std::ptr::null_mut(), size, protection, libc::MAP_SHARED, fd, 0);
            assert_ne!(start, libc::MAP_FAILED);
            Self { file: OwnedFd::from_raw_fd(fd), start: start.cast(), size }
        }
    }

    /// Where this process sees it.
    pub fn address(&self) -> u64 {
        self.start as u64
    }

    pub fn size(&self) -> u64 {
        self.size as u64
    }

    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.size);
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: inside the mapping, as was checked. The server may write there too: volatile, byte by byte.
            unsafe { self.start.add(at + index).write_volatile(*byte) };
        }
    }

    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at + bytes.len() <= self.size);
        for (index, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: as in `write`.
            *byte = unsafe { self.start.add(at + index).read_volatile() };
        }
    }

    /// An index of a ring.
    pub fn index(&self, at: usize) -> &std::sync::atomic::AtomicU16 {
        assert!(at + 2 <= self.size && at.is_multiple_of(2));
        // SAFETY: inside the mapping and aligned, which lives as long as the reference; both sides use atomics.
        unsafe { std::sync::atomic::AtomicU16::from_ptr(self.start.add(at).cast()) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped with this size in `new`; no reference outlives this.
        unsafe { libc::munmap(self.start.cast(), self.size) };
    }
}

// SAFETY: the mapping belongs to this value, whichever thread has it; it is only reached through atomics and volatile
// accesses.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}
