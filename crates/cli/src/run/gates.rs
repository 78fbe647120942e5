//! The gates of a verdict for a person, in 80 columns.

use std::time::Duration;

use rotproof_trial::gate::{GateOutcome, GateReport};

use crate::output::Paint;
use crate::table::clip;
use crate::units;
use crate::verdict::wrapped;

const WIDTH: usize = 80;

/// A line for each limit, with why it is not known below it.
pub fn render(gates: &[GateReport], paint: Paint) -> Vec<String> {
    if gates.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), paint.bold("Gates").to_string()];
    for gate in gates {
        let mark = match (gate.outcome, gate.passes) {
            (GateOutcome::Holds, _) => paint.good("yes").to_string(),
            (GateOutcome::Fails, _) => paint.bad("NO ").to_string(),
            (GateOutcome::Unknown, true) => paint.notable("?  ").to_string(),
            (GateOutcome::Unknown, false) => paint.bad("?  ").to_string(),
        };
        let name = clip(&format!("{} {}", gate.of, gate.figure), 22);
        let told = format!("{name:22} {:20} {}", clip(&wanted(&gate.wanted), 20), found(gate));
        // The mark may hold colours, which take no columns.
        lines.push(format!("  {mark}  {}", clip(&told, WIDTH - 7)));
        if let Some(why) = &gate.why {
            let allowed = if gate.passes { " (allowed)" } else { "" };
            lines.extend(wrapped(&format!("unknown{allowed}: {why}")));
        }
    }
    lines
}

/// The limit, with the folder of another run by its name alone: the whole path is in `run.json`.
fn wanted(text: &str) -> String {
    match text.split_once("% of ") {
        Some((share, path)) => {
            let path = path.trim_end_matches('/');
            format!("{share}% of {}", path.rsplit('/').next().unwrap_or(path))
        }
        None => text.to_owned(),
    }
}

/// What was found of a limit, and what share of its base that is.
pub fn found(gate: &GateReport) -> String {
    let Some(found) = gate.found else { return "nothing".to_owned() };
    let amount = amount(&gate.figure, found);
    match gate.base {
        Some(base) if base > 0.0 => {
            // Digits of a percentage beyond that are hard to read.
            let share = match found / base {
                times if times >= 10.0 => format!("x{}", units::short_count(times)),
                share => format!("{:.0}%", share * 100.0),
            };
            format!("{share}: {amount} of {}", self::amount(&gate.figure, base))
        }
        _ => amount,
    }
}

fn amount(figure: &str, value: f64) -> String {
    match figure {
        "throughput" => units::short_rate(value),
        "iops" => units::short_count(value),
        _ => units::short_duration(Duration::from_nanos(value as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_run_is_named_by_its_folder_however_its_path_ends() {
        for path in ["kept/base", "kept/base/", "/a/kept/base//", "base"] {
            assert_eq!(wanted(&format!("<= 110% of {path}")), "<= 110% of base", "{path}");
        }
        assert_eq!(wanted(">= 50% of before"), ">= 50% of before");
        assert_eq!(wanted("<= 5ms"), "<= 5ms");
    }
}
