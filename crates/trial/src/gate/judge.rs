//! Holds gates against what a run has measured.

use rotproof_machine::Environment;
use rotproof_results::run::{GateOutcome, GateReport, Run, VerdictWord};

use super::measured::{self, Found, Measured, Window};
use super::{Base, Gate, GatePhase, Unknown, Wanted};

/// Holds all gates against a run.
pub fn hold_against(run: &Run, gates: &[Gate]) -> Vec<GateReport> {
    gates.iter().flat_map(|gate| hold_one(run, gate)).collect()
}

fn hold_one(run: &Run, gate: &Gate) -> Vec<GateReport> {
    let place = match &gate.fault {
        Some(fault) => Window::During(fault),
        None => Window::Phase(gate.phase.unwrap_or(GatePhase::Run).word()),
    };
    let report = |operation: Option<&str>, figure: &'static str, wanted: &Wanted| {
        let of = Gate { operation: operation.map(str::to_owned), ..gate.clone() }.subject();
        let (found, base, outcome, why) = match judge(run, gate, (place, operation, figure), wanted) {
            Ok((found, base, holds)) => {
                let (outcome, why) = match holds {
                    Some(true) => (GateOutcome::Holds, None),
                    Some(false) => (GateOutcome::Fails, None),
                    None => (
                        GateOutcome::Unknown,
                        Some("the limit is within what the figure is exact to".to_owned()),
                    ),
                };
                (Some(found), base, outcome, why)
            }
            Err((found, why)) => (found, None, GateOutcome::Unknown, Some(why)),
        };
        let passes = match outcome {
            GateOutcome::Holds => true,
            GateOutcome::Fails => false,
            GateOutcome::Unknown => gate.unknown == Unknown::Allowed,
        };
        GateReport {
            of,
            figure: figure.into(),
            wanted: wanted.text.clone(),
            found,
            base,
            outcome,
            why,
            passes,
        }
    };
    let mut reports = Vec::new();
    for (figure, wanted) in gate.wanted() {
        let of_each = !matches!(figure, "throughput" | "iops");
        match &gate.operation {
            Some(operation) => reports.push(report(Some(operation), figure, &wanted)),
            None if of_each => {
                let operations = measured::operations(run, place);
                if operations.is_empty() {
                    reports.push(report(None, figure, &wanted));
                }
                reports.extend(operations.iter().map(|operation| report(Some(operation), figure, &wanted)));
            }
            None => reports.push(report(None, figure, &wanted)),
        }
    }
    reports
}

/// The figure, what it is held against, and whether it holds; else what is known of it, and why the rest is not.
type Judged = Result<(f64, Option<f64>, Option<bool>), (Option<f64>, String)>;

