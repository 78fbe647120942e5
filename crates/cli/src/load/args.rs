//! The command line of `rotproof load`: fio's words where fio has one.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rotproof_import::FioSteady;
use rotproof_load::personality::Personality;
use rotproof_load::{BlockSizes, Burst, Duplicates, FileEngine, Mix, Pace, Pattern, RampUp};
use rotproof_machine::Machine;
use rotproof_measure::load::LoadTarget;
use rotproof_probe::{Probes, machine};
use rotproof_record::IntervalLength;
use rotproof_spec::{Bytes, Percent, Span};
use rotproof_trace::{ColumnNames, Operation, TimeUnit};

use super::values::{
    block_sizes, burst, distribution, duplicates, pace, percentage, ramp_up, size_mix, skipped, span,
};
use crate::metrics::MetricsArgs;
use crate::trace::TraceFormat;

/// `rotproof load`.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// A device, a file, nbd://..., memory:1GiB, disk:ssd:1GiB or null:1GiB
    #[arg(value_name = "TARGET")]
    pub target: LoadTarget,

    /// read, write, rw, randread (default), randwrite or randrw
    #[arg(
        long,
        alias = "readwrite",
        value_name = "WHAT",
        default_value = "randread",
        hide_default_value = true
    )]
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

    /// spc, msr, csv and others, see docs/traces.md [default: told]
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true, requires = "trace")]
    pub trace_format: Option<TraceFormat>,

    /// Of csv, which column holds what: time=ts,operation=op,offset=lbn*512,...
    #[arg(long, value_name = "COLUMNS", requires = "trace")]
    pub trace_columns: Option<ColumnNames>,

    /// The unit of its times, if not the format's: s, ms, us, 100ns or ns
    #[arg(long, value_name = "UNIT", requires = "trace")]
    pub trace_time_unit: Option<TimeUnit>,

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
        "retry", "duplicates", "compressible", "prefill", "no_verify", "ioengine", "buffered", "trace", "fixedbufs", "hipri",
    ])]
    pub personality: Option<Personality>,

    /// Bytes of a request; of reads and writes: 4k,64k [default: 4k]
    #[arg(long, aliases = ["block-size", "blocksize"], value_name = "SIZE", value_parser = block_sizes)]
    pub bs: Option<BlockSizes>,

    /// Several sizes with percentages: 4k/60:64k/40
    #[arg(long, value_name = "MIX", value_parser = size_mix, conflicts_with = "bs")]
    pub bssplit: Option<BlockSizes>,

    /// Requests in flight per worker [default: 1; 64 of a trace]
    #[arg(long, value_name = "N")]
    pub iodepth: Option<u32>,

    /// Workers, each with its own part of the target; so many of each client
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub numjobs: u32,

    /// Put the load from this machine, a host or a command; may be repeated
    #[arg(long = "client", value_name = "WHERE", conflicts_with_all = ["personality", "trace", "samples"])]
    pub clients: Vec<Machine>,

    /// How much of the target, from its beginning; a new file's size
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Bytes>,

    /// How long at the most [default: as many bytes as the target has]
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub runtime: Option<Span>,

    /// How many bytes at the most
    #[arg(long, alias = "io_size", value_name = "SIZE")]
    pub io_size: Option<Bytes>,

    /// How many requests at the most; the first end reached counts
    #[arg(long, alias = "number_ios", value_name = "N")]
    pub number_ios: Option<u64>,

    /// End once steady (SNIA), or by a limit: bw:10%, iops:10%, bw_slope:1%
    #[arg(long, alias = "ss", value_name = "WHAT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "bw")]
    pub steadystate: Option<FioSteady>,

    /// ... for so long [default: 10s]
    #[arg(long, aliases = ["ss_dur", "steadystate_duration"], value_name = "SPAN", value_parser = span)]
    #[arg(requires = "steadystate")]
    pub ss_dur: Option<Span>,

    /// ... but not within the first
    #[arg(long, aliases = ["ss_ramp", "steadystate_ramp_time"], value_name = "SPAN", value_parser = span)]
    #[arg(requires = "steadystate")]
    pub ss_ramp: Option<Span>,

    /// What comes first and is not recorded: 5s, 1GiB, or "1000 requests"
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

    /// ... or after it was busy for so long: intermittent load
    #[arg(long, alias = "thinktime_iotime", value_name = "SPAN", value_parser = span, requires = "thinktime")]
    #[arg(conflicts_with = "thinktime_blocks")]
    pub thinktime_iotime: Option<Span>,

    /// So many requests of a worker at once, again and again: 32/10ms
    #[arg(long, value_name = "N/SPAN", value_parser = burst, conflicts_with_all = ["rate_iops", "thinktime"])]
    pub burst: Option<Burst>,

    /// A flush (fsync) after so many writes
    #[arg(long, alias = "fdatasync", value_name = "N")]
    pub fsync: Option<u64>,

    /// Percentage of writes that are durable when they complete
    #[arg(long, value_name = "N", value_parser = percentage)]
    pub fua: Option<Percent>,

    /// Try a failed request again, so often
    #[arg(long, value_name = "N")]
    pub retry: Option<u32>,

    /// Tell of a request that takes longer than this [default: 30s]
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub hung_after: Option<Span>,

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

    /// Write nothing; read back what the same load has written before
    #[arg(long, alias = "verify_only", conflicts_with_all = ["no_verify", "personality", "runtime", "ramp_time"])]
    pub verify_only: bool,

    /// Neither verify nor read back: measure the target, not the data
    #[arg(long)]
    pub no_verify: bool,

    /// How files and devices are accessed: io_uring (default), psync or mmap
    #[arg(long, value_name = "HOW", default_value = "io_uring", hide_default_value = true)]
    #[arg(hide_possible_values = true)]
    pub ioengine: IoEngine,

    /// Register the memory of requests with the kernel once
    #[arg(long)]
    pub fixedbufs: bool,

    /// Poll the device for completions instead of waiting for interrupts
    #[arg(long)]
    pub hipri: bool,

    /// Go through the page cache
    #[arg(long)]
    pub buffered: bool,

    /// Look at the machine meanwhile: every second, or --probes=100ms
    #[arg(long, value_name = "SPAN", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub probes: Option<Probes>,

    /// Look at another machine too: target="ssh target rotproof"; may repeat
    #[arg(long = "probe", value_name = "NAME=COMMAND", value_parser = machine)]
    pub machines: Vec<(String, String)>,

    #[command(flatten)]
    pub metrics: MetricsArgs,

    /// What places and contents are derived from
    #[arg(long, alias = "randseed", value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Permit writing over what a device or file holds
    #[arg(long)]
    pub overwrite: bool,

    /// Write intervals and figures to a folder in this one
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,

    /// How long an interval is: 10ms to 1h, or end [default: 1s]
    #[arg(long, value_name = "SPAN")]
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
pub enum IoEngine {
    /// Many at once
    IoUring,
    /// One call after the other
    Psync,
    /// A mapping into memory
    Mmap,
}

impl From<IoEngine> for FileEngine {
    fn from(engine: IoEngine) -> Self {
        match engine {
            IoEngine::IoUring => Self::IoUring,
            IoEngine::Psync => Self::Psync,
            IoEngine::Mmap => Self::Mmap,
        }
    }
}
