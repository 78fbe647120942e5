//! What all queues of a mirror share: its members, and the one rule that binds changes of them: of every byte some member that
//! takes part has what was written last.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rotproof_block::{Device, DeviceInfo, Error, ErrorKind, Result, Runtime};

use super::MirrorOptions;
use super::gate::Gate;
use super::missed::Missed;
use super::report::{MirrorEvent, OnEvent};
use super::slot::{Seat, Slot};
use super::unflushed::Unflushed;
use crate::copies::MemberState;

/// Requests in a row that may fail before a member is taken out.
const FAILURES_IN_A_ROW: u32 = 32;
/// Writes in a row that may be late before it is.
const LATE_WRITES_WEIGH: u32 = 4;

/// Who keeps durable what members have missed, so that it is known after a power loss.
pub trait MissLog: Send + Sync {
    /// Before a write is acknowledged of which `range` was missed by `member`. `None` where that is on record; else what
    /// puts it there. If that fails, so does the write.
    fn missed(
        &self,
        runtime: &Runtime,
        member: usize,
        range: Range<u64>,
    ) -> Option<Pin<Box<dyn Future<Output = Result<()>>>>>;
}

/// A set of members, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Set(u8);

impl Set {
    pub(super) fn with(self, member: usize) -> Self {
        Self(self.0 | 1 << member)
    }

