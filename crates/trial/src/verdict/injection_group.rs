//! Injections, as far as the verdict goes by them: ledger records with what they can have done, and until when.

use std::ops::Range;
use std::sync::Arc;

use rotproof_block::{ContentHash, Phase, Time};
use rotproof_fault::{
    BLOCK_BYTES, Effect, Injection, MEMORY, OperationKind, Persistence, RuleReport, SECTORS, TargetKey,
};

use super::SeenAt;
use super::finding::{Finding, Sign};

/// What an injection does to whoever meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Other bytes. Their hash; `None` where the whole block was not known.
    Data(Option<ContentHash>),
    /// An error.
    Error,
    /// Time: the request is held up until then, and nothing else.
    Delay(Time),
}

/// What one ledger record means for the verdict, or several that differ in nothing but when, as `gather` has them.
#[derive(Clone, Debug)]
pub struct InjectionGroup {
    /// Number of the record in its ledger; of several, of the first.
    pub number: u64,
    /// How many records.
    pub count: u64,
    /// Number of the last of them, and its time.
    pub last: (u64, Time),
    /// Index of the rule.
    pub rule: usize,
    /// Offset below the place for faults of the block that matched; what makes two hits of a rule the same fault.
    pub place: u64,
    /// Number of the record, of a flip in memory that does not stick: each is a fault of its own, also where two meet one page, or the same
    /// address in two processes.
    pub flip: Option<u64>,
    /// The place for faults where it happened.
    pub on: Arc<str>,
    /// The device of the stack on which what suffered is seen; `None` where it can be seen anywhere.
    pub device: Option<usize>,
    /// The block of that device, counted from its first.
    pub block: u64,
    /// When; of several, when first.
    pub time: Time,
    /// In which phase.
    pub phase: Phase,
    /// What the request was to do.
    pub operation: OperationKind,
    /// Bytes of the device that suffered: of an error, of the whole request. Of the device below the place for faults, where they
    /// can be seen anywhere.
    pub suffered: Range<u64>,
    /// Hashes of the true content of every whole block that suffered.
    pub truths: Vec<ContentHash>,
    /// Of the block that it is about, for an effect on one; the others suffered with it.
    pub own: Option<ContentHash>,
    /// What it did.
    pub harm: Harm,
    /// Hashes of the sectors of what it left, where the ledger has them.
    pub sectors: Option<[u32; SECTORS]>,
    /// Whether the load had made all that suffered, or not; `None` where that is not known.
    pub of_load: Option<bool>,
    /// Whether it outlives the request: it was stored, or left the place bad, or kept something from being stored.
    pub persists: bool,
    /// When other bytes first went up in a read, that of any of them.
    pub served: Option<Time>,
    /// Since when nothing of it is left.
    pub gone: Option<Time>,
    /// Whether the truth was put back.
    pub repaired: bool,
    /// From then on the device served nothing, and what was volatile may be lost.
    pub is_dark: bool,
}

/// Where a record is seen.
pub(super) struct Reach {
    /// See [`InjectionGroup::device`].
    pub(super) device: Option<usize>,
    /// See [`InjectionGroup::suffered`].
    pub(super) suffered: Range<u64>,
    /// See [`InjectionGroup::block`].
    pub(super) block: u64,
}

impl Reach {
    pub(super) fn of(record: &Injection, seen_at: &SeenAt<'_>) -> Self {
        let blocks = || record.blocks.iter().chain(&record.neighbours);
        let own_end = record.offset + record.length;
        let start = blocks().map(|block| block.offset).chain([record.offset]).min().unwrap_or(record.offset);
        let end = blocks().map(|block| block.offset + BLOCK_BYTES).chain([own_end]).max().unwrap_or(own_end);
        let place = place(record);
        let on_top = seen_at(&record.on, start);
        let block = seen_at(&record.on, place).map_or(place, |(_, offset)| offset) / BLOCK_BYTES;
        let suffered = on_top.map_or(start..end, |(_, offset)| offset..offset + (end - start));
        Self { device: on_top.map(|(device, _)| device), suffered, block }
    }
}

