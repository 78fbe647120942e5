//! The YAML of a path file.

use std::path::PathBuf;

use rotproof_model::Checksum;
use rotproof_spec::{Span, WordOrMap, deserialize_word_or_map};
use serde::de::MapAccess;
use serde::{Deserialize, Deserializer};

use super::rates::{DiskRate, Fraction, MemoryRate, SwitchText};

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "keys such as name and stages")]
pub struct PathForm {
    pub name: Option<String>,
    pub switch: Option<SwitchText>,
    #[serde(default)]
    pub stages: Vec<StageForm>,
}

/// One stage.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "keys such as device, time and protection")]
pub struct StageForm {
    pub name: Option<String>,
    pub device: DeviceForm,
    pub time: Option<TimeForm>,
    #[serde(default)]
    pub protection: ProtectionForm,
    pub checked: Option<String>,
    pub redundancy: Option<RedundancyForm>,
}

/// `memory`, `disk`, or either with what is special about it.
#[derive(Clone, Debug)]
pub enum DeviceForm {
    Memory(MemoryForm),
    Disk(DiskForm),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "keys such as rate and bursts")]
pub struct MemoryForm {
    pub rate: Option<MemoryRate>,
    pub bursts: Option<f64>,
    pub clustering: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "keys such as rate, rot and scrub")]
pub struct DiskForm {
    pub rate: Option<DiskRate>,
    pub rot: Option<MemoryRate>,
    pub bursts: Option<f64>,
    pub clustering: Option<f64>,
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
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "keys such as distance and fraction")]
pub struct CustomChecksum {
    pub name: Option<String>,
    pub distance: Option<u32>,
    pub fraction: Option<Fraction>,
    pub missed: Option<u64>,
    pub of: Option<u64>,
    pub results: Option<PathBuf>,
}

fn known<E: serde::de::Error>(word: &str) -> Result<Option<ChecksumForm>, E> {
    if word == "none" {
        return Ok(None);
    }
    match Checksum::from_word(word) {
        Some(checksum) => Ok(Some(ChecksumForm::Known(checksum))),
        None => {
            const WORDS: &[&str] =
                &["none", "xor-64", "fletcher-256", "crc32c", "xxh3-64", "xxh3-128", "blake3"];
            Err(E::unknown_variant(word, WORDS))
        }
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

/// `{ mirror: 2 }` or `{ parity: 8+2 }`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", expecting = "{ mirror: 2 } or { parity: 8+2 }")]
pub enum RedundancyForm {
    Mirror(u32),
    Parity(String),
}
