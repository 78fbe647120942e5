//! The course of a cell, as that of a volume's: written, hit, read back by each way there is, scrubbed; then the fault ends, and
//! all is looked at once more.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::hash::mix;
use rotproof_block::{Buffer, Error, ErrorKind, Result};
use rotproof_machine::registry::Run;
use rotproof_matrix::{BLOCK, Cell, Fate, Fault, Oracle, Place, When};

use crate::aim::{RuleAt, What};
use crate::btrfs::{self, Btrfs};
use crate::members::Members;
use crate::peer::{Peer, System};
use crate::rules::{HANG, is_before_writes, rule_of};
use crate::zfs::{self, Zfs};

/// Blocks that are in use, all of one file.
const BLOCKS: usize = 64;
/// The one that is hit, where data are, and the one that a misdirected write lands on.
const TARGET: usize = 20;
const OTHER: usize = 45;
/// Requests under load.
const REQUESTS: u64 = 300;
/// How often everything is read back.
const ROUNDS: usize = 4;
const FILE: &str = "file";
/// A cell that takes longer hangs.
const CELL_MAX: Duration = Duration::from_secs(150);
/// How often a fault that hangs hits.
const HANGS: u64 = 2;

/// What was seen while a cell was done.
#[derive(Default)]
struct Seen {
    is_wrong: bool,
    is_late: bool,
    errors: Vec<String>,
}

/// A cell under way.
struct Course<'a> {
    system: &'a mut dyn System,
    /// The file as who writes to it has it open, from the first write on.
    file: Option<File>,
    oracle: Oracle,
    seen: Seen,
    fault: Fault,
}

/// Does a cell. `name` is that of a folder that nobody else uses. An error is one of the machine: then nobody knows what the
/// system does there.
pub fn peer_cell(
    run: &Run,
    name: &str,
    peer: Peer,
    (fault, place, when): (Fault, Place, When),
    seed: u64,
) -> Result<Cell> {
    let recognise = match peer {
        Peer::Btrfs => btrfs::recognise,
        Peer::Zfs => zfs::recognise,
    };
    let seed = mix(seed, fault as u64, place as u64 * 2 + when as u64);
    let mut members = Members::new(run, name, seed, recognise)?;
    let mut system: Box<dyn System> = match peer {
        Peer::Btrfs => Box::new(Btrfs::make(&mut members)?),
        Peer::Zfs => Box::new(Zfs::make(run, &mut members, FILE)?),
    };
    let kill = system.kill();
    let is_hung = AtomicBool::new(false);
    let (over, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let is_hung = &is_hung;
        scope.spawn(move || {
            if ended.recv_timeout(CELL_MAX) == Err(mpsc::RecvTimeoutError::Timeout) {
                is_hung.store(true, Ordering::SeqCst);
                kill();
            }
        });
        let oracle = Oracle::new(seed, BLOCKS);
        let mut course = Course { system: &mut *system, file: None, oracle, seen: Seen::default(), fault };
        let cell = course.run(&members, place, when, seed);
        drop(over);
        drop(system);
        let mut cell = cell?;
        if is_hung.load(Ordering::SeqCst) && cell.fate != Fate::Silent {
            cell.fate = Fate::Hung;
        }
        Ok(cell)
    })
}

