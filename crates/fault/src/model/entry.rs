//! An entry of a trial's list of faults: a rule, or a model that is drawn into rules. Each a map or one line.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::Model;
use crate::effect::Effect;
use crate::matching::Match;
use crate::one_or_many::OneOrMany;
use crate::rule::{EnabledPhase, Persistence, Rule, RuleEntry, during_default};
use crate::schedule::Schedule;
use crate::short_text::split_outside;

/// What a model is written with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelEntry {
    /// How reports call the model; its rules are called `NAME.part`. Default: fault-1, fault-2, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The place in the stack where it acts: the name of a `faults` layer. Default: the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// Which model, with its parameters.
    pub model: Model,
    /// The parts of the trial in which its rules are enabled. Default: run and check.
    #[serde(default = "during_default")]
    pub during: OneOrMany<EnabledPhase>,
}

/// A fault of a trial: a rule, or a model.
#[expect(clippy::large_enum_variant, reason = "a plan has a few of them, and nearly all are rules")]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum FaultEntry {
    /// A rule as it is.
    Rule(Rule),
    /// A model, to be drawn into rules.
    Model(ModelEntry),
}

impl FaultEntry {
    /// The name, or what an entry without one is called at position `index` (from 0) of the list.
    pub fn name_or_default(&self, index: usize) -> Cow<'_, str> {
        match self {
            Self::Rule(Rule { name, .. }) | Self::Model(ModelEntry { name, .. }) => match name {
                Some(name) => name.into(),
                None => format!("fault-{}", index + 1).into(),
            },
        }
    }

    /// Gives it a name.
    pub fn set_name(&mut self, to: String) {
        match self {
            Self::Rule(Rule { name, .. }) | Self::Model(ModelEntry { name, .. }) => *name = Some(to),
        }
    }

    /// The name of the place where it is to act, if it names one.
    pub fn on(&self) -> Option<&str> {
        match self {
            Self::Rule(Rule { on, .. }) | Self::Model(ModelEntry { on, .. }) => on.as_deref(),
        }
    }

    /// Whether it acts on memory, not in the stack.
    pub fn is_on_memory(&self) -> bool {
        self.rule().is_some_and(Rule::is_on_memory)
    }

    /// The rule, if it is one.
    pub fn rule(&self) -> Option<&Rule> {
        match self {
            Self::Rule(rule) => Some(rule),
            Self::Model(_) => None,
        }
    }
}

impl From<RuleEntry> for FaultEntry {
    fn from(RuleEntry(rule): RuleEntry) -> Self {
        Self::Rule(rule)
    }
}

impl FromStr for FaultEntry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = split_outside(text, ':')?;
        let (conditions, effect) = match parts.as_slice() {
            [effect] => ("", effect.trim()),
            [conditions, effect] => (*conditions, effect.trim()),
            _ => return text.parse().map(Self::Rule),
        };
        let Some(arguments) = effect.strip_prefix("model").map(str::trim_start) else {
            return text.parse().map(Self::Rule);
        };
        let arguments =
            arguments.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).ok_or_else(|| {
                format!("`{effect}` names no model; write for example model(bit_rot, acceleration=1e6)")
            })?;
        let arguments = split_outside(arguments, ',')?;
        let arguments: Vec<&str> = arguments.into_iter().map(str::trim).collect();
        let (word, parameters) = arguments.split_first().map_or(("", &[][..]), |(word, rest)| (*word, rest));
        let model = Model::from_text(word, parameters)?;
        // Name, place and phases are written, and read, as those of a rule; everything else a model decides itself.
        let rule: Rule = match conditions.trim() {
            "" => Rule::new(Effect::MediumError),
            conditions => format!("{conditions}: medium_error").parse()?,
        };
        let Rule { name, on, during, .. } = rule.clone();
        let plain = Rule {
            name: name.clone(),
            on: on.clone(),
            during: during.clone(),
            ..Rule::new(Effect::MediumError)
        };
        if rule != plain {
            return Err(format!(
                "`{}` beside a model; a model decides itself what it hits and when, and takes only name, on and during",
                conditions.trim()
            ));
        }
        Ok(Self::Model(ModelEntry { name, on, model, during }))
    }
}

