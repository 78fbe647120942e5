//! How a client reaches each export, and hangs up on it.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use rotproof_block::nbd::{self, command, option};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::driver::{Attached, kind, status};
use crate::servers::Places;
use crate::stage::PATIENCE;

/// A way to a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    File,
    Device,
    NbdUnix,
    NbdTcp,
    NbdTls,
    Vhost,
}

/// Somebody who is connected. An error is the end of the connection.
pub trait Connection: Send {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    fn flush(&mut self) -> io::Result<()>;
    /// Asks for a write and is gone before the answer. Returns whether anybody may do it later.
    fn write_and_leave(self: Box<Self>, offset: u64, bytes: &[u8]) -> bool;
}

impl Way {
    pub const ALL: [Self; 6] =
        [Self::File, Self::Device, Self::NbdUnix, Self::NbdTcp, Self::NbdTls, Self::Vhost];

    pub fn is_tls(self) -> bool {
        self == Self::NbdTls
    }

    pub fn connect(self, places: &Places) -> io::Result<Box<dyn Connection>> {
        Ok(match self {
            Self::File => Box::new(Opened::new(&places.file, 0)?),
            Self::Device => Box::new(Opened::new(&places.device, libc::O_DIRECT)?),
            Self::NbdUnix => {
                let stream = UnixStream::connect(&places.nbd_unix)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(Nbd::start(stream)?)
            }
            Self::NbdTcp => Box::new(Nbd::start(tcp(&places.nbd_tcp)?)?),
            Self::NbdTls => Box::new(Nbd::start(tls(tcp(&places.nbd_tcp)?, &places.certificates)?)?),
            Self::Vhost => {
                // Made for tests in which a server that goes away is a failure.
                let attached = quietly(|| Attached::new(&places.vhost, 1, u64::MAX));
                Box::new(Vhost(attached.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset))?))
            }
        })
    }
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Nothing, and no word about it, if it panics.
fn quietly<T>(run: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                loud(panic);
            }
        }));
    });
    IS_QUIET.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(run));
    IS_QUIET.set(false);
    outcome.ok()
}

/// A file, or a block device.
struct Opened(File);

impl Opened {
    fn new(path: &Path, flags: libc::c_int) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?))
    }
}

/// Memory as direct I/O wants it.
fn aligned(length: usize) -> (Vec<u8>, usize) {
    let buffer = vec![0u8; length + 4096];
    let start = buffer.as_ptr().align_offset(4096);
    (buffer, start)
}

impl Connection for Opened {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let (mut buffer, start) = aligned(bytes.len());
        self.0.read_exact_at(&mut buffer[start..start + bytes.len()], offset)?;
        bytes.copy_from_slice(&buffer[start..start + bytes.len()]);
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut buffer, start) = aligned(bytes.len());
        buffer[start..start + bytes.len()].copy_from_slice(bytes);
        self.0.write_all_at(&buffer[start..start + bytes.len()], offset)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    /// As another process, which is killed while it writes. The kernel lets it go only when its request is over.
    fn write_and_leave(self: Box<Self>, offset: u64, bytes: &[u8]) -> bool {
        let (mut buffer, start) = aligned(bytes.len());
        buffer[start..start + bytes.len()].copy_from_slice(bytes);
        let place = buffer[start..].as_ptr();
        // SAFETY: the child makes one system call on memory that it has a copy of, and ends. The parent kills it and
        // waits until it has.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::pwrite(self.0.as_raw_fd(), place.cast(), bytes.len(), offset.cast_signed());
                libc::_exit(0);
            }
            if child > 0 {
                libc::usleep((offset / 4096 % 400) as libc::c_uint);
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
        }
        false
    }
}

