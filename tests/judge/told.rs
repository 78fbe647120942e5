//! What the verdict says, as it stands in the results: the one thing that is judged here.

use std::collections::{BTreeMap, BTreeSet};

use rotproof_trial::expect::Counts;
use rotproof_trial::runner::FailureRecord;
use rotproof_trial::verdict::RuleOutcome;
use serde_json::Value;

use crate::ledger::hash;

/// What can become of a fault.
pub const FATES: [&str; 6] = ["untriggered", "masked", "repaired", "reported", "silent", "unknown"];

/// A verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    pub passes: bool,
    pub counts: BTreeMap<String, u64>,
    pub rules: Vec<Rule>,
    pub failures: Vec<Failure>,
}

/// What came of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub hits: u64,
    pub faults: u64,
    pub fates: BTreeMap<String, u64>,
}

/// A failing block.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub object: u32,
    pub name: String,
    pub block: u64,
    pub ways: Vec<Way>,
    pub cause: Cause,
}

/// One way in which it failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    pub phase: String,
    pub time: u64,
    pub operation: String,
    pub kind: String,
    pub found: Option<u128>,
    pub expected: Vec<Option<u128>>,
    /// Less than the whole block was read.
    pub is_in_part: bool,
}

/// Why, with a line of the ledger.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    Hit(usize),
    Consequence(usize),
    Assumed(usize),
    Unexplained,
}

impl Told {
    pub fn of(passes: bool, counts: &Counts, rules: &[RuleOutcome], failures: &[FailureRecord]) -> Self {
        let numbers = |value: &Value| -> BTreeMap<String, u64> {
            let entries = value.as_object().expect("an object").iter();
            entries.filter_map(|(key, number)| Some((key.clone(), number.as_u64()?))).collect()
        };
        let json = |value: serde_json::Result<Value>| value.expect("results are JSON");
        let rule = |outcome: &RuleOutcome| {
            let outcome = json(serde_json::to_value(outcome));
            Rule {
                hits: outcome["hits"].as_u64().expect("a number"),
                faults: outcome["faults"].as_u64().expect("a number"),
                fates: numbers(&outcome["fates"]),
            }
        };
        Self {
            passes,
            counts: numbers(&json(serde_json::to_value(counts))),
            rules: rules.iter().map(rule).collect(),
            failures: failures
                .iter()
                .map(|record| Failure::of(&json(serde_json::to_value(record))))
                .collect(),
        }
    }

    /// Makes the numbers fit the lists.
    pub fn recount(&mut self) {
        let causes = |certainty| {
            self.failures.iter().filter(|failure| failure.cause.certainty() == certainty).count() as u64
        };
        let files: BTreeSet<u32> = self.failures.iter().map(|failure| failure.object).collect();
        let mut numbers = vec![
            ("failures", self.failures.len() as u64),
            ("failing_files", files.len() as u64),
            ("unexplained", causes(0)),
            ("assumed", causes(1)),
        ];
        for fate in FATES {
            numbers.push((fate, self.rules.iter().map(|rule| rule.fate(fate)).sum()));
        }
        for (name, number) in numbers {
            self.counts.insert(name.to_owned(), number);
        }
    }

    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }
}

impl Rule {
    pub fn fate(&self, name: &str) -> u64 {
        self.fates.get(name).copied().unwrap_or_default()
    }
}

impl Failure {
    fn of(line: &Value) -> Self {
        let way = |way: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let expected = way["expected"].as_array().into_iter().flatten();
            Way {
                phase: text(&way["phase"]),
                time: way["time_ns"].as_u64().expect("a time"),
                operation: text(&way["operation"]),
                kind: text(&way["what"]["kind"]),
                found: hash(&way["found"]),
                expected: expected.map(|version| hash(&version["hash"])).collect(),
                is_in_part: !way["found_sectors"].is_null(),
            }
        };
        let line_of = |word: &str| line["cause"][word].as_u64().map(|number| number as usize);
        let cause = None
            .or_else(|| line_of("injection").map(Cause::Hit))
            .or_else(|| line_of("consequence").map(Cause::Consequence))
            .or_else(|| line_of("assumed").map(Cause::Assumed));
        Self {
            object: line["object_index"].as_u64().expect("a number") as u32,
            name: line["object"].as_str().expect("a name").to_owned(),
            block: line["block"].as_u64().expect("a number"),
            ways: line["ways"].as_array().into_iter().flatten().map(way).collect(),
            cause: cause.unwrap_or(Cause::Unexplained),
        }
    }
}

impl Way {
    /// A request ended with an error.
    pub fn is_error(&self) -> bool {
        matches!(self.kind.as_str(), "unreadable" | "unwritable" | "refused")
    }
}

impl Cause {
    /// How much it claims.
    pub fn certainty(self) -> u8 {
        match self {
            Self::Unexplained => 0,
            Self::Assumed(_) => 1,
            Self::Consequence(_) => 2,
            Self::Hit(_) => 3,
        }
    }

    pub fn line(self) -> Option<usize> {
        match self {
            Self::Hit(line) | Self::Consequence(line) | Self::Assumed(line) => Some(line),
            Self::Unexplained => None,
        }
    }
}
