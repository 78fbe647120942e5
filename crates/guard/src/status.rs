//! What a guard can say of itself, and its sums for others to read.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::Result;
use rotproof_block::error::IoContext;
use serde::Serialize;

use crate::counts::CountsNow;
use crate::file::{GuardedFile, blocks_of};
use crate::journal::{Event, What};
use crate::live::flag;
use crate::store::{Store, hex};
use crate::sum::Sum;
use crate::take::Standing;
use crate::walk::{FoundFile, files_below, open_to_read};

/// Events that are shown.
const EVENTS_SHOWN: usize = 20;

/// A file with blocks that failed before they were durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileErrors {
    /// Below the guarded directory.
    pub file: String,
    /// Blocks, the first of them.
    pub blocks: Vec<u64>,
    /// How many.
    pub failed: u64,
}

/// See the head of the module.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The guarded directory.
    pub root: String,
    /// The folder of the guard.
    pub folder: String,
    /// Of this guard.
    pub id: String,
    /// The light checksum.
    pub light: &'static str,
    /// The strong checksum.
    pub strong: &'static str,
    /// Seconds after which the strong one is verified again; none: never (static).
    pub switch_seconds: Option<u32>,
    /// Files of the directory.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these, files that are guarded as a whole.
    pub guarded: u64,
    /// Files that were never taken in.
    pub unguarded: Vec<String>,
    /// Files that were changed behind the guard's back.
    pub foreign: Vec<String>,
    /// Bytes of all tables and slots.
    pub table_bytes: u64,
    /// Files that are open in some process, or have sums that are not on the disk yet.
    pub open: u64,
    /// The error tables.
    pub errors: Vec<FileErrors>,
    /// What was verified since the guard was made, and what came of it.
    pub verified: CountsNow,
    /// How many events of each kind there were.
    pub events: BTreeMap<What, u64>,
    /// The last of them.
    pub last_events: Vec<Event>,
    /// Lines of the journal that cannot be read.
    pub events_damaged: u64,
}

/// The inodes of which the disk has sums.
pub(crate) fn known_inodes(store: &Store) -> Result<Vec<u64>> {
    let (mut inodes, _) = store.slots.all()?;
    inodes.extend(tables(store)?.into_iter().map(|(inode, _)| inode));
    inodes.sort_unstable();
    inodes.dedup();
    Ok(inodes)
}

/// Inodes and bytes of all tables.
fn tables(store: &Store) -> Result<Vec<(u64, u64)>> {
    let folder = store.tables();
    let doing = || format!("reading {}", folder.display());
    let mut found = Vec::new();
    for inner in std::fs::read_dir(&folder).doing(doing)? {
        let inner = inner.doing(doing)?.path();
        for entry in std::fs::read_dir(&inner).doing(doing)? {
            let entry = entry.doing(doing)?;
            let name = entry.file_name();
            let Some(inode) = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok()) else {
                continue;
            };
            // A table that is removed meanwhile has no bytes.
            use std::os::unix::fs::MetadataExt;
            let bytes = entry.metadata().map_or(0, |metadata| metadata.blocks() * 512);
            found.push((inode, bytes));
        }
    }
    Ok(found)
}

/// Looks at every file's standing, not at its data.
pub fn status(store: &Arc<Store>) -> Result<Status> {
    store.let_go(std::time::Duration::ZERO);
    let settings = store.settings();
    let (files, _) = files_below(store, store.root());
    let open = store.live_inodes();
    let mut status = Status {
        root: store.root().display().to_string(),
        folder: store.folder().display().to_string(),
        id: hex(&settings.id),
        light: settings.pair.light.word(),
        strong: settings.pair.strong.word(),
        switch_seconds: settings.switch_seconds,
        files: files.len() as u64,
        bytes: files.iter().map(|file| file.size).sum(),
        guarded: 0,
        unguarded: Vec::new(),
        foreign: Vec::new(),
        table_bytes: tables(store)?.iter().map(|(_, bytes)| bytes).sum::<u64>() + store.slots.all()?.1,
        open: open.len() as u64,
        errors: Vec::new(),
        verified: store.counts_of_all(),
        events: BTreeMap::new(),
        last_events: Vec::new(),
        events_damaged: 0,
    };
    for found in &files {
        let Some(file) = open_found(store, found) else { continue };
        let name = file.current_name().to_string_lossy().into_owned();
        let (blocks, failed) = file.errors();
        if failed > 0 {
            status.errors.push(FileErrors { file: name.clone(), blocks, failed });
        }
        match file.standing() {
            Standing::Guarded => status.guarded += 1,
            Standing::Unknown => status.unguarded.push(name),
            Standing::Foreign => status.foreign.push(name),
        }
    }
    let (events, damaged) = store.journal().read()?;
    for event in &events {
        *status.events.entry(event.what).or_default() += event.blocks;
    }
    status.events_damaged = damaged as u64;
    status.last_events = events[events.len().saturating_sub(EVENTS_SHOWN)..].to_vec();
    Ok(status)
}

fn open_found(store: &Arc<Store>, found: &FoundFile) -> Option<Arc<GuardedFile>> {
    let file = open_to_read(&found.path).ok()?;
    GuardedFile::open(store, file.as_raw_fd(), false, &found.path).ok()
}

/// The sums of one file.
#[derive(Clone, Debug, Serialize)]
pub struct ExportedFile {
    /// Below the guarded directory.
    pub file: String,
    /// Bytes.
    pub size: u64,
    /// What is known of it.
    pub standing: Standing,
    /// The light sum of each block, hexadecimal; none where nothing vouches for it.
    pub light: Vec<Option<String>>,
    /// The strong ones.
    pub strong: Vec<Option<String>>,
}

/// Gives the sums of every file, one after the other, until `tell` says that it is enough.
pub fn export(store: &Arc<Store>, tell: &mut dyn FnMut(ExportedFile) -> Result<bool>) -> Result<()> {
    let (files, failed) = files_below(store, store.root());
    if let Some((path, error)) = failed.into_iter().next() {
        return Err(error).doing(|| format!("looking at {}", path.display()));
    }
    let words = store.settings().pair.strong.words();
    for found in &files {
        let Some(file) = open_found(store, found) else { continue };
        let (mut light, mut strong) = (Vec::new(), Vec::new());
        for block in 0..blocks_of(file.size()) {
            let _lock = file.lock_writers()?;
            file.ensure(block)?;
            let entry = file.live.at(block);
            let flags = entry.flags.load(Ordering::Acquire);
            let show = |is_known: bool, sum: &[u64]| {
                is_known.then(|| sum.iter().map(|word| format!("{word:016x}")).collect::<String>())
            };
            light.push(show(flags & flag::KNOWN != 0, &[entry.light.load(Ordering::Relaxed)]));
            let Sum(all) = entry.strong();
            strong.push(show(flags & flag::STRONG != 0, &all[..words]));
        }
        let exported = ExportedFile {
            file: file.current_name().to_string_lossy().into_owned(),
            size: file.size(),
            standing: file.standing(),
            light,
            strong,
        };
        if !tell(exported)? {
            break;
        }
    }
    Ok(())
}
