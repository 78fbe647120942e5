//! The blocks that failed, one by one, as `failures.jsonl` tells of them.

use std::collections::BTreeSet;

use rotproof_block::Result;
use rotproof_report::{FailingBlock, Unit};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::described::{counted, number, text};
use super::hits::{Each, Names};

/// Blocks that are told one by one.
const TOLD_MAX: usize = 500;

/// What of a line of `failures.jsonl` matters here.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Failed {
    #[serde(default)]
    pub(super) object: String,
    #[serde(default)]
    block: u64,
    #[serde(default)]
    pub(super) offset_bytes: u64,
    #[serde(default)]
    ways: Vec<Way>,
    #[serde(default)]
    cause: Value,
}

/// A way in which a block failed.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Way {
    #[serde(default)]
    found: Option<IgnoredAny>,
    what: Value,
    #[serde(default)]
    phase: String,
    #[serde(default)]
    operation: Value,
    #[serde(default)]
    time_ns: u64,
    #[serde(default)]
    count: u64,
}

impl Failed {
    /// The worst way in which a block failed: wrong data before an error.
    pub(super) fn worst(&self) -> Option<&Way> {
        let is_wrong = |way: &&Way| way.found.is_some() && way.kind() != "unflushed";
        self.ways.iter().find(is_wrong).or(self.ways.first())
    }
}

impl Way {
    /// What it is, in the word of the results.
    pub(super) fn kind(&self) -> &str {
        self.what["kind"].as_str().unwrap_or("failed")
    }

    /// What it is, in a few words.
    fn told(&self) -> String {
        let what = &self.what;
        let of_sectors = |kind: &str| {
            let sectors = what["sectors"].as_array().map_or(&[][..], Vec::as_slice);
            let right = sectors.iter().filter(|sector| sector["kind"] == "expected").count();
            format!("{kind}: {right} of {} sectors are right", sectors.len())
        };
        match self.kind() {
            "flipped_bits" if what["count"] == 1 && what["bits"][0].is_object() => {
                let bit = &what["bits"][0];
                format!("bit {} of byte {} flipped", number(&bit["bit"]), number(&bit["byte"]))
            }
            "flipped_bits" => format!("{} flipped", counted(number(&what["count"]), "bit")),
            "zeroed" => "zeros".to_owned(),
            "stale" => format!("stale: write {} of {}", number(&what["write"]), number(&what["writes"])),
            "unflushed" => match what["write"].as_u64() {
                Some(write) => format!("lost with its flush: write {write} of {}", number(&what["writes"])),
                None => "lost with its flush".to_owned(),
            },
            "misdirected" => match &what["places"][0] {
                place if place.is_object() => {
                    format!("misdirected: {} block {}", text(&place["object"]), number(&place["block"]))
                }
                _ => "misdirected".to_owned(),
            },
            kind @ ("torn" | "misplaced") => of_sectors(kind),
            kind @ ("unreadable" | "unwritable") => format!("{kind}: {}", text(&what["error"])),
            "refused" => format!("{} failed: {}", text(&what["operation"]), text(&what["error"])),
            "lost" => "lost: it is not there".to_owned(),
            "undeleted" => "is there, and should not be".to_owned(),
            "wrong_size" => {
                let [found, expected] = ["found_bytes", "expected_bytes"].map(|key| number(&what[key]));
                format!("ends at {found} instead of {expected}")
            }
            kind => kind.replace('_', " "),
        }
    }

    /// When first, doing what, and how often.
    fn seen(&self) -> String {
        let doing = text(&self.operation);
        let times = if self.count > 1 { format!(", {} times in all", self.count) } else { String::new() };
        let at = Unit::Nanoseconds.write(self.time_ns as f64);
        format!("{at}: {doing} in {}{times}", self.phase)
    }
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
            let kind = failed.worst().map(Way::kind);
            if !seen.contains(&kind.map(str::to_owned)) {
                seen.insert(kind.map(str::to_owned));
                firsts.push(failed.clone());
            } else if rest.len() < TOLD_MAX {
                rest.push(failed.clone());
            }
        })?;
        rest.truncate(TOLD_MAX.saturating_sub(firsts.len()));
        let mut chosen = firsts;
        chosen.append(&mut rest);
        chosen.sort_by(|a, b| (&a.object, a.offset_bytes).cmp(&(&b.object, b.offset_bytes)));
        Ok(Self { chosen, total })
    }

    /// The hits that they are laid to, for [`Told::shown`].
    pub(super) fn names(&self) -> Names {
        let number = |failed: &Failed| CAUSES.iter().find_map(|key| failed.cause[*key].as_u64());
        Names::wanted(self.chosen.iter().filter_map(number))
    }

    /// As the page shows them, and how many there are in all.
    pub(super) fn shown(&self, names: &Names) -> (Vec<FailingBlock>, u64) {
        let told = self.chosen.iter().map(|failed| {
            let worst = failed.worst();
            FailingBlock {
                object: failed.object.clone(),
                block: failed.block,
                offset: failed.offset_bytes,
                what: worst.map_or_else(|| "failed".to_owned(), Way::told),
                seen: worst.map_or_else(String::new, Way::seen),
                cause: cause(&failed.cause, names),
            }
        });
        (told.collect(), self.total)
    }
}

