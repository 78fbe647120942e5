//! The thread that answers scrapers, all of them side by side.
//!
//! Its memory is bounded, and nobody can hold up another: it never waits for one client alone. A request must come, and its
//! answer be taken, within two seconds; where there are more clients than there may be, the oldest has to go.

use std::collections::VecDeque;
use std::fmt;
use std::io::{ErrorKind as IoErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
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
/// Clients that are served at once.
const CLIENTS_MAX: usize = 64;
/// How soon it notices that it is to end, and that somebody's time is over.
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
        Self::start_with(address, is_for_all, source, PATIENCE)
    }

    fn start_with(
        address: MetricsAddress,
        is_for_all: bool,
        source: Source,
        patience: Duration,
    ) -> Result<Self> {
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
            .spawn(move || serve(&listener, &source, patience, &ended))
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
            // It ends within a moment; if it has panicked, there is nothing more to do.
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, source: &Source, patience: Duration, is_over: &AtomicBool) {
    let mut clients: VecDeque<Client> = VecDeque::new();
    // Without a descriptor or memory for one more, those who come wait until others have gone.
    let mut accepts = true;
    while !is_over.load(Ordering::Relaxed) {
        wait(listener, accepts, &clients);
        accepts = accept_all(listener, patience, &mut clients);
        // What becomes of one client is of no concern to the next.
        clients.retain_mut(|client| client.go_on(source));
    }
}

/// Waits until something can be done, for a moment.
fn wait(listener: &TcpListener, accepts: bool, clients: &VecDeque<Client>) {
    let entry = |descriptor, events| libc::pollfd { fd: descriptor, events, revents: 0 };
    let door = accepts.then(|| entry(listener.as_raw_fd(), libc::POLLIN));
    let waiting = clients.iter().map(|client| entry(client.stream.as_raw_fd(), client.waits_for()));
    let mut entries: Vec<libc::pollfd> = door.into_iter().chain(waiting).collect();
    let timeout_ms = libc::c_int::try_from(PAUSE.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the entries live across the call, and are as many as told. Whatever it gives, all are looked at again.
    unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout_ms) };
}

/// Lets everybody in who has come; the oldest goes where there are too many. Says whether there was room.
fn accept_all(listener: &TcpListener, patience: Duration, clients: &mut VecDeque<Client>) -> bool {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if clients.len() >= CLIENTS_MAX {
                    clients.pop_front();
                }
                clients.extend(Client::new(stream, patience));
            }
            Err(error) if error.kind() == IoErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == IoErrorKind::ConnectionAborted => {}
            Err(_) => return false,
        }
    }
}

/// Somebody who asks.
struct Client {
    stream: TcpStream,
    deadline: Instant,
    state: State,
}

enum State {
    /// Its request comes; so much is there.
    Asks(Vec<u8>),
    /// The answer goes; so much of it is gone.
    IsAnswered(Vec<u8>, usize),
    /// All of the answer is gone. What is unread when a socket is closed would make the kernel take back what was sent.
    Leaves,
}

impl Client {
    fn new(stream: TcpStream, patience: Duration) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        Some(Self { stream, deadline: Instant::now() + patience, state: State::Asks(Vec::new()) })
    }

    fn waits_for(&self) -> libc::c_short {
        match self.state {
            State::Asks(_) | State::Leaves => libc::POLLIN,
            State::IsAnswered(..) => libc::POLLOUT,
        }
    }

    /// Does what can be done now. Says whether there is more to do later.
    fn go_on(&mut self, source: &Source) -> bool {
        match self.step(source) {
            Ok(is_done) => !is_done && Instant::now() < self.deadline,
            Err(error) if error.kind() == IoErrorKind::WouldBlock => Instant::now() < self.deadline,
            Err(_) => false,
        }
    }

    /// Goes on until all is done, or fails with what keeps it from that.
    fn step(&mut self, source: &Source) -> std::io::Result<bool> {
        let mut piece = [0; 1024];
        loop {
            match &mut self.state {
                State::Asks(head) => {
                    let room = piece.len().min(HEAD_BYTES_MAX - head.len());
                    match self.stream.read(&mut piece[..room])? {
                        0 => return Ok(true),
                        count => head.extend_from_slice(&piece[..count]),
                    }
                    if let Some(answer) = answer(head, source) {
                        self.state = State::IsAnswered(answer, 0);
                    }
                }
                State::IsAnswered(answer, sent) if *sent < answer.len() => {
                    *sent += self.stream.write(&answer[*sent..])?;
                }
                State::IsAnswered(..) => {
                    self.stream.shutdown(Shutdown::Write)?;
                    self.state = State::Leaves;
                }
                State::Leaves => {
                    if self.stream.read(&mut piece)? == 0 || Instant::now() >= self.deadline {
                        return Ok(true);
                    }
                }
            }
        }
    }
}

/// What is answered to what has come so far; nothing yet, if more is to come.
fn answer(head: &[u8], source: &Source) -> Option<Vec<u8>> {
    let (status, kind, body, with_body) = match read_head(head) {
        Head::Incomplete => return None,
        Head::Metrics { with_body } => ("200 OK", CONTENT_TYPE, source(), with_body),
        Head::Refused(why) => (why, "text/plain; charset=utf-8", format!("{why}; there is /metrics\n"), true),
    };
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if with_body {
        text.push_str(&body);
    }
    Some(text.into_bytes())
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

    /// One whose clients have all the time they like.
    fn patient_server() -> MetricsServer {
        let source: Source = Arc::new(|| "x_total 3\n".to_owned());
        let patience = Duration::from_secs(3600);
        MetricsServer::start_with(":0".parse().expect("an address"), false, source, patience)
            .expect("a server")
    }

    #[test]
    fn clients_that_are_slow_or_say_nothing_delay_nobody() {
        let server = patient_server();
        let mut slow = TcpStream::connect(server.address().0).expect("it listens");
        slow.write_all(b"GET /met").expect("sent");
        let _silent = TcpStream::connect(server.address().0).expect("it listens");
        assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").ends_with("x_total 3\n"));
        slow.write_all(b"rics HTTP/1.1\r\n\r\n").expect("it has its time");
        let mut answer = String::new();
        slow.read_to_string(&mut answer).expect("an answer, and its end");
        assert!(answer.ends_with("x_total 3\n"), "{answer}");
    }

    #[test]
    fn a_crowd_that_says_nothing_keeps_nobody_out() {
        let server = patient_server();
        let crowd: Vec<_> = (0..2 * CLIENTS_MAX)
            .map(|_| TcpStream::connect(server.address().0).expect("it listens"))
            .collect();
        assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").ends_with("x_total 3\n"));
        drop(crowd);
    }

    #[test]
    fn who_says_nothing_is_sent_away_in_the_end() {
        let source: Source = Arc::new(String::new);
        let address = ":0".parse().expect("an address");
        let server = MetricsServer::start_with(address, false, source, Duration::ZERO).expect("a server");
        let mut silent = TcpStream::connect(server.address().0).expect("it listens");
        assert_eq!(silent.read(&mut [0]).expect("an end"), 0);
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
