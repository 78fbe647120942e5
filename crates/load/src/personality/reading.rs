//! Reading a whole file, and holding it against what must be there.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use rotproof_block::ErrorKind;

use super::data::{Piece, Whose, classify, fill, hash_of, matches, padded, pieces};
use super::report::{FileIncident, FileOperation};
use super::state::{Existence, FileState};
use super::worker::{FileWorker, Finding, Found, Opened, PIECE_BYTES, kind_of};
use crate::content::ContentId;
use crate::engine::LoadOperation;
use crate::failure::{Classification, Version};

impl FileWorker<'_> {
    /// Whether a file ends where it may.
    pub(super) fn check_size(&mut self, file: u32, state: &FileState, found_bytes: u64) -> bool {
        if state.existence == Existence::Doubtful || (state.size_min..=state.size_max).contains(&found_bytes)
        {
            return true;
        }
        let expected_bytes = if found_bytes < state.size_min { state.size_min } else { state.size_max };
        let block = found_bytes.min(expected_bytes) / crate::BLOCK_BYTES as u64;
        let mut data = vec![0; crate::BLOCK_BYTES];
        let content = &self.job.plan.content;
        let within = (state.size_min.saturating_sub(block * 4096) as usize).min(data.len());
        fill(content, file, state.version, block * 4096, &mut data[..within]);
        let expected = vec![Version {
            content: ContentId::of_file(file, state.version, block),
            hash: Some(hash_of(&data)),
        }];
        let what = Classification::WrongSize { expected_bytes, found_bytes };
        self.failed(
            file,
            block,
            LoadOperation::Read,
            Finding { expected, found: Some(Found::nothing()), what },
        );
        false
    }

    /// Reads the open file to its end in pieces, until a read returns nothing, and verifies it.
    pub(super) fn read_whole(&mut self, state: &FileState) {
        let Some(opened) = self.opened() else { return };
        let (mut took, mut offset, mut first_error) = (Duration::ZERO, 0u64, None);
        let mut buffer = std::mem::take(&mut self.buffer);
        loop {
            let (done, time) =
                self.timed(FileOperation::Read, opened.file, || opened.handle.read_at(&mut buffer, offset));
            took += time;
            match done {
                Ok(0) => break,
                Ok(len) => {
                    self.verify(opened.file, state, offset, &buffer[..len]);
                    offset += len as u64;
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                    let end = state.size_max.max(1).min(offset + PIECE_BYTES as u64);
                    self.read_blocks(&opened, state, offset, end, error);
                    offset = end;
                    if offset >= state.size_max {
                        break;
                    }
                }
            }
        }
        self.buffer = buffer;
        self.record(FileOperation::Read, took, offset, first_error);
        if first_error.is_none() && self.check_size(opened.file, state, offset) {
            self.tally.verified_bytes += offset;
        }
        self.opened = Some(opened);
    }

    /// After a read that failed: finds out which of its blocks are to blame.
    #[cold]
    fn read_blocks(&mut self, opened: &Opened, state: &FileState, start: u64, end: u64, error: ErrorKind) {
        let mut is_found = false;
        for piece in pieces(start, (end - start) as usize) {
            let mut data = vec![0; piece.len];
            let offset = start + piece.at as u64;
            match opened.handle.read_at(&mut data, offset) {
                Ok(len) => self.verify(opened.file, state, offset, &data[..len]),
                Err(error) => {
                    is_found = true;
                    let error = kind_of(error);
                    let expected = vec![self.expected(opened.file, state, piece)];
                    let what = Classification::Unreadable { error };
                    self.failed(
                        opened.file,
                        piece.block,
                        LoadOperation::Read,
                        Finding { expected, found: None, what },
                    );
                }
            }
        }
        if !is_found {
            // It failed once, and was right when it was repeated.
            self.tally.told(FileIncident { operation: FileOperation::Read, error, time: self.job.now() });
        }
    }

    fn expected(&self, file: u32, state: &FileState, piece: Piece) -> Version {
        let mut data = vec![0; piece.len];
        let offset = piece.block * crate::BLOCK_BYTES as u64 + piece.start as u64;
        fill(&self.job.plan.content, file, state.version, offset, &mut data);
        Version {
            content: ContentId::of_file(file, state.version, piece.block),
            hash: Some(hash_of(&padded(piece.start, &data))),
        }
    }

    /// Holds bytes of a file against what is certain of it.
    fn verify(&mut self, file: u32, state: &FileState, offset: u64, data: &[u8]) {
        let content = &self.job.plan.content;
        for piece in pieces(offset, data.len()) {
            let bytes = &data[piece.at..piece.at + piece.len];
            let position = offset + piece.at as u64;
            if matches(content, file, state.version, piece, bytes) || position >= state.size_max {
                // Bytes behind the end are a matter of the size.
                continue;
            }
            let mut truth = vec![0; piece.len];
            fill(content, file, state.version, position, &mut truth);
            let is_legal = (position..).zip(bytes.iter().zip(&truth)).all(|(at, (&found, &truth))| {
                found == truth || (at >= state.sure && found == 0) || at >= state.size_max
            });
            if is_legal || state.existence == Existence::Doubtful {
                continue;
            }
            let whose = Whose { file, block: piece.block, version: state.version };
            let (truth, found) = (padded(piece.start, &truth), padded(piece.start, bytes));
            let expected = vec![self.expected(file, state, piece)];
            let covered = piece.start..piece.start + piece.len;
            let what = classify(&self.job.plan, whose, std::slice::from_ref(&truth), &found, covered.clone());
            self.failed(
                file,
                piece.block,
                LoadOperation::Read,
                Finding { expected, found: Some(Found { bytes: found, covered }), what },
            );
        }
    }
}
