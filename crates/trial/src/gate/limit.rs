//! A limit as people write it: a sign and an amount, or a share of what was before or of another run.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How a figure must lie to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// `<=`
    AtMost,
    /// `<`
    Below,
    /// `>=`
    AtLeast,
    /// `>`
    Above,
}

/// What a limit is measured by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// Nothing: it is an amount.
    Nothing,
    /// The load before the window of the fault.
    Before,
    /// The same figure of another run, or the mean of several, in this folder.
    Folder(PathBuf),
}

/// A limit without its unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// How the figure must lie to it.
    pub sign: Sign,
    /// Bytes or requests a second, or nanoseconds; with a base its share, 1 for as much.
    pub amount: f64,
    /// What it is a share of.
    pub base: Base,
    /// As it is written.
    pub text: String,
}

/// A limit of a figure in this unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit<U> {
    sign: Sign,
    amount: f64,
    base: Base,
    unit: PhantomData<U>,
}

/// What a figure counts.
pub trait Unit {
    /// Limits as they could be written.
    const EXAMPLE: &'static str;
    /// What an amount lacks that is only a number; empty where a number is enough.
    const LACKING: &'static str = "";
    /// Reads an amount.
    fn read(text: &str) -> Option<f64>;
    /// Writes one, so that it reads back the same.
    fn write(amount: f64) -> String;
}

/// Bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes;
/// Requests a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number;
/// Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time;

impl Unit for Bytes {
    const EXAMPLE: &'static str = "\">= 100MiB/s\", \">= 50% of before\" or \">= 90% of ../results/base\"";

    fn read(text: &str) -> Option<f64> {
        let bytes: rotproof_spec::Bytes = text.strip_suffix("/s").unwrap_or(text).trim().parse().ok()?;
        Some(bytes.0 as f64)
    }

    fn write(amount: f64) -> String {
        format!("{}/s", rotproof_spec::Bytes(amount as u64))
    }
}

impl Unit for Number {
    const EXAMPLE: &'static str = "\">= 5000\", \">= 50% of before\" or \">= 90% of ../results/base\"";

    fn read(text: &str) -> Option<f64> {
        let digits = text.strip_suffix("/s").unwrap_or(text).trim();
        let number: f64 = digits.replace('_', "").parse().ok()?;
        (number.is_finite() && number >= 0.0).then_some(number)
    }

    fn write(amount: f64) -> String {
        amount.to_string()
    }
}

impl Unit for Time {
    const EXAMPLE: &'static str = "\"<= 5ms\", \"<= 300% of before\" or \"<= 110% of ../results/base\"";
    const LACKING: &'static str = "unit of time (ns, us, ms, s)";

    fn read(text: &str) -> Option<f64> {
        let span: rotproof_spec::Span = text.parse().ok()?;
        Some(span.0.as_nanos() as f64)
    }

    fn write(amount: f64) -> String {
        rotproof_spec::Span(std::time::Duration::from_nanos(amount as u64)).to_string()
    }
}

impl Sign {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::AtMost => "<=",
            Self::Below => "<",
            Self::AtLeast => ">=",
            Self::Above => ">",
        }
    }

    /// Whether a figure that lies between `low` and `high` is as wanted; `None` if that depends on where.
    pub fn holds(self, (low, high): (f64, f64), limit: f64) -> Option<bool> {
        let is_so = |value: f64| match self {
            Self::AtMost => value <= limit,
            Self::Below => value < limit,
            Self::AtLeast => value >= limit,
            Self::Above => value > limit,
        };
        let (at_low, at_high) = (is_so(low), is_so(high));
        (at_low == at_high).then_some(at_low)
    }
}

impl<U: Unit> Limit<U> {
    /// Without its unit.
    pub fn wanted(&self) -> Wanted {
        Wanted { sign: self.sign, amount: self.amount, base: self.base.clone(), text: self.to_string() }
    }
}

impl<U> Limit<U> {
    /// The folder of the run that it is a share of, if it is.
    pub fn folder_mut(&mut self) -> Option<&mut PathBuf> {
        match &mut self.base {
            Base::Folder(path) => Some(path),
            _ => None,
        }
    }
}

