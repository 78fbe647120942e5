//! Whether each fault has the fate that is shown, and none that is not.
//!
//! A verdict counts fates by rule. So for each fault it is worked out which fates it can have had; of each fate there
//! must be at least as many as faults that can have had no other, and at most as many as faults that can have had it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::causes::is_told;
use super::evidence::Evidence;
use crate::account::Seen;
use crate::ledger::{Harm, Line};
use crate::told::Told;
use crate::witness::{Event, Kind};

type Fault = (usize, u64);
type Fates = BTreeSet<&'static str>;

/// What the application's answers show of the faults.
#[derive(Default)]
struct Shown {
    must_be_silent: HashSet<Fault>,
    may_be_silent: HashSet<Fault>,
    must_be_told: HashSet<Fault>,
    may_be_told: HashSet<Fault>,
}

pub fn judge(evidence: &Evidence<'_>, told: &Told, wrong: &mut Vec<String>) {
    let mut faults: BTreeMap<Fault, Vec<usize>> = BTreeMap::new();
    for (number, line) in evidence.lines.iter().enumerate() {
        faults.entry((line.rule, line.place())).or_default().push(number);
    }
    let shown = shown(evidence, told);
    let book = Book::new(evidence);
    let mut possible: HashMap<usize, Vec<(u64, Fates)>> = HashMap::new();
    for (fault, lines) in &faults {
        possible.entry(fault.0).or_default().push((fault.1, fates(evidence, &shown, &book, *fault, lines)));
    }
    for (number, rule) in told.rules.iter().enumerate() {
        let possible = possible.remove(&number).unwrap_or_default();
        for fate in ["masked", "repaired", "reported", "silent", "unknown"] {
            let only = possible.iter().filter(|(_, fates)| fates.len() == 1 && fates.contains(fate));
            let able = possible.iter().filter(|(_, fates)| fates.contains(fate)).count() as u64;
            let (said, least) = (rule.fate(fate), only.count() as u64);
            if said < least || said > able {
                // Those that are plain and of another fate say nothing.
                let is_open = |(_, fates): &&(u64, Fates)| fates.len() > 1 || fates.contains(fate);
                let some: Vec<_> = possible.iter().filter(is_open).take(12).collect();
                wrong.push(format!(
                    "rule {number}: {said} faults {fate}, where {least} to {able} can be; of {:?}: {some:x?}",
                    rule.fates
                ));
            }
        }
    }
}

fn shown(evidence: &Evidence<'_>, told: &Told) -> Shown {
    let mut shown = Shown::default();
    let fault = |line: usize| (evidence.lines[line].rule, evidence.lines[line].place());
    for seen in &evidence.account.seen {
        let failure = told.failures.iter().find(|failure| (failure.object, failure.block) == seen.spot);
        let is_told = failure.map_or(seen.found.is_none(), |failure| is_told(failure, seen));
        let lines = evidence.hits(seen, is_told);
        // What nobody has read, the application was not handed: a subject may have zeros of its own.
        let is_read = |&line: &usize| {
            let line = &evidence.lines[line];
            match line.harm {
                Harm::Error => true,
                Harm::Data => line.served_at.is_some(),
                // An error that says the same is a better explanation than a request that was held up meanwhile.
                Harm::Delay => !evidence.has_failed_meanwhile(evidence.event(seen)),
            }
        };
        let is_plain = lines.iter().any(is_read);
        let hits: HashSet<Fault> = lines.into_iter().map(fault).collect();
        if is_told && seen.found.is_some() {
            // A failed flush has told of it, but so much is plain all the same.
            shown.may_be_silent.extend(evidence.hits(seen, false).into_iter().map(fault));
        }
        let (must, may) = if is_told {
            (&mut shown.must_be_told, &mut shown.may_be_told)
        } else {
            (&mut shown.must_be_silent, &mut shown.may_be_silent)
        };
        if hits.is_empty() && evidence.trial.blows.is_empty() {
            may.extend(evidence.consequences(seen, is_told).into_iter().map(fault));
            // It left just that, if in the place of something else: a write on its way may not have arrived by then.
            let left = |number: &usize| seen.found.is_some() && evidence.lines[*number].after == seen.found;
            may.extend(evidence.about(seen).into_iter().filter(left).map(fault));
        } else if hits.is_empty() {
            // Another hand may have had its part in it too.
            may.extend(evidence.consequences(seen, is_told).into_iter().map(fault));
            may.extend(evidence.parts(seen).into_iter().map(fault));
        } else {
            // Several may have had their part in it.
            may.extend(evidence.parts(seen).into_iter().map(fault));
        }
        if hits.len() == 1 && is_plain && evidence.is_kept(seen) {
            must.extend(&hits);
        }
        may.extend(&hits);
    }
    // A request that failed, though no block may be lost with it.
    for refusal in &evidence.account.refusals {
        let event = &evidence.trial.events[refusal.event];
        let mut own = HashSet::new();
        for (number, line) in evidence.lines.iter().enumerate() {
            if line.time > event.completed {
                continue;
            }
            let is_its = line.harm == Harm::Error
                && event.submitted <= line.time
                && line.operation == event.kind.word();
            let spans = || {
                let blocks = event.block..event.block + event.blocks;
                event.kind == Kind::Flush || line.suffered().any(|block| blocks.contains(&block))
            };
            if evidence.trial.facts.is_direct && is_its && spans() {
                own.insert(fault(number));
            }
            let holds = line.truths().any(|truth| refusal.contents.contains(&truth));
            if line.harm == Harm::Error || holds {
                shown.may_be_told.insert(fault(number));
            }
        }
        let blocks = (event.block..event.block + event.blocks).map(|block| (event.object, block));
        let mut seen = blocks.filter_map(|spot| evidence.by_spot.get(&spot)).flatten();
        let is_kept = event.kind == Kind::Flush
            || seen.any(|seen| seen.event == refusal.event && evidence.is_kept(seen));
        if own.len() == 1 && is_kept {
            shown.must_be_told.extend(own);
        }
    }
    if evidence.trial.facts.is_direct {
        unjudged(evidence, &mut shown);
    }
    shown
}