impl fmt::Display for ModelEntry {
    /// The short form; what is left out is the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, on, model, during } = self;
        // Printed as the conditions of a rule are.
        let rule = Rule {
            name: name.clone(),
            on: on.clone(),
            during: during.clone(),
            ..Rule::new(Effect::MediumError)
        };
        let conditions = rule.to_string();
        let conditions = conditions.strip_suffix("medium_error").unwrap_or_default();
        write!(f, "{conditions}model({model})")
    }
}

impl fmt::Display for FaultEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => rule.fmt(f),
            Self::Model(entry) => entry.fmt(f),
        }
    }
}

/// All keys of both kinds of entry.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    on: Option<String>,
    #[serde(default)]
    model: Option<Model>,
    #[serde(rename = "match", default)]
    matching: Option<Match>,
    #[serde(default)]
    schedule: Option<Schedule>,
    #[serde(default)]
    effect: Option<Effect>,
    #[serde(default)]
    persistence: Option<Persistence>,
    #[serde(default)]
    during: Option<OneOrMany<EnabledPhase>>,
}

impl Form {
    fn entry<E: Error>(self) -> Result<FaultEntry, E> {
        let Self { name, on, model, matching, schedule, effect, persistence, during } = self;
        let during = during.unwrap_or_else(during_default);
        let Some(model) = model else {
            let effect = effect.ok_or_else(|| E::missing_field("effect"))?;
            let (matching, schedule) = (matching.unwrap_or_default(), schedule.unwrap_or_default());
            let persistence = persistence.unwrap_or_default();
            return Ok(FaultEntry::Rule(Rule { name, on, matching, schedule, effect, persistence, during }));
        };
        let beside = [
            ("match", matching.is_some()),
            ("schedule", schedule.is_some()),
            ("effect", effect.is_some()),
            ("persistence", persistence.is_some()),
        ];
        match beside.into_iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => Err(E::custom(format!(
                "`{key}` beside `model`; a model decides itself what it hits and when, and takes only name, on and during"
            ))),
            None => Ok(FaultEntry::Model(ModelEntry { name, on, model, during })),
        }
    }
}

impl<'de> Deserialize<'de> for FaultEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entry;

        impl<'de> Visitor<'de> for Entry {
            type Value = FaultEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a fault: a map with `effect` or `model`, or its short form such as \"write, every=3: bit_flip\"",
                )
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<FaultEntry, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FaultEntry, A::Error> {
                Form::deserialize(MapAccessDeserializer::new(map))?.entry()
            }
        }

        deserializer.deserialize_any(Entry)
    }
}

