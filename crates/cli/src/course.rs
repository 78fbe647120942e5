//! What the faults of a run did to the speed of its load, for a person: a row of figures for each, and a line on how that was
//! noticed and how long it took to be as before. Nothing of it is wider than a terminal.

use std::time::Duration;

use rotproof_record::statistics::{
    Change, Degradation, DetectedBy, Effect, Level, Levels, Recovery, SteadyEnd, SteadyState,
};

use crate::output::Paint;
use crate::table::{Align, Table, clip};
use crate::units;
use crate::verdict::wrapped;

/// The lines; none if no fault was at work for long enough.
pub fn render(degradation: &[Degradation], steady_state: Option<&SteadyState>, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    if !degradation.is_empty() {
        lines.extend([String::new(), paint.bold("Over time").to_string()]);
        let has_effect = |found: &&Degradation| matches!(found.effect, Effect::Degraded | Effect::Improved);
        let changed: Vec<&Degradation> = degradation.iter().filter(has_effect).collect();
        if !changed.is_empty() {
            lines.push(table(&changed, paint));
            lines.extend(changed.iter().flat_map(|found| wrapped(&sequel(found))));
        }
        let without = degradation.iter().filter(|found| !has_effect(found));
        lines.extend(without.flat_map(|found| wrapped(&without_effect(found))));
    }
    lines.extend(steady_state.map(steady));
    lines
}

fn table(degradation: &[&Degradation], paint: Paint) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("fault", Left),
        ("before", Right),
        ("during", Right),
        ("of before", Right),
        ("latency", Right),
        ("p99", Right),
    ]);
    for found in degradation {
        let rate = |level: &Option<Level>| {
            level.map_or(String::new(), |level| units::short_rate(level.summary.mean))
        };
        table.row([
            clip(&found.fault, 12),
            rate(&found.throughput.before),
            rate(&found.throughput.during),
            share_of_before(&found.throughput),
            factor(&found.latency_mean_ns),
            factor(&found.latency_p99_ns),
        ]);
    }
    table.render(paint)
}

