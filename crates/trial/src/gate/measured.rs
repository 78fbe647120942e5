//! The figures of a run by the names that gates have for them, from what its `run.json` says.

use std::path::Path;

use rotproof_record::Latencies;
use rotproof_record::statistics::OperationFigures;
use rotproof_results::page::moves_bytes;
use rotproof_results::run::Run;
use rotproof_results::{Performance, read_run, runs_in};

/// Fewer whole intervals are no figure of a window.
const INTERVALS_MIN: u64 = 3;
/// So many requests lie beyond a percentile, or it is a matter of chance.
const BEYOND_MIN: f64 = 5.0;
/// How exact percentiles are: of a phase three significant digits, of intervals and of fio's own a 64th.
const EXACT_PHASE: f64 = 1.0 / 1000.0;
const EXACT_WINDOW: f64 = 1.0 / 64.0;

/// A figure, or why there is none.
pub(super) type Found = Result<Measured, String>;

/// A figure, as exactly as it is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measured {
    /// What was found: of a percentile the upper bound.
    pub(super) value: f64,
    /// It is no lower than that.
    pub(super) low: f64,
}

impl Measured {
    fn exactly(value: f64) -> Self {
        Self { value, low: value }
    }
}

/// Where figures are taken from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Window<'a> {
    /// A phase.
    Phase(&'a str),
    /// The window of a fault.
    During(&'a str),
    /// The load before that.
    Before(&'a str),
}

/// Reads the `run.json` of every run in a folder, which is that of one run or of a repeated trial.
pub(super) fn read(folder: &Path) -> Result<Vec<Run>, String> {
    let runs = runs_in(folder).map_err(|error| error.to_string())?;
    runs.iter().map(|run| read_run(run).map_err(|error| error.to_string())).collect()
}

/// The operations whose latencies a gate without one limits: those of the place that move bytes.
pub(super) fn operations(run: &Run, place: Window<'_>) -> Vec<String> {
    let Ok(lines) = lines(run, place) else { return Vec::new() };
    let mut found: Vec<String> = Vec::new();
    for line in lines {
        if moves_bytes(line.operation)
            && line.requests > 0
            && !found.iter().any(|known| known == line.operation)
        {
            found.push(line.operation.to_owned());
        }
    }
    found
}

/// A figure of one operation, or of all that move bytes together where there is none.
pub(super) fn figure(run: &Run, place: Window<'_>, operation: Option<&str>, name: &str) -> Found {
    let is_meant = |line: &Line<'_>| {
        let word = line.operation;
        operation.map_or_else(|| moves_bytes(word), |operation| word == operation)
    };
    let lines: Vec<Line<'_>> =
        lines(run, place)?.into_iter().filter(|line| line.requests > 0 && is_meant(line)).collect();
    let told = |what: &str| match operation {
        Some(operation) => format!("there is no {operation} in {}{what}", place.told()),
        None => format!("there is neither a read nor a write in {}{what}", place.told()),
    };
    if lines.is_empty() {
        return match (name, place, operation) {
            // A load that stood still moved nothing, and that is known.
            ("throughput" | "iops", Window::During(_), None) => Ok(Measured::exactly(0.0)),
            _ => Err(told("")),
        };
    }
    // In virtual time a stack may take none at all: it is neither fast nor slow then.
    if lines.iter().any(|line| line.requests_per_second.is_none()) {
        return Err(format!(
            "no virtual time passed in {}; give the stack a disk or latencies, or take `runtime: io_uring`",
            place.told()
        ));
    }
    let sum = |of: fn(&Line<'_>) -> Option<f64>| lines.iter().filter_map(of).sum::<f64>();
    match name {
        "throughput" if !lines.iter().any(|line| moves_bytes(line.operation)) => {
            Err("this operation moves no bytes".to_owned())
        }
        "throughput" => Ok(Measured::exactly(sum(|line| line.bytes_per_second))),
        "iops" => Ok(Measured::exactly(sum(|line| line.requests_per_second))),
        latency => {
            let found = lines.iter().map(|line| of_line(line, latency));
            // Of several jobs the slowest.
            found
                .reduce(|a, b| {
                    let (a, b) = (a?, b?);
                    Ok(if a.value >= b.value { a } else { b })
                })
                .unwrap_or_else(|| Err(told("")))
        }
    }
}

/// A latency of one line of figures.
fn of_line(line: &Line<'_>, name: &str) -> Found {
    let latency = line.latency.ok_or_else(|| "its latencies were not kept".to_owned())?;
    let (value, share) = match name {
        "p50" => (latency.p50 as f64, Some(0.5)),
        "p90" => (latency.p90 as f64, Some(0.9)),
        "p99" => (latency.p99 as f64, Some(0.99)),
        "p99.9" => (latency.p99_9 as f64, Some(0.999)),
        "max" => (latency.max as f64, None),
        _ => (latency.mean, None),
    };
    if let Some(share) = share
        && line.requests as f64 * (1.0 - share) < BEYOND_MIN - 1e-9
    {
        let needed = (BEYOND_MIN / (1.0 - share)).round();
        return Err(format!("{} requests are too few for it, which takes {needed}", line.requests));
    }
    let exact = if share.is_none() { 0.0 } else { line.exact };
    Ok(Measured { value, low: value * (1.0 - exact) })
}

impl Window<'_> {
    fn told(self) -> String {
        match self {
            Self::Phase(phase) => format!("the phase {phase}"),
            Self::During(fault) => format!("the window of {fault}"),
            Self::Before(fault) => format!("what was before {fault}"),
        }
    }
}

/// What one operation did in a place.
struct Line<'a> {
    operation: &'a str,
    requests: u64,
    bytes_per_second: Option<f64>,
    /// `None` if no time passed.
    requests_per_second: Option<f64>,
    latency: Option<&'a Latencies>,
    /// How exact its percentiles are.
    exact: f64,
}

