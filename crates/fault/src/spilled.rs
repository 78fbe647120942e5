//! Pieces of a long ledger in a file: what is written there is not in memory any more.
//!
//! The file belongs to one process and has no name, so its form is nobody else's. A piece is its tables as JSON, for they
//! are short and of many types, and its records packed as they are. What is read back is held against a hash that
//! stayed in memory: a ledger that a disk has changed is no evidence.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rotproof_block::error::IoContext;
use rotproof_block::{ContentHash, Error, ErrorKind, Result};

use crate::packed::Piece;

/// Where the pieces go.
#[derive(Debug)]
pub(crate) struct SpillFile {
    file: File,
    /// Where the next one begins.
    end: u64,
}

/// Where one piece lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spilled {
    at: u64,
    /// Of its tables, and of its records behind them.
    lengths: (u32, u32),
    hash: ContentHash,
}

impl SpillFile {
    pub(crate) fn new(file: File) -> Self {
        Self { file, end: 0 }
    }

    /// Writes a piece at the end.
    pub(crate) fn write(&mut self, piece: &Piece) -> Result<Spilled> {
        let mut bytes = serde_json::to_vec(&piece.tables()).expect("plain data in memory is always JSON");
        let tables = bytes.len();
        bytes.extend_from_slice(piece.packed());
        let at = self.end;
        self.file
            .write_all_at(&bytes, at)
            .doing(|| "writing a part of the ledger to a temporary file".to_owned())?;
        self.end += bytes.len() as u64;
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let lengths = (length(tables), length(bytes.len() - tables));
        Ok(Spilled { at, lengths, hash: ContentHash::of(&bytes) })
    }

    /// Reads one back, of `count` records.
    pub(crate) fn read(&self, spilled: Spilled, count: usize) -> Result<Piece> {
        let doing = || "reading a part of the ledger back from a temporary file".to_owned();
        let (tables, records) = (spilled.lengths.0 as usize, spilled.lengths.1 as usize);
        let mut bytes = vec![0; tables + records];
        self.file.read_exact_at(&mut bytes, spilled.at).doing(doing)?;
        let changed = || {
            let context = format!(
                "{}: it holds something else than was written; what it lies on cannot be trusted",
                doing()
            );
            Error::new(ErrorKind::Medium, context)
        };
        if ContentHash::of(&bytes) != spilled.hash {
            return Err(changed());
        }
        let packed = bytes.split_off(tables);
        let tables = serde_json::from_slice(&bytes).map_err(|error| changed().caused_by(error))?;
        Ok(Piece::from_parts(count, packed, tables))
    }
}
