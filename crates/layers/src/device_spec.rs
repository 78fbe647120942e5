//! One device of a stack, of any kind: how it is written, read, described and opened. Nothing here knows a kind: the list of them is
//! in `lib.rs`, and what a kind says of itself in its own file.

use std::borrow::Cow;
use std::sync::Arc;

use rotproof_block::{Device, Result as BlockResult};
use rotproof_spec::{Path, Problems, WordOrMap, deserialize_word_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::MapAccess;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::kind::{Below, Kind, Stands};
use crate::open::Opening;
use crate::stack_spec::Legs;

macro_rules! devices {
    ($($module:ident: $variant:ident($spec:ident),)*) => {
        $(use crate::$module::$spec;)*

        /// One device of a stack.
        #[derive(Clone, Debug, PartialEq)]
        pub enum DeviceSpec {
            $(#[doc = concat!("`", stringify!($variant), "`: see [`", stringify!($spec), "`].")] $variant($spec),)*
        }

        /// The word of each kind, and whether it can begin a list.
        const KINDS: &[(&str, bool)] = &[$((<$spec>::WORD, !matches!(<$spec>::STANDS, Stands::OnOne)),)*];

        impl WordOrMap for DeviceSpec {
            const WORDS: &'static [&'static str] = &[$(<$spec>::WORD),*];
            const EXPECTING: &'static str = "a device, for example { memory: { size: 256MiB } }, { file: { path: disk.img } }, faults or stats";

            fn from_word(word: &str) -> Option<Result<Self, String>> {
                match word {
                    $(<$spec>::WORD => Some(match <$spec>::bare() {
                        Some(spec) => Ok(Self::$variant(spec)),
                        None => Err(format!("`{word}` needs more: {}", <$spec>::EXAMPLE)),
                    }),)*
                    _ => None,
                }
            }

            fn from_map<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Self, A::Error> {
                match key {
                    $(<$spec>::WORD => map.next_value().map(Self::$variant),)*
                    // The form has looked the word up before.
                    other => Err(serde::de::Error::unknown_variant(other, Self::WORDS)),
                }
            }
        }

        impl Serialize for DeviceSpec {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(spec) if spec.is_bare() => serializer.serialize_str(<$spec>::WORD),
                    Self::$variant(spec) => {
                        let mut map = serializer.serialize_map(Some(1))?;
                        map.serialize_entry(<$spec>::WORD, spec)?;
                        map.end()
                    })*
                }
            }
        }

        impl JsonSchema for DeviceSpec {
            fn schema_name() -> Cow<'static, str> {
                "DeviceSpec".into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let mut forms = Vec::new();
                let (mut words, mut summaries) = (Vec::new(), Vec::new());
                $(if <$spec>::bare().is_some() {
                    words.push(<$spec>::WORD);
                    summaries.push(format!("{}: {}.", <$spec>::WORD, <$spec>::SUMMARY));
                })*
                forms.push(json_schema!({ "description": summaries.join(" "), "enum": words }));
                $(forms.push(json_schema!({
                    "description": format!("{}: {}.", place(<$spec>::STANDS), <$spec>::SUMMARY),
                    "type": "object",
                    "properties": { <$spec>::WORD: generator.subschema_for::<$spec>() },
                    "required": [<$spec>::WORD],
                    "additionalProperties": false
                }));)*
                json_schema!({
                    "description": "One device of the stack: first a leaf, or one that stands on several stacks; then layers.",
                    "anyOf": forms
                })
            }
        }

        impl DeviceSpec {
            /// The word it is written with.
            pub fn word(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => <$spec>::WORD,)*
                }
            }

            /// What it stands on.
            pub fn stands(&self) -> Stands {
                match self {
                    $(Self::$variant(_) => <$spec>::STANDS,)*
                }
            }

            /// What it is, in a line.
            pub fn describe(&self) -> String {
                match self {
                    $(Self::$variant(spec) => spec.describe(),)*
                }
            }

            /// The stacks that it stands on, if it stands on several.
            pub fn legs(&self) -> Option<&Legs> {
                match self {
                    $(Self::$variant(spec) => spec.legs(),)*
                }
            }

            /// Whether several blocks of it may lie in one block below.
            pub fn shares_blocks(&self) -> bool {
                match self {
                    $(Self::$variant(_) => <$spec>::SHARES_BLOCKS,)*
                }
            }

            /// Whether it keeps everything more than once, so that nobody may see what becomes of one copy.
            pub(crate) fn keeps_copies(&self) -> bool {
                match self {
                    $(Self::$variant(_) => <$spec>::KEEPS_COPIES,)*
                }
            }

            /// Whether it keeps in memory what a loss of power takes, and would not notice one.
            pub fn outlives_power(&self) -> bool {
                match self {
                    $(Self::$variant(_) => <$spec>::OUTLIVES_POWER,)*
                }
            }

            pub(crate) fn once(&self) -> Option<&'static str> {
                match self {
                    $(Self::$variant(_) => <$spec>::ONCE,)*
                }
            }

            pub(crate) fn keeps_places(&self) -> bool {
                match self {
                    $(Self::$variant(spec) => spec.keeps_places(),)*
                }
            }

            pub(crate) fn size(&self, below: &[Option<u64>]) -> Option<u64> {
                match self {
                    $(Self::$variant(spec) => spec.size(below),)*
                }
            }

            pub(crate) fn up(&self, leg: usize, offset: u64, below: &[u64]) -> Option<u64> {
                match self {
                    $(Self::$variant(spec) => spec.up(leg, offset, below),)*
                }
            }

            pub(crate) fn down(&self, leg: usize, offset: u64, below: &[u64]) -> Below {
                match self {
                    $(Self::$variant(spec) => spec.down(leg, offset, below),)*
                }
            }

            pub(crate) fn validate(&self, below: &[Option<u64>], path: &Path, problems: &mut Problems) {
                match self {
                    $(Self::$variant(spec) => spec.validate(below, path, problems),)*
                }
            }

            pub(crate) fn open(
                &self,
                below: Vec<Arc<dyn Device>>,
                opening: &mut Opening,
            ) -> BlockResult<Arc<dyn Device>> {
                match self {
                    $(Self::$variant(spec) => spec.open(below, opening),)*
                }
            }
        }
    };
}

for_each_kind!(devices);

impl<'de> Deserialize<'de> for DeviceSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_word_or_map(deserializer)
    }
}

fn place(stands: Stands) -> &'static str {
    match stands {
        Stands::Alone => "Leaf",
        Stands::OnOne => "Layer",
        Stands::OnSeveral => "Several stacks as one device",
    }
}

impl DeviceSpec {
    /// Whether it is a leaf.
    pub fn is_leaf(&self) -> bool {
        self.stands() == Stands::Alone
    }

    /// Whether it can stand at the beginning of a list, and only there.
    pub fn begins(&self) -> bool {
        self.stands() != Stands::OnOne
    }

    /// The kinds of devices that can begin a list, for a message.
    pub(crate) fn beginnings() -> String {
        let words: Vec<&str> = KINDS.iter().filter(|(_, begins)| *begins).map(|(word, _)| *word).collect();
        match words.split_last() {
            Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
            _ => words.concat(),
        }
    }
}
