//! What a power loss may leave, from `crash` in `run.json`.

use rotproof_report::{Fact, Hit, Mark, PowerLoss, Row, Span, Timeline};
use serde_json::Value;

use super::described::{counted, list, number, text};

/// Marks of the load that are shown; more would lie over each other.
const MARKS_MAX: usize = 12;

/// The section; none where nothing was explored.
pub(super) fn section(crash: &Value) -> Option<PowerLoss> {
    if !crash.is_object() {
        return None;
    }
    let recording = &crash["recording"];
    let fact = |name: &str, value: String| Fact { name: name.into(), value };
    let failing = crash["failures"].as_array().map_or(0, Vec::len) as u64;
    let unknown = crash["unknown"].as_array().map_or(0, Vec::len) as u64;
    let facts = vec![
        fact(
            "recorded",
            format!(
                "{} with {} bytes, {}, {}",
                counted(number(&recording["writes"]), "write"),
                number(&recording["bytes"]),
                counted(number(&recording["barriers"]), "barrier"),
                counted(number(&recording["marks"]), "mark"),
            ),
        ),
        fact("looked at by", list(&crash["looked"], text).join(", ")),
        fact(
            "states",
            format!(
                "{} looked at, {failing} failing, {unknown} unknown; {:.0} a second",
                number(&crash["checked"]),
                crash["states_per_s"].as_f64().unwrap_or_default()
            ),
        ),
        fact("ended because", ended(&text(&crash["ended"])).to_owned()),
    ];
    let ways = crash["ways"].as_object().into_iter().flatten();
    let ways = ways
        .map(|(name, way)| Row {
            name: name.replace('_', " "),
            cells: ["chosen", "equal", "checked", "failing"].map(|key| number(&way[key]).to_string()).into(),
        })
        .collect();
    let witnesses = list(&crash["witnesses"], |told| {
        let title =
            format!("The smallest failure: {} (state {})", text(&told["kind"]), number(&told["index"]));
        (title, text(&told["story"]))
    });
    Some(PowerLoss { facts, timeline: timeline(crash), ways, witnesses })
}

fn ended(word: &str) -> &str {
    match word {
        "all" => "all states were looked at",
        "states" => "as many states were looked at as were asked for",
        "time" => "the time was over",
        "failures" => "enough states had failed",
        "stopped" => "somebody asked to stop",
        other => other,
    }
}

/// The recording from its first event to its last, by its clock.
fn timeline(crash: &Value) -> Timeline {
    let stretches = crash["timeline"].as_array().map_or(&[][..], Vec::as_slice);
    let marks = crash["marks"].as_array().map_or(&[][..], Vec::as_slice);
    let first =
        stretches.iter().find(|one| number(&one["time_ns"]) > 0).map_or(0, |one| number(&one["time_ns"]));
    let begins: Vec<f64> =
        stretches.iter().map(|one| number(&one["time_ns"]).saturating_sub(first) as f64 / 1e9).collect();
    let at_mark = |mark: &Value| number(&mark["time_ns"]).saturating_sub(first) as f64 / 1e9;
    let last = begins.iter().copied().chain(marks.iter().map(at_mark)).fold(0.0, f64::max);
    let seconds = if last > 0.0 { last * 1.02 } else { 1.0 };
    let phases = stretches
        .iter()
        .enumerate()
        .map(|(at, one)| {
            let epochs = number(&one["epochs"]);
            let what = counted(number(&one["writes"]), "write");
            let name = if epochs > 1 { format!("{epochs} epochs, {what}") } else { format!("epoch, {what}") };
            Span { name, from: begins[at], to: begins.get(at + 1).copied().unwrap_or(seconds) }
        })
        .collect();
    // Of a failing state the position is known; its moment is that of the stretch around it.
    let moment = |position: u64| {
        let after = stretches.partition_point(|one| number(&one["position"]) <= position);
        let at = after.saturating_sub(1);
        let (from, to) =
            (begins.get(at).copied().unwrap_or_default(), begins.get(at + 1).copied().unwrap_or(seconds));
        let position_of = |at: usize| stretches.get(at).map(|one| number(&one["position"]));
        let share = match (position_of(at), position_of(at + 1)) {
            (Some(start), Some(end)) if end > start => (position - start) as f64 / (end - start) as f64,
            _ => 0.5,
        };
        from + (to - from) * share
    };
    let hits = list(&crash["failures"], |failure| {
        let finding = &failure["findings"][0];
        let position = number(&failure["state"]["position"]);
        let what = format!(
            "state {} before event {position}: {}",
            number(&failure["index"]),
            text(&finding["words"])
        );
        Hit { at: moment(position), rule: text(&finding["kind"]), what, count: 1 }
    });
    let step = marks.len().div_ceil(MARKS_MAX).max(1);
    let marks = marks.iter().step_by(step).map(|mark| Mark { at: at_mark(mark), name: text(&mark["text"]) });
    Timeline {
        seconds,
        phases,
        phases_are: Some("epochs"),
        hits,
        marks: marks.collect(),
        ..Timeline::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_states_lie_where_the_power_went() {
        let crash = serde_json::json!({
            "recording": { "writes": 3, "bytes": 12288, "barriers": 2, "marks": 1 },
            "looked": ["mount", "check: ./verify.sh"],
            "checked": 9, "states_per_s": 40.0, "ended": "all", "unknown": [],
            "ways": { "torn": { "chosen": 9, "equal": 1, "checked": 8, "failing": 1 } },
            "timeline": [
                { "position": 0, "time_ns": 1_000_000_000u64, "epochs": 1, "writes": 1 },
                { "position": 10, "time_ns": 2_000_000_000u64, "epochs": 1, "writes": 1 },
                { "position": 20, "time_ns": 3_000_000_000u64, "epochs": 2, "writes": 1 },
            ],
            "marks": [{ "position": 15, "time_ns": 2_500_000_000u64, "text": "transaction 1" }],
            "failures": [{ "index": 4, "state": { "position": 15 },
                           "findings": [{ "kind": "check", "words": "exit code 1" }] }],
            "witnesses": [{ "kind": "check", "index": 4, "story": "The power goes." }],
        });
        let section = section(&crash).expect("it was explored");
        assert_eq!(section.timeline.phases.len(), 3);
        assert!((section.timeline.hits[0].at - 1.5).abs() < 1e-6, "{:?}", section.timeline.hits);
        assert!((section.timeline.marks[0].at - 1.5).abs() < 1e-6);
        assert_eq!(section.ways[0].cells, ["9", "1", "8", "1"]);
        assert!(section.witnesses[0].0.contains("check (state 4)"));
        assert_eq!(super::section(&Value::Null), None);
    }
}
