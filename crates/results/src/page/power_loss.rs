//! What a power loss may leave, from `crash` in `run.json`.

use rotproof_crash::{CrashReport, Ended, FailingState, Pace, ToldWitness, WayReport};
use rotproof_report::{Fact, Mark, PowerLoss, Row, ShownInjection, Span, Timeline};

use super::described::counted;

/// Marks of the load that are shown; more would lie over each other.
const MARKS_MAX: usize = 12;

/// The section; `pace` is how fast states were looked at.
pub(super) fn section(crash: &CrashReport, pace: Option<Pace>) -> PowerLoss {
    let CrashReport { recording, exploration: found, partly_judged, .. } = crash;
    let fact = |name: &str, value: String| Fact { name: name.into(), value };
    let mut facts = vec![
        fact(
            "recorded",
            format!(
                "{} with {} bytes, {}, {}",
                counted(recording.writes, "write"),
                recording.bytes,
                counted(recording.barriers, "barrier"),
                counted(recording.marks, "mark"),
            ),
        ),
        fact("looked at by", crash.looked.join(", ")),
        fact(
            "states",
            format!(
                "{} looked at, {} failing, {} unknown{}{}",
                found.checked,
                found.failures.len(),
                found.unknown.len(),
                match partly_judged {
                    0 => String::new(),
                    part => format!(", {part} partly judged"),
                },
                pace.map_or_else(String::new, |pace| format!("; {:.0} a second", pace.states_per_s))
            ),
        ),
        fact("ended because", ended(found.ended).to_owned()),
    ];
    facts.extend(crash.not_shown.iter().map(|what| fact("not shown", what.clone())));
    let way = |(name, way): (&String, &WayReport)| Row {
        name: name.replace('_', " "),
        cells: [way.chosen, way.equal, way.checked, way.failing].map(|count| count.to_string()).into(),
    };
    let witness = |told: &ToldWitness| {
        (format!("The smallest failure: {} (state {})", told.kind, told.index), told.story.clone())
    };
    PowerLoss {
        facts,
        timeline: timeline(crash),
        ways: found.ways.iter().map(way).collect(),
        witnesses: found.witnesses.iter().map(witness).collect(),
    }
}

fn ended(why: Ended) -> &'static str {
    match why {
        Ended::All => "all states were looked at",
        Ended::States => "as many states were looked at as were asked for",
        Ended::Time => "the time was over",
        Ended::Failures => "enough states had failed",
        Ended::Stopped => "somebody asked to stop",
    }
}

/// The recording from its first event to its last, by its clock.
fn timeline(crash: &CrashReport) -> Timeline {
    let (stretches, marks) = (&crash.timeline, &crash.marks);
    let first = stretches.iter().find(|one| one.time_ns > 0).map_or(0, |one| one.time_ns);
    let since = |time_ns: u64| time_ns.saturating_sub(first) as f64 / 1e9;
    let begins: Vec<f64> = stretches.iter().map(|one| since(one.time_ns)).collect();
    let last = begins.iter().copied().chain(marks.iter().map(|mark| since(mark.time_ns))).fold(0.0, f64::max);
    let seconds = if last > 0.0 { last * 1.02 } else { 1.0 };
    let phases = stretches
        .iter()
        .enumerate()
        .map(|(at, one)| {
            let what = counted(one.writes, "write");
            let name = if one.epochs > 1 {
                format!("{} epochs, {what}", one.epochs)
            } else {
                format!("epoch, {what}")
            };
            Span { name, from: begins[at], to: begins.get(at + 1).copied().unwrap_or(seconds) }
        })
        .collect();
    // Of a failing state the position is known; its moment is that of the stretch around it.
    let moment = |position: u64| {
        let after = stretches.partition_point(|one| one.position <= position);
        let at = after.saturating_sub(1);
        let (from, to) =
            (begins.get(at).copied().unwrap_or_default(), begins.get(at + 1).copied().unwrap_or(seconds));
        let position_of = |at: usize| stretches.get(at).map(|one| one.position);
        let share = match (position_of(at), position_of(at + 1)) {
            (Some(start), Some(end)) if end > start => (position - start) as f64 / (end - start) as f64,
            _ => 0.5,
        };
        from + (to - from) * share
    };
    let hit = |failure: &FailingState| {
        let position = failure.state.position;
        let (kind, words) =
            failure.findings.first().map_or(("", ""), |finding| (&*finding.kind, &*finding.words));
        let what = format!("state {} before event {position}: {words}", failure.index);
        ShownInjection { at: moment(position), rule: kind.to_owned(), what, count: 1 }
    };
    let step = marks.len().div_ceil(MARKS_MAX).max(1);
    let mark = |mark: &rotproof_crash::Mark| Mark { at: since(mark.time_ns), name: mark.text.clone() };
    Timeline {
        seconds,
        phases,
        phases_are: Some("epochs"),
        hits: crash.exploration.failures.iter().map(hit).collect(),
        marks: marks.iter().step_by(step).map(mark).collect(),
        ..Timeline::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_states_lie_where_the_power_went() {
        let state = serde_json::json!({ "recording": "0", "way": "torn", "position": 15, "epoch": 1, "marks": 0,
            "unit_bytes": 4096, "volatile": 1, "survivors": [] });
        let crash = serde_json::json!({
            "recording": { "events": 9, "writes": 3, "bytes": 12288, "barriers": 2, "marks": 1, "file_bytes": 1 },
            "begin": 0, "passed": 5, "partly_judged": 3,
            "looked": ["mount", "check: ./verify.sh"],
            "checked": 9, "pace": { "seconds": 1.0, "states_per_s": 40.0 }, "ended": "all", "unknown": [],
            "ways": { "torn": { "chosen": 9, "equal": 1, "checked": 8, "failing": 1 } },
            "timeline": [
                { "position": 0, "time_ns": 1_000_000_000u64, "epochs": 1, "writes": 1, "bytes": 1 },
                { "position": 10, "time_ns": 2_000_000_000u64, "epochs": 1, "writes": 1, "bytes": 1 },
                { "position": 20, "time_ns": 3_000_000_000u64, "epochs": 2, "writes": 1, "bytes": 1 },
            ],
            "marks": [{ "position": 15, "time_ns": 2_500_000_000u64, "text": "transaction 1" }],
            "failures": [{ "index": 4, "state": state,
                           "findings": [{ "kind": "check", "words": "exit code 1" }] }],
            "witnesses": [{ "kind": "check", "index": 4, "story": "The power goes.", "witness": {
                "state": state, "findings": [], "reference": "all_survive", "difference": [], "checked": 1 } }],
        });
        let crash = serde_json::from_value(crash).expect("what an exploration says");
        let section = section(&crash, None);
        assert_eq!(section.facts[2].value, "9 looked at, 1 failing, 0 unknown, 3 partly judged");
        assert_eq!(section.timeline.phases.len(), 3);
        assert!((section.timeline.hits[0].at - 1.5).abs() < 1e-6, "{:?}", section.timeline.hits);
        assert!((section.timeline.marks[0].at - 1.5).abs() < 1e-6);
        assert_eq!(section.ways[0].cells, ["9", "1", "8", "1"]);
        assert!(section.witnesses[0].0.contains("check (state 4)"));
    }
}
