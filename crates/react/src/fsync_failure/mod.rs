//! What fsync does when it fails: what the application sees, what is in memory and on disk afterwards.
//!
//! After Rebello et al., "Can Applications Recover from fsync Failures?" (USENIX ATC 2020, CuttleFS), section 3: a file is
//! changed through the page cache and made durable, and below the file system one write of a chosen kind of block fails, once
//! or for good. Then the file is read, read again once the page cache was told to let it go, and read after the next mount of a
//! disk that works again.

mod act;
mod device;
mod show;

use std::path::Path;

use rotproof_block::Result;
use rotproof_machine::Cancel;
use rotproof_machine::registry::Run;
use rotproof_subject::FileSystem;
use serde::{Deserialize, Serialize};

pub use show::{fsync_failure_page, fsync_failure_table};

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// The block of the file that was written.
    Data,
    /// A block of the file system's own, outside its journal.
    Metadata,
    /// A block of the journal or log.
    Journal,
}

/// What is done to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A block in its middle is written again.
    Overwrite,
    /// A block is added.
    Append,
}

/// How often the write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Often {
    /// The first time.
    Once,
    /// Until the file system is unmounted.
    Always,
}

/// One cell of the table: on which file system what fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureCell {
    /// The file system.
    pub file_system: String,
    /// Its mode, as a mount option; empty for the only one.
    pub mode: String,
    /// What is done.
    pub change: Change,
    /// What fails.
    pub block: BlockKind,
    /// How often.
    pub often: Often,
}

/// When something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// In write(2).
    Write,
    /// In the first fsync.
    Fsync,
    /// In the second.
    SecondFsync,
    /// When the file was closed.
    Close,
    /// Later, while it was read or when everything was synced.
    Later,
    /// When the file system was unmounted.
    Unmount,
}

/// What the block of the file holds that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// What was written.
    New,
    /// What was there before; of an append, nothing.
    Old,
    /// Zeros.
    Zeros,
    /// Something else.
    Other,
    /// It cannot be read, for this reason.
    Error(String),
}

/// What a cell found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FsyncFailure {
    /// Which.
    #[serde(flatten)]
    pub cell: FailureCell,
    /// When the first write failed; nothing if no such block was written.
    pub failed_at: Option<Moment>,
    /// What write(2) answers: `ok`, or the name of an error.
    pub write: String,
    /// The first fsync.
    pub fsync: String,
    /// The second.
    pub second_fsync: String,
    /// close(2).
    pub close: String,
    /// What a read finds after the first fsync.
    pub in_memory: Holds,
    /// The same once the page cache was told to let go of the file.
    pub evicted: Holds,
    /// The same after the next mount.
    pub on_disk: Holds,
    /// Whether a new file can still be made, or why not.
    pub still_writes: String,
    /// Whether the kernel has said anything of it.
    pub is_logged: bool,
}

impl FsyncFailure {
    /// Whether some fsync after the failure had succeeded, and what was written is not on disk.
    pub fn is_lost_silently(&self) -> bool {
        self.failed_at.is_some() && self.fsync == "ok" && self.on_disk != Holds::New
    }

    /// Whether the second fsync succeeds after the first has failed, though what was written is not on disk.
    pub fn second_lies(&self) -> bool {
        self.fsync != "ok" && self.second_fsync == "ok" && self.on_disk != Holds::New
    }
}

/// A file system and its modes that are looked at.
fn modes(kind: FileSystem) -> &'static [&'static str] {
    match kind {
        FileSystem::Ext4 => &["data=ordered", "data=journal", "data=writeback"],
        _ => &[""],
    }
}

/// The cells of a file system, in the order of the table. btrfs has no journal; its log is a tree like others.
pub fn failure_cells(kind: FileSystem) -> Vec<FailureCell> {
    let blocks: &[BlockKind] = match kind {
        FileSystem::Btrfs => &[BlockKind::Data, BlockKind::Metadata],
        _ => &[BlockKind::Data, BlockKind::Metadata, BlockKind::Journal],
    };
    let mut cells = Vec::new();
    for mode in modes(kind) {
        for &block in blocks {
            for change in [Change::Overwrite, Change::Append] {
                for often in [Often::Once, Often::Always] {
                    let (file_system, mode) = (kind.name().to_owned(), (*mode).to_owned());
                    cells.push(FailureCell { file_system, mode, change, block, often });
                }
            }
        }
    }
    cells
}

/// Does cells of one file system, with everything that it creates on record in `run`. `folder` is one in memory. Ends in order
/// when `cancel` says so.
pub fn fsync_failures(
    run: &Run,
    kind: FileSystem,
    cells: &[FailureCell],
    folder: &Path,
    cancel: &Cancel,
    tell: &mut dyn FnMut(&FsyncFailure),
) -> Result<Vec<FsyncFailure>> {
    let mut bench = act::Bench::new(run, kind, folder)?;
    let mut found = Vec::new();
    for cell in cells {
        cancel.check()?;
        let failure = bench.act(cell)?;
        tell(&failure);
        found.push(failure);
    }
    bench.end()?;
    Ok(found)
}
