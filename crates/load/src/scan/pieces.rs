//! What there is to read, in pieces: files one after the other, folders as they are met.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::BLOCK_BYTES;

/// Bytes that are read at once: whole blocks.
pub const PIECE_BYTES: u64 = 1 << 20;

/// A part of a file.
pub struct Piece {
    pub file: Arc<File>,
    pub path: Arc<PathBuf>,
    pub offset: u64,
    pub length: u64,
}

/// All pieces, handed out one by one.
pub struct Pieces(Mutex<State>);

struct State {
    /// Files and folders still to be looked at.
    paths: Vec<PathBuf>,
    current: Option<Current>,
    files: u64,
    unreadable: Vec<String>,
}

struct Current {
    file: Arc<File>,
    path: Arc<PathBuf>,
    offset: u64,
    size: u64,
}

impl Pieces {
    /// Of files, folders and block devices. What is named must be there.
    pub fn new(paths: &[PathBuf]) -> Result<Self> {
        for path in paths {
            let kind = fs::metadata(path).doing(|| format!("looking at {}", path.display()))?.file_type();
            if !(kind.is_file() || kind.is_dir() || kind.is_block_device()) {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("{} is no file, folder or block device", path.display()),
                ));
            }
        }
        // What is named may be a link; what is found may not.
        let paths = paths.iter().rev().map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.clone()));
        Ok(Self(Mutex::new(State {
            paths: paths.collect(),
            current: None,
            files: 0,
            unreadable: Vec::new(),
        })))
    }

    /// The next piece; `None` after the last.
    pub fn next(&self) -> Option<Piece> {
        let mut state = self.0.lock();
        loop {
            if let Some(current) = &mut state.current {
                let length = PIECE_BYTES.min(current.size - current.offset);
                if length > 0 {
                    let piece = Piece {
                        file: Arc::clone(&current.file),
                        path: Arc::clone(&current.path),
                        offset: current.offset,
                        length,
                    };
                    current.offset += length;
                    return Some(piece);
                }
                state.current = None;
            }
            let path = state.paths.pop()?;
            if let Err(error) = state.look_at(&path) {
                state.unreadable.push(format!("reading {}: {error}", path.display()));
            }
        }
    }

    /// Notes that something could not be read, up to so many of them.
    pub fn could_not_read(&self, why: String, most: usize) {
        let unreadable = &mut self.0.lock().unreadable;
        if unreadable.len() < most {
            unreadable.push(why);
        }
    }

    /// How many files were read, and what could not be.
    pub fn finish(self) -> (u64, Vec<String>) {
        let State { files, unreadable, .. } = self.0.into_inner();
        (files, unreadable)
    }
}

impl State {
    fn look_at(&mut self, path: &Path) -> std::io::Result<()> {
        let kind = fs::symlink_metadata(path)?.file_type();
        if kind.is_dir() {
            let mut below = Vec::new();
            for entry in fs::read_dir(path)? {
                below.push(entry?.path());
            }
            below.sort();
            self.paths.extend(below.into_iter().rev());
            return Ok(());
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Ok(());
        }
        let mut file = File::open(path)?;
        // Of a file as of a block device, where it ends.
        let size = file.seek(SeekFrom::End(0))?;
        self.files += 1;
        if size > 0 {
            self.current =
                Some(Current { file: Arc::new(file), path: Arc::new(path.to_owned()), offset: 0, size });
        }
        Ok(())
    }
}

const _: () = assert!(PIECE_BYTES.is_multiple_of(BLOCK_BYTES as u64));
