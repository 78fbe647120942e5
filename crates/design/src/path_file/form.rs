//! The YAML of a path file.

use std::borrow::Cow;
use std::path::PathBuf;

use rotproof_model::Checksum;
use rotproof_spec::{Span, WordOrMap, deserialize_word_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::MapAccess;
use serde::{Deserialize, Deserializer};

use super::rates::{DiskRate, Fraction, MemoryRate, SwitchText};

/// A design of the reliability model: the stages that a block passes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "keys such as name and stages")]
pub struct PathForm {
    /// How tables call it. Default: the name of the file.
    pub name: Option<String>,
    /// When the protection changes from `before` to `after`.
    pub switch: Option<SwitchText>,
    /// What the block passes, in order; at least one.
    #[serde(default)]
    pub stages: Vec<StageForm>,
}

/// One stage.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "keys such as device, time and protection")]
pub struct StageForm {
    /// How tables and `checked` call it. Default: the device and its number.
    pub name: Option<String>,
    /// Where the block is.
    pub device: DeviceForm,
    /// How long it is there. Memory needs one; a disk only with `rot`.
    pub time: Option<TimeForm>,
    /// What protects it there. Default: none.
    #[serde(default)]
    #[schemars(with = "Option<ProtectionForm>")]
    pub protection: ProtectionForm,
    /// The stage at whose end the checksum is checked. Default: this one.
    pub checked: Option<String>,
    /// Of a disk: what an error is repaired from.
    pub redundancy: Option<RedundancyForm>,
}

/// `memory`, `disk`, or either with what is special about it.
#[derive(Clone, Debug)]
pub enum DeviceForm {
    Memory(MemoryForm),
    Disk(DiskForm),
}

/// A memory with what is special about it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "keys such as rate and bursts")]
pub struct MemoryForm {
    /// Errors that come with time. Default: of the machine.
    pub rate: Option<MemoryRate>,
    /// After a wrong bit, the probability that the next is wrong too, below 1. Not with `clustering`.
    pub bursts: Option<f64>,
    /// Shape of the distribution of the rate over devices, 1e-6 to 1e6. Not with `bursts`.
    pub clustering: Option<f64>,
}

/// A disk with what is special about it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "keys such as rate, rot and scrub")]
pub struct DiskForm {
    /// Errors of each bit read. Default: of the machine.
    pub rate: Option<DiskRate>,
    /// Errors that come while the block lies there. `bursts`, `clustering` and `scrub` are of them.
    pub rot: Option<MemoryRate>,
    /// After a wrong bit, the probability that the next is wrong too, below 1. Not with `clustering`.
    pub bursts: Option<f64>,
    /// Shape of the distribution of the rate over devices, 1e-6 to 1e6. Not with `bursts`.
    pub clustering: Option<f64>,
    /// Time between two scrubs, above 0s.
    pub scrub: Option<Span>,
}

impl WordOrMap for DeviceForm {
    const WORDS: &'static [&'static str] = &["memory", "disk"];
    const EXPECTING: &'static str = "memory or disk, alone or with its rate";

    fn from_word(word: &str) -> Option<Result<Self, String>> {
        match word {
            "memory" => Some(Ok(Self::Memory(MemoryForm::default()))),
            "disk" => Some(Ok(Self::Disk(DiskForm::default()))),
            _ => None,
        }
    }

    fn from_map<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Self, A::Error> {
        if key == "memory" { map.next_value().map(Self::Memory) } else { map.next_value().map(Self::Disk) }
    }
}

impl<'de> Deserialize<'de> for DeviceForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_word_or_map(deserializer)
    }
}

impl JsonSchema for DeviceForm {
    fn schema_name() -> Cow<'static, str> {
        "Device".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut forms = vec![json_schema!({
            "description": "A device of the machine.",
            "enum": <Self as WordOrMap>::WORDS
        })];
        let (memory, disk) = (generator.subschema_for::<MemoryForm>(), generator.subschema_for::<DiskForm>());
        for (word, schema) in [("memory", memory), ("disk", disk)] {
            forms.push(json_schema!({
                "description": "A device with rates of its own.",
                "type": "object",
                "properties": { word: schema },
                "required": [word],
                "additionalProperties": false
            }));
        }
        json_schema!({ "description": "memory or disk, alone or with its rate.", "anyOf": forms })
    }
}

/// `residency`, or a span.
#[derive(Clone, Copy, Debug)]
pub enum TimeForm {
    Residency,
    Span(Span),
}

impl<'de> Deserialize<'de> for TimeForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl serde::de::Visitor<'_> for Text {
            type Value = TimeForm;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("residency, or a span from 0s on such as 30s")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<TimeForm, E> {
                if text == "residency" {
                    return Ok(TimeForm::Residency);
                }
                text.parse().map(TimeForm::Span).map_err(|_| {
                    E::custom(format!(
                        "`{text}` is no time; give residency, or a span from 0s on such as 30s"
                    ))
                })
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<TimeForm, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<TimeForm, E> {
                self.visit_str(&number.to_string())
            }
        }

        deserializer.deserialize_any(Text)
    }
}

impl JsonSchema for TimeForm {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let span = generator.subschema_for::<Span>();
        json_schema!({
            "description": "The residency, from reading a block to using it, or a span.",
            "anyOf": [{ "const": "residency" }, span]
        })
    }
}

/// A checksum, a list of them, or one before and one after the switch.
#[derive(Clone, Debug)]
pub enum ProtectionForm {
    Fixed(Vec<ChecksumForm>),
    Switched(Switched),
}

impl Default for ProtectionForm {
    fn default() -> Self {
        Self::Fixed(Vec::new())
    }
}

