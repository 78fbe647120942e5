//! What a load without a trial keeps of its course: what is recorded over time, and what probes see meanwhile.

use std::env;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use rotproof_block::{Error, Result};
use rotproof_machine::Cancel;
use rotproof_machine::registry::Registry;
use rotproof_probe::{ProbeReport, ProbesSpec, Sampler};
use rotproof_record::{Recording, RecordingOptions};
use rotproof_results::folder::ResultsFolder;

use super::RecordOptions;
use crate::Monitor;

/// Both, as far as they were asked for.
pub(super) struct Kept<'a> {
    /// With the folder of the results, if it is to be kept.
    recording: Option<(Arc<Recording>, Option<ResultsFolder>)>,
    probes: Option<(Sampler, &'a ProbesSpec)>,
}

/// What is left of it in the end.
pub(super) struct KeptResults {
    pub(super) probes: Option<ProbeReport>,
    /// The folder with the tables.
    pub(super) folder: Option<Arc<ResultsFolder>>,
    /// Why there is none though there was to be one.
    pub(super) unwritten: Option<Arc<Error>>,
}

impl<'a> Kept<'a> {
    /// Begins both. The recording is of these operations, by so many workers, and the folder of the results is called by this
    /// seed.
    pub(super) fn start(
        record: Option<&'a RecordOptions>,
        (operations, workers): (&'static [&'static str], u16),
        probes: Option<&'a ProbesSpec>,
        (seed, epoch, cancel): (u64, Instant, &Cancel),
        monitor: &Monitor,
    ) -> Result<Self> {
        let start_recording = |RecordOptions { spec, results }: &'a RecordOptions| {
            let folder = results.as_ref().map(|results| new_folder(results, seed)).transpose()?;
            let scratch = folder.as_ref().map_or_else(env::temp_dir, |folder| folder.inside().to_owned());
            let options = RecordingOptions { spec: spec.clone(), operations, workers, folder: scratch };
            let recording = Recording::new(options)?;
            monitor.record_in(&recording);
            Ok((recording, folder))
        };
        let start_probes = |spec: &'a ProbesSpec| {
            let sampler = Sampler::begin(spec, epoch, cancel)?;
            monitor.watch_probes(&sampler);
            Ok((sampler, spec))
        };
        Ok(Self {
            recording: record.map(start_recording).transpose()?,
            probes: probes.map(start_probes).transpose()?,
        })
    }

    /// Where requests are told of.
    pub(super) fn recording(&self) -> Option<&Arc<Recording>> {
        self.recording.as_ref().map(|(recording, _)| recording)
    }

    /// The disk below this path belongs to what is measured.
    pub(super) fn add_subject_disk(&self, path: &Path) {
        if let Some((probes, _)) = &self.probes
            && let Some(disk) = rotproof_machine::disk_of(path)
        {
            probes.add_subject_disk(&disk);
        }
    }

    /// A phase begins, for the probes.
    pub(super) fn begin_phase(&self, is_run: bool) {
        self.probes.iter().for_each(|(probes, _)| probes.begin_phase(is_run));
    }

    /// Ends both, and writes what they have found into the folder of the results, if there is to be one. That it cannot be
    /// written takes nothing away from the figures.
    pub(super) fn end(self) -> KeptResults {
        let found = self.probes.map(|(probes, spec)| (probes.end(), spec));
        let written = self.recording.and_then(|(recording, folder)| {
            let folder = folder?;
            let written = recording
                .write_to(folder.inside())
                .and_then(|()| found.iter().try_for_each(|(probes, _)| probes.write_to(folder.inside())))
                .map_err(|error| folder.told(error));
            Some(written.map(|()| folder))
        });
        let (folder, unwritten) = match written.transpose() {
            Ok(folder) => (folder.map(Arc::new), None),
            Err(error) => (None, Some(Arc::new(error))),
        };
        KeptResults { probes: found.map(|(probes, spec)| probes.report(spec)), folder, unwritten }
    }
}

/// A folder for the results of a load in `parent`, on record of its own, so that it is removed whatever becomes of the load.
fn new_folder(parent: &Path, seed: u64) -> Result<ResultsFolder> {
    let run = Registry::of_user()?.begin()?;
    ResultsFolder::create(&run, parent, ("load", seed), SystemTime::now())
}
