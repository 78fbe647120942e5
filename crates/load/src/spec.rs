//! What a trial file says of its load, what makes no sense in it, and its defaults.
//!
//! Owns the words of the file. It knows the sizes of what is loaded only when they are given to it, and nothing of
//! how a load runs.

use rotproof_spec::{Bytes, Path, Percent, Problems, Span, number_in_range};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::BLOCK_BYTES;
use crate::block_sizes::BlockSizes;
use crate::command::Command;
use crate::content::COMPRESSIBLE_MAX;
use crate::duplicates::Duplicates;
use crate::job::{JobSpec, WORKERS_MAX, with_job_keys};
use crate::mix::Mix;
use crate::object::{ObjectInfo, content_bytes};
use crate::pace::{Burst, RampUp, Rate, ThinkTime};
use crate::pattern::Pattern;
use crate::personality::Personality;
use crate::replay::Trace;
use crate::retry::Retry;

with_job_keys! {
    /// The load of a trial: where its requests go, what they are, how many at once, and when it ends.
    pub struct LoadSpec {
        /// Jobs of different kinds, instead of the keys of one.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub jobs: Vec<JobSpec>,
        /// A trace that is replayed, instead of the keys of a job.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub trace: Option<Trace>,
        /// A program that is the load, instead of everything else.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub command: Option<Command>,
        /// A load of files, instead of the keys of a job.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub personality: Option<Personality>,
        /// The end: bytes moved by all workers together. Default: the size of the target, or the whole trace.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub total: Option<Bytes>,
        /// The end: requests of all workers together, instead of `total`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub requests: Option<u64>,
        /// The end: how long the load runs, instead of `total`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub duration: Option<Span>,
        /// Requests of all workers together, or a time, that come first and are not recorded; default none.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub ramp_up: Option<RampUp>,
        /// Requests of all workers together, or a time, for which the load goes on after its end with faults off;
        /// default none.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub recovery: Option<RampUp>,
        /// How often a failed read or write is tried again; default never.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub retry: Option<Retry>,
        /// Write the whole target once before the load; default: if there are reads.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub prefill: Option<bool>,
        /// Which of the written blocks repeat what the same worker has written before: a share, a profile or a
        /// distribution; default 0%.
        pub duplicates: Duplicates,
        /// How much of each block a compressor saves, up to 95%; default 0%.
        pub compressible: Percent,
        /// The files on a file system; default: 4 files in 80% of the free space.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub files: Option<FilesSpec>,
    }
}

/// A set of files of equal size, named a, b, c, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesSpec {
    /// How many.
    pub count: u32,
    /// Size of each, a multiple of 4KiB.
    pub size: Bytes,
}

/// When a load ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After so many bytes, of all workers together.
    Total(Bytes),
    /// After so many requests, of all workers together.
    Requests(u64),
    /// After so much time.
    Duration(Span),
}

/// How many files there are unless told otherwise, and how much of the free space they take, in percent: a copying
/// file system needs the rest to go on working.
const DEFAULT_FILES: u32 = 4;
const DEFAULT_SPACE_PERCENT: u64 = 80;

