//! When a rule hits: a pure function of the number of the match, of the bytes up to it, of its time, of chance, or of what the load
//! has said before it.

use std::borrow::Cow;
use std::fmt;

use rotproof_spec::{Bytes, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::at_mark::AtMark;
use crate::chance::Chance;

/// Which of a rule's matches are hits. Matches are numbered from 1, per rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// Every match, until the rule is removed.
    #[default]
    All,
    /// The first match only.
    Once,
    /// Every match beyond the first n.
    After(u64),
    /// The n-th match only.
    Nth(u64),
    /// The match with the n-th byte only, counted over all matches from 1.
    Byte(Bytes),
    /// The first match after the load has set a mark.
    Mark(AtMark),
    /// At regular distances.
    Every(Cycle),
    /// The matches of these numbers, both ends included.
    Between {
        /// First match that is hit.
        from: u64,
        /// Last match that is hit.
        to: u64,
    },
    /// Each with this probability.
    Probability {
        /// How likely.
        chance: Chance,
        /// What is drawn for; `None` is the effect's own unit: blocks for effects on data, requests for others.
        per: Option<Per>,
    },
    /// Matches of requests that entered the stack within a span of time.
    Time {
        /// Since the first request of the phase *run*.
        at: Span,
        /// How long; `None` is to the end.
        lasts: Option<Span>,
    },
    /// Matches of requests that entered the stack within a span of time, each with a probability.
    Within {
        /// How likely.
        chance: Chance,
        /// What is drawn for, as for [`Schedule::Probability`].
        per: Option<Per>,
        /// Since the first request of the phase *run*.
        at: Span,
        /// How long; `None` is to the end.
        lasts: Option<Span>,
    },
}

/// The last `burst` of every `n` matches, counted from the one after `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cycle {
    /// Length of the cycle in matches.
    pub n: u64,
    /// Hits at the end of each cycle.
    pub burst: u64,
    /// Matches before the first cycle.
    pub offset: u64,
}

/// What a probability is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Each block of its own.
    Block,
    /// All blocks of a request at once.
    Request,
}

impl Per {
    /// The word it is written with.
    pub fn word(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Request => "request",
        }
    }
}

impl Cycle {
    /// The n-th, 2n-th, 3n-th ... match.
    pub fn every(n: u64) -> Self {
        Self { n, burst: 1, offset: 0 }
    }

    /// Whether match `number` is a hit. A cycle of nothing, which validation refuses, has none.
    fn hits(self, number: u64) -> bool {
        let Self { n, burst, offset } = self;
        let position = number.checked_sub(offset).and_then(|number| number.checked_sub(1)?.checked_rem(n));
        position.is_some_and(|position| position >= n - burst.min(n))
    }
}

impl Schedule {
    /// Whether the number of a match alone decides.
    pub fn is_counted(self) -> bool {
        !matches!(
            self,
            Self::Byte(_)
                | Self::Mark(_)
                | Self::Probability { .. }
                | Self::Time { .. }
                | Self::Within { .. }
        )
    }

    /// Whether match `number` (from 1) is a hit, for a schedule that counts.
    pub fn hits(self, number: u64) -> bool {
        match self {
            Self::All => true,
            Self::Once => number == 1,
            Self::After(n) => number > n,
            Self::Nth(n) => number == n,
            Self::Every(cycle) => cycle.hits(number),
            Self::Between { from, to } => (from..=to).contains(&number),
            Self::Byte(_)
            | Self::Mark(_)
            | Self::Probability { .. }
            | Self::Time { .. }
            | Self::Within { .. } => false,
        }
    }

    /// Which byte it hits, for a schedule that counts bytes.
    pub(crate) fn byte(self) -> Option<u64> {
        match self {
            Self::Byte(Bytes(number)) => Some(number),
            _ => None,
        }
    }

    /// The mark that it waits for, if it does.
    pub fn mark(self) -> Option<AtMark> {
        match self {
            Self::Mark(mark) => Some(mark),
            _ => None,
        }
    }

    /// The window in time, if it has one: from when, counted from the first request of the phase *run*, and for how long.
    pub fn window(self) -> Option<(Span, Option<Span>)> {
        match self {
            Self::Time { at, lasts } | Self::Within { at, lasts, .. } => Some((at, lasts)),
            _ => None,
        }
    }

