//! What makes no sense in the description of a load, whatever its target is.

use rotproof_spec::{Bytes, Path, Percent, Problems, Span, number_in_range};
use serde_json::Value;

use super::{FilesSpec, LoadSpec};
use crate::BLOCK_BYTES;
use crate::content::COMPRESSIBLE_MAX;
use crate::job::{JobSpec, WORKERS_MAX};
use crate::mix::Mix;
use crate::pace::RampUp;

impl LoadSpec {
    /// Reports everything that makes no sense whatever the target is.
    pub fn validate(&self, path: &Path, problems: &mut Problems) {
        self.own_job().validate(path, problems);
        self.validate_jobs(path, problems);
        self.validate_trace(path, problems);
        self.validate_command(path, problems);
        self.validate_personality(path, problems);
        self.validate_end(path, problems);
        self.validate_steady(path, problems);
        self.validate_around(path, problems);
        if self.compressible.0 > COMPRESSIBLE_MAX {
            problems.add_with_help(
                &path.key("compressible"),
                format!("{} of a block cannot be saved: each sector has to name itself", self.compressible),
                format!("give up to {}", Percent(COMPRESSIBLE_MAX)),
            );
        }
        if self.hung_after == Some(Span::default()) {
            problems.add_with_help(
                &path.key("hung_after"),
                "no request comes back in no time",
                "give for example 30s, or leave it out",
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

    /// A personality says everything but how long it runs, and what takes too long.
    fn validate_personality(&self, path: &Path, problems: &mut Problems) {
        let Some(personality) = &self.personality else { return };
        personality.validate(path, problems);
        let bare =
            Self { personality: None, duration: None, until_steady: None, hung_after: None, ..self.clone() };
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
    }

    fn validate_end(&self, path: &Path, problems: &mut Problems) {
        for (key, is_zero) in [
            ("total", self.total == Some(Bytes(0))),
            ("requests", self.requests == Some(0)),
            ("duration", self.duration == Some(Span::default())),
        ] {
            if is_zero {
                problems.add(&path.key(key), "a load that ends before it begins tests nothing");
            }
        }
    }

    /// An end that comes when the load is steady.
    fn validate_steady(&self, path: &Path, problems: &mut Problems) {
        let Some(steady) = &self.until_steady else { return };
        let path = path.key("until_steady");
        steady.validate(&path, problems);
        let takes = steady.after.0.saturating_add(steady.window.0);
        if let Some(duration) = self.duration.filter(|duration| duration.0 < takes) {
            problems.add_with_help(
                &path.key("window"),
                format!(
                    "a load that runs for {duration} cannot be found steady, which takes {}",
                    Span(takes)
                ),
                "give a shorter window, or a longer `duration`",
            );
        }
    }

    /// What comes before the load and after it.
    fn validate_around(&self, path: &Path, problems: &mut Problems) {
        let by_time = self.duration.is_some();
        if let (Some(RampUp::Time(_)), false) = (self.ramp_up, by_time) {
            problems.add_with_help(
                &path.key("ramp_up"),
                "a ramp-up by time needs a load that ends by time, or nobody could say beforehand what it writes",
                "give `duration`, or the ramp-up as a number of requests",
            );
        }
        let Some(cool_down) = self.cool_down else { return };
        let (message, help) = match cool_down {
            _ if self.until_steady.is_some() => (
                "of a load that ends when it is steady nobody could say beforehand when it is to recover",
                "leave out `cool_down` or `until_steady`; `record: { steady: ... }` tells of it without ending the load",
            ),
            RampUp::Time(_) if !by_time => (
                "a cool-down by time needs a load that ends by time, or nobody could say beforehand what it writes",
                "give `duration`, or the cool-down as a number of requests",
            ),
            RampUp::Requests(_) | RampUp::Bytes(_) if self.trace.is_some() => (
                "a trace has no requests beyond its end",
                "give `duration`, and the cool-down as a time, such as 10s",
            ),
            RampUp::Requests(_) | RampUp::Bytes(_) if by_time => (
                "a load that may end by time cools down by time",
                "give the cool-down as a time, such as 10s",
            ),
            _ => return,
        };
        problems.add_with_help(&path.key("cool_down"), message, help);
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
