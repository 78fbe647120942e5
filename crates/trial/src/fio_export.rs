//! A recorded run as fio would have left it: its JSON, and its logs of bandwidth, IOPS and latency, for programs that draw
//! those (fio-plot and the like).
//!
//! The formats are those of fio 3.x, HOWTO, "JSON output" and "Log File Formats": a line of a log is time in
//! milliseconds, value, direction (0 read, 1 write, 2 trim), block size, offset; the last two are 0, as each line is the mean
//! of an interval.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_record::statistics::Summary;
use rotproof_record::{Interval, RunFolder};
use serde_json::{Value, json};

/// fio's directions and our operations.
const DIRECTIONS: [(&str, &str); 3] = [("read", "read"), ("write", "write"), ("trim", "discard")];

/// Writes the files into `into`, which is made if need be, and gives their paths. They are called after `name`, by default
/// in the way in which fio-plot's scripts name theirs, with a depth of 1, which intervals do not tell. Fails with
/// [`ErrorKind::Invalid`] if nothing was read, written or discarded.
pub fn write_fio_files(run: &RunFolder, name: Option<&str>, into: &Path) -> Result<Vec<PathBuf>> {
    let intervals: Vec<Interval> =
        run.intervals()?.into_iter().filter(|row| matches!(&*row.phase, "run" | "recovery")).collect();
    let began = intervals.iter().map(|row| row.start.0).min();
    let Some(began) = began.filter(|_| intervals.iter().any(|row| row.bytes > 0 || row.requests > 0)) else {
        let message = format!("{} has no intervals of a load", run.path().display());
        return Err(Error::new(ErrorKind::Invalid, message));
    };
    let workers = intervals.iter().filter_map(|row| row.worker).max().map_or(1, |last| u32::from(last) + 1);
    let name =
        name.map_or_else(|| format!("{}-iodepth-1-numjobs-{workers}", pattern(&intervals)), str::to_owned);
    if name.contains('/') || name.is_empty() {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("`{name}` cannot be the beginning of a file's name"),
        ));
    }
    fs::create_dir_all(into).doing(|| format!("creating {}", into.display()))?;
    let mut written = Vec::new();
    let mut put = |file: String, text: String| -> Result<()> {
        let path = into.join(file);
        fs::write(&path, text).doing(|| format!("writing {}", path.display()))?;
        written.push(path);
        Ok(())
    };
    for worker in 0..workers {
        let own: Vec<&Interval> =
            intervals.iter().filter(|row| row.worker.map(u32::from) == Some(worker)).collect();
        for (kind, value) in LOGS {
            put(format!("{name}_{kind}.{}.log", worker + 1), log(&own, began, value))?;
        }
    }
    let report = json(run, &name, &intervals)?;
    put(format!("{name}.json"), format!("{report:#}\n"))?;
    Ok(written)
}

type Logged = fn(&Interval) -> u64;

const LOGS: [(&str, Logged); 4] = [
    ("bw", |row| (row.bytes_per_second() / 1024.0).round() as u64),
    ("iops", |row| row.requests_per_second().round() as u64),
    ("lat", |row| row.latency_ns.mean.round() as u64),
    ("clat", |row| row.latency_ns.mean.round() as u64),
];

/// The lines of one log, each at the end of its interval, as fio has them.
fn log(rows: &[&Interval], began_ns: u64, value: Logged) -> String {
    let mut text = String::new();
    for row in rows {
        let Some(direction) = DIRECTIONS.iter().position(|(_, operation)| *operation == &*row.operation)
        else {
            continue;
        };
        let at_ms = row.end().0.saturating_sub(began_ns).div_ceil(1_000_000);
        writeln!(text, "{at_ms}, {}, {direction}, 0, 0", value(row)).expect("a text takes everything");
    }
    text
}

/// The word of fio for what was done, by the operations that there were.
fn pattern(intervals: &[Interval]) -> &'static str {
    let any = |operation: &str| intervals.iter().any(|row| &*row.operation == operation && row.requests > 0);
    match (any("read"), any("write")) {
        (true, true) => "randrw",
        (false, true) => "randwrite",
        _ => "randread",
    }
}

fn json(run: &RunFolder, name: &str, intervals: &[Interval]) -> Result<Value> {
    let path = run.path().join("run.json");
    let text = fs::read(&path).doing(|| format!("reading {}", path.display()))?;
    let report: Value = serde_json::from_slice(&text).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("{} is no result of a run", path.display())).caused_by(error)
    })?;
    let mut job = json!({ "jobname": name, "groupid": 0, "error": 0, "job options": { "name": name } });
    for (direction, operation) in DIRECTIONS {
        job[direction] = side(&report, operation, intervals);
    }
    Ok(json!({
        "fio version": "fio-3.33",
        "timestamp": report["wall_clock"]["started_unix_seconds"].as_f64().unwrap_or(0.0) as u64,
        "jobs": [job],
    }))
}

