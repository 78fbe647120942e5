//! What a trial file says of its load, what makes no sense in it, and its defaults.
//!
//! Owns the words of the file. It knows the sizes of what is loaded only when they are given to it, and nothing of
//! how a load runs.

use rotproof_spec::{Bytes, Path, Percent, Problems, Span, number_in_range};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object::{ObjectInfo, content_bytes};
use crate::pattern::Pattern;
use crate::{BLOCK_BYTES, MAX_REQUEST_BYTES};

/// The load of a trial: where its requests go, what they are, how many at once, and when it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoadSpec {
    /// The order of the places; default `sequential`.
    pub pattern: Pattern,
    /// Share of the requests that read; the rest write. Default 0%.
    pub reads: Percent,
    /// Bytes of one request, a power of two from 4KiB to 4MiB; default 4KiB.
    pub block_size: Bytes,
    /// Requests that each worker keeps in flight; default 1.
    pub queue_depth: u32,
    /// Workers, each with its own part of the target; default 1.
    pub workers: u32,
    /// The end: bytes moved by all workers together. Default: the size of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Bytes>,
    /// The end: requests of all workers together, instead of `total`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// The end: how long the load runs, instead of `total`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Write the whole target once before the load; default: if there are reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<bool>,
    /// Share of the written blocks whose content the same worker has written before; default 0%.
    pub duplicates: Percent,
    /// A flush (fsync on files) after that many writes of a worker; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_every: Option<u64>,
    /// The files on a file system; default: 4 files in 80% of the free space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesSpec>,
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

impl Default for LoadSpec {
    fn default() -> Self {
        Self {
            pattern: Pattern::default(),
            reads: Percent(0.0),
            block_size: Bytes(BLOCK_BYTES as u64),
            queue_depth: 1,
            workers: 1,
            total: None,
            requests: None,
            duration: None,
            prefill: None,
            duplicates: Percent(0.0),
            flush_every: None,
            files: None,
        }
    }
}

impl LoadSpec {
    /// Reports everything that makes no sense whatever the target is.
    pub fn validate(&self, path: &Path, problems: &mut Problems) {
        let Bytes(block_size) = self.block_size;
        if !block_size.is_power_of_two() || !(BLOCK_BYTES as u64..=MAX_REQUEST_BYTES).contains(&block_size) {
            problems.add_with_help(
                &path.key("block_size"),
                format!("a request of {} is not possible", self.block_size),
                format!(
                    "give a power of two from {} to {}",
                    Bytes(BLOCK_BYTES as u64),
                    Bytes(MAX_REQUEST_BYTES)
                ),
            );
        }
        self.pattern.validate(block_size, &path.key("pattern"), problems);
        let depth = u64::from(self.queue_depth);
        number_in_range(
            problems,
            &path.key("queue_depth"),
            "the number of requests in flight",
            depth,
            1..=1024,
        );
        let workers = u64::from(self.workers);
        number_in_range(problems, &path.key("workers"), "the number of workers", workers, 1..=256);
        self.validate_end(path, problems);
        if let Some(flush_every) = self.flush_every {
            if flush_every == 0 {
                problems.add_with_help(
                    &path.key("flush_every"),
                    "a flush after no write would never end",
                    "give at least 1, or leave it out for no flush",
                );
            } else if self.reads.0 >= 1.0 {
                problems.add(&path.key("flush_every"), "a load that only reads has nothing to flush");
            }
        }
        if let Some(files) = &self.files {
            files.validate(&path.key("files"), problems);
        }
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

    /// When the load ends, if that is said; otherwise it moves as many bytes as the target has.
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
        if self.end().is_none() {
            resolved.total = Some(Bytes(content_bytes(objects)));
        }
        resolved.prefill = Some(self.prefill.unwrap_or(self.reads.0 > 0.0));
        resolved
    }

    /// The files for a file system with so much free space: those that are described, or the default.
    pub fn files_in(&self, free_bytes: u64) -> FilesSpec {
        self.files.unwrap_or_else(|| {
            let unit = self.block_size.0.max(BLOCK_BYTES as u64);
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
            block_size: Bytes(3 << 10),
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
                "load.total",
                "load.requests",
                "load.flush_every",
                "load.files.count",
                "load.files.size"
            ]
        );
    }

    #[test]
    fn a_block_size_below_a_content_block_is_refused() {
        for (block_size, is_refused) in
            [(0, true), (512, true), (4096, false), (4 << 20, false), (8 << 20, true)]
        {
            let spec = LoadSpec { block_size: Bytes(block_size), ..LoadSpec::default() };
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
