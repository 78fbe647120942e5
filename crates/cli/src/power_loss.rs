//! What a power loss during the load may leave, for a person.

use std::path::Path;

use rotproof_crash::{CrashReport, Pace};

use crate::output::{Paint, visible};
use crate::table::{Align, Table};
use crate::units::{self, count, counted};
use crate::verdict::wrapped;

/// Witnesses and states of which nobody knows that are told.
const TOLD_MAX: usize = 3;

/// The section, after an empty line; `pace` is how fast states were looked at.
pub fn render(report: &CrashReport, pace: Option<Pace>, folder: &Path, paint: Paint) -> Vec<String> {
    let found = &report.exploration;
    let recording = &report.recording;
    let mut lines = vec![String::new(), paint.bold("Power loss").to_string()];
    lines.extend(wrapped(&format!(
        "Recorded: {} with {}, {}, {}.",
        counted(recording.writes, "write"),
        units::bytes(recording.bytes),
        counted(recording.barriers, "barrier"),
        counted(recording.marks, "mark"),
    )));
    lines.extend(wrapped(&format!(
        "{} looked at by {}{}: {} failing, {} unknown{}.",
        counted(found.checked, "state"),
        report.looked.join(", ").chars().map(visible).collect::<String>(),
        pace.map_or_else(String::new, |pace| format!(", {:.0} a second", pace.states_per_s)),
        count(found.failures.len() as u64),
        count(found.unknown.len() as u64),
        match report.partly_judged {
            0 => String::new(),
            part => format!(", {} partly judged", count(part)),
        },
    )));
    for what in &report.not_shown {
        lines.extend(wrapped(&format!("Not shown: {}", what.chars().map(visible).collect::<String>())));
    }
    use Align::{Left, Right};
    let mut table =
        Table::new(&[("states", Left), ("looked at", Right), ("equal", Right), ("failing", Right)]);
    for (name, way) in &found.ways {
        table.row([name.clone(), count(way.checked), count(way.equal), count(way.failing)]);
    }
    lines.push(table.render(paint));
    for told in found.witnesses.iter().take(TOLD_MAX) {
        lines.push(String::new());
        let visible = |line: &str| format!("  {}", line.chars().map(visible).collect::<String>());
        lines.extend(told.story.lines().map(visible));
        let state = folder.join(format!("state-{}.json", told.index));
        let again = format!("  rotproof crash --state {} --image crashed.img", state.display());
        lines.push(paint.dim(again).to_string());
    }
    for unknown in found.unknown.iter().take(TOLD_MAX) {
        let why = format!("unknown: {}: {}", unknown.state.words(), unknown.why);
        lines.extend(wrapped(&why.chars().map(visible).collect::<String>()));
    }
    lines
}
