//! How far a run has come, for whoever shows it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_load::Progress;
use rotproof_load::engine::ProgressCounts;
use rotproof_record::Recording;

/// Where a run stands; shared between the run and a display.
#[derive(Debug, Default)]
pub struct Monitor(Mutex<State>);

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
}

impl Monitor {
    /// A phase without load begins.
    pub(crate) fn begin(&self, phase: &'static str, bytes_planned: Option<u64>) {
        let mut state = self.0.lock();
        *state = State { phase, bytes_planned, recording: state.recording.take(), ..State::default() };
    }

    /// The run records here.
    pub(crate) fn record_in(&self, recording: &Arc<Recording>) {
        self.0.lock().recording = Some(Arc::clone(recording));
    }

    /// What the run has recorded over time so far ([`Recording::latest`], [`Recording::marks`]); none before its load is
    /// known.
    pub fn recording(&self) -> Option<Arc<Recording>> {
        self.0.lock().recording.clone()
    }

    /// A phase of the load begins; it counts into the result. In real time it may end after `duration`.
    pub(crate) fn begin_load(
        &self,
        phase: &'static str,
        bytes_planned: Option<u64>,
        duration: Option<Duration>,
    ) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        let time_planned = duration.map(|duration| (Instant::now(), duration));
        let mut state = self.0.lock();
        let recording = state.recording.take();
        *state = State { phase, bytes_planned, time_planned, progress: Arc::clone(&progress), recording };
        progress
    }

    /// Now.
    pub fn moment(&self) -> Moment {
        let state = self.0.lock();
        Moment {
            phase: state.phase,
            counts: state.progress.counts(),
            bytes_planned: state.bytes_planned,
            time_share: state
                .time_planned
                .map(|(began, span)| (began.elapsed().as_secs_f64() / span.as_secs_f64().max(1e-9)).min(1.0)),
        }
    }
}
