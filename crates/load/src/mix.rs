//! Loads with a name: what a request is and where it goes, as published; how many at once stays open.
//!
//! Sources. DARC: M. Fountoulakis, "DARC: design and evaluation of an I/O controller for data protection", evaluation.
//! IOMeter: the access specifications that come with it. SPC-1: the benchmark's specification, as the generator that
//! S. Daniel published (NetApp, 2005, `spc1.c`) carries it out.

use std::borrow::Cow;
use std::fmt;

use rotproof_spec::{Bytes, Path, Percent, Problems, WordOrMap, deserialize_word_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::MapAccess;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::block_sizes::{BlockSizes, SizeMix};
use crate::job::JobSpec;
use crate::pace::{Arrivals, Rate};
use crate::pattern::Pattern;

/// A load with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// One kind of request.
    Simple(SimpleMix),
    /// SPC-1's eight streams on three stores, at 50 requests a second for each unit.
    Spc1 {
        /// Business scaling units.
        units: u32,
    },
}

/// Names of mixes that are one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimpleMix {
    /// DARC: sequential writes of 64 KiB.
    DarcWs,
    /// DARC: sequential reads of 64 KiB.
    DarcRs,
    /// DARC: random 4 KiB, a third writes.
    DarcOltp,
    /// DARC: a file server.
    DarcFs,
    /// DARC: a web server.
    DarcWeb,
    /// IOMeter: a file server.
    IometerFileServer,
    /// IOMeter: a web server.
    IometerWebServer,
    /// IOMeter: a database.
    IometerDatabase,
    /// IOMeter: a workstation.
    IometerWorkstation,
}

const SIMPLE: [(&str, SimpleMix); 9] = [
    ("darc_ws", SimpleMix::DarcWs),
    ("darc_rs", SimpleMix::DarcRs),
    ("darc_oltp", SimpleMix::DarcOltp),
    ("darc_fs", SimpleMix::DarcFs),
    ("darc_web", SimpleMix::DarcWeb),
    ("iometer_file_server", SimpleMix::IometerFileServer),
    ("iometer_web_server", SimpleMix::IometerWebServer),
    ("iometer_database", SimpleMix::IometerDatabase),
    ("iometer_workstation", SimpleMix::IometerWorkstation),
];

/// Sizes of a file server. IOMeter's 512 bytes, 1 KiB and 2 KiB (10%, 5% and 5%) are requests of 4 KiB here, as in DARC.
const FILE_SERVER: &[(u64, f64)] = &[(4, 0.80), (8, 0.02), (16, 0.04), (32, 0.04), (64, 0.10)];
/// Sizes of a web server; IOMeter's 22%, 15% and 8% below 4 KiB in the same way.
const WEB_SERVER: &[(u64, f64)] =
    &[(4, 0.68), (8, 0.15), (16, 0.02), (32, 0.06), (64, 0.07), (128, 0.01), (512, 0.01)];
/// SPC-1's SMIX, the sizes of its sequential streams.
const SMIX: &[(u64, f64)] = &[(4, 0.40), (8, 0.24), (16, 0.20), (32, 0.08), (64, 0.08)];

/// Requests a second of a business scaling unit.
const REQUESTS_PER_UNIT: f64 = 50.0;
/// Units of SPC-1; as many as 50 million requests a second.
const UNITS_MAX: u32 = 1_000_000;
/// Requests that each of SPC-1's streams may have in flight.
const SPC1_DEPTH: u32 = 64;

/// A stream of SPC-1.
struct Stream {
    name: &'static str,
    /// Its share of all requests.
    intensity: f64,
    reads: f64,
    is_sequential: bool,
    /// A twentieth of its store, met again and again.
    is_hot: bool,
    /// Its share of the target. The stores have 45%, 45% and 10%; a hot spot 5% of its store; the other streams of a store
    /// share the rest, since ours may not overlap.
    space: f64,
}

const fn stream(name: &'static str, intensity: f64, reads: f64, kind: u8, space: f64) -> Stream {
    Stream { name, intensity, reads, is_sequential: kind == 2, is_hot: kind == 1, space }
}

const RANDOM: u8 = 0;
const HOT: u8 = 1;
const SEQUENTIAL: u8 = 2;

