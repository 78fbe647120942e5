//! Rates, fractions, goals and spans of the model, as people write them: each with its unit, and each refused with the
//! range that is valid.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use rotproof_model::{Goal, Switch, Uncertain, fit_per_mbit, rate_of_index};
use rotproof_spec::{Bytes, Measure, Span, nearest};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// Errors per second and bit of a memory: `25000 FIT/Mbit`, `6.62e-15 errors/s/bit` or `index 14.2`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryRate(pub Uncertain);

/// Undetected bit errors per bit read of a disk: `1e-12 errors/bit` or `index 12`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskRate(pub Uncertain);

/// A fraction from 0 to 1, perhaps with error bars: `4.16e-20`, `0.1 [0.05..0.2]`, `3%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fraction(pub Uncertain);

/// A goal: `zettabyte` (one undetected corruption in as much read), `score 17.5`, or an amount such as `10TB`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoalText(pub Goal);

/// When a path switches its checksums: at a goal, or after a span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwitchText(pub Switch);

/// Largest index that means anything: far beyond it a double is 0.
const INDEX_MAX: f64 = 100.0;

const MEMORY_UNITS: &str = "FIT/Mbit, errors/s/bit or index, such as 25000 FIT/Mbit or index 14.2";
const DISK_UNITS: &str = "errors/bit or index, such as 1e-12 errors/bit or index 12";

/// A rate from its text: the unit is one of `linear` with its factor, or an index.
fn rate(text: &str, what: &str, units: &str, linear: &[(&str, f64)]) -> Result<Uncertain, String> {
    let measure: Measure = text.parse().map_err(|why| format!("{why}; give {what} in {units}"))?;
    let Measure { value, low, high, unit } = measure;
    if unit.eq_ignore_ascii_case("index") {
        if !(0.0..=INDEX_MAX).contains(&low) || high > INDEX_MAX {
            return Err(format!("`{text}` is out of range; an index is from 0 to {INDEX_MAX}"));
        }
        // The larger the index, the smaller the rate.
        return Uncertain::new(rate_of_index(high), rate_of_index(value), rate_of_index(low))
            .ok_or_else(|| format!("`{text}` is no rate"));
    }
    let Some((_, factor)) = linear.iter().find(|(name, _)| name.eq_ignore_ascii_case(&unit)) else {
        if unit.is_empty() {
            return Err(format!("`{text}` needs a unit; give {what} in {units}"));
        }
        let known = linear.iter().map(|&(name, _)| name).chain(["index"]);
        let meant = nearest(&unit, known).map(|word| format!(" (did you mean {word}?)")).unwrap_or_default();
        return Err(format!("`{unit}` is no unit of {what}{meant}; give it in {units}"));
    };
    let range = Uncertain::new(low * factor, value * factor, high * factor);
    range.filter(|_| low >= 0.0 && high * factor <= 1.0).ok_or_else(|| {
        let largest = 1.0 / factor;
        format!("`{text}` is out of range; {what} is from 0 to {largest:.4} {unit}")
    })
}

impl FromStr for MemoryRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("FIT/Mbit", fit_per_mbit(1.0)), ("errors/s/bit", 1.0), ("/s/bit", 1.0)];
        rate(text, "the rate of a memory", MEMORY_UNITS, &units).map(Self)
    }
}

impl FromStr for DiskRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("errors/bit", 1.0), ("/bit", 1.0)];
        rate(text, "the bit error rate of a disk", DISK_UNITS, &units).map(Self)
    }
}

impl FromStr for Fraction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no fraction; give a number from 0 to 1, such as 4.16e-20 or 3%");
        let measure: Measure = text.parse().map_err(|_| wrong())?;
        let factor = match measure.unit.as_str() {
            "" => 1.0,
            "%" => 0.01,
            _ => return Err(wrong()),
        };
        let Measure { value, low, high, .. } = measure;
        Uncertain::new(low * factor, value * factor, high * factor)
            .filter(|_| low >= 0.0 && high * factor <= 1.0)
            .map(Self)
            .ok_or_else(|| format!("`{text}` is out of range; a fraction is from 0 to 1 (100%)"))
    }
}

impl FromStr for GoalText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let words = Goal::WORDS.map(|(word, _)| word);
        if let Some(goal) = Goal::from_word(trimmed) {
            return Ok(Self(goal));
        }
        if let Ok(measure) = trimmed.parse::<Measure>() {
            if measure.unit.eq_ignore_ascii_case("score") {
                let is_good = (0.0..=1000.0).contains(&measure.value) && measure.low >= measure.high;
                return is_good.then(|| Self(Goal::of_score(measure.value))).ok_or_else(|| {
                    format!("`{text}` is out of range; a score is one number from 0 to 1000")
                });
            }
            if !measure.unit.is_empty() {
                let bytes: Bytes = trimmed.parse()?;
                return Ok(Self(Goal::bytes_per_corruption(bytes.0 as f64)));
            }
        }
        let meant = nearest(trimmed, words)
            .map(|word| format!("did you mean {word}? A goal is"))
            .unwrap_or_else(|| "a goal is".to_owned());
        Err(format!(
            "`{text}` is no goal; {meant} {}, `score 17.5`, or an amount read such as 10TB",
            words.join(", ")
        ))
    }
}

impl FromStr for SwitchText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(span) = text.parse::<Span>() {
            return Ok(Self(Switch::After(span.0.as_secs_f64())));
        }
        let goal: GoalText =
            text.parse().map_err(|why| format!("{why}; or switch after a span such as 92s"))?;
        Ok(Self(Switch::AtGoal(goal.0)))
    }
}

