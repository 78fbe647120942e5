//! The JSON of fio for a recorded run: one job that stands for all its workers.
//!
//! Keys and units are those of fio 3.x, HOWTO, "JSON output" and "JSON+ output"; fio-plot wants the options of the job, the
//! latencies of each direction, and their shares by size (`latency_ns`, `latency_us`, `latency_ms`).

use rotproof_load::EffortPerRequest;
use rotproof_machine::Usage;
use rotproof_record::Interval;
use rotproof_record::statistics::Summary;
use serde_json::{Map, Value, json};

use super::{DIRECTIONS, Depth};
use crate::Performance;
use crate::run::Run;

/// The report of a run, called `name`: what `run.json` says, and its intervals.
pub(super) fn report(run: &Run, name: &str, depth: &Depth, intervals: &[Interval]) -> Value {
    let mut options = Map::new();
    let texts = [
        ("name", name.to_owned()),
        ("rw", depth.pattern.to_owned()),
        ("iodepth", depth.queue_depth.to_string()),
        ("numjobs", depth.workers.to_string()),
        ("bs", block_size(run)),
    ];
    options.extend(texts.map(|(key, value)| (key.to_owned(), value.into())));
    let mut job = json!({ "jobname": name, "groupid": 0, "error": 0, "job options": options });
    let (user, system) = processors(run);
    job["usr_cpu"] = user.into();
    job["sys_cpu"] = system.into();
    for (direction, operation) in DIRECTIONS {
        job[direction] = side(run, operation, intervals);
    }
    for (key, shares) in latency_shares(run) {
        job[key] = shares;
    }
    json!({
        "fio version": "fio-3.33",
        "timestamp": started(run) as u64,
        "global options": {},
        "jobs": [job],
    })
}

fn started(run: &Run) -> f64 {
    match run {
        Run::Trial(run) => run.wall_clock.started_unix_seconds,
        Run::Load(run) => run.wall_clock.as_ref().map_or(0.0, |clock| clock.started_unix_seconds),
        Run::Crash(_) => 0.0,
    }
}

/// The lines of the load's own phase.
fn lines(run: &Run) -> impl Iterator<Item = &Performance> {
    run.performance().iter().filter(|line| line.phase == "run")
}

/// The size of a request as fio writes it, on average if there were several.
fn block_size(run: &Run) -> String {
    let (mut bytes, mut requests) = (0, 0);
    for line in lines(run).filter(|line| line.bytes > 0) {
        bytes += line.bytes;
        requests += line.requests;
    }
    match bytes.checked_div(requests).unwrap_or(0) {
        bytes if bytes > 0 && bytes % 1024 == 0 => format!("{}k", bytes / 1024),
        bytes => bytes.to_string(),
    }
}

/// Processor time in percent of the time of the run, in user mode and in the kernel. A load tells both as one, which is
/// counted to the first.
fn processors(run: &Run) -> (f64, f64) {
    match run {
        Run::Trial(run) => {
            let share = |usage: &Usage, seconds: f64| {
                if seconds > 0.0 { seconds / usage.elapsed_seconds * 100.0 } else { 0.0 }
            };
            let of = |usage: &Usage| (share(usage, usage.user_seconds), share(usage, usage.system_seconds));
            run.wall_clock.usage.as_ref().map_or((0.0, 0.0), of)
        }
        Run::Load(load) => {
            let seconds = lines(run).map(|line| line.seconds).find(|seconds| *seconds > 0.0);
            let busy = load.effort_per_request.as_ref().zip(seconds);
            let share = |(each, seconds): (&EffortPerRequest, f64)| {
                each.cpu_ns * each.requests as f64 / 1e9 / seconds * 100.0
            };
            (busy.map_or(0.0, share), 0.0)
        }
        Run::Crash(_) => (0.0, 0.0),
    }
}

/// The largest latencies of fio's classes, in nanoseconds, for each of its tables.
const CLASSES: [(&str, u64, &[u64]); 3] = [
    ("latency_ns", 1, &[2, 4, 10, 20, 50, 100, 250, 500, 750, 1000]),
    ("latency_us", 1_000, &[2, 4, 10, 20, 50, 100, 250, 500, 750, 1000]),
    ("latency_ms", 1_000_000, &[2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000]),
];