/// Whether it tells of more than its own place: of a request without one, or of a device that served nothing from then on.
pub(super) fn is_wide(record: &Injection) -> bool {
    let fails = matches!(record.effect, effect if !effect.only_delays() && (effect == Effect::MediumError || !effect.is_on_data()));
    let is_dark = matches!(record.effect, Effect::PowerCut(_));
    is_dark || fails && !matches!(record.operation, OperationKind::Read | OperationKind::Write)
}

impl InjectionGroup {
    /// From the ledger, and the rules in the order of the plan. `seen_at` is that of [`Evidence`](super::Evidence).
    pub fn new(record: &Injection, rules: &[RuleReport], seen_at: &SeenAt<'_>) -> Self {
        let harm = match record.effect {
            effect if effect.only_delays() => {
                let held = effect.holds_up().unwrap_or_default().0;
                Harm::Delay(Time(record.time_ns).after(held))
            }
            Effect::MediumError => Harm::Error,
            effect if effect.is_on_data() => Harm::Data(record.after),
            _ => Harm::Error,
        };
        let blocks = || record.blocks.iter().chain(&record.neighbours);
        let is_sticky = rules
            .get(record.rule as usize)
            .is_some_and(|rule| rule.rule.persistence != Persistence::Transient);
        let place = place(record);
        let Reach { device, suffered, block } = Reach::of(record, seen_at);
        Self {
            number: record.sequence,
            count: 1,
            last: (record.sequence, Time(record.time_ns)),
            rule: record.rule as usize,
            place,
            flip: (&*record.on == MEMORY && !is_sticky).then_some(record.sequence),
            on: Arc::clone(&record.on),
            device,
            block,
            time: Time(record.time_ns),
            phase: record.phase,
            operation: record.operation,
            suffered,
            truths: record.before.into_iter().chain(blocks().map(|block| block.content)).collect(),
            own: record.before,
            harm,
            sectors: record.after_sectors,
            of_load: of_load(record),
            persists: is_sticky || record.operation != OperationKind::Read,
            served: record.served_at_ns.map(Time),
            gone: record.repaired_at_ns.or(record.replaced_at_ns).map(Time),
            repaired: record.repaired_at_ns.is_some(),
            is_dark: matches!(record.effect, Effect::PowerCut(_)),
        }
    }

    /// Hash of what took the truth's place, where that is known.
    pub fn corruption(&self) -> Option<ContentHash> {
        match self.harm {
            Harm::Data(corruption) => corruption,
            Harm::Error | Harm::Delay(_) => None,
        }
    }

    /// Whether some byte of the device suffered from both.
    pub(super) fn overlaps(&self, other: &InjectionGroup) -> bool {
        let is_one_device = match (self.device, other.device) {
            (None, None) => self.on == other.on,
            (one, other) => one == other,
        };
        is_one_device && self.suffered.start < other.suffered.end && other.suffered.start < self.suffered.end
    }

    /// Number of the last of its records that came before that time, as far as is known.
    pub(super) fn latest(&self, time: Time) -> u64 {
        if self.last.1 <= time { self.last.0 } else { self.number }
    }

    /// Whether what the first of its records did was there when that was seen, as far as its time says.
    pub(super) fn was_there(&self, finding: &Finding) -> bool {
        self.time <= finding.time && self.stays_until(finding)
    }

    /// Whether what it did, once it was there, still was when that was seen.
    pub(super) fn stays_until(&self, finding: &Finding) -> bool {
        self.gone.is_none_or(|gone| finding.time <= gone) && (self.persists || self.phase == finding.phase)
    }

    /// What is equal for injections of one fault: the number of the rule, and what tells its faults apart.
    pub(super) fn fault(&self) -> (usize, u64) {
        // No address is so high that records, counted down from the end, could meet one.
        (self.rule, self.flip.map_or(self.place, |number| u64::MAX - number))
    }

