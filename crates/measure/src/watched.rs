//! What somebody who looks on may ask of a run beside how far it has come: latencies, the phases before, faults as they
//! hit.

use std::sync::Arc;

use parking_lot::Mutex;
use rotproof_fault::{Injection, RuleReport, Sites};
use rotproof_load::Progress;
use rotproof_load::engine::{Latencies, ProgressKind};
use rotproof_probe::{Latest, ProbeValue};

/// Part of a [`crate::Monitor`].
#[derive(Debug, Default)]
pub(crate) struct Watched {
    keeps_latencies: bool,
    /// The phases of the load so far.
    phases: Mutex<Vec<(&'static str, Arc<Progress>)>>,
    faults: Mutex<Sites>,
    probes: Mutex<Option<Latest>>,
}

/// Hits that a moment shows.
const HITS_SHOWN: u64 = 3;

impl Watched {
    pub(crate) fn with_latencies() -> Self {
        Self { keeps_latencies: true, ..Self::default() }
    }

    /// What counts a phase that begins.
    pub(crate) fn progress(&self, phase: &'static str) -> Arc<Progress> {
        let progress = if self.keeps_latencies { Progress::with_latencies() } else { Progress::default() };
        let progress = Arc::new(progress);
        let mut phases = self.phases.lock();
        phases.retain(|(known, _)| *known != phase);
        phases.push((phase, Arc::clone(&progress)));
        progress
    }

    pub(crate) fn phases(&self) -> Vec<(&'static str, Arc<Progress>)> {
        self.phases.lock().clone()
    }

    /// Of each rule its name and how often it has hit.
    pub(crate) fn rule_hits(&self) -> Vec<RuleHits> {
        let report = self.faults.lock().clone().report();
        report.into_iter().map(RuleHits::from).collect()
    }

    /// Looks at these probes from now on.
    pub(crate) fn watch_probes(&self, latest: &Latest) {
        *self.probes.lock() = Some(Arc::clone(latest));
    }

    /// What probes saw at their last look.
    pub(crate) fn probes(&self) -> Vec<ProbeValue> {
        let latest = self.probes.lock().clone();
        latest.map(|latest| latest.lock().clone()).unwrap_or_default()
    }

    /// Looks at these faults from now on.
    pub(crate) fn watch_faults(&self, sites: &Sites) {
        *self.faults.lock() = sites.clone();
    }

    /// How many faults have hit, and the last few.
    pub(crate) fn hits(&self) -> (u64, Vec<Injection>) {
        // Not under the lock, which the run may want.
        let ledger = Arc::clone(self.faults.lock().ledger());
        let hits = ledger.len() as u64;
        let last = ledger.records_from(hits.saturating_sub(HITS_SHOWN), HITS_SHOWN as usize);
        (hits, last.unwrap_or_default())
    }
}

/// How often a rule has hit so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleHits {
    /// The rule's name.
    pub name: String,
    /// The place where it acts, if it names one.
    pub on: Option<String>,
    /// Its hits.
    pub hits: u64,
}

impl From<RuleReport> for RuleHits {
    fn from(report: RuleReport) -> Self {
        Self { name: report.name, on: report.rule.on, hits: report.hits }
    }
}

/// The latencies of all operations; none if they are not kept.
pub(crate) fn latencies(progress: &Progress) -> Option<Latencies> {
    let mut sum = Latencies::default();
    for operation in ProgressKind::ALL {
        sum.add(&progress.latencies_of(operation)?);
    }
    Some(sum)
}
