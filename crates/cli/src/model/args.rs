//! The command line of `rotproof model`. Every number has its unit, and is refused with the range that is valid.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use rotproof_design::path_file::{DiskRate, Fraction, GoalText, MemoryRate, parse_redundancy, residency};
use rotproof_model::{Redundancy, SECONDS_PER_YEAR, fleet};
use rotproof_spec::{Measure, Span};

/// `rotproof model`.
#[derive(Clone, Debug, Args)]
pub struct ModelArgs {
    #[command(subcommand)]
    pub verb: Verb,
}

/// The questions, one file each.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// How reliable one design is, stage by stage
    #[command(next_line_help = true)]
    Score(ScoreArgs),
    /// How reliable several designs are, on one machine or on all
    #[command(next_line_help = true)]
    Compare(CompareArgs),
    /// How long a weak checksum in memory is enough
    #[command(next_line_help = true)]
    SwitchTime(SwitchTimeArgs),
    /// Scores over all memory and disk indices
    #[command(next_line_help = true)]
    Contour(ContourArgs),
    /// What a fleet of devices loses over years, simulated
    #[command(next_line_help = true)]
    Fleet(FleetArgs),
    /// Probabilities with 95% intervals from counts of trials
    #[command(next_line_help = true)]
    Estimate(EstimateArgs),
}

/// The error rates of a machine.
#[derive(Clone, Debug, Args)]
pub struct MachineArgs {
    /// low-end, consumer, enterprise or server
    #[arg(long, value_name = "WORD")]
    pub machine: Option<String>,

    /// "25000 [20000..70000] FIT/Mbit", "7e-15 errors/s/bit" or "index 14"
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub memory: Option<MemoryRate>,

    /// Errors that the disk does not see: "1e-12 errors/bit" or "index 12"
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub disk: Option<DiskRate>,
}

/// How long a block stays in memory, and how reliable it must be.
#[derive(Clone, Debug, Args)]
pub struct ConditionArgs {
    /// From reading a block from the disk to using it
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = residency, allow_hyphen_values = true)]
    pub residency: f64,

    /// zettabyte to terabyte, "score 17", or an amount
    #[arg(long, value_name = "GOAL", default_value = "zettabyte", allow_hyphen_values = true)]
    pub goal: GoalText,
}

/// What every verb can write.
#[derive(Clone, Debug, Args)]
pub struct WriteArgs {
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
}

/// A picture.
#[derive(Clone, Debug, Args)]
pub struct PlotArgs {
    /// Draw it: FILE.svg, FILE.png or FILE.html
    #[arg(long, value_name = "FILE", value_parser = plot_file)]
    pub plot: Option<PathBuf>,
}

/// `rotproof model score`.
#[derive(Clone, Debug, Args)]
pub struct ScoreArgs {
    /// nc, zfs, e2e-CHECKSUM, z2-static, z2-dynamic, or a path file
    #[arg(value_name = "DESIGN")]
    pub design: String,
    #[command(flatten)]
    pub machine: MachineArgs,
    #[command(flatten)]
    pub conditions: ConditionArgs,
    #[command(flatten)]
    pub write: WriteArgs,
}

/// `rotproof model compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// Systems or path files; default: every system
    #[arg(value_name = "DESIGN")]
    pub designs: Vec<String>,
    #[command(flatten)]
    pub machine: MachineArgs,
    #[command(flatten)]
    pub conditions: ConditionArgs,
    #[command(flatten)]
    pub write: WriteArgs,
    #[command(flatten)]
    pub plot: PlotArgs,
}

/// `rotproof model switch-time`.
#[derive(Clone, Debug, Args)]
pub struct SwitchTimeArgs {
    /// Systems or path files; default: z2-static
    #[arg(value_name = "DESIGN")]
    pub designs: Vec<String>,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// zettabyte to terabyte, "score 17", or an amount
    #[arg(long, value_name = "GOAL", default_value = "zettabyte", allow_hyphen_values = true)]
    pub goal: GoalText,
    #[command(flatten)]
    pub write: WriteArgs,
    #[command(flatten)]
    pub plot: PlotArgs,
}

/// `rotproof model contour`.
#[derive(Clone, Debug, Args)]
pub struct ContourArgs {
    /// Designs; default: nc zfs e2e-xor e2e-fletcher z2-dynamic
    #[arg(value_name = "DESIGN")]
    pub designs: Vec<String>,

    /// Memory indices
    #[arg(long, value_name = "FROM..TO", default_value = "13..20", value_parser = indices, allow_hyphen_values = true)]
    pub memory_index: (f64, f64),

    /// Disk indices
    #[arg(long, value_name = "FROM..TO", default_value = "10..20", value_parser = indices, allow_hyphen_values = true)]
    pub disk_index: (f64, f64),

    /// Points along each axis
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(2..=2000))]
    pub points: u16,

    #[command(flatten)]
    pub conditions: ConditionArgs,
    #[command(flatten)]
    pub write: WriteArgs,
    #[command(flatten)]
    pub plot: PlotArgs,
}

