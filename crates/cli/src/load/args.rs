//! The command line of `rotproof load`: fio's words where fio has one, and what they mean as a load.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rotproof_block::{Error, ErrorKind};
use rotproof_load::personality::Personality;
use rotproof_load::{
    Arrivals, BlockSizes, Burst, Duplicates, LoadSpec, Mix, Pace, Pattern, RampUp, Rate, Retry, SizeMix,
    ThinkTime, Trace, Zone,
};
use rotproof_record::{IntervalLength, RecordSpec};
use rotproof_spec::{Bytes, Path, Percent, Problems, Span};
use rotproof_trace::Operation;
use rotproof_trial::load::{Engine, LoadTarget};
use rotproof_trial::probe::Probes;

use crate::metrics::MetricsArgs;
use crate::trace::TraceFormat;

/// `rotproof load`.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// A device, a file, nbd://..., memory:1GiB, disk:ssd:1GiB or null:1GiB
    #[arg(value_name = "TARGET")]
    pub target: LoadTarget,

    /// read, write, rw, randread (default), randwrite or randrw
    #[arg(long, value_name = "WHAT", default_value = "randread", hide_default_value = true)]
    #[arg(hide_possible_values = true)]
    pub rw: Access,

    /// A load with a name, such as darc_oltp or iometer_web_server
    #[arg(long, value_name = "NAME")]
    #[arg(conflicts_with_all = ["rw", "bs", "bssplit", "rwmixread", "percentage_random", "random_distribution"])]
    pub mix: Option<Mix>,

    /// A block trace to replay, every write verifiable (see docs/traces.md)
    #[arg(long, alias = "read_iolog", alias = "read-iolog", value_name = "FILE")]
    #[arg(conflicts_with_all = ["rw", "mix", "bs", "bssplit", "rwmixread", "percentage_random"])]
    #[arg(conflicts_with_all = ["random_distribution", "blockalign", "rate_iops", "thinktime", "fsync", "fua"])]
    #[arg(conflicts_with = "burst")]
    pub trace: Option<PathBuf>,

    /// spc, msr, blkparse, blktrace, fio, disksim or csv [default: told]
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true, requires = "trace")]
    pub trace_format: Option<TraceFormat>,

    /// timed (default), or asap: as fast as --iodepth requests at once go
    #[arg(long, value_name = "PACE", value_parser = pace, requires = "trace")]
    pub pace: Option<Pace>,

    /// How many times as fast as it was recorded
    #[arg(long, value_name = "FACTOR", requires = "trace", conflicts_with = "replay_time_scale")]
    pub speed: Option<f64>,

    /// ... in percent
    #[arg(long, alias = "replay_time_scale", value_name = "N", requires = "trace")]
    pub replay_time_scale: Option<f64>,

    /// Operations of the trace to leave out: read,write,trim,sync
    #[arg(long, alias = "replay_skip", value_name = "LIST", requires = "trace")]
    #[arg(value_delimiter = ',', value_parser = skipped)]
    pub replay_skip: Vec<Operation>,

    /// How many malformed lines of the trace to pass over [default: 100]
    #[arg(long, value_name = "N", requires = "trace")]
    pub malformed_max: Option<u64>,

    /// A load of files in a folder, such as varmail:files=200 (docs/loads.md)
    #[arg(long, value_name = "NAME")]
    #[arg(conflicts_with_all = [
        "rw", "mix", "bs", "bssplit", "iodepth", "numjobs", "size", "io_size", "number_ios", "ramp_time", "rwmixread",
        "percentage_random", "random_distribution", "blockalign", "rate_iops", "thinktime", "burst", "fsync", "fua",
        "retry", "duplicates", "compressible", "prefill", "no_verify", "ioengine", "buffered", "trace", "probes", "results",
    ])]
    pub personality: Option<Personality>,

    /// Bytes of a request; of reads and writes: 4k,64k [default: 4k]
    #[arg(long, alias = "block-size", value_name = "SIZE", value_parser = block_sizes)]
    pub bs: Option<BlockSizes>,

    /// Several sizes with percentages: 4k/60:64k/40
    #[arg(long, value_name = "MIX", value_parser = size_mix, conflicts_with = "bs")]
    pub bssplit: Option<BlockSizes>,

    /// Requests in flight per worker [default: 1; 64 of a trace]
    #[arg(long, value_name = "N")]
    pub iodepth: Option<u32>,

    /// Workers, each with its own part of the target
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub numjobs: u32,

    /// How much of the target, from its beginning; a new file's size
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Bytes>,

    /// How long [default: as many bytes as the target has]
    #[arg(long, value_name = "SPAN", value_parser = span, conflicts_with_all = ["io_size", "number_ios"])]
    pub runtime: Option<Span>,

    /// How many bytes instead
    #[arg(long, alias = "io_size", value_name = "SIZE", conflicts_with = "number_ios")]
    pub io_size: Option<Bytes>,

    /// How many requests instead
    #[arg(long, alias = "number_ios", value_name = "N")]
    pub number_ios: Option<u64>,

    /// What comes first and is not recorded: 5s, or 1000 requests
    #[arg(long, alias = "ramp_time", value_name = "SPAN", value_parser = ramp_up)]
    pub ramp_time: Option<RampUp>,

    /// Percentage of reads with rw and randrw
    #[arg(long, value_name = "N", default_value = "50", value_parser = percentage, hide_default_value = true)]
    pub rwmixread: Percent,

    /// Percentage of random requests; the rest goes on where the last ended
    #[arg(long, alias = "percentage_random", value_name = "N", value_parser = percentage)]
    pub percentage_random: Option<Percent>,

    /// zipf:0.99, pareto:20%, normal:10%, zoned:60/10:40/90, nurand
    #[arg(long, alias = "random_distribution", value_name = "HOW", value_parser = distribution)]
    pub random_distribution: Option<Pattern>,

    /// Requests begin at multiples of this
    #[arg(long, alias = "ba", value_name = "SIZE")]
    pub blockalign: Option<Bytes>,

    /// Requests a second, of all workers together; latency from the due time
    #[arg(long, alias = "rate_iops", value_name = "N", conflicts_with = "thinktime")]
    pub rate_iops: Option<f64>,

    /// Spread them as of many independent users, not evenly
    #[arg(long, requires = "rate_iops")]
    pub poisson: bool,

    /// A worker pauses so long after each request
    #[arg(long, value_name = "SPAN")]
    pub thinktime: Option<Span>,

    /// ... or after so many
    #[arg(long, alias = "thinktime_blocks", value_name = "N", requires = "thinktime")]
    pub thinktime_blocks: Option<u64>,

    /// So many requests of a worker at once, again and again: 32/10ms
    #[arg(long, value_name = "N/SPAN", value_parser = burst, conflicts_with_all = ["rate_iops", "thinktime"])]
    pub burst: Option<Burst>,

    /// A flush (fsync) after so many writes
    #[arg(long, value_name = "N")]
    pub fsync: Option<u64>,

    /// Percentage of writes that are durable when they complete
    #[arg(long, value_name = "N", value_parser = percentage)]
    pub fua: Option<Percent>,

    /// Try a failed request again, so often
    #[arg(long, value_name = "N")]
    pub retry: Option<u32>,

    /// Percentage of written blocks that repeat others; kernels, file:NAME
    #[arg(long, alias = "dedupe_percentage", alias = "dedupe-percentage", value_name = "WHAT")]
    #[arg(value_parser = duplicates)]
    pub duplicates: Option<Duplicates>,

    /// How much of each block a compressor saves, in percent
    #[arg(long, alias = "buffer_compress_percentage", alias = "buffer-compress-percentage")]
    #[arg(value_name = "N", value_parser = percentage)]
    pub compressible: Option<Percent>,

    /// Write everything once first, so that every read is verified
    #[arg(long)]
    pub prefill: bool,

    /// Neither verify nor read back: measure the target, not the data
    #[arg(long)]
    pub no_verify: bool,

    /// How files and devices are accessed: io_uring (default), psync or mmap
    #[arg(long, value_name = "HOW", default_value = "io_uring", hide_default_value = true)]
    #[arg(hide_possible_values = true)]
    pub ioengine: FileEngine,

    /// Go through the page cache
    #[arg(long)]
    pub buffered: bool,

    /// Look at the machine meanwhile: every second, or --probes=100ms
    #[arg(long, value_name = "SPAN", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub probes: Option<Probes>,

    #[command(flatten)]
    pub metrics: MetricsArgs,

    /// What places and contents are derived from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Permit writing over what a device or file holds
    #[arg(long)]
    pub overwrite: bool,

    /// Write intervals and figures to a folder in this one
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,

    /// How long an interval is: 10ms to 1h, or end [default: 1s]
    #[arg(long, value_name = "SPAN", requires = "results")]
    pub interval: Option<IntervalLength>,

    /// Keep every single request
    #[arg(long, requires = "results")]
    pub samples: bool,

    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,

    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// fio's `--rw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Access {
    /// Sequential reads
    Read,
    /// Sequential writes
    Write,
    /// Sequential reads and writes
    #[value(alias = "readwrite")]
    Rw,
    /// Random reads
    Randread,
    /// Random writes
    Randwrite,
    /// Random reads and writes
    Randrw,
}