impl LoadSpec {
    /// Reports everything that makes no sense whatever the target is.
    pub fn validate(&self, path: &Path, problems: &mut Problems) {
        self.own_job().validate(path, problems);
        self.validate_jobs(path, problems);
        self.validate_trace(path, problems);
        self.validate_command(path, problems);
        self.validate_personality(path, problems);
        self.validate_end(path, problems);
        if let (Some(RampUp::Time(_)), false) = (self.ramp_up, matches!(self.end(), Some(End::Duration(_)))) {
            problems.add_with_help(
                &path.key("ramp_up"),
                "a ramp-up by time needs a load that ends by time, or nobody could say beforehand what it writes",
                "give `duration`, or the ramp-up as a number of requests",
            );
        }
        let ends_by_time = matches!(self.end(), Some(End::Duration(_)));
        match self.recovery {
            Some(RampUp::Time(_)) if !ends_by_time => problems.add_with_help(
                &path.key("recovery"),
                "a recovery by time needs a load that ends by time, or nobody could say beforehand what it writes",
                "give `duration`, or the recovery as a number of requests",
            ),
            Some(RampUp::Requests(_)) if self.trace.is_some() => problems.add_with_help(
                &path.key("recovery"),
                "a trace has no requests beyond its end",
                "give `duration`, and the recovery as a time, such as 10s",
            ),
            Some(RampUp::Requests(_)) if ends_by_time => problems.add_with_help(
                &path.key("recovery"),
                "a load that ends by time recovers by time",
                "give the recovery as a time, such as 10s",
            ),
            _ => {}
        }
        if self.compressible.0 > COMPRESSIBLE_MAX {
            problems.add_with_help(
                &path.key("compressible"),
                format!("{} of a block cannot be saved: each sector has to name itself", self.compressible),
                format!("give up to {}", Percent(COMPRESSIBLE_MAX)),
            );
        }
        if let Some(retry) = &self.retry {
            retry.validate(&path.key("retry"), problems);
        }
        if let Some(files) = &self.files {
            files.validate(&path.key("files"), problems);
        }
    }

    fn validate_jobs(&self, path: &Path, problems: &mut Problems) {
        if self.jobs.is_empty() {
            return;
        }
        let path_of_jobs = path.key("jobs");
        if self.own_job() != JobSpec::default() {
            problems.add_with_help(
                &path_of_jobs,
                "beside `jobs`, the keys of a single job say nothing",
                "move pattern, reads, block_size, workers and the like into the jobs",
            );
        }
        for (index, job) in self.jobs.iter().enumerate() {
            job.validate(&path_of_jobs.index(index), problems);
            if let Some(Mix::Spc1 { .. }) = job.mix {
                problems.add_with_help(
                    &path_of_jobs.index(index).key("mix"),
                    "spc1 is a whole load, not one of its jobs",
                    "give `mix: spc1` to the load itself",
                );
            }
        }
        let workers: u64 = self.jobs.iter().map(|job| u64::from(job.workers)).sum();
        if self.jobs.len() > 1 {
            number_in_range(
                problems,
                &path_of_jobs,
                "the number of workers of all jobs",
                workers,
                1..=WORKERS_MAX,
            );
        }
        let space: f64 = self.jobs.iter().filter_map(|job| job.space).map(|share| share.0).sum();
        let have_all = self.jobs.iter().all(|job| job.space.is_some());
        if space > 1.0 + 1e-6 || space > 1.0 - 1e-6 && !have_all {
            problems.add_with_help(
                &path_of_jobs,
                format!("the jobs take {} of the target, and more is not there", Percent(space)),
                "lower their `space` so that each has a part of its own",
            );
        }
        for (index, job) in self.jobs.iter().enumerate() {
            if job.space == Some(Percent(0.0)) {
                problems.add(&path_of_jobs.index(index).key("space"), "a job without space has no places");
            }
        }
    }

    /// A trace says everything that a job does.
    fn validate_trace(&self, path: &Path, problems: &mut Problems) {
        let Some(trace) = &self.trace else { return };
        trace.validate(&path.key("trace"), problems);
        let (own, default) = (self.own_job(), JobSpec::default());
        let said = [
            ("mix", own.mix != default.mix),
            ("pattern", own.pattern != default.pattern),
            ("sequential", own.sequential != default.sequential),
            ("reads", own.reads != default.reads),
            ("block_size", own.block_size != default.block_size),
            ("align", own.align != default.align),
            ("rate", own.rate != default.rate),
            ("burst", own.burst != default.burst),
            ("think_time", own.think_time != default.think_time),
            ("flush_every", own.flush_every != default.flush_every),
            ("fua", own.fua != default.fua),
            ("jobs", !self.jobs.is_empty()),
        ];
        for (key, _) in said.into_iter().filter(|(_, is_said)| *is_said) {
            problems.add_with_help(
                &path.key(key),
                format!("beside `trace`, `{key}` says nothing: the trace says what is done"),
                "leave one of them out",
            );
        }
        if own.queue_depth != default.queue_depth {
            problems.add_with_help(
                &path.key("queue_depth"),
                "how many requests of a trace are in flight, the trace says",
                "give it as `depth` below `trace`",
            );
        }
    }

