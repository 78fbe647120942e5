//! All cells of a file system, by several workers, each cell written down as soon as it is done. What was begun before
//! goes on where it stood.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::hash::mix;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_kinds::Kind;
use rotproof_machine::Cancel;
use rotproof_machine::registry::Run;
use serde::{Deserialize, Serialize};

use crate::act::Sets;
use crate::cell::{Cell, Copies, Done, Outcome};
use crate::effect::Effect;
use crate::operation::Operation;
use crate::scout::Scout;
use crate::system::System;
use crate::worker::{Worker, too_many};

/// What to do.
#[derive(Clone, Debug)]
pub struct CampaignOptions {
    /// The file system.
    pub system: System,
    /// Words of kinds of blocks; empty: all that there are.
    pub kinds: Vec<String>,
    /// Effects; empty: all.
    pub effects: Vec<Effect>,
    /// Operations; empty: all.
    pub operations: Vec<Operation>,
    /// So many of the cells that are reached, as the seed draws them; otherwise all, with those that are not.
    pub sample: Option<usize>,
    /// Cells done at the same time.
    pub workers: usize,
    /// Root of all that chance decides.
    pub seed: u64,
    /// Where the results go.
    pub folder: PathBuf,
}

/// What a results folder is of. What goes on must be the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The file system.
    pub subject: String,
    /// The seed.
    pub seed: u64,
    /// The kernel whose file system it is, as uname says.
    pub kernel: String,
    /// Bytes of the device.
    pub device_bytes: u64,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Cells that are done.
    pub done: usize,
    /// All.
    pub all: usize,
}

/// What it found.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// What it is of.
    pub head: Head,
    /// Every cell, in the order of the table.
    pub cells: Vec<Done>,
    /// Whether all are done.
    pub is_complete: bool,
}

/// Names in the folder.
const HEAD: &str = "react.json";
const CELLS: &str = "cells.jsonl";

/// Does all cells, with everything that it creates on record in `run`. `tell` hears of progress. Ends in order when `cancel`
/// says so.
pub fn react(
    run: &Run,
    options: &CampaignOptions,
    cancel: &Cancel,
    tell: &(dyn Fn(Progress) + Sync),
) -> Result<Campaign> {
    let size = options.system.device_bytes();
    let head = Head {
        subject: options.system.name().into(),
        seed: options.seed,
        kernel: kernel()?,
        device_bytes: size,
    };
    let known = begin(&options.folder, &head)?;
    let mut first = Worker::new(run, options.system, 0, size);
    let (mut stage, medium) = first.stage()?;
    let sets = Arc::new(Sets::make(&mut *stage, &medium)?);
    let mut scouts = BTreeMap::new();
    let wanted =
        |operation: &Operation| options.operations.is_empty() || options.operations.contains(operation);
    for operation in Operation::ALL.into_iter().filter(wanted) {
        cancel.check()?;
        scouts.insert(operation, Scout::go(&mut *stage, &medium, &sets, operation)?);
    }
    first.keep((stage, medium));
    let cells = cells(options, &scouts, &sets);
    if cells.is_empty() {
        first.end()?;
        return Err(too_many(options.system));
    }
    let rest: Vec<&Cell> = cells.iter().filter(|cell| !known.contains_key(*cell)).collect();
    let file = options.folder.join(CELLS);
    let doing = || format!("writing {}", file.display());
    let log = Mutex::new(OpenOptions::new().append(true).create(true).open(&file).doing(doing)?);
    let found = Mutex::new(known);
    let next = AtomicUsize::new(0);
    let work = |worker: &mut Worker| -> Result<()> {
        while let Some(cell) =
            rest.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !cancel.is_cancelled())
        {
            let done = worker.do_cell(cell, &sets, &scouts[&cell.operation], options.seed)?;
            let line = serde_json::to_string(&done)
                .map_err(|error| Error::new(ErrorKind::Internal, "writing JSON").caused_by(error))?;
            log.lock().write_all(format!("{line}\n").as_bytes()).doing(doing)?;
            let mut found = found.lock();
            found.insert(done.cell.clone(), done);
            tell(Progress { done: found.len().min(cells.len()), all: cells.len() });
        }
        Ok(())
    };
    let mut workers = vec![first];
    let count = options.workers.clamp(1, rest.len().max(1));
    workers.extend((1..count).map(|number| Worker::new(run, options.system, number, size)));
    let ended: Vec<Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                scope.spawn(|| {
                    let worked = work(&mut worker);
                    worked.and(worker.end())
                })
            })
            .collect();
        let broken = || Err(Error::new(ErrorKind::Internal, "a worker ended in the middle of a cell"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| broken())).collect()
    });
    ended.into_iter().collect::<Result<()>>()?;
    let mut found = found.into_inner();
    let cells_done: Vec<Done> = cells.iter().filter_map(|cell| found.remove(cell)).collect();
    Ok(Campaign { head, is_complete: cells_done.len() == cells.len(), cells: cells_done })
}

