//! How the description of a stack is written: a list is one device, a map several with their names.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::stack_spec::{Chain, Legs, StackSpec};

impl Serialize for Legs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.iter().all(|(name, _)| name.is_none()) {
            return serializer.collect_seq(self.0.iter().map(|(_, chain)| chain));
        }
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, chain) in &self.0 {
            map.serialize_entry(name.as_deref().unwrap_or_default(), chain)?;
        }
        map.end()
    }
}

impl Serialize for StackSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.0.as_slice() {
            [(None, only)] => only.serialize(serializer),
            _ => self.0.serialize(serializer),
        }
    }
}

/// Reads chains by their names.
fn named<'de, A: MapAccess<'de>>(mut map: A) -> Result<Legs, A::Error> {
    let mut legs: Vec<(Option<String>, Chain)> = Vec::new();
    while let Some((name, chain)) = map.next_entry::<String, Chain>()? {
        if legs.iter().any(|(known, _)| known.as_ref() == Some(&name)) {
            return Err(serde::de::Error::custom(format!("`{name}` is there twice")));
        }
        legs.push((Some(name), chain));
    }
    Ok(Legs(legs))
}

impl<'de> Deserialize<'de> for Chain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = Chain;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of devices, such as `[ memory: { size: 1GiB }, faults ]`,")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Chain, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Chain)
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl<'de> Deserialize<'de> for Legs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = Legs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of stacks, each a list of devices, or a map that gives each a name")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Legs, A::Error> {
                let chains = Vec::<Chain>::deserialize(SeqAccessDeserializer::new(list))?;
                Ok(Legs(chains.into_iter().map(|chain| (None, chain)).collect()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Legs, A::Error> {
                named(map)
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl<'de> Deserialize<'de> for StackSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = StackSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a list of devices, bottom to top, or a map that gives each of several such lists a name",
                )
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<StackSpec, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(StackSpec::chain)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StackSpec, A::Error> {
                named(map).map(StackSpec)
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for Legs {
    fn schema_name() -> Cow<'static, str> {
        "Legs".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let chain = generator.subschema_for::<Chain>();
        json_schema!({
            "description": "Several stacks: a list, or a map that gives each a name.",
            "anyOf": [
                { "type": "array", "items": chain },
                { "type": "object", "additionalProperties": chain }
            ]
        })
    }
}

impl JsonSchema for StackSpec {
    fn schema_name() -> Cow<'static, str> {
        "StackSpec".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let chain = generator.subschema_for::<Chain>();
        json_schema!({
            "description": "Devices bottom to top: a leaf, then layers; or several such lists, each with a name.",
            "anyOf": [chain, { "type": "object", "additionalProperties": chain }]
        })
    }
}
