//! What real data is like: how often its blocks repeat and how far they compress, as a load can write it again.
//!
//! Files, folders and block devices are read once, in pieces, by several threads. Blocks are known by their hash alone.
//! Memory is bounded: once there are too many different ones, only those are followed whose hash falls into a half of
//! all, then a quarter, and so on ([`Counts`]). Each followed content keeps its exact number of duplicates, so what is
//! found is a fair sample of the contents.

mod compression;
mod counts;
mod pieces;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rotproof_block::error::IoContext;
use rotproof_block::{ContentHash, Result};

use crate::BLOCK_BYTES;
use crate::duplicates::Distribution;
use compression::compressed_bytes;
use counts::Counts;
use pieces::{Piece, Pieces};

/// How to scan.
#[derive(Clone, Copy)]
pub struct ScanOptions<'a> {
    /// Threads; at least one.
    pub threads: usize,
    /// Contents that are followed at once; what they take is about 32 bytes each.
    pub contents_max: usize,
    /// Counts the bytes that are read.
    pub bytes: &'a AtomicU64,
    /// Says whether to end early.
    pub is_cancelled: &'a (dyn Fn() -> bool + Sync),
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Scanned {
    /// Contents by duplicates.
    pub distribution: Distribution,
    /// Of the contents one in so many was followed, a power of two; the distribution counts each for all of them.
    pub sampled: u64,
    /// Share of a block that LZ4 saves, over different contents.
    pub compressible: f64,
    /// Blocks that were read; the end of a file that fills none is filled up with zeros.
    pub blocks: u64,
    /// Files and devices that were read.
    pub files: u64,
    /// What could not be read, with the reason; the rest was scanned without it.
    pub unreadable: Vec<String>,
}

/// Unreadable files that are named.
const UNREADABLE_MAX: usize = 100;

/// Reads everything below `paths`. Symbolic links are not followed. `None` if it was cancelled.
pub fn scan(paths: &[PathBuf], options: &ScanOptions<'_>) -> Result<Option<Scanned>> {
    let pieces = Pieces::new(paths)?;
    let counts = Counts::new(options.contents_max);
    let blocks = AtomicU64::new(0);
    let work = || {
        let mut buffer = vec![0; pieces::PIECE_BYTES as usize];
        while !(options.is_cancelled)() {
            let Some(piece) = pieces.next() else { break };
            if let Err(error) = read(&piece, &mut buffer, &counts, &blocks, options) {
                pieces.could_not_read(error.to_string(), UNREADABLE_MAX);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..options.threads.max(1) {
            // Where there is no room for another thread those that are there do the work.
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    if (options.is_cancelled)() {
        return Ok(None);
    }
    let (distribution, sampled, compressed) = counts.finish();
    let (files, unreadable) = pieces.finish();
    Ok(Some(Scanned {
        distribution,
        sampled,
        compressible: compressed.map_or(0.0, |bytes| 1.0 - bytes / BLOCK_BYTES as f64),
        blocks: blocks.into_inner(),
        files,
        unreadable,
    }))
}

/// Reads one piece and counts its blocks.
fn read(
    piece: &Piece,
    buffer: &mut [u8],
    counts: &Counts,
    blocks: &AtomicU64,
    options: &ScanOptions<'_>,
) -> Result<()> {
    let length = fill(&piece.file, &mut buffer[..piece.length as usize], piece.offset)
        .doing(|| format!("reading {} at {}", piece.path.display(), piece.offset))?;
    let end = length.next_multiple_of(BLOCK_BYTES).min(buffer.len());
    buffer[length..end].fill(0);
    let mut batch = counts.batch();
    for block in buffer[..end].chunks_exact(BLOCK_BYTES) {
        let hash = ContentHash::of(block).0 as u64;
        batch.add(hash, || compressed_bytes(block));
    }
    batch.flush();
    blocks.fetch_add((end / BLOCK_BYTES) as u64, Ordering::Relaxed);
    options.bytes.fetch_add(length as u64, Ordering::Relaxed);
    Ok(())
}

/// As much as there is: a file may have shrunk since it was found.
fn fill(file: &File, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests;
