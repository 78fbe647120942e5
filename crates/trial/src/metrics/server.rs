//! The thread that answers scrapers, one after the other.
//!
//! Its memory is bounded, and nobody can hold it up for long: a request must come, and its answer be taken, within a second
//! or two. A scraper that has to wait for that long tries again by itself.

use std::fmt;
use std::io::{ErrorKind as IoErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use super::address::MetricsAddress;
use super::exposition::CONTENT_TYPE;
use super::request::{HEAD_BYTES_MAX, Head, read_head};

/// How long a request may take to come, and an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(2);
/// How soon it notices that it is to end, or that somebody has come.
const PAUSE: Duration = Duration::from_millis(50);

/// What gives the page.
pub type Source = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves until it is dropped.
pub struct MetricsServer {
    address: MetricsAddress,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for MetricsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl MetricsServer {
    /// Serves the pages of `source` at `address`. Fails with [`ErrorKind::Invalid`] for one that other machines reach, unless
    /// `is_for_all`.
    pub fn start(address: MetricsAddress, is_for_all: bool, source: Source) -> Result<Self> {
        if !address.is_loopback() && !is_for_all {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "whoever reaches {address} could read the metrics; take 127.0.0.1, or permit it with --metrics-for-all"
                ),
            ));
        }
        let doing = || format!("serving metrics at {address}");
        let listener = TcpListener::bind(address.0).doing(doing)?;
        listener.set_nonblocking(true).doing(doing)?;
        let address = MetricsAddress(listener.local_addr().doing(doing)?);
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        let thread = std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || serve(&listener, &source, &ended))
            .doing(doing)?;
        Ok(Self { address, is_over, thread: Some(thread) })
    }

    /// Where it serves; with the port that the kernel chose, if it was to choose one.
    pub fn address(&self) -> MetricsAddress {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ends within its patience; if it has panicked, there is nothing more to do.
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, source: &Source, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        match listener.accept() {
            // What becomes of one client is of no concern to the next.
            Ok((client, _)) => drop(answer(client, source)),
            // Nobody has come, or no descriptor is free.
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn answer(mut client: TcpStream, source: &Source) -> std::io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    client.set_nonblocking(false)?;
    let (mut head, mut piece) = (Vec::new(), [0; 1024]);
    let asked = loop {
        match read_head(&head) {
            Head::Incomplete => {}
            asked => break asked,
        }
        client.set_read_timeout(Some(left(deadline)?))?;
        let room = piece.len().min(HEAD_BYTES_MAX - head.len());
        match client.read(&mut piece[..room])? {
            0 => return Ok(()),
            count => head.extend_from_slice(&piece[..count]),
        }
    };
    let (status, kind, body, with_body) = match asked {
        Head::Metrics { with_body } => ("200 OK", CONTENT_TYPE, source(), with_body),
        Head::Refused(why) => (why, "text/plain; charset=utf-8", format!("{why}; there is /metrics\n"), true),
        Head::Incomplete => return Ok(()),
    };
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if with_body {
        text.push_str(&body);
    }
    let mut unsent = text.as_bytes();
    while !unsent.is_empty() {
        client.set_write_timeout(Some(left(deadline)?))?;
        let sent = client.write(unsent)?;
        unsent = &unsent[sent..];
    }
    client.shutdown(Shutdown::Write)?;
    // What is unread when a socket is closed would make the kernel take back what was sent.
    client.set_read_timeout(Some(left(deadline)?))?;
    while client.read(&mut piece)? > 0 {
        left(deadline)?;
    }
    Ok(())
}

fn left(deadline: Instant) -> std::io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(IoErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> MetricsServer {
        let source: Source = Arc::new(|| "x_total 3\n".to_owned());
        MetricsServer::start(":0".parse().expect("an address"), false, source).expect("a server")
    }

    fn ask(server: &MetricsServer, request: &[u8]) -> String {
        let mut client = TcpStream::connect(server.address().0).expect("it listens");
        client.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        client.write_all(request).expect("sent");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer, and its end");
        answer
    }

    #[test]
    fn the_page_is_given_with_its_type_and_length() {
        let server = server();
        let answer = ask(&server, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert_eq!(body, "x_total 3\n");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
        assert!(head.contains("\r\nContent-Length: 10\r\n"), "{head}");
        let answer = ask(&server, b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.contains("Content-Length: 10") && answer.ends_with("\r\n\r\n"), "{answer}");
    }

    #[test]
    fn what_is_refused_is_told_why_and_the_next_is_served() {
        let server = server();
        for (request, wanted) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "HTTP/1.1 404 "),
            (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 405 "),
            (b"\xff\xfe\r\n\r\n", "HTTP/1.1 400 "),
            (&[b'x'; HEAD_BYTES_MAX + 5000], "HTTP/1.1 431 "),
        ] {
            assert!(ask(&server, request).starts_with(wanted), "{wanted}");
        }
        drop(TcpStream::connect(server.address().0).expect("it listens"));
        assert!(ask(&server, b"GET /metrics HTTP/1.0\r\n\r\n").ends_with("x_total 3\n"));
    }

    #[test]
    fn a_client_that_says_nothing_only_delays_the_next() {
        let server = server();
        let _silent = TcpStream::connect(server.address().0).expect("it listens");
        assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").ends_with("x_total 3\n"));
    }

    #[test]
    fn other_machines_are_let_in_only_where_that_is_said() {
        let source: Source = Arc::new(String::new);
        let address = "0.0.0.0:0".parse().expect("an address");
        let error = MetricsServer::start(address, false, Arc::clone(&source)).expect_err("refused");
        assert!(
            error.kind() == ErrorKind::Invalid && error.to_string().contains("--metrics-for-all"),
            "{error}"
        );
    }
}
