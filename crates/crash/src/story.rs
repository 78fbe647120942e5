//! A witness as a story: what the load was told, which writes were under way, which survived, what was lost.

use std::fmt::Write as _;

use crate::check::Mark;
use crate::point::{Point, Survivor};
use crate::ranges::count;
use crate::ways::Role;
use crate::window::Volatile;
use crate::witness::{Reference, Witness};

/// So many of the last marks, and of the writes around the difference, are told.
const TOLD_MAX: usize = 12;

/// Tells it in lines of plain text.
pub fn story(witness: &Witness, point: &Point, marks: &[Mark]) -> String {
    let mut text = String::new();
    let state = &witness.state;
    let _ = writeln!(
        text,
        "The power goes before event {} of the recording: {} times something had become durable, {} writes are volatile.",
        point.position(),
        point.epoch(),
        point.volatile().len()
    );
    let before: Vec<&Mark> = marks.iter().filter(|mark| mark.position < point.position()).collect();
    if !before.is_empty() {
        let _ = writeln!(text, "The load had been told or said:");
        if before.len() > TOLD_MAX {
            let _ = writeln!(text, "  ... {} marks before", before.len() - TOLD_MAX);
        }
        for mark in &before[before.len().saturating_sub(TOLD_MAX)..] {
            let _ = writeln!(text, "  event {}: {}", mark.position, mark.text);
        }
    }
    let is_different =
        |write: &Volatile| witness.difference.iter().any(|differs| differs.write == write.position);
    match witness.reference {
        Reference::AllSurvive => {
            let _ =
                writeln!(text, "Every volatile write survives but what is marked; with it the check passes:");
        }
        Reference::NoneSurvive => {
            let _ =
                writeln!(text, "No volatile write survives but what is marked; without it the check passes:");
        }
        Reference::Neither => {
            let _ = writeln!(
                text,
                "What is durable fails by itself: with all volatile writes there, and with none of them, the check fails."
            );
        }
    }
    let at = point.volatile().iter().position(is_different).unwrap_or(0);
    let told = at.saturating_sub(TOLD_MAX / 2)..point.volatile().len();
    let mut left = TOLD_MAX;
    for write in &point.volatile()[told] {
        if left > 0 || is_different(write) {
            left = left.saturating_sub(1);
            let mark = if is_different(write) { ">" } else { " " };
            let _ = writeln!(text, "{mark} {}", line(write, point, &state.survivors));
        }
    }
    let _ = writeln!(text, "Found:");
    for finding in &witness.findings {
        let _ = writeln!(text, "  {}: {}", finding.kind, finding.words);
    }
    text
}

/// One write and what becomes of it.
fn line(write: &Volatile, point: &Point, survivors: &[Survivor]) -> String {
    let sector_bytes = point.sector_bytes();
    let (offset, length) =
        (write.sectors.start * sector_bytes, (write.sectors.end - write.sectors.start) * sector_bytes);
    let total = count(&point.units_of(write));
    let there: Vec<&Survivor> =
        survivors.iter().filter(|survivor| survivor.write == write.position).collect();
    let fate = if there.is_empty() {
        "lost".to_owned()
    } else if there.iter().any(|survivor| survivor.units.is_none()) {
        "survives".to_owned()
    } else {
        let units: Vec<_> =
            there.iter().flat_map(|survivor| survivor.units.iter().flatten().cloned()).collect();
        format!("torn: {} of {total} units survive, {units:?}", count(&units))
    };
    let when = match write.completed {
        Some(completed) if write.failed => format!("failed at {completed}"),
        Some(completed) => format!("acknowledged at {completed}"),
        None => "under way".to_owned(),
    };
    let what = match Role::of(offset, &write.beginning) {
        Role::Commit => ", a commit block",
        Role::Journal => ", of a journal",
        Role::Metadata => ", metadata",
        Role::Data => "",
    };
    let tag = if write.tag.is_empty() { String::new() } else { format!(", tag {}", write.tag) };
    format!(
        "event {}: {} of {length} bytes at {offset}{what}{tag}, {when}: {fate}",
        write.position, write.verb
    )
}