const SPC1: [Stream; 8] = [
    stream("asu1_1", 0.035, 0.5, RANDOM, 0.2025),
    stream("asu1_2", 0.281, 0.5, HOT, 0.0225),
    stream("asu1_3", 0.070, 1.0, SEQUENTIAL, 0.2025),
    stream("asu1_4", 0.210, 0.5, HOT, 0.0225),
    stream("asu2_1", 0.018, 0.3, RANDOM, 0.21375),
    stream("asu2_2", 0.070, 0.3, HOT, 0.0225),
    stream("asu2_3", 0.035, 1.0, SEQUENTIAL, 0.21375),
    stream("asu3_1", 0.281, 0.0, SEQUENTIAL, 0.10),
];

fn sizes(mix: &[(u64, f64)]) -> BlockSizes {
    BlockSizes::All(SizeMix(mix.iter().map(|&(kib, share)| (Bytes(kib << 10), Percent(share))).collect()))
}

fn one_size(kib: u64) -> BlockSizes {
    Bytes(kib << 10).into()
}

impl SimpleMix {
    fn word(self) -> &'static str {
        SIMPLE.iter().find(|(_, mix)| *mix == self).map_or("", |(word, _)| word)
    }

    /// Pattern, share of reads, share of sequential requests beside the pattern, sizes.
    fn figures(self) -> (Pattern, f64, f64, BlockSizes) {
        let random = Pattern::Random;
        match self {
            Self::DarcWs => (Pattern::Sequential, 0.0, 0.0, one_size(64)),
            Self::DarcRs => (Pattern::Sequential, 1.0, 0.0, one_size(64)),
            Self::DarcOltp => (random, 0.67, 0.0, one_size(4)),
            Self::DarcFs | Self::IometerFileServer => (random, 0.8, 0.0, sizes(FILE_SERVER)),
            Self::DarcWeb | Self::IometerWebServer => (random, 1.0, 0.0, sizes(WEB_SERVER)),
            Self::IometerDatabase => (random, 0.67, 0.0, one_size(8)),
            Self::IometerWorkstation => (random, 0.8, 0.2, one_size(8)),
        }
    }
}

impl Mix {
    /// The jobs that a job with this mix is.
    pub(crate) fn jobs(self, base: &JobSpec) -> Vec<JobSpec> {
        match self {
            Self::Simple(simple) => {
                let (pattern, reads, sequential, block_size) = simple.figures();
                let sequential = (sequential > 0.0).then_some(Percent(sequential));
                let reads = Percent(reads);
                vec![JobSpec { mix: None, pattern, sequential, reads, block_size, ..base.clone() }]
            }
            Self::Spc1 { units } => SPC1.iter().map(|stream| stream.job(units)).collect(),
        }
    }

    /// Reports what contradicts it in the job that names it.
    pub(crate) fn validate(self, job: &JobSpec, path: &Path, problems: &mut Problems) {
        let path = path.key("mix");
        let default = JobSpec::default();
        let is_open = job.pattern == default.pattern
            && job.sequential.is_none()
            && job.reads == default.reads
            && job.block_size == default.block_size;
        if !is_open {
            problems.add_with_help(
                &path,
                format!("the mix {self} says already what the requests are"),
                "leave out pattern, sequential, reads and block_size, or the mix",
            );
        }
        if let Self::Spc1 { units } = self {
            if units == 0 || units > UNITS_MAX {
                problems.add(&path, format!("{units} units are not possible; give 1 to {UNITS_MAX}"));
            }
            let bare = JobSpec { mix: None, name: None, space: None, ..job.clone() };
            if is_open && bare != default {
                problems.add_with_help(
                    &path,
                    "spc1 has streams of its own, with their workers and rates",
                    "leave out the other keys of a job, and change the number of units instead",
                );
            }
        }
    }
}

impl Stream {
    fn job(&self, units: u32) -> JobSpec {
        let pattern = match (self.is_sequential, self.is_hot) {
            (true, _) => Pattern::Sequential,
            // In place of SPC-1's walk through a tree of the hot spot: most requests to few places, and so within them.
            (false, true) => Pattern::Pareto { hot: Percent(0.2) },
            (false, false) => Pattern::Random,
        };
        let requests = REQUESTS_PER_UNIT * f64::from(units) * self.intensity;
        JobSpec {
            name: Some(self.name.into()),
            space: Some(Percent(self.space)),
            pattern,
            reads: Percent(self.reads),
            block_size: if self.is_sequential { sizes(SMIX) } else { one_size(4) },
            queue_depth: SPC1_DEPTH,
            rate: Some(Rate { requests, arrivals: Arrivals::Poisson }),
            ..JobSpec::default()
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(simple) => f.write_str(simple.word()),
            Self::Spc1 { units: 1 } => f.write_str("spc1"),
            Self::Spc1 { units } => write!(f, "spc1:{units}"),
        }
    }
}