fn judge(run: &Run, gate: &Gate, what: (Window<'_>, Option<&str>, &str), wanted: &Wanted) -> Judged {
    let (place, operation, figure) = what;
    let found = measured::figure(run, place, operation, figure).map_err(|why| (None, why))?;
    let of_base = |why: String| (Some(found.value), why);
    let base = match &wanted.base {
        Base::Nothing => {
            return Ok((found.value, None, wanted.sign.holds((found.low, found.value), wanted.amount)));
        }
        Base::Before => {
            let fault = gate.fault.as_deref().unwrap_or_default();
            measured::figure(run, Window::Before(fault), operation, figure).map_err(of_base)?
        }
        Base::Folder(folder) => other_run(run, folder, what).map_err(of_base)?,
    };
    if base.low <= 0.0 {
        return Err(of_base("nothing can be a share of 0".to_owned()));
    }
    let share = (found.low / base.value, found.value / base.low);
    Ok((found.value, Some(base.value), wanted.sign.holds(share, wanted.amount)))
}

/// The same figure of the runs in another folder: their mean.
fn other_run(
    run: &Run,
    folder: &std::path::Path,
    (place, operation, figure): (Window<'_>, Option<&str>, &str),
) -> Found {
    let others = measured::read(folder)?;
    let mut sum = Measured { value: 0.0, low: 0.0 };
    for other in &others {
        comparable(run, other).map_err(|why| format!("{}: {why}", folder.display()))?;
        let found = measured::figure(other, place, operation, figure)
            .map_err(|why| format!("{}: {why}", folder.display()))?;
        sum.value += found.value;
        sum.low += found.low;
    }
    let count = others.len() as f64;
    Ok(Measured { value: sum.value / count, low: sum.low / count })
}

/// Memory that differs by no more is that of the same machine: kernels keep more or less of it for themselves.
const MEMORY_SHARE: f64 = 0.05;

/// Whether figures of two runs can be held against each other.
fn comparable(run: &Run, other: &Run) -> Result<(), String> {
    let (Some(run), Some(other)) = (run.trial(), other.trial()) else {
        return Err("that is no run of a trial".to_owned());
    };
    if other.verdict == VerdictWord::Interrupted {
        return Err("that run was interrupted".to_owned());
    }
    if run.runtime != other.runtime {
        let of = if other.runtime.is_empty() { "unknown" } else { &other.runtime };
        return Err(format!("that run was made in another runtime ({of})"));
    }
    if run.runtime == "simulated" {
        return Ok(());
    }
    let none = Environment::default();
    let [this, that] = [run, other].map(|run| run.wall_clock.environment.as_ref().unwrap_or(&none));
    for (is_same, told) in [
        (this.processor == that.processor, "processor"),
        (this.processors == that.processors, "number of processors"),
        (this.architecture == that.architecture, "architecture"),
    ] {
        if !is_same {
            return Err(format!("that run was made on another machine (another {told})"));
        }
    }
    let memory = |machine: &Environment| machine.memory_bytes as f64;
    if (memory(this) - memory(that)).abs() > MEMORY_SHARE * memory(this) {
        return Err("that run was made on another machine (another amount of memory)".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn latencies(p50: u64) -> Value {
        json!({ "min": 0, "mean": p50 as f64, "p50": p50, "p90": 2 * p50, "p99": 3 * p50, "p99_9": 4 * p50, "max": 5 * p50 })
    }

    fn run() -> Value {
        let line = |operation: &str, requests: u64, p50: u64| {
            json!({
                "phase": "run", "operation": operation, "requests": requests, "bytes_per_second": 1000.0 * requests as f64,
                "requests_per_second": requests as f64, "latency_ns": latencies(p50), "bytes": 0,
            })
        };
        let span = |intervals: u64, p50: u64| {
            json!({
                "intervals": intervals, "seconds": intervals as f64,
                "operations": [line("read", 600, p50)],
            })
        };
        json!({
            "runtime": "io_uring", "verdict": "pass",
            "performance": [line("read", 10_000, 1000), line("write", 499, 2000), line("flush", 9, 10)],
            "windows": [
                { "fault": "slow", "from_ns": 0, "until_ns": 1, "before": span(9, 1000), "during": span(5, 4000) },
                { "fault": "short", "from_ns": 0, "until_ns": 1, "before": span(2, 1000), "during": span(1, 4000) },
            ],
            "wall_clock": { "environment": { "rotproof": "", "kernel": "", "distribution": null, "tools": [],
                "processor": "A", "processors": 2, "architecture": "x86_64", "memory_bytes": 1000 } },
        })
    }

    fn brief(run: &Value, gate: &str) -> Vec<(String, GateOutcome, bool)> {
        let gate: Gate = serde_saphyr::from_str(gate).expect("a gate");
        let run = Run::Trial(serde_json::from_value(run.clone()).expect("a run"));
        hold_against(&run, &[gate])
            .into_iter()
            .map(|report| (report.of, report.outcome, report.passes))
            .collect()
    }

    fn one(gate: &str) -> (GateOutcome, bool) {
        let found = brief(&run(), gate);
        assert_eq!(found.len(), 1, "{found:?}");
        (found[0].1, found[0].2)
    }

    #[test]
    fn limits_of_a_phase_are_of_reads_and_of_writes_and_rates_of_both() {
        use GateOutcome::{Fails, Holds, Unknown};
        assert_eq!(
            brief(&run(), "{ p50: '<= 1500ns' }"),
            [("run read".into(), Holds, true), ("run write".into(), Fails, false)]
        );
        // 499 requests have no 99th percentile that is more than chance.
        assert_eq!(
            brief(&run(), "{ p99: '<= 1s', unknown: allowed }"),
            [("run read".into(), Holds, true), ("run write".into(), Unknown, true)]
        );
        assert_eq!(one("{ operation: write, p99: '<= 1s' }"), (Unknown, false));
        assert_eq!(one("{ throughput: '>= 10_499_000' }"), (Holds, true));
        assert_eq!(one("{ throughput: '> 10_499_000' }"), (Fails, false));
        assert_eq!(one("{ iops: '>= 10499' }"), (Holds, true));
        assert_eq!(one("{ operation: flush, iops: '<= 9' }"), (Holds, true));
        assert_eq!(one("{ operation: flush, throughput: '>= 1' }"), (Unknown, false));
        assert_eq!(
            one("{ operation: read, p50: '<= 999ns' }"),
            (Unknown, false),
            "it is known to a thousandth"
        );
        assert_eq!(one("{ phase: cool_down, iops: '>= 1' }"), (Unknown, false));
    }

    #[test]
    fn where_no_time_passed_nothing_was_fast_or_slow() {
        let mut run = run();
        run["performance"][0]["bytes_per_second"] = Value::Null;
        run["performance"][0]["requests_per_second"] = Value::Null;
        for gate in ["throughput: '<= 1GiB/s'", "iops: '>= 1'", "p50: '<= 1s'"] {
            let found = brief(&run, &format!("{{ operation: read, {gate} }}"));
            assert_eq!(found, [("run read".to_owned(), GateOutcome::Unknown, false)], "{gate}");
        }
    }

    #[test]
    fn limits_of_a_window_are_amounts_or_shares_of_before() {
        use GateOutcome::{Fails, Holds, Unknown};
        assert_eq!(one("{ fault: slow, p99: '<= 12us' }"), (Holds, true));
        assert_eq!(one("{ fault: slow, p99: '<= 410% of before' }"), (Holds, true));
        assert_eq!(one("{ fault: slow, p99: '<= 390% of before' }"), (Fails, false));
        assert_eq!(one("{ fault: slow, p99: '<= 400% of before' }"), (Unknown, false));
        assert_eq!(one("{ fault: slow, throughput: '>= 100% of before' }"), (Holds, true));
        assert_eq!(one("{ fault: slow, p99.9: '<= 1s' }"), (Unknown, false));
        for gate in ["{ fault: short, throughput: '>= 1' }", "{ fault: never, throughput: '>= 1' }"] {
            assert_eq!(one(gate), (Unknown, false), "{gate}");
        }
    }

    #[test]
    fn another_run_counts_if_it_has_the_figure_and_was_made_on_the_same_machine() {
        use GateOutcome::{Fails, Holds, Unknown};
        let folder = tempfile::tempdir().expect("a folder");
        let gate =
            |share: u32| format!("{{ operation: read, p99: '<= {share}% of {}' }}", folder.path().display());
        let keep =
            |run: &Value| std::fs::write(folder.path().join("run.json"), run.to_string()).expect("written");
        assert_eq!(one(&gate(110)), (Unknown, false), "there is nothing yet");
        keep(&run());
        assert_eq!(one(&gate(110)), (Holds, true));
        assert_eq!(one(&gate(90)), (Fails, false));
        assert_eq!(one(&gate(100)), (Unknown, false));
        for (pointer, value) in [
            ("/wall_clock/environment/processor", json!("B")),
            ("/wall_clock/environment/memory_bytes", json!(2000)),
            ("/runtime", json!("simulated")),
            ("/verdict", json!("interrupted")),
            ("/performance", json!([])),
        ] {
            let mut other = run();
            *other.pointer_mut(pointer).expect(pointer) = value;
            keep(&other);
            assert_eq!(one(&gate(110)), (Unknown, false), "{pointer}");
        }
        // Of several runs it is the mean.
        std::fs::remove_file(folder.path().join("run.json")).expect("it was there");
        for (name, p50) in [("a", 800), ("b", 1200)] {
            let mut other = run();
            other["performance"][0]["latency_ns"] = latencies(p50);
            std::fs::create_dir(folder.path().join(name)).expect("made");
            std::fs::write(folder.path().join(name).join("run.json"), other.to_string()).expect("written");
        }
        assert_eq!(one(&gate(101)), (Holds, true));
        assert_eq!(one(&gate(99)), (Fails, false));
    }
}
