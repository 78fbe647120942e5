//! Blocks that go bad at some point of a device's life, gathered into few rules.

use std::collections::BTreeMap;
use std::num::NonZero;

use rotproof_spec::{ByteRange, End, Span};

use super::timeline::{at, rule_from, step_of};
use crate::BLOCK_BYTES;
use crate::effect::Effect;
use crate::matching::OperationMatch;
use crate::one_or_many::OneOrMany;
use crate::rule::{Persistence, Rule};

/// Moments of the run at which blocks go bad: those of one sixty-fourth of it go bad together, as one rule.
const STEPS: NonZero<u64> = NonZero::new(64).expect("not zero");

/// A block that goes bad.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BadBlock {
    /// Which one.
    pub(super) block: u64,
    /// When: the share of the span of life that has passed.
    pub(super) share: f64,
}

/// One rule for each moment at which blocks go bad, named by its number from `first` on. A block that is drawn twice
/// goes bad when it is drawn first.
pub(super) fn rules_of(
    bad: &[BadBlock],
    over: Option<Span>,
    persistence: Persistence,
    first: usize,
) -> Vec<Rule> {
    let mut earliest: BTreeMap<u64, u64> = BTreeMap::new();
    for one in bad {
        let step = if over.is_some() { step_of(one.share, STEPS) } else { 0 };
        let known = earliest.entry(one.block).or_insert(step);
        *known = step.min(*known);
    }
    let mut by_step: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (block, step) in earliest {
        by_step.entry(step).or_default().push(block);
    }
    let rule = |((step, blocks), number): ((u64, Vec<u64>), usize)| {
        let begins = at(step as f64 / STEPS.get() as f64, over);
        let mut rule = rule_from(begins, None, OperationMatch::Read, Effect::MediumError);
        if persistence == Persistence::Sticky {
            // Nothing is left to remap it with: it cannot be written either.
            rule.matching.operation = None;
        }
        let place = |block: u64| ByteRange { start: block * BLOCK_BYTES, end: End::OneBlock };
        rule.matching.offset = OneOrMany(blocks.into_iter().map(place).collect());
        rule.persistence = persistence;
        rule.name = Some(number.to_string());
        rule
    };
    by_step.into_iter().zip(first..).map(rule).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn texts(bad: &[(u64, f64)], over: Option<Span>, persistence: Persistence) -> Vec<String> {
        let bad: Vec<BadBlock> = bad.iter().map(|&(block, share)| BadBlock { block, share }).collect();
        rules_of(&bad, over, persistence, 1).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn blocks_that_go_bad_together_are_one_rule() {
        let over = Some(Span(Duration::from_secs(64)));
        let bad = [(3, 0.5), (1, 0.5001), (3, 0.0), (9, 1.0)];
        assert_eq!(
            texts(&bad, over, Persistence::UntilRewritten { spares: None }),
            [
                "name=1, read, offset=12KiB, at=0ms, until_rewritten: medium_error",
                "name=2, read, offset=4KiB, at=32s, until_rewritten: medium_error",
                "name=3, read, offset=36KiB, at=63s, until_rewritten: medium_error",
            ]
        );
    }

    #[test]
    fn what_lies_behind_the_device_is_bad_from_the_beginning() {
        assert_eq!(
            texts(&[(3, 0.5), (1, 0.9)], None, Persistence::Sticky),
            ["name=1, offset=4KiB|12KiB, at=0ms, sticky: medium_error"]
        );
        assert!(texts(&[], None, Persistence::Sticky).is_empty());
    }
}