/// The kinds of causes that name a hit.
const CAUSES: [&str; 3] = ["hit", "consequence", "assumed"];

/// What a block is laid to; a load without a trial lays nothing to anybody.
fn cause(cause: &Value, names: &Names) -> String {
    let [hit, consequence, assumed] = CAUSES.map(|key| {
        let number = cause[key].as_u64()?;
        Some(match names.get(number) {
            Some(rule) => format!("{rule}, line {number} of the ledger"),
            None => format!("line {number} of the ledger"),
        })
    });
    match (hit, consequence, assumed) {
        (Some(hit), ..) => hit,
        (_, Some(hit), _) => format!("follows from {hit}"),
        (.., Some(hit)) => format!("perhaps {hit}; not shown"),
        _ => text(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_fault::Record;
    use serde_json::json;

    fn blocks(failures: &[Failed], ledger: &[Record]) -> (Vec<FailingBlock>, u64) {
        let told = Told::of(failures).expect("in memory");
        let mut names = told.names();
        ledger.iter().for_each(|hit| names.add(hit));
        told.shown(&names)
    }

    fn failed(value: Value) -> Failed {
        serde_json::from_value(value).expect("a failure")
    }

    fn told(what: &Value) -> String {
        failed(json!({ "object": "a", "ways": [{ "what": what, "found": "00" }] }))
            .worst()
            .expect("a way")
            .told()
    }

    #[test]
    fn each_kind_is_told_in_words() {
        assert_eq!(
            told(&json!({ "kind": "flipped_bits", "count": 1, "bits": [{ "byte": 7, "bit": 3 }] })),
            "bit 3 of byte 7 flipped"
        );
        assert_eq!(told(&json!({ "kind": "flipped_bits", "count": 70, "bits": [] })), "70 bits flipped");
        assert_eq!(
            told(&json!({ "kind": "stale", "content": 1, "write": 2, "writes": 3 })),
            "stale: write 2 of 3"
        );
        let place = json!({ "object": "b", "block": 9, "request": 1 });
        assert_eq!(
            told(&json!({ "kind": "misdirected", "places": [place], "writes": 1 })),
            "misdirected: b block 9"
        );
        assert_eq!(told(&json!({ "kind": "misdirected", "places": [], "writes": 0 })), "misdirected");
        let sectors = json!([{ "kind": "expected" }, { "kind": "noise" }]);
        assert_eq!(told(&json!({ "kind": "torn", "sectors": sectors })), "torn: 1 of 2 sectors are right");
        assert_eq!(told(&json!({ "kind": "unreadable", "error": "medium" })), "unreadable: medium");
        assert_eq!(told(&json!({ "kind": "something_new" })), "something new");
    }

    #[test]
    fn a_block_has_its_rule_and_when_it_was_seen() {
        let ledger: Vec<Record> = vec![
            serde_json::from_value(json!({ "sequence": 0, "rule": 0, "name": "rot",
            "operation": "read", "offset": 0, "length": 4096, "effect": "zeros", "time_ns": 1, "phase": "run",
            "request": 1 }))
            .expect("a record"),
        ];
        let failure = |cause: Value| {
            failed(json!({ "object": "a", "block": 2, "offset_bytes": 8192, "cause": cause,
            "ways": [{ "what": { "kind": "zeroed" }, "found": "00", "phase": "check", "operation": "read",
                "time_ns": 1_500_000, "count": 2 }] }))
        };
        let all =
            [json!({ "hit": 0 }), json!({ "consequence": 0 }), json!({ "assumed": 5 }), json!("unexplained")];
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
        let many: Vec<Failed> = (0..2000u64).map(|block| {
            let kind = if block == 1999 { "noise" } else { "zeroed" };
            failed(json!({ "object": "a", "offset_bytes": block * 4096, "ways": [{ "what": { "kind": kind }, "found": "0" }] }))
        }).collect();
        let (told, total) = blocks(&many, &[]);
        assert_eq!((told.len(), total), (TOLD_MAX, 2000));
        assert!(told.is_sorted_by_key(|block| block.offset));
        assert_eq!(told.last().map(|block| block.what.as_str()), Some("noise"));
    }
}