/// What went up to an application that did not know what it had to be: other bytes than the medium has.
fn unjudged(evidence: &Evidence<'_>, shown: &mut Shown) {
    for &(event, spot, found) in &evidence.account.unjudged {
        let seen = Seen { spot, event, expected: Vec::new(), found: Some(found), may_be_unflushed: false };
        let event = evidence.event(&seen);
        let did = |number: &usize| {
            let line = &evidence.lines[*number];
            line.harm == Harm::Data
                && !line.is_idle()
                && line.after == Some(found)
                && line.time <= event.completed
                && (line.lasts || event.submitted <= line.time)
                && line.gone().is_none_or(|gone| event.submitted <= gone)
        };
        let fault = |number: usize| (evidence.lines[number].rule, evidence.lines[number].place());
        // Several may have had their part in it.
        shown.may_be_silent.extend(evidence.parts(&seen).into_iter().map(fault));
        let own: Vec<usize> = evidence.about(&seen).into_iter().filter(did).collect();
        let is_plain = own.iter().any(|&line| !is_tie(&evidence.lines[line], event));
        let own: HashSet<Fault> = own.into_iter().map(fault).collect();
        if own.len() == 1 && is_plain && !evidence.account.doubtful.contains(&(seen.event, spot)) {
            shown.must_be_silent.extend(&own);
        }
        shown.may_be_silent.extend(own);
    }
}

/// A read sent at the very moment at which the damage went may have met it or not; the ledger tells.
fn is_tie(line: &Line, read: &Event) -> bool {
    line.served_at.is_none() && line.gone() == Some(read.submitted)
}

/// The fates that a fault can have had.
fn fates(evidence: &Evidence<'_>, shown: &Shown, book: &Book, fault: Fault, lines: &[usize]) -> Fates {
    if shown.must_be_silent.contains(&fault) {
        return Fates::from(["silent"]);
    }
    let mut fates = Fates::new();
    if shown.may_be_silent.contains(&fault) {
        fates.insert("silent");
    }
    if shown.may_be_told.contains(&fault) {
        fates.insert("reported");
    }
    let is_of_discards = lines.iter().any(|&number| evidence.lines[number].operation == "discard");
    if shown.must_be_told.contains(&fault) && !is_of_discards {
        // Of a block that failed too often not every way is kept, and below a file system a verdict may know less.
        if !evidence.trial.facts.is_direct {
            fates.insert("unknown");
            // Or has seen the same content fail elsewhere, with nobody told.
            if lines.iter().any(|&number| book.in_doubt_silently.contains(&evidence.lines[number].before)) {
                fates.insert("silent");
            }
        }
        return fates;
    }
    let lines = || lines.iter().map(|&number| &evidence.lines[number]);
    if lines().all(|line| line.harm == Harm::Delay) {
        fates.insert("masked");
        return fates;
    }
    if lines().all(|line| book.is_masked(evidence, line)) {
        fates.insert("masked");
    }
    let is_repaired = |line: &Line| line.repaired_at.is_some();
    if lines().any(is_repaired) && lines().all(|line| is_repaired(line) || book.is_masked(evidence, line)) {
        fates.insert("repaired");
    }
    fates.insert("unknown");
    fates
}