    /// A probability within a window in time, if these are one and the other.
    pub(crate) fn together_with(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Probability { chance, per }, Self::Time { at, lasts })
            | (Self::Time { at, lasts }, Self::Probability { chance, per }) => {
                Some(Self::Within { chance, per, at, lasts })
            }
            _ => None,
        }
    }

    /// Whether a request that came so many nanoseconds after the load began lies in the window. Only for a schedule that
    /// has one.
    pub(crate) fn is_open(self, since_begin_ns: u64) -> bool {
        let Some((at, lasts)) = self.window() else { return false };
        let since = u128::from(since_begin_ns);
        let start = at.0.as_nanos();
        since >= start && lasts.is_none_or(|lasts| since < start.saturating_add(lasts.0.as_nanos()))
    }
}

/// How a schedule with arguments looks in YAML.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nth: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    byte: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<AtMark>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    probability: Option<Chance>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    per: Option<Per>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<Span>,
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    lasts: Option<Span>,
}

const EXPECTING: &str = "a schedule: all, once, { every: 3 }, { after: 3 }, { nth: 3 }, { byte: 64KiB }, \
                         { mark: 17 }, { burst: 2, every: 10 }, { from: 5, to: 9 }, { probability: 1% } or { at: 10s, for: 5s }";

impl Form {
    fn of(schedule: Schedule) -> Self {
        let form = Self::default();
        match schedule {
            Schedule::All | Schedule::Once => form,
            Schedule::After(n) => Self { after: Some(n), ..form },
            Schedule::Nth(n) => Self { nth: Some(n), ..form },
            Schedule::Byte(number) => Self { byte: Some(number), ..form },
            Schedule::Mark(mark) => Self { mark: Some(mark), ..form },
            Schedule::Every(Cycle { n, burst, offset }) => Self {
                every: Some(n),
                burst: (burst != 1).then_some(burst),
                offset: (offset != 0).then_some(offset),
                ..form
            },
            Schedule::Between { from, to } => Self { from: Some(from), to: Some(to), ..form },
            Schedule::Probability { chance, per } => Self { probability: Some(chance), per, ..form },
            Schedule::Time { at, lasts } => Self { at: Some(at), lasts, ..form },
            Schedule::Within { chance, per, at, lasts } => {
                Self { probability: Some(chance), per, at: Some(at), lasts, ..form }
            }
        }
    }

    fn schedule(self) -> Result<Schedule, String> {
        let given: Vec<&str> = [
            ("after", self.after.is_some()),
            ("nth", self.nth.is_some()),
            ("byte", self.byte.is_some()),
            ("mark", self.mark.is_some()),
            ("every", self.every.is_some()),
            ("from", self.from.is_some()),
            ("probability", self.probability.is_some()),
            ("at", self.at.is_some()),
        ]
        .into_iter()
        .filter_map(|(word, is_given)| is_given.then_some(word))
        .collect();
        if let [one, other, ..] = given[..]
            && given[..] != ["probability", "at"]
        {
            return Err(format!("`{other}` beside `{one}`: only one of them can be"));
        }
        let lonely =
            |word: &str, with: &str| Err(format!("`{word}` belongs to `{with}`, which is not given"));
        match self {
            Self { burst: Some(_), every: None, .. } => lonely("burst", "every"),
            Self { offset: Some(_), every: None, .. } => lonely("offset", "every"),
            Self { to: Some(_), from: None, .. } => lonely("to", "from"),
            Self { per: Some(_), probability: None, .. } => lonely("per", "probability"),
            Self { lasts: Some(_), at: None, .. } => lonely("for", "at"),
            Self { after: Some(n), .. } => Ok(Schedule::After(n)),
            Self { nth: Some(n), .. } => Ok(Schedule::Nth(n)),
            Self { byte: Some(number), .. } => Ok(Schedule::Byte(number)),
            Self { mark: Some(mark), .. } => Ok(Schedule::Mark(mark)),
            Self { every: Some(n), burst, offset, .. } => {
                Ok(Schedule::Every(Cycle { n, burst: burst.unwrap_or(1), offset: offset.unwrap_or(0) }))
            }
            Self { from: Some(from), to: Some(to), .. } => Ok(Schedule::Between { from, to }),
            Self { from: Some(from), to: None, .. } => {
                Err(format!("`from` needs `to`, the last match that is hit: {{ from: {from}, to: {from} }}"))
            }
            Self { probability: Some(chance), per, at: Some(at), lasts, .. } => {
                Ok(Schedule::Within { chance, per, at, lasts })
            }
            Self { probability: Some(chance), per, .. } => Ok(Schedule::Probability { chance, per }),
            Self { at: Some(at), lasts, .. } => Ok(Schedule::Time { at, lasts }),
            _ => Err(format!("an empty map; give {EXPECTING}")),
        }
    }
}

