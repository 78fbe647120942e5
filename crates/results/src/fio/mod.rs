//! A recorded run as fio would have left it: its JSON, and its logs of bandwidth, IOPS and latency, for programs that draw
//! those (fio-plot and the like).
//!
//! The formats are those of fio 3.x, HOWTO, "JSON output" and "Log File Formats": a line of a log is time in
//! milliseconds, value, direction (0 read, 1 write, 2 trim), block size, offset; the last two are 0, as each line is the mean
//! of an interval.

mod job;
mod steady;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_machine::write_whole;
use rotproof_record::statistics::SteadySpec;
use rotproof_record::{Interval, RunFolder};
use serde::Deserialize;
use serde_json::Value;

use crate::read_run;
use crate::run::Run;

/// fio's directions and our operations.
const DIRECTIONS: [(&str, &str); 3] = [("read", "read"), ("write", "write"), ("trim", "discard")];

/// Writes the files into `into`, which is made if need be, and gives their paths. They are called after `name`, by default
/// in the way in which fio-plot's scripts name theirs. Fails with
/// [`ErrorKind::Invalid`] if nothing was read, written or discarded.
pub fn write_fio_files(run: &RunFolder, name: Option<&str>, into: &Path) -> Result<Vec<PathBuf>> {
    let mut intervals: Vec<Interval> =
        run.intervals()?.into_iter().filter(|row| matches!(&*row.phase, "run" | "cool_down")).collect();
    // A rest of an interval would look like a fall at the end of a line.
    let whole = intervals.iter().map(|row| row.length_ns).max().unwrap_or(0);
    intervals.retain(|row| row.length_ns >= whole / 2);
    let began = intervals.iter().map(|row| row.start.0).min();
    let Some(began) = began.filter(|_| intervals.iter().any(|row| row.bytes > 0 || row.requests > 0)) else {
        let message = format!("{} has no intervals of a load", run.path().display());
        return Err(Error::new(ErrorKind::Invalid, message));
    };
    let report = read_run(run.path())?;
    let load = Asked::of(run.path(), &report);
    let depth = Depth::of(&load, &intervals);
    let Depth { pattern, queue_depth, workers } = depth;
    let default_name = || format!("{pattern}-iodepth-{queue_depth}-numjobs-{workers}");
    let name = name.map_or_else(default_name, str::to_owned);
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
        write_whole(&path, text)?;
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
    let end = match &report {
        Run::Trial(run) => run.until_steady,
        Run::Load(run) => run.until_steady,
        Run::Crash(_) => None,
    };
    let steady = load.until_steady.as_ref().zip(end.as_ref());
    let steady = steady.map(|(spec, end)| steady::section(spec, end, &intervals));
    let mut report = job::report(&report, &name, &depth, &intervals);
    if let Some(steady) = steady {
        report["jobs"][0]["steadystate"] = steady;
    }
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

/// How a load was made, as far as the names of fio's files and its options tell it.
struct Depth {
    pattern: &'static str,
    queue_depth: u64,
    workers: u32,
}

impl Depth {
    /// Of a run, by what it was asked to do (`load` in `run.json`, or the trial) and what it did.
    fn of(load: &Asked, intervals: &[Interval]) -> Self {
        let any =
            |operation: &str| intervals.iter().any(|row| &*row.operation == operation && row.requests > 0);
        let is_sequential = load.pattern.as_ref().is_none_or(|pattern| pattern == "sequential");
        let pattern = match (any("read"), any("write"), is_sequential) {
            (true, true, true) => "rw",
            (true, true, false) => "randrw",
            (false, true, true) => "write",
            (false, true, false) => "randwrite",
            (_, _, true) => "read",
            (_, _, false) => "randread",
        };
        let last = intervals.iter().filter_map(|row| row.worker).max();
        Self {
            pattern,
            queue_depth: load.queue_depth.unwrap_or(1),
            workers: last.map_or(1, |last| u32::from(last) + 1),
        }
    }
}

/// What the run was to do, as far as fio's form tells of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    /// A word, or a map for those that have options.
    pattern: Option<Value>,
    queue_depth: Option<u64>,
    until_steady: Option<SteadySpec>,
}

impl Asked {
    /// A load without a trial says it among its results.
    fn of(folder: &Path, run: &Run) -> Self {
        #[derive(Default, Deserialize)]
        struct Trial {
            #[serde(default)]
            load: Asked,
        }
        if let Run::Load(run) = run {
            let load = run.load.as_ref().and_then(|load| serde_json::to_value(load).ok());
            return load.and_then(|load| serde_json::from_value(load).ok()).unwrap_or_default();
        }
        let trial = fs::read_to_string(folder.join("trial.yaml")).unwrap_or_default();
        let trial: Trial = serde_saphyr::from_str(&trial).unwrap_or_default();
        trial.load
    }
}

#[cfg(test)]
mod tests {
    use rotproof_block::Time;
    use rotproof_load::engine::LoadOperation;
    use rotproof_record::{Measured, RecordSpec, Recording, RecordingOptions};

    use serde_json::json;

    use super::*;

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
        let run = json!({ "target": "x", "load": { "pattern": "random", "queue_depth": 8 }, "performance": [{
            "phase": "run", "operation": "read", "requests": 200, "bytes": 819_200, "errors": 0, "seconds": 2.0,
            "bytes_per_second": 409_600.0, "requests_per_second": 100.0, "latency_ns": { "min": 0, "mean": 0.0, "p50": 0, "p90": 0, "p99": 2_000_000, "p99_9": 0, "max": 0 },
        }] });
        fs::write(folder.path().join("run.json"), run.to_string()).expect("written");
        let run = RunFolder::open(folder.path()).expect("recorded");
        let into = folder.path().join("fio");
        let files = write_fio_files(&run, None, &into).expect("written");
        assert_eq!(files.len(), 9, "four logs of two workers, and the report");
        let log = fs::read_to_string(into.join("randrw-iodepth-8-numjobs-2_bw.2.log")).expect("it is there");
        assert_eq!(log, "1000, 200, 0, 0, 0\n1000, 200, 1, 0, 0\n2000, 200, 0, 0, 0\n2000, 200, 1, 0, 0\n");
        let log = fs::read_to_string(into.join("randrw-iodepth-8-numjobs-2_lat.1.log")).expect("it is there");
        assert!(log.starts_with("1000, 2000000, 0, 0, 0\n"), "{log}");
        let report = fs::read(into.join("randrw-iodepth-8-numjobs-2.json")).expect("it is there");
        let report: Value = serde_json::from_slice(&report).expect("JSON");
        let read = &report["jobs"][0]["read"];
        assert_eq!((read["bw"].as_u64(), read["iops_mean"].as_f64()), (Some(400), Some(100.0)));
        assert_eq!(read["clat_ns"]["percentile"]["99.000000"].as_f64(), Some(2_000_000.0));
        let options = &report["jobs"][0]["job options"];
        assert_eq!((&options["rw"], &options["iodepth"]), (&json!("randrw"), &json!("8")));
        assert!(write_fio_files(&run, Some("a/b"), &into).is_err());
    }
}
