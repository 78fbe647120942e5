//! The command line.

use std::path::PathBuf;

use crate::crash::CrashArgs;
use crate::fsync_failure::FsyncFailureArgs;
use crate::mark::MarkArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use rotproof_import::Format;
use rotproof_probe::protocol::unescaped;
use rotproof_serve::{ExportKind, NbdAddress};
use rotproof_spec::Span;

use crate::content::ContentArgs;
use crate::guard::GuardArgs;
use crate::load::LoadArgs;
use crate::map::MapArgs;
use crate::metrics::MetricsArgs;
use crate::model::ModelArgs;
use crate::react::ReactArgs;
use crate::run::matrix::Axis;
use crate::trace::TraceArgs;
use crate::volume::VolumeArgs;

/// Puts a storage stack on trial: faults below, a load above, and a verdict
#[derive(Debug, Parser)]
#[command(name = "rotproof", version = crate::version::LONG)]
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
    /// Compare runs, or show the figures of repeated ones
    Report(ReportArgs),
    /// Check trial files and show what they mean, defaults filled in
    Check(CheckArgs),
    /// Put a load on a device, file or export, and verify what it wrote
    #[command(next_line_help = true)]
    Load(Box<LoadArgs>),
    /// Turn fault plans and jobs of other programs into parts of a trial
    Import(ImportArgs),
    /// Do a share of a load, told by `rotproof load --client` on another machine
    #[command(hide = true)]
    Client,
    /// Hold mappings of files for a run whose process may not have them
    #[command(hide = true, name = rotproof_load::HOLD_MAPPINGS)]
    HoldMappings,
    /// Look into block traces and write them in other formats
    Trace(TraceArgs),
    /// Say of every block of a file system what it is
    Map(MapArgs),
    /// Reckon how probable undetected corruption is in a design
    Model(ModelArgs),
    /// Derive from real data what a load can write like it
    Content(ContentArgs),
    /// Print the JSON Schema of trial files and others, for editors
    Schema(SchemaArgs),
    /// Offer a stack to any program, with faults that may change
    Serve(ServeArgs),
    /// Change and watch the faults of a stack that is served
    Ctl(CtlArgs),
    /// Look at this machine, for people or for a run on another one
    Probe(ProbeArgs),
    /// Explore what a power loss leaves of a file system
    Crash(CrashArgs),
    /// Set a mark in the recording of a trial
    Mark(MarkArgs),
    /// Guard the files of a directory against silent corruption
    Guard(GuardArgs),
    /// Show what fsync does when it fails
    Fsync(FsyncFailureArgs),
    /// Show how a file system reacts to bad blocks, by their kind
    React(ReactArgs),
    /// Keep data on several devices, with copies and checksums
    Volume(VolumeArgs),
    /// Remove what killed runs have left: mounts, loop devices, folders
    Clean(CleanArgs),
    /// Print completions for bash, zsh or fish
    Completions(CompletionsArgs),
    /// Write the man pages into a folder
    #[command(hide = true)]
    Man(ManArgs),
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

    #[command(flatten)]
    pub metrics: MetricsArgs,

    /// Inject the faults of a ledger again
    #[arg(long, value_name = "LEDGER")]
    pub replay: Option<PathBuf>,

    /// Each trial for all values: seed=1..10; may repeat
    #[arg(long, value_name = "AXIS")]
    pub matrix: Vec<Axis>,

    /// Leave out what has a verdict already
    #[arg(long, requires = "matrix")]
    pub resume: bool,

    /// Trials in virtual time at once; default: processors
    #[arg(long, short, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,

    /// Write the verdicts as JUnit XML too
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,

    /// Print the verdicts as JSON
    #[arg(long)]
    pub json: bool,

    /// Print the verdicts alone, a line each
    #[arg(long, short)]
    pub quiet: bool,
}

/// How many trials at once.
fn jobs(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|jobs| (1..=1024).contains(jobs))
        .ok_or_else(|| "give a number from 1 to 1024".to_owned())
}

/// `rotproof report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Folders of runs, or of repeated trials; the first is the base
    #[arg(required = true, value_name = "FOLDER")]
    pub folders: Vec<PathBuf>,

    /// Write report.html into each folder once more instead
    #[arg(long, conflicts_with_all = ["json", "figures"])]
    pub page: bool,

    /// Write every chart of a run as SVG and PNG into this folder instead
    #[arg(long, value_name = "DIR", conflicts_with = "json")]
    pub figures: Option<PathBuf>,

    /// Write one run as fio would have: its JSON and logs
    #[arg(long, value_name = "DIR", conflicts_with_all = ["json", "page", "figures"])]
    pub fio: Option<PathBuf>,

    /// How those files are called, such as randread-iodepth-8-numjobs-2
    #[arg(long, value_name = "NAME", requires = "fio")]
    pub fio_name: Option<String>,

    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
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
    /// The plan or job file, or a folder of fio's to count
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// What it is: fispdk, achilles or fio (default: as it looks)
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
    /// A job file of fio's
    Fio,
}

impl From<ImportFormat> for Format {
    fn from(format: ImportFormat) -> Self {
        match format {
            ImportFormat::Fispdk => Format::Fispdk,
            ImportFormat::Achilles => Format::Achilles,
            ImportFormat::Fio => Format::Fio,
        }
    }
}

/// Files that have a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SchemaKind {
    /// A trial
    #[default]
    Trial,
    /// A design of the reliability model
    Path,
    /// The devices of a fleet
    Fleet,
    /// What `run.json` of a trial, a load or an exploration holds
    Run,
}

