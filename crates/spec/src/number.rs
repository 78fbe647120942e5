//! Shares of a whole, and plain numbers within bounds.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Path, Problems};

/// A share from 0% to 100%, written `30%` or `0.3`; kept as the fraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Percent(pub f64);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no share; write for example 30% or 0.3");
        let fraction = match text.trim().strip_suffix('%') {
            Some(number) => number.trim().parse::<f64>().map_err(|_| wrong())? / 100.0,
            None => text.trim().parse::<f64>().map_err(|_| wrong())?,
        };
        Self::from_fraction(fraction).ok_or_else(|| format!("`{text}` is not between 0% and 100%"))
    }
}

impl Percent {
    fn from_fraction(fraction: f64) -> Option<Self> {
        (0.0..=1.0).contains(&fraction).then_some(Self(fraction))
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Six decimals hide the rounding of binary fractions and are finer than any load can realise.
        let text = format!("{:.6}", self.0 * 100.0);
        f.pad(&format!("{}%", text.trim_end_matches('0').trim_end_matches('.')))
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Share;
        impl Visitor<'_> for Share {
            type Value = Percent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a share such as 30% or 0.3")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Percent, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Percent, E> {
                Percent::from_fraction(number).ok_or_else(|| {
                    E::custom(format!("{number} is not between 0 and 1; write 30% or 0.3 for thirty percent"))
                })
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Percent, E> {
                self.visit_f64(number as f64)
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Percent, E> {
                self.visit_f64(number as f64)
            }
        }
        deserializer.deserialize_any(Share)
    }
}

impl JsonSchema for Percent {
    fn schema_name() -> Cow<'static, str> {
        "Percent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A share: 30% or 0.3.",
            "anyOf": [
                { "type": "number", "minimum": 0, "maximum": 1 },
                { "type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*%?\s*$" }
            ]
        })
    }
}

/// Reports a number outside `range`, naming the range.
pub fn number_in_range(
    problems: &mut Problems,
    path: &Path,
    what: &str,
    number: u64,
    range: RangeInclusive<u64>,
) {
    if !range.contains(&number) {
        problems
            .add(path, format!("{what} is {number}; it must be from {} to {}", range.start(), range.end()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_or_fractions() {
        assert_eq!("30%".parse(), Ok(Percent(0.3)));
        assert_eq!("0.3".parse(), Ok(Percent(0.3)));
        assert_eq!(Percent(0.3).to_string(), "30%");
        assert_eq!(Percent(0.125).to_string(), "12.5%");
        assert!("130%".parse::<Percent>().is_err());
        assert!("NaN".parse::<Percent>().is_err());
    }
}
