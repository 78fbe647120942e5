//! Where hits lie on the device and failures in the objects of the load.

use std::collections::{BTreeMap, BTreeSet};

use rotproof_fault::Record;
use rotproof_report::{Strip, StripMark};
use serde_json::Value;

use super::failing::Failed;
use super::over_time::EACH_MAX;

/// Objects with a strip of their own, those with the most failures.
const OBJECTS_MAX: usize = 24;
/// A failing block.
const BLOCK_BYTES: u64 = 4096;

/// How finely a device with very many hits is divided: several times as finely as the page can show it.
const PLACES: u64 = 8192;

/// The device under the faults layer, then the objects with failures.
pub(super) fn strips(run: &Value, ledger: &[Record], failures: &[Failed]) -> Vec<Strip> {
    let mut strips = Vec::new();
    let sites = ledger.iter().map(|hit| &*hit.on).collect::<BTreeSet<_>>();
    let is_one = sites.len() == 1 && run["sites"].as_array().is_none_or(|sites| sites.len() == 1);
    for site in sites {
        let of_it: Vec<&Record> = ledger.iter().filter(|hit| *hit.on == *site).collect();
        let needed = of_it.iter().map(|hit| hit.offset.saturating_add(hit.length)).max();
        let said = run["sites"].as_array().into_iter().flatten().find(|said| said["name"] == *site);
        let said = said.and_then(|said| said["bytes"].as_u64()).unwrap_or_default();
        let bytes = said.max(needed.unwrap_or_default());
        let name = if is_one { "hits".to_owned() } else { format!("hits on {site}") };
        strips.push(Strip { name, shows_rules: true, bytes, marks: hits(&of_it, bytes) });
    }
    let mut objects: BTreeMap<&str, Vec<StripMark>> = BTreeMap::new();
    for failure in failures {
        let kind = failure.worst().map_or("failed", |way| way.kind()).to_owned();
        let mark = StripMark { offset: failure.offset_bytes, length: BLOCK_BYTES, kind, count: 1 };
        objects.entry(&failure.object).or_default().push(mark);
    }
    let mut objects: Vec<(&str, Vec<StripMark>)> = objects.into_iter().collect();
    if objects.len() > OBJECTS_MAX {
        objects.sort_by_key(|(_, marks)| std::cmp::Reverse(marks.len()));
        objects.truncate(OBJECTS_MAX);
        objects.sort_by_key(|&(name, _)| name);
    }
    strips.extend(objects.into_iter().map(|(name, marks)| Strip {
        name: name.to_owned(),
        shows_rules: false,
        bytes: size(&run["failures"]["object_bytes"][name], &marks),
        marks,
    }));
    strips
}

/// A mark for each hit, or of very many for those of one rule at about the same place.
fn hits(ledger: &[&Record], bytes: u64) -> Vec<StripMark> {
    let mark = |hit: &Record, offset, end: u64, count| StripMark {
        offset,
        length: end - offset,
        kind: hit.name.to_string(),
        count,
    };
    let end = |hit: &Record| hit.offset.saturating_add(hit.length);
    if ledger.len() <= EACH_MAX {
        return ledger.iter().map(|&hit| mark(hit, hit.offset, end(hit), 1)).collect();
    }
    let place = (bytes / PLACES).max(1);
    let mut shared: BTreeMap<(&str, u64), (&Record, u64, u64, u64)> = BTreeMap::new();
    for &hit in ledger {
        let entry = shared.entry((&hit.name, hit.offset / place)).or_insert((hit, hit.offset, end(hit), 0));
        *entry = (entry.0, entry.1.min(hit.offset), entry.2.max(end(hit)), entry.3 + 1);
    }
    shared.into_values().map(|(hit, offset, end, count)| mark(hit, offset, end, count)).collect()
}

/// What the run says, or what the marks need.
fn size(said: &Value, marks: &[StripMark]) -> u64 {
    let needed = marks.iter().map(|mark| mark.offset.saturating_add(mark.length)).max().unwrap_or_default();
    said.as_u64().unwrap_or_default().max(needed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn failed(value: Value) -> Failed {
        serde_json::from_value(value).expect("a failure")
    }

    #[test]
    fn very_many_hits_share_marks_and_all_of_them_count() {
        let line = |number: u64| {
            let record = json!({ "sequence": number, "rule": number % 2, "name": format!("rule-{}", number % 2),
                "operation": "read", "offset": number * 7919 % 16_384 * 4096, "length": 4096, "effect": "zeros",
                "time_ns": number * 1000, "phase": "run", "request": number });
            serde_json::from_value::<Record>(record).expect("a record")
        };
        let many = EACH_MAX as u64 * 3;
        let ledger: Vec<Record> = (0..many).map(line).collect();
        let found = strips(&json!({ "sites": [{ "name": "faults", "bytes": 64 << 20 }] }), &ledger, &[]);
        let marks = &found[0].marks;
        assert!(marks.len() <= 2 * PLACES as usize, "{}", marks.len());
        assert_eq!(marks.iter().map(|mark| mark.count).sum::<u64>(), many);
        for hit in &ledger {
            let covers = |mark: &&StripMark| {
                mark.kind == *hit.name && mark.offset <= hit.offset && hit.offset < mark.offset + mark.length
            };
            let at = marks.partition_point(|mark| {
                (mark.kind.as_str(), mark.offset + mark.length) <= (&*hit.name, hit.offset)
            });
            assert!(marks.get(at).is_some_and(|mark| covers(&mark)), "{hit:?}");
        }
        let shown =
            super::super::over_time::timeline(std::path::Path::new("/nowhere"), &ledger).expect("no tables");
        assert!(shown.hits.len() < 4 * 8192 + 1, "{}", shown.hits.len());
        assert_eq!(shown.hits.iter().map(|hit| hit.count).sum::<u64>(), many);
        assert!(shown.hits.is_sorted_by(|a, b| a.at <= b.at));
        let last = ledger.last().expect("many").time_ns as f64 / 1e9;
        assert!((shown.seconds - last).abs() < 1e-12);
        let few = strips(&json!({}), &ledger[..100], &[]);
        assert_eq!(few[0].marks.len(), 100, "few are shown each for itself");
    }

    #[test]
    fn failures_are_told_by_their_worst_way_and_objects_have_their_size() {
        let failure = |object: &str, offset: u64| {
            failed(json!({ "object": object, "offset_bytes": offset, "ways": [
                { "found": null, "what": { "kind": "unreadable", "error": "medium" } },
                { "found": "00", "what": { "kind": "stale" } }] }))
        };
        let run = json!({ "failures": { "object_bytes": { "a": 1 << 20 } } });
        let strips = strips(&run, &[], &[failure("a", 4096), failure("b", 8192)]);
        assert_eq!(strips.len(), 2);
        assert_eq!((strips[0].bytes, strips[1].bytes), (1 << 20, 12288));
        assert_eq!(strips[0].marks[0].kind, "stale");
    }

    #[test]
    fn of_many_files_those_with_the_most_failures_are_shown() {
        let failures: Vec<Failed> = (0..100u64)
            .flat_map(|file| (0..=file).map(move |block| (file, block)))
            .map(|(file, block)| {
                failed(json!({ "object": format!("{file:03}"), "offset_bytes": block * 4096 }))
            })
            .collect();
        let strips = strips(&json!({}), &[], &failures);
        assert_eq!(strips.len(), OBJECTS_MAX);
        assert_eq!((strips[0].name.as_str(), strips[23].name.as_str()), ("076", "099"));
    }
}
