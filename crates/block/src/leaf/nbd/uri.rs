//! Where an NBD server is, as a URI. Source: the NBD project's `doc/uri.md`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{Error, ErrorKind, Result};

/// The port of a URI without one.
const PORT: u16 = 10809;

/// An export of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    pub(super) place: Endpoint,
    /// Name of the export; empty for the server's default.
    pub(super) export: String,
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Unix(PathBuf),
    Tcp { host: String, port: u16 },
}

impl FromStr for NbdUri {
    type Err = Error;

    /// `nbd://HOST[:PORT]/[EXPORT]` or `nbd+unix:///[EXPORT]?socket=PATH`.
    fn from_str(text: &str) -> Result<Self> {
        let invalid = |why: &str| {
            let message =
                format!("{text:?} {why}; write nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH");
            Error::new(ErrorKind::Invalid, message)
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| invalid("is no URI of an NBD export"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decode(export).ok_or_else(|| invalid("has a name that is no UTF-8 when decoded"))?;
        let place = match scheme {
            "nbd" if !authority.is_empty() => {
                let (host, port) = host_and_port(authority).ok_or_else(|| invalid("has no valid port"))?;
                Endpoint::Tcp { host, port }
            }
            "nbd" => return Err(invalid("names no host")),
            "nbd+unix" if authority.is_empty() => {
                let socket = query.split('&').find_map(|part| part.strip_prefix("socket="));
                let socket = socket.and_then(decode).filter(|socket| !socket.is_empty());
                Endpoint::Unix(socket.ok_or_else(|| invalid("does not name the socket"))?.into())
            }
            "nbd+unix" => return Err(invalid("has a host, and a Unix socket has none")),
            "nbds" | "nbds+unix" => return Err(invalid("asks for TLS, which this client does not speak")),
            _ => return Err(invalid("is no URI of an NBD export")),
        };
        Ok(Self { place, export, text: text.into() })
    }
}

impl NbdUri {
    /// The same for every way to write the same address; relative paths of sockets are those of this process.
    pub fn identity(&self) -> String {
        let place = match &self.place {
            Endpoint::Unix(socket) => {
                let known = std::fs::canonicalize(socket).or_else(|_| std::path::absolute(socket));
                format!("unix {:?}", known.as_deref().unwrap_or(socket))
            }
            Endpoint::Tcp { host, port } => format!("tcp {} {port}", host.to_ascii_lowercase()),
        };
        format!("{place} {:?}", self.export)
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The parts of `HOST`, `HOST:PORT`, `[IPv6]` or `[IPv6]:PORT`.
fn host_and_port(authority: &str) -> Option<(String, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':').or_else(|| port.is_empty().then_some(""))?)
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let port = if port.is_empty() { PORT } else { port.parse().ok()? };
    (!host.is_empty()).then(|| (host.into(), port))
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_read_as_the_specification_has_them() {
        let tcp =
            |host: &str, port, export: &str| (Endpoint::Tcp { host: host.into(), port }, export.to_owned());
        let unix = |path: &str, export: &str| (Endpoint::Unix(path.into()), export.to_owned());
        for (text, expected) in [
            ("nbd://host", tcp("host", 10809, "")),
            ("nbd://host/", tcp("host", 10809, "")),
            ("nbd://host:7/a%2Fb", tcp("host", 7, "a/b")),
            ("nbd://[::1]:7/x/y", tcp("::1", 7, "x/y")),
            ("nbd://[::1]", tcp("::1", 10809, "")),
            ("nbd+unix:///?socket=/run/a%20b", unix("/run/a b", "")),
            ("nbd+unix:///disk?tls=off&socket=s", unix("s", "disk")),
        ] {
            let uri: NbdUri = text.parse().expect(text);
            assert_eq!((uri.place.clone(), uri.export.clone()), expected, "{text}");
            assert_eq!(uri.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_uri_of_an_export_is_refused_with_the_form_to_write() {
        for text in [
            "",
            "/dev/sda",
            "http://host/x",
            "nbd://",
            "nbd:///x",
            "nbd://host:x/",
            "nbd://host:99999/",
            "nbd://[::1/x",
            "nbd+unix:///x",
            "nbd+unix://host/x?socket=s",
            "nbd+unix:///x?socket=",
            "nbds://host/x",
            "nbd://host/%ff",
            "nbd://host/%2",
        ] {
            let error = text.parse::<NbdUri>().expect_err(text);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(error.to_string().contains("nbd+unix:///EXPORT"), "{error}");
        }
    }

    #[test]
    fn one_address_has_one_identity_however_it_is_written() {
        let identity = |text: &str| text.parse::<NbdUri>().expect(text).identity();
        assert_eq!(identity("nbd://Host"), identity("nbd://host:10809/"));
        assert_eq!(identity("nbd+unix:///a%2Fb?socket=x/y"), identity("nbd+unix:///a/b?x=1&socket=x%2Fy"));
        assert_ne!(identity("nbd://host/a"), identity("nbd://host/b"));
        assert_ne!(identity("nbd://host:1/"), identity("nbd+unix:///?socket=host"));
    }
}
