//! A cell of the matrix, done on a volume of two members with checksums and versions.

use std::sync::Arc;

use rotproof_block::hash::mix;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_volume::copies::MemberState;
use rotproof_volume::member::{VersionsPolicy, places};
use rotproof_volume::mirror::Pace;
use rotproof_volume::volume::{Volume, VolumeOptions};

use crate::bench::Bench;
use crate::cell::{Cell, Fate, Fault, Place, When};
use crate::oracle::{BLOCK, Oracle};
use crate::rules::{is_before_writes, rule_of};

/// Blocks that are in use.
const BLOCKS: usize = 64;
/// The one that is hit, where data are.
const TARGET: usize = 20;
/// The one that a misdirected write lands on.
const OTHER: usize = 45;
/// Requests under load.
const REQUESTS: u64 = 300;
/// How often everything is read back: each copy of every block is asked at least once.
const ROUNDS: usize = 4;

/// What was seen while a cell was done.
#[derive(Default)]
struct Seen {
    is_wrong: bool,
    error: Option<String>,
}

impl Seen {
    fn failed(&mut self, error: &Error) {
        self.error.get_or_insert_with(|| error.to_string());
    }
}

/// Does a cell; the same with the same seed. An error is one of the cell, not of the volume.
pub fn volume_cell(fault: Fault, place: Place, when: When, seed: u64) -> Result<Cell> {
    cell_of(fault, place, when, seed, true)
}

/// The same, with or without checksums.
pub(crate) fn cell_of(
    fault: Fault,
    place: Place,
    when: When,
    seed: u64,
    has_checksums: bool,
) -> Result<Cell> {
    let seed = mix(seed, fault as u64, place as u64 * 2 + when as u64);
    let bench = Bench::new(seed)?;
    let policy = VersionsPolicy { reserve_percent: 30, every_ms: 0, keep: 4 };
    let checksum = VolumeOptions::default().checksum.filter(|_| has_checksums);
    bench.create(VolumeOptions { versions: Some(policy), checksum, ..VolumeOptions::default() })?;
    let (mut oracle, mut seen) = (Oracle::new(seed, BLOCKS), Seen::default());
    let volume = bench.open()?;
    for _ in 0..2 {
        for block in 0..BLOCKS {
            bench.write(&*volume, block, &mut oracle)?;
        }
        bench.flush(&*volume, &mut oracle)?;
    }
    // One version, so that the map says more than one thing.
    bench.runtime.block_on(volume.capture(&bench.runtime, "before", 1))??;
    for block in 0..BLOCKS / 2 {
        bench.write(&*volume, block, &mut oracle)?;
    }
    bench.flush(&*volume, &mut oracle)?;
    let offsets = offsets_of(&bench, &volume, place, &oracle)?;
    let content = oracle.current(OTHER).unwrap_or_default();
    let other = bench.find(0, &content)?.ok_or_else(|| internal("a block that was written is there"))?;
    let rule = |_: usize| rule_of(fault, when, &offsets, other);
    let members = place.members();
    bench.wake(true);
    match when {
        When::Rest => {
            if is_before_writes(fault) {
                bench.add(members, rule)?;
            }
            // What is hit is written once more, and all is put away.
            for block in 0..BLOCKS / 2 {
                if let Err(error) = bench.write(&*volume, block, &mut oracle) {
                    seen.failed(&error);
                }
            }
            close(&bench, volume, &mut oracle, &mut seen);
            if is_before_writes(fault) && fault != Fault::Stale {
                bench.wake(false);
            } else if !is_before_writes(fault) {
                bench.add(members, rule)?;
            }
        }
        When::Load => {
            bench.add(members, rule)?;
            load(&bench, &volume, &mut oracle, &mut seen, seed);
            close(&bench, volume, &mut oracle, &mut seen);
        }
    }
    look(&bench, &mut oracle, &mut seen);
    let hits = bench.end_rules()?;
    bench.wake(false);
    // The fault is over; what is behind is brought up to date, and everything looked at once more.
    let mut is_whole = look(&bench, &mut oracle, &mut seen);
    for offset in offsets.iter().copied().chain([other]) {
        is_whole &= place == Place::RecordA
            || place == Place::Record
            || bench.handed_out(0, offset)? == bench.handed_out(1, offset)?;
    }
    let is_cured_by_rewriting = seen.error.is_some() && rewrite(&bench, &mut oracle);
    let fate = match (seen.is_wrong, &seen.error) {
        (true, _) => Fate::Silent,
        _ if hits == 0 => Fate::Unmet,
        (false, Some(_)) => Fate::Reported,
        (false, None) if is_whole => Fate::Repaired,
        (false, None) => Fate::Masked,
    };
    Ok(Cell { fault, place, when, fate, hits, error: seen.error, is_cured_by_rewriting })
}

