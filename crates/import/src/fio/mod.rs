//! Job files of fio as loads of ours.
//!
//! Source: fio(1), "Job file format" and "Job file parameters". A job file is read section by section, `[global]` ones
//! giving defaults to those behind them; each option is carried, noted as without effect here, or a mistake at its line.
//! Nothing is left out in silence.

mod job;
mod replay;
mod sections;
mod steady;
mod value;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rotproof_document::{Diagnostic, Diagnostics, Source};
use rotproof_load::{FileEngine, JobSpec, LoadSpec};
use rotproof_spec::{Bytes, Path, Percent, Problems, Span};
use serde::Serialize;
use serde_json::{Value, json};

use super::written::comment;
use job::{Job, OWN_PARTS};
pub use steady::FioSteady;

/// Loads that were written for fio.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedLoad {
    /// The file it came from.
    pub file: String,
    /// What was assumed, and what has no meaning here.
    pub notes: Vec<String>,
    /// The load; several where jobs wait for those before them (`stonewall`), in their order. At least one.
    pub loads: Vec<LoadSpec>,
}

impl Serialize for ImportedLoad {
    /// `load` where there is one, `loads` where there are several.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = json!({ "file": self.file, "notes": self.notes });
        match self.loads.as_slice() {
            [one] => object["load"] = json!(one),
            several => object["loads"] = json!(several),
        }
        object.serialize(serializer)
    }
}

const IN_TURN: &str = "Jobs that wait for those before them (`stonewall`) are a load of their own, for a trial of its own: run these \
                       trials in this order. None knows what another has written.";

/// Whether a text looks like a job file: its first line that is no comment names a section.
pub(super) fn looks_like(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.find(|line| !line.starts_with(['#', ';'])).is_some_and(|line| {
        let line = line.split(['#', ';']).next().unwrap_or_default().trim();
        let name = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        // An empty list is one of YAML, not a section.
        name.is_some_and(|name| !name.trim().is_empty() && !name.contains(['{', '"', ',', ':']))
    })
}

/// The load that a job file describes.
pub(super) fn import(source: &Arc<Source>) -> Result<ImportedLoad, Diagnostics> {
    let mut diagnostics = Vec::new();
    let mut notes = Vec::new();
    let sections = sections::read(source, &mut diagnostics);
    let mut jobs = Vec::new();
    for section in &sections {
        jobs.push(Job::of(section, &mut notes, &mut diagnostics));
    }
    if jobs.is_empty() && diagnostics.is_empty() {
        let help = Some("a section such as [readers] describes one");
        return Err(Diagnostics::one(&source.name, "there is no job in it", help, None));
    }
    let mut loads = Vec::new();
    for jobs in jobs.chunk_by(|_, next| !next.waits) {
        let load = together(jobs, &mut notes, &mut diagnostics);
        if diagnostics.is_empty() {
            validate(&load, jobs, &mut diagnostics);
        }
        // As its text says it: shares are written with six decimals.
        loads.push(serde_json::to_value(&load).and_then(serde_json::from_value).unwrap_or(load));
    }
    if loads.len() > 1 {
        notes.push(IN_TURN.to_owned());
    }
    if !diagnostics.is_empty() {
        return Err(Diagnostics::new(&source.name, diagnostics));
    }
    Ok(ImportedLoad { file: source.name.clone(), notes, loads })
}

/// Reports what a load may not be, at the job that it comes of.
fn validate(load: &LoadSpec, jobs: &[Job], diagnostics: &mut Vec<Diagnostic>) {
    let mut problems = Problems::default();
    load.validate(&Path::root(), &mut problems);
    for problem in problems {
        let index = problem.path.as_str().strip_prefix("jobs[").and_then(|rest| rest.split(']').next());
        let job = index.and_then(|index| index.parse::<usize>().ok()).and_then(|index| jobs.get(index));
        // A load without `jobs` is of one alone.
        let job = job.or_else(|| jobs.first().filter(|_| load.jobs.is_empty()));
        diagnostics.push(Diagnostic {
            message: format!("as a load this makes no sense: {}", problem.message),
            help: problem.help,
            place: job.map(|job| job.place.clone()),
            path: String::new(),
        });
    }
}

