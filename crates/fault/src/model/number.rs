//! Numbers of a model's parameters: in YAML as they are, in the short form as text.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use rotproof_spec::{Path, Problems};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number from 0 on, `0.5` or `1e6`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Number(pub f64);

/// A whole number from 0 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u32);

impl Number {
    /// Reports it unless it is in `range`.
    pub(crate) fn require(self, range: RangeInclusive<f64>, path: &Path, problems: &mut Problems) {
        if !range.contains(&self.0) {
            let (least, most) = (Self(*range.start()), Self(*range.end()));
            problems.add_with_help(
                path,
                format!("{self} is out of range"),
                format!("give a number from {least} to {most}"),
            );
        }
    }
}

impl FromStr for Number {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        number
            .map(Self)
            .ok_or_else(|| format!("`{text}` is no number from 0 on; write for example 0.5 or 1e6"))
    }
}

impl fmt::Display for Number {
    /// The shortest decimal that reads back as the same number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (decimal, scientific) = (self.0.to_string(), format!("{:e}", self.0));
        // 0.01 reads better than 1e-2, and 1e6 better than 1000000.
        f.write_str(if scientific.len() + 1 < decimal.len() { &scientific } else { &decimal })
    }
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.trim()
            .parse()
            .map(Self)
            .map_err(|_| format!("`{text}` is no whole number from 0 to {}", u32::MAX))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

/// Reads a number, or text that stands for one, by its text.
fn deserialize<'de, T, D>(deserializer: D, expecting: &'static str) -> Result<T, D::Error>
where
    T: FromStr<Err = String>,
    D: Deserializer<'de>,
{
    struct Text<T>(&'static str, std::marker::PhantomData<T>);

    impl<T: FromStr<Err = String>> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }
    }

    deserializer.deserialize_any(Text(expecting, std::marker::PhantomData))
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer, "a number from 0 on, such as 0.5 or 1e6")
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer, "a whole number from 0 on")
    }
}

impl JsonSchema for Number {
    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "A number from 0 on: 0.5, 1e6.", "type": "number", "minimum": 0 })
    }
}

impl JsonSchema for Count {
    fn schema_name() -> Cow<'static, str> {
        "WholeNumber".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A whole number from 0 on.", "type": "integer", "minimum": 0, "maximum": u32::MAX
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        for (text, number) in [("0.5", 0.5), ("1e6", 1e6), ("3", 3.0), (" 0 ", 0.0), ("1e-12", 1e-12)] {
            assert_eq!(text.parse(), Ok(Number(number)), "{text}");
            assert_eq!(serde_json::from_str::<Number>(text.trim()).expect(text), Number(number));
        }
        for text in ["", "-1", "nan", "inf", "1x", "1e999"] {
            assert!(text.parse::<Number>().is_err(), "{text}");
        }
        assert!(
            serde_json::from_str::<Count>("1.5").is_err() && serde_json::from_str::<Count>("-1").is_err()
        );
        assert_eq!(serde_json::from_str::<Count>("\"7\"").expect("text"), Count(7));
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_reads_back(number in 0.0f64..1e300) {
            proptest::prop_assert_eq!(Number(number).to_string().parse(), Ok(Number(number)));
        }
    }
}
