//! The kernel's NBD client: a handshake in user space, then the socket is given to the kernel, which makes a disk of it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rotproof_block::nbd::{MAGIC, OPTION_MAGIC, option};

// linux/nbd.h.
const NBD_SET_SOCK: libc::Ioctl = 0xab00;
const NBD_SET_BLKSIZE: libc::Ioctl = 0xab01;
const NBD_DO_IT: libc::Ioctl = 0xab03;
const NBD_CLEAR_SOCK: libc::Ioctl = 0xab04;
const NBD_SET_SIZE_BLOCKS: libc::Ioctl = 0xab07;
const NBD_DISCONNECT: libc::Ioctl = 0xab08;
const NBD_SET_FLAGS: libc::Ioctl = 0xab0a;

const BLOCK_BYTES: u64 = 4096;

/// A disk of the kernel's on a server.
pub struct Connected {
    device: File,
    serving: JoinHandle<()>,
}

fn ioctl(device: &File, request: libc::Ioctl, argument: u64) -> std::io::Result<()> {
    // SAFETY: all requests above take a number.
    match unsafe { libc::ioctl(device.as_raw_fd(), request, argument) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Asks for the export without a name: the socket, the size and the flags.
fn shake_hands(server: (&str, u16)) -> (TcpStream, u64, u16) {
    let mut stream = TcpStream::connect(server).expect("the server is reached from the guest");
    stream.set_nodelay(true).expect("set");
    let mut opening = [0; 18];
    stream.read_exact(&mut opening).expect("it greets");
    assert_eq!(opening[..8], MAGIC.to_be_bytes());
    let mut words = 3u32.to_be_bytes().to_vec();
    words.extend(OPTION_MAGIC.to_be_bytes());
    words.extend(option::EXPORT_NAME.to_be_bytes());
    words.extend(0u32.to_be_bytes());
    stream.write_all(&words).expect("sent");
    let (mut size, mut flags) = ([0; 8], [0; 2]);
    stream.read_exact(&mut size).expect("a size");
    stream.read_exact(&mut flags).expect("flags");
    (stream, u64::from_be_bytes(size), u16::from_be_bytes(flags))
}

/// Makes the disk `path` over two connections to a server.
pub fn connect(path: &Path, server: (&str, u16)) -> Connected {
    let device = OpenOptions::new().read(true).write(true).open(path).expect("the module is loaded");
    let (first, size, flags) = shake_hands(server);
    let (second, ..) = shake_hands(server);
    for (request, argument) in [
        (NBD_SET_BLKSIZE, BLOCK_BYTES),
        (NBD_SET_SIZE_BLOCKS, size / BLOCK_BYTES),
        (NBD_SET_FLAGS, flags.into()),
        (NBD_SET_SOCK, first.as_raw_fd() as u64),
        (NBD_SET_SOCK, second.as_raw_fd() as u64),
    ] {
        ioctl(&device, request, argument).unwrap_or_else(|error| panic!("ioctl {request:#x}: {error}"));
    }
    let doing = device.try_clone().expect("a descriptor");
    // Does not return until the disk is disconnected.
    let serving = std::thread::spawn(move || {
        ioctl(&doing, NBD_DO_IT, 0).expect("it ends without an error");
        drop((first, second));
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    let size = Path::new("/sys/block").join(path.file_name().expect("a name")).join("size");
    while std::fs::read_to_string(&size).expect("a disk").trim() == "0" {
        assert!(Instant::now() < deadline, "the kernel does not take the sockets");
        std::thread::sleep(Duration::from_millis(5));
    }
    Connected { device, serving }
}

impl Connected {
    /// Ends it in the way that the protocol has for it.
    pub fn disconnect(self) {
        ioctl(&self.device, NBD_DISCONNECT, 0).expect("disconnected");
        self.serving.join().expect("the kernel lets go of it");
        ioctl(&self.device, NBD_CLEAR_SOCK, 0).expect("cleared");
    }
}
