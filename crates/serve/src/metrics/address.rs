//! Where metrics are served.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// An address and a port; port 0 lets the kernel choose one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsAddress(pub SocketAddr);

impl MetricsAddress {
    /// Whether only this machine can reach it.
    pub fn is_loopback(&self) -> bool {
        self.0.ip().is_loopback()
    }
}

/// `127.0.0.1:9464`, `[::1]:9464`, `localhost:9464`, or `:9464` for loopback.
impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let on_loopback = |port: &str| {
            port.parse().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)).map_err(|_| ())
        };
        let parsed = match text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')) {
            Some(port) => on_loopback(port),
            None => text.parse().map_err(|_| ()),
        };
        parsed.map(Self).map_err(|()| format!("`{text}` is no address with a port, such as 127.0.0.1:9464"))
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, shown, is_loopback) in [
            ("127.0.0.1:9464", "127.0.0.1:9464", true),
            (":9464", "127.0.0.1:9464", true),
            ("localhost:0", "127.0.0.1:0", true),
            ("[::1]:9464", "[::1]:9464", true),
            ("0.0.0.0:9464", "0.0.0.0:9464", false),
            ("[::]:9464", "[::]:9464", false),
        ] {
            let address: MetricsAddress = text.parse().expect(text);
            assert_eq!((address.to_string().as_str(), address.is_loopback()), (shown, is_loopback), "{text}");
        }
        for text in ["", "9464", "127.0.0.1", ":70000", "example.org:9464", "localhost"] {
            assert!(text.parse::<MetricsAddress>().is_err(), "{text}");
        }
    }
}
