//! All cells of a file system, by several workers, each cell written down as soon as it is done. What was begun before
//! goes on where it stood.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::hash::mix;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_kinds::Kind;
use rotproof_machine::Cancel;
use rotproof_machine::registry::Run;
use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Copies, Done, Outcome};
use crate::database::{self, DatabaseCells};
use crate::effect::Effect;
use crate::file_system::FileSystemCells;
use crate::operation::Operation;
use crate::system::{System, machine};
use crate::worker::too_many;

/// What to do.
#[derive(Clone, Debug)]
pub struct CampaignOptions {
    /// The file system or database.
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
    /// The kernel whose file system it is, as uname says, or the program of a database.
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
    let head = Head {
        subject: options.system.name().into(),
        seed: options.seed,
        kernel: match options.system {
            System::Database(kind) => database::version(kind)?,
            System::Kernel(_) | System::Zfs => kernel()?,
            System::Guest(kind, file_system) => {
                let machine = machine(kind, file_system);
                machine.check_requirements()?;
                machine.guest_kind()?.kernel()?
            }
        },
        device_bytes: options.system.device_bytes(),
    };
    let known = begin(&options.folder, &head)?;
    let wanted =
        |operation: &Operation| options.operations.is_empty() || options.operations.contains(operation);
    let operations: Vec<Operation> = options.system.operations().into_iter().filter(wanted).collect();
    let all: Box<dyn Cells> = match options.system {
        System::Database(kind) => Box::new(DatabaseCells::new(run, kind, &operations, options.seed, cancel)?),
        System::Kernel(_) | System::Guest(..) | System::Zfs => {
            Box::new(FileSystemCells::new(run, options.system, &operations, options.seed, cancel)?)
        }
    };
    let cells = cells(options, &operations, &*all);
    if cells.is_empty() {
        all.hands(0)?.end()?;
        return Err(too_many(options.system));
    }
    let rest: Vec<&Cell> = cells.iter().filter(|cell| !known.contains_key(*cell)).collect();
    let file = options.folder.join(CELLS);
    let doing = || format!("writing {}", file.display());
    let log = Mutex::new(OpenOptions::new().append(true).create(true).open(&file).doing(doing)?);
    let found = Mutex::new(known);
    let next = AtomicUsize::new(0);
    let work = |hands: &mut dyn Hands| -> Result<()> {
        while let Some(cell) =
            rest.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !cancel.is_cancelled())
        {
            let done = hands.do_cell(cell)?;
            let line = serde_json::to_string(&done)
                .map_err(|error| Error::new(ErrorKind::Internal, "writing JSON").caused_by(error))?;
            log.lock().write_all(format!("{line}\n").as_bytes()).doing(doing)?;
            let mut found = found.lock();
            found.insert(done.cell.clone(), done);
            tell(Progress { done: found.len().min(cells.len()), all: cells.len() });
        }
        Ok(())
    };
    let count = options.workers.clamp(1, rest.len().max(1));
    let workers = (0..count).map(|number| all.hands(number)).collect::<Result<Vec<_>>>()?;
    let ended: Vec<Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .map(|mut hands| {
                scope.spawn(|| {
                    let worked = work(&mut *hands);
                    worked.and(hands.end())
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

/// What cells there can be, and who does them.
pub(crate) trait Cells {
    /// Kinds that the operations meet, and whether some of a kind are kept more than once; a kind may come several times.
    fn kinds(&self) -> Vec<(Kind, bool)>;
    /// Whether anything that the operation meets is of that kind.
    fn is_reached(&self, cell: &Cell) -> bool;
    /// Somebody who does cells, by his number.
    fn hands(&self, number: usize) -> Result<Box<dyn Hands>>;
}

/// Does one cell after the other, on a thread of his own.
pub(crate) trait Hands: Send {
    /// Does a cell with the first way that is met.
    fn do_cell(&mut self, cell: &Cell) -> Result<Done>;
    /// Takes away what it was done with.
    fn end(self: Box<Self>) -> Result<()>;
}

/// The cells that are asked for, in the order of the table.
fn cells(options: &CampaignOptions, operations: &[Operation], all: &dyn Cells) -> Vec<Cell> {
    let mut kinds: BTreeMap<Kind, bool> = BTreeMap::new();
    for (kind, has_copies) in all.kinds() {
        *kinds.entry(kind).or_insert(false) |= has_copies;
    }
    let order: Vec<Kind> = Kind::all().filter(|kind| kinds.contains_key(kind)).collect();
    let mut cells = Vec::new();
    for kind in order {
        if !options.kinds.is_empty() && !options.kinds.iter().any(|word| kind.is_meant_by(word)) {
            continue;
        }
        let copies = if kinds[&kind] { &[Copies::One, Copies::All][..] } else { &[Copies::One] };
        for (&copies, effect) in copies.iter().flat_map(|copies| Effect::ALL.map(|effect| (copies, effect))) {
            if options.effects.is_empty() || options.effects.contains(&effect) {
                let cell =
                    |&operation: &Operation| Cell { kind: kind.word().into(), copies, effect, operation };
                cells.extend(operations.iter().map(cell));
            }
        }
    }
    if let Some(count) = options.sample {
        cells.retain(|cell| all.is_reached(cell));
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