impl std::str::FromStr for Mix {
    type Err = String;

    /// For command lines: a word, or `spc1:UNITS`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("spc1", units)) => units
                .parse()
                .map(|units| Self::Spc1 { units })
                .map_err(|_| format!("`{units}` is no number of units; write for example spc1:10")),
            _ => Self::from_word(text).unwrap_or_else(|| {
                Err(match rotproof_spec::nearest(text, Self::WORDS.iter().copied()) {
                    Some(word) => format!("there is no mix `{text}`; did you mean `{word}`?"),
                    None => format!("there is no mix `{text}`; known are {}", Self::WORDS.join(", ")),
                })
            }),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spc1Keys {
    units: u32,
}

impl WordOrMap for Mix {
    const WORDS: &'static [&'static str] = &[
        "darc_ws",
        "darc_rs",
        "darc_oltp",
        "darc_fs",
        "darc_web",
        "iometer_file_server",
        "iometer_web_server",
        "iometer_database",
        "iometer_workstation",
        "spc1",
    ];
    const EXPECTING: &'static str = "a mix such as darc_oltp, iometer_workstation or { spc1: { units: 10 } }";

    fn from_word(word: &str) -> Option<Result<Self, String>> {
        let simple = SIMPLE.iter().find(|(known, _)| *known == word).map(|(_, mix)| Self::Simple(*mix));
        simple.or((word == "spc1").then_some(Self::Spc1 { units: 1 })).map(Ok)
    }

    fn from_map<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Self, A::Error> {
        match key {
            "spc1" => map.next_value().map(|Spc1Keys { units }| Self::Spc1 { units }),
            word => Err(serde::de::Error::custom(format!("`{word}` takes no options; write `mix: {word}`"))),
        }
    }
}

impl Serialize for Mix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Spc1 { units } if *units != 1 => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("spc1", &std::collections::BTreeMap::from([("units", units)]))?;
                map.end()
            }
            other => serializer.collect_str(other),
        }
    }
}

impl<'de> Deserialize<'de> for Mix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_word_or_map(deserializer)
    }
}