fn side(report: &Value, operation: &str, intervals: &[Interval]) -> Value {
    let lines = report["performance"].as_array().map_or(&[][..], Vec::as_slice);
    let line = lines.iter().find(|line| line["phase"] == "run" && line["operation"] == operation);
    let number = |key: &str| line.map_or(0.0, |line| line[key].as_f64().unwrap_or(0.0));
    let latency = |key: &str| line.map_or(0.0, |line| line["latency_ns"][key].as_f64().unwrap_or(0.0));
    let rates: Vec<f64> = intervals
        .iter()
        .filter(|row| row.worker.is_none() && &*row.operation == operation)
        .map(Interval::requests_per_second)
        .collect();
    let rates = Summary::of(&rates);
    let rate = |value: fn(&Summary) -> f64| rates.as_ref().map_or(0.0, value);
    let latencies = json!({
        "min": latency("min"),
        "max": latency("max"),
        "mean": latency("mean"),
        "stddev": 0.0,
        "N": number("requests"),
        "percentile": {
            "50.000000": latency("p50"),
            "90.000000": latency("p90"),
            "99.000000": latency("p99"),
            "99.900000": latency("p99_9"),
        },
    });
    json!({
        "io_bytes": number("bytes") as u64,
        "io_kbytes": number("bytes") as u64 / 1024,
        "bw_bytes": number("bytes_per_second") as u64,
        "bw": (number("bytes_per_second") / 1024.0) as u64,
        "iops": number("requests_per_second"),
        "runtime": (number("seconds") * 1000.0) as u64,
        "total_ios": number("requests") as u64,
        "short_ios": 0,
        "drop_ios": number("errors") as u64,
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

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_block::Time;
    use rotproof_load::engine::LoadOperation;
    use rotproof_record::{Measured, RecordSpec, Recording, RecordingOptions};

    #[test]
    fn a_run_becomes_logs_of_each_worker_and_one_report() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = RecordingOptions {
            spec: RecordSpec::default(),
            operations: LoadOperation::NAMES,
            workers: 2,
            folder: folder.path().to_owned(),
        };
        let recording = Recording::new(options).expect("a folder");
        recording.begin_phase("run", 2);
        for worker in 0..2u16 {
            let mut recorder = recording.recorder(worker, Time(5_000_000_000));
            for n in 0..200u64 {
                let ended = Time(5_000_000_000 + n * 10_000_000);
                let began = Time(ended.0 - 2_000_000);
                let operation = (n % 2) as u8;
                recorder.record(&Measured { operation, began, ended, bytes: 4096, retries: 0, error: None });
            }
            recorder.finish(Time(7_000_000_000));
        }
        recording.write_to(folder.path()).expect("written");
        let run = json!({ "performance": [{
            "phase": "run", "operation": "read", "requests": 200, "bytes": 819_200, "errors": 0, "seconds": 2.0,
            "bytes_per_second": 409_600.0, "requests_per_second": 100.0, "latency_ns": { "p99": 2_000_000 },
        }] });
        fs::write(folder.path().join("run.json"), run.to_string()).expect("written");
        let run = RunFolder::open(folder.path()).expect("recorded");
        let into = folder.path().join("fio");
        let files = write_fio_files(&run, None, &into).expect("written");
        assert_eq!(files.len(), 9, "four logs of two workers, and the report");
        let log = fs::read_to_string(into.join("randrw-iodepth-1-numjobs-2_bw.2.log")).expect("it is there");
        assert_eq!(log, "1000, 200, 0, 0, 0\n1000, 200, 1, 0, 0\n2000, 200, 0, 0, 0\n2000, 200, 1, 0, 0\n");
        let log = fs::read_to_string(into.join("randrw-iodepth-1-numjobs-2_lat.1.log")).expect("it is there");
        assert!(log.starts_with("1000, 2000000, 0, 0, 0\n"), "{log}");
        let report = fs::read(into.join("randrw-iodepth-1-numjobs-2.json")).expect("it is there");
        let report: Value = serde_json::from_slice(&report).expect("JSON");
        let read = &report["jobs"][0]["read"];
        assert_eq!((read["bw"].as_u64(), read["iops_mean"].as_f64()), (Some(400), Some(100.0)));
        assert_eq!(read["clat_ns"]["percentile"]["99.000000"].as_f64(), Some(2_000_000.0));
        assert!(write_fio_files(&run, Some("a/b"), &into).is_err());
    }
}
