//! Where hits lie on the device and failures in the objects of the load.

use std::collections::BTreeMap;

use rotproof_fault::Record;
use rotproof_report::{Strip, StripMark};
use serde_json::Value;

/// Objects with a strip of their own, those with the most failures.
const OBJECTS_MAX: usize = 24;
/// A failing block.
const BLOCK_BYTES: u64 = 4096;

/// The device under the faults layer, then the objects with failures.
pub(super) fn strips(run: &Value, ledger: &[Record], failures: &[Value]) -> Vec<Strip> {
    let mut strips = Vec::new();
    if !ledger.is_empty() {
        let marks: Vec<StripMark> = ledger
            .iter()
            .map(|hit| StripMark { offset: hit.offset, length: hit.length, kind: hit.name.to_string() })
            .collect();
        let bytes = size(&run["faulty_bytes"], &marks);
        strips.push(Strip { name: "hits".into(), shows_rules: true, bytes, marks });
    }
    let mut objects: BTreeMap<&str, Vec<StripMark>> = BTreeMap::new();
    for failure in failures {
        let object = failure["object"].as_str().unwrap_or_default();
        let offset = failure["offset_bytes"].as_u64().unwrap_or_default();
        let kind = kind(failure).to_owned();
        objects.entry(object).or_default().push(StripMark { offset, length: BLOCK_BYTES, kind });
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

/// The worst way in which a block failed: wrong data before an error.
fn kind(failure: &Value) -> &str {
    let ways = || failure["ways"].as_array().into_iter().flatten();
    let is_wrong = |way: &&Value| !way["found"].is_null() && way["what"]["kind"] != "unflushed";
    let worst = ways().find(is_wrong).or_else(|| ways().next());
    worst.and_then(|way| way["what"]["kind"].as_str()).unwrap_or("failed")
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

    #[test]
    fn failures_are_told_by_their_worst_way_and_objects_have_their_size() {
        let failure = |object: &str, offset: u64| {
            json!({ "object": object, "offset_bytes": offset, "ways": [
                { "what": { "kind": "unreadable" } }, { "found": "00", "what": { "kind": "stale" } }] })
        };
        let run = json!({ "failures": { "object_bytes": { "a": 1 << 20 } } });
        let strips = strips(&run, &[], &[failure("a", 4096), failure("b", 8192)]);
        assert_eq!(strips.len(), 2);
        assert_eq!((strips[0].bytes, strips[1].bytes), (1 << 20, 12288));
        assert_eq!(strips[0].marks[0].kind, "stale");
    }

    #[test]
    fn of_many_files_those_with_the_most_failures_are_shown() {
        let failures: Vec<Value> = (0..100u64)
            .flat_map(|file| (0..=file).map(move |block| (file, block)))
            .map(|(file, block)| json!({ "object": format!("{file:03}"), "offset_bytes": block * 4096 }))
            .collect();
        let strips = strips(&json!({}), &[], &failures);
        assert_eq!(strips.len(), OBJECTS_MAX);
        assert_eq!((strips[0].name.as_str(), strips[23].name.as_str()), ("076", "099"));
    }
}