/// `rotproof model fleet`.
#[derive(Clone, Debug, Args)]
pub struct FleetArgs {
    /// Groups of devices
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=fleet::GROUPS_MAX))]
    pub groups: u64,

    /// Devices of data + devices that may be lost
    #[arg(long, value_name = "D+P", default_value = "1+0", value_parser = redundancy)]
    pub redundancy: Redundancy,

    /// How long each group is watched, or a span
    #[arg(long, value_name = "TIME", default_value = "5 years", value_parser = years, allow_hyphen_values = true)]
    pub years: f64,

    /// Fault models of the devices: a fleet file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["failures", "errors", "bursts"])]
    pub faults: Option<PathBuf>,

    /// Devices that fail: "3 %/year" or "0.03 /year"
    #[arg(long, value_name = "RATE", default_value = "3 %/year", value_parser = per_year, allow_hyphen_values = true)]
    pub failures: f64,

    /// Mean time until a failed device is rebuilt
    #[arg(long, value_name = "SPAN", default_value = "1d", value_parser = years, allow_hyphen_values = true)]
    pub rebuild: f64,

    /// Events that damage sectors and stay latent
    #[arg(long, value_name = "RATE", default_value = "1.32 %/year", value_parser = per_year, allow_hyphen_values = true)]
    pub errors: f64,

    /// Probability that a damaged sector has a damaged neighbour
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_hyphen_values = true)]
    pub bursts: f64,

    /// Shape of the distribution over devices, such as 0.1; default: even
    #[arg(long, value_name = "SHAPE", allow_hyphen_values = true)]
    pub clustering: Option<f64>,

    /// Time between two scrubs
    #[arg(long, value_name = "SPAN", default_value = "14d", value_parser = years, allow_hyphen_values = true)]
    pub scrub: f64,

    /// Of unreported damage, what passes the checksum
    #[arg(long, value_name = "FRACTION", default_value = "0", allow_hyphen_values = true)]
    pub undetected: Fraction,

    /// Root of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Threads; default: one per core. The result is the same
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,

    /// importance (rare events more often), or plain
    #[arg(long, value_name = "HOW", value_enum, default_value_t, hide_possible_values = true)]
    pub sampling: SamplingWord,

    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,

    #[command(flatten)]
    pub write: WriteArgs,
    #[command(flatten)]
    pub plot: PlotArgs,
}

/// How events are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SamplingWord {
    /// With weights
    #[default]
    Importance,
    /// As they come
    Plain,
}

/// `rotproof model estimate`.
#[derive(Clone, Debug, Args)]
pub struct EstimateArgs {
    /// Outcomes such as R=9 W=2 C=0, or a folder of results
    #[arg(required = true, value_name = "OUTCOME=COUNT | RESULTS")]
    pub counts: Vec<String>,

    /// Trials in all
    #[arg(long, value_name = "N")]
    pub trials: Option<u64>,

    /// Faults injected into each trial, k
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub faults: Option<u32>,

    #[command(flatten)]
    pub write: WriteArgs,
}

fn plot_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_lowercase);
    match extension.as_deref() {
        Some("svg" | "png" | "html") => Ok(path),
        _ => Err("the name must end in .svg, .png or .html".to_owned()),
    }
}

fn indices(text: &str) -> Result<(f64, f64), String> {
    let wrong = || format!("`{text}` is no range of indices; write for example 13..20, from 0 to 60");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let index = |text: &str| text.trim().parse::<f64>().ok().filter(|index| (0.0..=60.0).contains(index));
    match (index(from), index(to)) {
        (Some(from), Some(to)) if from < to => Ok((from, to)),
        _ => Err(wrong()),
    }
}

fn redundancy(text: &str) -> Result<Redundancy, String> {
    parse_redundancy(text).ok_or_else(|| {
        format!("`{text}` is no redundancy; write 1+0 for a lone device, 1+1 for a mirror, 8+2 for parity")
    })
}

/// A time in years: `5 years`, or a span.
fn years(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no time; write for example 5 years, 14d or 12h, above 0");
    let years = match text.parse::<Measure>() {
        Ok(measure)
            if matches!(measure.unit.as_str(), "year" | "years" | "y") && measure.low >= measure.high =>
        {
            measure.value
        }
        _ => text.parse::<Span>().map_err(|_| wrong())?.0.as_secs_f64() / SECONDS_PER_YEAR,
    };
    if years > 0.0 { Ok(years) } else { Err(wrong()) }
}

/// A rate per device and year.
fn per_year(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no rate; write for example 3 %/year or 0.03 /year, from 0 on");
    let measure: Measure = text.parse().map_err(|_| wrong())?;
    let factor = match measure.unit.as_str() {
        "/year" => 1.0,
        "%/year" => 0.01,
        _ => return Err(wrong()),
    };
    if measure.value >= 0.0 && measure.low >= measure.high {
        Ok(measure.value * factor)
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_needs_its_unit_and_its_range() {
        assert_eq!(per_year("3 %/year"), Ok(0.03));
        assert_eq!(per_year("0.5 /year"), Ok(0.5));
        for text in ["3", "-1 /year", "3 /month", "1 [0..2] /year"] {
            assert!(per_year(text).expect_err(text).contains("from 0 on"), "{text}");
        }
        assert_eq!(years("5 years"), Ok(5.0));
        assert!((years("365.25d").expect("a year") - 1.0).abs() < 1e-12);
        for text in ["5", "0s", "-1 years", "soon"] {
            assert!(years(text).expect_err(text).contains("above 0"), "{text}");
        }
        assert_eq!(indices("13..20"), Ok((13.0, 20.0)));
        for text in ["20..13", "13", "-1..3", "13..61"] {
            assert!(indices(text).expect_err(text).contains("from 0 to 60"), "{text}");
        }
        assert!(plot_file("x.pdf").is_err() && plot_file("x.PNG").is_ok());
    }
}