/// The cells that are asked for, in the order of the table.
fn cells(options: &CampaignOptions, scouts: &BTreeMap<Operation, Scout>, sets: &Sets) -> Vec<Cell> {
    let mut kinds: BTreeMap<Kind, bool> = BTreeMap::new();
    for (kind, has_copies) in scouts.values().flat_map(Scout::kinds) {
        *kinds.entry(kind).or_insert(false) |= has_copies;
    }
    let order: Vec<Kind> = Kind::all().filter(|kind| kinds.contains_key(kind)).collect();
    let mut cells = Vec::new();
    for kind in order {
        if !options.kinds.is_empty() && !options.kinds.iter().any(|word| kind.is_meant_by(word)) {
            continue;
        }
        let all = if kinds[&kind] { &[Copies::One, Copies::All][..] } else { &[Copies::One] };
        for (&copies, effect) in all.iter().flat_map(|copies| Effect::ALL.map(|effect| (copies, effect))) {
            if options.effects.is_empty() || options.effects.contains(&effect) {
                let cell =
                    |&operation: &Operation| Cell { kind: kind.word().into(), copies, effect, operation };
                cells.extend(scouts.keys().map(cell));
            }
        }
    }
    if let Some(count) = options.sample {
        cells.retain(|cell| !scouts[&cell.operation].aims(cell, sets, options.seed).is_empty());
        cells.sort_by_key(|cell| mix(options.seed, cell.key(), 0));
        cells.truncate(count);
    }
    cells
}

/// Makes the folder, or looks into one that was begun: the cells that are done.
fn begin(folder: &Path, head: &Head) -> Result<BTreeMap<Cell, Done>> {
    let doing = || format!("beginning in {}", folder.display());
    fs::create_dir_all(folder).doing(doing)?;
    let path = folder.join(HEAD);
    match fs::read(&path) {
        Ok(bytes) => {
            let of: Head = serde_json::from_slice(&bytes).map_err(|error| {
                Error::new(ErrorKind::Invalid, format!("{} is damaged", path.display())).caused_by(error)
            })?;
            if of != *head {
                let what = format!(
                    "{} has cells of {} on {} with seed {}; go on with those, or name another folder",
                    folder.display(),
                    of.subject,
                    of.kernel,
                    of.seed
                );
                return Err(Error::new(ErrorKind::Refused, what));
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = serde_json::to_string_pretty(head)
                .map_err(|error| Error::new(ErrorKind::Internal, "writing JSON").caused_by(error))?;
            fs::write(&path, text + "\n").doing(doing)?;
            return Ok(BTreeMap::new());
        }
        Err(error) => return Err(Error::from_io(error, doing())),
    }
    Ok(cells_of(folder)?.into_iter().map(|done| (done.cell.clone(), done)).collect())
}

/// The cells that a folder has. A last line that was cut off is a cell that was not done; what nobody knew is tried again.
fn cells_of(folder: &Path) -> Result<Vec<Done>> {
    let path = folder.join(CELLS);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::from_io(error, format!("reading {}", path.display()))),
    };
    let lines: Vec<&str> = text.lines().collect();
    let mut cells = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        match serde_json::from_str::<Done>(line) {
            Ok(done) if matches!(done.outcome, Outcome::Unknown(_)) => {}
            Ok(done) => cells.push(done),
            Err(_) if number + 1 == lines.len() && !text.ends_with('\n') => {
                // The next cell must not be written behind it.
                let whole = text.len() - line.len();
                let file = OpenOptions::new().write(true).open(&path);
                file.and_then(|file| file.set_len(whole as u64))
                    .doing(|| format!("mending {}", path.display()))?;
            }
            Err(error) => {
                let what = format!("line {} of {} is no cell", number + 1, path.display());
                return Err(Error::new(ErrorKind::Invalid, what).caused_by(error));
            }
        }
    }
    let mut seen = BTreeSet::new();
    cells.retain(|done| seen.insert(done.cell.clone()));
    Ok(cells)
}

fn kernel() -> Result<String> {
    let read = |name: &str| {
        let path = format!("/proc/sys/kernel/{name}");
        fs::read_to_string(&path).map(|text| text.trim().to_owned()).doing(|| format!("reading {path}"))
    };
    Ok(format!("{} {}", read("ostype")?, read("osrelease")?))
}
