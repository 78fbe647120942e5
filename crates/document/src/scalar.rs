//! What a plain scalar means: nothing, a truth value, a number, or a text (YAML 1.2, core schema, section 10.3.2).

/// The meaning of a scalar that stands without quotes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Meaning<'a> {
    /// `null`, `~`, or nothing at all.
    Nothing,
    /// `true` or `false`.
    Truth(bool),
    /// A whole number from 0 on.
    Whole(u128),
    /// A whole number below 0.
    Negative(i128),
    /// Any other number.
    Fraction(f64),
    /// Anything else.
    Text(&'a str),
}

impl<'a> Meaning<'a> {
    /// The meaning of `text`.
    pub fn of(text: &'a str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Meaning::Nothing,
            "true" | "True" | "TRUE" => return Meaning::Truth(true),
            "false" | "False" | "FALSE" => return Meaning::Truth(false),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
                return Meaning::Fraction(f64::INFINITY);
            }
            "-.inf" | "-.Inf" | "-.INF" => return Meaning::Fraction(f64::NEG_INFINITY),
            ".nan" | ".NaN" | ".NAN" => return Meaning::Fraction(f64::NAN),
            _ => {}
        }
        let whole = |digits: &str, radix| {
            let digits_only = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
            (digits_only && !digits.is_empty()).then(|| u128::from_str_radix(digits, radix).ok()).flatten()
        };
        let number = match (text.strip_prefix("0x"), text.strip_prefix("0o")) {
            (Some(digits), _) => whole(digits, 16),
            (_, Some(digits)) => whole(digits, 8),
            _ => whole(text.strip_prefix('+').unwrap_or(text), 10),
        };
        if let Some(number) = number {
            return Meaning::Whole(number);
        }
        let negative = text.strip_prefix('-').and_then(|digits| whole(digits, 10));
        if let Some(number) = negative.and_then(|number| i128::try_from(number).ok()) {
            return Meaning::Negative(-number);
        }
        // Rust would also take `inf`, `infinity` and `nan`, which are words here.
        let begins_as_number =
            text.trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_digit() || c == '.');
        match text.parse() {
            Ok(number) if begins_as_number => Meaning::Fraction(number),
            _ => Meaning::Text(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_mean_what_the_core_schema_says() {
        for (text, meaning) in [
            ("", Meaning::Nothing),
            ("null", Meaning::Nothing),
            ("true", Meaning::Truth(true)),
            ("yes", Meaning::Text("yes")),
            ("42", Meaning::Whole(42)),
            ("+42", Meaning::Whole(42)),
            ("007", Meaning::Whole(7)),
            ("0x1F", Meaning::Whole(31)),
            ("0o17", Meaning::Whole(15)),
            ("-7", Meaning::Negative(-7)),
            ("-0", Meaning::Negative(0)),
            ("0.5", Meaning::Fraction(0.5)),
            ("-1e3", Meaning::Fraction(-1000.0)),
            (".5", Meaning::Fraction(0.5)),
            ("340282366920938463463374607431768211456", Meaning::Fraction(2f64.powi(128))),
            ("infinity", Meaning::Text("infinity")),
            ("4KiB", Meaning::Text("4KiB")),
            ("1..2", Meaning::Text("1..2")),
            ("0x", Meaning::Text("0x")),
            ("0x-1", Meaning::Text("0x-1")),
            ("--1", Meaning::Text("--1")),
            ("-", Meaning::Text("-")),
        ] {
            assert_eq!(Meaning::of(text), meaning, "{text}");
        }
    }
}
