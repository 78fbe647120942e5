//! When a rule hits: a pure function of the number of the match.

use std::borrow::Cow;
use std::ops::Range;

use rotproof_spec::{WordOrMap, deserialize_word_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess};
use serde::{Deserialize, Deserializer, Serialize};

/// Which of a rule's matches are hits. Matches are numbered from 1, per rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Every match.
    #[default]
    All,
    /// The first match only.
    Once,
    /// Every match beyond the first n.
    After(u64),
    /// The n-th, 2n-th, 3n-th ... match.
    Every(u64),
    /// The n-th match only.
    Nth(u64),
}

impl Schedule {
    /// Whether match `number` (from 1) is a hit.
    pub fn hits(self, number: u64) -> bool {
        match self {
            Self::All => true,
            Self::Once => number == 1,
            Self::After(n) => number > n,
            // Zero is refused by validation; here it never hits, so that no input can divide by it.
            Self::Every(n) => n != 0 && number.is_multiple_of(n),
            Self::Nth(n) => number == n,
        }
    }

    /// The hits among the matches `numbers`, in order, without visiting the others.
    pub fn hits_among(self, numbers: Range<u64>) -> impl Iterator<Item = u64> {
        let Range { start, end } = numbers;
        let (first, step) = match self {
            Self::All => (start, 1),
            Self::Once => (if start <= 1 { 1 } else { end }, u64::MAX),
            Self::After(n) => (start.max(n.saturating_add(1)), 1),
            Self::Every(0) => (end, 1),
            Self::Every(n) => (start.checked_next_multiple_of(n).unwrap_or(end), n),
            Self::Nth(n) => (if start <= n { n } else { end }, u64::MAX),
        };
        let mut next = Some(first);
        std::iter::from_fn(move || {
            let number = next.filter(|&number| number < end)?;
            next = number.checked_add(step);
            Some(number)
        })
    }
}

impl WordOrMap for Schedule {
    const WORDS: &'static [&'static str] = &["all", "once", "after", "every", "nth"];
    const EXPECTING: &'static str = "a schedule: all, once, { every: 3 }, { after: 3 } or { nth: 3 }";

    fn from_word(word: &str) -> Option<Result<Self, String>> {
        match word {
            "all" => Some(Ok(Self::All)),
            "once" => Some(Ok(Self::Once)),
            "after" | "every" | "nth" => Some(Err(format!("`{word}` needs a number: {{ {word}: 3 }}"))),
            _ => None,
        }
    }

    fn from_map<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Self, A::Error> {
        match key {
            "after" => map.next_value().map(Self::After),
            "every" => map.next_value().map(Self::Every),
            "nth" => map.next_value().map(Self::Nth),
            word => Err(A::Error::custom(format!("`{word}` takes no argument; write `schedule: {word}`"))),
        }
    }
}

impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_word_or_map(deserializer)
    }
}

impl JsonSchema for Schedule {
    fn schema_name() -> Cow<'static, str> {
        "Schedule".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let with_number = |word: &str, description: &str| {
            json_schema!({
                "description": description,
                "type": "object",
                "properties": { word: { "type": "integer", "minimum": 1 } },
                "required": [word],
                "additionalProperties": false
            })
        };
        json_schema!({
            "description": "Which of the rule's matches are hits. Matches are blocks for effects on data, requests for errors and delays.",
            "anyOf": [
                { "description": "All: every match. Once: the first.", "enum": ["all", "once"] },
                with_number("after", "Every match beyond the first n."),
                with_number("every", "The n-th, 2n-th, 3n-th ... match."),
                with_number("nth", "The n-th match only.")
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Schedule; 7] = [
        Schedule::All,
        Schedule::Once,
        Schedule::After(3),
        Schedule::Every(1),
        Schedule::Every(3),
        Schedule::Nth(1),
        Schedule::Nth(5),
    ];

    #[test]
    fn every_500_hits_exactly_the_floor_of_a_500th() {
        for matches in [0, 499, 500, 501, 999, 1000, 316_672] {
            let hits = (1..=matches).filter(|&number| Schedule::Every(500).hits(number)).count() as u64;
            assert_eq!(hits, matches / 500, "{matches} matches");
        }
    }

    #[test]
    fn each_schedule_hits_the_matches_it_names() {
        let hits = |schedule: Schedule| (1..=10).filter(|&n| schedule.hits(n)).collect::<Vec<u64>>();
        assert_eq!(hits(Schedule::All), (1..=10).collect::<Vec<_>>());
        assert_eq!(hits(Schedule::Once), [1]);
        assert_eq!(hits(Schedule::After(7)), [8, 9, 10]);
        assert_eq!(hits(Schedule::Every(4)), [4, 8]);
        assert_eq!(hits(Schedule::Nth(6)), [6]);
        assert!(hits(Schedule::Every(0)).is_empty() && hits(Schedule::Nth(0)).is_empty());
    }

    #[test]
    fn a_schedule_survives_json_and_a_missing_number_is_explained() {
        for schedule in ALL {
            let text = serde_json::to_string(&schedule).expect("plain data");
            assert_eq!(serde_json::from_str::<Schedule>(&text).expect(&text), schedule);
        }
        let complaint = |text| serde_json::from_str::<Schedule>(text).expect_err(text).to_string();
        assert!(complaint("\"every\"").contains("{ every: 3 }"));
        assert!(complaint("{\"once\": 3}").contains("takes no argument"));
        assert!(complaint("{\"every\": 3, \"nth\": 4}").contains("only one"));
        assert!(complaint("\"evry\"").contains("unknown variant"));
    }

    proptest::proptest! {
        #[test]
        fn the_hits_of_a_range_are_those_found_one_by_one(
            n in 0u64..12, kind in 0usize..5, start in 1u64..40, count in 0u64..40
        ) {
            let schedule = [
                Schedule::All, Schedule::Once, Schedule::After(n), Schedule::Every(n), Schedule::Nth(n),
            ][kind];
            let numbers = start..start + count;
            let expected: Vec<u64> = numbers.clone().filter(|&number| schedule.hits(number)).collect();
            proptest::prop_assert_eq!(schedule.hits_among(numbers).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        for schedule in [Schedule::After(u64::MAX), Schedule::Every(u64::MAX), Schedule::Nth(u64::MAX)] {
            assert_eq!(schedule.hits_among(1..1000).count(), 0);
        }
        assert_eq!(Schedule::All.hits_among(u64::MAX - 1..u64::MAX).count(), 1);
    }
}