/// Jobs as one load, whose end is that of all of them.
fn together(jobs: &[Job], notes: &mut Vec<String>, diagnostics: &mut Vec<Diagnostic>) -> LoadSpec {
    let specs = jobs.iter().map(|job| job.spec.clone()).collect();
    let mut load = LoadSpec { jobs: specs, ..LoadSpec::default() };
    let Some(first) = jobs.first() else { return load };
    let mut differs = |what: &str, job: &Job| {
        diagnostics.push(Diagnostic {
            message: format!("jobs with a different `{what}` cannot be one load"),
            help: Some(format!("give all of them the same `{what}`, or make a load of each")),
            place: Some(job.place.clone()),
            path: String::new(),
        });
    };
    for job in &jobs[1..] {
        for (what, is_same) in [
            ("runtime", job.duration == first.duration),
            ("ramp_time", job.ramp_up == first.ramp_up),
            ("steadystate", job.until_steady == first.until_steady),
            ("number_ios", job.requests == first.requests),
            ("size", job.total.is_some() == first.total.is_some()),
            ("dedupe_percentage", job.duplicates == first.duplicates),
            ("buffer_compress_percentage", job.compressible == first.compressible),
            ("fixedbufs", job.fixed_buffers == first.fixed_buffers),
            ("direct", job.buffered == first.buffered),
            ("ioengine", job.mapped == first.mapped),
        ] {
            if !is_same {
                differs(what, job);
            }
        }
    }
    if jobs.iter().any(|job| job.trace.is_some()) {
        if jobs.len() > 1 {
            differs("read_iolog", first);
        }
        return replay::of_log(first, notes, diagnostics).unwrap_or(load);
    }
    let workers = |job: &Job| u64::from(job.spec.workers);
    let total: u64 = jobs
        .iter()
        .map(|job| job.total.map_or(0, |Bytes(bytes)| bytes.saturating_mul(workers(job))))
        .fold(0, u64::saturating_add);
    let requests = |requests: u64| requests.saturating_mul(jobs.iter().map(workers).sum());
    load.requests = first.requests.map(requests);
    load.duration = first.duration;
    load.until_steady = first.until_steady;
    load.ramp_up = first.ramp_up.filter(|_| first.duration.is_some()).map(rotproof_load::RampUp::Time);
    load.total = Some(Bytes(total)).filter(|total| total.0 > 0);
    if total > 0 && jobs.len() > 1 {
        // What a job moves is what it has, and bytes are shared out by the space.
        for (job, spec) in jobs.iter().zip(&mut load.jobs) {
            let own = job.total.map_or(0, |Bytes(bytes)| bytes.saturating_mul(workers(job)));
            spec.space = Some(Percent(own as f64 / total as f64));
        }
        // They make up the whole but for rounding; the last takes what there is.
        if let Some(last) = load.jobs.last_mut() {
            last.space = None;
        }
    }
    if jobs.len() > 1 && !notes.iter().any(|note| note == OWN_PARTS) {
        notes.push(OWN_PARTS.to_owned());
    }
    if first.ramp_up.is_some() && first.duration.is_none() {
        differs("ramp_time (it needs `runtime`)", first);
    }
    load.duplicates = rotproof_load::Duplicates::Share(first.duplicates.unwrap_or_default());
    load.fixed_buffers = first.fixed_buffers;
    load.buffered = first.buffered;
    if first.mapped {
        load.ioengine = FileEngine::Mmap;
    }
    load.compressible = first.compressible.unwrap_or_default();
    let space = space(jobs);
    if space > 0 {
        let note = format!(
            "fio's jobs have {} in all to work on (`size`). Here they share the target, whatever its size: make the \
             stack that large.",
            Bytes(space)
        );
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    load
}

/// How many bytes fio's jobs work on: clones and jobs that name the same file share it, the others have one for each.
fn space(jobs: &[Job]) -> u64 {
    let mut named: BTreeMap<&str, u64> = BTreeMap::new();
    let mut others = 0u64;
    for job in jobs {
        let Bytes(size) = job.size.unwrap_or_default();
        match &job.file {
            Some(file) => {
                let largest = named.entry(file).or_default();
                *largest = size.max(*largest);
            }
            None => others = others.saturating_add(size.saturating_mul(u64::from(job.spec.workers))),
        }
    }
    named.into_values().fold(others, u64::saturating_add)
}

/// A span of time, if it is no more than fio takes.
fn span(nanoseconds: f64) -> Option<Span> {
    (nanoseconds.is_finite() && (0.0..1e18).contains(&nanoseconds))
        .then(|| Span(std::time::Duration::from_nanos(nanoseconds as u64)))
}

impl fmt::Display for ImportedLoad {
    /// The `load:` of a trial file, without what is as by default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# fio's jobs, from {}.", super::written::one_line(&self.file))?;
        for note in &self.notes {
            comment(f, "", note)?;
        }
        for (index, load) in self.loads.iter().enumerate() {
            if index > 0 {
                write!(f, "\n---\n")?;
            }
            let jobs: Vec<Value> =
                load.jobs.iter().map(|job| without_defaults(job, &JobSpec::default())).collect();
            let mut load = without_defaults(load, &LoadSpec::default());
            if !jobs.is_empty() {
                load["jobs"] = Value::Array(jobs);
            }
            let yaml = serde_saphyr::to_string(&json!({ "load": load })).map_err(|_| fmt::Error)?;
            f.write_str(yaml.trim_end())?;
        }
        Ok(())
    }
}

