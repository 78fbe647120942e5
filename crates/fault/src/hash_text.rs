//! Content hashes in YAML and JSON: 32 hexadecimal digits. The core has no serde, so the text form lives here.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use rotproof_block::ContentHash;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A [`ContentHash`] that reads and prints as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HashText(pub ContentHash);

impl FromStr for HashText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ContentHash::parse(text.trim()).map(Self).ok_or_else(|| {
            format!(
                "`{text}` is no content hash; give the XXH3-128 of the 4096 bytes as 32 hexadecimal digits"
            )
        })
    }
}

impl fmt::Display for HashText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for HashText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HashText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits;

        impl Visitor<'_> for Digits {
            type Value = HashText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a content hash: 32 hexadecimal digits, in quotes if YAML could take them for a number",
                )
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<HashText, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Digits)
    }
}

impl JsonSchema for HashText {
    fn schema_name() -> Cow<'static, str> {
        "ContentHash".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "XXH3-128 of a block of 4096 bytes, 32 hexadecimal digits.",
            "type": "string",
            "pattern": "^[0-9a-fA-F]{32}$"
        })
    }
}

/// For `#[serde(with)]` on a [`ContentHash`].
pub(crate) mod plain {
    use super::{ContentHash, Deserialize, Deserializer, HashText, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(hash: &ContentHash, serializer: S) -> Result<S::Ok, S::Error> {
        HashText(*hash).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ContentHash, D::Error> {
        HashText::deserialize(deserializer).map(|text| text.0)
    }
}

/// For `#[serde(with)]` on an `Option<ContentHash>`.
pub(crate) mod option {
    use super::{ContentHash, Deserialize, Deserializer, HashText, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        hash: &Option<ContentHash>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        hash.map(HashText).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<ContentHash>, D::Error> {
        Ok(Option::<HashText>::deserialize(deserializer)?.map(|text| text.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_survives_json_and_anything_else_is_explained() {
        let hash = HashText(ContentHash::of(b"block"));
        let text = serde_json::to_string(&hash).expect("plain data");
        assert_eq!(serde_json::from_str::<HashText>(&text).expect("what was written"), hash);
        let error = serde_json::from_str::<HashText>("\"12\"").expect_err("too short");
        assert!(error.to_string().contains("32 hexadecimal digits"), "{error}");
    }
}
