//! The monitor of a QEMU, by its own protocol (QEMU Machine Protocol): one command after the other, each with an answer, in lines
//! of JSON. Events that come between are of no interest here.

use std::io::{BufRead, BufReader, ErrorKind as ErrorKindOfIo};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use serde_json::{Map, Value, json};

/// How long an answer may take. It takes some milliseconds, on a machine that does much else a second.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// The number under which it knows a file that it was handed.
const FILE_SET: u64 = 1;
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// No line of its is longer.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// A monitor that takes commands.
pub(crate) struct Monitor {
    line: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Monitor {
    /// Waits for its greeting on `line`, and agrees on the protocol. Fails if the QEMU ends before.
    pub(crate) fn greet(line: UnixStream) -> Result<Self> {
        let doing = || "the monitor of a QEMU".to_owned();
        line.set_read_timeout(Some(ANSWER_MAX)).doing(doing)?;
        let answers = BufReader::new(line.try_clone().doing(doing)?);
        let mut monitor = Self { line, answers };
        monitor.line()?;
        monitor.command("qmp_capabilities")?;
        Ok(monitor)
    }

    /// Has a command carried out, and gives its answer.
    pub(crate) fn command(&mut self, name: &str) -> Result<Value> {
        self.command_with(name, &Map::new(), None)
    }

    /// The same, of a command with one argument.
    pub(crate) fn command_of(
        &mut self,
        name: &str,
        argument: &str,
        value: impl Into<Value>,
    ) -> Result<Value> {
        self.command_with(name, &Map::from_iter([(argument.to_owned(), value.into())]), None)
    }

    /// Has its state, which it saves or takes from now on, be without memory that others share: that of its guest.
    pub(crate) fn leave_out_shared_memory(&mut self) -> Result<()> {
        let capability = json!({ "capability": "x-ignore-shared", "state": true });
        self.command_of("migrate-set-capabilities", "capabilities", json!([capability])).map(drop)
    }

    /// Hands it something that is open, and gives the name by which it then knows that.
    pub(crate) fn hand(&mut self, open: &impl AsFd, name: &str) -> Result<String> {
        let arguments = Map::from_iter([("fdname".to_owned(), name.into())]);
        self.command_with("getfd", &arguments, Some(open.as_fd()))?;
        Ok(name.to_owned())
    }

    /// Hands it an open file, and gives the path under which it can open that.
    pub(crate) fn hand_file(&mut self, open: &impl AsFd) -> Result<String> {
        let arguments = Map::from_iter([("fdset-id".to_owned(), FILE_SET.into())]);
        self.command_with("add-fd", &arguments, Some(open.as_fd()))?;
        Ok(format!("/dev/fdset/{FILE_SET}"))
    }

    /// Asks `question` until its `status` is none of these, and gives what it is.
    pub(crate) fn wait_while(&mut self, question: &str, is: &[&str]) -> Result<String> {
        let deadline = Instant::now() + ANSWER_MAX;
        loop {
            let answer = self.command(question)?;
            let status = answer["status"].as_str().unwrap_or_default();
            if !is.contains(&status) {
                return Ok(status.to_owned());
            }
            if Instant::now() >= deadline {
                let context = format!("QEMU was {status} for {} s", ANSWER_MAX.as_secs());
                return Err(Error::new(ErrorKind::TimedOut, context));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The same, with any arguments, and something open that goes along.
    pub(crate) fn command_with(
        &mut self,
        name: &str,
        arguments: &Map<String, Value>,
        open: Option<BorrowedFd<'_>>,
    ) -> Result<Value> {
        let text = json!({ "execute": name, "arguments": arguments }).to_string();
        send(&self.line, text.as_bytes(), open).map_err(|error| match error.kind() {
            ErrorKindOfIo::BrokenPipe | ErrorKindOfIo::ConnectionReset => {
                Error::new(ErrorKind::Gone, "QEMU has ended")
            }
            _ => Error::from_io(error, format!("sending `{name}` to QEMU")),
        })?;
        loop {
            let mut said = self.line()?;
            if let Some(answer) = said.get_mut("return") {
                return Ok(answer.take());
            }
            if let Some(why) = said.get("error") {
                let why = why["desc"].as_str().unwrap_or("no reason");
                return Err(Error::new(ErrorKind::Invalid, format!("QEMU refuses `{name}`: {why}")));
            }
        }
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        let doing = || "listening to the monitor of a QEMU".to_owned();
        std::io::Read::take(&mut self.answers, LINE_BYTES_MAX).read_line(&mut line).doing(doing)?;
        if line.is_empty() {
            return Err(Error::new(ErrorKind::Gone, "QEMU has ended"));
        }
        serde_json::from_str(&line).map_err(|error| {
            Error::new(ErrorKind::Invalid, "the monitor of a QEMU says no JSON").caused_by(error)
        })
    }
}

/// Sends all of `bytes`, and with the first of them something that is open.
fn send(line: &UnixStream, bytes: &[u8], open: Option<BorrowedFd<'_>>) -> std::io::Result<()> {
    let Some(open) = open else { return std::io::Write::write_all(&mut &*line, bytes) };
    let fd = open.as_raw_fd();
    // Words, so that the header in it is aligned; a header and a descriptor take three.
    let mut control = [0_u64; 4];
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a message with nothing in it.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the room for one descriptor fits `control`, so that the first header lies within it; the bytes, which are only
    // read, the part and the room live across the call.
    let sent = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(fd);
        libc::sendmsg(line.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    let sent = usize::try_from(sent).map_err(|_| std::io::Error::last_os_error())?;
    std::io::Write::write_all(&mut &*line, &bytes[sent..])
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};

    use super::*;

    /// Something that answers as a QEMU does, with an event before each answer.
    fn monitor(answers: &'static [&'static str]) -> (Result<Monitor>, std::thread::JoinHandle<Vec<String>>) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let answering = std::thread::spawn(move || {
            let (mut lines, mut asked) = (theirs.try_clone().expect("a clone"), Vec::new());
            writeln!(lines, r#"{{"QMP": {{}}}}"#).expect("heard");
            let values = serde_json::Deserializer::from_reader(theirs).into_iter::<Value>();
            for (value, answer) in values.zip([r#"{"return": {}}"#].iter().chain(answers)) {
                asked.push(value.expect("JSON")["execute"].as_str().expect("a command").to_owned());
                writeln!(lines, r#"{{"event": "RESUME"}}"#).expect("heard");
                writeln!(lines, "{answer}").expect("heard");
                if asked.len() > answers.len() {
                    break;
                }
            }
            asked
        });
        (Monitor::greet(ours), answering)
    }

    #[test]
    fn commands_have_answers_and_what_is_refused_says_why() {
        let (monitor, answering) = monitor(&[
            r#"{"return": {"status": "inmigrate"}}"#,
            r#"{"return": {"status": "paused"}}"#,
            r#"{"error": {"class": "GenericError", "desc": "Bus 'x' not found"}}"#,
        ]);
        let mut monitor = monitor.expect("it greets");
        assert_eq!(monitor.wait_while("query-status", &["inmigrate"]).expect("asked"), "paused");
        let error = monitor.command("device_add").expect_err("refused");
        assert!(error.to_string().contains("refuses `device_add`: Bus 'x' not found"), "{error}");
        let asked = ["qmp_capabilities", "query-status", "query-status", "device_add"];
        assert_eq!(answering.join().expect("it ends"), asked);
        assert_eq!(monitor.command("cont").expect_err("gone").kind(), ErrorKind::Gone);
    }

    #[test]
    fn a_file_that_is_handed_over_arrives() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"of mine").expect("written");
        send(&ours, b"text", Some(file.as_fd())).expect("sent");
        drop(file);
        let (mut text, mut control) = ([0_u8; 8], [0_u64; 4]);
        let mut part = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
        // SAFETY: as in `send`; the descriptor that comes is nobody else's.
        let mut file = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control) as _;
            assert_eq!(libc::recvmsg(theirs.as_raw_fd(), &raw mut message, 0), 4);
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            assert!(!header.is_null(), "no file came");
            let fd = libc::CMSG_DATA(header).cast::<i32>().read_unaligned();
            <File as std::os::fd::FromRawFd>::from_raw_fd(fd)
        };
        let mut read = String::new();
        std::io::Seek::rewind(&mut file).and_then(|()| file.read_to_string(&mut read)).expect("read");
        assert_eq!((&text[..4], read.as_str()), (&b"text"[..], "of mine"));
    }
}
