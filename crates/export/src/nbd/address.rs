//! Where a server listens, as users write it and as clients want it.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::private_socket::bind_private;

/// The port that the protocol is registered for.
pub const NBD_PORT: u16 = 10809;

/// A place to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A socket in the file system, made with the mode 0600 and removed at the end.
    Unix(PathBuf),
    /// An address of this machine and a port; port 0 lets the kernel choose.
    Tcp(SocketAddr),
}

impl FromStr for NbdAddress {
    type Err = Error;

    /// `unix:PATH` or a path with a slash in it; `tcp:HOST:PORT`, `HOST:PORT`, `HOST` or `:PORT` with addresses in
    /// figures or `localhost`.
    fn from_str(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix("unix:").or_else(|| text.contains('/').then_some(text)) {
            return if path.is_empty() {
                Err(Error::new(
                    ErrorKind::Invalid,
                    "`unix:` needs the path of the socket, as unix:/run/x.sock",
                ))
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        let place = text.strip_prefix("tcp:").unwrap_or(text);
        let place = place.replacen("localhost", "127.0.0.1", 1);
        let with_port = if place.starts_with(':') { format!("127.0.0.1{place}") } else { place.clone() };
        if let Ok(address) = with_port.parse() {
            return Ok(Self::Tcp(address));
        }
        place.trim_matches(['[', ']']).parse().map(|host| Self::Tcp(SocketAddr::new(host, NBD_PORT))).map_err(|_| {
            let message = format!(
                "{text:?} is no place to listen at; write unix:/path/to.sock, 127.0.0.1:{NBD_PORT} or [::1]:{NBD_PORT}"
            );
            Error::new(ErrorKind::Invalid, message)
        })
    }
}

impl NbdAddress {
    /// The URI by which a client reaches the export `name` here. Source: the NBD project's `doc/uri.md`.
    pub fn uri(&self, name: &str, with_tls: bool) -> String {
        let scheme = if with_tls { "nbds" } else { "nbd" };
        let name = escape(name.as_bytes(), b"");
        match self {
            Self::Unix(path) => {
                use std::os::unix::ffi::OsStrExt;
                format!("{scheme}+unix:///{name}?socket={}", escape(path.as_os_str().as_bytes(), b"/"))
            }
            Self::Tcp(address) => format!("{scheme}://{address}/{name}"),
        }
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// Percent-encodes all that has a meaning in a URI, but for the bytes `kept`.
fn escape(bytes: &[u8], kept: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
            text.push(byte.into());
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// A socket that listens. The file of a Unix socket goes with it.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    pub(super) address: NbdAddress,
}

impl Listener {
    /// Fails with [`ErrorKind::Refused`] where something else stands in the place of a Unix socket.
    pub(super) fn bind(address: &NbdAddress) -> Result<Self> {
        let listening = || format!("listening at {address}");
        match address {
            NbdAddress::Unix(path) => {
                let socket = bind_private(path)?;
                Ok(Self { socket: socket.into(), address: address.clone() })
            }
            NbdAddress::Tcp(wanted) => {
                let socket = std::net::TcpListener::bind(wanted).doing(listening)?;
                let actual = socket.local_addr().doing(listening)?;
                Ok(Self { socket: socket.into(), address: NbdAddress::Tcp(actual) })
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let NbdAddress::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn addresses_are_read_in_the_forms_that_people_write() {
        for (text, expected) in [
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("./a.sock", "unix:./a.sock"),
            ("unix:a.sock", "unix:a.sock"),
            ("127.0.0.1:7", "127.0.0.1:7"),
            ("tcp:127.0.0.1:7", "127.0.0.1:7"),
            ("127.0.0.1", "127.0.0.1:10809"),
            (":7", "127.0.0.1:7"),
            ("localhost", "127.0.0.1:10809"),
            ("localhost:7", "127.0.0.1:7"),
            ("[::1]:7", "[::1]:7"),
            ("::1", "[::1]:10809"),
        ] {
            assert_eq!(text.parse::<NbdAddress>().expect(text).to_string(), expected, "{text}");
        }
        for text in ["", "unix:", "example", "1.2.3.4:99999", "tcp:"] {
            let error = text.parse::<NbdAddress>().expect_err(text);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
        }
    }

    #[test]
    fn uris_name_socket_and_export_whatever_their_letters() {
        let unix = NbdAddress::Unix("/run/a b/x&y.sock".into());
        assert_eq!(unix.uri("", false), "nbd+unix:///?socket=/run/a%20b/x%26y.sock");
        assert_eq!(unix.uri("a/ü", true), "nbds+unix:///a%2F%C3%BC?socket=/run/a%20b/x%26y.sock");
        let tcp: NbdAddress = "[::1]:7".parse().expect("an address");
        assert_eq!(tcp.uri("disk", false), "nbd://[::1]:7/disk");
    }

    #[test]
    fn a_unix_socket_is_private_replaces_nothing_and_goes_with_its_listener() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let address = NbdAddress::Unix(path.clone());
        let listener = Listener::bind(&address).expect("binds");
        let mode = std::fs::metadata(&path).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(Listener::bind(&address).expect_err("taken").kind(), ErrorKind::Refused);
        drop(listener);
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
    }
}