#[derive(Clone, Debug)]
pub struct Switched {
    pub before: Vec<ChecksumForm>,
    pub after: Vec<ChecksumForm>,
}

/// A known word, or a checksum by its figures.
#[derive(Clone, Debug)]
pub enum ChecksumForm {
    Known(Checksum),
    Custom(CustomChecksum),
}

/// A checksum by its figures: distance and fraction, or what a campaign has measured.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "keys such as distance and fraction")]
pub struct CustomChecksum {
    /// How tables call it.
    pub name: Option<String>,
    /// The least number of wrong bits that can pass, 1 to 64. Without it any error can.
    pub distance: Option<u32>,
    /// The fraction of errors of that many bits, or of any, that passes.
    pub fraction: Option<Fraction>,
    /// Errors that it missed, of so many in a campaign.
    pub missed: Option<u64>,
    /// Errors in the campaign.
    pub of: Option<u64>,
    /// Folder of past runs, whose faults are the campaign.
    pub results: Option<PathBuf>,
}

/// Words of checksums.
const CHECKSUM_WORDS: &[&str] =
    &["none", "xor-64", "fletcher-256", "crc32c", "xxh3-64", "xxh3-128", "blake3"];

/// A checksum or a list of them, without a switch.
struct Checksums;

impl JsonSchema for Checksums {
    fn schema_name() -> Cow<'static, str> {
        "Checksums".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let custom = generator.subschema_for::<CustomChecksum>();
        json_schema!({
            "description": "A checksum by its word or its figures, or a list of them.",
            "anyOf": [
                { "enum": CHECKSUM_WORDS },
                custom,
                { "type": "array", "items": { "anyOf": [{ "enum": CHECKSUM_WORDS }, custom] } }
            ]
        })
    }
}

impl JsonSchema for ProtectionForm {
    fn schema_name() -> Cow<'static, str> {
        "Protection".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let checksums = generator.subschema_for::<Checksums>();
        json_schema!({
            "description": "Checksums, or those before and those after the switch.",
            "anyOf": [
                checksums,
                {
                    "description": "Before and after the switch.",
                    "type": "object",
                    "properties": { "before": checksums, "after": checksums },
                    "required": ["before", "after"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

fn known<E: serde::de::Error>(word: &str) -> Result<Option<ChecksumForm>, E> {
    if word == "none" {
        return Ok(None);
    }
    match Checksum::from_word(word) {
        Some(checksum) => Ok(Some(ChecksumForm::Known(checksum))),
        None => Err(E::unknown_variant(word, CHECKSUM_WORDS)),
    }
}

/// One checksum or a list, as `before`, `after`, or the whole protection.
#[derive(Clone, Debug, Default)]
struct OneOrMany(Vec<ChecksumForm>);

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match ProtectionForm::deserialize(deserializer)? {
            ProtectionForm::Fixed(list) => Ok(Self(list)),
            ProtectionForm::Switched(_) => {
                Err(serde::de::Error::custom("a switch within a switch; give a checksum or a list of them"))
            }
        }
    }
}

impl<'de> Deserialize<'de> for ProtectionForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;

        impl<'de> serde::de::Visitor<'de> for Form {
            type Value = ProtectionForm;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a checksum such as xor-64, a list of them, or { before: ..., after: ... }")
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<ProtectionForm, E> {
                Ok(ProtectionForm::Fixed(known(word)?.into_iter().collect()))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut items: A,
            ) -> Result<ProtectionForm, A::Error> {
                let mut all = Vec::new();
                while let Some(OneOrMany(checksums)) = items.next_element()? {
                    all.extend(checksums);
                }
                Ok(ProtectionForm::Fixed(all))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ProtectionForm, A::Error> {
                let (mut before, mut after) = (None, None);
                let mut custom = CustomChecksum::default();
                let mut is_custom = false;
                while let Some(key) = map.next_key::<String>()? {
                    is_custom |= !matches!(key.as_str(), "before" | "after");
                    match key.as_str() {
                        "before" => before = Some(map.next_value::<OneOrMany>()?.0),
                        "after" => after = Some(map.next_value::<OneOrMany>()?.0),
                        "name" => custom.name = Some(map.next_value()?),
                        "distance" => custom.distance = Some(map.next_value()?),
                        "fraction" => custom.fraction = Some(map.next_value()?),
                        "missed" => custom.missed = Some(map.next_value()?),
                        "of" => custom.of = Some(map.next_value()?),
                        "results" => custom.results = Some(map.next_value()?),
                        other => {
                            const KEYS: &[&str] = &[
                                "before", "after", "name", "distance", "fraction", "missed", "of", "results",
                            ];
                            return Err(serde::de::Error::unknown_field(other, KEYS));
                        }
                    }
                }
                match (before, after, is_custom) {
                    (None, None, _) => Ok(ProtectionForm::Fixed(vec![ChecksumForm::Custom(custom)])),
                    (Some(before), Some(after), false) => {
                        Ok(ProtectionForm::Switched(Switched { before, after }))
                    }
                    (_, _, true) => Err(serde::de::Error::custom(
                        "`before` and `after` beside other keys; put the figures of a checksum inside them",
                    )),
                    (None, ..) => Err(serde::de::Error::missing_field("before")),
                    (_, None, _) => Err(serde::de::Error::missing_field("after")),
                }
            }
        }

        deserializer.deserialize_any(Form)
    }
}

/// What an error is repaired from: `{ mirror: 2 }` or `{ parity: 8+2 }`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case", expecting = "{ mirror: 2 } or { parity: 8+2 }")]
pub enum RedundancyForm {
    /// So many copies.
    Mirror(u32),
    /// Devices of data + devices of parity: 8+2.
    Parity(String),
}
