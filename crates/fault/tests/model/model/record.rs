//! What of the ledger the model knows.

use rotproof_block::{ContentHash, Operation, Phase};
use rotproof_fault::{Effect, OperationKind};

use super::{BLOCK, Model, extent, part, touched};
use crate::cases::Ask;

/// What of a record the model knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Injection {
    pub rule: usize,
    pub operation: OperationKind,
    pub offset: u64,
    pub length: u64,
    pub effect: Effect,
    pub phase: Phase,
    pub time_ns: u64,
    pub before: Option<ContentHash>,
    pub after: Option<ContentHash>,
    pub blocks: Vec<(u64, ContentHash)>,
    pub repaired_at_ns: Option<u64>,
}

impl Injection {
    pub fn of(record: &rotproof_fault::Injection) -> Self {
        Self {
            rule: record.rule as usize,
            operation: record.operation,
            offset: record.offset,
            length: record.length,
            effect: record.effect,
            phase: record.phase,
            time_ns: record.time_ns,
            before: record.before,
            after: record.after,
            blocks: record.blocks.iter().map(|block| (block.offset, block.content)).collect(),
            repaired_at_ns: record.repaired_at_ns,
        }
    }
}

impl Model {
    #[expect(clippy::too_many_arguments, reason = "all of them are one hit")]
    pub(super) fn record_block(
        &mut self,
        rule: usize,
        ask: &Ask,
        block: u64,
        before: ContentHash,
        image: &[u8],
        time_ns: u64,
        is_repairable: bool,
    ) {
        let inside = part(ask, block);
        if is_repairable {
            self.unrepaired.push((self.records.len(), block, before));
        }
        self.records.push(Injection {
            rule,
            operation: ask.operation.into(),
            offset: block * BLOCK + inside.start as u64,
            length: inside.len() as u64,
            effect: self.rules[rule].effect,
            phase: ask.phase,
            time_ns,
            before: Some(before),
            after: Some(ContentHash::of(image)),
            blocks: Vec::new(),
            repaired_at_ns: None,
        });
    }

    pub(super) fn record_request(&mut self, rule: usize, ask: &Ask, effect: Effect, time_ns: u64) {
        let content = |block: u64| match ask.operation {
            Operation::Read => Some(ContentHash::of(&self.truth[extent(block)])),
            Operation::Write { .. } => Some(ContentHash::of(&[ask.fill; BLOCK as usize])),
            Operation::WriteZeroes => Some(ContentHash::of(&[0; BLOCK as usize])),
            _ => None,
        };
        let blocks: Vec<(u64, ContentHash)> = touched(ask)
            .filter(|&block| part(ask, block).len() as u64 == BLOCK)
            .filter_map(|block| Some((block * BLOCK, content(block)?)))
            .collect();
        if effect == Effect::ERROR && !self.is_sticky(rule) {
            let record = self.records.len();
            self.unrepaired.extend(blocks.iter().map(|(offset, content)| (record, offset / BLOCK, *content)));
        }
        self.records.push(Injection {
            rule,
            operation: ask.operation.into(),
            offset: ask.offset,
            length: ask.length,
            effect,
            phase: ask.phase,
            time_ns,
            before: None,
            after: None,
            blocks,
            repaired_at_ns: None,
        });
    }
}
