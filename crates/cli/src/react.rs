//! `rotproof react`: how a file system or a database reacts when a block of some kind is bad.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::{Args, ValueEnum};
use rotproof_block::{Error, ErrorKind};
use rotproof_machine::registry::Registry;
use rotproof_react::{
    CampaignOptions, Database, Effect, Operation, Outcome, Progress, System, react as do_cells, table,
    write_results,
};
use rotproof_subject::{FileSystem, MachineKind};
use serde_json::json;

use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;
use crate::signals::cancel_on_signals;

/// `rotproof react`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
For each kind of block, effect and operation a cell: on a device of its own a
block of that kind is made bad, the operation is done, the file system is
mounted again and every file is looked at. Of a database, a page of its file, a
record of its journal or a frame of its log is made bad, and a program that is
started anew reads every row. What was begun in a folder goes on
where it stood. Needs root. Nothing of yours is written to. docs/reactions.md
says what the letters mean.")]
pub struct ReactArgs {
    /// ext4, xfs, btrfs, zfs, sqlite, sqlite-wal, lmdb, postgres or postgres-checksums
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    pub subject: ReactSubject,

    /// In a guest instead of this machine's kernel: uml or qemu, for ext4, xfs and btrfs
    #[arg(long, value_name = "KIND", hide_possible_values = true)]
    pub machine: Option<ReactMachine>,

    /// Only kinds such as inode_table,journal
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    pub kinds: Vec<String>,

    /// Only effects such as flip,read_error
    #[arg(long, value_name = "WORDS", value_delimiter = ',', value_parser = effect)]
    pub effects: Vec<Effect>,

    /// Only operations such as mount,fsync
    #[arg(long, value_name = "WORDS", value_delimiter = ',', value_parser = operation)]
    pub operations: Vec<Operation>,

    /// Only so many cells of those that are reached, drawn by the seed
    #[arg(long, value_name = "N")]
    pub sample: Option<usize>,

    /// Cells done at the same time; default: one for each CPU, up to 4
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,

    /// Root of all that is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Where the results go; default: rotproof-results/react-NAME, of a guest react-NAME-KIND
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,

    /// Print every cell as JSON
    #[arg(long)]
    pub json: bool,
}

/// The file systems and databases that there are cells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReactSubject {
    /// The fourth extended file system.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// ZFS, by zfs-fuse.
    Zfs,
    /// SQLite with a rollback journal.
    Sqlite,
    /// SQLite with a write-ahead log.
    SqliteWal,
    /// LMDB.
    Lmdb,
    /// PostgreSQL without checksums in its pages.
    Postgres,
    /// PostgreSQL with checksums.
    PostgresChecksums,
}

/// What carries the kernel of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReactMachine {
    /// User Mode Linux.
    Uml,
    /// QEMU.
    Qemu,
}

impl ReactMachine {
    fn word(self) -> &'static str {
        match self {
            Self::Uml => "uml",
            Self::Qemu => "qemu",
        }
    }
}

impl ReactSubject {
    /// The same in a guest. Fails if it is not a file system of a kernel.
    fn system_in(self, machine: Option<ReactMachine>) -> Result<System, Error> {
        let kind = match machine {
            None => return Ok(self.system()),
            Some(ReactMachine::Uml) => MachineKind::Uml,
            Some(ReactMachine::Qemu) => MachineKind::Qemu,
        };
        match self.system() {
            System::Kernel(file_system) => Ok(System::Guest(kind, file_system)),
            other => {
                let what =
                    format!("{} is a program and no part of a kernel: leave --machine out", other.name());
                Err(Error::new(ErrorKind::Invalid, what))
            }
        }
    }

    fn system(self) -> System {
        match self {
            Self::Ext4 => FileSystem::Ext4.into(),
            Self::Xfs => FileSystem::Xfs.into(),
            Self::Btrfs => FileSystem::Btrfs.into(),
            Self::Zfs => System::Zfs,
            Self::Sqlite => System::Database(Database::Sqlite),
            Self::SqliteWal => System::Database(Database::SqliteWal),
            Self::Lmdb => System::Database(Database::Lmdb),
            Self::Postgres => System::Database(Database::Postgres),
            Self::PostgresChecksums => System::Database(Database::PostgresChecksums),
        }
    }
}

/// How often progress is told, in cells.
const TELL_EVERY: usize = 100;

fn effect(word: &str) -> Result<Effect, String> {
    let found = Effect::ALL.into_iter().find(|effect| effect.word() == word);
    found.ok_or_else(|| format!("effects are {}", Effect::ALL.map(Effect::word).join(", ")))
}

fn operation(word: &str) -> Result<Operation, String> {
    let found = Operation::all().find(|operation| operation.word() == word);
    found.ok_or_else(|| {
        let words: Vec<&str> = Operation::all().map(Operation::word).collect();
        format!("operations are {}", words.join(", "))
    })
}

/// Does the cells, writes the results and prints the table. Exit 1 if of some cell nobody knows.
pub fn react(args: &ReactArgs, output: Output) -> Result<Exit, CommandError> {
    let known = rotproof_kinds::words();
    if let Some(wrong) = args.kinds.iter().find(|word| !known.contains(&word.as_str())) {
        let what = format!("there is no kind of block `{wrong}`; docs/kinds.md lists them");
        return Err(Error::new(ErrorKind::Invalid, what).into());
    }
    let system = args.subject.system_in(args.machine)?;
    let cancel = cancel_on_signals()?;
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(4);
    let of_guest = args.machine.map_or_else(String::new, |machine| format!("-{}", machine.word()));
    let folder = PathBuf::from("rotproof-results").join(format!("react-{}{of_guest}", system.name()));
    let options = CampaignOptions {
        system,
        kinds: args.kinds.clone(),
        effects: args.effects.clone(),
        operations: args.operations.clone(),
        sample: args.sample,
        workers: args.workers.unwrap_or(cpus),
        seed: args.seed,
        folder: args.results.clone().unwrap_or(folder),
    };
    let told = AtomicUsize::new(0);
    let tell = |progress: Progress| {
        let is_due = progress.done == progress.all || progress.done.is_multiple_of(TELL_EVERY);
        if !args.quiet && is_due && told.swap(progress.done, Ordering::Relaxed) != progress.done {
            output.note(format_args!("  {} of {} cells", progress.done, progress.all));
        }
    };
    let run = Registry::of_user()?.begin()?;
    let campaign = do_cells(&run, &options, &cancel, &tell);
    let left = run.finish();
    let campaign = campaign?;
    if let Some(error) = left.into_iter().next() {
        return Err(error.while_doing("removing what the cells had created").into());
    }
    write_results(&campaign, &options.folder)?;
    match args.json {
        true => output.json(&json!({
            "subject": system.name(),
            "seed": args.seed,
            "kernel": campaign.head.kernel,
            "is_complete": campaign.is_complete,
            "cells": campaign.cells,
        })),
        false => output.result(format_args!(
            "{}\n\nAll of it, with a picture: {}",
            table(&campaign),
            options.folder.display()
        )),
    }
    if let Some(signal) = cancel.signal() {
        return Ok(Exit::of_signal(signal));
    }
    let is_unknown = campaign.cells.iter().any(|done| matches!(done.outcome, Outcome::Unknown(_)));
    Ok(if is_unknown { Exit::VerdictFailed } else { Exit::Pass })
}