    pub(super) fn has(self, member: usize) -> bool {
        self.0 & 1 << member != 0
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The one with the lowest number.
    pub(super) fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

pub(super) struct State {
    pub(super) slots: Vec<Slot>,
    pub(super) info: DeviceInfo,
    pub(super) options: MirrorOptions,
    pub(super) gate: Gate,
    /// Counts changes of who takes part; queues look at it with each request.
    pub(super) generation: AtomicU64,
    /// Held while something changes that the rule is about.
    change: Mutex<()>,
    pub(super) miss_log: std::sync::OnceLock<Arc<dyn MissLog>>,
    /// What members may have taken and forget when their power goes.
    pub(super) unflushed: Unflushed,
    /// What members that were taken out may have forgotten: it has to be on record before a flush is acknowledged.
    forgotten: Mutex<Vec<(usize, Range<u64>)>>,
    has_forgotten: AtomicBool,
    pub(super) on_event: std::sync::OnceLock<OnEvent>,
}

impl State {
    pub(super) fn new(members: Vec<Arc<dyn Device>>, info: DeviceInfo, options: MirrorOptions) -> Self {
        Self {
            slots: members.into_iter().map(|member| Slot::new(member, info.size)).collect(),
            info,
            options,
            gate: Gate::new(),
            generation: AtomicU64::new(0),
            change: Mutex::new(()),
            miss_log: std::sync::OnceLock::new(),
            unflushed: Unflushed::new(info.size),
            forgotten: Mutex::default(),
            has_forgotten: AtomicBool::new(false),
            on_event: std::sync::OnceLock::new(),
        }
    }

    pub(super) fn tell(&self, event: &MirrorEvent) {
        if let Some(tell) = self.on_event.get() {
            tell(event);
        }
    }

    /// The members that take part and have all of the range.
    pub(super) fn current(&self, range: &Range<u64>) -> Set {
        let numbers = 0..self.slots.len();
        numbers.filter(|&number| self.slots[number].is_current(range.clone())).fold(Set::default(), Set::with)
    }

    /// Takes note that a member does not have the range, if one of `others` has it all; whether it did. A member that takes
    /// no part can be told of anything.
    pub(super) fn note_missed(&self, member: usize, range: &Range<u64>, others: Set) -> Noted {
        let slot = &self.slots[member];
        if !slot.is_active() {
            return self.mark(member, range);
        }
        let changing = self.change.lock();
        let has_other = (0..self.slots.len())
            .any(|other| other != member && others.has(other) && self.slots[other].is_current(range.clone()));
        // Meanwhile it may have been taken out.
        if !has_other && slot.is_active() {
            return Noted::Refused;
        }
        let noted = self.mark(member, range);
        drop(changing);
        noted
    }

    fn mark(&self, member: usize, range: &Range<u64>) -> Noted {
        if !self.slots[member].missed.mark(range.clone()) {
            return Noted::Before;
        }
        self.tell(&MirrorEvent::Missed { member, range: range.clone() });
        Noted::Now
    }

    /// Takes a member out, unless some byte would be left without a copy.
    pub(super) fn fail(&self, member: usize, why: &str) -> Result<()> {
        let slot = self.slot(member)?;
        let changing = self.change.lock();
        if !slot.is_active() {
            return Ok(());
        }
        self.check_others_have(member, |range| !slot.missed.touches(range.clone()))?;
        slot.is_active.store(false, Ordering::Release);
        *slot.seat.lock() = Seat::Failed { why: why.to_owned() };
        slot.incarnation.fetch_add(1, Ordering::AcqRel);
        self.generation.fetch_add(1, Ordering::AcqRel);
        // What it took and was not flushed it may have forgotten when it comes back: the others will make it durable without it.
        // Whoever notes a write only now finds that the member is another, and notes that it missed it.
        for range in self.unflushed.ranges() {
            slot.missed.mark(range.clone());
            self.forgotten.lock().push((member, range));
            self.has_forgotten.store(true, Ordering::SeqCst);
        }
        drop(changing);
        self.tell(&MirrorEvent::Failed { member, why: why.to_owned() });
        Ok(())
    }

    /// Whether something that a member may have forgotten is not on record.
    pub(super) fn has_forgotten(&self) -> bool {
        self.has_forgotten.load(Ordering::SeqCst)
    }

    /// What members may have forgotten and is not on record: what is taken here is for the caller to put there, or to give back.
    pub(super) fn take_forgotten(&self) -> Vec<(usize, Range<u64>)> {
        let mut forgotten = self.forgotten.lock();
        self.has_forgotten.store(false, Ordering::SeqCst);
        std::mem::take(&mut forgotten)
    }

    /// It could not be put on record.
    pub(super) fn give_back_forgotten(&self, left: impl IntoIterator<Item = (usize, Range<u64>)>) {
        let mut forgotten = self.forgotten.lock();
        forgotten.extend(left);
        self.has_forgotten.store(!forgotten.is_empty(), Ordering::SeqCst);
    }

    /// Ok unless there is a range, within a granule, that `matters` and that no member but this one has.
    fn check_others_have(&self, member: usize, matters: impl Fn(&Range<u64>) -> bool) -> Result<()> {
        let others: Vec<&Missed> = (0..self.slots.len())
            .filter(|&other| other != member && self.slots[other].is_active())
            .map(|other| &self.slots[other].missed)
            .collect();
        let lacks = match others.as_slice() {
            [] => true,
            [first, rest @ ..] => {
                let mut granules = first.ranges().into_iter().flat_map(super::write::granules);
                granules.any(|granule| {
                    rest.iter().all(|other| other.touches(granule.clone())) && matters(&granule)
                })
            }
        };
        if lacks {
            let context =
                format!("no other member has all that member {member} has; rebuild the others first");
            return Err(Error::new(ErrorKind::Refused, context));
        }
        Ok(())
    }

    /// Puts a device in the place of a member.
    pub(super) fn replace(
        &self,
        member: usize,
        device: Arc<dyn Device>,
        missed: &[Range<u64>],
    ) -> Result<()> {
        let slot = self.slot(member)?;
        let info = device.info();
        if info.size < self.info.size {
            let context = format!(
                "a device of {} bytes cannot take the place of a member: the mirror has {} bytes",
                info.size, self.info.size
            );
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        if info.block_size > self.info.block_size || info.read_only && !self.info.read_only {
            let context = "a device that is read-only, or whose blocks are larger than those of the mirror, \
                           cannot take the place of a member";
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let changing = self.change.lock();
        if slot.is_active() {
            let concerns = |range: &Range<u64>| {
                !slot.missed.touches(range.clone())
                    && missed.iter().any(|missed| missed.start < range.end && range.start < missed.end)
            };
            if !missed.is_empty() {
                self.check_others_have(member, concerns)?;
            }
        }
        // What a member has missed that is out stays noted: the device may be the one that it was.
        for range in missed {
            slot.missed.mark(range.start.min(self.info.size)..range.end.min(self.info.size));
        }
        *slot.seat.lock() = Seat::Taken(device);
        slot.begin_anew();
        slot.incarnation.fetch_add(1, Ordering::AcqRel);
        slot.is_active.store(true, Ordering::Release);
        self.generation.fetch_add(1, Ordering::AcqRel);
        drop(changing);
        Ok(())
    }

    /// A member now has what the others have in this range.
    pub(super) fn set_current(&self, member: usize, range: Range<u64>) {
        let Ok(slot) = self.slot(member) else { return };
        let _changing = self.change.lock();
        // What arrives yet would undo it.
        if slot.is_active() && !slot.has_stray(&range) {
            slot.missed.clear(range);
        }
    }

    fn slot(&self, member: usize) -> Result<&Slot> {
        let none = || Error::new(ErrorKind::Invalid, format!("there is no member {member}"));
        self.slots.get(member).ok_or_else(none)
    }

    /// A request to a member has failed.
    pub(super) fn note_failure(&self, member: usize, error: &Error) {
        let why = if error.kind() == ErrorKind::Gone {
            format!("it is gone: {error}")
        } else if self.slots[member].failed_again() >= FAILURES_IN_A_ROW {
            format!("{FAILURES_IN_A_ROW} requests in a row have failed, the last with: {error}")
        } else {
            return;
        };
        // The last that has something stays, whatever it answers.
        let _ = self.fail(member, &why);
    }

    /// A write to a member was not answered in time.
    pub(super) fn note_late_write(&self, member: usize) {
        let slot = &self.slots[member];
        super::report::add(&slot.counts.late, 1);
        let in_row = (0..LATE_WRITES_WEIGH).map(|_| slot.failed_again()).max().unwrap_or(0);
        if in_row >= FAILURES_IN_A_ROW {
            let _ = self.fail(member, "it does not answer any more");
        }
    }

    pub(super) fn states(&self) -> Vec<MemberState> {
        let state = |slot: &Slot| match &*slot.seat.lock() {
            Seat::Failed { why } => MemberState::Failed { why: why.clone() },
            Seat::Taken(_) if slot.missed.is_empty() => MemberState::Current,
            Seat::Taken(_) => MemberState::Behind { missed_bytes: slot.missed.bytes() },
        };
        self.slots.iter().map(state).collect()
    }

    /// What some member that takes part has missed.
    pub(super) fn to_rebuild(&self) -> Vec<Range<u64>> {
        let of_active = self.slots.iter().filter(|slot| slot.is_active());
        let mut all: Vec<Range<u64>> = of_active.flat_map(|slot| slot.missed.ranges()).collect();
        all.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in all {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }
}

/// Whether something was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// Now, for some granule for the first time.
    Now,
    /// It had been before.
    Before,
    /// Not, because nobody else has it.
    Refused,
}
