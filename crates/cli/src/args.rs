//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use rotproof_trial::import::Format;

/// Puts a storage stack on trial: faults below, a load above, and a verdict
#[derive(Debug, Parser)]
#[command(name = "rotproof", version)]
#[command(after_help = "\
Exit codes: 0 pass, 1 verdict failed, 2 wrong usage or trial file, 3 something
is missing on this machine, 4 internal error, 130 interrupted, 143 terminated.

Start with: rotproof run examples/first-trial.yaml")]
pub struct Cli {
    /// Use colours: auto, always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    #[arg(hide_default_value = true)]
    pub color: ColorChoice,

    #[command(subcommand)]
    pub command: Command,
}

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The verbs, one file each.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run trials and print their verdicts
    Run(RunArgs),
    /// Check trial files and show what they mean, defaults filled in
    Check(CheckArgs),
    /// Turn the fault plan of another injector into the faults of a trial
    Import(ImportArgs),
    /// Print the JSON Schema of trial files, for editors
    Schema(SchemaArgs),
    /// Remove what killed runs have left: mounts, loop devices, folders
    Clean(CleanArgs),
}

/// `rotproof run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub trials: TrialArgs,

    /// Where the results go
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,

    /// Permit writing over what a device or file holds
    #[arg(long)]
    pub overwrite: bool,

    /// Inject the faults of a ledger again
    #[arg(long, value_name = "LEDGER")]
    pub replay: Option<PathBuf>,

    /// Print the verdicts as JSON
    #[arg(long)]
    pub json: bool,

    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// `rotproof check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub trials: TrialArgs,

    /// Print the resolved trials, or all mistakes, as JSON
    #[arg(long)]
    pub json: bool,
}

/// The trials of a command, and what it changes of them.
#[derive(Clone, Debug, Args)]
pub struct TrialArgs {
    /// Trial files
    #[arg(required = true, value_name = "TRIAL")]
    pub files: Vec<PathBuf>,

    /// Use another seed than the file's
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Add a fault, such as "read, offset=1MiB..2MiB: error"
    #[arg(long = "fault", value_name = "RULE")]
    pub faults: Vec<String>,

    /// Set a value, such as load.block_size=64KiB
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub values: Vec<String>,
}

/// `rotproof import`.
#[derive(Clone, Debug, Args)]
pub struct ImportArgs {
    /// The plan
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// What it is: fispdk or achilles (default: as it looks)
    #[arg(long = "as", value_name = "FORMAT", value_enum, hide_possible_values = true)]
    pub format: Option<ImportFormat>,

    /// Print the rules, or what cannot be carried, as JSON
    #[arg(long)]
    pub json: bool,
}

/// A format that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImportFormat {
    /// The JSON of FISPDK
    Fispdk,
    /// The YAML of AchillesBench
    Achilles,
}

impl From<ImportFormat> for Format {
    fn from(format: ImportFormat) -> Self {
        match format {
            ImportFormat::Fispdk => Format::Fispdk,
            ImportFormat::Achilles => Format::Achilles,
        }
    }
}

/// `rotproof schema`.
#[derive(Clone, Debug, Args)]
pub struct SchemaArgs {
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// `rotproof clean`.
#[derive(Clone, Debug, Args)]
pub struct CleanArgs {
    /// Only say what would be removed
    #[arg(long)]
    pub dry_run: bool,

    /// Print what was removed as JSON
    #[arg(long)]
    pub json: bool,
}