/// fio's `--ioengine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum FileEngine {
    /// Many at once
    IoUring,
    /// One call after the other
    Psync,
    /// A mapping into memory
    Mmap,
}

impl From<FileEngine> for Engine {
    fn from(engine: FileEngine) -> Self {
        match engine {
            FileEngine::IoUring => Engine::IoUring,
            FileEngine::Psync => Engine::Psync,
            FileEngine::Mmap => Engine::Mmap,
        }
    }
}

/// `4k`, or `4k,64k` for reads and for writes.
fn block_sizes(text: &str) -> Result<BlockSizes, String> {
    match text.split_once(',') {
        None => Ok(text.parse::<Bytes>()?.into()),
        Some((reads, writes)) => {
            let one = |text: &str| text.parse().map(SizeMix::one);
            Ok(BlockSizes::Split { reads: one(reads)?, writes: one(writes)? })
        }
    }
}

/// fio's `bssplit`: `4k/60:64k/40`, or `4k/60:64k/40,128k/100` for reads and for writes.
fn size_mix(text: &str) -> Result<BlockSizes, String> {
    let mix = |text: &str| -> Result<SizeMix, String> {
        let sizes = text.split(':').map(|entry| {
            let (size, share) = entry
                .split_once('/')
                .ok_or_else(|| format!("`{entry}` has no percentage; write for example 4k/60:64k/40"))?;
            Ok((size.parse()?, percentage(share)?))
        });
        sizes.collect::<Result<_, String>>().map(SizeMix)
    };
    match text.split_once(',') {
        None => mix(text).map(BlockSizes::All),
        Some((reads, writes)) => Ok(BlockSizes::Split { reads: mix(reads)?, writes: mix(writes)? }),
    }
}

