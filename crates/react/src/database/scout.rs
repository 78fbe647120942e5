//! Goes through an operation with nothing wrong: which pages, records and frames it reads and writes. A cell can then aim at
//! one that is met.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use rotproof_block::hash::mix;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_kinds::{Extent, FileSystemKind, Kind, Plain};

use super::act::{Ended, act};
use super::desk::{FileTouch, Files, Harm, Place};
use super::engine::{Bench, DatabaseActed, Engine, Sets};
use crate::act::{Acted, must};
use crate::cell::{Cell, Copies};
use crate::effect::Effect;
use crate::image::Image;
use crate::medium::Touch;
use crate::operation::Operation;
use crate::scout::TRIES_MAX;

/// A page of a database, a record or header of its journal, a frame or header of its log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Piece {
    pub(crate) place: Place,
    pub(crate) kind: Kind,
}

/// An operation with nothing wrong.
pub(crate) struct Scout {
    acted: DatabaseActed,
    /// What the files are made of before it, and right after it or when they ended.
    before: Vec<Piece>,
    after: Vec<Piece>,
    /// Those whose first touch is a read, and those that are written; by their places in the lists.
    read_first: Vec<usize>,
    written: Vec<usize>,
    /// What a misdirected write may damage: pages of this kind.
    victim: Plain,
}

/// One way to do a cell.
pub(crate) struct Aim {
    pub(crate) harm: Harm,
    /// The bad piece, by its place in the list.
    pub(crate) target: usize,
    /// What exactly is done, for people.
    pub(crate) words: String,
}

/// What files are made of.
fn pieces(engine: &dyn Engine, files: &Files, touches: &[FileTouch]) -> Result<Vec<Piece>> {
    let touched: HashSet<&str> = touches.iter().map(|touch| touch.place.file.as_str()).collect();
    let mut pieces = Vec::new();
    for (name, map) in engine.maps(files, &touched)? {
        for extent in map.extents() {
            let each = piece_bytes(map.file_system, map.block_bytes, extent);
            for start in (extent.start..extent.end).step_by(each as usize) {
                let place = Place { file: name.clone(), bytes: start..(start + each).min(extent.end) };
                pieces.push(Piece { place, kind: extent.kind });
            }
        }
    }
    Ok(pieces)
}

/// How long one of the pieces is that an extent consists of.
fn piece_bytes(of: FileSystemKind, page_bytes: u64, extent: &Extent) -> u64 {
    match (of, extent.kind) {
        (_, Kind::Plain(Plain::RollbackHeader | Plain::WalHeader)) => extent.length(),
        (FileSystemKind::SqliteJournal, _) => page_bytes + 8,
        (FileSystemKind::SqliteWal, _) => page_bytes + 24,
        _ => page_bytes,
    }
}

/// Touches of pieces, which stand for blocks.
fn touches_of(pieces: &[Piece], touches: &[FileTouch]) -> Vec<Touch> {
    let mut by_file: HashMap<&str, Vec<(u64, &Range<u64>)>> = HashMap::new();
    for (index, piece) in pieces.iter().enumerate() {
        by_file.entry(&piece.place.file).or_default().push((index as u64, &piece.place.bytes));
    }
    let mut found = Vec::new();
    for touch in touches {
        let bytes = &touch.place.bytes;
        for (index, piece) in by_file.get(touch.place.file.as_str()).into_iter().flatten() {
            if piece.start < bytes.end && bytes.start < piece.end {
                found.push(Touch { block: *index, is_write: touch.is_write });
            }
        }
    }
    found
}

impl Scout {
    pub(crate) fn go(bench: &Bench, sets: &Sets, operation: Operation) -> Result<Self> {
        let go = || match act(bench, sets, operation, None)? {
            Ended::Acted(acted) => {
                must(acted.during.clone(), operation.word())?;
                must(acted.after.clone(), "reading all rows")?;
                Ok(*acted)
            }
            Ended::Hung(why) => {
                Err(Error::new(ErrorKind::Internal, format!("{operation}, with nothing wrong: {why}")))
            }
        };
        let (acted, again) = (go()?, go()?);
        let engine = bench.engine;
        let (before, after) = (
            pieces(engine, sets.before(operation), &acted.touches)?,
            pieces(engine, &acted.files, &acted.touches)?,
        );
        let after_again = pieces(engine, &again.files, &again.touches)?;
        let mut seen = HashSet::new();
        let mut read_first = Vec::new();
        for touch in touches_of(&before, &acted.touches) {
            if seen.insert(touch.block) && !touch.is_write {
                read_first.push(touch.block as usize);
            }
        }
        let written_of = |pieces: &[Piece], touches: &[FileTouch]| {
            let mut seen = HashSet::new();
            let mut written: Vec<u64> = touches_of(pieces, touches)
                .iter()
                .filter(|touch| touch.is_write)
                .map(|touch| touch.block)
                .collect();
            written.retain(|block| seen.insert(*block));
            written
        };
        // What is another piece, or another kind, when it is done again is no aim.
        let same: HashSet<Piece> = written_of(&after_again, &again.touches)
            .iter()
            .map(|&at| after_again[at as usize].clone())
            .collect();
        let written = written_of(&after, &acted.touches).into_iter().map(|at| at as usize);
        let written = written.filter(|&at| same.contains(&after[at])).collect();
        Ok(Self { acted, before, after, read_first, written, victim: bench.engine.victim() })
    }