fn internal(what: &str) -> Error {
    Error::new(ErrorKind::Internal, what)
}

/// Where on a member the place is.
fn offsets_of(bench: &Bench, volume: &Volume, place: Place, oracle: &Oracle) -> Result<Vec<u64>> {
    let target = (TARGET * BLOCK) as u64;
    match place {
        Place::DataA | Place::DataB | Place::Data => {
            let content = oracle.current(TARGET).unwrap_or_default();
            let found = bench.find(0, &content)?;
            Ok(vec![found.ok_or_else(|| internal("a block that was written is there"))?])
        }
        Place::SumsA | Place::Sums => {
            let content = oracle.current(TARGET).unwrap_or_default();
            let at = bench.find(0, &content)?.ok_or_else(|| internal("a block that was written is there"))?;
            Ok(volume.places_of_sums(at))
        }
        Place::MapA | Place::Map => Ok(volume.places_of_map(target)),
        Place::RecordA | Place::Record => {
            let size = bench.members[0].engine.device_size();
            Ok(places(size)
                .into_iter()
                .flatten()
                .flat_map(|at| (0..16).map(move |block| at + block * 4096))
                .collect())
        }
    }
}

fn close(bench: &Bench, volume: Arc<Volume>, oracle: &mut Oracle, seen: &mut Seen) {
    let closed = bench.runtime.block_on(volume.close(&bench.runtime)).and_then(|closed| closed);
    match closed {
        Ok(()) => oracle.flushed(),
        Err(error) => {
            seen.failed(&error);
            oracle.dropped();
        }
    }
    drop(volume);
    bench.runtime.abandon_tasks();
}

/// Reads and writes blocks as chance says.
fn load(bench: &Bench, volume: &Volume, oracle: &mut Oracle, seen: &mut Seen, seed: u64) {
    for number in 0..REQUESTS {
        let draw = mix(seed, 77, number);
        // The one that is hit often enough, and its neighbours.
        let block = if draw.is_multiple_of(3) { TARGET } else { (draw >> 8) as usize % oracle.blocks() };
        if (draw >> 40).is_multiple_of(2) {
            if let Err(error) = bench.write(volume, block, oracle) {
                seen.failed(&error);
            }
        } else {
            look_at(bench, volume, block, oracle, seen);
        }
        if number % 20 == 19
            && let Err(error) = bench.flush(volume, oracle)
        {
            seen.failed(&error);
        }
    }
}

fn look_at(bench: &Bench, volume: &Volume, block: usize, oracle: &Oracle, seen: &mut Seen) {
    match bench.read(volume, (block * BLOCK) as u64, BLOCK) {
        Ok(bytes) => seen.is_wrong |= !oracle.is_right(block, &bytes),
        Err(error) => seen.failed(&error),
    }
}

/// Opens the volume, reads all, scrubs, rebuilds, closes. Whether nothing was left to be done.
fn look(bench: &Bench, oracle: &mut Oracle, seen: &mut Seen) -> bool {
    let volume = match bench.open() {
        Ok(volume) => volume,
        Err(error) => {
            seen.failed(&error);
            return false;
        }
    };
    for _ in 0..ROUNDS {
        for block in 0..oracle.blocks() {
            look_at(bench, &volume, block, oracle, seen);
        }
    }
    let (runtime, pace) = (&bench.runtime, Pace::default());
    let rebuild = runtime.block_on(volume.rebuild(runtime, pace, |_, _| {})).and_then(|done| done);
    let scrub = runtime.block_on(volume.scrub(runtime, pace, |_, _| {})).and_then(|done| done);
    let is_current = volume.status().members.iter().all(|member| member.state == MemberState::Current);
    close(bench, volume, oracle, seen);
    is_current && rebuild.is_ok() && scrub.is_ok_and(|scrub| scrub.left_bytes == 0)
}

/// Writes everything anew. Whether it is right then.
fn rewrite(bench: &Bench, oracle: &mut Oracle) -> bool {
    let Ok(volume) = bench.open() else { return false };
    let (mut seen, mut is_written) = (Seen::default(), true);
    for block in 0..oracle.blocks() {
        is_written &= bench.write(&*volume, block, oracle).is_ok();
    }
    is_written &= bench.flush(&*volume, oracle).is_ok();
    close(bench, volume, oracle, &mut seen);
    look(bench, oracle, &mut seen);
    is_written && !seen.is_wrong && seen.error.is_none()
}
