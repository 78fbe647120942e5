//! What `run.json` of a recording that was explored says (`rotproof crash --recording`), in the words of a page.

use rotproof_report::Page;
use serde_json::Value;

use super::described::{counted, list, number, text};
use super::power_loss;

/// Whether it is that of a recording.
pub(super) fn is_one(run: &Value) -> bool {
    run["explored"].is_string() && run["crash"].is_object()
}

pub(super) fn page(run: &Value) -> Page {
    let crash = &run["crash"];
    let count = |key: &str| list(&crash[key], |_| ()).len() as u64;
    let (failing, unknown, checked) = (count("failures"), count("unknown"), number(&crash["checked"]));
    let is_early = matches!(crash["ended"].as_str(), Some("time" | "stopped"));
    let mut notes = Vec::new();
    if crash["recording"]["is_cut_off"] == true {
        notes.push(
            "The recording was cut off: what came after its last whole record is not known.".to_owned(),
        );
    }
    if is_early {
        notes.push("The exploration was stopped before all its states were looked at.".to_owned());
    }
    Page {
        name: text(&run["explored"]),
        subtitle: format!(
            "a power loss on {}, seed {}, rotproof {}",
            text(&run["subject"]),
            number(&run["seed"]),
            text(&run["rotproof"])
        ),
        passes: Some(checked > 0 && failing == 0 && unknown == 0),
        summary: match (checked, failing, unknown) {
            (0, ..) => "No state was looked at.".to_owned(),
            (_, 0, 0) => {
                format!("{} that may be left were looked at, and each passes.", counted(checked, "state"))
            }
            (_, 0, _) => format!("Of {} nobody knows.", counted(unknown, "state")),
            _ => format!("{} of {checked} that were looked at fail.", counted(failing, "state")),
        },
        power_loss: power_loss::section(crash),
        command: text(&run["command"]),
        notes,
        ..Page::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_looked_at_does_not_pass() {
        let run = |checked: u64, failures: &[u64]| {
            serde_json::json!({
                "explored": "disk.recording", "subject": "ext4", "seed": 1, "rotproof": "0.1.0",
                "crash": { "checked": checked, "failures": failures, "unknown": [], "ended": "time" },
            })
        };
        assert!(is_one(&run(1, &[])) && !is_one(&serde_json::json!({ "target": "x" })));
        assert_eq!(page(&run(0, &[])).passes, Some(false));
        assert_eq!(page(&run(3, &[2])).passes, Some(false));
        let good = page(&run(3, &[]));
        assert_eq!((good.passes, good.notes.len()), (Some(true), 1));
        assert!(good.summary.contains("3 states"), "{}", good.summary);
    }
}
