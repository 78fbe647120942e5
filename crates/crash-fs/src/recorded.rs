//! A recording that is there already, explored: its states are mounted and looked at by whoever knows what was in the files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_crash::recording::Reader;
use rotproof_crash::{
    Check, Contents, CrashReport, ExploreOptions, MakeCheck, Mark, Progress, StateOptions, explore, marks,
};
use rotproof_machine::Cancel;
use rotproof_machine::registry::Run;
use rotproof_subject::{FileSystem, MachineSpec};

use crate::check::{MountCheck, Oracle};
use crate::kept::state_name;
use crate::memory::MemoryBound;
use crate::raw_check::RawCheck;

/// The mark from which on crashes are looked at: what came before was made durable.
pub const BEGINS: &str = "the load begins";

/// So many marks are told to somebody who named one that is not there.
const MARKS_TOLD: usize = 8;

/// Makes the oracle of a worker.
pub type MakeOracle<'a> = &'a (dyn Fn(usize) -> Result<Box<dyn Oracle>> + Sync);

/// How the states of a recording are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Looks<'a> {
    /// The file system; `None` for states that are not mounted but read as a file.
    pub kind: Option<FileSystem>,
    /// Further mount options.
    pub mount: &'a [String],
    /// Guests as this describes them mount the states, until they are to end; else the kernel of this machine does.
    pub machine: Option<(&'a MachineSpec, &'a Cancel)>,
    /// The file system's own checker looks, too.
    pub fsck: bool,
    /// So often the power goes again while a state is recovered.
    pub second_cuts: u32,
    /// What it may take of memory.
    pub memory: MemoryBound,
    /// Who looks, in words.
    pub words: &'a [String],
}

/// Explores a recording, with all that is created on record in `run`. A state that fails is written as a file into the folder
/// `keep`, unless it is there.
pub fn explore_recording(
    run: &Run,
    options: &ExploreOptions,
    looks: &Looks<'_>,
    oracle: MakeOracle<'_>,
    keep: &Path,
    (tell, stop): (&(dyn Fn(&Progress) + Sync), &AtomicBool),
) -> Result<CrashReport> {
    let make = |worker: usize, contents: &Arc<Contents>| -> Result<Box<dyn Check>> {
        let name = format!("crash-{worker}");
        let (contents, scratch) = (Arc::clone(contents), looks.memory.scratch_bytes_max);
        let Some(kind) = looks.kind else {
            return Ok(Box::new(RawCheck::new(run, &name, contents, scratch, oracle(worker)?)?));
        };
        let check = MountCheck::bounded(
            run,
            (&name, contents, scratch),
            (kind, looks.machine),
            looks.fsck,
            oracle(worker)?,
        )?;
        let check = check.with_mount_options(looks.mount);
        Ok(Box::new(check.with_second_cuts(looks.second_cuts, options.states.seed)))
    };
    explore_and_keep(options, &make, looks.words, keep, (tell, stop))
}

/// Explores a recording with any checks; `words` say who looks. A state that fails is written as a file into the folder `keep`, unless it
/// is there.
pub fn explore_and_keep(
    options: &ExploreOptions,
    make: MakeCheck<'_>,
    words: &[String],
    keep: &Path,
    (tell, stop): (&(dyn Fn(&Progress) + Sync), &AtomicBool),
) -> Result<CrashReport> {
    let exploration = explore(options, make, tell, stop)?;
    for failure in &exploration.failures {
        let path = keep.join(state_name(failure.index));
        if !path.exists() {
            failure.state.write(&path)?;
        }
    }
    let StateOptions { recording, begin, .. } = &options.states;
    let all_marks = marks(Reader::open(recording)?)?;
    CrashReport::new(recording, *begin, words.to_vec(), exploration, all_marks)
}

/// Position of the event behind the first mark with this text. Fails with [`ErrorKind::Invalid`] if there is none.
pub fn begin_behind(marks: &[Mark], text: &str) -> Result<u64> {
    if let Some(mark) = marks.iter().find(|mark| mark.text == text) {
        return Ok(mark.position + 1);
    }
    let some: Vec<String> = marks.iter().take(MARKS_TOLD).map(|mark| format!("`{}`", mark.text)).collect();
    let what = match some.is_empty() {
        true => format!("the recording has no mark `{text}`; it has none at all"),
        false => format!("the recording has no mark `{text}`; its first marks are {}", some.join(", ")),
    };
    Err(Error::new(ErrorKind::Invalid, what))
}