    /// Which kinds its pieces have.
    pub(crate) fn kinds(&self) -> BTreeMap<Kind, bool> {
        let read = self.read_first.iter().map(|&at| self.before[at].kind);
        let written = self.written.iter().map(|&at| self.after[at].kind);
        let is_row = |kind: &Kind| {
            !matches!(
                kind,
                Kind::Plain(
                    Plain::Free
                        | Plain::Unused
                        | Plain::Unknown
                        | Plain::RollbackOld
                        | Plain::WalOld
                        | Plain::PgOther
                )
            )
        };
        read.chain(written).filter(is_row).map(|kind| (kind, false)).collect()
    }

    fn pieces_met(&self, effect: Effect) -> (&[Piece], &[usize]) {
        match effect.is_on_reads() {
            true => (&self.before, &self.read_first),
            false => (&self.after, &self.written),
        }
    }

    /// Ways to do a cell, as the seed draws them; none if nothing that the operation meets is of that kind.
    pub(crate) fn aims(&self, cell: &Cell, sets: &Sets, seed: u64) -> Vec<Aim> {
        if cell.copies == Copies::All {
            return Vec::new();
        }
        let (pieces, met) = self.pieces_met(cell.effect);
        let key = seed ^ cell.key();
        let mut candidates: Vec<usize> =
            met.iter().copied().filter(|&at| pieces[at].kind.word() == cell.kind).collect();
        candidates.sort_by_key(|&at| mix(key, at as u64, 0));
        let aim = |at: usize| {
            let (harm, words) = self.harm(cell, sets, &pieces[at].place, key)?;
            Some(Aim { harm, target: at, words })
        };
        candidates.into_iter().filter_map(aim).take(TRIES_MAX).collect()
    }

    fn harm(&self, cell: &Cell, sets: &Sets, place: &Place, key: u64) -> Option<(Harm, String)> {
        let (from, to) = (place.bytes.start as usize, place.bytes.end as usize);
        let held = || sets.before(cell.operation).get(&place.file)?.get(from..to);
        let at = format!("{} of {}", place.bytes.start, place.file);
        let place = place.clone();
        Some(match cell.effect {
            Effect::Flip => {
                let mut bytes = held()?.to_vec();
                let used: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
                let byte = *used.get((mix(key, place.bytes.start, 1) % used.len().max(1) as u64) as usize)?;
                let bit = mix(key, place.bytes.start, 2) % 8;
                bytes[byte] ^= 1 << bit;
                (Harm::Stored(place, bytes), format!("bit {bit} of byte {byte} of what is at {at}"))
            }
            Effect::Zeros => {
                let is_zero = held()?.iter().all(|&byte| byte == 0);
                let harm = Harm::Stored(place, vec![0; to - from]);
                (!is_zero).then_some((harm, format!("zeros in what is at {at}")))?
            }
            Effect::Noise => {
                let words = (0..(to - from).div_ceil(8)).map(|word| mix(key, from as u64, 3 + word as u64));
                let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
                bytes.truncate(to - from);
                (Harm::Stored(place, bytes), format!("noise in what is at {at}"))
            }
            Effect::Stale => {
                let old = sets.early.get(&place.file)?.get(from..to)?;
                let harm = Harm::Stored(place, old.to_vec());
                (old != held()?).then_some((harm, format!("older content in what is at {at}")))?
            }
            Effect::ReadError => (Harm::ReadError(place), format!("reading what is at {at} fails")),
            Effect::WriteError => (Harm::WriteError(place), format!("writing what is at {at} fails")),
            Effect::LostWrite => (Harm::Lost(place), format!("writes to what is at {at} are lost")),
            Effect::MisdirectedWrite => {
                let other = self.victim(&place, key)?;
                let to = other.bytes.start;
                let file = &other.file;
                let words = format!("writes to what is at {at} go to the page with rows at {to} of {file}");
                (Harm::Misdirected(place, other), words)
            }
        })
    }

    /// A page with rows that a misdirected write damages.
    fn victim(&self, place: &Place, key: u64) -> Option<Place> {
        let rows = self.before.iter().filter(|piece| piece.kind == Kind::Plain(self.victim));
        let others = rows.map(|piece| &piece.place).filter(|other| *other != place);
        others.min_by_key(|other| mix(key, other.bytes.start, 4)).cloned()
    }

    /// What an operation with this effect led to, and what it usually leads to, with pieces for blocks.
    pub(crate) fn compared(&self, effect: Effect, acted: &DatabaseActed) -> [Acted; 2] {
        let (pieces, _) = self.pieces_met(effect);
        [acted, &self.acted].map(|acted| Acted {
            during: acted.during.clone().into(),
            touches: touches_of(pieces, &acted.touches),
            is_stopped: acted.is_stopped,
            is_crashed: acted.is_crashed,
            words: acted.words.clone(),
            image: Image::zeros(0),
            after: acted.after.clone(),
            is_stopped_after: acted.is_stopped_after,
            is_crashed_after: acted.is_crashed_after,
            words_after: acted.words_after.clone(),
        })
    }
}
