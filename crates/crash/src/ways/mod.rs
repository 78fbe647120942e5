//! The ways in which states are chosen: which moments of a recording, and at each which writes survive.
//!
//! A way is a list of choices at a point; no choice is made before it is asked for. Everything follows from the seed, so
//! the same recording gives the same states. What a way leaves out for being too many is a sample by that seed.

mod adversarial;
mod journal;
mod representatives;
mod singles;
mod subsets;
mod torn;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::point::{Point, Survivor};
use crate::ranges::overlap;
use crate::window::Volatile;
pub use adversarial::Role;
pub(crate) use representatives::Seen;

/// Survivors, in the order in which they are laid over each other.
pub type Choice = Vec<Survivor>;

/// Choices that are made one by one.
pub(crate) type Choices = Box<dyn Iterator<Item = Choice> + Send>;

/// A way to choose states.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Just after something became durable: all that had completed by then is there.
    PrefixAtBarrier,
    /// After each completed write: all that had completed by then is there.
    PrefixAtWrite,
    /// Before each barrier: one volatile write is missing, or only one is there.
    SingleWrites,
    /// Before each barrier: all but every choice of a few volatile writes, at most [`WayLimits::dropped_max`] of them.
    FewDropped,
    /// Before each barrier: every choice of the volatile writes and their parts if they are few, else a sample.
    Subsets,
    /// Before each barrier: one volatile write is torn at its atomic units.
    Torn,
    /// Before each barrier: every choice, or a sample, of the volatile writes that recovery reads; of the rest all.
    RecoveryReads,
    /// Before each barrier: what hurts most: the commit block without what it commits, only metadata, only data.
    Adversarial,
    /// At each mark of the load: nothing volatile, and all of it.
    PersistencePoints,
    /// Before a barrier: of writes with one tag, role, length and place among the others, one stands for all in the recording. It is
    /// missing, it is the only one, and it is torn.
    Representatives,
    /// Before a barrier: a journal is whole, unless its commit does not wait for it, and every choice, or a sample, of the rest.
    JournalInOrder,
}

impl Way {
    /// The order in which a budget is spent best.
    pub const IN_ORDER: [Way; 7] = [
        Way::PrefixAtBarrier,
        Way::PersistencePoints,
        Way::SingleWrites,
        Way::Torn,
        Way::RecoveryReads,
        Way::Adversarial,
        Way::Subsets,
    ];

    /// All of them.
    pub const ALL: [Way; 11] = [
        Way::PrefixAtBarrier,
        Way::PrefixAtWrite,
        Way::SingleWrites,
        Way::FewDropped,
        Way::Subsets,
        Way::Torn,
        Way::RecoveryReads,
        Way::Adversarial,
        Way::PersistencePoints,
        Way::Representatives,
        Way::JournalInOrder,
    ];

