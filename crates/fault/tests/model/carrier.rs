//! Carries the requests of a case over a piece of memory.

use std::sync::Arc;
use std::time::Duration;

use rotproof_block::{Context, Operation, Time};
use rotproof_fault::{Engine, Header};

use crate::cases::{Ask, DEVICE_BYTES};
use crate::disk::Disk;

pub struct Carrier(Disk);

/// How a request ended.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub succeeds: bool,
    pub delay: Duration,
    /// What a read that succeeded has brought.
    pub data: Vec<u8>,
}

impl Carrier {
    pub fn new(engine: &Arc<Engine>) -> Self {
        Self(Disk::new(engine, DEVICE_BYTES))
    }

    pub fn carry(&mut self, ask: &Ask, time_ns: u64) -> Outcome {
        let context = Context { phase: ask.phase, submitted: Time(time_ns), ..Context::default() };
        let (operation, offset, length) = (ask.operation, ask.offset, ask.length);
        let header = Header { operation, offset, length, context };
        let payload = vec![ask.fill; ask.length as usize];
        let payload = if ask.operation == Operation::WRITE { &payload[..] } else { &[] };
        let passage = self.0.gate.begin(&header, payload);
        let ended = self.0.finish(&header, passage, payload, ask.fails_below);
        let succeeds = ended.succeeds();
        Outcome { succeeds, delay: ended.delay, data: if succeeds { ended.data } else { Vec::new() } }
    }
}
