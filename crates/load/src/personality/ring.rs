//! The log that all threads append to: a file that begins anew at its front when it is full.
//!
//! Places are given out in the order in which threads ask, and what a place holds depends on the place alone, so
//! entries are written at the same time without a lock over the writes. A lap may not begin to overwrite an entry that
//! is still being written.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::data::{self, pieces};
use super::report::{FileIncident, FileOperation};
use super::worker::{FileWorker, Finding, Found};
use crate::BLOCK_BYTES;
use crate::content::ContentId;
use crate::engine::LoadOperation;
use crate::failure::{Classification, Version};

/// Ranges in doubt that are told apart; with more, everything between the first and the last is in doubt.
const DOUBTS_MAX: usize = 1000;
/// How often somebody who waits looks whether all is over.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Log {
    size: u64,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that have been given out in all laps.
    next: u64,
    /// Beginnings of the entries that are being written.
    in_flight: BTreeSet<u64>,
    /// What may or may not have been written, in bytes of all laps.
    doubts: Vec<Range<u64>>,
}

impl Log {
    pub(super) fn new(size: u64) -> Self {
        Self { size, state: Mutex::default(), freed: Condvar::new() }
    }

    /// Writes an entry of `len` bytes.
    pub(super) fn append(&self, worker: &mut FileWorker<'_>, handle: &File, len: u64) {
        let Some(start) = self.reserve(worker, len) else { return };
        let plan = &worker.job.plan;
        let mut entry = vec![0; len as usize];
        self.fill(plan, start, &mut entry);
        let first = (self.size - start % self.size).min(len) as usize;
        let (done, took) = worker.timed(FileOperation::Log, plan.log(), || {
            handle.write_all_at(&entry[..first], start % self.size)?;
            handle.write_all_at(&entry[first..], 0)
        });
        worker.record(FileOperation::Log, took, len, done.err());
        self.release(start, done.is_err().then_some(start..start + len));
        if let Err(error) = done {
            let what = Finding::told(Classification::Unwritable { error });
            worker.failed(plan.log(), start % self.size / BLOCK_BYTES as u64, LoadOperation::Write, what);
        }
    }

    fn reserve(&self, worker: &FileWorker<'_>, len: u64) -> Option<u64> {
        let mut state = self.state.lock();
        while state.in_flight.first().is_some_and(|&oldest| state.next + len - oldest > self.size) {
            if worker.job.is_cancelled() {
                return None;
            }
            self.freed.wait_for(&mut state, LOOK_EVERY);
        }
        let start = state.next;
        state.next += len;
        state.in_flight.insert(start);
        Some(start)
    }

    /// Nobody knows what has become of entries whose threads were left behind.
    pub(super) fn doubt_in_flight(&self) {
        let mut state = self.state.lock();
        let (first, next) = (state.in_flight.first().copied(), state.next);
        state.in_flight.clear();
        state.doubts.extend(first.map(|first| first..next));
    }

    fn release(&self, start: u64, doubt: Option<Range<u64>>) {
        let mut state = self.state.lock();
        state.in_flight.remove(&start);
        state.doubts.extend(doubt);
        if state.doubts.len() > DOUBTS_MAX {
            let begin = state.doubts.iter().map(|range| range.start).min().unwrap_or(0);
            let end = state.doubts.iter().map(|range| range.end).max().unwrap_or(0);
            state.doubts.clear();
            state.doubts.push(begin..end);
        }
        self.freed.notify_all();
    }

    /// What lies at places of all laps, as far as they are of one lap each.
    fn fill(&self, plan: &super::plan::FilePlan, start: u64, buffer: &mut [u8]) {
        let mut at = 0;
        while at < buffer.len() {
            let place = start + at as u64;
            let len = (self.size - place % self.size).min((buffer.len() - at) as u64) as usize;
            let version = (place / self.size + 1) as u32;
            data::fill(&plan.content, plan.log(), version, place % self.size, &mut buffer[at..at + len]);
            at += len;
        }
    }

    /// Where the log ends as a file.
    pub(super) fn len(&self) -> u64 {
        self.state.lock().next.min(self.size)
    }

    /// The place in all laps that was last written at an offset of the file.
    fn last_place(&self, next: u64, offset: u64) -> u64 {
        let lap = next / self.size;
        if offset < next % self.size { lap * self.size + offset } else { (lap - 1) * self.size + offset }
    }