/// A residency in seconds from its text, `90s`.
pub fn residency(text: &str) -> Result<f64, String> {
    if text.trim().starts_with('-') {
        return Err(format!("`{text}` is below zero; a residency is a span from 0s on, such as 90s or 1h"));
    }
    text.parse::<Span>().map(|span| span.0.as_secs_f64())
}

macro_rules! deserialize_from_text {
    ($($type:ty: $expecting:literal),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }

                    fn visit_f64<E: Error>(self, number: f64) -> Result<$type, E> {
                        let is_short = (1e-3..1e7).contains(&number.abs());
                        self.visit_str(&if is_short { number.to_string() } else { format!("{number:e}") })
                    }

                    fn visit_u64<E: Error>(self, number: u64) -> Result<$type, E> {
                        self.visit_str(&number.to_string())
                    }

                    fn visit_i64<E: Error>(self, number: i64) -> Result<$type, E> {
                        self.visit_str(&number.to_string())
                    }
                }

                deserializer.deserialize_any(Text)
            }
        }
    )*};
}

macro_rules! schema_of_text {
    ($($type:ty: $name:literal, $description:literal, $kind:tt);*) => {$(
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "description": $description, "type": $kind, "minLength": 1, "minimum": 0 })
            }
        }
    )*};
}

schema_of_text!(
    MemoryRate: "MemoryRate",
        "A rate with its unit: 25000 FIT/Mbit, 6.62e-15 errors/s/bit, index 14.2, 25000 [20000..70000] FIT/Mbit.",
        "string";
    DiskRate: "DiskRate", "A rate with its unit: 1e-12 errors/bit, index 12.", "string";
    Fraction: "Fraction", "A number from 0 to 1: 4.16e-20, 3%, 0.1 [0.05..0.2].", ["string", "number"];
    SwitchText: "Switch", "A goal such as zettabyte or score 17.5, or a span such as 92s.", "string"
);

deserialize_from_text!(
    MemoryRate: "a rate such as 25000 FIT/Mbit, 6.62e-15 errors/s/bit or index 14.2",
    DiskRate: "a rate such as 1e-12 errors/bit or index 12",
    Fraction: "a fraction from 0 to 1",
    SwitchText: "a goal such as zettabyte, or a span such as 92s"
);

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_model::Bound;

    #[test]
    fn every_unit_of_a_rate_is_taken_and_means_the_same() {
        let rate = |text: &str| text.parse::<MemoryRate>().expect(text).0.value();
        let consumer = rate("25000 FIT/Mbit");
        assert!((consumer / 6.62e-15 - 1.0).abs() < 1e-3);
        assert!((rate("6.6227e-15 errors/s/bit") / consumer - 1.0).abs() < 1e-4);
        assert!((rate("index 14.179") / consumer - 1.0).abs() < 1e-3);
        assert!((rate("14.179 index") / rate("INDEX 14.179") - 1.0).abs() < 1e-12);
        let disk = "1e-12 errors/bit".parse::<DiskRate>().expect("a rate").0;
        assert_eq!(disk.value(), 1e-12);
        assert!(("index 12".parse::<DiskRate>().expect("a rate").0.value() / 1e-12 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_error_bars_of_an_index_turn_around() {
        let rate = "index 14 [13..16]".parse::<MemoryRate>().expect("a rate").0;
        let at = [Bound::Low, Bound::Value, Bound::High].map(|bound| rate.at(bound).log10().round());
        assert_eq!(at, [-16.0, -14.0, -13.0]);
    }

    #[test]
    fn what_is_out_of_range_or_of_no_known_unit_is_refused_with_what_is_valid() {
        for (text, wanted) in [
            ("-1 FIT/Mbit", "from 0 to"),
            ("14.2", "needs a unit"),
            ("25 apples", "FIT/Mbit, errors/s/bit or index"),
            ("25 FIT/Mbi", "did you mean FIT/Mbit?"),
            ("index -1", "from 0 to 100"),
            ("index 101", "from 0 to 100"),
            ("2 errors/s/bit", "from 0 to 1"),
            ("", "such as"),
        ] {
            let message = text.parse::<MemoryRate>().expect_err(text);
            assert!(message.contains(wanted), "{text}: {message}");
        }
        assert!("-1e-12 errors/bit".parse::<DiskRate>().expect_err("negative").contains("from 0 to 1"));
        for text in ["1.1", "-0.1", "101%", "x", "3 FIT/Mbit"] {
            assert!(text.parse::<Fraction>().expect_err(text).contains("from 0 to 1"), "{text}");
        }
        assert!(residency("-1s").expect_err("negative").contains("from 0s on"));
        assert!(residency("5").is_err());
        assert_eq!(residency("1.5min"), Ok(90.0));
    }

    #[test]
    fn goals_are_words_scores_or_amounts() {
        let score = |text: &str| text.parse::<GoalText>().map(|goal| (goal.0.score() * 10.0).round() / 10.0);
        assert_eq!(score("zettabyte"), Ok(17.5));
        assert_eq!(score("score 12"), Ok(12.0));
        assert_eq!(score("1TiB"), Ok(8.4));
        assert!(score("zetabyte").expect_err("a slip").contains("did you mean zettabyte?"));
        assert!(score("score -1").expect_err("negative").contains("from 0 to 1000"));
        assert!(score("17.5").is_err());
        assert_eq!("92s".parse(), Ok(SwitchText(Switch::After(92.0))));
    }
}
