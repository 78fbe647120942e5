//! What one connection may say and remember: lines in, replies out, both bounded. It does no I/O.

use super::handler::Handler;
use super::protocol::{ErrorBody, FaultKind, Request};
use serde_json::Value;

/// Bytes of a line, without its end. A rule with five thousand contents fits.
pub const LINE_BYTES_MAX: usize = 256 << 10;

/// The state of one connection.
#[derive(Debug, Default)]
pub struct Session {
    /// What has come in and is not answered.
    input: Vec<u8>,
    /// Bytes of `input` that hold no end of a line.
    searched: usize,
    /// What is to be sent.
    output: Vec<u8>,
    /// Bytes of `output` that were sent.
    sent: usize,
    /// Nothing more comes in.
    is_ended: bool,
    /// It has said something that made sense.
    has_proven: bool,
}

impl Session {
    /// A connection to which the greeting is still to be sent.
    pub fn new(handler: &Handler) -> Self {
        let mut session = Self::default();
        if let Ok(greeting) = serde_json::to_vec(&handler.greeting()) {
            session.output = greeting;
            session.output.push(b'\n');
        }
        session
    }

    /// A connection for which nothing is left to do.
    pub(super) fn closed() -> Self {
        Self { is_ended: true, ..Self::default() }
    }

    /// Takes what has come in. Never more than [`Session::room`] bytes are kept.
    pub fn receive(&mut self, bytes: &[u8]) {
        let room = self.room();
        self.input.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Notes that nothing more will come in. What is there counts as a line.
    pub fn end_of_input(&mut self) {
        if !self.is_ended && !self.input.is_empty() && !self.input.ends_with(b"\n") {
            self.input.push(b'\n');
        }
        self.is_ended = true;
    }

    /// How many bytes it can take.
    pub fn room(&self) -> usize {
        if self.is_ended { 0 } else { (LINE_BYTES_MAX + 1).saturating_sub(self.input.len()) }
    }

    /// Answers the next line, if there is one and what was answered before has been sent. Gives whether it did.
    pub fn answer_next(&mut self, handler: &mut Handler) -> bool {
        if !self.output().is_empty() {
            return false;
        }
        let Some(end) = self.input[self.searched..].iter().position(|&byte| byte == b'\n') else {
            self.searched = self.input.len();
            if self.searched > LINE_BYTES_MAX {
                let message =
                    format!("a line may have {LINE_BYTES_MAX} bytes; send rules in several requests");
                self.refuse(FaultKind::TooLong, &message);
            }
            return false;
        };
        let end = self.searched + end;
        let line: Vec<u8> = self.input.drain(..=end).collect();
        self.searched = 0;
        let line = line.trim_ascii();
        if line.is_empty() {
            return true;
        }
        let Request { id, action } = Request::parse(line);
        self.has_proven |= action.is_ok();
        let answer = action.and_then(|action| handler.handle(action, line.len()));
        self.send(Request::reply(&id, answer));
        true
    }

    /// Whether a line has begun and not come to its end.
    pub fn is_within_line(&self) -> bool {
        !self.input.is_empty()
    }

    /// Whether a whole line waits for its answer.
    pub fn has_line(&self) -> bool {
        self.input[self.searched..].contains(&b'\n')
    }

    /// Whether it has ever said something that made sense.
    pub fn has_proven(&self) -> bool {
        self.has_proven
    }

    /// Tells why it ends; nothing it says is listened to any more.
    pub fn refuse(&mut self, kind: FaultKind, message: &str) {
        self.is_ended = true;
        self.input = Vec::new();
        self.searched = 0;
        self.send(Request::reply(&Value::Null, Err(ErrorBody::new(kind, message))));
    }

    fn send(&mut self, line: Vec<u8>) {
        if self.output().is_empty() {
            (self.output, self.sent) = (line, 0);
        } else {
            self.output.extend(line);
        }
    }

    /// What is still to be sent.
    pub fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// Notes that so many bytes of it were sent.
    pub fn was_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.output().is_empty() {
            // A long reply does not stay in memory.
            (self.output, self.sent) = (Vec::new(), 0);
        }
    }

    /// Whether there is nothing left to do for it.
    pub fn is_over(&self) -> bool {
        self.is_ended && self.input.is_empty() && self.output().is_empty()
    }
}
