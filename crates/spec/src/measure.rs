//! A measured number: its value, its error bars, its unit.

use std::str::FromStr;

/// `25000 FIT/Mbit`, `25000 [20000..70000] FIT/Mbit`, `14.2 index` or `index 14.2`. What the unit means is for its user
/// to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// The best estimate.
    pub value: f64,
    /// The smallest it may be; `value` without error bars.
    pub low: f64,
    /// The largest it may be.
    pub high: f64,
    /// The unit as it was written, without spaces around; empty if there is none.
    pub unit: String,
}

impl FromStr for Measure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{}` is no number with a unit", text.trim());
        // A unit may stand in front, as in `index 14.2`.
        let trimmed = text.trim();
        let (in_front, rest) =
            match trimmed.find(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) {
                Some(at) => trimmed.split_at(at),
                None => return Err(wrong()),
            };
        let end = rest.find(|c: char| c == '[' || c.is_whitespace()).unwrap_or_else(|| end_of_number(rest));
        let (number, rest) = rest.split_at(end.min(end_of_number(rest)));
        let value = finite(number).ok_or_else(wrong)?;
        let rest = rest.trim_start();
        let (bars, behind) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (bars, behind) = rest.split_once(']').ok_or_else(|| {
                    format!("`{trimmed}` has no `]`; write error bars as in 25000 [20000..70000]")
                })?;
                (Some(bars), behind)
            }
            None => (None, rest),
        };
        let (in_front, behind) = (in_front.trim(), behind.trim());
        if !in_front.is_empty() && !behind.is_empty() {
            return Err(format!("`{trimmed}` has two units, `{in_front}` and `{behind}`"));
        }
        let (low, high) = match bars {
            None => (value, value),
            Some(bars) => {
                let ends = bars.split_once("..").and_then(|(low, high)| Some((finite(low)?, finite(high)?)));
                let (low, high) = ends.ok_or_else(|| {
                    format!("`[{bars}]` are no error bars; write for example 25000 [20000..70000]")
                })?;
                if !(low <= value && value <= high) {
                    return Err(format!("`{trimmed}`: the value must be within its error bars"));
                }
                (low, high)
            }
        };
        let unit = format!("{in_front}{behind}");
        if unit.starts_with(|c: char| !(c.is_alphabetic() || matches!(c, '/' | '%'))) {
            return Err(wrong());
        }
        Ok(Self { value, low, high, unit })
    }
}

/// How much of a text is a number in the usual or the scientific form.
fn end_of_number(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut end = 0;
    while let Some(&byte) = bytes.get(end) {
        let is_sign = matches!(byte, b'-' | b'+') && (end == 0 || matches!(bytes[end - 1], b'e' | b'E'));
        // An `e` belongs to the number only if an exponent follows.
        let is_exponent = matches!(byte, b'e' | b'E')
            && end > 0
            && bytes[end + 1..]
                .iter()
                .find(|&&next| !matches!(next, b'-' | b'+'))
                .is_some_and(u8::is_ascii_digit);
        if !(byte.is_ascii_digit()
            || byte == b'.' && !text[end..].starts_with("..")
            || is_sign
            || is_exponent)
        {
            break;
        }
        end += 1;
    }
    end
}

fn finite(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(text: &str) -> Result<(f64, f64, f64, String), String> {
        text.parse::<Measure>().map(|m| (m.low, m.value, m.high, m.unit))
    }

    #[test]
    fn a_measure_reads_as_people_write_it() {
        for (text, low, value, high, unit) in [
            ("25000 FIT/Mbit", 25000.0, 25000.0, 25000.0, "FIT/Mbit"),
            ("25000FIT/Mbit", 25000.0, 25000.0, 25000.0, "FIT/Mbit"),
            ("25000 [2e4 .. 7e4] FIT/Mbit", 2e4, 25000.0, 7e4, "FIT/Mbit"),
            ("6.62e-15 errors/s/bit", 6.62e-15, 6.62e-15, 6.62e-15, "errors/s/bit"),
            ("1errors/s/bit", 1.0, 1.0, 1.0, "errors/s/bit"),
            ("index 14.2", 14.2, 14.2, 14.2, "index"),
            ("14.2 index", 14.2, 14.2, 14.2, "index"),
            ("index 14.2 [14..15]", 14.0, 14.2, 15.0, "index"),
            ("-3", -3.0, -3.0, -3.0, ""),
            ("0.1%", 0.1, 0.1, 0.1, "%"),
        ] {
            assert_eq!(measure(text), Ok((low, value, high, unit.to_owned())), "{text}");
        }
        for text in
            ["", "index", "1e999 index", "1 [2..3] x", "1 [0..2 x", "1 [0-2] x", "a 1 b", "nan", "1..2"]
        {
            assert!(measure(text).is_err(), "{text}: {:?}", measure(text));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[0-9a-zA-Z eE.+\\-\\[\\]/%µ]{0,24}") {
            let _ = text.parse::<Measure>();
        }

        #[test]
        fn any_number_reads_back(value in -1e300f64..1e300, unit in "[a-d/]{0,5}") {
            let read: Measure = format!("{value:e} {unit}").parse().expect("a measure");
            proptest::prop_assert_eq!((read.value, read.unit), (value, unit));
        }
    }
}
