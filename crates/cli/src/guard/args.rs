//! The command line of `rotproof guard`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use rotproof_guard::Algorithm;
use rotproof_model::Goal;
use rotproof_model::systems::Configuration;
use rotproof_spec::{Bytes, Span};

/// `rotproof guard`.
#[derive(Clone, Debug, Args)]
pub struct GuardArgs {
    #[command(subcommand)]
    pub verb: GuardVerb,
}

/// What can be done with a guard.
#[derive(Clone, Debug, Subcommand)]
pub enum GuardVerb {
    /// Guard a directory: take in the files that it has
    #[command(next_line_help = true)]
    Init(InitArgs),
    /// Verify every block as the disk has it
    #[command(next_line_help = true)]
    Check(CheckArgs),
    /// Check, and mend blocks from a second copy of the directory
    #[command(next_line_help = true)]
    Repair(RepairArgs),
    /// Take for right what was changed behind the guard's back
    #[command(next_line_help = true)]
    Accept(AcceptArgs),
    /// Show what is guarded, and what happened to it
    #[command(next_line_help = true)]
    Status(PlainArgs),
    /// Mount it, so that any program reads verified data
    #[command(next_line_help = true)]
    Mount(MountArgs),
    /// Run a command whose reads and writes below it are guarded
    #[command(next_line_help = true)]
    Run(RunArgs),
    /// Print the sums of every block, a line of JSON for each file
    #[command(next_line_help = true)]
    Export(ExportArgs),
}

/// Which guard.
#[derive(Clone, Debug, Args)]
pub struct Where {
    /// The guarded directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Where its sums are; default: .rotproof-guard in it
    #[arg(long, value_name = "FOLDER")]
    pub store: Option<PathBuf>,
}

/// `rotproof guard init`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The files stay as they are, and can be used without Rotproof. What is changed
without the guard is found by `check` and taken in by `accept`. Stopped by
Ctrl-C, it goes on when it is called again.")]
pub struct InitArgs {
    #[command(flatten)]
    pub place: Where,

    /// Verified on every read: xor-64, crc32c or xxh3-64
    #[arg(long, value_name = "NAME", default_value = "xor-64", value_parser = light)]
    pub light: Algorithm,

    /// Verified from the disk: those, fletcher-256, blake3
    #[arg(long, value_name = "NAME", default_value = "xxh3-64", value_parser = algorithm)]
    pub strong: Algorithm,

    /// Verify by the strong sum again after so long in memory
    #[arg(long, value_name = "SPAN", conflicts_with = "machine")]
    pub switch: Option<Span>,

    /// The same for a low-end, consumer, enterprise or server machine
    #[arg(long, value_name = "CLASS", value_parser = machine)]
    pub machine: Option<String>,

    /// With --machine: one corruption unseen in so much
    #[arg(long, value_name = "AMOUNT", default_value = "zettabyte", value_parser = goal, requires = "machine")]
    pub goal: GoalArg,

    /// Threads; default: one per core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,

    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof guard check`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Exit 1 means that some block is wrong, or that some file is not vouched for.")]
pub struct CheckArgs {
    #[command(flatten)]
    pub place: Where,

    /// Only these files or folders of it
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// Read so much a second at most, such as 50MiB
    #[arg(long, value_name = "BYTES")]
    pub rate: Option<Bytes>,

    /// Threads; default: one per core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,

    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof guard repair`.
#[derive(Clone, Debug, Args)]
pub struct RepairArgs {
    #[command(flatten)]
    pub check: CheckArgs,

    /// A second copy; only blocks with the right sums are taken
    #[arg(long, value_name = "DIR", required_unless_present = "volume")]
    pub mirror: Option<PathBuf>,

    /// The volume below, for all its copies: its name, or its socket
    #[arg(long, value_name = "NAME")]
    pub volume: Option<PathBuf>,
}

/// `rotproof guard accept`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Without paths: files that are new, or whose size or time of modification is not
what the guard left. Files that are named are taken as they are, rot included.")]
pub struct AcceptArgs {
    #[command(flatten)]
    pub place: Where,

    /// These files or folders, whatever their sums say
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof guard mount`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
It serves the mount until Ctrl-C, SIGTERM or an unmount by somebody else.")]
pub struct MountArgs {
    #[command(flatten)]
    pub place: Where,

    /// Where; an empty folder outside of DIR
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoint: PathBuf,

    /// Take blocks that are wrong from this second copy
    #[arg(long, value_name = "DIR")]
    pub mirror: Option<PathBuf>,

    /// And from the volume below, which is served: its name, or its socket
    #[arg(long, value_name = "NAME")]
    pub volume: Option<PathBuf>,

    /// Let the kernel cache what was verified, and not see it rot there
    #[arg(long)]
    pub cache: bool,

    /// To compare: plain, e2e (verified at its ends) or z2
    #[arg(long, value_name = "MODE", default_value = "z2", hide_possible_values = true, value_parser = ["plain", "e2e", "z2"])]
    pub mode: String,

    /// Let other users in
    #[arg(long)]
    pub allow_other: bool,

    /// Threads that serve requests
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
}

/// `rotproof guard run`.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "rotproof guard run [OPTIONS] [DIR] -- COMMAND...",
    after_help = "\
The command and whatever it starts must be linked dynamically. What cannot be
guarded is refused or told: docs/guard-run.md. The exit code is the command's;
128 and the signal if one ended it."
)]
pub struct RunArgs {
    /// The guarded directory; default: the one around the current directory
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,

    /// Where its sums are; default: .rotproof-guard in it
    #[arg(long, value_name = "FOLDER", requires = "directory")]
    pub store: Option<PathBuf>,

    /// Take blocks that are wrong from this second copy
    #[arg(long, value_name = "DIR")]
    pub mirror: Option<PathBuf>,

    /// And from the volume below, which is served: its name, or its socket
    #[arg(long, value_name = "NAME")]
    pub volume: Option<PathBuf>,

    /// What is run
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub command: Vec<OsString>,
}

/// A verb that only looks.
#[derive(Clone, Debug, Args)]
pub struct PlainArgs {
    #[command(flatten)]
    pub place: Where,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof guard export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    pub place: Where,
}

/// A goal of the model, by its word.
#[derive(Clone, Copy, Debug)]
pub struct GoalArg(pub Goal);

fn algorithm(word: &str) -> Result<Algorithm, String> {
    Algorithm::from_word(word)
        .ok_or_else(|| format!("one of {}", Algorithm::ALL.map(Algorithm::word).join(", ")))
}

fn light(word: &str) -> Result<Algorithm, String> {
    algorithm(word)
        .ok()
        .filter(|light| light.words() == 1)
        .ok_or_else(|| format!("one of {}", Algorithm::LIGHT.map(Algorithm::word).join(", ")))
}

fn machine(word: &str) -> Result<String, String> {
    match Configuration::from_word(word) {
        Some(_) => Ok(word.to_owned()),
        None => Err(format!("one of {}", Configuration::WORDS.join(", "))),
    }
}

fn goal(word: &str) -> Result<GoalArg, String> {
    let words = || Goal::WORDS.map(|(word, _)| word).join(", ");
    Goal::from_word(word).map(GoalArg).ok_or_else(|| format!("one of {}", words()))
}
