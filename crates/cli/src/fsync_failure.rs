//! `rotproof fsync`: what applications see when an fsync fails, and what is there afterwards.

use std::path::PathBuf;

use clap::Args;
use rotproof_block::{Error, ErrorKind};
use rotproof_machine::registry::{CleanupStack, Registry};
use rotproof_react::{FsyncFailure, failure_cells, fsync_failure_page, fsync_failure_table, fsync_failures};

use crate::crash::CrashSubject;
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;
use crate::signals::cancel_on_signals;

/// `rotproof fsync`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A block of a file is written and made durable, and below the file system one
write fails: of the file's data, of the file system's own blocks or of its
journal, once or always. The table says what write, fsync, a second fsync and
close answer, and what a reader finds: at once, when the page cache was told to
let go, and after the next mount. Needs root. Nothing of yours is written to.")]
pub struct FsyncFailureArgs {
    /// The file systems; default: ext4, xfs and btrfs
    #[arg(value_name = "SUBJECT")]
    pub subjects: Vec<CrashSubject>,

    /// Print the table in Markdown
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,

    /// Print the cells as JSON
    #[arg(long)]
    pub json: bool,
}

/// Fills the table. It claims nothing that could fail: what a file system does is a finding.
pub fn fsync_failure(args: &FsyncFailureArgs, output: Output) -> Result<Exit, CommandError> {
    let cancel = cancel_on_signals()?;
    let run = Registry::of_user()?.begin()?;
    let found = cells(args, &run, &cancel, output);
    let left = run.finish();
    let found = found?;
    if let Some(error) = left.into_iter().next() {
        return Err(error.while_doing("removing what the table had created").into());
    }
    if args.json {
        let value = serde_json::to_value(&found)
            .map_err(|error| Error::new(ErrorKind::Internal, "writing JSON").caused_by(error))?;
        output.json(&value);
    } else if args.markdown {
        output.result(fsync_failure_page(&found).trim_end());
    } else {
        output.result(fsync_failure_table(&found));
        let silent = found.iter().filter(|one| one.is_lost_silently()).count();
        let second = found.iter().filter(|one| one.second_lies()).count();
        output.result(format!(
            "\n{silent} of {} lose what a successful fsync had promised; in {second} a second fsync succeeds after a failed \
             one, and the data are not on disk.",
            found.len()
        ));
    }
    Ok(Exit::Pass)
}

fn cells(
    args: &FsyncFailureArgs,
    run: &rotproof_machine::registry::Run,
    cancel: &rotproof_machine::Cancel,
    output: Output,
) -> Result<Vec<FsyncFailure>, Error> {
    let all = [CrashSubject::Ext4, CrashSubject::Xfs, CrashSubject::Btrfs];
    let subjects = if args.subjects.is_empty() { all.to_vec() } else { args.subjects.clone() };
    let mut found = Vec::new();
    for subject in subjects {
        let kind = subject.kind();
        let mut cleanup = CleanupStack::new(run);
        let folder: PathBuf = run.scratch().join(format!("fsync-failure-{}", kind.name()));
        cleanup.create_tree(&folder)?;
        output.note(format!("  {}", kind.name()));
        let of_kind = fsync_failures(run, kind, &failure_cells(kind), &folder, cancel, &mut |_| {});
        let left = cleanup.undo_all();
        found.extend(of_kind?);
        if let Some(error) = left.into_iter().next() {
            return Err(error.while_doing(format!("removing {}", folder.display())));
        }
    }
    Ok(found)
}
