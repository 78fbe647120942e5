//! A rule: which requests are hit, when, with what, and for how long.

use std::borrow::Cow;
use std::fmt;

use rotproof_block::Phase;
use rotproof_spec::{WordOrMap, deserialize_word_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::effect::Effect;
use crate::matching::{Match, OperationKind, OperationMatch};
use crate::one_or_many::OneOrMany;
use crate::schedule::Schedule;
use crate::seen::{Moment, Seen};
use crate::target::Target;

/// One rule of a fault plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// How reports call the rule. Default: fault-1, fault-2, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The place in the stack where it acts: the name of a `faults` layer. Default: the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// Which requests. Default: every read and write.
    #[serde(rename = "match", default)]
    pub matching: Match,
    /// Which of those. Default: all.
    #[serde(default)]
    pub schedule: Schedule,
    /// What happens to them.
    pub effect: Effect,
    /// Whether the place stays bad after the first hit. Default: transient.
    #[serde(default)]
    pub persistence: Persistence,
    /// The parts of the trial in which the rule is enabled. Default: run and check.
    #[serde(default = "during_default")]
    pub during: OneOrMany<EnabledPhase>,
}

pub(crate) fn during_default() -> OneOrMany<EnabledPhase> {
    OneOrMany(vec![EnabledPhase::Run, EnabledPhase::Check])
}

impl Rule {
    /// A rule with this effect and the default for everything else.
    pub fn new(effect: Effect) -> Self {
        Self {
            name: None,
            on: None,
            matching: Match::default(),
            schedule: Schedule::default(),
            effect,
            persistence: Persistence::default(),
            during: during_default(),
        }
    }

    /// The name, or what a rule without one is called at position `index` (from 0) of the plan.
    pub fn name_or_default(&self, index: usize) -> Cow<'_, str> {
        match &self.name {
            Some(name) => name.into(),
            None => format!("fault-{}", index + 1).into(),
        }
    }

    /// Whether the rule can ever hit such an operation in that phase.
    pub fn concerns(&self, operation: OperationKind, phase: Phase) -> bool {
        self.concerns_operation(operation) && self.is_enabled(phase)
    }

    /// Whether it goes by the time since the phase *run* began.
    pub(crate) fn is_by_time(&self) -> bool {
        let is_chosen_by_time =
            matches!(self.matching.target, Some(Target::Seen(Seen { moment: Moment::At(_), .. })));
        is_chosen_by_time || self.schedule.window().is_some()
    }

    pub(crate) fn is_enabled(&self, phase: Phase) -> bool {
        self.during.iter().any(|enabled| Phase::from(*enabled) == phase)
    }

    /// Whether such an operation must be watched, though it is not hit: what a stale read will bring was there before
    /// a write.
    pub(crate) fn watches(&self, operation: OperationKind) -> bool {
        self.effect == Effect::StaleRead
            && operation == OperationKind::Write
            && OperationKind::Read.is_matched_by(self.matching.operation)
    }

    pub(crate) fn watches_in(&self, operation: OperationKind, phase: Phase) -> bool {
        // What was there before is wanted whenever it was written.
        self.watches(operation) && phase != Phase::Setup
    }

    /// Whether its places go bad once, when its window in time opens, and are good for ever once they have been
    /// rewritten, whether anybody had read them by then or not: sectors that fail unnoticed.
    pub(crate) fn goes_bad_once(&self) -> bool {
        matches!(self.persistence, Persistence::UntilRewritten { .. })
            && matches!(self.schedule, Schedule::Time { .. })
            && self.matching.operation == Some(OperationMatch::Read)
            && self.matching.target.is_none()
            && self.matching.content.is_empty()
            && self.effect.is_on_data()
            && self.effect != Effect::StaleRead
    }

    /// Whether such an operation may put right a place of which nobody knows yet that it is bad.
    pub(crate) fn is_healed_by(&self, operation: OperationKind) -> bool {
        matches!(operation, OperationKind::Write | OperationKind::Discard) && self.goes_bad_once()
    }

    /// Whether such an operation suffers in that phase when it touches a place that the rule, being sticky, has left
    /// bad. Then only the operation counts: a discard carries no content, but it touches the place.
    pub(crate) fn keeps_bad(&self, operation: OperationKind, phase: Phase) -> bool {
        operation.is_matched_by(self.matching.operation) && self.is_enabled(phase)
    }

    /// Whether the rule can ever hit such an operation.
    pub fn concerns_operation(&self, operation: OperationKind) -> bool {
        let possible = match operation {
            OperationKind::Read => !self.effect.is_on_writes_alone() && self.effect != Effect::ReadOnly,
            OperationKind::Write => self.effect != Effect::StaleRead,
            OperationKind::Flush => {
                !self.effect.is_on_data() && self.effect != Effect::ReadOnly && !self.matching.is_by_place()
            }
            OperationKind::Discard => !self.effect.is_on_data() && !self.matching.is_by_content(),
        };
        possible && operation.is_matched_by(self.matching.operation)
    }
}