    /// Reads the log back. `handle` is that of the file.
    pub(super) fn check(&self, worker: &mut FileWorker<'_>, handle: &File) {
        let (len, next, doubts) = {
            let state = self.state.lock();
            (state.next.min(self.size), state.next, state.doubts.clone())
        };
        let plan = &worker.job.plan;
        let mut buffer = vec![0; super::worker::PIECE_BYTES];
        let mut offset = 0;
        while offset < len && !worker.job.is_cancelled() {
            let wanted = (len - offset).min(buffer.len() as u64) as usize;
            let (done, took) = worker
                .timed(FileOperation::Read, plan.log(), || handle.read_at(&mut buffer[..wanted], offset));
            worker.record(FileOperation::Read, took, done.unwrap_or(0) as u64, done.err());
            let read = match done {
                Ok(0) => {
                    if !doubts.iter().any(|doubt| doubt.end >= next) {
                        let what = Classification::WrongSize { expected_bytes: len, found_bytes: offset };
                        let found = Finding { expected: Vec::new(), found: Some(Found::nothing()), what };
                        worker.failed(plan.log(), offset / BLOCK_BYTES as u64, LoadOperation::Read, found);
                    }
                    break;
                }
                Ok(read) => read,
                Err(error) if wanted > BLOCK_BYTES => {
                    // Piece by piece, to find out which is to blame.
                    worker.tally.told(FileIncident {
                        operation: FileOperation::Read,
                        error,
                        time: worker.job.now(),
                    });
                    buffer.truncate(BLOCK_BYTES);
                    continue;
                }
                Err(error) => {
                    for piece in pieces(offset, wanted) {
                        let start = offset + piece.at as u64;
                        let mut truth = vec![0; piece.len];
                        self.truth(plan, next, start, &mut truth);
                        let expected = vec![self.expected(plan, next, piece, &truth)];
                        let what = Classification::Unreadable { error };
                        let finding = Finding { expected, found: None, what };
                        worker.failed(plan.log(), piece.block, LoadOperation::Read, finding);
                    }
                    offset += wanted as u64;
                    continue;
                }
            };
            for piece in pieces(offset, read) {
                let found = &buffer[piece.at..piece.at + piece.len];
                let start = offset + piece.at as u64;
                let mut truth = vec![0; piece.len];
                self.truth(plan, next, start, &mut truth);
                let is_doubtful = |at: usize| {
                    let place = self.last_place(next, start + at as u64);
                    doubts.iter().any(|doubt| doubt.contains(&place))
                };
                let is_right = found == truth
                    || found.iter().zip(&truth).enumerate().all(|(at, (a, b))| a == b || is_doubtful(at));
                if is_right {
                    worker.tally.verified_bytes += piece.len as u64;
                    continue;
                }
                let version = (self.last_place(next, start) / self.size + 1) as u32;
                let whose = data::Whose { file: plan.log(), block: piece.block, version };
                let (truth, found) = (data::padded(piece.start, &truth), data::padded(piece.start, found));
                let expected =
                    vec![self.expected(plan, next, piece, &truth[piece.start..piece.start + piece.len])];
                let covered = piece.start..piece.start + piece.len;
                let what = data::classify(plan, whose, std::slice::from_ref(&truth), &found, covered.clone());
                let finding = Finding { expected, found: Some(Found { bytes: found, covered }), what };
                worker.failed(plan.log(), piece.block, LoadOperation::Read, finding);
            }
            offset += read as u64;
        }
    }

    /// A block of which `truth` is what a piece must hold, as it lies on a device.
    fn expected(&self, plan: &super::plan::FilePlan, next: u64, piece: data::Piece, truth: &[u8]) -> Version {
        let start = piece.block * BLOCK_BYTES as u64 + piece.start as u64;
        let version = (self.last_place(next, start) / self.size + 1) as u32;
        Version {
            content: ContentId::of_file(plan.log(), version, piece.block),
            hash: Some(data::hash_of(&data::padded(piece.start, truth))),
        }
    }

    /// What the file holds from an offset on, within one block.
    pub(super) fn truth(&self, plan: &super::plan::FilePlan, next: u64, offset: u64, buffer: &mut [u8]) {
        let border = next % self.size;
        let split = (border.saturating_sub(offset) as usize).min(buffer.len());
        let (newest, older) = buffer.split_at_mut(split);
        if !newest.is_empty() {
            self.fill(plan, self.last_place(next, offset), newest);
        }
        if !older.is_empty() && next >= self.size {
            self.fill(plan, self.last_place(next, offset + split as u64), older);
        }
    }

    /// Bytes given out in all laps.
    pub(super) fn next(&self) -> u64 {
        self.state.lock().next
    }
}