/// A percentage without its sign, as fio has them, or with it.
fn percentage(text: &str) -> Result<Percent, String> {
    let number = text.trim().trim_end_matches('%');
    format!("{number}%").parse()
}

/// A span of time; without a unit, as fio has it, seconds.
fn span(text: &str) -> Result<Span, String> {
    match text.parse::<u32>() {
        Ok(seconds) => Ok(Span(std::time::Duration::from_secs(seconds.into()))),
        Err(_) => text.parse(),
    }
}

fn ramp_up(text: &str) -> Result<RampUp, String> {
    match text.trim().strip_suffix("requests") {
        Some(number) => {
            number.trim().parse().map(RampUp::Requests).map_err(|_| {
                format!("`{text}` is no number of requests; write for example \"1000 requests\"")
            })
        }
        None => span(text).map(RampUp::Time),
    }
}

fn pace(text: &str) -> Result<Pace, String> {
    match text {
        "timed" => Ok(Pace::Timed),
        "asap" => Ok(Pace::Asap),
        _ => Err(format!("there is no pace `{text}`; timed and asap are known")),
    }
}

/// Operations as fio calls them in `replay_skip`, or as traces do here.
fn skipped(text: &str) -> Result<Operation, String> {
    match text.trim() {
        "read" => Ok(Operation::Read),
        "write" => Ok(Operation::Write),
        "trim" | "discard" => Ok(Operation::Discard),
        "sync" | "flush" => Ok(Operation::Flush),
        other => Err(format!("there is no operation `{other}`; read, write, trim and sync are known")),
    }
}

