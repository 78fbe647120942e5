//! Numbers as traces write them, exactly: no floating point on the way from text to nanoseconds.

/// A decimal number of units of `unit_ns` nanoseconds, such as `1.000250` seconds, in nanoseconds; digits beyond the
/// nanosecond are cut off. `None` for what is no such number, is negative or does not fit.
pub(crate) fn nanoseconds(text: &str, unit_ns: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { digits(whole)? };
    let mut sum = whole.checked_mul(unit_ns)?;
    let mut place_ns = unit_ns;
    for digit in fraction.bytes() {
        if !digit.is_ascii_digit() {
            return None;
        }
        place_ns /= 10;
        sum = sum.checked_add(u64::from(digit - b'0') * place_ns)?;
    }
    Some(sum)
}

/// Nothing but decimal digits.
pub(crate) fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A whole number that some traces write with zeros behind a point.
pub(crate) fn whole(text: &str) -> Option<u64> {
    match text.split_once('.') {
        Some((whole, fraction)) if fraction.bytes().all(|byte| byte == b'0') => digits(whole),
        Some(_) => None,
        None => digits(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn decimal_times_are_exact() {
        assert_eq!(nanoseconds("0.026214", S), Some(26_214_000));
        assert_eq!(nanoseconds("12", S), Some(12 * S));
        assert_eq!(nanoseconds(".5", 1_000_000), Some(500_000));
        assert_eq!(nanoseconds("1.0000000019", S), Some(S + 1), "cut off, not rounded");
        assert_eq!(nanoseconds("9007199254.740993001", S), Some(9_007_199_254_740_993_001), "no f64");
        for text in ["", ".", "-1", "1e3", "1,5", "18446744073.8", "99999999999999999999"] {
            assert_eq!(nanoseconds(text, S), None, "{text}");
        }
    }

    #[test]
    fn whole_numbers_may_have_zeros_behind_a_point() {
        assert_eq!((whole("8"), whole("8.000"), whole("8.5"), whole("+8")), (Some(8), Some(8), None, None));
        assert_eq!(digits(""), None);
    }
}
