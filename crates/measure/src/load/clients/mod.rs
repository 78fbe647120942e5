//! One load from several machines: a controller has clients do its workers' work, each some of them, and puts together what
//! they say.
//!
//! It is the same load as with all the workers on one machine: what each does follows from the load, the seed and its
//! number, and each has its own part of the target. Phases begin everywhere at once, when all are ready. Counts and
//! histograms are added up, never averages; blocks are verified where they were written.

mod client;
mod controller;
mod message;

use rotproof_block::{Result, Time};
use rotproof_load::engine::LoadOperation;
use rotproof_record::{RecordSpec, Recording, RecordingOptions};

use message::Told;

pub use client::serve;
pub use controller::{CLIENTS_MAX, ClientOutcome, ClientsCommand};

/// Does with a line what a controller does when a client says it, all but to wait for the next: whether it is a message at
/// all. For those who try lines on it; nothing is kept.
pub fn try_line(line: &str) -> bool {
    let Ok(told) = serde_json::from_str(line) else { return false };
    match told {
        Told::Interval(interval) => {
            let heard = || -> Result<()> {
                let spec = RecordSpec::default();
                let operations = LoadOperation::NAMES;
                let folder = std::env::temp_dir();
                let recording = Recording::new(RecordingOptions { spec, operations, workers: 4, folder })?;
                recording.begin_phase("run", 4);
                recording.begin_at(Time(7));
                recording.add_remote(&interval)?;
                recording.end_phase(Time(7), None, Time(8));
                Ok(())
            };
            // What makes no sense is an error, and that is all.
            let _ = heard();
        }
        Told::Phase(report) => {
            let report = report.into_report(Time(7));
            let mut sum = report.clone();
            sum.add(report);
            crate::summarise(&[sum]);
        }
        Told::Hello { .. } | Told::Ready { .. } | Told::Progress(..) | Told::End(_) | Told::Failed { .. } => {
        }
    }
    true
}
