//! The figures of one operation in one phase, as results and tables show them.

use std::time::Duration;

use rotproof_block::Phase;
use rotproof_load::LoadReport;
use rotproof_load::engine::{LoadOperation, OperationReport};
use rotproof_load::personality::FileReport;
use rotproof_record::Latencies;
use rotproof_results::Performance;

/// A line for each operation that a phase did, the load's own phase first.
pub fn summarise(reports: &[LoadReport]) -> Vec<Performance> {
    let mut ordered: Vec<&LoadReport> = reports.iter().collect();
    ordered.sort_by_key(|report| (report.phase != Phase::Run, report.phase));
    ordered
        .into_iter()
        .flat_map(|report| {
            let own = OPERATIONS.map(|operation| {
                line(report.phase, operation, report.operation(operation), report.elapsed())
            });
            let cool_down = report.cool_down.iter().flat_map(|cool_down| {
                OPERATIONS.map(|operation| {
                    let figures = cool_down.operation(operation);
                    line(Phase::CoolDown, operation, figures, report.cool_down_elapsed())
                })
            });
            own.into_iter().chain(cool_down).filter(|line| line.requests > 0).collect::<Vec<_>>()
        })
        .collect()
}

/// As [`summarise`], of a load of files.
pub fn summarise_files(reports: &[FileReport]) -> Vec<Performance> {
    let mut ordered: Vec<&FileReport> = reports.iter().collect();
    ordered.sort_by_key(|report| (report.phase != Phase::Run, report.phase));
    ordered
        .into_iter()
        .flat_map(|report| {
            report
                .operations
                .iter()
                .map(|line| figures(report.phase, line.operation.word(), &line.figures, line.elapsed))
        })
        .collect()
}

const OPERATIONS: [LoadOperation; 4] =
    [LoadOperation::Write, LoadOperation::Read, LoadOperation::Flush, LoadOperation::Discard];

fn line(
    phase: Phase,
    operation: LoadOperation,
    operation_figures: &OperationReport,
    elapsed: Duration,
) -> Performance {
    figures(phase, operation.word(), operation_figures, elapsed)
}

fn figures(
    phase: Phase,
    operation: &'static str,
    figures: &OperationReport,
    elapsed: Duration,
) -> Performance {
    let seconds = elapsed.as_secs_f64();
    let per_second = |amount: u64| (seconds > 0.0).then(|| amount as f64 / seconds);
    let latency = &figures.latency;
    Performance {
        phase: phase.word().into(),
        job: None,
        operation: operation.into(),
        requests: figures.requests,
        bytes: figures.bytes,
        errors: figures.error_count(),
        retries: figures.retries,
        seconds,
        bytes_per_second: per_second(figures.bytes),
        requests_per_second: per_second(figures.requests),
        latency_ns: Latencies {
            min: latency.min(),
            mean: latency.mean(),
            p50: latency.value_at_quantile(0.5),
            p90: latency.value_at_quantile(0.9),
            p99: latency.value_at_quantile(0.99),
            p99_9: latency.value_at_quantile(0.999),
            max: latency.max(),
        },
        histogram: histogram(
            latency.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())),
        ),
    }
}

/// Bounds of a histogram for each power of ten.
const BOUNDS_PER_DECADE: f64 = 20.0;

/// Values with their numbers, ascending, brought together to [`BOUNDS_PER_DECADE`].
fn histogram(values: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut counts: Vec<(u64, u64)> = Vec::new();
    for (value, count) in values {
        let step = ((value.max(1) as f64).log10() * BOUNDS_PER_DECADE - 1e-9).ceil();
        let bound = 10f64.powf(step / BOUNDS_PER_DECADE).round() as u64;
        match counts.last_mut() {
            Some((last, sum)) if *last == bound => *sum += count,
            _ => counts.push((bound, count)),
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_ascending_bounds_that_hold_their_values() {
        let values: Vec<(u64, u64)> = (0..100_000).step_by(7).map(|value| (value, 2)).collect();
        let counts = histogram(values.iter().copied());
        assert!(counts.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(counts.iter().map(|&(_, count)| count).sum::<u64>(), 2 * values.len() as u64);
        assert!(counts.len() <= 101, "{}", counts.len());
        assert_eq!(
            histogram([(1000, 1), (1122, 1), (1123, 1)].into_iter()),
            [(1000, 1), (1122, 1), (1259, 1)]
        );
    }
}
