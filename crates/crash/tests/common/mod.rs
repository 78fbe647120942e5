//! Small recordings, made up from a seed, and what a crash may leave of them by the plainest reading of the rules.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rotproof_block::Tag;
use rotproof_block::hash::mix;
use rotproof_crash::recording::{Header, Recorder, RecorderOptions};

pub const SECTOR: u64 = 512;

/// The first byte of each sector: enough to tell contents apart, as each write has its own.
pub type Image = Vec<u8>;

/// What is said of requests, in a form that the rules can be read off.
#[derive(Clone, Debug)]
pub struct Asked {
    pub submitted: u64,
    pub completed: Option<u64>,
    pub ok: bool,
    pub is_flush: bool,
    pub fua: bool,
    pub sectors: std::ops::Range<u64>,
    pub byte: u8,
}

/// A device of a few sectors and what it was asked.
#[derive(Clone, Debug)]
pub struct History {
    pub sectors: u64,
    pub asked: Vec<Asked>,
    pub events: u64,
}

/// Makes a history up and records it at `path`.
pub fn make_up(seed: u64, path: &Path, requests: u64) -> History {
    let mut draws = 0;
    let mut draw = |below: u64| {
        draws += 1;
        mix(seed, 9, draws) % below
    };
    let sectors = 4 + draw(5);
    let header = Header { size: sectors * SECTOR, block_size: 512, atomic_write_bytes: 512, id: seed.into() };
    let recorder = Recorder::create(path, header, RecorderOptions { same_bits: 4 }).expect("a new file");
    let mut asked: Vec<Asked> = Vec::new();
    let mut position = 0;
    let mut under_way: Vec<usize> = Vec::new();
    while (asked.len() as u64) < requests || (!under_way.is_empty() && draw(4) > 0) {
        let may_ask = (asked.len() as u64) < requests;
        if may_ask && (under_way.is_empty() || draw(2) == 0) {
            let start = draw(sectors);
            let range = start..sectors.min(start + 1 + draw(4));
            let (offset, length) = (range.start * SECTOR, (range.end - range.start) * SECTOR);
            let mut one = Asked {
                submitted: position,
                completed: None,
                ok: true,
                is_flush: false,
                fua: false,
                sectors: range,
                byte: 0,
            };
            match draw(10) {
                0..6 => {
                    one.byte = asked.len() as u8 + 1;
                    one.fua = draw(4) == 0;
                    // Half of a write may be zeros, which are stored in another way.
                    let data = vec![one.byte; length as usize];
                    recorder.write(position, offset, one.fua, Tag::NONE, &data);
                }
                6 => drop(recorder.discard(position, offset, length)),
                7 => drop(recorder.write_zeroes(position, offset, length)),
                _ => {
                    recorder.flush(position);
                    one.is_flush = true;
                }
            }
            under_way.push(asked.len());
            asked.push(one);
        } else {
            let at = under_way.swap_remove(draw(under_way.len() as u64) as usize);
            asked[at].completed = Some(position);
            asked[at].ok = draw(8) > 0;
            recorder.done(position, asked[at].submitted, asked[at].ok);
        }
        position += 1;
        if draw(6) == 0 {
            recorder.mark(position, "so far");
            position += 1;
        }
    }
    recorder.finish().expect("there is room");
    History { sectors, asked, events: position }
}

impl History {
    /// Whether `write` is durable for a crash before `position`.
    fn is_durable(&self, write: &Asked, position: u64) -> bool {
        let done = |asked: &Asked, before: u64| asked.ok && asked.completed.is_some_and(|at| at < before);
        done(write, position)
            && (write.fua
                || self.asked.iter().any(|flush| {
                    flush.is_flush
                        && done(flush, position)
                        && write.completed.expect("done") < flush.submitted
                }))
    }

    /// All images that a crash before the event `position` may leave, by brute force: unit by unit every subset of what
    /// is not durable with all of what is, in every order that does not contradict which came before which.
    pub fn legal_at(&self, position: u64, unit_sectors: u64) -> BTreeSet<Image> {
        let mut images = BTreeSet::from([Vec::new()]);
        for unit in 0..self.sectors.div_ceil(unit_sectors) {
            let sectors = unit * unit_sectors..self.sectors.min((unit + 1) * unit_sectors);
            let touches = |asked: &&Asked| {
                !asked.is_flush
                    && asked.submitted < position
                    && asked.sectors.start < sectors.end
                    && sectors.start < asked.sectors.end
            };
            let (durable, volatile): (Vec<&Asked>, Vec<&Asked>) =
                self.asked.iter().filter(touches).partition(|asked| self.is_durable(asked, position));
            let mut contents = BTreeSet::new();
            for bits in 0..1u32 << volatile.len() {
                let chosen = volatile.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
                let pieces: Vec<&Asked> =
                    durable.iter().copied().chain(chosen.map(|(_, asked)| *asked)).collect();
                lay(&pieces, &mut Vec::new(), &sectors, &mut contents);
            }
            images = images
                .iter()
                .flat_map(|image| contents.iter().map(move |unit| [&image[..], unit].concat()))
                .collect();
        }
        images
    }

    /// All images that a crash at any moment may leave, each with the last moment at which it may.
    pub fn legal(&self, unit_sectors: u64) -> BTreeMap<Image, u64> {
        (0..=self.events)
            .flat_map(|at| self.legal_at(at, unit_sectors).into_iter().map(move |image| (image, at)))
            .collect()
    }

    /// How many parts a crash may leave or lose at the most.
    pub fn parts_max(&self, unit_sectors: u64) -> u64 {
        let parts =
            |asked: &Asked| asked.sectors.end.div_ceil(unit_sectors) - asked.sectors.start / unit_sectors;
        let at = |position: u64| -> u64 {
            let volatile = |asked: &&Asked| !asked.is_flush && asked.submitted < position;
            self.asked.iter().filter(volatile).map(parts).sum()
        };
        (0..=self.events).map(at).max().unwrap_or(0)
    }
}

/// Every order of `left` on top of `order`, as contents of a unit.
fn lay(
    left: &[&Asked],
    order: &mut Vec<Asked>,
    sectors: &std::ops::Range<u64>,
    contents: &mut BTreeSet<Image>,
) {
    if left.is_empty() {
        let mut unit = vec![0; (sectors.end - sectors.start) as usize];
        for asked in order.iter() {
            for sector in asked.sectors.start.max(sectors.start)..asked.sectors.end.min(sectors.end) {
                unit[(sector - sectors.start) as usize] = asked.byte;
            }
        }
        contents.insert(unit);
        return;
    }
    for (at, next) in left.iter().enumerate() {
        // Nothing that came before it may come on top of it.
        let comes_before =
            |other: &Asked| other.completed.is_some_and(|completed| completed < next.submitted);
        let rest: Vec<&Asked> =
            left.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, asked)| *asked).collect();
        if rest.iter().any(|other| comes_before(other)) {
            continue;
        }
        order.push((*next).clone());
        lay(&rest, order, sectors, contents);
        order.pop();
    }
}
