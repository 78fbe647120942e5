//! What a crash may leave, at each moment of a recording that passes by.
//!
//! **Durable** is a write that completed before the submission of a flush that has completed since, and a completed
//! write with FUA. Every other write that was submitted, completed or not, may be there or not, for each aligned atomic
//! unit by itself. Of writes to one sector that came one after the other, the later hides the earlier; of two that were
//! under way together either may be on top.
//!
//! A window keeps a snapshot with what is settled, and beside it the writes that may lie on top: the *volatile* ones, and
//! now and then a durable one of which it is open whether it lies over or under another that was under way together with
//! it. `live` says on which sectors: not where a durable write came after. Memory grows with what is volatile, not with
//! the recording.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use rotproof_block::{Error, ErrorKind, Result};

use crate::contents::Contents;
use crate::ranges::{common, overlap, without};
use crate::recording::{CHUNK_BYTES, Chunk, Event, SOURCE_ZEROS, Source, What, Write};
use crate::snapshot::Snapshot;

/// A write, discard or write of zeros that a crash may leave or lose.
#[derive(Clone, Debug)]
pub struct Volatile {
    /// Position of its submission, its name.
    pub position: u64,
    /// Position of its completion; nothing while it is under way.
    pub completed: Option<u64>,
    /// It completed with an error: it may have taken effect, and nothing makes it durable.
    pub failed: bool,
    /// What it is in words: write, discard, write of zeros.
    pub verb: &'static str,
    /// Sectors that it concerns.
    pub sectors: Range<u64>,
    /// The application's tag.
    pub tag: Arc<str>,
    /// Sectors on which it may lie on top of what is durable, in order.
    pub live: Vec<Range<u64>>,
    /// Its first bytes, zeros if it has none.
    pub beginning: [u8; 64],
    /// It is there, and only its order with others is open.
    pub is_durable: bool,
    fua: bool,
    /// None for zeros.
    chunks: Arc<[Chunk]>,
    /// What each of its sectors adds to the identity of an image; empty for zeros.
    contributions: Arc<[u128]>,
}

impl Volatile {
    /// Whether this one had completed before the other began, so that it is never seen over it.
    pub fn comes_before(&self, other: &Volatile) -> bool {
        self.completed.is_some_and(|completed| completed < other.position)
    }

    /// Its place in the order in which volatile writes are laid over each other.
    pub(crate) fn rank(&self) -> (u64, u64) {
        (self.completed.unwrap_or(u64::MAX), self.position)
    }

    pub(crate) fn contribution(&self, sector: u64) -> u128 {
        self.contributions.get((sector - self.sectors.start) as usize).copied().unwrap_or(0)
    }

    /// Lays a range of its sectors over a snapshot.
    pub(crate) fn put(&self, snapshot: &mut Snapshot, sectors: Range<u64>) {
        if self.chunks.is_empty() {
            return snapshot.set(sectors, SOURCE_ZEROS);
        }
        let chunk_sectors = CHUNK_BYTES as u64 / snapshot.sector_bytes();
        let mut at = sectors.start;
        while at < sectors.end {
            let within = at - self.sectors.start;
            let end = sectors.end.min(self.sectors.start + (within / chunk_sectors + 1) * chunk_sectors);
            let source: Source = match self.chunks[(within / chunk_sectors) as usize].source {
                SOURCE_ZEROS => SOURCE_ZEROS,
                offset => offset + within % chunk_sectors * snapshot.sector_bytes(),
            };
            snapshot.set(at..end, source);
            at = end;
        }
    }
}

/// See the head of the module.
#[derive(Debug)]
pub struct Window {
    contents: Arc<Contents>,
    settled: Snapshot,
    identity: u128,
    /// What may lie on top of it, in no order that matters.
    writes: Vec<Volatile>,
    /// Positions of flushes under way.
    flushes: Vec<u64>,
    /// Events that have passed.
    position: u64,
    epoch: u64,
    marks: u64,
}

