//! How a model is written: a word, or the word with its parameters, `{ bit_rot: { rate: 1, acceleration: 1e6 } }` in
//! YAML and `model(bit_rot, rate=1, acceleration=1e6)` in the short form. Both are read by the same code; and what is
//! said alike of parameters that make no sense.

use std::borrow::Cow;
use std::fmt;

use rotproof_spec::{Path, Percent, Problems, WordOrMap, deserialize_word_or_map, nearest};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{Error as TextError, MapDeserializer, StrDeserializer};
use serde::de::{DeserializeOwned, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::number::Number;
use super::{DRAWN_MAX, Model};

/// Does one thing for the model of each kind.
macro_rules! of_kind {
    ($word:expr, $do:ident, $otherwise:expr) => {
        match $word {
            "latent_sector_errors" => $do!(LatentSectorErrors),
            "undetected_disk_errors" => $do!(UndetectedDiskErrors),
            "bit_rot" => $do!(BitRot),
            "fail_slow" => $do!(FailSlow),
            "dying_disk" => $do!(DyingDisk),
            "whole_disk_failure" => $do!(WholeDiskFailure),
            _ => $otherwise,
        }
    };
}

impl Model {
    /// From its word and parameters `key=value` as in the short form.
    pub(super) fn from_text(word: &str, parameters: &[&str]) -> Result<Self, String> {
        let mut pairs = Vec::new();
        for parameter in parameters {
            let (key, value) = parameter
                .split_once('=')
                .ok_or_else(|| format!("`{parameter}` has no value; write parameters as key=value"))?;
            pairs.push((key.trim(), value.trim()));
        }
        macro_rules! read {
            ($kind:ident) => {
                read_pairs(word, pairs).map(Self::$kind)
            };
        }
        of_kind!(word, read, Err(unknown("fault model", word, &Self::WORDS)))
    }

    /// The parameters by their keys.
    pub(super) fn parameters(&self) -> Map<String, Value> {
        let value = match self {
            Self::LatentSectorErrors(model) => serde_json::to_value(model),
            Self::UndetectedDiskErrors(model) => serde_json::to_value(model),
            Self::BitRot(model) => serde_json::to_value(model),
            Self::FailSlow(model) => serde_json::to_value(model),
            Self::DyingDisk(model) => serde_json::to_value(model),
            Self::WholeDiskFailure(model) => serde_json::to_value(model),
        };
        match value {
            Ok(Value::Object(parameters)) => parameters,
            _ => Map::new(),
        }
    }
}

/// "unknown parameter `raet`; did you mean `rate`?"
fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(meant) => format!("unknown {what} `{word}`; did you mean `{meant}`?"),
        None => format!("unknown {what} `{word}`; known are {}", known.join(", ")),
    }
}

fn read_pairs<T: DeserializeOwned + Default + Serialize>(
    word: &str,
    pairs: Vec<(&str, &str)>,
) -> Result<T, String> {
    for (index, (key, _)) in pairs.iter().enumerate() {
        if pairs[..index].iter().any(|(earlier, _)| earlier == key) {
            return Err(format!("`{key}` is given twice"));
        }
    }
    let keys: Vec<&str> = pairs.iter().map(|(key, _)| *key).collect();
    let pairs = pairs.into_iter().map(|(key, value)| (key, TextValue(value)));
    let read = T::deserialize(MapDeserializer::<_, TextError>::new(pairs));
    read.map_err(|error| {
        // Serde lists all fields there are; the nearest says more.
        match keys.iter().find(|key| error.to_string().starts_with(&format!("unknown field `{key}`"))) {
            Some(key) => match keys_of(word).as_slice() {
                [] => error.to_string(),
                known => unknown(&format!("parameter of {word}"), key, known),
            },
            None => format!("{word}: {error}"),
        }
    })
}

/// A value of the short form: text, whatever is wanted.
#[derive(Clone, Copy)]
struct TextValue<'a>(&'a str);

