//! fio's figures from the JSON that it prints, as lines of the results.

use serde_json::Value;

use rotproof_record::Latencies;
use rotproof_results::Performance;

/// What each job of fio did, by operation, and how many of its jobs ended with an error. `None` where there is no JSON of
/// fio's in the text.
pub(super) fn figures(text: &str) -> Option<(Vec<Performance>, u64)> {
    // Notes may stand before and after it.
    let start = if text.starts_with('{') { 0 } else { text.find("\n{")? + 1 };
    let end = text.rfind('}')?;
    let json: Value = serde_json::from_str(text.get(start..=end)?).ok()?;
    let jobs = json.get("jobs")?.as_array()?;
    let mut lines = Vec::new();
    let mut failed = 0;
    for job in jobs {
        let name = job.get("jobname").and_then(Value::as_str).unwrap_or("job");
        failed += u64::from(number(job, "error") != 0.0);
        let operations = [("write", "write"), ("read", "read"), ("sync", "flush"), ("trim", "discard")];
        for (key, operation) in operations {
            lines.extend(job.get(key).and_then(|part| line(name, operation, part, job)));
        }
    }
    Some((lines, failed))
}

fn line(name: &str, operation: &'static str, part: &Value, job: &Value) -> Option<Performance> {
    let requests = number(part, "total_ios") as u64;
    if requests == 0 {
        return None;
    }
    let seconds = match number(part, "runtime") {
        // Of syncs fio tells no time of their own.
        0.0 => number(job, "job_runtime"),
        milliseconds => milliseconds,
    } / 1000.0;
    let bytes = number(part, "io_bytes") as u64;
    let per_second = |amount: u64| (seconds > 0.0).then(|| amount as f64 / seconds);
    let empty = Value::Null;
    let latency = part.get("lat_ns").unwrap_or(&empty);
    // Percentiles are of completion latency unless fio was told otherwise.
    let percentiles = ["clat_ns", "lat_ns"].iter().find_map(|key| part.get(*key)?.get("percentile"));
    let quantile = |key: &str| percentiles.map_or(0, |table| number(table, key) as u64);
    Some(Performance {
        phase: "run".into(),
        job: Some(name.to_owned()),
        operation: operation.into(),
        requests,
        bytes,
        errors: 0,
        retries: 0,
        seconds,
        bytes_per_second: per_second(bytes),
        requests_per_second: per_second(requests),
        latency_ns: Latencies {
            min: number(latency, "min") as u64,
            mean: number(latency, "mean"),
            p50: quantile("50.000000"),
            p90: quantile("90.000000"),
            p99: quantile("99.000000"),
            p99_9: quantile("99.900000"),
            max: number(latency, "max") as u64,
        },
        histogram: Vec::new(),
    })
}

/// A number that is not negative; 0 where there is none.
fn number(value: &Value, key: &str) -> f64 {
    value.get(key).and_then(Value::as_f64).filter(|number| number.is_finite() && *number > 0.0).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As fio 3.33 prints it, but for keys that do not matter.
    const PRINTED: &str = r#"fio: this platform does not support process shared mutexes
note: both iodepth >= 1 and synchronous I/O engine are selected
{
  "fio version" : "fio-3.33",
  "jobs" : [
    { "jobname" : "table", "error" : 5, "job_runtime" : 2000,
      "read" : { "io_bytes" : 409600, "total_ios" : 100, "runtime" : 2000,
        "lat_ns" : { "min" : 1000, "max" : 90000, "mean" : 5000.5 },
        "clat_ns" : { "percentile" : { "50.000000" : 4000, "90.000000" : 8000, "99.000000" : 9000, "99.900000" : 9500 } } },
      "write" : { "io_bytes" : 0, "total_ios" : 0, "runtime" : 0 },
      "sync" : { "total_ios" : 7, "lat_ns" : { "min" : 1, "max" : 3, "mean" : 2.0, "percentile" : { "50.000000" : 2 } } }
    }
  ]
}
bye
"#;

    #[test]
    fn figures_are_found_among_the_notes() {
        let (lines, failed) = figures(PRINTED).expect("fio's JSON");
        assert_eq!((lines.len(), failed), (2, 1));
        let read = &lines[0];
        assert_eq!((read.job.as_deref(), &*read.operation), (Some("table"), "read"));
        assert_eq!((read.requests, read.bytes, read.seconds), (100, 409_600, 2.0));
        assert_eq!((read.requests_per_second, read.bytes_per_second), (Some(50.0), Some(204_800.0)));
        let latency = &read.latency_ns;
        assert_eq!((latency.min, latency.p50, latency.p99_9, latency.max), (1000, 4000, 9500, 90_000));
        assert_eq!((&*lines[1].operation, lines[1].requests, lines[1].latency_ns.p50), ("flush", 7, 2));
    }

    #[test]
    fn what_is_none_of_fios_json_is_none() {
        for text in ["", "{", "{}", "hello {\n", "{\"jobs\": 5}", "\n{ \"jobs\": [ }"] {
            assert!(figures(text).is_none(), "{text}");
        }
        assert_eq!(figures("{\"jobs\": [{}, 5]}").map(|(lines, _)| lines.len()), Some(0));
    }
}