impl Window {
    /// Before the first event.
    pub fn new(contents: Arc<Contents>) -> Self {
        Self {
            settled: contents.before(),
            contents,
            identity: 0,
            writes: Vec::new(),
            flushes: Vec::new(),
            position: 0,
            epoch: 0,
            marks: 0,
        }
    }

    /// Where the bytes are.
    pub fn contents(&self) -> &Arc<Contents> {
        &self.contents
    }

    /// Events that have passed: the crash comes before the one with this position.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How often something became durable, by a flush or by FUA.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Marks that have passed.
    pub fn marks(&self) -> u64 {
        self.marks
    }

    /// What is there whatever survives.
    pub fn settled(&self) -> &Snapshot {
        &self.settled
    }

    /// What tells [`Window::settled`] from other images: zero before the first event.
    pub fn identity(&self) -> u128 {
        self.identity
    }

    /// What may lie on top of it, or must, in no order that matters.
    pub fn writes(&self) -> &[Volatile] {
        &self.writes
    }

    /// Whether the event makes something durable: the last moment at which that may still be missing is before it.
    pub fn settles(&self, event: &Event) -> bool {
        let What::Done { request, ok: true } = event.what else { return false };
        self.flushes.contains(&request) || self.find(request).is_some_and(|at| self.writes[at].fua)
    }

    /// Whether the event completes a flush.
    pub(crate) fn is_flush_done(&self, event: &Event) -> bool {
        matches!(event.what, What::Done { request, .. } if self.flushes.contains(&request))
    }

    /// Requests that complete are among the last that began.
    fn find(&self, request: u64) -> Option<usize> {
        self.writes.iter().rposition(|write| write.position == request)
    }

    /// Lets an event pass. Fails with [`ErrorKind::Invalid`] where the recording makes no sense or its data are damaged.
    pub fn pass(&mut self, event: &Event) -> Result<()> {
        match &event.what {
            What::Write(Write { length: 0, .. })
            | What::Discard { length: 0, .. }
            | What::WriteZeroes { length: 0, .. } => {}
            What::Write(write) => self.submit_write(event.position, write)?,
            What::Discard { offset, length } => {
                self.submit_zeros(event.position, "discard", *offset, *length);
            }
            What::WriteZeroes { offset, length } => {
                self.submit_zeros(event.position, "write of zeros", *offset, *length);
            }
            What::Flush => self.flushes.push(event.position),
            What::Done { request, ok } => self.complete(event.position, *request, *ok)?,
            What::Mark(_) => self.marks += 1,
            What::End => {}
        }
        self.position = event.position + 1;
        Ok(())
    }

    fn submit_write(&mut self, position: u64, write: &Write) -> Result<()> {
        let sector_bytes = self.settled.sector_bytes();
        let sectors = write.offset / sector_bytes..(write.offset + write.length) / sector_bytes;
        let contributions = self.contents.contributions_of(sectors.start, &write.chunks)?;
        let mut beginning = [0; 64];
        if let Some(chunk) = write.chunks.first() {
            self.contents.beginning(chunk, &mut beginning)?;
        }
        self.writes.push(Volatile {
            position,
            completed: None,
            failed: false,
            verb: "write",
            live: vec![sectors.clone()],
            sectors,
            tag: Arc::clone(&write.tag),
            beginning,
            fua: write.fua,
            is_durable: false,
            chunks: Arc::clone(&write.chunks),
            contributions: contributions.into(),
        });
        Ok(())
    }

    fn submit_zeros(&mut self, position: u64, verb: &'static str, offset: u64, length: u64) {
        let sector_bytes = self.settled.sector_bytes();
        let sectors = offset / sector_bytes..(offset + length) / sector_bytes;
        self.writes.push(Volatile {
            position,
            completed: None,
            failed: false,
            verb,
            live: vec![sectors.clone()],
            sectors,
            tag: "".into(),
            beginning: [0; 64],
            fua: false,
            is_durable: false,
            chunks: Arc::new([]),
            contributions: Arc::new([]),
        });
    }

