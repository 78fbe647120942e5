//! What a person sees while a trial or a load runs: the command in a pseudo terminal of 80 columns, its output shown by a
//! terminal emulator, and the screen read.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZero;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Nothing here takes longer, on the slowest machine.
const DEADLINE: Duration = Duration::from_secs(60);
const ROWS: u16 = 80;
const COLUMNS: u16 = 80;

const TRIAL: &str = "\
stack: [memory: { size: 16MiB }]
load: { pattern: random, reads: 50%, duration: 2500ms, rate: 2000, queue_depth: 4, prefill: true }
faults: ['read, name=media, every=100: error']
expect: { failures: '>= 0', silent: 0 }
";

/// The command, on a terminal of its own.
struct Terminal {
    child: Child,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// Everything that came.
    bytes: Vec<u8>,
    _folder: TempDir,
}

impl Terminal {
    /// Runs it in a folder with the trial `t.yaml`; on the terminal is standard error, and standard output too unless
    /// `stdout` goes elsewhere.
    fn run(arguments: &[&str], environment: &[(&str, &str)], stdout: Option<Stdio>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("t.yaml"), TRIAL).expect("a file is written");
        let (master, slave) = open_terminal();
        let other = slave.try_clone().expect("another descriptor");
        let child = Command::new(env!("CARGO_BIN_EXE_rotproof"))
            .args(arguments)
            .current_dir(folder.path())
            .env("ROTPROOF_STATE_DIR", folder.path().join("state"))
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(stdout.unwrap_or_else(|| other.into()))
            .stderr(slave)
            .spawn()
            .expect("the command starts");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut master = File::from(master);
            let mut buffer = [0; 4096];
            // It ends with an error once nobody has the other side open.
            while let Ok(count @ 1..) = master.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        let screen = vt100::Parser::new(nonzero(ROWS), nonzero(COLUMNS), 0);
        Self { child, output, screen, bytes: Vec::new(), _folder: folder }
    }

    /// The rows of the screen.
    fn rows(&self) -> Vec<String> {
        self.screen.screen().rows(0, COLUMNS).map(|row| row.trim_end().to_owned()).collect()
    }

    /// Waits until the screen shows that.
    fn until(&mut self, what: &str, is_shown: impl Fn(&[String]) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let rows = self.rows();
            if is_shown(&rows) {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.take(&bytes),
                Err(_) => panic!("{what} was never shown; the screen ended as\n{}", rows.join("\n")),
            }
        }
    }

    /// Waits for the end, and gives the last screen.
    fn end(&mut self) -> (ExitStatus, Vec<String>) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.take(&bytes),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end:\n{}", self.rows().join("\n")),
            }
        }
        (self.child.wait().expect("it has ended"), self.rows())
    }

    fn take(&mut self, bytes: &[u8]) {
        self.screen.process(bytes);
        self.bytes.extend_from_slice(bytes);
    }

    fn interrupt(&self) {
        let process = libc::pid_t::try_from(self.child.id()).expect("a process");
        // SAFETY: sends a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(process, libc::SIGINT) }, 0);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both sides of a pseudo terminal.
fn open_terminal() -> (OwnedFd, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    let size = libc::winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: both numbers and the size live across the call; it may leave out the name and the settings.
    let opened = unsafe {
        libc::openpty(
            &raw mut master,
            &raw mut slave,
            std::ptr::null_mut(),
            std::ptr::null(),
            &raw const size,
        )
    };
    assert_eq!(opened, 0, "a pseudo terminal: {}", std::io::Error::last_os_error());
    // The other side must not stay open in the child, or it would never see the end.
    // SAFETY: the descriptors are open, and nobody else has them.
    unsafe {
        libc::fcntl(master, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(slave, libc::F_SETFD, libc::FD_CLOEXEC);
        (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    }
}

fn nonzero(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("not zero")
}

fn has(rows: &[String], text: &str) -> bool {
    rows.iter().any(|row| row.contains(text))
}

#[test]
fn a_run_shows_its_progress_its_course_its_latencies_and_its_faults_and_leaves_only_results() {
    let mut terminal = Terminal::run(&["run", "t.yaml"], &[], None);
    // A part of a frame may have been read, so all of it is waited for.
    terminal.until("the course of the run", |rows| {
        let Some(at) = rows.iter().position(|row| row.starts_with("  run      ━")) else { return false };
        let [how_far, course, latencies, fault, ..] = &rows[at..] else { return false };
        how_far.contains('%')
            && how_far.contains("MiB/s")
            && course.contains(|c| ('▁'..='█').contains(&c))
            && course.ends_with("iB/s")
            && latencies.trim_start().contains(" IOPS  p50 ")
            && latencies.contains("  p99 ")
            && fault.starts_with("  fault    media: read of 4.0 KiB at ")
    });
    let (status, rows) = terminal.end();
    assert_eq!(status.code(), Some(0), "{rows:#?}");
    assert!(!has(&rows, "━") && !has(&rows, "fault    media"), "nothing of it is left: {rows:#?}");
    let result = rows
        .iter()
        .position(|row| row == "t  raw, seed 1, runtime io_uring")
        .unwrap_or_else(|| panic!("a result in {rows:#?}"));
    assert!(rows[result - 1].starts_with("  verdict  done in "), "{rows:#?}");
    assert!(has(&rows, "PASS  every expectation holds"), "{rows:#?}");
    assert!(!terminal.screen.screen().hide_cursor());
}

#[test]
fn an_interrupted_run_leaves_the_terminal_as_it_was() {
    let mut terminal = Terminal::run(&["run", "t.yaml", "--set", "load.duration=5min"], &[], None);
    terminal.until("the run", |rows| has(rows, "  run      "));
    terminal.interrupt();
    let (status, rows) = terminal.end();
    assert_eq!(status.code(), Some(130), "{rows:#?}");
    assert!(has(&rows, "t: interrupted; everything it had created is removed"), "{rows:#?}");
    assert!(!has(&rows, "━") && !terminal.screen.screen().hide_cursor(), "{rows:#?}");
}

#[test]
fn results_on_standard_output_have_nothing_of_it() {
    let mut terminal = Terminal::run(&["run", "t.yaml", "--json"], &[], Some(Stdio::piped()));
    let mut stdout = terminal.child.stdout.take().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    terminal.until("the run", |rows| has(rows, "  run      ━"));
    let (status, rows) = terminal.end();
    let text = reader.join().expect("no panic").expect("it can be read");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"));
    assert_eq!((status.code(), report["verdict"].as_str()), (Some(0), Some("pass")), "{rows:#?}");
}

#[test]
fn without_colours_there_are_plain_lines_and_with_quiet_none() {
    let load = ["load", "memory:16MiB", "--rw", "randrw", "--runtime", "1"];
    let mut plain = Terminal::run(&load, &[("NO_COLOR", "1")], None);
    let (_, rows) = plain.end();
    assert!(!plain.bytes.contains(&0x1b), "no line is redrawn and nothing is coloured: {rows:#?}");
    assert!(has(&rows, "  run      done in "), "{rows:#?}");
    let quiet = [&load[..], &["--quiet"]].concat();
    let mut quiet = Terminal::run(&quiet, &[], None);
    let (_, rows) = quiet.end();
    assert!(!has(&rows, "done in") && has(&rows, "PASS"), "{rows:#?}");
}

#[test]
fn a_load_shows_its_course_too() {
    let arguments = ["load", "memory:16MiB", "--rw", "randrw", "--runtime", "2", "--rate-iops", "1000"];
    let mut terminal = Terminal::run(&arguments, &[], None);
    terminal.until("the course of the load", |rows| has(rows, "p99 ") && has(rows, "█"));
    let (status, rows) = terminal.end();
    assert!(status.success() && has(&rows, "PASS  ") && !has(&rows, "━"), "{rows:#?}");
}

#[test]
fn metrics_can_be_read_while_a_run_goes_on_and_only_from_this_machine() {
    let mut terminal = Terminal::run(&["run", "t.yaml", "--metrics", ":0"], &[("NO_COLOR", "1")], None);
    terminal.until("the address", |rows| rows.iter().any(|row| row.ends_with("/metrics")));
    let rows = terminal.rows();
    let address = rows.iter().find_map(|row| row.strip_prefix("metrics: http://")).expect("an address");
    let address = address.strip_suffix("/metrics").expect("a page").to_owned();
    let deadline = Instant::now() + DEADLINE;
    loop {
        let page = scrape(&address);
        let value = |name: &str| {
            let sample = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            sample.map_or(0.0, |value| value.parse::<f64>().expect("a number"))
        };
        let labels = "{run=\"t\",phase=\"run\",operation=\"read\"}";
        let reads = value(&format!("rotproof_requests_total{labels}"));
        let hits = value("rotproof_fault_hits_total{run=\"t\",rule=\"media\"}");
        if reads > 0.0 && hits > 0.0 && value(&format!("rotproof_request_duration_seconds_sum{labels}")) > 0.0
        {
            break;
        }
        assert!(Instant::now() < deadline, "{page}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (status, rows) = terminal.end();
    assert_eq!(status.code(), Some(0), "{rows:#?}");
    let mut open = Terminal::run(&["run", "t.yaml", "--metrics", "0.0.0.0:0"], &[], None);
    let (status, rows) = open.end();
    assert!(status.code() == Some(2) && has(&rows, "--metrics-for-all"), "{rows:#?}");
}

/// The page, as a scraper gets it.
fn scrape(address: &str) -> String {
    let mut client = TcpStream::connect(address).expect("it listens");
    client.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    let (head, page) = answer.split_once("\r\n\r\n").expect("a head and a page");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    page.to_owned()
}
