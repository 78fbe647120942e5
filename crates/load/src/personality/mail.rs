//! What a thread of the mail store does: messages, a page each, are inserted, deleted, replaced and read in random
//! mailboxes, and each change is first written to the log.
//!
//! Like a script of files it goes by what would be if nothing ever failed.

use super::draws::Draws;
use super::plan::FilePlan;

/// Streams of [`rotproof_block::hash::mix`] that belong to the threads' draws.
const OPERATIONS: u64 = 0x3a11_0b0e;
/// Percent of the operations that insert, delete and replace; the rest reads (DARC).
const INSERTS: u64 = 25;
const DELETES: u64 = 10;
const REPLACES: u64 = 50;
/// Bytes of an entry of the log: 2.9 KB (DARC).
pub(super) const LOG_ENTRY_BYTES: u64 = 2900;

/// One operation on a page of a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MailStep {
    Insert(u32, u64),
    Delete(u32, u64),
    Replace(u32, u64),
    Read(u32, u64),
}

/// The operations of one thread.
pub(super) struct MailScript<'a> {
    plan: &'a FilePlan,
    thread: u32,
    /// Which pages hold a message, by position of the mailbox.
    used: Vec<Vec<bool>>,
    /// How many do.
    messages: Vec<u64>,
    draws: Draws,
}

impl<'a> MailScript<'a> {
    pub(super) fn new(plan: &'a FilePlan, thread: u32) -> Self {
        let first = plan.figures.file_size / plan.kind.slot_bytes().unwrap_or(1);
        let row = || (0..plan.slots()).map(|slot| slot < first).collect();
        let mailboxes = plan.part_len(thread) as usize;
        Self {
            plan,
            thread,
            used: (0..mailboxes).map(|_| row()).collect(),
            messages: vec![first; mailboxes],
            draws: Draws::new(plan.seed, OPERATIONS, thread.into()),
        }
    }

    pub(super) fn next(&mut self) -> MailStep {
        let kind = self.draws.below(100);
        let position = self.draws.below(self.used.len() as u64) as usize;
        let start = self.draws.below(self.plan.slots());
        let mailbox = self.plan.file(self.thread, position as u32);
        let is_full = self.messages[position] == self.plan.slots();
        if kind < INSERTS || self.messages[position] == 0 {
            // Into a full mailbox a message goes in the place of another.
            let slot = self.find(position, start, is_full);
            if !is_full {
                self.messages[position] += 1;
            }
            self.used[position][slot as usize] = true;
            return MailStep::Insert(mailbox, slot);
        }
        let slot = self.find(position, start, true);
        if kind < INSERTS + DELETES {
            self.messages[position] -= 1;
            self.used[position][slot as usize] = false;
            MailStep::Delete(mailbox, slot)
        } else if kind < INSERTS + DELETES + REPLACES {
            MailStep::Replace(mailbox, slot)
        } else {
            MailStep::Read(mailbox, slot)
        }
    }

    /// The first page from `start` on, and then from the front, that holds a message or does not; there is one.
    fn find(&self, position: usize, start: u64, is_used: bool) -> u64 {
        let row = &self.used[position];
        let count = row.len() as u64;
        (0..count)
            .map(|step| (start + step) % count)
            .find(|&slot| row[slot as usize] == is_used)
            .unwrap_or(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_the_shares_that_were_published_and_meet_messages_that_are_there() {
        let text = "mail_store:files=20,threads=2,file_size=800KiB";
        let plan = FilePlan::new(&text.parse().expect("known"), 1);
        let mut counts = [0u32; 4];
        for thread in 0..2 {
            let mut script = MailScript::new(&plan, thread);
            let mut there = std::collections::HashSet::new();
            there.extend(
                (0..20)
                    .filter(|file| file % 2 == thread)
                    .flat_map(|file| (0..100).map(move |slot| (file, slot))),
            );
            for _ in 0..10_000 {
                let kind = match script.next() {
                    MailStep::Insert(file, slot) => {
                        assert!(slot < 125 && file % 2 == thread);
                        there.insert((file, slot));
                        0
                    }
                    MailStep::Delete(file, slot) => {
                        assert!(there.remove(&(file, slot)));
                        1
                    }
                    MailStep::Replace(file, slot) => {
                        assert!(there.contains(&(file, slot)));
                        2
                    }
                    MailStep::Read(file, slot) => {
                        assert!(there.contains(&(file, slot)));
                        3
                    }
                };
                counts[kind] += 1;
            }
        }
        let expected = [0.25, 0.10, 0.50, 0.15].map(|share| share * 20_000.0);
        let chi_square: f64 = counts
            .iter()
            .zip(expected)
            .map(|(&count, expected)| (f64::from(count) - expected).powi(2) / expected)
            .sum();
        // 3 degrees of freedom: above 21.1 with probability 1e-4.
        assert!(chi_square < 21.1, "{counts:?}: {chi_square}");
    }

    #[test]
    fn an_empty_mailbox_is_filled_and_a_full_one_keeps_its_size() {
        let plan = FilePlan::new(&"mail_store:files=1,threads=1,file_size=8KiB".parse().expect("known"), 1);
        let mut script = MailScript::new(&plan, 0);
        for _ in 0..2000 {
            script.next();
            let used = script.used[0].iter().filter(|&&used| used).count() as u64;
            assert!(used == script.messages[0] && used <= plan.slots());
        }
    }
}
