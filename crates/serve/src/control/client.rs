//! The other end of a control socket: one question, one answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use serde_json::Value;

use super::protocol::{Action, ErrorBody, FaultKind, Greeting, VERSION};
use super::session::LINE_BYTES_MAX;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of an answer that are read; a page of the longest rules has fewer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A connection to a served stack.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    greeting: Greeting,
    last_id: u64,
}

impl Client {
    /// Connects to the socket at `path`. Fails with [`ErrorKind::Missing`] if nobody serves it, and with
    /// [`ErrorKind::Invalid`] if what does is no Rotproof of this version.
    pub fn connect(path: &Path) -> Result<Self> {
        let place = path.display();
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::ConnectionRefused => Error::new(
                ErrorKind::Missing,
                format!("nobody serves {place} any more; `rotproof clean` removes what was left"),
            ),
            std::io::ErrorKind::NotFound => Error::new(
                ErrorKind::Missing,
                format!("there is no socket {place}; is `rotproof serve` running?"),
            ),
            _ => Error::from_io(error, format!("connecting to {place}")),
        })?;
        let doing = || format!("connecting to {place}");
        stream.set_read_timeout(Some(PATIENCE)).doing(doing)?;
        stream.set_write_timeout(Some(PATIENCE)).doing(doing)?;
        let mut stream = BufReader::new(stream);
        let line = read_line(&mut stream)?;
        let no_rotproof =
            || Error::new(ErrorKind::Invalid, format!("{place} is no control socket of Rotproof"));
        let greeting = match serde_json::from_slice::<Greeting>(&line) {
            Ok(greeting) if greeting.rotproof == "control" => greeting,
            Ok(_) => return Err(no_rotproof()),
            Err(_) => return Err(answer_of(&line).err().unwrap_or_else(no_rotproof)),
        };
        if greeting.version != VERSION {
            let message = format!(
                "{place} speaks version {} of the control protocol, this Rotproof version {VERSION}; take the \
                 Rotproof that serves it",
                greeting.version
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self { stream, greeting, last_id: 0 })
    }

    /// Who answers.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Asks, and gives what stands under `ok` in the reply. What stands under `error` is an error of kind
    /// [`ErrorKind::Invalid`], if it is the asker who can mend it.
    pub fn ask(&mut self, action: &Action) -> Result<Value> {
        let internal = |error: serde_json::Error| {
            Error::new(ErrorKind::Internal, "writing a request of the control protocol").caused_by(error)
        };
        let mut request = serde_json::to_value(action).map_err(internal)?;
        self.last_id += 1;
        request["id"] = self.last_id.into();
        let mut line = serde_json::to_vec(&request).map_err(internal)?;
        if line.len() > LINE_BYTES_MAX {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "this makes a request of {} bytes, and {LINE_BYTES_MAX} are taken; add the rules in parts",
                    line.len()
                ),
            ));
        }
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).map_err(slow)?;
        answer_of(&read_line(&mut self.stream)?)
    }
}

fn answer_of(line: &[u8]) -> Result<Value> {
    let senseless = || Error::new(ErrorKind::Internal, "the answer is none of the control protocol");
    let mut reply: Value = serde_json::from_slice(line).map_err(|error| senseless().caused_by(error))?;
    if let Some(ok) = reply.get_mut("ok") {
        return Ok(ok.take());
    }
    let error = reply.get_mut("error").ok_or_else(senseless)?.take();
    let ErrorBody { kind, message } =
        serde_json::from_value(error).map_err(|error| senseless().caused_by(error))?;
    let kind = match kind {
        FaultKind::Invalid | FaultKind::TooLong | FaultKind::Limit | FaultKind::Version => ErrorKind::Invalid,
        FaultKind::Busy => ErrorKind::Missing,
        FaultKind::TooSlow => ErrorKind::TimedOut,
        FaultKind::Malformed | FaultKind::Internal => ErrorKind::Internal,
    };
    Err(Error::new(kind, message))
}

fn read_line(stream: &mut BufReader<UnixStream>) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line).map_err(slow)?;
    if line.ends_with(b"\n") {
        return Ok(line);
    }
    Err(Error::new(ErrorKind::Missing, "the stack is no longer served: its control socket was closed"))
}

fn slow(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            Error::new(ErrorKind::TimedOut, format!("no answer for {} seconds", PATIENCE.as_secs()))
        }
        std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset => {
            Error::new(ErrorKind::Missing, "the stack is no longer served: its control socket was closed")
        }
        _ => Error::from_io(error, "talking to the control socket"),
    }
}