/// What remains of a fault after the request that was hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Persistence {
    /// That request deviates, no other. What a write stored wrong stays wrong until it is overwritten.
    #[default]
    Transient,
    /// The place stays bad for the rest of the run, also after it is rewritten.
    Sticky,
    /// The place stays bad until the whole block is rewritten, as a sector that the drive then remaps.
    UntilRewritten {
        /// How many blocks can be remapped; afterwards places stay bad. `None` is any number.
        spares: Option<u32>,
    },
}

impl Persistence {
    /// Whether a hit leaves a bad place.
    pub fn leaves_place(self) -> bool {
        self != Self::Transient
    }
}

impl WordOrMap for Persistence {
    const WORDS: &'static [&'static str] = &["transient", "sticky", "until_rewritten"];
    const EXPECTING: &'static str =
        "a persistence: transient, sticky, until_rewritten or { until_rewritten: { spares: 8 } }";

    fn from_word(word: &str) -> Option<Result<Self, String>> {
        match word {
            "transient" => Some(Ok(Self::Transient)),
            "sticky" => Some(Ok(Self::Sticky)),
            "until_rewritten" => Some(Ok(Self::UntilRewritten { spares: None })),
            _ => None,
        }
    }

    fn from_map<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Self, A::Error> {
        match key {
            "until_rewritten" => map
                .next_value::<Spares>()
                .map(|Spares { spares }| Self::UntilRewritten { spares: Some(spares) }),
            word => Err(A::Error::custom(format!("`{word}` takes no argument; write `persistence: {word}`"))),
        }
    }
}

/// What `until_rewritten` takes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spares {
    spares: u32,
}

impl Serialize for Persistence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Transient => serializer.serialize_str("transient"),
            Self::Sticky => serializer.serialize_str("sticky"),
            Self::UntilRewritten { spares: None } => serializer.serialize_str("until_rewritten"),
            Self::UntilRewritten { spares: Some(spares) } => {
                serializer.collect_map([("until_rewritten", Spares { spares })])
            }
        }
    }
}

impl<'de> Deserialize<'de> for Persistence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_word_or_map(deserializer)
    }
}

impl JsonSchema for Persistence {
    fn schema_name() -> Cow<'static, str> {
        "Persistence".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "What remains of a fault after the request that was hit.",
            "anyOf": [
                {
                    "description": "transient: that request deviates, no other; what a write stored wrong stays wrong until it is overwritten. sticky: the place stays bad for the rest of the run. until_rewritten: the place stays bad until the whole block is rewritten.",
                    "enum": ["transient", "sticky", "until_rewritten"]
                },
                {
                    "type": "object",
                    "properties": {
                        "until_rewritten": {
                            "description": "The place stays bad until the whole block is rewritten, as long as there are spares.",
                            "type": "object",
                            "properties": {
                                "spares": { "description": "How many blocks can be remapped; afterwards places stay bad.", "type": "integer", "minimum": 0 }
                            },
                            "required": ["spares"],
                            "additionalProperties": false
                        }
                    },
                    "required": ["until_rewritten"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

/// A part of a trial in which rules may be enabled. Never while the subject is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EnabledPhase {
    /// Filling the target before the load.
    Prefill,
    /// The load.
    Run,
    /// Reading everything back.
    Check,
}

impl EnabledPhase {
    /// The words they are written with, in the order of the variants.
    pub(crate) const WORDS: [(&'static str, EnabledPhase); 3] =
        [("prefill", Self::Prefill), ("run", Self::Run), ("check", Self::Check)];

    /// The word it is written with.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize].0
    }
}

impl From<EnabledPhase> for Phase {
    fn from(phase: EnabledPhase) -> Self {
        match phase {
            EnabledPhase::Prefill => Self::Prefill,
            EnabledPhase::Run => Self::Run,
            EnabledPhase::Check => Self::Check,
        }
    }
}

/// An entry of a list of rules: a map, or the short form `"write, every=3: bit_flip"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct RuleEntry(pub Rule);

impl From<RuleEntry> for Rule {
    fn from(entry: RuleEntry) -> Self {
        entry.0
    }
}

impl<'de> Deserialize<'de> for RuleEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = RuleEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a fault: a map with at least `effect`, or its short form such as \"write, every=3: bit_flip\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<RuleEntry, E> {
                text.parse().map(RuleEntry).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RuleEntry, A::Error> {
                Rule::deserialize(MapAccessDeserializer::new(map)).map(RuleEntry)
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for RuleEntry {
    fn schema_name() -> Cow<'static, str> {
        "RuleEntry".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let rule = generator.subschema_for::<Rule>();
        json_schema!({
            "description": "A fault: a map, or its short form.",
            "anyOf": [
                rule,
                {
                    "description": "Conditions, a colon, the effect: \"write, offset=1MiB..2MiB, every=3, sticky: bit_flip(byte=0, bit=0)\".",
                    "type": "string"
                }
            ]
        })
    }
}