/// How the load noticed a fault, when it was as before, and what it had lost by then.
fn sequel(found: &Degradation) -> String {
    let told = [Some(noticed(found)), back(found), found.lost_bytes.map(lost)];
    format!("{}: {}", clip(&found.fault, 12), told.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn lost(bytes: f64) -> String {
    match bytes.max(0.0) as u64 {
        0 => "nothing lost".into(),
        bytes => format!("{} fewer moved", units::bytes(bytes)),
    }
}

/// A fault of which nothing can be said but that, with what was measured.
fn without_effect(found: &Degradation) -> String {
    let name = clip(&found.fault, 12);
    let count = |level: Option<Level>| level.map_or(0, |level| level.summary.count);
    let Levels { before, during, .. } = found.throughput;
    if found.effect == Effect::Unknown {
        let (before, during) = (count(before), count(during));
        return format!(
            "{name}: too few intervals to tell an effect from noise ({before} before, {during} during); a longer window, \
             or shorter intervals (`record:`), can"
        );
    }
    let shares = [
        ("throughput", &found.throughput),
        ("mean latency", &found.latency_mean_ns),
        ("p99", &found.latency_p99_ns),
    ];
    let shares = shares.into_iter().filter_map(|(what, levels)| {
        let share = levels.during.as_ref().map(share).filter(|share| !share.is_empty())?;
        Some(format!("{what} {share} of before"))
    });
    let shares: Vec<String> = shares.collect();
    format!("{name}: no measurable effect ({})", shares.join(", "))
}

/// A change for which nothing speaks is none.
fn share_of_before(levels: &Levels) -> String {
    match levels.change {
        Change::Lower | Change::Higher => levels.during.as_ref().map_or(String::new(), share),
        Change::None | Change::Unknown => "-".into(),
    }
}

/// `x3.2`.
fn factor(levels: &Levels) -> String {
    let ratio = levels.during.and_then(|during| during.ratio);
    match (levels.change, ratio) {
        (Change::Lower | Change::Higher, Some(ratio)) if ratio >= 9.95 => format!("x{ratio:.0}"),
        (Change::Lower | Change::Higher, Some(ratio)) if ratio < 0.1 => format!("x{ratio:.2}"),
        (Change::Lower | Change::Higher, Some(ratio)) => format!("x{ratio:.1}"),
        _ => "-".into(),
    }
}

/// After how long the load was as before.
fn back(found: &Degradation) -> Option<String> {
    Some(match (found.recovery?, found.recovered_after_ns) {
        (Recovery::Recovered, Some(0)) => "back at once".into(),
        (Recovery::Recovered, Some(after)) => format!("back {} after its end", span(after)),
        (Recovery::Never, _) => "never back".into(),
        _ => "back not seen".into(),
    })
}

/// `50% +-1%`, the wider side of the interval.
fn share(level: &Level) -> String {
    let Some(ratio) = level.ratio else { return String::new() };
    let percent = |share: f64| {
        let percent = share * 100.0;
        if percent >= 9.95 || percent == 0.0 { format!("{percent:.0}%") } else { format!("{percent:.1}%") }
    };
    let reach = level.ratio_confidence.map(|range| (range.high - ratio).max(ratio - range.low));
    match reach {
        // Digits beyond that say no more than that nothing is known.
        Some(reach) if reach > 10.0 => format!("{} +->1000%", percent(ratio)),
        Some(reach) if reach > 0.0 => format!("{} +-{}", percent(ratio), percent(reach)),
        _ => percent(ratio),
    }
}

fn noticed(found: &Degradation) -> String {
    let by = match found.detected_by {
        None => return "not noticed".into(),
        Some(DetectedBy::Error) => "noticed by an error",
        Some(DetectedBy::Latency) => "noticed by its latency",
        Some(DetectedBy::Stall) => "noticed by a stall",
    };
    found.detected_after_ns.map_or(by.to_owned(), |after| format!("{by} after {}", span(after)))
}

fn span(nanoseconds: u64) -> String {
    if nanoseconds == 0 { "0 s".into() } else { units::short_duration(Duration::from_nanos(nanoseconds)) }
}

fn steady(state: &SteadyState) -> String {
    let figures = figures(state);
    match state.since_ns {
        Some(since) => format!("  steady since {} ({figures})", span(since)),
        None => format!("  never steady; at its end a {figures}"),
    }
}

/// Whether a load that was to end when it is steady did.
pub fn until_steady(end: &SteadyEnd, paint: Paint) -> String {
    let text = match (end.state, end.at_ns) {
        (Some(state), Some(at)) => {
            let since = span(state.since_ns.unwrap_or(at));
            format!("steady since {since}, ended at {} ({})", span(at), figures(&state))
        }
        (Some(state), None) => {
            let text = format!("not steady before its end; the last window has a {}", figures(&state));
            return format!("  {}", paint.notable(text));
        }
        (None, _) => {
            return format!(
                "  {}",
                paint.notable("not steady before its end, which came within the first window")
            );
        }
    };
    format!("  {text}")
}

fn figures(state: &SteadyState) -> String {
    format!("range of {:.0}%, slope of {:.0}%", state.range * 100.0, state.slope * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_record::statistics::{Point, Window, degradation};

    fn rendered(bytes: &[u64], latency_ns: impl Fn(usize) -> f64, window: (u64, u64)) -> String {
        rendered_of("slow", bytes, latency_ns, window)
    }

    fn rendered_of(
        fault: &str,
        bytes: &[u64],
        latency_ns: impl Fn(usize) -> f64,
        (from, until): (u64, u64),
    ) -> String {
        const SECOND: u64 = 1_000_000_000;
        let points: Vec<Point> = bytes
            .iter()
            .enumerate()
            .map(|(second, &bytes)| Point {
                start_ns: second as u64 * SECOND,
                end_ns: (second as u64 + 1) * SECOND,
                bytes,
                requests: 100,
                first_error: None,
                latency_sum_ns: 100.0 * latency_ns(second),
                p99_ns: (latency_ns(second) * 2.0) as u64,
            })
            .collect();
        let window = Window { fault: fault.into(), from_ns: from * SECOND, until_ns: until * SECOND };
        render(&[degradation(&points, &[window], 0)], None, Paint::OFF).join("\n")
    }

    #[test]
    fn what_cannot_be_told_from_noise_is_no_effect_and_what_is_too_short_says_so() {
        let noise = [100, 103, 97, 101, 99, 102, 98, 100, 101, 99, 102, 97];
        let text = rendered(&noise, |_| 1e6, (5, 9));
        assert!(text.contains("slow: no measurable effect (throughput 100% +-"), "{text}");
        let text = rendered(&[100, 100, 100, 50, 100, 100], |_| 1e6, (3, 4));
        assert!(text.contains("too few intervals") && text.contains("3 before, 1 during"), "{text}");
        assert!(!text.contains("never"), "{text}");
    }

    #[test]
    fn a_latency_that_suffers_alone_is_in_the_table() {
        let rate = [100; 20];
        let is_slow = |second: usize| (8..13).contains(&second);
        let text = rendered(&rate, |second| if is_slow(second) { 25e6 } else { 1e6 }, (8, 13));
        let mut rows = text.lines().filter(|line| line.contains("slow"));
        let (row, sequel) = (rows.next().expect("a row"), rows.next().expect("how it went on"));
        assert!(row.contains("x25") && row.contains(" - "), "{row}");
        assert_eq!(sequel, "  slow: noticed by its latency after 1.00 s, back at once");
        let stays = rendered(&rate, |second| if second >= 8 { 25e6 } else { 1e6 }, (8, 13));
        assert!(stays.contains("never back"), "{stays}");
        let ended = rendered(&rate[..13], |second| if second >= 8 { 25e6 } else { 1e6 }, (8, 13));
        assert!(ended.contains("back not seen"), "{ended}");
    }

    #[test]
    fn the_widest_figures_fit_a_terminal() {
        let is_slow = |second: usize| (8..13).contains(&second);
        let rate: Vec<u64> =
            (0..20u64)
                .map(|second| {
                    if is_slow(second as usize) {
                        104_857_600 + second % 3 * 9_000_000
                    } else {
                        1_063_256_064
                    }
                })
                .collect();
        let text = rendered_of(
            "a-rule-with-a-long-name",
            &rate,
            |second| if is_slow(second) { 333e6 } else { 1e6 },
            (8, 13),
        );
        assert!(text.contains("iB fewer"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        // A name too long is cut, and nothing else.
        let cut = text.lines().map(|line| line.matches('…').count() - line.matches("a-rule-with…").count());
        assert_eq!(cut.sum::<usize>(), 0, "{text}");
    }
}
