//! What an exploration came to as a whole: the recording in figures and over time, who looked at its states, what was found.

use std::collections::BTreeSet;
use std::path::Path;

use rotproof_block::Result;
use rotproof_block::error::IoContext;
use serde::{Deserialize, Serialize};

use crate::check::Mark;
use crate::explore::Exploration;
use crate::recording::{Ending, Reader, What};

/// Of a longer recording, epochs are told in so many stretches, and so many marks.
const STRETCHES_MAX: usize = 500;

/// What a recording came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RecordingReport {
    /// Events, completions and marks included.
    pub events: u64,
    /// Writes, discards and writes of zeros.
    pub writes: u64,
    /// Bytes that they concern.
    pub bytes: u64,
    /// How often something became durable.
    pub barriers: u64,
    /// Marks that the load has set.
    pub marks: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// The recorder was killed, or the file was cut off: what came after its last whole record is not known.
    #[serde(default)]
    pub is_cut_off: bool,
}

/// What an exploration came to.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct CrashReport {
    /// The recording.
    pub recording: RecordingReport,
    /// No crash was looked at before the event with this position.
    pub begin: u64,
    /// Who looked at each state.
    pub looked: Vec<String>,
    /// What these states cannot show, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_shown: Vec<String>,
    /// What was found.
    #[serde(flatten)]
    pub exploration: Exploration,
    /// States in which nothing wrong was found, but of which only a part was judged: they neither pass nor fail.
    #[serde(default)]
    pub partly_judged: u64,
    /// The recording from its first event to its last.
    pub timeline: Vec<Stretch>,
    /// Where its marks are; of very many some.
    pub marks: Vec<Mark>,
}

/// A stretch of a recording: one epoch, or of a long recording several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Stretch {
    /// Position of its first event.
    pub position: u64,
    /// When it began, in nanoseconds of the recording.
    pub time_ns: u64,
    /// How many epochs it is.
    pub epochs: u64,
    /// Writes in it.
    pub writes: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl CrashReport {
    /// Puts what was found beside the recording that it was found in. `all_marks` are those of the recording.
    pub fn new(
        recording: &Path,
        begin: u64,
        looked: Vec<String>,
        exploration: Exploration,
        all_marks: Vec<Mark>,
    ) -> Result<Self> {
        let (recording, timeline) = survey(recording)?;
        let not_shown = Vec::new();
        let marks = thinned(all_marks);
        Ok(Self { recording, begin, looked, not_shown, exploration, partly_judged: 0, timeline, marks })
    }

    /// Nobody has judged these states whole: those that passed were good only as far as somebody looked.
    pub fn judged_in_part(&mut self) {
        self.partly_judged += std::mem::take(&mut self.exploration.passed);
    }
}

/// Reads a recording once: how much it is, and its epochs.
pub fn survey(path: &Path) -> Result<(RecordingReport, Vec<Stretch>)> {
    let mut report = RecordingReport {
        file_bytes: std::fs::metadata(path).doing(|| format!("looking at {}", path.display()))?.len(),
        ..RecordingReport::default()
    };
    let mut reader = Reader::open(path)?;
    let mut stretches = vec![Stretch { epochs: 1, ..Stretch::default() }];
    // Requests under way that make something durable once they complete.
    let mut open: BTreeSet<u64> = BTreeSet::new();
    while let Some(event) = reader.next_event()? {
        report.events += 1;
        let last = stretches.last_mut().expect("there is one from the beginning");
        let mut wrote = |bytes: u64| {
            report.writes += 1;
            report.bytes += bytes;
            last.writes += 1;
            last.bytes += bytes;
        };
        match event.what {
            What::Write(write) => {
                wrote(write.length);
                if write.fua {
                    open.insert(event.position);
                }
            }
            What::Discard { length, .. } | What::WriteZeroes { length, .. } => wrote(length),
            What::Flush => {
                open.insert(event.position);
            }
            What::Done { request, ok } => {
                if open.remove(&request) && ok {
                    report.barriers += 1;
                    let (position, time_ns) = (event.position + 1, event.time_ns);
                    stretches.push(Stretch { position, time_ns, epochs: 1, ..Stretch::default() });
                    if stretches.len() > 2 * STRETCHES_MAX {
                        stretches = halved(&stretches);
                    }
                }
            }
            What::Mark(_) => report.marks += 1,
            What::End => {}
        }
    }
    report.is_cut_off = matches!(reader.ending(), Some(Ending::Truncated { .. }));
    Ok((report, stretches))
}

/// Every two stretches as one.
fn halved(stretches: &[Stretch]) -> Vec<Stretch> {
    let joined = |pair: &[Stretch]| Stretch {
        epochs: pair.iter().map(|one| one.epochs).sum(),
        writes: pair.iter().map(|one| one.writes).sum(),
        bytes: pair.iter().map(|one| one.bytes).sum(),
        ..pair[0].clone()
    };
    stretches.chunks(2).map(joined).collect()
}

fn thinned(marks: Vec<Mark>) -> Vec<Mark> {
    let step = marks.len().div_ceil(STRETCHES_MAX).max(1);
    marks.into_iter().step_by(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Header, Recorder, RecorderOptions};
    use rotproof_block::Tag;

    #[test]
    fn a_long_recording_is_told_in_few_stretches_and_one_that_was_cut_off_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("r");
        let header = Header { size: 1 << 20, block_size: 512, atomic_write_bytes: 4096, id: 1 };
        let recorder = Recorder::create(&path, header, RecorderOptions { same_bits: 4 }).expect("a new file");
        for number in 0..3000u64 {
            recorder.done(number, recorder.write(number, 0, number % 2 == 0, Tag::NONE, &[1; 512]), true);
            recorder.mark(number, "one more");
        }
        recorder.done(3000, recorder.flush(3000), true);
        recorder.finish().expect("there is room");
        let (report, stretches) = survey(&path).expect("a recording");
        assert_eq!(
            (report.writes, report.bytes, report.barriers, report.marks),
            (3000, 1_536_000, 1501, 3000)
        );
        assert!(!report.is_cut_off);
        assert!(stretches.len() <= 2 * STRETCHES_MAX);
        assert_eq!(stretches.iter().map(|one| one.epochs).sum::<u64>(), 1502);
        assert_eq!(stretches.iter().map(|one| one.writes).sum::<u64>(), 3000);
        let file = std::fs::File::options().write(true).open(&path).expect("it is there");
        file.set_len(report.file_bytes - 3).expect("it can be cut");
        let (cut, _) = survey(&path).expect("what is left of it");
        assert!(cut.is_cut_off && cut.events < report.events, "{cut:?}");
    }
}
