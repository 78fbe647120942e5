//! The blocks that failed, one by one, as `failures.jsonl` tells of them.

use std::collections::BTreeSet;

use rotproof_block::Result;
use rotproof_load::{Classification, Failure, SectorFinding, Unflushed, Way, error_name};
use rotproof_report::{FailingBlock, Unit};
use serde::Deserialize;

use super::described::counted;
use super::injections::{Each, Names};
use crate::run::CauseRecord;

/// Blocks that are told one by one.
const TOLD_MAX: usize = 500;

/// A line of `failures.jsonl`, or a failure of a load, which lays nothing to anybody.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Failed {
    #[serde(flatten)]
    pub(super) failure: Failure,
    #[serde(default)]
    pub(super) cause: Option<CauseRecord>,
}

impl Failed {
    /// The worst way in which the block failed. Whoever wrote the file has one for each.
    fn worst(&self) -> Option<&Way> {
        (!self.failure.ways.is_empty()).then(|| self.failure.worst())
    }

    /// What that is, in the word of the results.
    pub(super) fn kind(&self) -> &'static str {
        self.worst().map_or("failed", |way| way.what.kind())
    }
}

/// What a way to fail is, in a few words.
fn told(way: &Way) -> String {
    let of_sectors = |kind: &str, sectors: &[SectorFinding]| {
        let right = sectors.iter().filter(|sector| **sector == SectorFinding::Expected).count();
        format!("{kind}: {right} of {} sectors are right", sectors.len())
    };
    match &way.what {
        Classification::FlippedBits { count: 1, bits } if !bits.is_empty() => {
            format!("bit {} of byte {} flipped", bits[0].bit, bits[0].byte)
        }
        Classification::FlippedBits { count, .. } => {
            format!("{} flipped", counted(u64::from(*count), "bit"))
        }
        Classification::Zeroed => "zeros".to_owned(),
        Classification::Stale(stale) => format!("stale: write {} of {}", stale.write, stale.writes),
        Classification::Unflushed(Unflushed { write: Some(write), writes }) => {
            format!("lost with its flush: write {write} of {writes}")
        }
        Classification::Unflushed(_) => "lost with its flush".to_owned(),
        Classification::Misdirected(misdirected) => match misdirected.places.first() {
            Some(place) => format!("misdirected: {} block {}", place.object, place.block),
            None => "misdirected".to_owned(),
        },
        Classification::Torn { sectors } => of_sectors("torn", sectors),
        Classification::Misplaced { sectors } => of_sectors("misplaced", sectors),
        Classification::Unreadable { error } => format!("unreadable: {}", error_name(*error)),
        Classification::Unwritable { error } => format!("unwritable: {}", error_name(*error)),
        Classification::Refused { operation, error } => {
            format!("{} failed: {}", operation.word(), error_name(*error))
        }
        Classification::Lost => "lost: it is not there".to_owned(),
        Classification::Undeleted => "is there, and should not be".to_owned(),
        Classification::WrongSize { expected_bytes, found_bytes } => {
            format!("ends at {found_bytes} instead of {expected_bytes}")
        }
        Classification::Ones | Classification::Noise => way.what.kind().to_owned(),
    }
}

/// When first, doing what, and how often.
fn seen(way: &Way) -> String {
    let times = if way.count > 1 { format!(", {} times in all", way.count) } else { String::new() };
    let at = Unit::Nanoseconds.write(way.time.0 as f64);
    format!("{at}: {} in {}{times}", way.operation.word(), way.phase.word())
}

/// Those that are told, and how many there are.
pub(super) struct Told {
    chosen: Vec<Failed>,
    total: u64,
}

impl Told {
    /// In the order of the results. Of very many the first of each kind are among them.
    pub(super) fn of(failures: &(impl Each<Failed> + ?Sized)) -> Result<Self> {
        let (mut seen, mut firsts, mut rest, mut total) = (BTreeSet::new(), Vec::new(), Vec::new(), 0u64);
        failures.each(&mut |failed| {
            total += 1;
            if seen.insert(failed.kind()) {
                firsts.push(failed.clone());
            } else if rest.len() < TOLD_MAX {
                rest.push(failed.clone());
            }
        })?;
        rest.truncate(TOLD_MAX.saturating_sub(firsts.len()));
        let mut chosen = firsts;
        chosen.append(&mut rest);
        let place = |failed: &Failed| (failed.failure.object.clone(), failed.failure.offset_bytes);
        chosen.sort_by_cached_key(place);
        Ok(Self { chosen, total })
    }

    /// The hits that they are laid to, for [`Told::shown`].
    pub(super) fn names(&self) -> Names {
        Names::wanted(self.chosen.iter().filter_map(|failed| failed.cause?.record()))
    }

    /// As the page shows them, and how many there are in all.
    pub(super) fn shown(&self, names: &Names) -> (Vec<FailingBlock>, u64) {
        let shown = self.chosen.iter().map(|failed| FailingBlock {
            object: failed.failure.object.clone(),
            block: failed.failure.block,
            offset: failed.failure.offset_bytes,
            what: failed.worst().map_or_else(|| "failed".to_owned(), told),
            seen: failed.worst().map_or_else(String::new, seen),
            cause: failed.cause.map_or_else(String::new, |of| cause(of, names)),
        });
        (shown.collect(), self.total)
    }
}

