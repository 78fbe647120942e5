//! What the workers of one kind do: the keys that a load has for itself, and each of its `jobs` for its own.
//!
//! The keys stand once, here, in a macro: serde's `flatten` would lose the places of mistakes.

use rotproof_spec::{Bytes, Path, Percent, Problems, number_in_range};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::block_sizes::BlockSizes;
use crate::mix::Mix;
use crate::pace::{Burst, Rate, ThinkTime};
use crate::pattern::Pattern;

/// Defines a description with the keys of a job and some of its own, and how to take the job out of it.
macro_rules! with_job_keys {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$own_meta:meta])* pub $own:ident: $own_type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            /// A load with a name, which says what pattern, sequential, reads and block_size are; default none.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub mix: Option<Mix>,
            /// The order of the places; default `sequential`.
            pub pattern: Pattern,
            /// Share of the requests that begin where the one before ended, whatever the pattern; default 0%.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub sequential: Option<Percent>,
            /// Share of the requests that read; the rest write. Default 0%.
            pub reads: Percent,
            /// Bytes of one request, a power of two from 4KiB to 4MiB, or several with their shares; default 4KiB.
            pub block_size: BlockSizes,
            /// Requests begin at multiples of this; default: the smallest block size.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub align: Option<Bytes>,
            /// Requests that each worker keeps in flight at the most; default 1.
            pub queue_depth: u32,
            /// Workers, each with its own part of the target; default 1.
            pub workers: u32,
            /// Requests a second of all workers together, each due at its time whatever became of those before it.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub rate: Option<Rate>,
            /// Requests of a worker that are due at once, and how often.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub burst: Option<Burst>,
            /// How long a worker pauses, and after how many requests.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub think_time: Option<ThinkTime>,
            /// A flush (fsync on files) after that many writes of a worker; default none.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub flush_every: Option<u64>,
            /// Share of the writes that are durable when they complete (force unit access); default 0%.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub fua: Option<Percent>,
            $($(#[$own_meta])* pub $own: $own_type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    mix: None,
                    pattern: Pattern::default(),
                    sequential: None,
                    reads: Percent(0.0),
                    block_size: BlockSizes::default(),
                    align: None,
                    queue_depth: 1,
                    workers: 1,
                    rate: None,
                    burst: None,
                    think_time: None,
                    flush_every: None,
                    fua: None,
                    $($own: Default::default(),)*
                }
            }
        }
    };
}
pub(crate) use with_job_keys;

with_job_keys! {
    /// One job of several that make a load together, each with its own part of the target.
    pub struct JobSpec {
        /// What it is called; default: its number, from 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// Its share of the target; jobs without one share the rest, in proportion to their workers.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub space: Option<Percent>,
    }
}

/// Requests that a worker may keep in flight.
const QUEUE_DEPTH_MAX: u64 = 1024;
/// Workers of a load.
pub(crate) const WORKERS_MAX: u64 = 256;

impl JobSpec {
    /// The jobs that it is: itself, but for one with a mix.
    pub(crate) fn without_mix(&self) -> Vec<Self> {
        self.mix.map_or_else(|| vec![self.clone()], |mix| mix.jobs(self))
    }

    /// At multiples of what requests begin, in bytes.
    pub fn align_bytes(&self) -> u64 {
        self.align.map_or_else(|| self.block_size.smallest_bytes(), |Bytes(bytes)| bytes)
    }

    /// The mean size of a request, in bytes.
    pub fn mean_request_bytes(&self) -> f64 {
        let (reads, writes) = self.block_size.split();
        reads.mean_bytes() * self.reads.0 + writes.mean_bytes() * (1.0 - self.reads.0)
    }

    /// Reports everything that makes no sense whatever the target is.
    pub(crate) fn validate(&self, path: &Path, problems: &mut Problems) {
        if let Some(mix) = self.mix {
            mix.validate(self, path, problems);
        }
        self.block_size.validate(&path.key("block_size"), problems);
        self.pattern.validate(self.align_bytes(), &path.key("pattern"), problems);
        self.validate_align(path, problems);
        if self.sequential.is_some_and(|share| share.0 > 0.0) && self.pattern == Pattern::Sequential {
            problems.add_with_help(
                &path.key("sequential"),
                "with the pattern `sequential` all requests are sequential",
                "give a pattern for the others, such as `pattern: random`, or leave this out",
            );
        }
        let depth = u64::from(self.queue_depth);
        number_in_range(
            problems,
            &path.key("queue_depth"),
            "the number of requests in flight",
            depth,
            1..=QUEUE_DEPTH_MAX,
        );
        let workers = u64::from(self.workers);
        number_in_range(problems, &path.key("workers"), "the number of workers", workers, 1..=WORKERS_MAX);
        self.validate_pace(path, problems);
        if let Some(flush_every) = self.flush_every {
            if flush_every == 0 {
                problems.add_with_help(
                    &path.key("flush_every"),
                    "a flush after no write would never end",
                    "give at least 1, or leave it out for no flush",
                );
            } else if self.reads_only() {
                problems.add(&path.key("flush_every"), "a load that only reads has nothing to flush");
            }
        }
        if self.fua.is_some_and(|share| share.0 > 0.0) && self.reads_only() {
            problems.add(&path.key("fua"), "a load that only reads has no writes to make durable");
        }
    }

    fn reads_only(&self) -> bool {
        self.without_mix().iter().all(|job| job.reads.0 >= 1.0)
    }

    fn validate_align(&self, path: &Path, problems: &mut Problems) {
        let Some(align) = self.align else { return };
        if !align.0.is_power_of_two() || !(crate::BLOCK_BYTES as u64..=1 << 40).contains(&align.0) {
            problems.add_with_help(
                &path.key("align"),
                format!("an alignment of {align} is not possible"),
                "give a power of two from 4KiB on",
            );
        }
    }

    fn validate_pace(&self, path: &Path, problems: &mut Problems) {
        if let Some(rate) = &self.rate {
            rate.validate(&path.key("rate"), problems);
        }
        if let Some(burst) = &self.burst {
            burst.validate(&path.key("burst"), problems);
        }
        if let Some(think_time) = &self.think_time {
            think_time.validate(&path.key("think_time"), problems);
        }
        let given = [
            ("rate", self.rate.is_some()),
            ("burst", self.burst.is_some()),
            ("think_time", self.think_time.is_some()),
        ];
        let mut given = given.into_iter().filter(|(_, is_given)| *is_given);
        if let (Some((first, _)), Some((second, _))) = (given.next(), given.next()) {
            problems.add_with_help(
                &path.key(second),
                format!("when a request begins is said twice, by `{first}` and by `{second}`"),
                "keep one of rate, burst and think_time",
            );
        }
    }
}
