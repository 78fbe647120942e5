//! What is to happen to one request.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::BLOCK_BYTES;
use crate::active_rule::ActiveRule;
use crate::delay::Delay;
use crate::effect::Effect;
use crate::errno::Errno;
use crate::geometry::Header;
use crate::index::Index;
use crate::record::Visit;
use crate::rule_set::RuleSet;

/// The hits of one request.
#[derive(Debug)]
pub(crate) struct Decided {
    /// What they were decided by.
    pub(crate) rules: RuleSet,
    /// Errors and delays, by rule.
    pub(crate) requests: Vec<RequestHit>,
    /// Effects on data, by block and then by rule once sorted.
    pub(crate) blocks: Vec<BlockHit>,
    /// Blocks of a write of which what they hold so far must be kept, as a read may show it later.
    pub(crate) watched: Vec<Range<u64>>,
    /// Places that go bad by themselves and that the request rewrites.
    pub(crate) rewritten: Vec<Rewritten>,
}

/// A request rewrites the whole of a block that a rule lets go bad once.
#[derive(Debug)]
pub(crate) struct Rewritten {
    /// Position of the rule.
    pub(crate) rule: u32,
    pub(crate) block: u64,
}

/// A rule that hits a whole request: mostly one of those that the request goes by.
#[derive(Clone, Debug)]
pub(crate) enum Hitter {
    /// The one at this position.
    Own(u32),
    /// One of another place for faults, which has taken the power of the whole stack.
    Elsewhere(Arc<ActiveRule>),
}

impl Hitter {
    /// Where it stands among the rules of its place.
    pub(crate) fn position(&self) -> u32 {
        match self {
            Self::Own(position) => *position,
            Self::Elsewhere(rule) => rule.index,
        }
    }

    pub(crate) fn rule<'a>(&'a self, rules: &'a Index) -> &'a Arc<ActiveRule> {
        match self {
            Self::Own(position) => rules.rule(*position),
            Self::Elsewhere(rule) => rule,
        }
    }
}

/// A rule hits a whole request.
#[derive(Debug)]
pub(crate) struct RequestHit {
    pub(crate) rule: Hitter,
    /// The rule's effect, with what chance, rate and time decided filled in.
    pub(crate) effect: Effect,
    /// Which of the rule's aims are among them.
    pub(crate) aims: Vec<u32>,
    /// The blocks that fulfilled the rule's conditions: what a sticky rule leaves bad.
    pub(crate) matched: Vec<Range<u64>>,
    /// What was decided on; `None` where a place that was bad already is to blame.
    pub(crate) visit: Option<Visit>,
}

/// A rule hits a block of a request.
#[derive(Debug)]
pub(crate) struct BlockHit {
    /// Position of the rule.
    pub(crate) rule: u32,
    pub(crate) block: u64,
    /// The rule's effect, with what chance decided filled in.
    pub(crate) effect: Effect,
    /// Which of the rule's aims the block is.
    pub(crate) aims: Vec<u32>,
    /// What was decided on; `None` where a place that was bad already is to blame.
    pub(crate) visit: Option<Visit>,
}

impl From<RuleSet> for Decided {
    /// No hit, so far, by these rules.
    fn from(rules: RuleSet) -> Self {
        let (requests, blocks) = (Vec::new(), Vec::new());
        Self { rules, requests, blocks, watched: Vec::new(), rewritten: Vec::new() }
    }
}

impl Decided {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
            && self.blocks.is_empty()
            && self.watched.is_empty()
            && self.rewritten.is_empty()
    }

    /// The error with which the request is to fail before anything of it is carried out.
    pub(crate) fn failure(&self) -> Option<Errno> {
        self.requests.iter().find_map(|hit| match hit.effect {
            Effect::Error { errno, after: false } => Some(errno),
            Effect::ReadOnly => Some(Errno::EROFS),
            Effect::Gone | Effect::PowerCut(_) => Some(Errno::ENODEV),
            _ => None,
        })
    }

    /// Whether the request finds the power gone, or takes it: then not even the ledger can know what the device holds.
    pub(crate) fn is_dark(&self) -> bool {
        self.requests.iter().any(|hit| matches!(hit.effect, Effect::PowerCut(_)))
    }

    /// The error with which the request is to come back after it has been carried out, but for bad blocks.
    pub(crate) fn late_failure(&self) -> Option<Errno> {
        let of_request = self.requests.iter().find_map(|hit| match hit.effect {
            Effect::Error { errno, after: true } => Some(errno),
            _ => None,
        });
        of_request.or_else(|| {
            let is_bad = |hit: &BlockHit| hit.effect == Effect::MediumError;
            self.blocks.iter().any(is_bad).then_some(Errno::EIO)
        })
    }

    /// How much longer the request is to take: the sum of all delays that hit it. What hangs comes on top:
    /// [`Evaluator::hangs`](crate::evaluator::Evaluator::hangs).
    pub(crate) fn delay(&self) -> Option<Duration> {
        let mut sum = None;
        for hit in &self.requests {
            if let Effect::Delay(Delay::Constant(span)) = hit.effect {
                sum = Some(sum.unwrap_or(Duration::ZERO).saturating_add(span.0));
            }
        }
        sum
    }

    /// The bytes of the device of which the write will leave the old data, or which a read may show later, as ranges
    /// in order: to be read before the write is passed on.
    pub(crate) fn lost_ranges(&self, header: &Header) -> Vec<Range<u64>> {
        let kept = self.blocks.iter().filter(|hit| hit.effect.keeps_old()).map(|hit| hit.block);
        let mut blocks: Vec<u64> = kept.chain(self.watched.iter().cloned().flatten()).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for block in blocks {
            let part = header.part(block);
            let start = block * BLOCK_BYTES;
            let range = start + part.start as u64..start + part.end as u64;
            match ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
        ranges
    }

    /// Brings the hits into the order in which they act, and makes one of what was found twice: by the schedule and
    /// because the place was bad already.
    pub(crate) fn settle(&mut self) {
        self.blocks.sort_by_key(|hit| (hit.block, hit.rule));
        self.blocks.dedup_by(|later, earlier| {
            let is_same = (later.block, later.rule) == (earlier.block, earlier.rule);
            if is_same {
                earlier.visit = earlier.visit.or(later.visit);
            }
            is_same
        });
        self.requests.sort_by_key(|hit| hit.rule.position());
        self.requests.dedup_by(|later, earlier| {
            let is_same = later.rule.position() == earlier.rule.position();
            if is_same {
                earlier.matched.append(&mut later.matched);
                earlier.aims.append(&mut later.aims);
                earlier.visit = earlier.visit.or(later.visit);
            }
            is_same
        });
        for hit in &mut self.requests {
            hit.aims.sort_unstable();
            hit.aims.dedup();
        }
    }
}
