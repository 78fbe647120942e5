//! Sizes, ranges and spans of time, as people write them: `4KiB`, `1MiB..2MiB`, `1.5s`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes: `4096`, `4KiB`, `1.5 GiB`, `10MB`. Binary units are powers of 1024, decimal ones of 1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

const BYTE_UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

/// Splits `1.5 GiB` into `1.5` and `gib`.
fn split_unit(text: &str) -> (&str, String) {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    (&text[..end], text[end..].trim().to_lowercase())
}

/// `number` times `unit`, exact for whole numbers; `None` if it is no number, or not below 2^64.
fn scale(number: &str, unit: u64) -> Option<u64> {
    let digits: String = number.chars().filter(|&c| c != '_').collect();
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let whole: u128 = whole.parse().ok()?;
    let mut value = whole.checked_mul(u128::from(unit))?;
    if !fraction.is_empty() {
        if fraction.len() > 15 {
            return None;
        }
        let numerator: u128 = fraction.parse().ok()?;
        value = value
            .checked_add(numerator * u128::from(unit) / 10u128.pow(u32::try_from(fraction.len()).ok()?))?;
    }
    u64::try_from(value).ok()
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split_unit(text);
        let (_, factor) = BYTE_UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(|| format!("`{text}` is no size; write for example 4096, 4KiB or 1.5GiB"))?;
        scale(number, *factor).map(Self).ok_or_else(|| {
            format!("`{text}` is no size below 2^64 bytes; write for example 4096, 4KiB or 1.5GiB")
        })
    }
}

impl fmt::Display for Bytes {
    /// The shortest exact form with a binary unit, so that it reads back as the same number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
            if self.0 != 0 && self.0.is_multiple_of(unit) {
                return f.pad(&format!("{}{name}", self.0 / unit));
            }
        }
        f.pad(&self.0.to_string())
    }
}

/// A span of time: `250us`, `10ms`, `1.5s`, `2min`, `1h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

const TIME_UNITS: [(&str, u64); 10] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("sec", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split_unit(text);
        let wrong = || format!("`{text}` is no span of time; write for example 250us, 10ms, 1.5s or 2min");
        if number == "0" && unit.is_empty() {
            return Ok(Self(Duration::ZERO));
        }
        let (_, factor) = TIME_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        scale(number, *factor).map(|nanoseconds| Self(Duration::from_nanos(nanoseconds))).ok_or_else(wrong)
    }
}

impl fmt::Display for Span {
    /// Exact: the largest unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        for (unit, name) in [(3_600_000_000_000, "h"), (60_000_000_000, "min"), (1_000_000_000, "s")] {
            if nanoseconds != 0 && nanoseconds.is_multiple_of(unit) {
                return f.pad(&format!("{}{name}", nanoseconds / unit));
            }
        }
        for (unit, name) in [(1_000_000, "ms"), (1_000, "us")] {
            if nanoseconds.is_multiple_of(unit) {
                return f.pad(&format!("{}{name}", nanoseconds / unit));
            }
        }
        f.pad(&format!("{nanoseconds}ns"))
    }
}

/// A range of bytes, the end not included: `1MiB..2MiB`, `64KiB..` (to the end), or one place, `1MiB`, whose
/// length its user decides (one block).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// First byte after the range.
    pub end: End,
}

/// Where a [`ByteRange`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Before this byte.
    At(u64),
    /// With the device.
    Open,
    /// After the one block that `start` is in.
    OneBlock,
}

impl FromStr for ByteRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((start, end)) = text.split_once("..") else {
            return Ok(Self { start: text.parse::<Bytes>()?.0, end: End::OneBlock });
        };
        let start = if start.trim().is_empty() { 0 } else { start.parse::<Bytes>()?.0 };
        let end = if end.trim().is_empty() { End::Open } else { End::At(end.parse::<Bytes>()?.0) };
        Ok(Self { start, end })
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            End::At(end) => write!(f, "{}..{}", Bytes(self.start), Bytes(end)),
            End::Open => write!(f, "{}..", Bytes(self.start)),
            End::OneBlock => write!(f, "{}", Bytes(self.start)),
        }
    }
}