/// A percentage, a profile, or a file of a distribution, which is read.
fn duplicates(text: &str) -> Result<Duplicates, String> {
    if let Some(file) = text.strip_prefix("file:") {
        let mut duplicates = Duplicates::File(file.into());
        duplicates.read_file(std::path::Path::new("")).map_err(|error| error.to_string())?;
        return Ok(duplicates);
    }
    if text.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return serde_json::from_value(text.into()).map_err(|error| error.to_string());
    }
    percentage(text).map(Duplicates::Share)
}

/// `32/10ms`.
fn burst(text: &str) -> Result<Burst, String> {
    let wrong = || format!("`{text}` is no burst; write for example 32/10ms");
    let (requests, every) = text.split_once('/').ok_or_else(wrong)?;
    Ok(Burst { requests: requests.parse().map_err(|_| wrong())?, every: every.parse()? })
}

/// `60/10:40/90`: of the requests, of the space.
fn zones(text: &str) -> Result<Pattern, String> {
    let zones = text.split(':').map(|zone| {
        let (requests, space) = zone
            .split_once('/')
            .ok_or_else(|| format!("`{zone}` is no zone; write for example 60/10:40/90"))?;
        Ok(Zone { requests: percentage(requests)?, space: percentage(space)? })
    });
    zones.collect::<Result<_, String>>().map(Pattern::Zoned)
}

/// fio's `random_distribution`, as far as it is a pattern here.
fn distribution(text: &str) -> Result<Pattern, String> {
    let (word, value) = text.split_once(':').map_or((text, None), |(word, value)| (word, Some(value)));
    let number = |value: &str| value.parse::<f64>().map_err(|_| format!("`{value}` is no number"));
    match (word, value) {
        ("random", None) => Ok(Pattern::Random),
        ("nurand", None) => Ok(Pattern::Nurand { a: None }),
        ("zoned", Some(list)) => zones(list),
        ("zipf", Some(theta)) => Ok(Pattern::Zipf { theta: number(theta)? }),
        ("pareto", Some(hot)) => Ok(Pattern::Pareto { hot: percentage(hot)? }),
        ("normal", Some(deviation)) => Ok(Pattern::Normal { deviation: percentage(deviation)? }),
        ("zoned", None) => Err("`zoned` needs its zones, such as zoned:60/10:40/90".into()),
        ("zipf" | "pareto" | "normal", None) => Err(format!("`{word}` needs a number, such as {word}:0.9")),
        _ => Err(format!(
            "there is no distribution `{word}`; random, zipf, pareto, normal, zoned and nurand are known"
        )),
    }
}