    /// Whether it shows to the bit what was found: nobody else can have left that.
    pub(super) fn shows(&self, finding: &Finding) -> bool {
        if finding.found.is_none() {
            return false;
        }
        // Of a block that was read in part, that part; less than a sector of it says nothing against it.
        match (self.sectors, &finding.found_sectors) {
            (Some(left), Some(found)) => {
                found.iter().zip(left).all(|(found, left)| found.is_none_or(|found| found == left))
            }
            _ => self.corruption() == finding.found,
        }
    }

    /// Whether it can have made the very block fail that the finding is of, going by kind and time; what else was found than it
    /// left, it cannot.
    pub(super) fn can_cause(&self, finding: &Finding) -> bool {
        if self.time > finding.time {
            return false;
        }
        // Caches are emptied between the phases, so what was not stored is then forgotten.
        let lasts = self.persists || self.phase == finding.phase;
        // A cache may still hold what is gone from the device.
        let is_there = finding.may_be_unwritten || self.gone.is_none_or(|gone| finding.time <= gone);
        match self.harm {
            Harm::Delay(until) => finding.timed_out && finding.time <= until,
            // What nobody has read, nobody can hand out or refuse.
            Harm::Data(_) if self.served.is_none_or(|served| finding.time < served) => false,
            Harm::Data(_) if finding.found.is_some() => lasts && is_there && self.shows(finding),
            // A subject that sees through wrong data says so, and keeps the name; a bare device has nothing to see it by.
            Harm::Data(_) => {
                let is_refusal = finding.is_told && finding.sign != Sign::Name;
                is_refusal && lasts && is_there && finding.device_offset.is_none()
            }
            Harm::Error => {
                let was_kept_from_disk = finding.may_be_unwritten && self.operation != OperationKind::Read;
                // That data were refused costs no name by itself.
                finding.sign != Sign::Name && lasts && (finding.is_told || was_kept_from_disk)
            }
        }
    }
}

/// What makes hits of one rule the same fault: for an effect on data the block; for an error or a delay, which hits
/// requests of any shape, what the rule aimed at.
fn place(record: &Injection) -> u64 {
    match (&record.effect, &record.target) {
        (effect, Some(TargetKey::Offset(start))) if !effect.is_on_data() => *start,
        (effect, Some(TargetKey::Content { hash, .. })) if !effect.is_on_data() => hash.0 as u64,
        _ => record.offset / BLOCK_BYTES * BLOCK_BYTES,
    }
}

/// Of several blocks: all, or what is known of the one that is not.
fn of_load(record: &Injection) -> Option<bool> {
    if record.effect.is_on_data() {
        return record.of_load;
    }
    let mut all = Some(true);
    for block in &record.blocks {
        match block.of_load {
            Some(true) => {}
            Some(false) => return Some(false),
            None => all = None,
        }
    }
    all.filter(|_| !record.blocks.is_empty())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::verdict) fn hash(number: u128) -> ContentHash {
        ContentHash(number)
    }

    /// A flip of a block that stays, at 10 ns, first read at 12 ns.
    pub(in crate::verdict) fn flip(place: u64, truth: u128, corruption: u128) -> InjectionGroup {
        InjectionGroup {
            number: 0,
            count: 1,
            last: (0, Time(10)),
            rule: 0,
            place,
            flip: None,
            on: "faults".into(),
            device: Some(0),
            block: place / BLOCK_BYTES,
            time: Time(10),
            phase: Phase::Run,
            operation: OperationKind::Write,
            suffered: place..place + 4096,
            truths: vec![hash(truth)],
            own: Some(hash(truth)),
            harm: Harm::Data(Some(hash(corruption))),
            sectors: None,
            of_load: Some(true),
            persists: true,
            served: Some(Time(12)),
            gone: None,
            repaired: false,
            is_dark: false,
        }
    }

    /// A read that fails, at 10 ns, in a place that stays bad.
    pub(in crate::verdict) fn error(place: u64, length: u64, truths: &[u128]) -> InjectionGroup {
        let truths = truths.iter().copied().map(hash).collect();
        let operation = OperationKind::Read;
        InjectionGroup {
            suffered: place..place + length,
            truths,
            own: None,
            harm: Harm::Error,
            served: None,
            operation,
            ..flip(place, 0, 0)
        }
    }
}