impl<'a> Line<'a> {
    fn of_phase(line: &'a Performance) -> Self {
        Self {
            operation: &line.operation,
            requests: line.requests,
            bytes_per_second: line.bytes_per_second,
            requests_per_second: line.requests_per_second.filter(|&rate| rate > 0.0),
            latency: Some(&line.latency_ns),
            exact: if line.job.is_some() { EXACT_WINDOW } else { EXACT_PHASE },
        }
    }

    fn of_window(line: &'a OperationFigures) -> Self {
        Self {
            operation: &line.operation,
            requests: line.requests,
            bytes_per_second: Some(line.bytes_per_second),
            requests_per_second: Some(line.requests_per_second).filter(|&rate| rate > 0.0),
            latency: line.latency_ns.as_ref(),
            exact: EXACT_WINDOW,
        }
    }
}

/// The lines of figures of a place.
fn lines<'a>(run: &'a Run, place: Window<'_>) -> Result<Vec<Line<'a>>, String> {
    let fault = match place {
        Window::Phase(phase) => {
            let of_phase = run.performance().iter().filter(|line| line.phase == phase);
            let lines: Vec<Line<'_>> = of_phase.map(Line::of_phase).collect();
            return match lines.is_empty() {
                true => Err(format!("there are no figures of {}", place.told())),
                false => Ok(lines),
            };
        }
        Window::During(fault) | Window::Before(fault) => fault,
    };
    let mut windows = run.trial().into_iter().flat_map(|run| &run.windows);
    let window = windows
        .find(|window| window.fault == fault)
        .ok_or_else(|| format!("{fault} has no window: it did not hit the load for any time"))?;
    let (span, there) = match place {
        Window::Before(_) => (&window.before, "before"),
        _ => (&window.during, "in"),
    };
    let intervals = span.intervals;
    if intervals < INTERVALS_MIN {
        let whole = match intervals {
            0 => "no whole interval lies".to_owned(),
            1 => "only 1 whole interval lies".to_owned(),
            many => format!("only {many} whole intervals lie"),
        };
        return Err(format!(
            "{whole} {there} the window of {fault}, and {INTERVALS_MIN} are needed; give a shorter `record: {{ interval }}`"
        ));
    }
    Ok(span.operations.iter().map(Line::of_window).collect())
}
