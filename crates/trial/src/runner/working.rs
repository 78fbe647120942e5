//! One phase of a load, whatever the load is: what is told before it, watched meanwhile, and ended after it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rotproof_block::{Phase, Result};
use rotproof_load::engine::Progress;
use rotproof_record::{Recording, RecordingOptions};
use rotproof_subject::{Destination, Prepared};

use super::Conductor;
use super::leaf_watch::LeafWatch;
use super::memory::{Owner, Processes};

/// A phase that is about to begin.
pub(super) struct Working {
    pub(super) phase: Phase,
    /// What people and tables call it.
    pub(super) name: &'static str,
    /// What it will move, where that is known.
    pub(super) bytes: Option<u64>,
    /// How long it will take, where that is known.
    pub(super) duration: Option<Duration>,
    /// Whose memory faults may act on.
    pub(super) owner: Option<Owner>,
    /// Nobody but the device below the subject can tell how far it has come.
    pub(super) is_told_by_device: bool,
}

impl Working {
    /// A phase of a load of this process, of unknown length.
    pub(super) fn in_phase(phase: Phase, subject: &dyn Prepared) -> Self {
        let of_process = || {
            let Destination::Folder(folder) = subject.place() else { return None };
            let file_system = subject.process().map(|pid| Processes::of_file_system(pid, &folder));
            let processes =
                file_system.or_else(|| subject.guard().map(|pid| Processes::of_guard(pid, &folder)))?;
            Some(Owner::Processes(processes))
        };
        let owner = subject.memory().map(Owner::Machine).or_else(of_process);
        Self { phase, name: phase.word(), bytes: None, duration: None, owner, is_told_by_device: false }
    }

    /// One of a command that is called `name`, which runs in `folder`.
    pub(super) fn of_command(
        (name, phase): (&'static str, Phase),
        subject: &dyn Prepared,
        (run, folder): (&str, &PathBuf),
    ) -> Self {
        let processes = || Owner::Processes(Processes::of_run(run, folder));
        let owner = Some(subject.memory().map_or_else(processes, Owner::Machine));
        Self { phase, name, bytes: None, duration: None, owner, is_told_by_device: true }
    }
}

/// What the load is given for the phase.
pub(super) struct Watched {
    /// Not zero where it is to stop.
    pub(super) stop: Arc<AtomicUsize>,
    /// Where it says how far it has come.
    pub(super) progress: Arc<Progress>,
    /// How long it may take.
    pub(super) duration: Option<Duration>,
}

impl Conductor<'_> {
    /// Does `work` as one phase of the load: with faults enabled, memory, leaves and probes watched. Where somebody asked to stop,
    /// what was done is kept, whatever came of what the stack stands on.
    pub(super) fn while_working<T>(
        &self,
        working: Working,
        work: impl FnOnce(&Watched) -> Result<T>,
    ) -> Result<T> {
        self.options.cancel.check()?;
        let Working { phase, name, bytes, duration, owner, is_told_by_device } = working;
        self.environment.phase.store(phase as u8, Ordering::Relaxed);
        let progress = self.options.monitor.begin_load(name, bytes, duration);
        let looks = self.memory.watch(phase, owner)?;
        let watch = LeafWatch::start(self.stack, &self.options.cancel)?;
        let told = is_told_by_device.then(|| Arc::clone(&progress));
        let on_device = self.device_watch.map(|watch| watch.begin(name, told)).transpose()?;
        let watched = Watched { stop: watch.stop_cell(), progress, duration };
        let begin_phase = |is_run| self.probes.iter().for_each(|probes| probes.begin_phase(is_run));
        begin_phase(phase == Phase::Run);
        let result = work(&watched);
        begin_phase(false);
        drop(looks);
        drop(on_device);
        let leaf = watch.end();
        if self.options.cancel.is_cancelled() {
            // The load only knows that it was stopped; who asked is known here.
            return result.or_else(|error| self.options.cancel.check().and(Err(error)));
        }
        leaf?;
        result
    }

    /// Where the load says what it did over time.
    pub(super) fn recording(
        &self,
        operations: &'static [&'static str],
        workers: u16,
    ) -> Result<Arc<Recording>> {
        let recording = Recording::new(RecordingOptions {
            spec: self.trial.record.clone(),
            operations,
            workers,
            folder: self.results.to_owned(),
        })?;
        if !operations.is_empty() {
            self.options.monitor.record_in(&recording);
        }
        Ok(recording)
    }
}