/// What the application read, by block and by content.
struct Book {
    /// Events that read the block right; where it was not known what it must be; where it was wrong or refused.
    right: HashMap<u64, Vec<usize>>,
    unjudged: HashMap<u64, Vec<(usize, u128)>>,
    failed: HashMap<u64, Vec<usize>>,
    /// Contents that some block was to hold which failed.
    in_doubt: HashSet<u128>,
    /// Those of which one was wrong, with no error.
    in_doubt_silently: HashSet<Option<u128>>,
}

impl Book {
    fn new(evidence: &Evidence<'_>) -> Self {
        let account = evidence.account;
        let mut book = Self {
            right: HashMap::new(),
            unjudged: HashMap::new(),
            failed: HashMap::new(),
            in_doubt: HashSet::new(),
            in_doubt_silently: HashSet::new(),
        };
        for &(event, (_, block), _) in &account.right {
            book.right.entry(block).or_default().push(event);
        }
        for &(event, (_, block), found) in &account.unjudged {
            book.unjudged.entry(block).or_default().push((event, found));
        }
        for seen in &account.seen {
            if evidence.event(seen).kind == Kind::Read {
                book.failed.entry(seen.spot.1).or_default().push(seen.event);
            }
            book.in_doubt.extend(&seen.expected);
            if seen.found.is_some() {
                book.in_doubt_silently.extend(seen.expected.iter().copied().map(Some));
            }
        }
        book
    }

    /// Whether it is shown that nobody was harmed.
    fn is_masked(&self, evidence: &Evidence<'_>, line: &Line) -> bool {
        match line.harm {
            Harm::Delay => true,
            Harm::Error if line.operation == "discard" => true,
            // The application's own request failed, unless something stands between.
            Harm::Error if evidence.trial.facts.is_direct => false,
            Harm::Error => {
                let is_right = |content: u128| {
                    evidence.account.written.contains(&content) && !self.in_doubt.contains(&content)
                };
                line.truths().next().is_some() && line.truths().all(is_right)
            }
            Harm::Data if line.is_idle() => true,
            Harm::Data if evidence.trial.facts.is_timeless && evidence.trial.facts.is_direct => true,
            Harm::Data if evidence.trial.facts.is_direct => self.is_masked_directly(evidence, line),
            Harm::Data => {
                let is_unseen = line.served_at.is_none() && line.gone().is_some();
                let is_right = |before: u128| {
                    evidence.account.written.contains(&before) && !self.in_doubt.contains(&before)
                };
                is_unseen || line.before.is_some_and(is_right)
            }
        }
    }

    /// By the application's reads of the very block while the damage was there.
    fn is_masked_directly(&self, evidence: &Evidence<'_>, line: &Line) -> bool {
        let was_there = |event: usize| {
            let event = &evidence.trial.events[event];
            let is_after =
                event.completed >= line.time && line.gone().is_none_or(|gone| event.submitted <= gone);
            is_after && (line.lasts || event.submitted <= line.time)
        };
        let block = line.block();
        let has_met = |event: usize| was_there(event) && !is_tie(line, &evidence.trial.events[event]);
        let of = |reads: &HashMap<u64, Vec<usize>>| {
            reads.get(&block).into_iter().flatten().filter(|&&event| has_met(event)).count()
        };
        let unjudged = self.unjudged.get(&block).into_iter().flatten();
        let has_misled = unjudged.clone().any(|&(event, found)| has_met(event) && Some(found) != line.before);
        let was_read = of(&self.right) > 0 || unjudged.clone().any(|&(event, _)| was_there(event));
        of(&self.failed) == 0 && !has_misled && (was_read || line.gone().is_some())
    }
}
