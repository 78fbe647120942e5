//! A probability, exact in decimal, so that rules compare, hash and print without loss.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Digits after the point that are kept: rates of rotting bits go down to 1e-15.
const DIGITS: usize = 18;
const ONE: u64 = 10u64.pow(DIGITS as u32);

/// A probability from 0 to 1, written `1%`, `0.001` or `1e-9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chance(u64);

impl Chance {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(ONE);

    /// Whether it comes true for a number drawn evenly from all of `u64`.
    pub fn comes_true(self, draw: u64) -> bool {
        // draw / 2^64 < chance / ONE, without rounding.
        u128::from(draw) * u128::from(ONE) < u128::from(self.0) << 64
    }

    /// As a fraction.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / ONE as f64
    }
}

impl FromStr for Chance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no probability; write for example 1%, 0.001 or 1e-9");
        let trimmed = text.trim();
        let (number, percent) = match trimmed.strip_suffix('%') {
            Some(number) => (number.trim_end(), 2),
            None => (trimmed, 0),
        };
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let exponent: i32 = exponent.parse().map_err(|_| wrong())?;
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if whole.is_empty() || digits.len() > 36 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        let value: u128 = digits.parse().map_err(|_| wrong())?;
        // value * 10^scale units of 10^-DIGITS.
        let scale = exponent.saturating_sub(percent).saturating_add(DIGITS as i32)
            - i32::try_from(fraction.len()).map_err(|_| wrong())?;
        let units = if value == 0 {
            Some(0)
        } else if scale >= 0 {
            10u128.checked_pow(scale.unsigned_abs()).and_then(|factor| value.checked_mul(factor))
        } else {
            // Finer than what is kept is refused rather than rounded.
            let divisor = 10u128.checked_pow(scale.unsigned_abs()).unwrap_or(u128::MAX);
            if !value.is_multiple_of(divisor) {
                return Err(format!("`{text}` has more than {DIGITS} digits after the point"));
            }
            Some(value / divisor)
        };
        units
            .and_then(|units| u64::try_from(units).ok())
            .filter(|&units| units <= ONE)
            .map(Self)
            .ok_or_else(|| format!("`{text}` is not between 0 and 1 (100%)"))
    }
}

impl fmt::Display for Chance {
    /// The exact decimal, or in scientific form where that would begin with many zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 || self.0 == ONE {
            return write!(f, "{}", self.0 / ONE);
        }
        let digits = format!("{:018}", self.0);
        let digits = digits.trim_end_matches('0');
        let zeros = digits.bytes().take_while(|&byte| byte == b'0').count();
        if zeros < 4 {
            return write!(f, "0.{digits}");
        }
        let (first, rest) = digits[zeros..].split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        write!(f, "{first}{point}{rest}e-{}", zeros + 1)
    }
}

impl Serialize for Chance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Chance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Chance;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a probability such as 1%, 0.001 or 1e-9")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Chance, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Chance, E> {
                // The shortest text that gives this number again is what was written.
                format!("{number:e}").parse().map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Chance, E> {
                number.to_string().parse().map_err(E::custom)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Chance, E> {
                number.to_string().parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Text)
    }
}

impl JsonSchema for Chance {
    fn schema_name() -> Cow<'static, str> {
        "Chance".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A probability: 1%, 0.001, 1e-9.",
            "anyOf": [
                { "type": "number", "minimum": 0, "maximum": 1 },
                { "type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]*)?([eE]-?[0-9]+)?\s*%?\s*$" }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_block::hash::mix;

    #[test]
    fn a_chance_reads_as_people_write_it() {
        for (text, other) in
            [("1%", "0.01"), ("100%", "1"), ("0", "0.0"), ("1e-9", "0.000000001"), ("2.5e-3%", "2.5e-5")]
        {
            assert_eq!(text.parse::<Chance>(), other.parse(), "{text}");
        }
        for text in
            ["", "%", "-1%", "101%", "1.1", "1e1", "0.x", "1e", ".5", "1e-19", "nan", "1e-99999999999"]
        {
            assert!(text.parse::<Chance>().is_err(), "{text}");
        }
        assert_eq!(serde_json::from_str::<Chance>("1e-12").expect("a number").to_string(), "1e-12");
        assert_eq!(serde_json::from_str::<Chance>("0.3").expect("a number").to_string(), "0.3");
    }

    #[test]
    fn it_comes_true_as_often_as_it_says() {
        let chance: Chance = "0.01".parse().expect("a chance");
        let hits = (0..1_000_000).filter(|&n| chance.comes_true(mix(1, 2, n))).count();
        // Five standard deviations of a binomial around 10,000.
        assert!((9_500..=10_500).contains(&hits), "{hits}");
        assert!(!Chance::NEVER.comes_true(0) && Chance::ALWAYS.comes_true(u64::MAX));
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_reads_back(units in 0..=ONE) {
            proptest::prop_assert_eq!(Chance(units).to_string().parse(), Ok(Chance(units)));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9.eE%+-]{0,40}") {
            let _ = text.parse::<Chance>();
        }
    }
}