impl JsonSchema for FaultEntry {
    fn schema_name() -> Cow<'static, str> {
        "FaultEntry".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (rule, model) = (generator.subschema_for::<Rule>(), generator.subschema_for::<ModelEntry>());
        json_schema!({
            "description": "A fault: a rule or a model, as a map or in its short form.",
            "anyOf": [
                rule,
                model,
                {
                    "description": "Conditions, a colon, the effect: \"write, offset=1MiB..2MiB, every=3, sticky: bit_flip(byte=0, bit=0)\"; or a model: \"name=rot: model(bit_rot, acceleration=1e6)\".",
                    "type": "string"
                }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> FaultEntry {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    fn complaint(text: &str) -> String {
        text.parse::<FaultEntry>().map(|entry| entry.to_string()).expect_err(text)
    }

    #[test]
    fn a_rule_is_read_as_ever() {
        let text = "name=lost, write, every=3: lost_write";
        assert_eq!(entry(text), FaultEntry::Rule(text.parse().expect("a rule")));
        assert_eq!(complaint("wirte: zeros"), "wirte: zeros".parse::<Rule>().expect_err("a mistake"));
        let json = r#"{ "match": { "operation": "write" }, "effect": "zeros" }"#;
        assert_eq!(serde_json::from_str::<FaultEntry>(json).expect("a rule"), entry("write: zeros"));
        let missing = serde_json::from_str::<FaultEntry>(r#"{ "name": "x" }"#).expect_err("no effect");
        assert!(missing.to_string().contains("effect"), "{missing}");
    }

    #[test]
    fn each_model_is_read_in_both_forms_and_survives_both() {
        for (text, json) in [
            ("model(latent_sector_errors)", r#"{ "model": "latent_sector_errors" }"#),
            (
                "name=media, during=run: model(latent_sector_errors, acceleration=1000000, over=10s, front=50%)",
                r#"{ "name": "media", "during": "run",
                     "model": { "latent_sector_errors": { "front": 0.5, "over": "10s", "acceleration": 1e6 } } }"#,
            ),
            (
                "model(undetected_disk_errors, dropped=0.001, read=1e-9)",
                r#"{ "model": { "undetected_disk_errors": { "dropped": 0.001, "read": 1e-9 } } }"#,
            ),
            ("model(bit_rot, bits=3)", r#"{ "model": { "bit_rot": { "bits": 3 } } }"#),
            (
                "model(fail_slow, form=partial, share=20%, slowness=uniform=1ms|9ms)",
                r#"{ "model": { "fail_slow": { "form": "partial", "share": "20%", "slowness": "uniform=1ms|9ms" } } }"#,
            ),
            (
                "model(dying_disk, errors=7, spares=0)",
                r#"{ "model": { "dying_disk": { "errors": 7, "spares": 0 } } }"#,
            ),
            (
                "model(whole_disk_failure, afr=13%, shape=1.5)",
                r#"{ "model": { "whole_disk_failure": { "afr": "13%", "shape": 1.5 } } }"#,
            ),
        ] {
            let short = entry(text);
            assert_eq!(serde_json::from_str::<FaultEntry>(json).expect(json), short, "{text}");
            assert_eq!(entry(&short.to_string()), short, "{short}");
            let json = serde_json::to_string(&short).expect("plain data");
            assert_eq!(serde_json::from_str::<FaultEntry>(&json).expect(&json), short, "{json}");
        }
        assert_eq!(entry("model(bit_rot, rate=1, bits=3)").to_string(), "model(bit_rot, bits=3)");
    }

    #[test]
    fn what_is_wrong_with_a_model_is_explained() {
        for (text, part) in [
            ("model", "model(bit_rot, acceleration=1e6)"),
            ("model()", "unknown fault model ``"),
            ("model(bitrot)", "did you mean `bit_rot`"),
            ("model(bit_rot, raet=1)", "unknown parameter of bit_rot `raet`; did you mean `rate`"),
            ("model(bit_rot, colour=1)", "known are rate, acceleration, life, over, bits"),
            ("model(bit_rot, rate)", "key=value"),
            ("model(bit_rot, rate=1, rate=2)", "given twice"),
            ("model(bit_rot, rate=-1)", "no number from 0 on"),
            ("model(bit_rot, life=soon)", "no span of time"),
            ("model(fail_slow, form=odd)", "permanent"),
            ("read: model(bit_rot)", "takes only name, on and during"),
            ("every=3: model(bit_rot)", "takes only name, on and during"),
            ("nmae=x: model(bit_rot)", "did you mean `name`"),
        ] {
            assert!(complaint(text).contains(part), "{text}: {}", complaint(text));
        }
        for (json, part) in [
            (r#"{ "model": "bitrot" }"#, "unknown variant"),
            (r#"{ "model": { "bit_rot": { "raet": 1 } } }"#, "unknown field `raet`"),
            (r#"{ "model": "bit_rot", "schedule": "once" }"#, "`schedule` beside `model`"),
            (r#"{ "model": { "bit_rot": {}, "fail_slow": {} } }"#, "only one of them"),
        ] {
            let error = serde_json::from_str::<FaultEntry>(json).expect_err(json).to_string();
            assert!(error.contains(part), "{json}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text: String, inner in "[a-z_=,.0-9() |%-]{0,40}") {
            let _ = text.parse::<FaultEntry>();
            let _ = format!("model({inner})").parse::<FaultEntry>();
            let _ = format!("model(fail_slow, {inner})").parse::<FaultEntry>();
        }
    }
}
