//! What a client asks for: the head of an HTTP request, of which only the first line matters.
//!
//! Strangers may send anything. The head is bounded, nothing of it is kept, and a body is never read, as no request that is
//! answered has one.

/// Bytes that a head may have.
pub const HEAD_BYTES_MAX: usize = 8 << 10;

/// What is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Nothing yet: more is to come.
    Incomplete,
    /// The metrics; without the page itself if only its head was asked for.
    Metrics {
        /// Whether the page is wanted too.
        with_body: bool,
    },
    /// No: the status, with its reason.
    Refused(&'static str),
}

/// Reads what has come so far.
pub fn read_head(bytes: &[u8]) -> Head {
    let first = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let is_whole =
        first.windows(4).any(|end| end == b"\r\n\r\n") || first.windows(2).any(|end| end == b"\n\n");
    if !is_whole {
        let is_too_long = bytes.len() >= HEAD_BYTES_MAX;
        return if is_too_long {
            Head::Refused("431 Request Header Fields Too Large")
        } else {
            Head::Incomplete
        };
    }
    let line = first.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.split(|&byte| byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, words.next()) else {
        return Head::Refused("400 Bad Request");
    };
    if !version.starts_with(b"HTTP/1.") {
        return Head::Refused("505 HTTP Version Not Supported");
    }
    let with_body = match method {
        b"GET" => true,
        b"HEAD" => false,
        _ => return Head::Refused("405 Method Not Allowed"),
    };
    // What a scraper adds behind a question mark changes nothing.
    match target.split(|&byte| byte == b'?').next() {
        Some(b"/metrics") => Head::Metrics { with_body },
        _ => Head::Refused("404 Not Found"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_metrics_are_given_and_everything_else_is_refused_with_the_reason() {
        for (text, wanted) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Head::Metrics { with_body: true }),
            ("GET /metrics?x=1 HTTP/1.0\n\n", Head::Metrics { with_body: true }),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", Head::Metrics { with_body: false }),
            ("GET / HTTP/1.1\r\n\r\n", Head::Refused("404 Not Found")),
            ("GET /metricsx HTTP/1.1\r\n\r\n", Head::Refused("404 Not Found")),
            ("POST /metrics HTTP/1.1\r\n\r\n", Head::Refused("405 Method Not Allowed")),
            ("GET /metrics HTTP/2\r\n\r\n", Head::Refused("505 HTTP Version Not Supported")),
            ("GET /metrics\r\n\r\n", Head::Refused("400 Bad Request")),
            ("GET  /metrics HTTP/1.1\r\n\r\n", Head::Refused("400 Bad Request")),
            ("\r\n\r\n", Head::Refused("400 Bad Request")),
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n", Head::Incomplete),
            ("", Head::Incomplete),
        ] {
            assert_eq!(read_head(text.as_bytes()), wanted, "{text:?}");
        }
    }

    #[test]
    fn a_head_that_never_ends_is_refused() {
        let text = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &vec![b'x'; HEAD_BYTES_MAX]].concat();
        assert_eq!(read_head(&text), Head::Refused("431 Request Header Fields Too Large"));
        assert_eq!(read_head(&text[..HEAD_BYTES_MAX - 1]), Head::Incomplete);
    }
}
