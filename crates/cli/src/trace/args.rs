//! The command line of `rotproof trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use rotproof_trace::{ColumnNames, Format, TimeUnit};

/// `rotproof trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do with a trace.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Say what is in a trace: rates, sizes, footprint
    Info(InfoArgs),
    /// Write a trace in another format
    Convert(ConvertArgs),
}

/// Where a trace comes from.
#[derive(Clone, Debug, Args)]
pub struct InputArgs {
    /// The trace; - is standard input
    #[arg(value_name = "TRACE")]
    pub file: PathBuf,

    /// spc, msr, csv and others: see docs/traces.md
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    pub format: Option<TraceFormat>,

    /// Of csv: time=ts,operation=op,offset=lbn*512,...
    #[arg(long, value_name = "COLUMNS")]
    pub columns: Option<ColumnNames>,

    /// Unit of its times, such as us; default: by format
    #[arg(long, value_name = "UNIT")]
    pub time_unit: Option<TimeUnit>,

    /// How many malformed lines to pass over
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub malformed_max: u64,
}

/// `rotproof trace info`.
#[derive(Clone, Debug, Args)]
pub struct InfoArgs {
    #[command(flatten)]
    pub input: InputArgs,

    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof trace convert`.
#[derive(Clone, Debug, Args)]
pub struct ConvertArgs {
    #[command(flatten)]
    pub input: InputArgs,

    /// What to write: spc, msr, fio, disksim or csv
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    pub to: TraceFormat,

    /// Where to (default: standard output)
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Place the accesses on a device of this size
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub onto: Option<u64>,
}

fn parse_size(text: &str) -> Result<u64, String> {
    let size: rotproof_spec::Bytes = text.parse().map_err(|error: String| error)?;
    if size.0 < 4096 { Err("at least 4KiB".to_owned()) } else { Ok(size.0) }
}

/// A format by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// Storage Performance Council
    Spc,
    /// Microsoft Research Cambridge
    Msr,
    /// blkparse's text
    Blkparse,
    /// blktrace's records
    Blktrace,
    /// fio's I/O log
    Fio,
    /// DiskSim's ASCII
    Disksim,
    /// Values under a line of names
    Csv,
    /// SYSTOR '17
    Systor,
    /// Tencent's block storage
    Tencent,
    /// Alibaba's virtual disks
    Alibaba,
    /// `CloudPhysics`
    Cloudphysics,
}

impl From<TraceFormat> for Format {
    fn from(format: TraceFormat) -> Self {
        match format {
            TraceFormat::Spc => Self::Spc,
            TraceFormat::Msr => Self::Msr,
            TraceFormat::Blkparse => Self::Blkparse,
            TraceFormat::Blktrace => Self::Blktrace,
            TraceFormat::Fio => Self::Fio,
            TraceFormat::Disksim => Self::Disksim,
            TraceFormat::Csv => Self::Csv,
            TraceFormat::Systor => Self::Systor,
            TraceFormat::Tencent => Self::Tencent,
            TraceFormat::Alibaba => Self::Alibaba,
            TraceFormat::Cloudphysics => Self::Cloudphysics,
        }
    }
}
