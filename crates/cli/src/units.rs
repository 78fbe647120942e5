//! Numbers with units, for people: at most four digits and one decimal. Files have exact numbers instead.

use std::time::Duration;

/// `465.4 MiB`, `512 B`.
pub fn bytes(count: u64) -> String {
    scaled(count as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// `465.4 MiB/s`.
pub fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", scaled(bytes_per_second, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]))
}

/// `1.2 ms`, `850 ns`, `12.0 s`, `3 min 20 s`.
pub fn duration(span: Duration) -> String {
    let seconds = span.as_secs();
    if seconds >= 3600 {
        return format!("{} h {} min", seconds / 3600, seconds / 60 % 60);
    }
    if seconds >= 100 {
        return format!("{} min {} s", seconds / 60, seconds % 60);
    }
    scaled(span.as_nanos() as f64, 1000.0, &["ns", "us", "ms", "s"])
}

/// The same in at most seven characters, three digits and a unit, for columns: `1.23 ms`, `850 ns`, `200 s`.
pub fn short_duration(span: Duration) -> String {
    short(span.as_nanos() as f64, 1000.0, &["ns", "us", "ms", "s"])
}

/// Bytes in at most eight characters, for columns: `466 MiB`.
pub fn short_bytes(bytes: f64) -> String {
    short(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// A rate in at most ten characters, for columns: `466 MiB/s`.
pub fn short_rate(bytes_per_second: f64) -> String {
    format!("{}/s", short_bytes(bytes_per_second))
}

/// What stands for a rate where no time has passed, so that there is none.
const NO_RATE: &str = "-";

/// A rate in bytes for a column, or that there is none.
pub fn rate_or_none(bytes_per_second: Option<f64>) -> String {
    bytes_per_second.map_or_else(|| NO_RATE.to_owned(), short_rate)
}

/// Requests a second for a column, or that there is no such rate.
pub fn pace_or_none(requests_per_second: Option<f64>) -> String {
    requests_per_second.map_or_else(|| NO_RATE.to_owned(), short_count)
}

/// A count in at most five characters, for columns: `9,999`, `61.6k`, `1.23M`.
pub fn short_count(number: f64) -> String {
    if number < 9_999.5 {
        count(number.round() as u64)
    } else {
        short(number, 1000.0, &["", "k", "M", "G", "T"]).replace(' ', "")
    }
}

/// How often something is done for one of many, with two digits that tell: `4.9`, `0.07`, `<0.001`.
pub fn few(number: f64) -> String {
    match number {
        0.0 => "0".into(),
        number if number < 0.001 => "<0.001".into(),
        number if number < 0.01 => format!("{number:.3}"),
        number if number < 1.0 => format!("{number:.2}"),
        number if number < 100.0 => format!("{number:.1}"),
        number => short_count(number),
    }
}

/// `number` with three significant digits in the largest unit in which it is at least one.
fn short(number: f64, step: f64, units: &[&str]) -> String {
    let mut value = number;
    let mut left = units;
    while let [_, larger @ ..] = left {
        if larger.is_empty() || value < 999.5 {
            break;
        }
        value /= step;
        left = larger;
    }
    let is_smallest = left.len() == units.len();
    let decimals = match value {
        _ if is_smallest => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", left.first().copied().unwrap_or_default())
}

/// `1_234_567` as `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 fault`, `2 faults`, `1,000 faults`.
pub fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `number` in the largest unit in which it is at least one. The smallest unit has no decimals.
fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    let mut value = number;
    let mut left = units;
    while let [_, larger @ ..] = left {
        // What would be shown as 1024.0 KiB is shown as 1.0 MiB.
        if larger.is_empty() || value < step - 0.05 {
            break;
        }
        value /= step;
        left = larger;
    }
    let decimals = usize::from(left.len() < units.len());
    format!("{value:.decimals$} {}", left.first().copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_unit_that_keeps_them_short() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(4096), "4.0 KiB");
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(rate(487_981_875.2), "465.4 MiB/s");
        assert_eq!(duration(Duration::from_nanos(850)), "850 ns");
        assert_eq!(duration(Duration::from_micros(1234)), "1.2 ms");
        assert_eq!(duration(Duration::from_secs(12)), "12.0 s");
        assert_eq!(duration(Duration::from_secs(200)), "3 min 20 s");
        assert_eq!(duration(Duration::from_secs(7260)), "2 h 1 min");
    }

    #[test]
    fn in_columns_three_digits_say_enough() {
        assert_eq!(short_duration(Duration::from_nanos(850)), "850 ns");
        assert_eq!(short_duration(Duration::from_nanos(999_600)), "1.00 ms");
        assert_eq!(short_duration(Duration::from_micros(12_340)), "12.3 ms");
        assert_eq!(short_duration(Duration::from_secs(7260)), "7260 s");
        assert_eq!(short_rate(487_981_875.2), "465 MiB/s");
        assert_eq!(short_rate(1000.0 * 1024.0), "0.98 MiB/s");
        assert_eq!(short_rate(2.5 * 1073741824.0), "2.50 GiB/s");
        assert_eq!(
            [0.0, 0.0004, 0.0042, 0.0666, 4.86, 12_345.0].map(few),
            ["0", "<0.001", "0.004", "0.07", "4.9", "12.3k"]
        );
        assert_eq!(short_count(9_999.0), "9,999");
        assert_eq!(short_count(61_626.0), "61.6k");
        assert_eq!(short_count(1_234_567.0), "1.23M");
    }

    #[test]
    fn counts_have_their_thousands_apart() {
        assert_eq!(count(7), "7");
        assert_eq!(count(1234), "1,234");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "fault"), "1 fault");
        assert_eq!(counted(1000, "fault"), "1,000 faults");
    }
}