impl LoadArgs {
    /// The load that is meant, checked.
    pub fn spec(&self) -> Result<LoadSpec, Error> {
        let is_random = matches!(self.rw, Access::Randread | Access::Randwrite | Access::Randrw);
        let pattern = match (&self.random_distribution, is_random) {
            (Some(_), false) => {
                return Err(invalid("--random-distribution", "is for randread, randwrite and randrw"));
            }
            (Some(pattern), true) => pattern.clone(),
            (None, true) => Pattern::Random,
            (None, false) => Pattern::Sequential,
        };
        if self.percentage_random.is_some() && !is_random {
            return Err(invalid("--percentage-random", "is for randread, randwrite and randrw"));
        }
        if let Some(file) = &self.trace {
            return self.replay(file);
        }
        if self.mix.is_some() {
            return self.checked(LoadSpec {
                pattern: Pattern::default(),
                reads: Percent(0.0),
                ..self.common()
            });
        }
        let reads = match self.rw {
            Access::Read | Access::Randread => Percent(1.0),
            Access::Write | Access::Randwrite => Percent(0.0),
            Access::Rw | Access::Randrw => self.rwmixread,
        };
        self.checked(LoadSpec {
            pattern,
            sequential: self.percentage_random.map(|random| Percent(1.0 - random.0)),
            reads,
            block_size: self.bs.clone().or_else(|| self.bssplit.clone()).unwrap_or_default(),
            ..self.common()
        })
    }

    /// A trace instead of a description.
    fn replay(&self, file: &std::path::Path) -> Result<LoadSpec, Error> {
        let default = Trace::of(file);
        let speed = self.speed.or(self.replay_time_scale.map(|percent| percent / 100.0));
        let mut trace = Trace {
            format: self.trace_format.map(Into::into),
            pace: self.pace.unwrap_or_default(),
            speed: speed.unwrap_or(default.speed),
            depth: self.iodepth.unwrap_or(default.depth),
            skip: self.replay_skip.clone(),
            malformed_max: self.malformed_max.unwrap_or(default.malformed_max),
            ..default
        };
        trace.locate(std::path::Path::new("")).map_err(|error| error.while_doing("--trace"))?;
        self.checked(LoadSpec { trace: Some(trace), queue_depth: 1, ..self.common() })
    }

    /// Everything but what the requests are.
    fn common(&self) -> LoadSpec {
        LoadSpec {
            mix: self.mix,
            align: self.blockalign,
            queue_depth: self.iodepth.unwrap_or(1),
            workers: self.numjobs,
            rate: self.rate_iops.map(|requests| Rate {
                requests,
                arrivals: if self.poisson { Arrivals::Poisson } else { Arrivals::Even },
            }),
            think_time: self
                .thinktime
                .map(|pause| ThinkTime { pause, after: self.thinktime_blocks.unwrap_or(1) }),
            burst: self.burst,
            flush_every: self.fsync,
            fua: self.fua,
            total: self.io_size,
            requests: self.number_ios,
            duration: self.runtime,
            ramp_up: self.ramp_time,
            retry: self.retry.map(|count| Retry { count, delay: Span::default(), on: Vec::new() }),
            prefill: Some(self.prefill),
            duplicates: self.duplicates.clone().unwrap_or_default(),
            compressible: self.compressible.unwrap_or_default(),
            ..LoadSpec::default()
        }
    }

    /// The load of files that is meant, checked; none if it is one of blocks.
    pub fn personality(&self) -> Result<Option<Personality>, Error> {
        let Some(personality) = self.personality else { return Ok(None) };
        let mut problems = Problems::default();
        personality.validate(&Path::root(), &mut problems);
        if let Some(problem) = problems.into_iter().next() {
            let help = problem.help.map_or(String::new(), |help| format!("; {help}"));
            return Err(invalid("--personality", &format!("{}{help}", problem.message)));
        }
        if personality.options.loops.is_some() && self.runtime.is_some() {
            return Err(invalid("--runtime", "the load ends after `loops` already"));
        }
        Ok(Some(personality))
    }