impl<'de, 'a> IntoDeserializer<'de, TextError> for TextValue<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for TextValue<'_> {
    type Error = TextError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        visitor.visit_str(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TextError> {
        visitor.visit_enum(StrDeserializer::new(self.0))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The parameters of a model.
fn keys_of(word: &str) -> Vec<&'static str> {
    struct Keys<'a>(&'a mut Vec<&'static str>);

    impl<'de> Deserializer<'de> for Keys<'_> {
        type Error = TextError;

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, TextError> {
            self.0.extend_from_slice(fields);
            Err(TextError::custom("only the names of the fields are wanted"))
        }

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, TextError> {
            Err(TextError::custom("no structure"))
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    let mut keys = Vec::new();
    macro_rules! ask {
        ($kind:ident) => {{
            // It ends with an error, on purpose, once it has named its fields.
            let _ = super::$kind::deserialize(Keys(&mut keys));
        }};
    }
    of_kind!(word, ask, ());
    keys
}

impl fmt::Display for Model {
    /// As in the short form, `bit_rot, acceleration=1e6`; what is left out is the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        let defaults = match Self::from_word(self.word()) {
            Some(Ok(default)) => default.parameters(),
            _ => Map::new(),
        };
        for (key, value) in self.parameters() {
            if defaults.get(&key) == Some(&value) {
                continue;
            }
            match value {
                Value::String(text) => write!(f, ", {key}={text}")?,
                Value::Number(number) => {
                    let number = number.as_f64().unwrap_or_default();
                    write!(f, ", {key}={}", Number(number))?;
                }
                other => write!(f, ", {key}={other}")?,
            }
        }
        Ok(())
    }
}

impl WordOrMap for Model {
    const WORDS: &'static [&'static str] = &Model::WORDS;
    const EXPECTING: &'static str =
        "a fault model such as latent_sector_errors, or with parameters { bit_rot: { acceleration: 1e6 } }";

    fn from_word(word: &str) -> Option<Result<Self, String>> {
        macro_rules! default {
            ($kind:ident) => {
                Some(Ok(Self::$kind(Default::default())))
            };
        }
        of_kind!(word, default, None)
    }

    fn from_map<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Self, A::Error> {
        macro_rules! read {
            ($kind:ident) => {
                map.next_value().map(Self::$kind)
            };
        }
        of_kind!(key, read, Err(A::Error::unknown_variant(key, <Self as WordOrMap>::WORDS)))
    }
}

impl Serialize for Model {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::LatentSectorErrors(model) => serializer.collect_map([(self.word(), model)]),
            Self::UndetectedDiskErrors(model) => serializer.collect_map([(self.word(), model)]),
            Self::BitRot(model) => serializer.collect_map([(self.word(), model)]),
            Self::FailSlow(model) => serializer.collect_map([(self.word(), model)]),
            Self::DyingDisk(model) => serializer.collect_map([(self.word(), model)]),
            Self::WholeDiskFailure(model) => serializer.collect_map([(self.word(), model)]),
        }
    }
}

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_word_or_map(deserializer)
    }
}

impl JsonSchema for Model {
    fn schema_name() -> Cow<'static, str> {
        "Model".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut forms = vec![json_schema!({
            "description": "A fault model with every parameter by default.",
            "enum": Self::WORDS
        })];
        for word in Self::WORDS {
            macro_rules! schema {
                ($kind:ident) => {
                    generator.subschema_for::<super::$kind>()
                };
            }
            let parameters = of_kind!(word, schema, json_schema!({}));
            forms.push(json_schema!({
                "description": "A fault model with parameters.",
                "type": "object",
                "properties": { word: parameters },
                "required": [word],
                "additionalProperties": false
            }));
        }
        json_schema!({ "description": "A fault model: a word, or a word with parameters.", "anyOf": forms })
    }
}

/// Reports a share that is none: what chance of zero or one cannot be drawn is fine.
pub(super) fn require_share(share: Percent, path: &Path, problems: &mut Problems) {
    if !(0.0..=1.0).contains(&share.0) {
        problems.add_with_help(path, format!("{share} is no share"), "give from 0% to 100%");
    }
}

/// Reports a model that would draw more than a trial can hold; `knobs` are the parameters to turn.
pub(super) fn require_expected(expected: f64, what: &str, knobs: &str, path: &Path, problems: &mut Problems) {
    if expected > DRAWN_MAX as f64 {
        problems.add_with_help(
            path,
            format!("this would draw about {expected:.0} {what}, and at most {DRAWN_MAX} are drawn"),
            format!("lower {knobs}"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_of_every_model_is_documented_in_its_section() {
        let page = include_str!("../../../../docs/models.md");
        for word in Model::WORDS {
            let (_, section) = page.split_once(&format!("\n## {word}\n")).expect(word);
            let section = section.split("\n## ").next().expect("a section");
            for key in keys_of(word) {
                assert!(section.contains(&format!("`{key}`")), "{key} of {word}");
            }
            for part in ["*Follows*", "*Leaves out:*"] {
                assert!(section.contains(part), "{word} says what it {part}");
            }
        }
        assert_eq!(keys_of("bit_rot"), ["rate", "acceleration", "life", "over", "bits"]);
    }

    #[test]
    fn every_model_of_the_documentation_is_one() {
        for page in [include_str!("../../../../docs/models.md"), include_str!("../../../../docs/faults.md")] {
            let texts = page.match_indices("model(").map(|(at, _)| {
                let line = page[at..].lines().next().unwrap_or_default();
                &line[..=line.find(')').expect("its end")]
            });
            for text in texts {
                let entry: Result<super::super::FaultEntry, String> = text.parse();
                assert!(entry.is_ok(), "{text}: {entry:?}");
            }
        }
    }
}
