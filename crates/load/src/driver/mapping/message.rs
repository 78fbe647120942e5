//! What this process and the one that holds its mappings say to each other. Both are the same program, and nobody else has
//! the sockets; a message that makes no sense ends a connection all the same.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// What is to be found where [`Greeting::address`] says, so that the other side can see that it may read there.
pub(super) static GREETING_WORD: u64 = 0x6d61_7070_696e_6773;

/// The first message, of the process that holds the mappings.
pub(super) struct Greeting {
    /// Where it has [`GREETING_WORD`].
    pub(super) address: u64,
}

impl Greeting {
    pub(super) const BYTES: usize = 16;
    const MAGIC: &[u8; 8] = b"rotproof";

    pub(super) fn bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(Self::MAGIC);
        bytes[8..].copy_from_slice(&self.address.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        (bytes[..8] == *Self::MAGIC).then(|| Self { address: word(bytes, 1) })
    }
}

/// What the process is asked to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Map the beginning of a file; the reply has the address.
    Map { len: u64, is_writable: bool, path: PathBuf },
    /// `msync` with `MS_SYNC`.
    Sync { address: u64, len: u64 },
}

/// No path is longer.
const PATH_BYTES_MAX: u64 = 4096;

impl Call {
    const BYTES: usize = 32;

    pub(super) fn send(&self, to: &mut UnixStream) -> io::Result<()> {
        let (words, path) = match self {
            Self::Map { len, is_writable, path } => {
                let path = path.as_os_str().as_bytes();
                ([1 + u64::from(*is_writable), *len, 0, path.len() as u64], path)
            }
            Self::Sync { address, len } => ([3, *len, *address, 0], &[][..]),
        };
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(path);
        to.write_all(&bytes)
    }

