//! The journal by its parts. Only transactions that a replay would take count: from the tail that the journal's super block
//! names, in their sequence, up to the last commit. Everything else in the journal is old, and free. `fs/jbd2/recovery.c`,
//! `include/linux/jbd2.h`; all numbers are big-endian.

use crate::bytes::{be16, be32};
use crate::kind::Plain;
use crate::map::{Owner, Rank};

use super::{Reader, Run};

const MAGIC: u32 = 0xc03b_3998;
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPER_V2: u32 = 4;
const REVOKE: u32 = 5;

const INCOMPAT_64BIT: u32 = 0x2;
const INCOMPAT_CSUM_V2: u32 = 0x8;
const INCOMPAT_CSUM_V3: u32 = 0x10;
const INCOMPAT_FAST_COMMIT: u32 = 0x20;

const TAG_SAME_UUID: u16 = 2;
const TAG_LAST: u16 = 8;
/// `JBD2_DEFAULT_FAST_COMMIT_BLOCKS`, where the super block says none.
const FAST_COMMIT_BLOCKS: u64 = 256;

/// The super block of a journal.
struct Journal {
    /// Blocks of the journal that take transactions: from `first` to before `end`.
    first: u64,
    end: u64,
    /// The tail; 0 if there is nothing to be replayed.
    start: u64,
    sequence: u32,
    tag_bytes: usize,
    has_wide_tags: bool,
    has_tail: bool,
}

impl Journal {
    fn parse(bytes: &[u8], blocks: u64) -> Option<Self> {
        if be32(bytes, 0)? != MAGIC {
            return None;
        }
        let incompat = if be32(bytes, 4)? == SUPER_V2 { be32(bytes, 40)? } else { 0 };
        let has = |flag: u32| incompat & flag != 0;
        let fast = match (has(INCOMPAT_FAST_COMMIT), u64::from(be32(bytes, 84)?)) {
            (false, _) => 0,
            (true, 0) => FAST_COMMIT_BLOCKS,
            (true, blocks) => blocks,
        };
        let end = u64::from(be32(bytes, 16)?).min(blocks).saturating_sub(fast);
        let first = u64::from(be32(bytes, 20)?);
        // `journal_tag_bytes`.
        let tag_bytes = if has(INCOMPAT_CSUM_V3) {
            16
        } else {
            8 + if has(INCOMPAT_64BIT) { 4 } else { 0 } + if has(INCOMPAT_CSUM_V2) { 2 } else { 0 }
        };
        let start = u64::from(be32(bytes, 28)?);
        ((1..end).contains(&first) && (start == 0 || (first..end).contains(&start))).then_some(Self {
            first,
            end,
            start,
            sequence: be32(bytes, 24)?,
            tag_bytes,
            has_wide_tags: has(INCOMPAT_CSUM_V3),
            has_tail: has(INCOMPAT_CSUM_V2 | INCOMPAT_CSUM_V3),
        })
    }

    fn next(&self, block: u64) -> u64 {
        if block + 1 >= self.end { self.first } else { block + 1 }
    }

    /// How many blocks of data follow a descriptor.
    fn tags(&self, descriptor: &[u8]) -> u64 {
        let end = descriptor.len() - if self.has_tail { 4 } else { 0 };
        let (mut at, mut count) = (12, 0);
        while at + self.tag_bytes <= end {
            let flags = match self.has_wide_tags {
                true => be32(descriptor, at + 4).map(|flags| flags as u16),
                false => be16(descriptor, at + 6),
            };
            let Some(flags) = flags else { break };
            count += 1;
            at += self.tag_bytes + if flags & TAG_SAME_UUID == 0 { 16 } else { 0 };
            if flags & TAG_LAST != 0 {
                break;
            }
        }
        count
    }
}

impl Reader<'_> {
    pub(super) fn read_journal(&mut self, runs: &[Run], owner: Owner) {
        let mut blocks: Vec<u64> = Vec::new();
        for run in runs {
            blocks.extend(run.physical..run.physical + run.blocks);
        }
        let Some(&first) = blocks.first() else { return };
        let Some(bytes) = self.block(first) else { return };
        self.claim(Rank::Structure, first..first + 1, Plain::JournalSuper, owner);
        let Some(journal) = Journal::parse(&bytes, blocks.len() as u64) else {
            return self.damaged(first, "the journal's super block is none, so its parts are unknown");
        };
        let mut kinds = vec![Plain::JournalFree; blocks.len()];
        for kind in kinds.iter_mut().skip(journal.end as usize) {
            *kind = Plain::JournalFastCommit;
        }
        self.follow_transactions(&journal, &blocks, &mut kinds);
        for (&block, kind) in blocks.iter().zip(kinds).skip(1) {
            self.claim(Rank::Structure, block..block + 1, kind, owner);
        }
    }

    fn follow_transactions(&mut self, journal: &Journal, blocks: &[u64], kinds: &mut [Plain]) {
        if journal.start == 0 {
            return;
        }
        let (mut at, mut sequence) = (journal.start, journal.sequence);
        // The blocks of the transaction whose commit was not yet seen.
        let mut open: Vec<(u64, Plain)> = Vec::new();
        let mut left = journal.end - journal.first;
        while left > 0 {
            let Some(bytes) = blocks.get(at as usize).and_then(|&block| self.block(block)) else { return };
            if be32(&bytes, 0) != Some(MAGIC) || be32(&bytes, 8) != Some(sequence) {
                return;
            }
            let follow = match be32(&bytes, 4) {
                Some(DESCRIPTOR) => {
                    open.push((at, Plain::JournalDescriptor));
                    journal.tags(&bytes)
                }
                Some(REVOKE) => {
                    open.push((at, Plain::JournalRevoke));
                    0
                }
                Some(COMMIT) => {
                    open.push((at, Plain::JournalCommit));
                    for (block, kind) in open.drain(..) {
                        kinds[block as usize] = kind;
                    }
                    sequence = sequence.wrapping_add(1);
                    0
                }
                _ => return,
            };
            left -= 1;
            at = journal.next(at);
            for _ in 0..follow.min(left) {
                open.push((at, Plain::JournalData));
                at = journal.next(at);
            }
            left = left.saturating_sub(follow);
        }
    }
}