/// Of all requests of the run, the percentage in each class.
fn latency_shares(run: &Run) -> Vec<(&'static str, Value)> {
    let counts: Vec<(u64, u64)> = lines(run).flat_map(|line| line.histogram.iter().copied()).collect();
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    let mut from = 0;
    let mut share_up_to = |bound: u64| {
        let within: u64 =
            counts.iter().filter(|(value, _)| (from..bound).contains(value)).map(|(_, count)| count).sum();
        from = bound;
        if all == 0 { 0.0 } else { within as f64 / all as f64 * 100.0 }
    };
    let mut tables = Vec::new();
    for (table, unit, bounds) in CLASSES {
        let mut shares = Map::new();
        for bound in bounds {
            shares.insert(bound.to_string(), share_up_to(bound * unit).into());
        }
        if table == "latency_ms" {
            shares.insert(">=2000".into(), share_up_to(u64::MAX).into());
        }
        tables.push((table, Value::Object(shares)));
    }
    tables
}

/// What one direction did.
fn side(run: &Run, operation: &str, intervals: &[Interval]) -> Value {
    let found = lines(run).find(|line| line.operation == operation).cloned();
    let line = found.unwrap_or_default();
    let latency = &line.latency_ns;
    let rates: Vec<f64> = intervals
        .iter()
        .filter(|row| row.worker.is_none() && &*row.operation == operation)
        .map(Interval::requests_per_second)
        .collect();
    let rates = Summary::of(&rates);
    let rate = |value: fn(&Summary) -> f64| rates.as_ref().map_or(0.0, value);
    let latencies = json!({
        "min": latency.min as f64,
        "max": latency.max as f64,
        "mean": latency.mean,
        "stddev": deviation(&line.histogram, latency.mean),
        "N": line.requests as f64,
        "percentile": {
            "50.000000": latency.p50 as f64,
            "90.000000": latency.p90 as f64,
            "99.000000": latency.p99 as f64,
            "99.900000": latency.p99_9 as f64,
        },
    });
    json!({
        "io_bytes": line.bytes,
        "io_kbytes": line.bytes / 1024,
        "bw_bytes": line.bytes_per_second.unwrap_or(0.0) as u64,
        "bw": (line.bytes_per_second.unwrap_or(0.0) / 1024.0) as u64,
        "iops": line.requests_per_second.unwrap_or(0.0),
        "runtime": (line.seconds * 1000.0) as u64,
        "total_ios": line.requests,
        "short_ios": 0,
        "drop_ios": line.errors,
        "slat_ns": { "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 },
        "clat_ns": latencies,
        "lat_ns": latencies,
        "iops_min": rate(|rates| rates.min).round() as u64,
        "iops_max": rate(|rates| rates.max).round() as u64,
        "iops_mean": rate(|rates| rates.mean),
        "iops_stddev": rate(|rates| rates.deviation),
        "iops_samples": rates.map_or(0, |rates| rates.count),
    })
}

/// The standard deviation of latencies, as far as the classes of their histogram tell it.
fn deviation(histogram: &[(u64, u64)], mean: f64) -> f64 {
    let (mut squares, mut all) = (0.0, 0.0);
    for &(value, count) in histogram {
        squares += (value as f64 - mean).powi(2) * count as f64;
        all += count as f64;
    }
    if all > 0.0 { (squares / all).sqrt() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_latencies_add_up_to_all_requests_and_lie_in_their_classes() {
        let run = json!({ "performance": [
            { "phase": "run", "operation": "read", "histogram": [[3, 1], [999, 1], [1500, 2], [3_000_000_000_u64, 4]] },
            { "phase": "check", "operation": "read", "histogram": [[3, 1000]] },
        ] });
        let run = Run::Trial(serde_json::from_value(run).expect("a run"));
        let shares: std::collections::BTreeMap<_, _> = latency_shares(&run).into_iter().collect();
        let of = |table: &str, class: &str| shares[table][class].as_f64();
        assert_eq!((of("latency_ns", "4"), of("latency_ns", "1000")), (Some(12.5), Some(12.5)));
        assert_eq!((of("latency_us", "2"), of("latency_ms", ">=2000")), (Some(25.0), Some(50.0)));
        let all =
            shares.values().filter_map(Value::as_object).flat_map(Map::values).filter_map(Value::as_f64);
        assert!((all.sum::<f64>() - 100.0).abs() < 1e-9);
    }
}