    fn complete(&mut self, position: u64, request: u64, ok: bool) -> Result<()> {
        if request >= position {
            return Err(senseless("a request completes before it begins"));
        }
        if let Some(at) = self.flushes.iter().position(|&flush| flush == request) {
            self.flushes.swap_remove(at);
            if ok {
                let is_covered = |write: &mut Volatile| {
                    !write.failed && !write.is_durable && write.completed.is_some_and(|done| done < request)
                };
                let mut covered: Vec<Volatile> = self.writes.extract_if(.., is_covered).collect();
                covered.sort_by_key(Volatile::rank);
                self.make_durable(covered)?;
            }
        } else if let Some(at) = self.find(request) {
            let write = &mut self.writes[at];
            if write.completed.is_some() {
                return Err(senseless("a request completes twice"));
            }
            write.completed = Some(position);
            write.failed = !ok;
            if ok && write.fua {
                let write = self.writes.remove(at);
                self.make_durable(vec![write])?;
            }
        }
        Ok(())
    }

    /// Makes writes durable, in the order of their completion.
    fn make_durable(&mut self, writes: Vec<Volatile>) -> Result<()> {
        let together = under_way_together(&writes);
        for (index, mut write) in writes.into_iter().enumerate() {
            for other in self.writes.iter_mut().filter(|other| overlap(&write.sectors, &other.sectors)) {
                if other.comes_before(&write) {
                    other.live = without(&other.live, &write.sectors);
                }
            }
            if together.contains(&index) || self.is_open(&write) {
                write.is_durable = true;
                self.writes.push(write);
            } else {
                self.settle(&write)?;
            }
        }
        self.writes.retain(|write| !write.live.is_empty());
        // One whose partners have all been written over since.
        while let Some(at) = self.writes.iter().position(|write| write.is_durable && !self.is_open(write)) {
            let write = self.writes.remove(at);
            self.settle(&write)?;
        }
        self.epoch += 1;
        Ok(())
    }

    /// Whether it is open which of this write and another is the one on top somewhere.
    fn is_open(&self, write: &Volatile) -> bool {
        self.writes.iter().any(|other| {
            overlap(&write.sectors, &other.sectors)
                && other.position != write.position
                && is_together(write, other)
                && !common(&write.live, &other.live).is_empty()
        })
    }

    fn settle(&mut self, write: &Volatile) -> Result<()> {
        let mut old = Vec::new();
        for range in &write.live {
            old.clear();
            self.contents.contributions(&self.settled, range.clone(), &mut old)?;
            for (sector, old) in range.clone().zip(&old) {
                self.identity = self.identity.wrapping_add(write.contribution(sector)).wrapping_sub(*old);
            }
            write.put(&mut self.settled, range.clone());
        }
        Ok(())
    }
}

/// Whether neither had completed before the other began.
fn is_together(a: &Volatile, b: &Volatile) -> bool {
    !a.comes_before(b) && !b.comes_before(a)
}

/// Those that were under way together with another of the list on a sector that they share.
fn under_way_together(writes: &[Volatile]) -> HashSet<usize> {
    let mut by_place: Vec<usize> = (0..writes.len()).collect();
    by_place.sort_by_key(|&index| writes[index].sectors.start);
    let mut together = HashSet::new();
    for (at, &index) in by_place.iter().enumerate() {
        let write = &writes[index];
        for &other in
            by_place[at + 1..].iter().take_while(|&&other| writes[other].sectors.start < write.sectors.end)
        {
            if is_together(write, &writes[other]) {
                together.extend([index, other]);
            }
        }
    }
    together
}

fn senseless(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("the recording makes no sense: {what}"))
}
