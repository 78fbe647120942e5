//! The engine: the rules at work on one device, what they have done to it, and the ledger of it.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::BLOCK_BYTES;
use crate::active_rule::ActiveRule;
use crate::clock::Clock;
use crate::evaluator::Evaluator;
use crate::index::Index;
use crate::ledger::Ledger;
use crate::overlay::Overlay;
use crate::record::TargetKey;
use crate::resolved::ResolvedRule;
use crate::rule::Rule;

/// What an engine must know of where it acts.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Root of everything that chance decides.
    pub seed: u64,
    /// Size in bytes of the device that the faults act on.
    pub device_size: u64,
}

/// Decides what happens to the requests of one device, and remembers what has. Shared by all queues of the device;
/// each asks through its own [`Evaluator`].
#[derive(Debug)]
pub struct Engine {
    pub(crate) seed: u64,
    pub(crate) device_size: u64,
    pub(crate) index: Arc<ArcSwap<Index>>,
    /// Held while the index is replaced, so that no two additions lose each other.
    adding: Mutex<()>,
    pub(crate) overlay: Overlay,
    ledger: Ledger,
    clock: Arc<Clock>,
    /// Position, counted from 1, of the rule that has made the device read-only or has taken it away; 0 is none.
    pub(crate) latch: AtomicU32,
}

impl Engine {
    /// An engine with these rules.
    pub fn new(rules: Vec<ResolvedRule>, options: EngineOptions) -> Arc<Self> {
        let EngineOptions { seed, device_size } = options;
        let engine = Arc::new(Self {
            seed,
            device_size,
            index: Arc::new(ArcSwap::from_pointee(Index::new(Vec::new()))),
            adding: Mutex::new(()),
            overlay: Overlay::new(device_size.div_ceil(BLOCK_BYTES)),
            ledger: Ledger::default(),
            clock: Arc::default(),
            latch: AtomicU32::new(0),
        });
        engine.add_rules(rules);
        engine
    }

    /// Adds rules behind those that are there, whose positions and counters stay. They act on every request that is
    /// submitted from now on, and never on part of one.
    pub fn add_rules(&self, rules: Vec<ResolvedRule>) {
        if rules.is_empty() {
            return;
        }
        let _one_at_a_time = self.adding.lock();
        let mut all = self.index.load().rules.clone();
        for rule in rules {
            let index = u32::try_from(all.len()).expect("fewer than 2^32 rules fit in memory");
            all.push(Arc::new(ActiveRule::new(rule, index, self.seed, self.device_size, &self.clock)));
        }
        self.index.store(Arc::new(Index::new(all)));
    }

    pub(crate) fn device_blocks(&self) -> u64 {
        self.device_size.div_ceil(BLOCK_BYTES)
    }

    /// What one queue asks.
    pub fn evaluator(self: &Arc<Self>) -> Evaluator {
        Evaluator::new(Arc::clone(self))
    }

    /// Everything that was injected.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What each rule has met and done so far, in the order of the plan.
    pub fn report(&self) -> Vec<RuleReport> {
        let report = |rule: &Arc<ActiveRule>| RuleReport {
            name: rule.name.to_string(),
            rule: rule.rule.clone(),
            matches: rule.matches(),
            hits: rule.hits(),
            targets: rule
                .aims()
                .map(|(target, hits)| TargetReport { target: target.clone(), hits })
                .collect(),
        };
        self.index.load().rules.iter().map(report).collect()
    }
}

/// What one rule has met and done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleReport {
    /// Name of the rule.
    pub name: String,
    /// The rule as it was written.
    pub rule: Rule,
    /// Matches that its schedule has seen: blocks for effects on data, requests for errors and delays.
    pub matches: u64,
    /// Records that the ledger has of it.
    pub hits: u64,
    /// Everything it aims at: each range of `offset`, or each content. Empty for a rule that hits anywhere.
    pub targets: Vec<TargetReport>,
}

/// How often one aim of a rule was hit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetReport {
    /// Which one.
    pub target: TargetKey,
    /// How often it was hit; a request that hits several aims at once counts for each.
    pub hits: u64,
}