/// What a block is laid to.
fn cause(cause: CauseRecord, names: &Names) -> String {
    let hit = |number: u64| match names.get(number) {
        Some(rule) => format!("{rule}, line {number} of the ledger"),
        None => format!("line {number} of the ledger"),
    };
    match cause {
        CauseRecord::Injection(number) => hit(number),
        CauseRecord::Consequence(number) => format!("follows from {}", hit(number)),
        CauseRecord::Assumed(number) => format!("perhaps {}; not shown", hit(number)),
        CauseRecord::Unexplained => "unexplained".to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rotproof_fault::Injection;
    use serde_json::{Value, json};

    fn blocks(failures: &[Failed], ledger: &[Injection]) -> (Vec<FailingBlock>, u64) {
        let told = Told::of(failures).expect("in memory");
        let mut names = told.names();
        ledger.iter().for_each(|hit| names.add(hit));
        told.shown(&names)
    }

    /// A block that failed in these ways, each what it was and whether something was found.
    pub(in super::super) fn failed(object: &str, block: u64, ways: &[(Value, bool)]) -> Failed {
        let way = |(what, is_found): &(Value, bool)| {
            json!({ "what": what, "found": is_found.then_some("0".repeat(32)), "phase": "check", "operation": "read",
                "expected": [], "time_ns": 1_500_000, "count": 2 })
        };
        let ways: Vec<Value> = ways.iter().map(way).collect();
        let failure = json!({ "object_index": 0, "object": object, "block": block, "offset_bytes": block * 4096, "ways": ways });
        serde_json::from_value(failure).expect("a failure")
    }

    fn told_of(what: Value) -> String {
        told(failed("a", 0, &[(what, true)]).failure.worst())
    }

    #[test]
    fn each_kind_is_told_in_words() {
        assert_eq!(
            told_of(json!({ "kind": "flipped_bits", "count": 1, "bits": [{ "byte": 7, "bit": 3 }] })),
            "bit 3 of byte 7 flipped"
        );
        assert_eq!(told_of(json!({ "kind": "flipped_bits", "count": 70, "bits": [] })), "70 bits flipped");
        assert_eq!(
            told_of(json!({ "kind": "stale", "content": "run:0:1", "write": 2, "writes": 3 })),
            "stale: write 2 of 3"
        );
        let place = json!({ "object": "b", "block": 9, "request": 1 });
        assert_eq!(
            told_of(json!({ "kind": "misdirected", "content": "run:0:1", "places": [place], "writes": 1 })),
            "misdirected: b block 9"
        );
        let nowhere = json!({ "kind": "misdirected", "content": "run:0:1", "places": [], "writes": 0 });
        assert_eq!(told_of(nowhere), "misdirected");
        let sectors = json!([{ "kind": "expected" }, { "kind": "noise" }]);
        assert_eq!(told_of(json!({ "kind": "torn", "sectors": sectors })), "torn: 1 of 2 sectors are right");
        assert_eq!(told_of(json!({ "kind": "unreadable", "error": "medium" })), "unreadable: medium");
        assert_eq!(told_of(json!({ "kind": "noise" })), "noise");
    }

    #[test]
    fn a_block_has_its_rule_and_when_it_was_seen() {
        let ledger: Vec<Injection> = vec![
            serde_json::from_value(json!({ "sequence": 0, "rule": 0, "name": "rot",
            "operation": "read", "offset": 0, "length": 4096, "effect": "zeros", "time_ns": 1, "phase": "run",
            "request": 1 }))
            .expect("a record"),
        ];
        let failure =
            |cause| Failed { cause: Some(cause), ..failed("a", 2, &[(json!({ "kind": "zeroed" }), true)]) };
        let all = [
            CauseRecord::Injection(0),
            CauseRecord::Consequence(0),
            CauseRecord::Assumed(5),
            CauseRecord::Unexplained,
        ];
        let (told, total) = blocks(&all.map(failure), &ledger);
        assert_eq!(total, 4);
        assert_eq!((told[0].what.as_str(), told[0].offset, told[0].block), ("zeros", 8192, 2));
        assert_eq!(told[0].seen, "1.50 ms: read in check, 2 times in all");
        let causes: Vec<&str> = told.iter().map(|block| block.cause.as_str()).collect();
        assert_eq!(
            causes,
            [
                "rot, line 0 of the ledger",
                "follows from rot, line 0 of the ledger",
                "perhaps line 5 of the ledger; not shown",
                "unexplained"
            ]
        );
    }

    #[test]
    fn of_very_many_some_are_told_and_every_kind_is_among_them() {
        let kind = |block: u64| if block == 1999 { "noise" } else { "zeroed" };
        let many: Vec<Failed> =
            (0..2000u64).map(|block| failed("a", block, &[(json!({ "kind": kind(block) }), true)])).collect();
        let (told, total) = blocks(&many, &[]);
        assert_eq!((told.len(), total), (TOLD_MAX, 2000));
        assert!(told.is_sorted_by_key(|block| block.offset));
        assert_eq!(told.last().map(|block| block.what.as_str()), Some("noise"));
    }
}