/// Serde and schema for a type that is written as text, and perhaps as a plain number.
macro_rules! as_text {
    ($type:ty, $name:literal, $expecting:literal, $number:expr, $schema:expr) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }

                    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<$type, E> {
                        let from_number: fn(u64) -> Option<$type> = $number;
                        from_number(number)
                            .ok_or_else(|| E::custom(format!("{number} needs a unit: {}", $expecting)))
                    }

                    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<$type, E> {
                        match u64::try_from(number) {
                            Ok(number) => self.visit_u64(number),
                            Err(_) => Err(E::custom(format!("{number} is negative; give {}", $expecting))),
                        }
                    }
                }
                deserializer.deserialize_any(Text)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

as_text!(
    Bytes,
    "Bytes",
    "a size such as 4096, 4KiB or 1.5GiB",
    |number| Some(Bytes(number)),
    json_schema!({
        "description": "A number of bytes: 4096, 4KiB, 1.5GiB, 10MB.",
        "anyOf": [
            { "type": "integer", "minimum": 0 },
            { "type": "string", "pattern": r"^\s*[0-9][0-9_]*(\.[0-9]+)?\s*([kKmMgGtT]([iI]?[bB])?|[bB])?\s*$" }
        ]
    })
);

as_text!(
    Span,
    "Span",
    "a span of time such as 250us, 10ms or 1.5s",
    |number| (number == 0).then_some(Span(Duration::ZERO)),
    json_schema!({
        "description": "A span of time with its unit: 250us, 10ms, 1.5s, 2min, 1h.",
        "anyOf": [
            { "const": 0 },
            { "type": "string", "pattern": r"^\s*[0-9][0-9_]*(\.[0-9]+)?\s*(ns|us|µs|ms|s|sec|m|min|h|d)\s*$" }
        ]
    })
);

as_text!(
    ByteRange,
    "ByteRange",
    "a range of bytes such as 1MiB..2MiB, or the offset of one block",
    |number| Some(ByteRange { start: number, end: End::OneBlock }),
    json_schema!({
        "description": "A range of bytes, the end not included: 1MiB..2MiB, 64KiB.. (to the end); or the offset of one block.",
        "anyOf": [ { "type": "integer", "minimum": 0 }, { "type": "string" } ]
    })
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4KiB", 4096),
            ("4k", 4096),
            ("1.5 GiB", 3 << 29),
            ("10MB", 10_000_000),
            ("1_000", 1000),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "KiB", "4 apples", "-1", "1e9", "99999999TiB", "1..2", "1.2.3"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn spans_need_a_unit() {
        assert_eq!("1.5s".parse(), Ok(Span(Duration::from_millis(1500))));
        assert_eq!("250us".parse(), Ok(Span(Duration::from_micros(250))));
        assert_eq!("0".parse(), Ok(Span(Duration::ZERO)));
        assert!("10".parse::<Span>().is_err());
        assert!("-1s".parse::<Span>().is_err());
    }

    #[test]
    fn ranges_may_be_open_or_one_place() {
        assert_eq!("1MiB..2MiB".parse(), Ok(ByteRange { start: 1 << 20, end: End::At(2 << 20) }));
        assert_eq!("4096..".parse(), Ok(ByteRange { start: 4096, end: End::Open }));
        assert_eq!("8KiB".parse(), Ok(ByteRange { start: 8192, end: End::OneBlock }));
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_reads_back(number: u64) {
            proptest::prop_assert_eq!(Bytes(number).to_string().parse(), Ok(Bytes(number)));
            let span = Span(Duration::from_nanos(number));
            proptest::prop_assert_eq!(span.to_string().parse(), Ok(span));
        }

        #[test]
        fn no_text_makes_a_parser_panic(text: String) {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<Span>();
            let _ = text.parse::<ByteRange>();
        }
    }
}
