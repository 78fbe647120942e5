//! What a trial file says of its load, what makes no sense in it, and its defaults.
//!
//! Owns the words of the file. It knows the sizes of what is loaded only when they are given to it, and nothing of
//! how a load runs.

#[cfg(test)]
mod tests;
mod validate;

use rotproof_record::statistics::SteadySpec;
use rotproof_spec::{Bytes, Percent, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::BLOCK_BYTES;
use crate::block_sizes::BlockSizes;
use crate::command::Command;
use crate::driver::{FileAccess, FileEngine};
use crate::duplicates::Duplicates;
use crate::job::{JobSpec, with_job_keys};
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
        #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "crate::command::deserialize")]
        #[schemars(schema_with = "crate::command::schema")]
        pub command: Option<Command>,
        /// A load of files, instead of the keys of a job.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub personality: Option<Personality>,
        /// An end: bytes moved by all workers together. Of several ends the first one reached counts; default, if there
        /// is none: the size of the target, or the whole trace.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub total: Option<Bytes>,
        /// An end: requests of all workers together.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub requests: Option<u64>,
        /// An end: how long the load runs.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub duration: Option<Span>,
        /// An end: as soon as the load has been steady for a while, by the intervals of `record`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub until_steady: Option<SteadySpec>,
        /// Requests or bytes of all workers together, or a time, that come first and are not recorded; default none.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub ramp_up: Option<RampUp>,
        /// Requests or bytes of all workers together, or a time, for which the load goes on after its end with faults off;
        /// default none.
        #[serde(skip_serializing_if = "Option::is_none", alias = "recovery")]
        pub cool_down: Option<RampUp>,
        /// How often a failed read or write is tried again; default never.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub retry: Option<Retry>,
        /// How long a request may be under way before it is told of as hung; default 30s. Once nothing else is under way, it
        /// is given up.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub hung_after: Option<Span>,
        /// Register the memory of requests with the kernel once, rather than with each; for files and block devices. Default
        /// no.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub fixed_buffers: bool,
        /// Ask the device for completions again and again, rather than wait for its interrupts; of `rotproof load`, for block
        /// devices that can be asked. Default no.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub polled: bool,
        /// Write the whole target once before the load; default: if there are reads.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub prefill: Option<bool>,
        /// Which of the written blocks repeat what the same worker has written before: a share, a profile or a
        /// distribution; default 0%.
        pub duplicates: Duplicates,
        /// How much of each block a compressor saves, up to 95%; default 0%.
        pub compressible: Percent,
        /// By which system calls the files on a file system are read and written; default `io_uring`.
        #[serde(skip_serializing_if = "is_default")]
        pub ioengine: FileEngine,
        /// Read and write the files through the page cache, as most programs do; default: past it where the file
        /// system can.
        #[serde(skip_serializing_if = "is_default")]
        pub buffered: bool,
        /// The files on a file system; default: 4 files in 80% of the free space.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub files: Option<FilesSpec>,
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
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

/// How many files there are unless told otherwise, and how much of the free space they take, in percent: a copying
/// file system needs the rest to go on working.
const DEFAULT_FILES: u32 = 4;
const DEFAULT_SPACE_PERCENT: u64 = 80;

impl LoadSpec {
    /// Whether requests to the device are made by somebody else on its behalf: a program, or a file system below files.
    pub fn leaves_requests_to_others(&self) -> bool {
        self.command.is_some() || self.personality.is_some()
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

    /// How the files on a file system are opened.
    pub fn file_access(&self) -> FileAccess {
        FileAccess { engine: self.ioengine, buffered: self.buffered }
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

    /// Whether it is said when the load ends; otherwise it moves as many bytes as the target has, or replays its trace.
    pub fn has_end(&self) -> bool {
        self.total.is_some() || self.requests.is_some() || self.duration.is_some()
    }

    /// Whether what it will have done at its end depends on how fast it is.
    pub fn has_unforeseen_end(&self) -> bool {
        self.duration.is_some() || self.until_steady.is_some()
    }

    /// The same load with every default that depends on its target filled in.
    #[must_use]
    pub fn resolve(&self, objects: &[ObjectInfo]) -> Self {
        let mut resolved = self.clone();
        if !self.has_end() && self.trace.is_none() {
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
