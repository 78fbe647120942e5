//! Carries requests over a piece of memory as the engine decides: the protocol of `Evaluator`, without time.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::{Buffer, Context, Operation, Time};
use rotproof_fault::{Decision, Engine, Evaluator, Header, Piece};

use crate::cases::{Ask, DEVICE_BYTES};

pub struct Carrier {
    evaluator: Evaluator,
    medium: Vec<u8>,
}

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
        Self { evaluator: engine.evaluator(), medium: vec![0; DEVICE_BYTES as usize] }
    }

    pub fn carry(&mut self, ask: &Ask, time_ns: u64) -> Outcome {
        let header = Header {
            operation: ask.operation,
            offset: ask.offset,
            length: ask.length,
            context: Context { phase: ask.phase, submitted: Time(time_ns), ..Context::default() },
        };
        let payload = vec![ask.fill; ask.length as usize];
        let payload = if ask.operation == Operation::WRITE { &payload[..] } else { &[] };
        let now = Time(time_ns);
        let verdict = match self.evaluator.decide(&header, payload) {
            Decision::Pass => {
                let data = self.serve(ask);
                return Outcome { succeeds: !ask.fails_below, delay: Duration::ZERO, data };
            }
            Decision::Inspect(rules) => rules.into(),
            Decision::Act(verdict) => *verdict,
        };
        if ask.operation == Operation::Read {
            let mut data = self.serve(ask);
            if ask.fails_below {
                return Outcome { succeeds: false, delay: Duration::ZERO, data };
            }
            let edges = self.read(self.evaluator.edges(&header, Some(&verdict)));
            let outcome = self.evaluator.read_done(&header, verdict, &mut data, &edges, now);
            if outcome.failure.is_some() {
                data.clear();
            }
            return Outcome {
                succeeds: outcome.failure.is_none(),
                delay: outcome.delay.unwrap_or_default(),
                data,
            };
        }
        self.evaluator.before_submit(&header, &verdict, payload, now);
        let delay = verdict.delay().unwrap_or_default();
        if verdict.failure().is_some() {
            return Outcome { succeeds: false, delay, data: Vec::new() };
        }
        let mut stale = self.read(verdict.lost_ranges(&header));
        for piece in &mut stale {
            self.evaluator.make_stale(piece);
        }
        let data = self.serve(ask);
        if !ask.fails_below && ask.operation.is_mutation() {
            let edges = self.read(self.evaluator.edges(&header, Some(&verdict)));
            self.evaluator.mutation_done(&header, &verdict, payload, &stale, &edges, now);
        }
        let succeeds = !ask.fails_below && verdict.late_failure().is_none();
        Outcome { succeeds, delay, data }
    }

    /// The device below.
    fn serve(&mut self, ask: &Ask) -> Vec<u8> {
        let range = ask.offset as usize..(ask.offset + ask.length) as usize;
        if ask.fails_below {
            return Vec::new();
        }
        match ask.operation {
            Operation::Read => return self.medium[range].to_vec(),
            Operation::Write { .. } => self.medium[range].fill(ask.fill),
            Operation::WriteZeroes | Operation::Discard => self.medium[range].fill(0),
            Operation::Flush => {}
        }
        Vec::new()
    }

    fn read(&self, ranges: Vec<Range<u64>>) -> Vec<Piece> {
        ranges
            .into_iter()
            .map(|range| Piece {
                offset: range.start,
                bytes: Buffer::copy_of(&self.medium[range.start as usize..range.end as usize]),
            })
            .collect()
    }
}