fn without_defaults<T: Serialize>(value: &T, default: &T) -> Value {
    let (Ok(Value::Object(mut value)), Ok(default)) =
        (serde_json::to_value(value), serde_json::to_value(default))
    else {
        return json!({});
    };
    value.retain(|key, own| default.get(key) != Some(own));
    Value::Object(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Brought, Format, parse_bytes};
    use rotproof_trial::file::{Overrides, TrialFile};

    fn import(text: &str) -> Result<ImportedLoad, Vec<String>> {
        match parse_bytes("jobs.fio", text.as_bytes(), Some(Format::Fio)) {
            Ok(Brought::Load(load)) => Ok(*load),
            Ok(Brought::Plan(_)) => panic!("no plan"),
            Err(mistakes) => Err(mistakes
                .list
                .into_iter()
                .map(|mistake| {
                    format!("{}: {}", mistake.place.map_or(0, |place| place.line()), mistake.message)
                })
                .collect()),
        }
    }

    fn load(json: &str) -> LoadSpec {
        serde_json::from_str(json).expect(json)
    }

    #[test]
    fn jobs_as_people_write_them_become_loads() {
        for (text, json) in [
            (
                "; a database\n[global]\nioengine=libaio\ndirect=1\nfilename=/dev/sdb\nbs=8k\nruntime=60\ntime_based\n\
                 group_reporting\n\n[table]\nrw=randrw\nrwmixread=70\niodepth=16\nnumjobs=4\n[log]\nrw=write\nbs=64k\n\
                 fsync=1\n",
                r#"{ "duration": "60s", "jobs": [
                    { "name": "table", "pattern": "random", "reads": "70%", "block_size": "8KiB", "queue_depth": 16,
                      "workers": 4 },
                    { "name": "log", "block_size": "64KiB", "flush_every": 1 } ] }"#,
            ),
            (
                "[seq]\nreadwrite = read\nsize=1g\nblocksize=128k",
                r#"{ "total": "1GiB", 
                     "jobs": [{ "name": "seq", "reads": "100%", "block_size": "128KiB" }] }"#,
            ),
            (
                "[a]\nrw=randwrite\nbssplit=4k/60:64k/40\nrandom_distribution=zipf:1.1\nsize=768m\n[b]\nrw=write\n\
                 size=256m\nthinktime=500\nthinktime_blocks=8\n",
                r#"{ "total": "1GiB", "jobs": [
                    { "name": "a", "pattern": { "zipf": { "theta": 1.1 } }, "space": "75%",
                      "block_size": { "4KiB": "60%", "64KiB": "40%" } },
                    { "name": "b", "think_time": { "pause": "500us", "after": 8 } } ] }"#,
            ),
            (
                "[i]\nrw=write\nsize=1g\nthinktime=5s\nthinktime_iotime=10\n",
                r#"{ "total": "1GiB", "jobs": [{ "name": "i", "think_time": { "pause": "5s", "after": "10s" } }] }"#,
            ),
            (
                "[r]\nrw=randread\nrate_iops=100\nrate_process=poisson\nnumjobs=3\nnumber_ios=50\nsize=1m\nbs=4k,8k\n\
                 percentage_random=80\ndedupe_percentage=30\nbuffer_compress_percentage=50\n",
                r#"{ "requests": 150, "total": "3MiB", "duplicates": "30%", "compressible": "50%", "jobs": [
                    { "name": "r", "pattern": "random", "reads": "100%", "workers": 3, "sequential": "20%",
                      "rate": { "requests": 300, "arrivals": "poisson" },
                      "block_size": { "reads": "4KiB", "writes": "8KiB" } } ] }"#,
            ),
            (
                "[first]\nrw=randread\nfixedbufs=1\nregisterfiles\nhipri\nruntime=30\nramp_time=5\nsize=2g\nnumjobs=2\n",
                r#"{ "total": "4GiB", "duration": "30s", "ramp_up": "5s", "fixed_buffers": true,
                     "jobs": [{ "name": "first", "pattern": "random", "reads": "100%", "workers": 2 }] }"#,
            ),
            (
                "[s]\nrw=randread\nsize=1g\nruntime=5m\nss=iops:10%\nss_dur=30s\nss_ramp=10\n",
                r#"{ "total": "1GiB", "duration": "5min",
                     "until_steady": { "window": "30s", "range": "20%", "slope": "100%", "of": "iops", "after": "10s" },
                     "jobs": [{ "name": "s", "pattern": "random", "reads": "100%" }] }"#,
            ),
            (
                "[off]\nsize=1g\nsteadystate=bw:10%\n",
                r#"{ "total": "1GiB", "jobs": [{ "name": "off", "reads": "100%" }] }"#,
            ),
            (
                "[z]\nrw=randread\nsize=1g\nrandom_distribution=zoned:60/10:30/20:8/30:2/40\n",
                r#"{ "total": "1GiB", "jobs": [ { "name": "z", "reads": "100%", "pattern": { "zoned": [
                    { "requests": "60%", "space": "10%" }, { "requests": "30%", "space": "20%" },
                    { "requests": "8%", "space": "30%" }, { "requests": "2%", "space": "40%" } ] } } ] }"#,
            ),
        ] {
            let imported = import(text).unwrap_or_else(|mistakes| panic!("{mistakes:?}\n{text}"));
            assert_eq!(imported.loads[0], load(json), "{text}");
            assert!(!imported.notes.is_empty(), "each of them leaves something open: {text}");
            let trial = format!("stack: [memory: {{ size: 2GiB }}]\nsubject: device\n{imported}\n");
            let again = TrialFile::parse("t.yaml", trial.as_bytes(), &Overrides::default())
                .unwrap_or_else(|mistakes| panic!("{mistakes}\n{trial}"));
            assert_eq!(again.load, imported.loads[0], "{trial}");
        }
    }

    /// Measured with fio 3.33 and its engine `null`: 4 s of `rate_iops=500` made 2000 reads and 2000 writes, with
    /// `rwmixread=70` too; of `bssplit=4k/50:64k/50` it made 228 writes.
    #[test]
    fn a_limit_of_fios_is_one_of_reads_one_of_writes_and_by_the_smallest_size() {
        for (job, requests, reads) in [
            ("rw=randrw\nrate_iops=500\n", 1000.0, 0.5),
            ("rw=randrw\nrwmixread=70\nrate_iops=500\nnumjobs=2\n", 2000.0, 0.5),
            ("rw=randrw\nrate_iops=300,700\nbs=4k,16k\n", 1000.0, 0.3),
            ("rw=randread\nrate_iops=100,200\n", 100.0, 1.0),
            ("rw=randwrite\nrate_iops=100,200\n", 200.0, 0.0),
            ("rw=randwrite\nrate_iops=34\nbssplit=4k/50:64k/50\nbs=4k\n", 4.0, 0.0),
        ] {
            let text = format!("[a]\nsize=1g\n{job}");
            let imported = import(&text).unwrap_or_else(|mistakes| panic!("{mistakes:?}\n{text}"));
            let found = &imported.loads[0].jobs[0];
            assert_eq!(found.rate.as_ref().map(|rate| rate.requests), Some(requests), "{text}");
            assert!((found.reads.0 - reads).abs() < 1e-6, "{text}: {}", found.reads);
        }
        let unlimited = import("[a]\nsize=1g\nrw=randrw\nrate_iops=0\n").expect("no limit");
        assert_eq!(unlimited.loads[0].jobs[0].rate, None);
    }

    #[test]
    fn what_is_not_the_same_here_is_said() {
        for (options, wanted) in [
            ("iodepth=32\n", "one request is in flight"),
            ("ioengine=psync\niodepth=32\n", "one request is in flight"),
            ("rw=randread\n", "each place once"),
            ("rw=rw\n", "twice side by side"),
            ("numjobs=2\n", "Each worker has its own part"),
            ("scramble_buffers=0\n", "a content of its own"),
            ("dedupe_percentage=20\nrw=write\n", "repeats whole requests"),
            ("runtime=5\n", "ends before `runtime`"),
            ("rw=randrw\nrate_iops=5\n", "each for itself"),
            ("rw=write\nbssplit=4k/50:8k/50\nrate_iops=5\n", "the smallest"),
            ("", "through the page cache"),
        ] {
            let text = format!("[a]\n{options}");
            let notes = import(&text).unwrap_or_else(|mistakes| panic!("{mistakes:?}\n{text}")).notes;
            assert!(notes.iter().any(|note| note.contains(wanted)), "{text}: {notes:?}");
        }
        let same =
            "[a]\nioengine=libaio\niodepth=32\nrw=read\ndirect=1\ntime_based\nruntime=5\nnumber_ios=7\n";
        let same = import(same).expect("a job");
        assert_eq!(
            (same.loads[0].jobs[0].queue_depth, same.loads[0].requests),
            (32, None),
            "time alone counts"
        );
        let unsaid = ["in flight", "each place once", "its own part", "page cache;", "ends before"];
        assert!(!same.notes.iter().any(|note| unsaid.iter().any(|word| note.contains(word))), "{same:?}");
    }

    #[test]
    fn sizes_have_the_units_of_fio() {
        for (size, bytes) in [("1m", 1 << 20), ("1MB", 1 << 20), ("1MiB", 1_000_000), ("4096", 4096)] {
            let load = import(&format!("[a]\nrw=write\nsize={size}\n")).expect(size).loads.remove(0);
            assert_eq!(load.total, Some(Bytes(bytes)), "{size}");
        }
        let found = import("[a]\nbs=4KiB\nsize=1m\n").expect_err("4000 bytes");
        assert!(found[0].contains("a request of 4000"), "{found:?}");
    }

    #[test]
    fn a_global_section_holds_for_the_jobs_behind_it() {
        let imported =
            import("[a]\nsize=4k\n[global]\nbs=8k\n[b]\nsize=8k\n[c]\nsize=16k\nbs=16k\n").expect("jobs");
        let sizes: Vec<_> = imported.loads[0].jobs.iter().map(|job| job.block_size.to_string()).collect();
        assert_eq!(sizes, ["4KiB", "8KiB", "16KiB"]);
    }

    #[test]
    fn what_only_shapes_fios_output_and_process_is_taken_and_named() {
        let imported = import(
            "[a] ; the only one\nrw=write # in order\nsize=1m\nwrite_bw_log=x\nlog_avg_msec=500\ncpus_allowed=0-3\n\
             iodepth_batch=8\nnrfiles=4\nverify_backlog=16\nzero_buffers\n",
        )
        .expect("a job");
        for name in [
            "write_bw_log",
            "log_avg_msec",
            "cpus_allowed",
            "iodepth_batch",
            "nrfiles",
            "verify_backlog",
            "zero_buffers",
        ] {
            let named = format!("`{name}` ");
            assert!(
                imported.notes.iter().any(|note| note.starts_with(&named)),
                "{name}: {:?}",
                imported.notes
            );
        }
        assert_eq!(imported.loads, [load(r#"{ "total": "1MiB", "jobs": [{ "name": "a" }] }"#)]);
    }

    #[test]
    fn jobs_that_wait_are_loads_of_their_own_in_their_order() {
        let text = "[global]\nsize=1m\n[fill]\nrw=write\n[a]\nstonewall\nrw=randread\nruntime=5\n[b]\nrw=randwrite\n\
                    runtime=5\n[last]\nstonewall\nrw=read\n";
        let imported = import(text).expect("jobs");
        let names: Vec<Vec<&str>> = imported
            .loads
            .iter()
            .map(|load| load.jobs.iter().filter_map(|job| job.name.as_deref()).collect())
            .collect();
        assert_eq!(names, [&["fill"][..], &["a", "b"], &["last"]]);
        assert!(imported.notes.iter().any(|note| note.contains("in this order")), "{:?}", imported.notes);
        assert_eq!(imported.to_string().split("\n---\n").count(), 3);
        let json = serde_json::to_value(&imported).expect("JSON");
        assert_eq!(json["loads"].as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn what_fio_says_in_other_words_is_carried() {
        for (options, json) in [
            ("rw=write\nsize=1m\nloops=3\n", r#"{ "total": "3MiB", "jobs": [{ "name": "a" }] }"#),
            (
                "rw=write\nsize=1m\nsync=1\n",
                r#"{ "total": "1MiB", "jobs": [{ "name": "a", "fua": "100%" }] }"#,
            ),
            (
                "rw=write\nsize=1m\ndirect=0\n",
                r#"{ "total": "1MiB", "buffered": true, "jobs": [{ "name": "a" }] }"#,
            ),
            (
                "rw=write\nsize=1m\nioengine=mmap\n",
                r#"{ "total": "1MiB", "ioengine": "mmap", "jobs": [{ "name": "a" }] }"#,
            ),
            (
                "rw=write\nsize=1m\nbs=16k\nrate=1m\n",
                r#"{ "total": "1MiB", "jobs": [{ "name": "a", "block_size": "16KiB", "rate": 64 }] }"#,
            ),
            (
                "rw=write:112k\nsize=1m\nbs=16k\n",
                r#"{ "total": "1MiB", "jobs": [{ "name": "a", "block_size": "16KiB",
                     "pattern": { "strided": { "by": "128KiB" } } }] }"#,
            ),
            (
                "rw=randread\nsize=30%\nruntime=5\ntime_based\n",
                r#"{ "duration": "5s", "jobs": [{ "name": "a", "pattern": "random", "reads": "100%", "space": "30%" }] }"#,
            ),
            (
                "rw=randread\nsize=1m\nrandom_distribution=zoned:50/5:30/15:20/\n",
                r#"{ "total": "1MiB", "jobs": [{ "name": "a", "reads": "100%", "pattern": { "zoned": [
                     { "requests": "50%", "space": "5%" }, { "requests": "30%", "space": "15%" },
                     { "requests": "20%", "space": "80%" }] } }] }"#,
            ),
            (
                "read_iolog=x.log\nreplay_no_stall=1\nreplay_skip=trim\n",
                r#"{ "trace": { "file": "x.log", "format": "fio", "pace": "asap", "depth": 1, "skip": ["discard"] } }"#,
            ),
            (
                "rw=write\nbsrange=8k-8k\nsize=1m\n",
                r#"{ "total": "1MiB", "jobs": [{ "name": "a", "block_size": "8KiB" }] }"#,
            ),
        ] {
            let text = format!("[a]\n{options}");
            let imported = import(&text).unwrap_or_else(|mistakes| panic!("{mistakes:?}\n{text}"));
            assert_eq!(imported.loads, [load(json)], "{text}");
        }
    }

    #[test]
    fn what_the_jobs_have_to_work_on_counts_a_shared_file_once() {
        for (text, bytes) in [
            ("[a]\nsize=1m\nnumjobs=4\n", "have 4MiB"),
            ("[a]\nsize=1m\nnumjobs=4\nfilename=/dev/sdb\n", "have 1MiB"),
            ("[global]\nfilename=f\n[a]\nsize=1m\n[b]\nsize=2m\n", "have 2MiB"),
            ("[a]\nsize=1m\nfilename=f\n[b]\nsize=2m\nfilename=g\n[c]\nsize=4m\n", "have 7MiB"),
        ] {
            let notes = import(text).expect(text).notes.join("\n");
            assert!(notes.contains(bytes), "{text}: {notes}");
        }
    }

    #[test]
    fn everything_that_cannot_be_carried_is_named_at_its_line() {
        for (text, mistakes) in [
            ("[a]\nrw=trim\n", &["2: `trim` has no counterpart"][..]),
            ("[a]\nsize=1g\nzonemode=zbd\nflow=1\n", &["3: `zonemode`", "4: `flow`"]),
            ("[a]\nbs=6k\nsize=1m\n", &["1: as a load this makes no sense: a request of 6KiB"]),
            ("[a]\nsize=50%x\n", &["2: `50%x` is no size"]),
            ("[]\nrw=read\n", &["1: a section without a name", "2: an option before"]),
            ("[a]\nbsrange=4k-64k\n", &["2: sizes drawn from a range"]),
            ("[a]\nrw=read:-8k\n", &["2: going backwards"]),
            ("[a]\nread_iolog=x\n[b]\nrw=read\n", &["1: jobs with a different `read_iolog`"]),
            ("[a]\nrate=1m\nrate_iops=5\nsize=1m\n", &["1: both `rate` and `rate_iops`"]),
            ("[a]\nsize=1m\ndirect=0\n[b]\nsize=1m\ndirect=1\n", &["4: jobs with a different `direct`"]),
            (
                "[a]\nsize=1m\n[b]\nruntime=5\ntime_based=1\n",
                &["3: jobs with a different `runtime`", "3: jobs with a different `size`"],
            ),
            ("[a]\nsize=1m\nramp_time=3\n", &["1: jobs with a different `ramp_time (it needs `runtime`)"]),
            ("[a]\nrw=randread:8\n", &["2: runs of several requests"]),
            ("rw=read\n[a]\n", &["1: an option before the first section"]),
            ("[a\nrw=read\n", &["1: a section without its bracket", "2: an option before the first section"]),
            (
                "[a]\nsize=1m\nthinktime=1s\nthinktime_blocks=5\nthinktime_iotime=9\n",
                &["1: both `thinktime_blocks` and `thinktime_iotime` say when to pause"],
            ),
            ("[a]\ndirect=perhaps\n", &["2: `perhaps` is neither"]),
            ("[a]\nss=iops:5\nss_dur=9\n", &["2: the limit `5` is no share of the mean"]),
            (
                "[a]\nrw=randrw\nrate_iops=500,0\nsize=1m\n[b]\nrw=rw\nrate_iops=1,2,3\nsize=1m\n",
                &["1: either reads or writes have no limit", "7: rates for reads, writes and trims"],
            ),
            ("[a]\nioengine=net\n", &["2: `net` has no counterpart"]),
            ("[a]\nrate_iops=fast\nnumjobs=-1\n", &["2: `fast` is no number", "3: `-1` is no number"]),
            ("include x.fio\n", &["1: an option before the first section"]),
            ("[global]\nbs=4k\n", &["0: there is no job in it"]),
            ("", &["0: there is no job in it"]),
        ] {
            let found = import(text).expect_err(text);
            assert_eq!(found.len(), mistakes.len(), "{text}: {found:?}");
            for (found, wanted) in found.iter().zip(mistakes) {
                assert!(found.starts_with(wanted), "{text}: {found} instead of {wanted}");
            }
        }
    }

    #[test]
    fn a_job_file_tells_itself() {
        assert!(looks_like("# x\n; y\n\n[global]\nrw=read\n") && looks_like("[job 1]"));
        for text in ["", "{}", "[1, 2]\n", "[a: b]", "write: []", "rw=read\n[a]"] {
            assert!(!looks_like(text), "{text}");
        }
    }
}
