//! How far a run has come, for whoever shows it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_fault::{Injection, Sites};
use rotproof_load::Progress;
use rotproof_load::engine::{HungRequest, Latencies, ProgressCounts};
use rotproof_probe::{ProbeValue, Sampler};
use rotproof_record::Recording;

use crate::watched::{RuleHits, Watched, latencies};

/// Where a run stands; shared between the run and a display.
#[derive(Debug, Default)]
pub struct Monitor(Mutex<State>, Watched);

#[derive(Debug, Default)]
struct State {
    phase: &'static str,
    bytes_planned: Option<u64>,
    /// Of a phase that ends by time.
    time_planned: Option<(Instant, Duration)>,
    progress: Arc<Progress>,
    recording: Option<Arc<Recording>>,
}

/// Where a run stands at one moment.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// `setup`, `prefill`, `run`, `remount`, `check`, `verdict`; empty before the first.
    pub phase: &'static str,
    /// What the load has done in this phase.
    pub counts: ProgressCounts,
    /// Bytes it will move in all, if that is known.
    pub bytes_planned: Option<u64>,
    /// Share of the time that has passed, in a phase that ends by time.
    pub time_share: Option<f64>,
    /// The latencies of this phase so far, if somebody is to look at them and there is a load.
    pub latencies: Option<Latencies>,
    /// Faults that have hit so far.
    pub hits: u64,
    /// The last few of them.
    pub last_hits: Vec<Injection>,
}

impl Monitor {
    /// One that somebody looks at while the run goes on: it also tells of latencies.
    pub fn watched() -> Self {
        Self(Mutex::default(), Watched::with_latencies())
    }

    /// The phases of the load so far, the one under way last, each with what counts it.
    pub fn phases(&self) -> Vec<(&'static str, Arc<Progress>)> {
        self.1.phases()
    }

    /// How often each rule has hit so far.
    pub fn rule_hits(&self) -> Vec<RuleHits> {
        self.1.rule_hits()
    }

    /// The run has these faults.
    pub fn watch_faults(&self, sites: &Sites) {
        self.1.watch_faults(sites);
    }

    /// Requests of the load that have been under way for too long, each once.
    pub fn take_hung(&self) -> Vec<HungRequest> {
        self.phases().iter().flat_map(|(_, progress)| progress.take_hung()).collect()
    }

    /// What probes saw of the machine at their last look; nothing without probes.
    pub fn probes(&self) -> Vec<ProbeValue> {
        self.1.probes()
    }

    /// The run has these probes.
    pub fn watch_probes(&self, sampler: &Sampler) {
        self.1.watch_probes(sampler.latest());
    }

    /// A phase without load begins.
    pub fn begin(&self, phase: &'static str, bytes_planned: Option<u64>) {
        let mut state = self.0.lock();
        *state = State { phase, bytes_planned, recording: state.recording.take(), ..State::default() };
    }

    /// The run records here.
    pub fn record_in(&self, recording: &Arc<Recording>) {
        self.0.lock().recording = Some(Arc::clone(recording));
    }

    /// What the run has recorded over time so far ([`Recording::latest`], [`Recording::marks`]); none before its load is
    /// known.
    pub fn recording(&self) -> Option<Arc<Recording>> {
        self.0.lock().recording.clone()
    }

    /// A phase of the load begins; it counts into the result. In real time it may end after `duration`.
    pub fn begin_load(
        &self,
        phase: &'static str,
        bytes_planned: Option<u64>,
        duration: Option<Duration>,
    ) -> Arc<Progress> {
        let progress = self.1.progress(phase);
        let time_planned = duration.map(|duration| (Instant::now(), duration));
        let mut state = self.0.lock();
        let recording = state.recording.take();
        *state = State { phase, bytes_planned, time_planned, progress: Arc::clone(&progress), recording };
        progress
    }

    /// Now.
    pub fn moment(&self) -> Moment {
        let (hits, last_hits) = self.1.hits();
        let state = self.0.lock();
        Moment {
            latencies: latencies(&state.progress),
            hits,
            last_hits,
            phase: state.phase,
            counts: state.progress.counts(),
            bytes_planned: state.bytes_planned,
            time_share: state
                .time_planned
                .map(|(began, span)| (began.elapsed().as_secs_f64() / span.as_secs_f64().max(1e-9)).min(1.0)),
        }
    }
}