/// `rotproof schema`.
#[derive(Clone, Debug, Args)]
pub struct SchemaArgs {
    /// Of trial files, of `model`'s, or of `run.json`
    #[arg(
        value_name = "trial|path|fleet|run",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub kind: SchemaKind,

    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// `rotproof serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// A file with the parts `stack:` and `faults:` of a trial file
    #[arg(value_name = "STACK")]
    pub file: PathBuf,

    /// File (default), device, ublk, nbd, vhost; may repeat
    #[arg(long = "as", value_name = "WAY", default_value = "file", hide_default_value = true)]
    pub exports: Vec<ExportKind>,

    /// Where NBD listens: :10809 or unix:PATH; may repeat
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<NbdAddress>,

    /// Demand TLS of NBD clients; DIR has the certificates
    #[arg(long, value_name = "DIR")]
    pub tls: Option<PathBuf>,

    /// Let in only NBD clients with a certificate
    #[arg(long, requires = "tls")]
    pub tls_verify_clients: bool,

    /// Take over the ublk device of a killed server
    #[arg(long, value_name = "DEVICE", value_parser = ublk_number)]
    pub recover: Option<u32>,

    /// Name for `rotproof ctl`; default: the file's name
    #[arg(long)]
    pub name: Option<String>,

    /// Where its control socket is; default: by its name
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Write every injected fault to this new file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,

    /// Use another seed than the file's
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Add a fault, such as "read, offset=1MiB: error"
    #[arg(long = "fault", value_name = "RULE")]
    pub faults: Vec<String>,

    #[allow(rustdoc::broken_intra_doc_links, reason = "help for the terminal, where brackets are brackets")]
    /// Set a value, such as stack[0].memory.size=1GiB
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub values: Vec<String>,

    #[command(flatten)]
    pub metrics: MetricsArgs,

    /// Permit writing over what a device or file holds
    #[arg(long)]
    pub overwrite: bool,

    /// Print one line of JSON when it is ready
    #[arg(long)]
    pub json: bool,
}

/// The number in `/dev/ublkbN`, or the number alone.
fn ublk_number(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("/dev/ublkb").unwrap_or(text);
    number.parse().map_err(|_| "a ublk device is called /dev/ublkb0 or so".to_owned())
}

/// `rotproof ctl`.
#[derive(Clone, Debug, Args)]
pub struct CtlArgs {
    /// Which stack, by its name, if several are served
    #[arg(long, value_name = "NAME", global = true)]
    pub name: Option<String>,

    /// Which stack, by its control socket
    #[arg(long, value_name = "PATH", global = true, conflicts_with = "name")]
    pub socket: Option<PathBuf>,

    /// Print the answer as JSON
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub command: CtlCommand,
}

/// The verbs of `rotproof ctl`.
#[derive(Clone, Debug, Subcommand)]
pub enum CtlCommand {
    /// Show what is served, and where
    Status,
    /// Show the rules, and how often they have hit
    List {
        /// Show removed rules too
        #[arg(long)]
        all: bool,
    },
    /// Add rules, all or none
    Add {
        /// Rules such as "write, every=3: zeros" or "{ effect: error }"
        #[arg(value_name = "RULE", required_unless_present = "file")]
        rules: Vec<String>,

        /// Add those under `faults:` in this file too
        #[arg(long, short, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Pause rules
    Pause {
        /// Their names
        #[arg(value_name = "NAME", required = true)]
        rules: Vec<String>,
    },
    /// Let paused rules act again
    Resume {
        /// Their names
        #[arg(value_name = "NAME", required = true)]
        rules: Vec<String>,
    },
    /// Remove rules for good
    Remove {
        /// Their names
        #[arg(value_name = "NAME", required = true)]
        rules: Vec<String>,
    },
    /// Let requests that hang come back, those of all rules or of some
    Release {
        /// Names of rules
        #[arg(value_name = "NAME")]
        rules: Vec<String>,
    },
    /// Show the last injected faults
    #[command(alias = "hits")]
    Injections {
        /// Only those of this rule
        #[arg(value_name = "NAME")]
        rule: Option<String>,

        /// How many
        #[arg(long, value_name = "N", default_value_t = 20)]
        last: usize,
    },
}

/// `rotproof probe`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
It ends with Ctrl-C, when standard input ends (unless that is a terminal), or
when nobody reads what it prints.")]
pub struct ProbeArgs {
    /// From sample to sample, 100ms to 1h
    #[arg(long, value_name = "SPAN", default_value = "1s")]
    pub interval: Span,

    /// Processes to look at too, such as nbdkit,jbd2*
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = unescaped)]
    pub processes: Vec<String>,

    /// Leave out some of cpu,memory,network,disks,pressure
    #[arg(long, value_name = "GROUPS", value_delimiter = ',')]
    pub without: Vec<String>,

    /// Print everything as lines of JSON, as a run reads it
    #[arg(long)]
    pub json: bool,
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

/// `rotproof completions`.
#[derive(Clone, Debug, Args)]
pub struct CompletionsArgs {
    /// Of which shell: bash, zsh, fish
    #[arg(value_name = "SHELL", value_enum, hide_possible_values = true)]
    pub shell: CompletionShell,
}

/// A shell that completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompletionShell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// Friendly interactive shell
    Fish,
}

/// `rotproof man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// The folder; it is made if it is not there
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}
