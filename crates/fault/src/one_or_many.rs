//! A list that may be written as its only element: `offset: 1MiB` instead of `offset: [1MiB]`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{SeqAccessDeserializer, StrDeserializer, U64Deserializer};
use serde::de::{Error, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Any number of `T`; in YAML a list, or one element without the brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> OneOrMany<T> {
    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The elements in their order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}

impl<T> FromIterator<T> for OneOrMany<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Self(elements.into_iter().collect())
    }
}

impl<'a, T> IntoIterator for &'a OneOrMany<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: Serialize> Serialize for OneOrMany<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(serializer),
            many => many.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Elements<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one value or a list of them")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                let element: StrDeserializer<'_, E> = text.into_deserializer();
                T::deserialize(element).map(|element| OneOrMany(vec![element]))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
                let element: U64Deserializer<E> = number.into_deserializer();
                T::deserialize(element).map(|element| OneOrMany(vec![element]))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                T::deserialize(number.into_deserializer()).map(|element| OneOrMany(vec![element]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(OneOrMany)
            }
        }

        deserializer.deserialize_any(Elements(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let element = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [ element, { "type": "array", "items": element } ] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_spec::Bytes;

    #[test]
    fn one_element_needs_no_brackets_in_either_direction() {
        for (text, count) in [("\"4KiB\"", 1), ("4096", 1), ("[4096, \"8KiB\"]", 2), ("[]", 0)] {
            let list: OneOrMany<Bytes> = serde_json::from_str(text).expect(text);
            assert_eq!(list.0.len(), count, "{text}");
            let again = serde_json::to_string(&list).expect("plain data");
            assert_eq!(serde_json::from_str::<OneOrMany<Bytes>>(&again).expect("what was written"), list);
        }
        assert_eq!(serde_json::to_string(&OneOrMany(vec![Bytes(4096)])).expect("plain data"), "\"4KiB\"");
    }

    #[test]
    fn an_elements_own_complaint_is_kept() {
        let error = serde_json::from_str::<OneOrMany<Bytes>>("\"4 apples\"").expect_err("no size");
        assert!(error.to_string().contains("no size"), "{error}");
        let error = serde_json::from_str::<OneOrMany<Bytes>>("-4").expect_err("negative");
        assert!(error.to_string().contains("negative"), "{error}");
    }
}
