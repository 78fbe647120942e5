//! Numbers of the model, for people and for programs. A score is rounded down: it is a promise.

use rotproof_model::{Bound, Goal, Probability, SECONDS_PER_YEAR, Uncertain, fit_per_mbit, index_of};
use serde_json::{Value, json};

/// `17.45`; `inf` for what cannot happen.
pub fn score(score: f64) -> String {
    if score.is_infinite() {
        return "inf".into();
    }
    // 17.5 may have become 17.499999999999996 on the way.
    format!("{:.2}", (score * 100.0 + 1e-6).floor() / 100.0)
}

/// `3.31e-19`, also where a double would be 0.
pub fn probability(probability: Probability) -> String {
    if probability == Probability::NEVER {
        return "0".into();
    }
    let power = -probability.score();
    let mut exponent = power.floor();
    let mut digits = 10f64.powf(power - exponent);
    if digits >= 9.995 {
        (digits, exponent) = (digits / 10.0, exponent + 1.0);
    }
    if exponent >= -2.0 { format!("{:.3}", probability.value()) } else { format!("{digits:.2}e{exponent}") }
}

/// `2.5e3`, `0.0123`, `1,234`: three digits that say enough.
pub fn number(number: f64) -> String {
    let size = number.abs();
    match size {
        _ if size == 0.0 => "0".into(),
        _ if !(1e-3..1e7).contains(&size) => format!("{number:.2e}"),
        _ if size >= 999.5 => crate::units::count(number.round() as u64),
        _ => {
            let decimals = (2.0 - size.log10().floor()).clamp(0.0, 5.0) as usize;
            format!("{number:.decimals$}")
        }
    }
}

/// A time of any length: `92.5 s`, `50.2 d`, `1.2 years`.
pub fn seconds(seconds: f64) -> String {
    let (unit, name, decimals) = unit_of(seconds);
    format!("{} {name}", trimmed(seconds / unit, decimals))
}

/// The same, rounded down: for times that are a promise.
pub fn seconds_down(seconds: f64) -> String {
    let (unit, name, decimals) = unit_of(seconds);
    let steps = 10f64.powf(decimals as f64);
    format!("{} {name}", trimmed((seconds / unit * steps + 1e-6).floor() / steps, decimals))
}

/// The unit in which a time is short, its name, and the decimals it is shown with.
fn unit_of(seconds: f64) -> (f64, &'static str, usize) {
    match seconds {
        0.0 => (1.0, "s", 0),
        s if s < 1e-3 => (1e-6, "us", 3),
        s if s < 1.0 => (1e-3, "ms", 1),
        s if s < 600.0 => (1.0, "s", 1),
        s if s < 7200.0 => (60.0, "min", 1),
        s if s < 2.0 * 86_400.0 => (3600.0, "h", 1),
        s if s < SECONDS_PER_YEAR => (86_400.0, "d", 1),
        _ => (SECONDS_PER_YEAR, "years", 1),
    }
}

fn trimmed(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// `25,000 FIT/Mbit = 6.62e-15 errors/s/bit = index 14.18`, with error bars if there are any.
pub fn memory_rate(rate: Uncertain) -> String {
    let fit = |rate: f64| number(rate / fit_per_mbit(1.0));
    let bars = bars(rate, fit);
    let value = rate.value();
    // With error bars a line has no room for the third unit.
    let absolute = if rate.is_exact() { format!(" = {value:.2e} errors/s/bit") } else { String::new() };
    format!("{}{bars} FIT/Mbit{absolute} = index {:.2}", fit(value), index_of(value))
}

/// `1.00e-12 errors/bit = index 12.00`.
pub fn disk_rate(rate: Uncertain) -> String {
    let plain = |rate: f64| format!("{rate:.2e}");
    format!("{}{} errors/bit = index {:.2}", plain(rate.value()), bars(rate, plain), index_of(rate.value()))
}

fn bars(rate: Uncertain, show: impl Fn(f64) -> String) -> String {
    if rate.is_exact() {
        return String::new();
    }
    format!(" [{}..{}]", show(rate.at(Bound::Low)), show(rate.at(Bound::High)))
}

/// `one undetected corruption in 2^70 bytes read`, in words for the usual goals.
pub fn goal(goal: Goal) -> String {
    let is_same =
        |word| Goal::from_word(word).is_some_and(|known| (known.score() - goal.score()).abs() < 1e-9);
    match Goal::WORDS.into_iter().find(|(word, _)| is_same(word)) {
        Some((word, _)) => format!("{:.2} (one in a {word} read)", goal.score()),
        None => format!("{:.2}", goal.score()),
    }
}

/// `low`, `value`, `high` of a number.
pub fn uncertain_json(number: Uncertain) -> Value {
    json!({ "low": number.at(Bound::Low), "value": number.value(), "high": number.at(Bound::High) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_rounded_down_and_a_probability_shown_beyond_doubles() {
        assert_eq!(score(7.4899), "7.48");
        assert_eq!(score(Goal::of_score(17.5).score()), "17.50");
        assert_eq!(score(f64::INFINITY), "inf");
        assert_eq!(probability(Probability::from_score(400.5)), "3.16e-401");
        assert_eq!(probability(Probability::from_score(17.0)), "1.00e-17");
        assert_eq!(probability(Probability::new(0.5).expect("a probability")), "0.500");
        assert_eq!(probability(Probability::NEVER), "0");
    }

    #[test]
    fn numbers_and_times_are_short() {
        assert_eq!(number(25_000.0), "25,000");
        assert_eq!(number(0.01234), "0.0123");
        assert_eq!(number(12.345), "12.3");
        assert_eq!(number(1.5e-9), "1.50e-9");
        assert_eq!(number(0.0), "0");
        assert_eq!(seconds(92.44), "92.4 s");
        assert_eq!(seconds(1.0), "1 s");
        assert_eq!(seconds(3600.0), "60 min");
        assert_eq!(seconds(4.34e6), "50.2 d");
        assert_eq!(seconds(0.0), "0 s");
        assert_eq!(seconds(92.46), "92.5 s");
        assert_eq!(seconds_down(92.46), "92.4 s");
        assert_eq!(seconds_down(60.0), "60 s");
    }
}
