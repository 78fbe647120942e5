//! From a request to the rules that concern it, at a cost that does not grow with the rules that do not.
//!
//! For each operation and phase there is a table; the same set of rules shares one. A table has three parts: rules
//! for any place, rules by place (a coarse bitmap before an interval index), and rules by content (a filter before a
//! hash map). An index is immutable: a rule that comes, goes or pauses makes a new one, and the counters live in the
//! rules.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use rotproof_block::{ContentHash, Phase};

use crate::active_rule::ActiveRule;
use crate::coarse_map::CoarseMap;
use crate::content_index::ContentIndex;
use crate::effect::Effect;
use crate::interval::IntervalIndex;
use crate::matching::OperationKind;
use crate::rule_state::RuleState;
use crate::seen::Seen;
use crate::statistics::Wanted;
use crate::tag::TagIndex;

/// All rules, ready to be asked.
#[derive(Debug)]
pub(crate) struct Index {
    /// Every rule that ever was, each at its position.
    pub(crate) rules: Vec<Arc<ActiveRule>>,
    /// For each rule. Only active ones are in what follows.
    pub(crate) states: Vec<RuleState>,
    /// Rules that wait to know what they aim at, from what passes by.
    pub(crate) waiting: Vec<u32>,
    /// What of it they want.
    pub(crate) wanted: Wanted,
    /// Whether a rule goes by the time since the phase *run* began.
    pub(crate) has_clock: bool,
    /// Rules that change the device for good when they hit.
    pub(crate) latching: Vec<u32>,
    tables: [[Option<Arc<Table>>; OperationKind::ALL.len()]; Phase::ALL.len()],
}

/// The rules that concern one operation in one phase; at least one.
#[derive(Debug)]
pub(crate) struct Table {
    /// Rules for every request, in their order.
    pub(crate) always: Vec<u32>,
    /// Rules for any place, but only for some tags.
    pub(crate) tagged: Option<TagIndex>,
    pub(crate) places: Option<PlaceIndex>,
    pub(crate) contents: Option<ContentIndex>,
}

#[derive(Debug)]
pub(crate) struct PlaceIndex {
    pub(crate) map: CoarseMap,
    pub(crate) intervals: IntervalIndex,
}

impl Index {
    /// `states` has one for each rule.
    pub(crate) fn new(rules: Vec<Arc<ActiveRule>>, states: Vec<RuleState>) -> Self {
        let is_active = |rule: &ActiveRule| states.get(rule.index as usize) == Some(&RuleState::Active);
        let active = || rules.iter().filter(|rule| is_active(rule));
        let latches =
            |rule: &&Arc<ActiveRule>| rule.effect() == Effect::ReadOnly || rule.effect().takes_device();
        let latching = active().filter(latches).map(|rule| rule.index).collect();
        let waiting: Vec<(u32, Seen)> =
            active().filter_map(|rule| Some((rule.index, rule.waits_for()?))).collect();
        let wanted = Wanted::of(waiting.iter().map(|(_, seen)| seen.block));
        let waiting = waiting.into_iter().map(|(number, _)| number).collect();
        let has_clock = active().any(|rule| rule.rule.is_by_time());
        let mut shared: HashMap<Vec<u32>, Arc<Table>> = HashMap::new();
        let tables = Phase::ALL.map(|phase| {
            OperationKind::ALL.map(|operation| {
                let concerned: Vec<u32> = active()
                    .filter(|rule| {
                        let rule = &rule.rule;
                        rule.concerns(operation, phase)
                            || rule.watches_in(operation, phase)
                            || rule.is_healed_by(operation)
                    })
                    .map(|rule| rule.index)
                    .collect();
                if concerned.is_empty() {
                    return None;
                }
                let table = shared
                    .entry(concerned)
                    .or_insert_with_key(|concerned| Arc::new(Table::new(concerned, &rules)));
                Some(Arc::clone(table))
            })
        });
        Self { rules, states, waiting, wanted, has_clock, latching, tables }
    }

    /// Whether the rule at this position is one of this index and active in it. A later index may have more.
    pub(crate) fn acts(&self, rule: u32) -> bool {
        self.states.get(rule as usize) == Some(&RuleState::Active)
    }

    /// The rule at a position that this index has.
    pub(crate) fn rule(&self, position: u32) -> &Arc<ActiveRule> {
        &self.rules[position as usize]
    }

    /// The rules that concern `operation` in `phase`, if there are any.
    pub(crate) fn table(&self, operation: OperationKind, phase: Phase) -> Option<&Table> {
        self.tables[phase as usize][operation as usize].as_deref()
    }
}

impl Table {
    /// Whether a rule has a place in `blocks`.
    pub(crate) fn has_place(&self, blocks: &Range<u64>) -> bool {
        self.places.as_ref().is_some_and(|places| places.map.may_have(blocks) && places.intervals.has(blocks))
    }

    fn new(concerned: &[u32], rules: &[Arc<ActiveRule>]) -> Self {
        let (mut always, mut tagged) = (Vec::new(), Vec::new());
        let mut places = Vec::new();
        let mut contents: Vec<(ContentHash, Option<u64>, u32)> = Vec::new();
        for &number in concerned {
            let rule = &rules[number as usize];
            if let Some(wanted) = &rule.aims().contents {
                contents.extend(wanted.iter().map(|(content, wanted)| (*content, wanted.beginning, number)));
            } else if let Some(set) = &rule.aims().places {
                places.extend(set.ranges().iter().map(|range| (range.clone(), number)));
            } else {
                match &rule.rule.matching.tag {
                    tags if tags.is_empty() => always.push(number),
                    tags => tagged.push((number, tags.0.clone())),
                }
            }
        }
        // A hash map gives its keys in a different order each time; rules are asked in theirs.
        contents.sort_unstable();
        let place_index = (!places.is_empty()).then(|| PlaceIndex {
            map: CoarseMap::new(places.iter().map(|(range, _)| range.clone())),
            intervals: IntervalIndex::new(places),
        });
        let content_index = (!contents.is_empty()).then(|| ContentIndex::new(contents));
        let tagged = (!tagged.is_empty()).then(|| TagIndex::new(tagged));
        Self { always, tagged, places: place_index, contents: content_index }
    }
}