impl Course<'_> {
    fn run(&mut self, members: &Members, place: Place, when: When, seed: u64) -> Result<Cell> {
        let fault = self.fault;
        self.begin()?;
        let targets = place.members();
        let what = match place {
            _ if place.is_data() => Some(What::Data(TARGET)),
            Place::SumsA | Place::Sums => Some(What::Sums),
            Place::MapA | Place::Map => Some(What::Map),
            _ => None,
        };
        // Faults of the whole device, and of what never moves, need no aim.
        let is_fixed = fault == Fault::Gone || what.is_none();
        let has_aim = what.is_some_and(|what| members.aims.iter().any(|aim| aim.place(what).is_some()));
        let is_early = when == When::Load || is_before_writes(fault);
        if is_early && is_fixed {
            self.hit_places(members, place, when)?;
        } else if is_early && has_aim {
            let rule: RuleAt = Arc::new(move |at, other| rule_of(fault, when, &[at], other));
            let every = if when == When::Load { 2 } else { 1 };
            let most = if fault == Fault::Hang { HANGS } else { u64::MAX };
            for member in targets {
                let what = what.unwrap_or(What::Map);
                members.aims[*member].arm(what, What::Data(OTHER), every, most, Arc::clone(&rule));
            }
        }
        members.wake(true);
        let mut is_known = true;
        match when {
            When::Rest => {
                self.write_half();
                self.end();
                if is_before_writes(fault) && fault != Fault::Stale {
                    members.wake(false);
                } else if !is_before_writes(fault) {
                    is_known = self.hit_at_rest(members, place, what.filter(|_| !is_fixed))?;
                }
            }
            When::Load => {
                self.load(seed);
                self.end();
            }
        }
        self.look(false);
        let (hits, is_aimed) = members.end_rules()?;
        is_known &= !is_early || is_fixed || is_aimed;
        members.wake(false);
        let is_whole = self.look(true);
        let is_cured_by_rewriting = !self.seen.errors.is_empty() && self.rewrite();
        let error = self.seen.errors.first().cloned();
        let fate = match () {
            () if self.seen.is_wrong => Fate::Silent,
            () if !is_known => Fate::Unknown,
            () if hits == 0 => Fate::Unmet,
            () if error.is_some() => Fate::Reported,
            () if self.seen.is_late => Fate::Waited,
            () if is_whole => Fate::Repaired,
            () => Fate::Masked,
        };
        Ok(Cell { fault, place, when, fate, hits, error, is_cured_by_rewriting })
    }

    /// Writes everything, more than once. No fault acts yet, so whatever goes wrong is the machine's fault.
    fn begin(&mut self) -> Result<()> {
        self.system.mount(&mut Vec::new())?;
        for blocks in [BLOCKS, BLOCKS, BLOCKS / 2] {
            for block in 0..blocks {
                self.write(block);
            }
            self.commit();
        }
        match self.seen.errors.pop() {
            Some(error) => Err(Error::new(ErrorKind::Internal, error)),
            None => Ok(()),
        }
    }

    /// Rules for places that do not move.
    fn hit_places(&mut self, members: &Members, place: Place, when: When) -> Result<()> {
        let places = if self.fault == Fault::Gone { vec![0] } else { self.system.places(place)? };
        for member in place.members() {
            let other = members.aims[*member].place(What::Data(OTHER)).unwrap_or(0);
            members.add(*member, rule_of(self.fault, when, &places, other)?)?;
        }
        Ok(())
    }

    /// Rules for where things are while nobody uses them. Whether that is known.
    fn hit_at_rest(&mut self, members: &Members, place: Place, what: Option<What>) -> Result<bool> {
        let Some(what) = what else { return self.hit_places(members, place, When::Rest).map(|()| true) };
        let mut told = None;
        for member in place.members() {
            let aim = &members.aims[*member];
            let places = match aim.place(what) {
                Some(at) => vec![at],
                None => {
                    if told.is_none() {
                        told = Some(self.system.places(place)?);
                    }
                    told.clone().unwrap_or_default()
                }
            };
            if places.is_empty() {
                return Ok(false);
            }
            let other = aim.place(What::Data(OTHER)).unwrap_or(0);
            members.add(*member, rule_of(self.fault, When::Rest, &places, other)?)?;
        }
        Ok(true)
    }

    /// Does something, and looks how long it takes.
    fn timed<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let began = Instant::now();
        let done = work(self);
        self.seen.is_late |= self.fault == Fault::Hang && began.elapsed() >= HANG.mul_f64(0.9);
        done
    }

    fn write(&mut self, block: usize) {
        self.timed(|course| {
            let write = course.oracle.next_write();
            let bytes = course.oracle.content(block, write);
            let written =
                course.open_file().and_then(|file| file.write_all_at(&bytes, (block * BLOCK) as u64));
            match written {
                Ok(()) => course.oracle.acknowledged(block, write),
                Err(error) => {
                    course.seen.errors.push(format!("write: {error}"));
                    course.oracle.failed(block, write);
                }
            }
        });
    }

    fn open_file(&mut self) -> std::io::Result<&File> {
        if self.file.is_none() {
            let path = self.system.folder().join(FILE);
            self.file = Some(File::options().write(true).create(true).truncate(false).open(path)?);
        }
        self.file.as_ref().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    /// Asks for everything to be made durable in each way there is, so that an error is answered by one if by any.
    fn committed(&mut self) -> Result<()> {
        self.system.commit()?;
        match &self.file {
            Some(file) => file.sync_all().doing(|| "fsync".to_owned()),
            None => Ok(()),
        }
    }

    fn commit(&mut self) {
        self.timed(|course| match course.committed() {
            Ok(()) => course.oracle.flushed(),
            Err(error) => {
                course.seen.errors.push(error.to_string());
                course.oracle.dropped();
            }
        });
    }

    fn write_half(&mut self) {
        (0..BLOCKS / 2).for_each(|block| self.write(block));
    }

    /// Everything is put away.
    fn end(&mut self) {
        if self.file.is_some() {
            self.commit();
            self.file = None;
        }
        self.timed(|course| match course.system.unmount() {
            Ok(()) => course.oracle.flushed(),
            Err(error) => {
                course.seen.errors.push(error.to_string());
                course.oracle.dropped();
            }
        });
    }

    /// Reads and writes blocks as chance says.
    fn load(&mut self, seed: u64) {
        for number in 0..REQUESTS {
            let draw = mix(seed, 77, number);
            let block = if draw.is_multiple_of(3) { TARGET } else { (draw >> 8) as usize % BLOCKS };
            if (draw >> 40).is_multiple_of(2) {
                self.write(block);
            } else {
                let read = self.timed(|course| {
                    let path = course.system.folder().join(FILE);
                    let file = course.system.open_to_read(&path).map_err(|error| format!("open: {error}"));
                    file.and_then(|file| read_block(&file, block))
                });
                self.judge(block, read);
            }
            if number % 20 == 19 {
                self.commit();
            }
        }
    }

    fn judge(&mut self, block: usize, read: Result<Buffer, String>) {
        match read {
            Ok(bytes) => self.seen.is_wrong |= !self.oracle.is_right(block, &bytes),
            Err(error) => {
                self.seen.errors.push(error);
                // A write that could not be brought to the members may be told of by a read, and is then undone.
                self.oracle.dropped();
            }
        }
    }

    /// Mounts it, reads all, scrubs, and puts it away. Whether everything was found right in the end.
    fn look(&mut self, scrubs_twice: bool) -> bool {
        let mut reports = Vec::new();
        let mounted = self.timed(|course| course.system.mount(&mut reports));
        self.seen.errors.append(&mut reports);
        if let Err(error) = mounted {
            self.seen.errors.push(error.to_string());
            // A daemon may be there all the same.
            let _ = self.system.unmount();
            return false;
        }
        for round in 0..ROUNDS {
            let reads = self.timed(|course| course.read_all(round as libc::pid_t % 2));
            for (block, read) in reads.into_iter().enumerate() {
                self.judge(block, read);
            }
        }
        let first = self.timed(|course| course.system.scrub());
        let last = if scrubs_twice { self.system.scrub() } else { first };
        self.end();
        last.is_ok_and(|errors| errors == 0)
    }

    /// Reads all blocks on a thread whose number is odd or even: btrfs takes the copy to read by that.
    fn read_all(&self, parity: libc::pid_t) -> Vec<Result<Buffer, String>> {
        let path = self.system.folder().join(FILE);
        // The system itself stays here.
        let opened = self.system.open_to_read(&path);
        let file = match &opened {
            Ok(file) => file,
            Err(error) => return (0..BLOCKS).map(|_| Err(format!("open: {error}"))).collect(),
        };
        loop {
            let read = std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    // SAFETY: takes nothing.
                    let is_it = unsafe { libc::gettid() } % 2 == parity;
                    is_it.then(|| (0..BLOCKS).map(|block| read_block(file, block)).collect::<Vec<_>>())
                });
                reader.join().unwrap_or_default()
            });
            if let Some(read) = read {
                return read;
            }
        }
    }

    /// Writes everything anew. Whether it is right then.
    fn rewrite(&mut self) -> bool {
        let before = std::mem::take(&mut self.seen);
        let is_mounted = self.system.mount(&mut Vec::new()).is_ok();
        if is_mounted {
            (0..BLOCKS).for_each(|block| self.write(block));
            self.commit();
            self.end();
            self.look(false);
        }
        let after = std::mem::replace(&mut self.seen, before);
        is_mounted && !after.is_wrong && after.errors.is_empty()
    }
}

fn read_block(file: &File, block: usize) -> Result<Buffer, String> {
    let mut bytes = Buffer::zeroed(BLOCK);
    let read = file.read_exact_at(&mut bytes, (block * BLOCK) as u64);
    read.map(|()| bytes).map_err(|error| format!("read: {error}"))
}