impl JsonSchema for Mix {
    fn schema_name() -> Cow<'static, str> {
        "Mix".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A load with a name: what its requests are.",
            "anyOf": [
                { "description": "As published.", "enum": Self::WORDS },
                {
                    "description": "SPC-1 at 50 requests a second for each unit.",
                    "type": "object",
                    "properties": { "spc1": {
                        "type": "object",
                        "properties": { "units": { "description": "Business scaling units.", "type": "integer", "minimum": 1, "maximum": UNITS_MAX } },
                        "required": ["units"],
                        "additionalProperties": false
                    } },
                    "required": ["spc1"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Stage;
    use crate::stream::Step;
    use crate::{LoadSpec, ObjectInfo, Workload};

    fn spec(json: &str) -> LoadSpec {
        serde_json::from_str(json).expect(json)
    }

    #[test]
    fn every_name_reads_in_files_and_on_command_lines_and_survives_its_text() {
        for word in Mix::WORDS {
            let mix: Mix = word.parse().expect(word);
            let json = serde_json::to_string(&mix).expect("can be written");
            assert_eq!(serde_json::from_str::<Mix>(&json).expect("and read"), mix);
            let mut problems = Problems::default();
            spec(&format!(r#"{{ "mix": "{word}" }}"#)).validate(&Path::root(), &mut problems);
            assert!(problems.is_empty(), "{word}");
        }
        assert_eq!("spc1:10".parse(), Ok(Mix::Spc1 { units: 10 }));
        assert_eq!(serde_json::from_str(r#"{"spc1":{"units":10}}"#).ok(), Some(Mix::Spc1 { units: 10 }));
        assert_eq!(
            "darc_otlp".parse::<Mix>(),
            Err("there is no mix `darc_otlp`; did you mean `darc_oltp`?".into())
        );
        for text in ["spc1:many", "darc_ws:3", ""] {
            text.parse::<Mix>().expect_err(text);
        }
        for json in [r#"{"darc_ws":{}}"#, r#"{"spc1":{}}"#, r#""tpcc""#] {
            serde_json::from_str::<Mix>(json).expect_err(json);
        }
    }

    #[test]
    fn what_a_mix_says_cannot_be_said_again() {
        for json in [
            r#"{ "mix": "darc_fs", "reads": "10%" }"#,
            r#"{ "mix": "darc_fs", "block_size": "8KiB" }"#,
            r#"{ "mix": { "spc1": { "units": 0 } } }"#,
            r#"{ "mix": "spc1", "workers": 3 }"#,
            r#"{ "jobs": [{ "mix": "spc1" }] }"#,
        ] {
            let mut problems = Problems::default();
            spec(json).validate(&Path::root(), &mut problems);
            assert_eq!(problems.iter().count(), 1, "{json}: {problems:?}");
        }
    }

    /// Of so many requests of the first worker, by operation and size in KiB.
    fn counted(json: &str) -> Vec<((bool, u32), f64)> {
        let objects = [ObjectInfo::new("device", 1 << 30)];
        let workload = Workload::new(&spec(json), 1, &objects).expect("makes sense");
        let mut counts = std::collections::BTreeMap::new();
        for step in workload.stream(Stage::Run, 0) {
            match step {
                Step::Read(extent) => *counts.entry((true, extent.blocks * 4)).or_default() += 1.0,
                Step::Write { extent, .. } => *counts.entry((false, extent.blocks * 4)).or_default() += 1.0,
                Step::Discard(_) | Step::Flush => {}
            }
        }
        counts.into_iter().collect()
    }

    #[test]
    fn requests_have_the_published_figures() {
        for (word, reads, published) in [
            ("darc_ws", 0.0, &[(64, 1.0)][..]),
            ("darc_rs", 1.0, &[(64, 1.0)]),
            ("darc_oltp", 0.67, &[(4, 1.0)]),
            ("darc_fs", 0.8, &[(4, 0.8), (8, 0.02), (16, 0.04), (32, 0.04), (64, 0.1)]),
            (
                "darc_web",
                1.0,
                &[(4, 0.68), (8, 0.15), (16, 0.02), (32, 0.06), (64, 0.07), (128, 0.01), (512, 0.01)],
            ),
            ("iometer_database", 0.67, &[(8, 1.0)]),
            ("iometer_workstation", 0.8, &[(8, 1.0)]),
        ] {
            let counts = counted(&format!(r#"{{ "mix": "{word}", "requests": 64000 }}"#));
            let mut chi_square = 0.0;
            for (kib, share) in published {
                for (is_read, of_operation) in [(true, reads), (false, 1.0 - reads)] {
                    let expected: f64 = 64_000.0 * of_operation * share;
                    let found =
                        counts.iter().find(|(kind, _)| *kind == (is_read, *kib)).map_or(0.0, |(_, n)| *n);
                    if expected > 0.5 {
                        chi_square += (found - expected).powi(2) / expected;
                    } else {
                        assert_eq!(found, 0.0, "{word}");
                    }
                }
            }
            // At most 13 degrees of freedom: above 42 with probability 1e-4.
            assert!(chi_square < 42.0, "{word}: chi-square {chi_square}, {counts:?}");
            assert_eq!(counts.iter().map(|(_, count)| count).sum::<f64>(), 64_000.0);
        }
    }

    #[test]
    fn spc1_has_its_stores_its_rate_its_reads_and_its_random_requests() {
        let jobs = spec(r#"{ "mix": { "spc1": { "units": 10 } } }"#).jobs();
        let rate = |job: &JobSpec| job.rate.expect("a rate").requests;
        let sum = |of: &dyn Fn(&JobSpec) -> f64| jobs.iter().map(of).sum::<f64>();
        let all = sum(&rate);
        assert!((all - 500.0).abs() < 1e-6, "{all} requests a second");
        let reads = sum(&|job| rate(job) * job.reads.0) / all;
        assert!((reads - 0.4).abs() < 0.01, "{reads}: 40% are reads");
        let random = sum(&|job| if job.pattern == Pattern::Sequential { 0.0 } else { rate(job) }) / all;
        assert!((random - 0.61).abs() < 0.01, "{random}: 61% are random");
        for (store, wanted) in [("asu1", 0.45), ("asu2", 0.45), ("asu3", 0.10)] {
            let is_on = |job: &&JobSpec| job.name.as_deref().is_some_and(|name| name.starts_with(store));
            let space: f64 = jobs.iter().filter(is_on).filter_map(|job| job.space).map(|share| share.0).sum();
            assert!((space - wanted).abs() < 1e-9, "{store}: {space}");
        }
        let objects = [ObjectInfo::new("device", 64 << 20)];
        let workload = Workload::new(&spec(r#"{ "mix": "spc1", "duration": "1s" }"#), 1, &objects);
        assert_eq!(workload.expect("fits").workers(), 8);
    }
}
