//! What the ledger, the medium and the application's answers show of one failing block: which hits can have done that.

use std::collections::HashMap;

use rotproof_block::ErrorKind;

use crate::account::{Account, Seen, Spot};
use crate::conduct::Conducted;
use crate::ledger::{Harm, Line};
use crate::told::{Failure, Way};
use crate::witness::{Event, Kind};

/// So many ways of one block are told apart.
pub const WAYS_MAX: usize = 8;

pub struct Evidence<'a> {
    pub trial: &'a Conducted,
    pub account: &'a Account,
    pub lines: &'a [Line],
    /// Failures of each block, in the order in which they were seen.
    pub by_spot: HashMap<Spot, Vec<&'a Seen>>,
    by_truth: HashMap<u128, Vec<usize>>,
    by_block: HashMap<u64, Vec<usize>>,
    /// Hits that can have brought down more than their own block.
    wide: Vec<usize>,
    wanted: HashMap<u128, u64>,
    told: HashMap<Spot, &'a Failure>,
}

impl<'a> Evidence<'a> {
    pub fn new(trial: &'a Conducted, account: &'a Account) -> Self {
        let lines = trial.lines.as_slice();
        let mut by_spot: HashMap<Spot, Vec<&Seen>> = HashMap::new();
        for seen in &account.seen {
            by_spot.entry(seen.spot).or_default().push(seen);
        }
        let (mut by_truth, mut by_block) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for (number, line) in lines.iter().enumerate() {
            line.truths().for_each(|truth| by_truth.entry(truth).or_default().push(number));
            line.suffered().for_each(|block| by_block.entry(block).or_default().push(number));
        }
        let is_wide = |number: &usize| {
            let line = &lines[*number];
            line.harm == Harm::Error || line.harm == Harm::Data && line.of_load == Some(false)
        };
        let told =
            trial.told.failures.iter().map(|failure| ((failure.object, failure.block), failure)).collect();
        let wide = (0..lines.len()).filter(is_wide).collect();
        Self { trial, account, lines, by_spot, by_truth, by_block, wide, wanted: account.wanted(), told }
    }

    /// When the application had the answer: the witness hears it a moment before.
    fn completed(&self, seen: &Seen) -> u64 {
        let event = self.event(seen);
        let is_it = |way: &&Way| {
            let is_same = way.phase == event.phase.word() && way.found == seen.found;
            is_same && way.time >= event.completed
        };
        let told = self.told.get(&seen.spot).and_then(|failure| failure.ways.iter().find(is_it));
        told.map_or(event.completed, |way| way.time)
    }

    pub fn event(&self, seen: &Seen) -> &Event {
        &self.trial.events[seen.event]
    }

