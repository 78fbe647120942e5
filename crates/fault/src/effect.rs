//! What a hit does to a request or to its data.

use std::borrow::Cow;

use rotproof_spec::{Span, WordOrMap, deserialize_word_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess};
use serde::{Deserialize, Deserializer, Serialize};

/// The deviation that a hit brings.
///
/// Effects on *data* (bit flip, zeros, lost write) act on single blocks; effects on the *request* (error, delay)
/// on all of it, neighbours in a merged request included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// One bit of the block is wrong. Matches only requests that carry that byte of the block.
    BitFlip(Bit),
    /// The block is all zeros, as a lost or misdirected write looks on a fresh file system (FISPDK).
    Zeros,
    /// A write is acknowledged, but the old data stays.
    LostWrite,
    /// The request fails as on an unreadable or unwritable block (EIO).
    Error,
    /// The request takes that much longer.
    Delay(Span),
}

/// Which bit of a block flips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bit {
    /// This one.
    At {
        /// Byte of the block, from 0.
        byte: u32,
        /// Bit of the byte; 0 is the lowest.
        bit: u8,
    },
    /// One that depends on the seed, the rule, the place and the number of the match.
    Random,
}

impl Default for Bit {
    /// The lowest bit of byte 0: what AchillesBench flips.
    fn default() -> Self {
        Self::At { byte: 0, bit: 0 }
    }
}

impl Effect {
    /// Whether it changes the data of single blocks, rather than the fate of the request.
    pub fn is_on_data(self) -> bool {
        matches!(self, Self::BitFlip(_) | Self::Zeros | Self::LostWrite)
    }

    /// The word it is written with.
    pub fn word(self) -> &'static str {
        match self {
            Self::BitFlip(_) => "bit_flip",
            Self::Zeros => "zeros",
            Self::LostWrite => "lost_write",
            Self::Error => "error",
            Self::Delay(_) => "delay",
        }
    }
}

impl WordOrMap for Effect {
    const WORDS: &'static [&'static str] = &["bit_flip", "zeros", "lost_write", "error", "delay"];
    const EXPECTING: &'static str =
        "an effect: bit_flip, { bit_flip: { byte: 0, bit: 0 } }, zeros, lost_write, error or { delay: 10ms }";

    fn from_word(word: &str) -> Option<Result<Self, String>> {
        match word {
            "bit_flip" => Some(Ok(Self::BitFlip(Bit::default()))),
            "zeros" => Some(Ok(Self::Zeros)),
            "lost_write" => Some(Ok(Self::LostWrite)),
            "error" => Some(Ok(Self::Error)),
            "delay" => Some(Err("`delay` needs a span of time: { delay: 10ms }".to_owned())),
            _ => None,
        }
    }

    fn from_map<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Self, A::Error> {
        match key {
            "bit_flip" => map.next_value().map(Self::BitFlip),
            "delay" => map.next_value().map(Self::Delay),
            word => Err(A::Error::custom(format!("`{word}` takes no argument; write `effect: {word}`"))),
        }
    }
}

impl<'de> Deserialize<'de> for Effect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_word_or_map(deserializer)
    }
}

impl JsonSchema for Effect {
    fn schema_name() -> Cow<'static, str> {
        "Effect".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let bit = generator.subschema_for::<Bit>();
        let span = generator.subschema_for::<Span>();
        json_schema!({
            "description": "What a hit does.",
            "anyOf": [
                {
                    "description": "bit_flip: the lowest bit of byte 0 of the block flips. zeros: the block is all zeros. lost_write: acknowledged, but the old data stays. error: the whole request fails (EIO).",
                    "enum": ["bit_flip", "zeros", "lost_write", "error"]
                },
                {
                    "description": "A bit of the block flips.",
                    "type": "object",
                    "properties": { "bit_flip": bit },
                    "required": ["bit_flip"],
                    "additionalProperties": false
                },
                {
                    "description": "The whole request takes that much longer.",
                    "type": "object",
                    "properties": { "delay": span },
                    "required": ["delay"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

/// How [`Bit::At`] looks in YAML.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BitPlace {
    #[serde(default)]
    byte: u32,
    #[serde(default)]
    bit: u8,
}

impl Serialize for Bit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::At { byte, bit } => BitPlace { byte, bit }.serialize(serializer),
            Self::Random => serializer.serialize_str("random"),
        }
    }
}

impl<'de> Deserialize<'de> for Bit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;

        impl<'de> serde::de::Visitor<'de> for Form {
            type Value = Bit;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the bit to flip: { byte: 0, bit: 0 } or random")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Bit, E> {
                if word == "random" { Ok(Bit::Random) } else { Err(E::unknown_variant(word, &["random"])) }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Bit, A::Error> {
                let place = BitPlace::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(Bit::At { byte: place.byte, bit: place.bit })
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for Bit {
    fn schema_name() -> Cow<'static, str> {
        "Bit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Which bit of the block flips.",
            "anyOf": [
                { "description": "One that follows from the seed.", "const": "random" },
                {
                    "type": "object",
                    "properties": {
                        "byte": {
                            "description": "Byte of the block, from 0. Default 0.",
                            "type": "integer", "minimum": 0, "maximum": crate::BLOCK_BYTES - 1
                        },
                        "bit": {
                            "description": "Bit of the byte, 0 is the lowest. Default 0.",
                            "type": "integer", "minimum": 0, "maximum": 7
                        }
                    },
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

    #[test]
    fn an_effect_survives_json() {
        for effect in [
            Effect::BitFlip(Bit::At { byte: 17, bit: 3 }),
            Effect::BitFlip(Bit::Random),
            Effect::Zeros,
            Effect::LostWrite,
            Effect::Error,
            Effect::Delay(Span(Duration::from_millis(10))),
        ] {
            let text = serde_json::to_string(&effect).expect("plain data");
            assert_eq!(serde_json::from_str::<Effect>(&text).expect(&text), effect);
        }
        let bare: Effect = serde_json::from_str("\"bit_flip\"").expect("the word alone");
        assert_eq!(bare, Effect::BitFlip(Bit::At { byte: 0, bit: 0 }));
        let half: Effect = serde_json::from_str("{\"bit_flip\": {\"bit\": 2}}").expect("byte has a default");
        assert_eq!(half, Effect::BitFlip(Bit::At { byte: 0, bit: 2 }));
    }

    #[test]
    fn what_is_missing_or_too_much_is_explained() {
        let complaint = |text| serde_json::from_str::<Effect>(text).expect_err(text).to_string();
        assert!(complaint("\"delay\"").contains("{ delay: 10ms }"));
        assert!(complaint("{\"zeros\": 1}").contains("takes no argument"));
        assert!(complaint("\"bitflip\"").contains("unknown variant"));
        assert!(complaint("{\"bit_flip\": {\"bye\": 1}}").contains("unknown field"));
        assert!(complaint("{\"delay\": 10}").contains("unit"));
        assert!(complaint("3").contains("an effect"));
    }
}