fn tcp(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Reads the opening and sends the flags.
fn greet(stream: &mut (impl Read + Write)) -> io::Result<()> {
    let mut opening = [0; 18];
    stream.read_exact(&mut opening)?;
    if opening[..8] != nbd::MAGIC.to_be_bytes() {
        return Err(broken("this is no NBD server"));
    }
    stream.write_all(&3u32.to_be_bytes())
}

fn send_option(stream: &mut impl Write, option: u32) -> io::Result<()> {
    let mut words = nbd::OPTION_MAGIC.to_be_bytes().to_vec();
    words.extend(option.to_be_bytes());
    words.extend(0u32.to_be_bytes());
    stream.write_all(&words)?;
    stream.flush()
}

/// A stream after the flags, with TLS about it.
fn tls(
    mut stream: TcpStream,
    certificates: &Path,
) -> io::Result<Greeted<StreamOwned<ClientConnection, TcpStream>>> {
    greet(&mut stream)?;
    send_option(&mut stream, option::STARTTLS)?;
    let mut reply = [0; 20];
    stream.read_exact(&mut reply)?;
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(certificates.join("ca-cert.pem")).expect("a certificate");
    roots.add(authority).expect("it can be one");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("they go together")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let client = ClientConnection::new(Arc::new(config), name).expect("a client");
    Ok(Greeted(StreamOwned::new(client, stream)))
}

/// A stream on which the flags have been exchanged.
struct Greeted<S>(S);

/// What NBD is spoken over.
trait Line: Read + Write + Send {
    fn greet(&mut self) -> io::Result<()>;
}

impl Line for UnixStream {
    fn greet(&mut self) -> io::Result<()> {
        greet(self)
    }
}

impl Line for TcpStream {
    fn greet(&mut self) -> io::Result<()> {
        greet(self)
    }
}

impl<S: Read + Write + Send> Line for Greeted<S> {
    fn greet(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: Read> Read for Greeted<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl<S: Write> Write for Greeted<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

struct Nbd<S> {
    stream: S,
    cookie: u64,
}

impl<S: Line> Nbd<S> {
    fn start(mut stream: S) -> io::Result<Self> {
        stream.greet()?;
        send_option(&mut stream, option::EXPORT_NAME)?;
        stream.read_exact(&mut [0; 10])?;
        Ok(Self { stream, cookie: 0 })
    }

    fn send(&mut self, command: u16, offset: u64, length: usize, payload: &[u8]) -> io::Result<()> {
        self.cookie += 1;
        let mut words = nbd::REQUEST_MAGIC.to_be_bytes().to_vec();
        words.extend(0u16.to_be_bytes());
        words.extend(command.to_be_bytes());
        words.extend(self.cookie.to_be_bytes());
        words.extend(offset.to_be_bytes());
        words.extend((length as u32).to_be_bytes());
        words.extend(payload);
        self.stream.write_all(&words)?;
        self.stream.flush()
    }

    fn exchange(&mut self, command: u16, offset: u64, length: usize, payload: &[u8]) -> io::Result<()> {
        self.send(command, offset, length, payload)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        let mut fields = nbd::Fields(&reply);
        if (fields.u32(), fields.u32(), fields.u64())
            == (Some(nbd::SIMPLE_REPLY_MAGIC), Some(0), Some(self.cookie))
        {
            return Ok(());
        }
        // A server that ends answers what it was asked, and never with an error.
        panic!("an NBD reply that is none or an error: {reply:?}");
    }
}

impl<S: Line> Connection for Nbd<S> {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.exchange(command::READ, offset, bytes.len(), &[])?;
        self.stream.read_exact(bytes)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.exchange(command::WRITE, offset, bytes.len(), bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.exchange(command::FLUSH, 0, 0, &[])
    }

    fn write_and_leave(mut self: Box<Self>, offset: u64, bytes: &[u8]) -> bool {
        let _ = self.send(command::WRITE, offset, bytes.len(), bytes);
        true
    }
}

struct Vhost(Attached);

impl Vhost {
    fn run(&mut self, kind: u32, offset: u64, length: usize) -> io::Result<()> {
        let ring = &mut self.0.rings[0];
        ring.submit(0, kind, offset / 512, 0, length as u32, false);
        let deadline = Instant::now() + PATIENCE;
        while ring.try_done(Instant::now() + Duration::from_millis(100)).is_none() {
            let mut byte = 0u8;
            let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            // SAFETY: one byte that lives across the call.
            let heard =
                unsafe { libc::recv(self.0.frontend.stream.as_raw_fd(), (&raw mut byte).cast(), 1, flags) };
            let would_block = io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
            if heard == 0 || heard < 0 && !would_block {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            assert!(Instant::now() < deadline, "a request to vhost-user-blk is never answered");
        }
        assert_eq!(ring.status(0), status::OK);
        Ok(())
    }
}

impl Connection for Vhost {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.run(kind::READ, offset, bytes.len())?;
        bytes.copy_from_slice(&self.0.rings[0].get(0, bytes.len()));
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.rings[0].put(0, bytes);
        self.run(kind::WRITE, offset, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.run(kind::FLUSH, 0, 0)
    }

    fn write_and_leave(mut self: Box<Self>, offset: u64, bytes: &[u8]) -> bool {
        let ring = &mut self.0.rings[0];
        ring.put(0, bytes);
        ring.submit(0, kind::WRITE, offset / 512, 0, bytes.len() as u32, false);
        true
    }
}
