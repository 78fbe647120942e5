//! Carries requests over a piece of memory as their passages say, without time.

#![allow(dead_code, reason = "each test has its own of it")]

use std::sync::Arc;
use std::time::Duration;

use rotproof_block::{Buffer, Operation};
use rotproof_fault::{Data, End, Engine, Errno, Gate, Header, Passage, Step};

/// A device in memory under an engine.
pub struct Disk {
    pub gate: Gate,
    pub medium: Vec<u8>,
}

/// How a request ended.
#[derive(Debug, Default, PartialEq)]
pub struct Ended {
    /// The device below has failed it.
    pub fails_below: bool,
    /// The engine has.
    pub failure: Option<Errno>,
    /// How long it waited, what holds it back to the end of its span included.
    pub delay: Duration,
    /// What a read shows, if it shows anything.
    pub data: Vec<u8>,
}

impl Ended {
    pub fn succeeds(&self) -> bool {
        !self.fails_below && self.failure.is_none()
    }
}

impl Disk {
    pub fn new(engine: &Arc<Engine>, bytes: u64) -> Self {
        Self::filled(engine, vec![0; bytes as usize])
    }

    pub fn filled(engine: &Arc<Engine>, medium: Vec<u8>) -> Self {
        Self { gate: engine.gate(), medium }
    }

    pub fn carry(&mut self, header: &Header, payload: &[u8]) -> Ended {
        let passage = self.gate.begin(header, payload);
        self.finish(header, passage, payload, false)
    }

    /// The request, if it has begun so; `fails_below`: the device fails it.
    pub fn finish(
        &mut self,
        header: &Header,
        passage: Option<Passage>,
        payload: &[u8],
        fails_below: bool,
    ) -> Ended {
        let mut ended = Ended { fails_below, ..Ended::default() };
        let Some(mut passage) = passage else {
            ended.data = self.serve(header, payload, fails_below);
            return ended;
        };
        let mut is_submitted = false;
        loop {
            let data = match header.operation {
                Operation::Read => Data::Read(&mut ended.data),
                Operation::Write { .. } => Data::Write(payload),
                _ => Data::None,
            };
            match passage.next(data, || header.context.submitted) {
                Step::Read(range) => {
                    let held = &self.medium[range.start as usize..range.end as usize];
                    passage.answer(Some(Buffer::copy_of(held)));
                }
                Step::Wait(span) => ended.delay += span,
                Step::Hang(hang) => ended.delay += hang.span().unwrap_or(Duration::MAX / 2),
                Step::Submit => {
                    assert!(!std::mem::replace(&mut is_submitted, true), "submitted twice");
                    ended.data = self.serve(header, payload, fails_below);
                    passage.submitted(!fails_below);
                }
                Step::Complete(end) => {
                    if let End::Fails(errno) = end {
                        ended.failure = Some(errno);
                    }
                    ended.fails_below &= is_submitted;
                    return ended;
                }
            }
        }
    }

    fn serve(&mut self, header: &Header, payload: &[u8], fails: bool) -> Vec<u8> {
        let range = header.offset as usize..header.end() as usize;
        if fails {
            return Vec::new();
        }
        match header.operation {
            Operation::Read => return self.medium[range].to_vec(),
            Operation::Write { .. } => self.medium[range].copy_from_slice(payload),
            Operation::WriteZeroes | Operation::Discard => self.medium[range].fill(0),
            Operation::Flush => {}
        }
        Vec::new()
    }
}