    /// The next one; none at the end of the connection.
    pub(super) fn receive(from: &mut UnixStream) -> io::Result<Option<Self>> {
        let mut bytes = [0; Self::BYTES];
        match from.read_exact(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let [kind, len, address, path_len] = [0, 1, 2, 3].map(|index| word(&bytes, index));
        match (kind, path_len) {
            (1 | 2, 1..=PATH_BYTES_MAX) => {
                let mut path = vec![0; path_len as usize];
                from.read_exact(&mut path)?;
                let path = OsStr::from_bytes(&path).into();
                Ok(Some(Self::Map { len, is_writable: kind == 2, path }))
            }
            (3, 0) => Ok(Some(Self::Sync { address, len })),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// What came of it: an address, or why not.
pub(super) struct Reply(pub(super) io::Result<u64>);

impl Reply {
    pub(super) fn send(&self, to: &mut UnixStream) -> io::Result<()> {
        let (errno, value) = match &self.0 {
            Ok(value) => (0, *value),
            Err(error) => (error.raw_os_error().unwrap_or(libc::EINVAL), 0),
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&i64::from(errno).to_le_bytes());
        bytes[8..].copy_from_slice(&value.to_le_bytes());
        to.write_all(&bytes)
    }

    pub(super) fn receive(from: &mut UnixStream) -> io::Result<Self> {
        let mut bytes = [0; 16];
        from.read_exact(&mut bytes)?;
        Ok(Self(match word(&bytes, 0) {
            0 => Ok(word(&bytes, 1)),
            errno => Err(io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(libc::EINVAL))),
        }))
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[index * 8..][..8]);
    u64::from_le_bytes(word)
}

/// Room for a control message with one descriptor, aligned as its header wants it.
#[repr(align(8))]
struct Control([u8; 64]);

/// A message of one byte, which the kernel wants, with room for a descriptor beside it.
fn with_message<T>(control: &mut Control, room: usize, call: impl FnOnce(&mut libc::msghdr) -> T) -> T {
    let mut byte = 0u8;
    let mut data = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all zeros is a valid message header: no address, no parts.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut data, 1);
    (message.msg_control, message.msg_controllen) = ((&raw mut control.0).cast(), room);
    call(&mut message)
}

/// Gives a descriptor to the process at the other end.
pub(super) fn send_descriptor(to: &UnixStream, descriptor: &OwnedFd) -> io::Result<()> {
    const BYTES: u32 = size_of::<libc::c_int>() as u32;
    // SAFETY: plain arithmetic.
    let (room, len) = unsafe { (libc::CMSG_SPACE(BYTES) as usize, libc::CMSG_LEN(BYTES) as usize) };
    with_message(&mut Control([0; 64]), room, |message| {
        // SAFETY: the control memory has room for a header and one descriptor, so there is a first header.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(message);
            ((*first).cmsg_level, (*first).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
            (*first).cmsg_len = len;
            libc::CMSG_DATA(first).cast::<libc::c_int>().write_unaligned(descriptor.as_raw_fd());
        }
        loop {
            // SAFETY: the header names memory that lives across the call, with its true lengths.
            match unsafe { libc::sendmsg(to.as_raw_fd(), message, libc::MSG_NOSIGNAL) } {
                1.. => return Ok(()),
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return Err(io::Error::last_os_error()),
            }
        }
    })
}

/// The next descriptor that the other end gives; none when it has closed.
pub(super) fn receive_descriptor(from: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut control = Control([0; 64]);
    let room = control.0.len();
    with_message(&mut control, room, |message| {
        loop {
            // SAFETY: the header names memory that lives across the call, with its true lengths.
            match unsafe { libc::recvmsg(from.as_raw_fd(), message, libc::MSG_CMSG_CLOEXEC) } {
                1.. => break,
                0 => return Ok(None),
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return Err(io::Error::last_os_error()),
            }
        }
        // SAFETY: the kernel has filled the header and the control memory it names; a control message of this kind
        // carries at least one descriptor, which is now ours.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(message);
            let is_descriptor = !first.is_null()
                && (*first).cmsg_level == libc::SOL_SOCKET
                && (*first).cmsg_type == libc::SCM_RIGHTS;
            if !is_descriptor {
                return Err(io::ErrorKind::InvalidData.into());
            }
            Ok(Some(OwnedFd::from_raw_fd(libc::CMSG_DATA(first).cast::<libc::c_int>().read_unaligned())))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_replies_survive_the_way_and_nonsense_ends_it() {
        let (mut here, mut there) = UnixStream::pair().expect("a pair of sockets");
        for call in [
            Call::Map { len: 1 << 40, is_writable: true, path: "/a folder/ä".into() },
            Call::Map { len: 4096, is_writable: false, path: "/b".into() },
            Call::Sync { address: u64::MAX - 4095, len: 4096 },
        ] {
            call.send(&mut here).expect("sent");
            assert_eq!(Call::receive(&mut there).expect("a call"), Some(call));
        }
        for reply in [Ok(7), Err(libc::EIO)] {
            Reply(reply.map_err(io::Error::from_raw_os_error)).send(&mut there).expect("sent");
            let received = Reply::receive(&mut here).expect("a reply").0;
            assert_eq!(received.map_err(|error| error.raw_os_error().expect("a number")), reply);
        }
        for words in
            [[0u64, 1, 1, 0], [4, 1, 1, 0], [1, 1, 1, 0], [2, 1, 1, PATH_BYTES_MAX + 1], [3, 1, 1, 1]]
        {
            here.write_all(&words.map(u64::to_le_bytes).concat()).expect("sent");
            assert_eq!(Call::receive(&mut there).expect_err("senseless").kind(), io::ErrorKind::InvalidData);
        }
        drop(here);
        assert_eq!(Call::receive(&mut there).expect("the end"), None);
    }

    #[test]
    fn a_descriptor_arrives_as_another_one_of_the_same_file() {
        let (here, there) = UnixStream::pair().expect("a pair of sockets");
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let writer = OwnedFd::from(writer);
        send_descriptor(&here, &writer).expect("sent");
        drop(writer);
        let arrived = receive_descriptor(&there).expect("received").expect("one");
        std::fs::File::from(arrived).write_all(b"x").expect("written");
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("read, and nobody else can write");
        assert_eq!(text, "x");
        (&here).write_all(b"y").expect("sent");
        assert_eq!(receive_descriptor(&there).expect_err("none").kind(), io::ErrorKind::InvalidData);
        drop(here);
        assert!(receive_descriptor(&there).expect("the end").is_none());
    }
}
