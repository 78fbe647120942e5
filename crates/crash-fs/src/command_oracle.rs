//! A user's own command as the oracle: exit code 0 says that a mounted state is good, anything else that it fails.
//!
//! It runs in the root of the mounted state, or in a folder of its own where the state is a file. What the load had said before the crash lies in a file, a mark a line, whose name
//! is in `ROTPROOF_MARKS`. A command that cannot be run, or that does not end, shows nothing of the state: it is *unknown*.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_crash::{Crash, Finding};
use rotproof_machine::Cancel;
use rotproof_machine::command::{CommandFiles, CommandRun, GRACE, run_command};

use crate::check::Oracle;

/// How much of what a command said is kept.
const SAID_BYTES_MAX: u64 = 2000;
/// What a shell says of a program that cannot be run (126), or that is not there (127).
const NOT_RUN: [u64; 2] = [126, 127];

/// Makes the words to execute for a mount point.
pub type CommandWords = Arc<dyn Fn(&Path) -> Vec<String> + Send + Sync>;

/// See the head of the module.
pub struct CommandOracle {
    /// Program and arguments.
    pub words: CommandWords,
    /// Further variables of its environment.
    pub variables: Vec<(&'static str, String)>,
    /// How long it may take.
    pub timeout: Duration,
    /// A folder of its own, for the marks and what it says.
    pub folder: PathBuf,
    /// The wish to stop.
    pub cancel: Cancel,
}

impl Oracle for CommandOracle {
    fn look(&mut self, mountpoint: &Path, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        let marks = self.folder.join("marks");
        let mut text = String::new();
        for mark in crash.marks {
            // A line each, whatever a mark holds.
            let _ = writeln!(text, "{}", mark.text.replace('\n', " "));
        }
        std::fs::write(&marks, text).doing(|| format!("writing {}", marks.display()))?;
        let mut variables = self.variables.clone();
        variables.push(("ROTPROOF_TARGET", mountpoint.display().to_string()));
        let is_folder = mountpoint.is_dir();
        variables.push(("ROTPROOF_KIND", if is_folder { "folder" } else { "file" }.to_owned()));
        variables.push(("ROTPROOF_MARKS", marks.display().to_string()));
        let mut output = CommandFiles::new(&self.folder)?;
        let end = run_command(&mut CommandRun {
            words: &(self.words)(mountpoint),
            folder: if is_folder { mountpoint } else { &self.folder },
            variables: &variables,
            output: &mut output,
            timeout: self.timeout,
            stop: &AtomicUsize::new(0),
            cancel: &self.cancel,
            grace: GRACE,
            before_end: &|| {},
        })?;
        let said = output.last_words(SAID_BYTES_MAX);
        let said = said.trim();
        if end.is_timed_out {
            let what = format!("the check did not end within {} s: {said}", self.timeout.as_secs());
            return Err(Error::new(ErrorKind::TimedOut, what));
        }
        if end.is_interrupted {
            return Err(Error::new(ErrorKind::Cancelled, "the check was to stop"));
        }
        if NOT_RUN.contains(&end.exit) {
            let what = format!("the check could not be run: exit code {}: {said}", end.exit);
            return Err(Error::new(ErrorKind::Missing, what));
        }
        Ok(match end.exit {
            0 => Vec::new(),
            exit => vec![Finding::new("check", format!("exit code {exit}: {said}"))],
        })
    }
}