    /// A command is the whole load.
    fn validate_command(&self, path: &Path, problems: &mut Problems) {
        let Some(command) = &self.command else { return };
        command.validate(&path.key("command"), problems);
        let alone = Self { command: self.command.clone(), ..Self::default() };
        if *self != alone {
            problems.add_with_help(
                &path.key("command"),
                "a command is the whole load; what stands beside it says nothing",
                "leave one of them out",
            );
        }
    }

    /// A personality says everything but how long it runs.
    fn validate_personality(&self, path: &Path, problems: &mut Problems) {
        let Some(personality) = &self.personality else { return };
        personality.validate(path, problems);
        let bare = Self { personality: None, duration: None, ..self.clone() };
        let (said, default) = (serde_json::to_value(bare), serde_json::to_value(Self::default()));
        if let (Ok(Value::Object(said)), Ok(Value::Object(default))) = (said, default) {
            for (key, _) in said.iter().filter(|(key, value)| default.get(*key) != Some(value)) {
                problems.add_with_help(
                    &path.key(key),
                    format!("beside `personality`, `{key}` says nothing"),
                    "leave it out; the figures of a personality are given below its name",
                );
            }
        }
        if personality.options.loops.is_some() && self.duration.is_some() {
            problems.add_with_help(
                &path.key("duration"),
                "the end of the load is given twice, as `loops` and as `duration`",
                "keep one of them",
            );
        }
    }

    /// The job that the load's own keys describe.
    fn own_job(&self) -> JobSpec {
        JobSpec {
            mix: self.mix,
            pattern: self.pattern.clone(),
            sequential: self.sequential,
            reads: self.reads,
            block_size: self.block_size.clone(),
            align: self.align,
            queue_depth: self.queue_depth,
            workers: self.workers,
            rate: self.rate,
            burst: self.burst,
            think_time: self.think_time,
            flush_every: self.flush_every,
            fua: self.fua,
            name: None,
            space: None,
        }
    }

    /// The jobs, one if there is but the load's own.
    pub fn jobs(&self) -> Vec<JobSpec> {
        match self.jobs.as_slice() {
            [] => match &self.trace {
                Some(trace) => vec![JobSpec { queue_depth: trace.depth, ..self.own_job() }],
                None => self.own_job().without_mix(),
            },
            jobs => jobs.iter().flat_map(JobSpec::without_mix).collect(),
        }
    }

    /// Whether any worker reads.
    pub fn reads_anything(&self) -> bool {
        match &self.trace {
            Some(trace) => trace.reads(),
            None => self.jobs().iter().any(|job| job.reads.0 > 0.0),
        }
    }

    /// Whether any worker writes.
    pub fn writes_anything(&self) -> bool {
        match &self.trace {
            Some(trace) => trace.writes(),
            None => self.jobs().iter().any(|job| job.reads.0 < 1.0),
        }
    }

    /// Whether everything is written front to back, and nothing read meanwhile.
    pub fn is_in_order(&self) -> bool {
        self.trace.is_none()
            && self.jobs().iter().all(|job| job.pattern == Pattern::Sequential && job.reads.0 <= 0.0)
    }

    /// The largest request, in bytes.
    pub fn largest_request_bytes(&self) -> u64 {
        self.jobs().iter().map(|job| job.block_size.largest_bytes()).max().unwrap_or(BLOCK_BYTES as u64)
    }

    fn validate_end(&self, path: &Path, problems: &mut Problems) {
        let given: Vec<_> = [
            ("total", self.total.map(|Bytes(bytes)| bytes == 0)),
            ("requests", self.requests.map(|requests| requests == 0)),
            ("duration", self.duration.map(|Span(duration)| duration.is_zero())),
        ]
        .into_iter()
        .filter_map(|(key, is_zero)| Some((key, is_zero?)))
        .collect();
        for (key, is_zero) in &given {
            if *is_zero {
                problems.add(&path.key(key), "a load that ends before it begins tests nothing");
            }
        }
        if let [(first, _), others @ ..] = given.as_slice() {
            for (key, _) in others {
                problems.add_with_help(
                    &path.key(key),
                    format!("the end of the load is given twice, as `{first}` and as `{key}`"),
                    "keep one of total, requests and duration",
                );
            }
        }
    }