impl<U: Unit> FromStr for Limit<U> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{text}` {why}; write for example {}", U::EXAMPLE);
        let trimmed = text.trim();
        let signs = [("<=", Sign::AtMost), (">=", Sign::AtLeast), ("<", Sign::Below), (">", Sign::Above)];
        let (rest, sign) = signs
            .iter()
            .find_map(|(word, sign)| Some((trimmed.strip_prefix(word)?.trim(), *sign)))
            .ok_or_else(|| wrong("says neither at most (<=) nor at least (>=)"))?;
        let Some((share, base)) = rest.split_once('%') else {
            let amount = U::read(rest).ok_or_else(|| lacking::<U>(text, rest))?;
            return Ok(Self { sign, amount, base: Base::Nothing, unit: PhantomData });
        };
        let share: f64 = share.trim().parse().map_err(|_| wrong("has no such share"))?;
        if !share.is_finite() || share <= 0.0 {
            return Err(wrong("has a share that is not above 0%"));
        }
        let base = match base.trim().strip_prefix("of ").map(str::trim) {
            Some("before") => Base::Before,
            Some(folder) if !folder.is_empty() => Base::Folder(folder.into()),
            _ => return Err(wrong("does not say of what")),
        };
        Ok(Self { sign, amount: share / 100.0, base, unit: PhantomData })
    }
}

/// What is wrong with an amount, and what to write instead: that of a bare number, with the unit that is most common.
fn lacking<U: Unit>(text: &str, amount: &str) -> String {
    let is_number = amount.parse::<f64>().is_ok_and(|number| number.is_finite() && number >= 0.0);
    if !U::LACKING.is_empty() && is_number {
        let sign = text.trim().trim_end_matches(amount).trim();
        return format!("`{text}` has no {}; write for example \"{sign} {amount}ms\"", U::LACKING);
    }
    if amount.is_empty() {
        return format!("`{text}` has no amount; write for example {}", U::EXAMPLE);
    }
    format!("`{amount}` in `{text}` is no amount of this figure; write for example {}", U::EXAMPLE)
}

impl<U: Unit> fmt::Display for Limit<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = || {
            // What a hundredth of a share does to its last digits is nobody's concern.
            let text = format!("{:.6}", self.amount * 100.0);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        let sign = self.sign.word();
        let text = match &self.base {
            Base::Nothing => format!("{sign} {}", U::write(self.amount)),
            Base::Before => format!("{sign} {}% of before", share()),
            Base::Folder(folder) => format!("{sign} {}% of {}", share(), folder.display()),
        };
        f.pad(&text)
    }
}

impl<U: Unit> Serialize for Limit<U> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, U: Unit> Deserialize<'de> for Limit<U> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl<U: Unit> JsonSchema for Limit<U> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": format!("A limit: {}.", U::EXAMPLE),
            "pattern": r"^\s*(<=?|>=?)"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_reads_back_as_it_is_written() {
        for (text, amount, written) in [
            ("<= 5ms", 5e6, "<= 5ms"),
            ("<1.5ms", 1.5e6, "< 1500us"),
            (" <= 300 % of before ", 3.0, "<= 300% of before"),
            ("<= 110.5% of a folder/base", 1.105, "<= 110.5% of a folder/base"),
        ] {
            let limit: Limit<Time> = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert!((limit.amount - amount).abs() < 1e-9, "{text}");
            assert_eq!(limit.to_string(), written);
            assert_eq!(written.parse::<Limit<Time>>().map(|limit| limit.to_string()).as_deref(), Ok(written));
        }
        let rate: Limit<Bytes> = ">= 100MiB/s".parse().expect("a limit");
        assert_eq!((rate.amount, rate.to_string().as_str()), (104_857_600.0, ">= 100MiB/s"));
        let number: Limit<Number> = "> 1_500".parse().expect("a limit");
        assert_eq!((number.amount, number.to_string().as_str()), (1500.0, "> 1500"));
    }

    #[test]
    fn what_is_no_limit_says_what_is_missing() {
        for text in [
            "5ms",
            "<= 5",
            "<= 5MiB",
            "<= 5%",
            "<= 5% of",
            "<= -5% of before",
            "<= 0% of before",
            "=5ms",
            "",
            "<=",
        ] {
            assert!(text.parse::<Limit<Time>>().is_err(), "{text}");
        }
        assert!("<= 5ms".parse::<Limit<Bytes>>().is_err());
        assert!(">= NaN".parse::<Limit<Number>>().is_err());
        assert_eq!(
            "<= 5".parse::<Limit<Time>>().expect_err("no unit"),
            "`<= 5` has no unit of time (ns, us, ms, s); write for example \"<= 5ms\""
        );
        assert!("<= 5 miles".parse::<Limit<Time>>().expect_err("no such unit").starts_with("`5 miles` in"));
        assert!("<=".parse::<Limit<Time>>().expect_err("nothing").contains("has no amount"));
        assert!("5ms".parse::<Limit<Time>>().expect_err("no sign").contains("at most"));
    }

    #[test]
    fn a_figure_that_is_not_known_so_exactly_is_not_judged() {
        assert_eq!(Sign::AtMost.holds((4.9, 5.0), 5.0), Some(true));
        assert_eq!(Sign::AtMost.holds((4.9, 5.1), 5.0), None);
        assert_eq!(Sign::Below.holds((5.0, 5.1), 5.0), Some(false));
        assert_eq!(Sign::AtLeast.holds((5.0, 5.1), 5.0), Some(true));
        assert_eq!(Sign::Above.holds((5.0, 5.1), 5.0), None);
    }
}
