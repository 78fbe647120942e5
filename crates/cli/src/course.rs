//! What the faults of a run did to the speed of its load, for a person: one line for each.

use std::time::Duration;

use rotproof_record::statistics::{Degradation, DetectedBy, Level, SteadyEnd, SteadyState};

use crate::output::Paint;
use crate::table::{Align, Table, clip};
use crate::units;

/// The lines; none if no fault was at work for long enough.
pub fn render(degradation: &[Degradation], steady_state: Option<&SteadyState>, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    if !degradation.is_empty() {
        lines.extend([String::new(), paint.bold("Over time").to_string(), table(degradation, paint)]);
    }
    lines.extend(steady_state.map(steady));
    lines
}

fn table(degradation: &[Degradation], paint: Paint) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("fault", Left),
        ("before", Right),
        ("during", Right),
        ("of before", Right),
        ("noticed", Left),
        ("back", Right),
        ("lost", Right),
    ]);
    for found in degradation {
        let rate = |level: &Option<Level>| {
            level.map_or(String::new(), |level| units::short_rate(level.summary.mean))
        };
        table.row([
            clip(&found.fault, 12),
            rate(&found.before),
            rate(&found.during),
            found.during.as_ref().map_or(String::new(), share),
            noticed(found),
            found.recovered_after_ns.map_or("never".to_owned(), span),
            found.lost_bytes.map_or(String::new(), |bytes| units::bytes(bytes.max(0.0) as u64)),
        ]);
    }
    table.render(paint)
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
        Some(reach) if reach > 0.0 => format!("{} +-{}", percent(ratio), percent(reach)),
        _ => percent(ratio),
    }
}

fn noticed(found: &Degradation) -> String {
    let by = match found.detected_by {
        None => return "nothing".into(),
        Some(DetectedBy::Error) => "error",
        Some(DetectedBy::Latency) => "latency",
        Some(DetectedBy::Stall) => "stall",
    };
    found.detected_after_ns.map_or(by.to_owned(), |after| format!("{by}, {}", span(after)))
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
