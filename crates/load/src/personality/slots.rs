//! Files that are written in place, a piece of equal size at a time: a database's, and mailboxes.
//!
//! A word for each piece says which version was last acknowledged and which was last begun; whoever reads meanwhile
//! may see either, or part of both. Each piece is written by one thread only.

use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use rotproof_block::ErrorKind;

use super::data::{self, Piece, pieces};
use super::plan::FilePlan;
use super::report::{FileIncident, FileOperation};
use super::worker::{FileWorker, Finding, Found, PIECE_BYTES, kind_of};
use crate::BLOCK_BYTES;
use crate::content::{ContentId, VERSIONS_END};
use crate::engine::LoadOperation;
use crate::failure::{Classification, Version};

/// A version, shifted up by one, and whether it is one of zeros.
const WIPED: u32 = 1;

/// What may be in a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Legal {
    versions: RangeInclusive<u32>,
    /// Zeros are legal: nothing was ever written, or it was wiped out.
    zeros: bool,
    /// Nothing else than one thing is.
    is_certain: bool,
}

/// The pieces of all files.
pub(super) struct Slots {
    bytes: u64,
    files: Vec<Box<[AtomicU64]>>,
}

fn word(begun: u32, done: u32) -> u64 {
    u64::from(begun) << 32 | u64::from(done)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

impl Slots {
    pub(super) fn new(plan: &FilePlan) -> Self {
        let bytes = plan.kind.slot_bytes().unwrap_or(BLOCK_BYTES as u64);
        let row = || (0..plan.slots()).map(|_| AtomicU64::new(0)).collect();
        Self { bytes, files: (0..plan.figures.files).map(|_| row()).collect() }
    }

    /// Notes that the first `count` pieces of a file have been written at once, in their first version.
    pub(super) fn filled(&self, file: u32, count: u64, has_succeeded: bool) {
        let first = 1 << 1;
        let after = if has_succeeded { word(first, first) } else { word(first, 0) };
        for slot in &self.files[file as usize][..count as usize] {
            slot.store(after, Ordering::Release);
        }
    }

    /// Writes a piece anew, or zeros into it.
    pub(super) fn write(
        &self,
        worker: &mut FileWorker<'_>,
        (handle, file, slot): (&File, u32, u64),
        operation: FileOperation,
        wipe: bool,
    ) {
        let place = &self.files[file as usize][slot as usize];
        let (begun, done) = halves(place.load(Ordering::Acquire));
        let version = (begun.max(done) >> 1) + 1;
        if version >= VERSIONS_END {
            return;
        }
        let next = version << 1 | if wipe { WIPED } else { 0 };
        place.store(word(next, done), Ordering::Release);
        let offset = slot * self.bytes;
        let mut bytes = vec![0; self.bytes as usize];
        if !wipe {
            data::fill(&worker.job.plan.content, file, version, offset, &mut bytes);
        }
        let (written, took) = worker.timed(operation, file, || handle.write_all_at(&bytes, offset));
        worker.record(operation, took, self.bytes, written.err());
        match written {
            Ok(()) => place.store(word(next, next), Ordering::Release),
            Err(error) => {
                let what = Finding::told(Classification::Unwritable { error });
                worker.failed(file, offset / BLOCK_BYTES as u64, LoadOperation::Write, what);
            }
        }
    }

    /// What may be in a piece that is read between two looks at its word.
    fn legal(before: u64, after: u64) -> Legal {
        let (_, done) = halves(before);
        let (begun, _) = halves(after);
        let begun = begun.max(done);
        let zeros = done == 0 || (done | begun) & WIPED != 0;
        Legal { versions: done >> 1..=begun >> 1, zeros, is_certain: done == begun }
    }

    /// Reads a piece and verifies it.
    pub(super) fn read(
        &self,
        worker: &mut FileWorker<'_>,
        (handle, file, slot): (&File, u32, u64),
        operation: Option<FileOperation>,
    ) {
        let place = &self.files[file as usize][slot as usize];
        let before = place.load(Ordering::Acquire);
        let offset = slot * self.bytes;
        let mut bytes = vec![0; self.bytes as usize];
        let (done, took) = worker
            .timed(operation.unwrap_or(FileOperation::Read), file, || handle.read_at(&mut bytes, offset));
        let legal = Self::legal(before, place.load(Ordering::Acquire));
        if let Some(operation) = operation {
            worker.record(operation, took, self.bytes, done.err());
        }
        match done {
            // What lies behind the end was never written.
            Ok(_) => self.verify(worker, file, offset, &bytes, |_| legal.clone()),
            Err(error) => self.unreadable(worker, file, offset, self.bytes, error),
        }
    }

    fn unreadable(&self, worker: &mut FileWorker<'_>, file: u32, offset: u64, len: u64, error: ErrorKind) {
        for piece in pieces(offset, len as usize) {
            let expected = vec![self.expected(&worker.job.plan, file, piece.block)];
            let what = Classification::Unreadable { error };
            let finding = Finding { expected, found: None, what };
            worker.failed(file, piece.block, LoadOperation::Read, finding);
        }
    }

    /// Holds bytes against what may be in them; `legal` says it of each piece.
    fn verify(
        &self,
        worker: &mut FileWorker<'_>,
        file: u32,
        offset: u64,
        bytes: &[u8],
        legal: impl Fn(u64) -> Legal,
    ) {
        for piece in self.units(offset, bytes.len()) {
            let position = offset + piece.at as u64;
            let found = &bytes[piece.at..piece.at + piece.len];
            let legal = legal(position / self.bytes);
            if is_legal(&worker.job.plan, file, piece, &legal, found) {
                worker.tally.verified_bytes += piece.len as u64;
                continue;
            }
            let plan = &worker.job.plan;
            let mut truth = vec![0; piece.len];
            if *legal.versions.start() > 0 {
                data::fill(&plan.content, file, *legal.versions.start(), position, &mut truth);
            }
            let whose = data::Whose { file, block: piece.block, version: *legal.versions.end() };
            let (truth, found) = (data::padded(piece.start, &truth), data::padded(piece.start, found));
            let covered = piece.start..piece.start + piece.len;
            let what = data::classify(plan, whose, &[truth], &found, covered.clone());
            let expected = vec![self.expected(plan, file, piece.block)];
            let finding = Finding { expected, found: Some(Found { bytes: found, covered }), what };
            worker.failed(file, piece.block, LoadOperation::Read, finding);
        }
    }

    /// Pieces that are of one block and of one slot.
    fn units(&self, offset: u64, len: usize) -> impl Iterator<Item = Piece> + use<> {
        let unit = self.bytes.min(BLOCK_BYTES as u64) as usize;
        pieces(offset, len).flat_map(move |piece| {
            (0..piece.len).step_by(unit).map(move |at| Piece {
                start: piece.start + at,
                at: piece.at + at,
                len: unit.min(piece.len - at),
                ..piece
            })
        })
    }

    /// The whole block as it was last acknowledged.
    fn expected(&self, plan: &FilePlan, file: u32, block: u64) -> Version {
        let truth = self.truth(plan, file, block);
        let slot = block * BLOCK_BYTES as u64 / self.bytes;
        let version = self.files[file as usize]
            .get(slot as usize)
            .map_or(0, |word| halves(word.load(Ordering::Acquire)).1 >> 1);
        Version { content: ContentId::of_file(file, version, block), hash: Some(data::hash_of(&truth)) }
    }

    /// A block as it was last acknowledged.
    pub(super) fn truth(&self, plan: &FilePlan, file: u32, block: u64) -> Vec<u8> {
        let offset = block * BLOCK_BYTES as u64;
        let mut truth = vec![0; BLOCK_BYTES];
        for piece in self.units(offset, BLOCK_BYTES) {
            let position = offset + piece.at as u64;
            let Some(word) = self.files[file as usize].get((position / self.bytes) as usize) else { break };
            let (_, done) = halves(word.load(Ordering::Acquire));
            if done != 0 && done & WIPED == 0 {
                data::fill(
                    &plan.content,
                    file,
                    done >> 1,
                    position,
                    &mut truth[piece.at..piece.at + piece.len],
                );
            }
        }
        truth
    }

    /// Where a file ends at least.
    pub(super) fn len(&self, file: u32) -> u64 {
        let row = &self.files[file as usize];
        let last = row.iter().rposition(|word| halves(word.load(Ordering::Acquire)).1 != 0);
        last.map_or(0, |last| (last as u64 + 1) * self.bytes)
    }

    /// Reads a file back as a whole, in large pieces.
    pub(super) fn check(&self, worker: &mut FileWorker<'_>, handle: &File, file: u32) {
        let len = self.len(file);
        let row = &self.files[file as usize];
        let legal = |slot: u64| {
            let word = row[slot as usize].load(Ordering::Acquire);
            Self::legal(word, word)
        };
        let mut buffer = vec![0; PIECE_BYTES];
        let mut offset = 0;
        while offset < len && !worker.job.is_cancelled() {
            let wanted = (len - offset).min(PIECE_BYTES as u64) as usize;
            let (done, took) =
                worker.timed(FileOperation::Read, file, || handle.read_at(&mut buffer[..wanted], offset));
            worker.record(FileOperation::Read, took, done.unwrap_or(0) as u64, done.err());
            match done {
                Ok(0) => {
                    let expected = vec![self.expected(&worker.job.plan, file, offset / BLOCK_BYTES as u64)];
                    let what = Classification::WrongSize { expected_bytes: len, found_bytes: offset };
                    let finding = Finding { expected, found: Some(Found::nothing()), what };
                    worker.failed(file, offset / BLOCK_BYTES as u64, LoadOperation::Read, finding);
                    return;
                }
                Ok(read) => {
                    self.verify(worker, file, offset, &buffer[..read], legal);
                    offset += read as u64;
                }
                Err(error) => {
                    self.check_blocks(worker, handle, (file, offset, wanted), error);
                    offset += wanted as u64;
                }
            }
        }
    }

    /// After a read that failed: finds out which of its blocks are to blame.
    #[cold]
    fn check_blocks(
        &self,
        worker: &mut FileWorker<'_>,
        handle: &File,
        (file, start, len): (u32, u64, usize),
        error: ErrorKind,
    ) {
        let mut is_found = false;
        let row = &self.files[file as usize];
        for piece in pieces(start, len) {
            let mut data = vec![0; piece.len];
            let offset = start + piece.at as u64;
            match handle.read_at(&mut data, offset) {
                Ok(_) => self.verify(worker, file, offset, &data, |slot| {
                    let word = row[slot as usize].load(Ordering::Acquire);
                    Self::legal(word, word)
                }),
                Err(error) => {
                    is_found = true;
                    self.unreadable(worker, file, offset, piece.len as u64, kind_of(error));
                }
            }
        }
        if !is_found {
            worker.tally.told(FileIncident { operation: FileOperation::Read, error, time: worker.job.now() });
        }
    }
}

/// Whether bytes are of one of the legal versions; while a piece is being written, byte by byte of any of them.
fn is_legal(plan: &FilePlan, file: u32, piece: Piece, legal: &Legal, found: &[u8]) -> bool {
    let versions = || legal.versions.clone().filter(|&version| version > 0);
    let is_zeros = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    if legal.is_certain {
        let version = *legal.versions.end();
        return if legal.zeros {
            is_zeros(found)
        } else {
            data::matches(&plan.content, file, version, piece, found)
        };
    }
    if versions().any(|version| data::matches(&plan.content, file, version, piece, found)) {
        return true;
    }
    let mut is_explained: Vec<bool> = found.iter().map(|&byte| legal.zeros && byte == 0).collect();
    let mut truth = vec![0; piece.len];
    for version in versions() {
        let offset = piece.block * BLOCK_BYTES as u64 + piece.start as u64;
        data::fill(&plan.content, file, version, offset, &mut truth);
        for (is_explained, (found, truth)) in is_explained.iter_mut().zip(found.iter().zip(&truth)) {
            *is_explained |= found == truth;
        }
    }
    is_explained.into_iter().all(|is_explained| is_explained)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_may_see_what_is_acknowledged_before_and_begun_after() {
        let (one, two, three) = (1 << 1, 2 << 1, 3 << 1);
        let certain = Slots::legal(word(one, one), word(one, one));
        assert_eq!(certain, Legal { versions: 1..=1, zeros: false, is_certain: true });
        let meanwhile = Slots::legal(word(two, one), word(three, two));
        assert_eq!(meanwhile, Legal { versions: 1..=3, zeros: false, is_certain: false });
        let never = Slots::legal(0, 0);
        assert_eq!(never, Legal { versions: 0..=0, zeros: true, is_certain: true });
        assert!(Slots::legal(word(two | WIPED, one), word(two | WIPED, one)).zeros);
    }

    #[test]
    fn pieces_of_two_versions_are_legal_only_while_a_write_is_under_way() {
        let plan = FilePlan::new(&"oltp:files=2,file_size=16KiB".parse().expect("known"), 1);
        let piece = Piece { block: 1, start: 2048, at: 0, len: 2048 };
        let of = |version| {
            let mut data = vec![0; 2048];
            data::fill(&plan.content, 0, version, 4096 + 2048, &mut data);
            data
        };
        let mut torn = of(1);
        torn[777..].copy_from_slice(&of(2)[777..]);
        let legal = |versions, is_certain| Legal { versions, zeros: false, is_certain };
        assert!(is_legal(&plan, 0, piece, &legal(1..=2, false), &torn));
        assert!(!is_legal(&plan, 0, piece, &legal(2..=2, true), &torn));
        assert!(!is_legal(&plan, 0, piece, &legal(2..=3, false), &torn));
        assert!(is_legal(&plan, 0, piece, &legal(2..=2, true), &of(2)));
        assert!(!is_legal(
            &plan,
            0,
            piece,
            &Legal { versions: 2..=2, zeros: true, is_certain: true },
            &of(2)
        ));
    }
}
