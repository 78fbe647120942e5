//! What a load without a trial keeps of its course: what is recorded over time, and what probes see meanwhile.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use rotproof_block::Result;
use rotproof_block::error::IoContext;
use rotproof_record::{Recording, RecordingOptions};

use super::Record;
use crate::host::{self, Cancel};
use crate::probe::{ProbeReport, ProbesSpec, Sampler};
use crate::runner::{Monitor, new_folder};

/// Both, as far as they were asked for.
pub(super) struct Kept<'a> {
    /// With the folder in which that of the results is made, if it is to be kept.
    recording: Option<(Arc<Recording>, Option<&'a PathBuf>)>,
    probes: Option<(Sampler, &'a ProbesSpec)>,
}

/// What is left of it in the end.
pub(super) struct KeptResults {
    pub(super) probes: Option<ProbeReport>,
    /// The folder with the tables.
    pub(super) folder: Option<PathBuf>,
}

impl<'a> Kept<'a> {
    /// Begins both. The recording is of these operations, by so many workers.
    pub(super) fn start(
        record: Option<&'a Record>,
        (operations, workers): (&'static [&'static str], u16),
        probes: Option<&'a ProbesSpec>,
        (epoch, cancel): (Instant, &Cancel),
        monitor: &Monitor,
    ) -> Result<Self> {
        let start_recording = |Record { spec, results }: &'a Record| {
            if let Some(results) = results {
                fs::create_dir_all(results)
                    .doing(|| format!("creating the results folder {}", results.display()))?;
            }
            let folder = results.clone().unwrap_or_else(env::temp_dir);
            let options = RecordingOptions { spec: spec.clone(), operations, workers, folder };
            let recording = Recording::new(options)?;
            monitor.record_in(&recording);
            Ok((recording, results.as_ref()))
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
    pub(super) fn add_subject_disk(&self, path: &std::path::Path) {
        if let Some((probes, _)) = &self.probes
            && let Some(disk) = host::disk_of(path)
        {
            probes.add_subject_disk(&disk);
        }
    }

    /// A phase begins, for the probes.
    pub(super) fn begin_phase(&self, is_run: bool) {
        self.probes.iter().for_each(|(probes, _)| probes.begin_phase(is_run));
    }

    /// Ends both, and writes what they have found into a new folder, if there is to be one.
    pub(super) fn end(self, seed: u64) -> Result<KeptResults> {
        let found = self.probes.map(|(probes, spec)| (probes.end(), spec));
        let folder = match &self.recording {
            None | Some((_, None)) => None,
            Some((recording, Some(results))) => {
                let folder = new_folder(results, ("load", seed), SystemTime::now())?;
                recording.write_to(&folder)?;
                found.iter().try_for_each(|(probes, _)| probes.write_to(&folder))?;
                Some(folder)
            }
        };
        Ok(KeptResults { probes: found.map(|(probes, spec)| probes.report(spec)), folder })
    }
}