    /// When the load ends, if that is said; otherwise it moves as many bytes as the target has, or replays its trace.
    pub fn end(&self) -> Option<End> {
        let total = self.total.map(End::Total);
        let requests = || self.requests.map(End::Requests);
        let duration = || self.duration.map(End::Duration);
        total.or_else(requests).or_else(duration)
    }

    /// The same load with every default that depends on its target filled in.
    #[must_use]
    pub fn resolve(&self, objects: &[ObjectInfo]) -> Self {
        let mut resolved = self.clone();
        if self.end().is_none() && self.trace.is_none() {
            resolved.total = Some(Bytes(content_bytes(objects)));
        }
        resolved.prefill = Some(self.prefill.unwrap_or_else(|| self.reads_anything()));
        resolved
    }

    /// The files for a file system with so much free space: those that are described, or the default.
    pub fn files_in(&self, free_bytes: u64) -> FilesSpec {
        self.files.unwrap_or_else(|| {
            let unit = self.largest_request_bytes().max(BLOCK_BYTES as u64);
            let each = free_bytes / 100 * DEFAULT_SPACE_PERCENT / u64::from(DEFAULT_FILES);
            FilesSpec { count: DEFAULT_FILES, size: Bytes(each / unit * unit) }
        })
    }
}

impl FilesSpec {
    fn validate(&self, path: &Path, problems: &mut Problems) {
        let count = u64::from(self.count);
        number_in_range(problems, &path.key("count"), "the number of files", count, 1..=10_000);
        if self.size.0 == 0 || !self.size.0.is_multiple_of(BLOCK_BYTES as u64) {
            problems.add(
                &path.key("size"),
                format!("the size of a file is {}; it must be a multiple of 4KiB, and not 0", self.size),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn problems_of(spec: &LoadSpec) -> Vec<String> {
        let mut problems = Problems::default();
        spec.validate(&Path::root().key("load"), &mut problems);
        problems.iter().map(|problem| problem.path.to_string()).collect()
    }

    #[test]
    fn the_default_load_makes_sense_and_survives_its_text() {
        let spec = LoadSpec::default();
        assert!(problems_of(&spec).is_empty());
        let text = serde_json::to_string(&spec).expect("a load can be written");
        assert_eq!(serde_json::from_str::<LoadSpec>(&text).expect("and read"), spec);
        assert_eq!(serde_json::from_str::<LoadSpec>("{}").expect("everything has a default"), spec);
    }

    #[test]
    fn a_full_description_reads_as_in_the_documentation() {
        let spec: LoadSpec = serde_json::from_str(
            r#"{ "pattern": "random", "reads": "30%", "block_size": "64KiB", "queue_depth": 8, "workers": 2,
                 "duration": "10s", "duplicates": 0.3, "flush_every": 64, "prefill": false,
                 "files": { "count": 4, "size": "64MiB" } }"#,
        )
        .expect("well-formed");
        assert!(problems_of(&spec).is_empty());
        assert_eq!(spec.end(), Some(End::Duration(Span(Duration::from_secs(10)))));
        assert_eq!(spec.files_in(1), FilesSpec { count: 4, size: Bytes(64 << 20) });
        assert!(serde_json::from_str::<LoadSpec>(r#"{ "blocksize": 4096 }"#).is_err());
    }

    #[test]
    fn every_senseless_value_is_reported_at_its_place() {
        let spec = LoadSpec {
            block_size: Bytes(3 << 10).into(),
            queue_depth: 0,
            workers: 1000,
            total: Some(Bytes(0)),
            requests: Some(5),
            flush_every: Some(0),
            files: Some(FilesSpec { count: 0, size: Bytes(1000) }),
            ..LoadSpec::default()
        };
        assert_eq!(
            problems_of(&spec),
            [
                "load.block_size",
                "load.queue_depth",
                "load.workers",
                "load.flush_every",
                "load.total",
                "load.requests",
                "load.files.count",
                "load.files.size"
            ]
        );
    }

    #[test]
    fn jobs_and_paces_that_make_no_sense_are_reported_at_their_places() {
        for (json, places) in [
            (r#"{ "sequential": "20%" }"#, &["load.sequential"][..]),
            (r#"{ "align": "5KiB" }"#, &["load.align"]),
            (r#"{ "rate": 0 }"#, &["load.rate"]),
            (r#"{ "rate": 5, "think_time": "1ms" }"#, &["load.think_time"]),
            (
                r#"{ "rate": 5, "burst": { "requests": 0, "every": "1ms" } }"#,
                &["load.burst.requests", "load.burst"],
            ),
            (r#"{ "fua": "5%", "reads": "100%" }"#, &["load.fua"]),
            (r#"{ "ramp_up": "5s" }"#, &["load.ramp_up"]),
            (r#"{ "ramp_up": "5s", "duration": "5s" }"#, &[]),
            (r#"{ "ramp_up": 5 }"#, &[]),
            (r#"{ "retry": 0 }"#, &["load.retry"]),
            (r#"{ "block_size": { "4KiB": "50%", "8KiB": "40%" } }"#, &["load.block_size"]),
            (
                r#"{ "pattern": { "strided": { "by": "8KiB" } }, "block_size": "16KiB" }"#,
                &["load.pattern.strided.by"],
            ),
            (r#"{ "jobs": [{ "workers": 0 }], "reads": "5%" }"#, &["load.jobs", "load.jobs[0].workers"]),
            (r#"{ "jobs": [{ "workers": 200 }, { "workers": 57 }] }"#, &["load.jobs"]),
            (r#"{ "jobs": [{ "space": "60%" }, { "space": "50%" }] }"#, &["load.jobs"]),
            (r#"{ "jobs": [{ "space": "100%" }, {}] }"#, &["load.jobs"]),
            (r#"{ "jobs": [{ "space": "0%" }, {}] }"#, &["load.jobs[0].space"]),
            (r#"{ "jobs": [{ "space": "60%" }, {}] }"#, &[]),
        ] {
            let spec: LoadSpec = serde_json::from_str(json).expect(json);
            assert_eq!(problems_of(&spec), places, "{json}");
        }
        for json in
            [r#"{ "jobs": [{ "total": "1GiB" }] }"#, r#"{ "name": "x" }"#, r#"{ "jobs": [{ "jobs": [] }] }"#]
        {
            serde_json::from_str::<LoadSpec>(json).expect_err(json);
        }
    }

    #[test]
    fn a_block_size_below_a_content_block_is_refused() {
        for (block_size, is_refused) in
            [(0, true), (512, true), (4096, false), (4 << 20, false), (8 << 20, true)]
        {
            let spec = LoadSpec { block_size: Bytes(block_size).into(), ..LoadSpec::default() };
            assert_eq!(!problems_of(&spec).is_empty(), is_refused, "{block_size}");
        }
    }

    #[test]
    fn defaults_that_depend_on_the_target_are_filled_in() {
        let objects = [ObjectInfo::new("a", 10_000), ObjectInfo::new("b", 8192)];
        let resolved = LoadSpec::default().resolve(&objects);
        assert_eq!(resolved.total, Some(Bytes(16_384)), "only whole content blocks count");
        assert_eq!(resolved.prefill, Some(false));
        let reading = LoadSpec { reads: Percent(0.1), requests: Some(7), ..LoadSpec::default() };
        let resolved = reading.resolve(&objects);
        assert_eq!((resolved.total, resolved.requests, resolved.prefill), (None, Some(7), Some(true)));
        assert_eq!(reading.files_in(100 << 20), FilesSpec { count: 4, size: Bytes(20 << 20) });
    }
}