    /// Lines that concern the block of a failure, by what it was to hold or by where it is.
    pub fn about(&self, seen: &Seen) -> Vec<usize> {
        let of_content = seen.expected.iter().filter_map(|truth| self.by_truth.get(truth)).flatten();
        let here = self.trial.facts.is_direct.then(|| self.by_block.get(&seen.spot.1)).flatten();
        let mut all: Vec<usize> = of_content.chain(here.into_iter().flatten()).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The hits that did just this to just this block. `is_told`: an error has told of it.
    pub fn hits(&self, seen: &Seen, is_told: bool) -> Vec<usize> {
        let own = self.about(seen);
        let mut hits: Vec<usize> =
            own.into_iter().filter(|&number| self.shows(&self.lines[number], seen, is_told)).collect();
        hits.extend(self.flushes(seen));
        hits
    }

    /// The flushes that failed while a write was under way: a kernel makes a durable write of a write and a flush, and fails
    /// both.
    pub fn flushes(&self, seen: &Seen) -> Vec<usize> {
        let event = self.event(seen);
        let is_durable = event.kind == Kind::Write && event.error.is_some() && self.trial.facts.is_direct;
        let is_its = |number: &usize| {
            let line = &self.lines[*number];
            let time = event.submitted..=event.completed;
            line.operation == "flush" && line.harm == Harm::Error && time.contains(&line.time)
        };
        if is_durable { (0..self.lines.len()).filter(is_its).collect() } else { Vec::new() }
    }

    /// Whether some request below failed while that one was under way.
    pub fn has_failed_meanwhile(&self, event: &Event) -> bool {
        let times = event.submitted..=event.completed;
        self.lines.iter().any(|line| line.harm == Harm::Error && times.contains(&line.time))
    }

    /// The hits that may have left something of it: they damaged the same block before, and it was not gone.
    pub fn parts(&self, seen: &Seen) -> Vec<usize> {
        let event = self.event(seen);
        let is_part = |number: &usize| {
            let line = &self.lines[*number];
            let is_there = line.gone().is_none_or(|gone| event.submitted <= gone);
            let is_of_phase = !self.trial.facts.is_direct && line.phase == event.phase.word();
            let lasts = line.lasts || is_of_phase || event.submitted <= line.time;
            line.harm == Harm::Data && lasts && line.time <= event.completed && is_there
        };
        self.about(seen).into_iter().filter(is_part).collect()
    }

    fn shows(&self, line: &Line, seen: &Seen, is_told: bool) -> bool {
        let facts = &self.trial.facts;
        let event = self.event(seen);
        // A verdict has the application's clock alone.
        let completed = self.completed(seen);
        if line.time > completed {
            return false;
        }
        let is_here = !facts.is_direct || line.suffered().contains(&seen.spot.1);
        let holds = line.truths().any(|truth| seen.expected.contains(&truth));
        // Whether it was still there when the application came for it.
        let lasts = match (line.lasts, facts.is_direct && line.harm == Harm::Data) {
            (true, _) => true,
            (false, true) => event.submitted <= line.time,
            // A subject may remember what it was told.
            (false, false) => line.phase == event.phase.word(),
        };
        // Where nobody else has a hand in it, what a hit left to the bit is its own, whatever became of it since.
        let has_hand = !self.trial.blows.is_empty();
        let is_there = facts.is_cached || !has_hand || line.gone().is_none_or(|gone| event.submitted <= gone);
        match (line.harm, seen.found.filter(|_| !is_told)) {
            (Harm::Delay, found) => found.is_none() && event.error == Some(ErrorKind::TimedOut),
            (Harm::Data, Some(found)) => is_here && holds && lasts && is_there && line.after == Some(found),
            // Nobody can refuse what it has not read.
            (Harm::Data, None) => {
                let is_read = line.served_at.is_some_and(|served| served <= completed);
                !facts.is_direct && holds && lasts && is_there && is_read
            }
            (Harm::Error, None) => is_here && (holds || facts.is_direct) && lasts,
            (Harm::Error, Some(_)) => facts.is_cached && line.operation != "read" && holds,
        }
    }

    /// The hits on which the block can depend, and may fail as it did, with its data out of reach but whole.
    pub fn consequences(&self, seen: &Seen, is_told: bool) -> Vec<usize> {
        let mut all = self.beside(seen);
        all.extend(self.of_what_it_depends_on(seen, is_told));
        all.extend(self.cuts(seen, is_told));
        all
    }

    /// The power cuts that can have refused it, or taken it with a flush that failed: then an older version of it came back.
    fn cuts(&self, seen: &Seen, is_told: bool) -> Vec<usize> {
        let event = self.event(seen);
        let is_older = |found: u128| {
            let versions = self.account.versions.get(&seen.spot);
            versions.is_some_and(|all| all.contains(&found)) || !self.account.settled.contains(&seen.spot)
        };
        let can = |number: &usize| {
            let line = &self.lines[*number];
            let is_cut = line.is_dark() && line.time <= self.completed(seen);
            // It comes back when the subject is down after the load.
            let phases = (line.phase.as_str(), event.phase.word());
            let is_same = phases.0 == phases.1 || phases == ("prefill", "run");
            is_cut
                && seen.found.map_or_else(
                    || is_same || !self.trial.facts.is_direct && !self.is_over(*number, seen),
                    |found| is_told && is_older(found),
                )
        };
        (0..self.lines.len()).filter(can).collect()
    }

    /// Whether it is a power cut that was over when all was read back: what was refused then is nothing that a file system may leave
    /// after one.
    fn is_over(&self, number: usize, seen: &Seen) -> bool {
        let line = &self.lines[number];
        let is_refused = seen.found.is_none() || !self.trial.facts.is_cached;
        line.is_dark() && line.phase != "check" && self.event(seen).phase.word() == "check" && is_refused
    }

    /// The hits on other blocks of the very request that was refused.
    fn beside(&self, seen: &Seen) -> Vec<usize> {
        let event = self.event(seen);
        if seen.found.is_some() || event.blocks == 1 || self.trial.facts.is_direct {
            return Vec::new();
        }
        let others = (event.block..event.block + event.blocks).filter(|block| *block != seen.spot.1);
        let other = |block| self.by_spot.get(&(event.object, block)).into_iter().flatten();
        // A subject may have known before that it is bad.
        let same = others.flat_map(other).filter(|other| other.event <= seen.event);
        same.flat_map(|other| self.hits(other, other.found.is_none())).collect()
    }

    fn of_what_it_depends_on(&self, seen: &Seen, is_told: bool) -> Vec<usize> {
        let facts = &self.trial.facts;
        if facts.is_direct {
            return Vec::new();
        }
        let event = self.event(seen);
        let found = seen.found.filter(|_| !is_told);
        if found.is_some_and(|found| self.is_within(seen, found)) {
            return Vec::new();
        }
        let is_write = event.kind == Kind::Write;
        if !is_write && !seen.expected.is_empty() && !self.is_whole(&seen.expected) {
            return Vec::new();
        }
        let can = |number: &usize| {
            let line = &self.lines[*number];
            let is_metadata = || {
                let is_of_load = line.before.is_none_or(|before| self.account.written.contains(&before));
                !is_of_load && line.served_at.is_some_and(|served| served <= event.completed)
            };
            match line.harm {
                Harm::Error => {
                    (found.is_none() || facts.is_cached)
                        && line.time <= self.completed(seen)
                        && !self.is_over(*number, seen)
                }
                Harm::Data => is_metadata(),
                Harm::Delay => false,
            }
        };
        self.wide.iter().copied().filter(can).collect()
    }

    /// Whether it is the right block but for a part.
    fn is_within(&self, seen: &Seen, found: u128) -> bool {
        let Some(found) = self.trial.contents.get(&found) else { return false };
        if found.iter().all(|&byte| byte == 0) {
            return false;
        }
        seen.expected.iter().filter_map(|truth| self.trial.contents.get(truth)).any(|truth| {
            found.chunks(512).zip(truth.chunks(512)).any(|(found, truth)| {
                let differing: u32 =
                    found.iter().zip(truth).map(|(one, other)| (one ^ other).count_ones()).sum();
                differing <= 64
            })
        })
    }

    /// Whether one of these is on the medium as often as it must be.
    fn is_whole(&self, contents: &[u128]) -> bool {
        contents.iter().any(|content| {
            let on_leaf = self.trial.leaf.get(content).map_or(0, Vec::len) as u64;
            // A write that landed elsewhere is seen there, though it is not on the medium.
            let landed = self.lines.iter().filter(|line| line.after == Some(*content)).count() as u64;
            let wanted = if self.trial.facts.shares_blocks {
                1
            } else {
                self.wanted.get(content).copied().unwrap_or(1)
            };
            let seen = (on_leaf + landed).max(self.trial.kept.get(content).copied().unwrap_or(0));
            seen > 0 && seen >= wanted
        })
    }

    /// Whether it is among the ways in which its block failed that a verdict tells apart. Of what is only counted with another, a
    /// verdict may know nothing.
    pub fn is_kept(&self, seen: &Seen) -> bool {
        self.ways(seen.spot).iter().any(|way| self.is_same_way(way, seen))
    }

    fn is_same_way(&self, one: &Seen, other: &Seen) -> bool {
        let what = |seen: &Seen| {
            let event = self.event(seen);
            (event.phase, event.kind, event.error, seen.found)
        };
        what(one) == what(other) && one.expected == other.expected
    }

    /// The ways in which a block failed, of those that a verdict tells apart: of each phase the first few.
    pub fn ways(&self, spot: Spot) -> Vec<&'a Seen> {
        let mut ways: Vec<&Seen> = Vec::new();
        for seen in self.by_spot.get(&spot).into_iter().flatten() {
            let event = self.event(seen);
            let of_phase = |way: &&&Seen| self.event(way).phase == event.phase;
            let is_known = ways.iter().any(|way| self.is_same_way(way, seen));
            if !is_known && ways.iter().filter(of_phase).count() < WAYS_MAX {
                ways.push(seen);
            }
        }
        ways
    }

    pub fn phase_of(&self, seen: &Seen) -> &'static str {
        self.event(seen).phase.word()
    }

    pub fn tell(&self, seen: &Seen) -> String {
        let event = self.event(seen);
        format!(
            "{:?} of object {} block {} in {}, {}..{} ns: expected {:x?}, found {:x?}, error {:?}",
            event.kind,
            seen.spot.0,
            seen.spot.1,
            event.phase.word(),
            event.submitted,
            event.completed,
            seen.expected,
            seen.found,
            event.error
        )
    }
}