    /// In words, for people.
    pub fn words(self) -> &'static str {
        match self {
            Way::PrefixAtBarrier => "everything up to a barrier",
            Way::PrefixAtWrite => "everything up to a write",
            Way::SingleWrites => "one write dropped, or only one kept",
            Way::FewDropped => "a few writes dropped",
            Way::Subsets => "a choice of writes and their parts",
            Way::Torn => "one write torn",
            Way::RecoveryReads => "a choice of what recovery reads",
            Way::Adversarial => "the worst by kind of block",
            Way::PersistencePoints => "at a mark of the load",
            Way::Representatives => "one write for all of its kind",
            Way::JournalInOrder => "a choice beside a journal in order",
        }
    }

    /// Its name in results and on the command line, as in a state file.
    pub fn name(self) -> String {
        // Only words without spaces or capitals come of it.
        serde_json::to_value(self).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// At which moments it chooses.
    pub(crate) fn moment(self) -> Moment {
        match self {
            Way::PrefixAtBarrier => Moment::AfterBarrier,
            Way::PrefixAtWrite => Moment::AfterWrite,
            Way::PersistencePoints => Moment::AfterMark,
            _ => Moment::BeforeBarrier,
        }
    }

    /// What it chooses at a point. `reads` are the sectors that recovery reads there, `seen` what had its representative before.
    pub(crate) fn choices(
        self,
        point: &Point,
        limits: &WayLimits,
        seed: u64,
        reads: &[Range<u64>],
        seen: &mut Seen,
    ) -> Choices {
        let seed = rotproof_block::hash::mix(seed, self as u64, point.position());
        match self {
            Way::PrefixAtBarrier | Way::PrefixAtWrite => Box::new(std::iter::once(completed(point))),
            Way::PersistencePoints => Box::new([Vec::new(), completed(point)].into_iter()),
            Way::SingleWrites => limited(singles::choices(point), limits.per_point_max, seed),
            Way::FewDropped => subsets::few_dropped(point, limits, seed),
            Way::Subsets => subsets::choices(point, &point.all(), &[], limits, seed),
            Way::Torn => limited(torn::choices(point), limits.per_point_max, seed),
            Way::RecoveryReads => {
                let is_read = |write: &Volatile| {
                    write.live.iter().any(|live| reads.iter().any(|read| overlap(live, read)))
                };
                let survivor = |write: &Volatile| Survivor::whole(write.position);
                let (read, rest): (Vec<_>, Vec<_>) =
                    point.volatile().iter().partition(|write| is_read(write));
                let read: Vec<Survivor> = read.into_iter().map(survivor).collect();
                let rest: Vec<Survivor> = rest.into_iter().map(survivor).collect();
                if read.is_empty() {
                    return Box::new(std::iter::empty());
                }
                subsets::choices(point, &read, &rest, limits, seed)
            }
            Way::Representatives => Box::new(representatives::choices(point, seen).into_iter()),
            Way::JournalInOrder => journal::choices(point, limits, seed),
            Way::Adversarial => Box::new(adversarial::choices(point).into_iter()),
        }
    }
}

/// When a way chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Moment {
    /// Before an event that makes something durable, and at the end of the recording.
    BeforeBarrier,
    AfterBarrier,
    /// After a write, discard or write of zeros has completed.
    AfterWrite,
    AfterMark,
}

/// How many states a way may choose at one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WayLimits {
    /// Of the ways that choose one by one; what is more is a sample.
    pub per_point_max: u64,
    /// All subsets are tried of at most so many writes; at most 20.
    pub all_subsets_of_max: u32,
    /// Of more, so many are drawn.
    pub subsets_drawn: u64,
    /// [`Way::FewDropped`] drops at most so many at once.
    pub dropped_max: u32,
}

impl Default for WayLimits {
    fn default() -> Self {
        Self { per_point_max: 1000, all_subsets_of_max: 10, subsets_drawn: 1000, dropped_max: 2 }
    }
}

/// All that had completed.
pub(crate) fn completed(point: &Point) -> Choice {
    let completed = point.volatile().iter().filter(|write| write.completed.is_some() && !write.failed);
    completed.map(|write| Survivor::whole(write.position)).collect()
}

/// A list with indexes, of which some can be drawn without making the others.
pub(crate) struct Indexed {
    pub count: u64,
    pub make: Box<dyn Fn(u64) -> Choice + Send>,
}

/// All of the list, or as many as are allowed, spread over it: one of each stretch of equal length, in order.
fn limited(list: Indexed, max: u64, seed: u64) -> Choices {
    let Indexed { count, make } = list;
    if count <= max {
        return Box::new((0..count).map(make));
    }
    Box::new((0..max).map(move |index| {
        let stretch = |index: u64| (u128::from(count) * u128::from(index) / u128::from(max)) as u64;
        let (start, end) = (stretch(index), stretch(index + 1));
        make(start + rotproof_block::hash::mix(seed, 1, index) % (end - start))
    }))
}
