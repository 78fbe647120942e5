//! What `run.json` of a recording that was explored says (`rotproof crash --recording`), in the words of a page.

use rotproof_crash::{CrashReport, Ended};
use rotproof_report::Page;

use super::described::counted;
use super::power_loss;
use crate::run::CrashRun;

pub(super) fn page(run: &CrashRun) -> Page {
    let CrashReport { recording, exploration: found, .. } = &run.crash;
    let (failing, unknown) = (found.failures.len() as u64, found.unknown.len() as u64);
    let checked = found.checked;
    let mut notes = Vec::new();
    if recording.is_cut_off {
        notes.push(
            "The recording was cut off: what came after its last whole record is not known.".to_owned(),
        );
    }
    if matches!(found.ended, Ended::Time | Ended::Stopped) {
        notes.push("The exploration was stopped before all its states were looked at.".to_owned());
    }
    Page {
        name: run.explored.clone(),
        subtitle: format!("a power loss on {}, seed {}, rotproof {}", run.subject, run.seed, run.rotproof),
        passes: Some(checked > 0 && failing == 0 && unknown == 0),
        summary: match (checked, failing, unknown) {
            (0, ..) => "No state was looked at.".to_owned(),
            (_, 0, 0) => {
                format!("{} that may be left were looked at, and each passes.", counted(checked, "state"))
            }
            (_, 0, _) => format!("Of {} nobody knows.", counted(unknown, "state")),
            _ => format!("{} of {checked} that were looked at fail.", counted(failing, "state")),
        },
        power_loss: Some(power_loss::section(&run.crash, run.crash.exploration.pace)),
        command: run.command.clone(),
        notes,
        ..Page::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_looked_at_does_not_pass() {
        let state = serde_json::json!({ "recording": "0", "way": "torn", "position": 1, "epoch": 1, "marks": 0,
            "unit_bytes": 4096, "volatile": 1, "survivors": [] });
        let run = |checked: u64, failures: &[u64]| -> CrashRun {
            let failures: Vec<_> = failures
                .iter()
                .map(|index| serde_json::json!({ "index": index, "state": state, "findings": [] }))
                .collect();
            let run = serde_json::json!({
                "format": 1, "explored": "disk.recording", "subject": "ext4", "seed": 1, "rotproof": "0.1.0", "command": "",
                "crash": {
                    "recording": { "events": 1, "writes": 1, "bytes": 1, "barriers": 1, "marks": 1, "file_bytes": 1 },
                    "begin": 0, "looked": [], "checked": checked, "passed": 0, "failures": failures, "unknown": [],
                    "ways": {}, "witnesses": [], "ended": "time", "pace": { "seconds": 1.0, "states_per_s": 1.0 }, "timeline": [],
                    "marks": [],
                },
            });
            serde_json::from_value(run).expect("what an exploration says")
        };
        assert_eq!(page(&run(0, &[])).passes, Some(false));
        assert_eq!(page(&run(3, &[2])).passes, Some(false));
        let good = page(&run(3, &[]));
        assert_eq!((good.passes, good.notes.len()), (Some(true), 1));
        assert!(good.summary.contains("3 states"), "{}", good.summary);
    }
}
