//! What goes beside the intervals of a load: when it met its first errors.

use rotproof_block::{ErrorKind, Phase, Time};
use rotproof_load::failure::error_name;
use rotproof_load::personality::FileReport;
use rotproof_load::{Classification, LoadReport};
use rotproof_record::{Mark, MarkKind, Recording};

/// Marks the first error of each kind that the load met, with how many there were.
pub fn mark_errors(recording: &Recording, reports: &[LoadReport]) {
    for report in reports {
        let errors = report.incidents.iter().map(|incident| (incident.time, incident.error, 1));
        mark_first(recording, report.phase, errors.collect());
    }
}

/// The same of a load of files.
pub fn mark_file_errors(recording: &Recording, reports: &[FileReport]) {
    for report in reports {
        let told = report.incidents.iter().map(|incident| (incident.time, incident.error, 1));
        let ways = report.failures.iter().flat_map(|failure| &failure.ways);
        let failed = ways.filter_map(|way| match way.what {
            Classification::Unreadable { error }
            | Classification::Unwritable { error }
            | Classification::Refused { error, .. } => Some((way.time, error, way.count)),
            _ => None,
        });
        mark_first(recording, report.phase, told.chain(failed).collect());
    }
}

/// Marks the first of each kind of these errors: when, what, how often.
fn mark_first(recording: &Recording, phase: Phase, mut errors: Vec<(Time, ErrorKind, u64)>) {
    errors.sort_by_key(|&(time, ..)| time);
    let mut first: Vec<(String, Time, u64)> = Vec::new();
    for (time, error, count) in errors {
        let name = error_name(error);
        match first.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, _, sum)) => *sum += count,
            None => first.push((name, time, count)),
        }
    }
    for (name, at, count) in first {
        let text = format!("first error of its kind in the phase {}", phase.word()).into();
        recording.mark(Mark { count: Some(count), text, ..Mark::moment(MarkKind::Event, &name, at) });
    }
}