    /// What is to be recorded, and where.
    pub fn record(&self) -> Result<Option<(RecordSpec, PathBuf)>, Error> {
        let Some(results) = &self.results else { return Ok(None) };
        let spec = RecordSpec {
            interval: self.interval.unwrap_or_default(),
            samples: self.samples,
            ..RecordSpec::default()
        };
        let mut problems = Problems::default();
        spec.validate(&Path::root(), &mut problems);
        match problems.into_iter().next() {
            None => Ok(Some((spec, results.clone()))),
            Some(problem) => {
                let help = problem.help.map_or(String::new(), |help| format!("; {help}"));
                Err(invalid("--interval", &format!("{}{help}", problem.message)))
            }
        }
    }

    fn checked(&self, spec: LoadSpec) -> Result<LoadSpec, Error> {
        let mut problems = Problems::default();
        spec.validate(&Path::root(), &mut problems);
        match problems.into_iter().next() {
            None => Ok(spec),
            Some(problem) => {
                let option = option_of(problem.path.as_str());
                let help = problem.help.map_or(String::new(), |help| format!("; {help}"));
                Err(invalid(option, &format!("{}{help}", problem.message)))
            }
        }
    }
}

fn invalid(option: &str, message: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{option}: {message}"))
}

/// The option that sets a key of a load.
fn option_of(path: &str) -> &'static str {
    match path {
        "trace.depth" => return "--iodepth",
        "trace.speed" => return "--speed",
        "trace.skip" => return "--replay-skip",
        _ => {}
    }
    match path.split(['.', '[']).next().unwrap_or_default() {
        "mix" => "--mix",
        "pattern" => "--random-distribution",
        "sequential" => "--percentage-random",
        "block_size" => "--bs",
        "align" => "--blockalign",
        "queue_depth" => "--iodepth",
        "workers" => "--numjobs",
        "rate" => "--rate-iops",
        "think_time" => "--thinktime",
        "burst" => "--burst",
        "duplicates" => "--duplicates",
        "compressible" => "--compressible",
        "flush_every" => "--fsync",
        "fua" => "--fua",
        "total" => "--io-size",
        "requests" => "--number-ios",
        "duration" => "--runtime",
        "ramp_up" => "--ramp-time",
        "retry" => "--retry",
        _ => "the load",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn spec(line: &str) -> Result<LoadSpec, String> {
        let words = std::iter::once("load").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.load.spec().map_err(|error| error.to_string())
    }

    #[test]
    fn a_line_of_fio_means_what_it_means_there() {
        let found = spec(
            "/dev/x --rw=randrw --rwmixread=70 --bs 4k --iodepth 32 --numjobs 2 --runtime 10 --ramp_time=2s",
        );
        let wanted: LoadSpec = serde_json::from_str(
            r#"{ "pattern": "random", "reads": "70%", "block_size": "4KiB", "queue_depth": 32, "workers": 2,
                 "duration": "10s", "ramp_up": "2s", "prefill": false }"#,
        )
        .expect("a load");
        assert_eq!(found, Ok(wanted));
        let found = spec("x --rw=write --bssplit 4k/60:64k/40 --io_size=1g --fsync 8 --ba=4k --retry 3");
        let wanted: LoadSpec = serde_json::from_str(
            r#"{ "block_size": { "4KiB": "60%", "64KiB": "40%" }, "total": "1GiB", "flush_every": 8, "align": "4KiB",
                 "retry": 3, "prefill": false }"#,
        )
        .expect("a load");
        assert_eq!(found, Ok(wanted));
        let found = spec(
            "x --rw=randread --random_distribution=zipf:1.1 --percentage_random=80 --rate_iops=500 --poisson",
        );
        let wanted: LoadSpec = serde_json::from_str(
            r#"{ "pattern": { "zipf": { "theta": 1.1 } }, "sequential": 0.19999999999999996, "reads": "100%",
                 "rate": { "requests": 500, "arrivals": "poisson" }, "prefill": false }"#,
        )
        .expect("a load");
        assert_eq!(found, Ok(wanted));
        let found = spec(
            "x --rw=randwrite --random_distribution=zoned:60/10:40/90 --dedupe_percentage=30 --burst 8/5ms",
        );
        let wanted: LoadSpec = serde_json::from_str(
            r#"{ "pattern": { "zoned": [{ "requests": "60%", "space": "10%" }, { "requests": "40%", "space": "90%" }] },
                 "duplicates": "30%", "burst": { "requests": 8, "every": "5ms" }, "prefill": false }"#,
        )
        .expect("a load");
        assert_eq!(found, Ok(wanted));
        let found =
            spec("x --rw=write --duplicates kernels --buffer_compress_percentage=40").expect("a load");
        assert_eq!(
            (found.duplicates.to_string(), found.compressible),
            ("duplicates as in kernels (60.9%)".into(), Percent(0.4))
        );
        let mixed = spec("x --mix darc_oltp --iodepth 8").expect("a load");
        assert_eq!((mixed.mix.map(|mix| mix.to_string()), mixed.queue_depth), (Some("darc_oltp".into()), 8));
        let line = Line::try_parse_from(["load", "x", "--personality", "varmail:files=99", "--runtime", "5"]);
        let files =
            line.expect("well-formed").load.personality().expect("makes sense").expect("one of files");
        assert_eq!(files.to_string(), "varmail:files=99");
        assert!(spec("x --ioengine=psync").is_ok() && spec("x --ioengine=mmap").is_ok());
        assert!(spec("x --ioengine=libaio").is_err());
        assert_eq!(spec("x").expect("a load").reads, Percent(1.0), "nothing is written unless told");
        let sizes = spec("x --rw=randrw --bs=4k,64k").expect("a load").block_size;
        assert_eq!(sizes.to_string(), "reads of 4KiB; writes of 64KiB");
    }

    #[test]
    fn mistakes_name_the_option() {
        for (line, wanted) in [
            ("x --bs 6k", "--bs: a request of 6KiB is not possible"),
            ("x --iodepth 0", "--iodepth: the number of requests in flight is 0"),
            ("x --rw=read --random-distribution zipf:1", "--random-distribution: is for randread"),
            ("x --rw=randwrite --bssplit 4k/60", "--bs: the sizes share out 60%"),
            ("x --bssplit 4k", "has no percentage"),
            ("x --random-distribution zipf", "needs a number"),
            ("x --random-distribution warp:1", "there is no distribution `warp`"),
            ("x --runtime 5s --io-size 1g", "cannot be used with"),
            ("x --ramp-time 5s", "--ramp-time: a ramp-up by time"),
            ("x --fsync 3", "--fsync: a load that only reads"),
            ("x --rwmixread 120", "not between 0% and 100%"),
            ("memory", "has no size"),
            ("x --mix darc_otlp", "did you mean `darc_oltp`?"),
            ("x --mix darc_oltp --bs 4k", "cannot be used with"),
            ("x --personality varmail --bs 4k", "cannot be used with"),
            ("x --personality varmial", "did you mean `varmail`?"),
            ("x --duplicates kernel", "did you mean kernels?"),
            ("x --duplicates file:/nonexistent", "No such file"),
            ("x --compressible 99", "--compressible: 99% of a block cannot be saved"),
            ("x --burst 32", "is no burst"),
            ("x --personality varmail --burst 8/1ms", "cannot be used with"),
            ("x --personality varmail --compressible 5", "cannot be used with"),
            ("x --burst 0/1ms", "--burst: "),
            ("x --random-distribution zoned:60/10:30/90", "--random-distribution: "),
            ("x --mix spc1 --iodepth 4", "--mix: spc1 has streams of its own"),
        ] {
            let found = spec(line).expect_err(line);
            assert!(found.contains(wanted), "{line}: {found}");
        }
    }
}