impl Serialize for Schedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str("all"),
            Self::Once => serializer.serialize_str("once"),
            _ => Form::of(*self).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrForm;

        impl<'de> Visitor<'de> for WordOrForm {
            type Value = Schedule;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTING)
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Schedule, E> {
                match word {
                    "all" | "until_removed" => Ok(Schedule::All),
                    "once" => Ok(Schedule::Once),
                    "after" | "every" | "nth" => {
                        Err(E::custom(format!("`{word}` needs a number: {{ {word}: 3 }}")))
                    }
                    "byte" => Err(E::custom("`byte` needs a number of bytes: { byte: 64KiB }")),
                    "mark" => Err(E::custom(
                        "`mark` needs a number or a text: { mark: \"transaction 17 acknowledged\" }",
                    )),
                    "probability" => Err(E::custom("`probability` needs one: { probability: 1% }")),
                    _ => Err(E::unknown_variant(
                        word,
                        &["all", "once", "after", "every", "nth", "byte", "mark", "probability"],
                    )),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Schedule, A::Error> {
                Form::deserialize(MapAccessDeserializer::new(map))?.schedule().map_err(A::Error::custom)
            }
        }

        deserializer.deserialize_any(WordOrForm)
    }
}

impl JsonSchema for Schedule {
    fn schema_name() -> Cow<'static, str> {
        "Schedule".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (chance, per, span, bytes, mark) = (
            generator.subschema_for::<Chance>(),
            generator.subschema_for::<Per>(),
            generator.subschema_for::<Span>(),
            generator.subschema_for::<Bytes>(),
            generator.subschema_for::<AtMark>(),
        );
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
                { "description": "all, until_removed: every match. once: the first.", "enum": ["all", "until_removed", "once"] },
                with_number("after", "Every match beyond the first n."),
                with_number("nth", "The n-th match only."),
                {
                    "description": "The match with the n-th byte only. Counted are the bytes of each request that lie in blocks that match.",
                    "type": "object",
                    "properties": { "byte": bytes },
                    "required": ["byte"],
                    "additionalProperties": false
                },
                {
                    "description": "The first match after the load has set this mark.",
                    "type": "object",
                    "properties": { "mark": mark },
                    "required": ["mark"],
                    "additionalProperties": false
                },
                {
                    "description": "The n-th, 2n-th, 3n-th ... match; with `burst` the last so many of every n; with `offset` counted from the match after it.",
                    "type": "object",
                    "properties": {
                        "every": { "type": "integer", "minimum": 1 },
                        "burst": { "description": "Hits at the end of every n matches. Default 1.", "type": "integer", "minimum": 1 },
                        "offset": { "description": "Matches before the counting begins. Default 0.", "type": "integer", "minimum": 0 }
                    },
                    "required": ["every"],
                    "additionalProperties": false
                },
                {
                    "description": "The matches with these numbers, both ends included.",
                    "type": "object",
                    "properties": {
                        "from": { "type": "integer", "minimum": 1 },
                        "to": { "type": "integer", "minimum": 1 }
                    },
                    "required": ["from", "to"],
                    "additionalProperties": false
                },
                {
                    "description": "Each match with this probability, drawn from the seed.",
                    "type": "object",
                    "properties": { "probability": chance.clone(), "per": per.clone() },
                    "required": ["probability"],
                    "additionalProperties": false
                },
                {
                    "description": "Each match of requests that come in a span of time with this probability.",
                    "type": "object",
                    "properties": { "probability": chance, "per": per, "at": span.clone(), "for": span.clone() },
                    "required": ["probability", "at"],
                    "additionalProperties": false
                },
                {
                    "description": "Requests that come in a span of time, counted from the first request of the phase run; without `for` to the end.",
                    "type": "object",
                    "properties": { "at": span.clone(), "for": span },
                    "required": ["at"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn cycle(n: u64, burst: u64, offset: u64) -> Schedule {
        Schedule::Every(Cycle { n, burst, offset })
    }

    fn span(seconds: u64) -> Span {
        Span(Duration::from_secs(seconds))
    }

    #[test]
    fn every_500_hits_exactly_the_floor_of_a_500th() {
        for matches in [0, 499, 500, 501, 999, 1000, 316_672] {
            let hits = (1..=matches).filter(|&number| cycle(500, 1, 0).hits(number)).count() as u64;
            assert_eq!(hits, matches / 500, "{matches} matches");
        }
    }

    #[test]
    fn each_schedule_hits_the_matches_it_names() {
        let hits = |schedule: Schedule| (1..=10).filter(|&n| schedule.hits(n)).collect::<Vec<u64>>();
        assert_eq!(hits(Schedule::All), (1..=10).collect::<Vec<_>>());
        assert_eq!(hits(Schedule::Once), [1]);
        assert_eq!(hits(Schedule::After(7)), [8, 9, 10]);
        assert_eq!(hits(cycle(4, 1, 0)), [4, 8]);
        assert_eq!(hits(cycle(4, 2, 1)), [4, 5, 8, 9]);
        assert_eq!(hits(cycle(2, 5, 7)), [8, 9, 10]);
        assert_eq!(hits(Schedule::Nth(6)), [6]);
        assert_eq!(hits(Schedule::Between { from: 3, to: 5 }), [3, 4, 5]);
        for never in [cycle(0, 1, 0), cycle(3, 0, 0), Schedule::Nth(0), Schedule::Between { from: 5, to: 4 }]
        {
            assert!(hits(never).is_empty(), "{never:?}");
        }
    }

    #[test]
    fn a_window_opens_and_closes_in_time() {
        let window = Schedule::Time { at: span(10), lasts: Some(span(5)) };
        let open = |seconds: u64| window.is_open(seconds * 1_000_000_000);
        assert_eq!([9, 10, 14, 15].map(open), [false, true, true, false]);
        assert!(Schedule::Time { at: span(1), lasts: None }.is_open(u64::MAX));
        assert!(!Schedule::All.is_open(0));
    }

    #[test]
    fn a_schedule_survives_json_and_a_missing_number_is_explained() {
        let chance = "2.5%".parse().expect("a chance");
        for schedule in [
            Schedule::All,
            Schedule::Once,
            Schedule::After(3),
            Schedule::Nth(5),
            Schedule::Byte(Bytes(64 << 10)),
            Schedule::Mark(AtMark::Nth(17)),
            Schedule::Mark(AtMark::text("transaction 17 acknowledged")),
            cycle(3, 1, 0),
            cycle(10, 4, 2),
            Schedule::Between { from: 2, to: 9 },
            Schedule::Probability { chance, per: None },
            Schedule::Probability { chance, per: Some(Per::Request) },
            Schedule::Time { at: span(3), lasts: None },
            Schedule::Time { at: span(3), lasts: Some(span(1)) },
        ] {
            let text = serde_json::to_string(&schedule).expect("plain data");
            assert_eq!(serde_json::from_str::<Schedule>(&text).expect(&text), schedule);
        }
        let complaint = |text| serde_json::from_str::<Schedule>(text).expect_err(text).to_string();
        assert!(complaint("\"every\"").contains("{ every: 3 }"));
        assert!(complaint("{\"every\": 3, \"nth\": 4}").contains("only one"));
        assert!(complaint("\"evry\"").contains("unknown variant"));
        assert!(complaint("{\"once\": 3}").contains("unknown field"));
        assert!(complaint("{\"burst\": 3}").contains("belongs to `every`"));
        assert!(complaint("{\"from\": 3}").contains("needs `to`"));
        assert!(complaint("{\"for\": \"3s\"}").contains("belongs to `at`"));
        assert!(complaint("{}").contains("empty map"));
        assert!(complaint("\"mark\"").contains("transaction 17"));
        assert!(complaint("{\"mark\": -1}").contains("from 1"));
        assert!(complaint("\"byte\"").contains("{ byte: 64KiB }"));
        assert!(complaint("{\"byte\": \"1KiB\", \"nth\": 4}").contains("only one"));
    }

    proptest::proptest! {
        #[test]
        fn a_burst_is_the_end_of_each_cycle(n in 1u64..20, burst in 1u64..20, offset in 0u64..20, number in 1u64..200) {
            let expected = number > offset && (number - offset - 1) % n >= n.saturating_sub(burst);
            proptest::prop_assert_eq!(cycle(n, burst, offset).hits(number), expected);
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        for schedule in [
            Schedule::After(u64::MAX),
            cycle(u64::MAX, 1, 0),
            cycle(3, 1, u64::MAX),
            Schedule::Nth(u64::MAX),
            Schedule::Between { from: u64::MAX, to: u64::MAX },
        ] {
            assert!((1..1000).all(|number| !schedule.hits(number)));
            let _ = schedule.hits(u64::MAX);
        }
        assert!(Schedule::All.hits(u64::MAX));
    }
}
