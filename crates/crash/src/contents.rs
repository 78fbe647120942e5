//! The bytes that a [`Snapshot`] stands for, and what identifies them.
//!
//! The identity of an image is a sum over its sectors, of a hash of content and place each. So whoever changes a few
//! sectors changes the sum by what they were and what they are. A sector of zeros counts nothing, so that what is
//! discarded or never written costs nothing.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::recording::{Chunk, Data, Header, SOURCE_BASE, SOURCE_ZEROS, is_zero};
use crate::snapshot::Snapshot;

/// So much is read at once to be hashed.
const PIECE_SECTORS: u64 = 1024;

/// Where the bytes are: the recording, and what the device held before.
#[derive(Debug)]
pub struct Contents {
    data: Data,
    base: Option<File>,
    base_bytes: u64,
    header: Header,
}

/// What one sector adds to the identity of an image.
pub(crate) fn contribution(sector: u64, bytes: &[u8]) -> u128 {
    if is_zero(bytes) { 0 } else { xxh3_128_with_seed(bytes, sector) }
}

impl Contents {
    /// The data of the recording at `recording` over the image in the file `base`, or over zeros. The file must stay as
    /// it is; what is missing at its end is zeros.
    pub fn open(recording: &Path, header: Header, base: Option<&Path>) -> Result<Self> {
        let data = Data::open(recording)?;
        let doing = || base.map_or_else(String::new, |base| format!("opening the image {}", base.display()));
        let base = base.map(File::open).transpose().doing(doing)?;
        // Also right for a block device.
        let base_bytes = base.as_ref().map_or(Ok(0), |mut base| base.seek(SeekFrom::End(0))).doing(doing)?;
        if base_bytes > header.size {
            let context = format!(
                "the image from before the recording has {base_bytes} bytes, and the device that was recorded {}: it \
                 is that of another device",
                header.size
            );
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        Ok(Self { data, base, base_bytes, header })
    }

    /// What the recording says of its device.
    pub fn header(&self) -> Header {
        self.header
    }

    /// The device before the recording.
    pub fn before(&self) -> Snapshot {
        let sector_bytes = u64::from(self.header.block_size);
        Snapshot::new(self.header.size / sector_bytes, sector_bytes)
    }

    /// Fills `bytes` with what a snapshot holds from the sector `first` on; whole sectors.
    pub fn read(&self, snapshot: &Snapshot, first: u64, bytes: &mut [u8]) -> Result<()> {
        let sector_bytes = snapshot.sector_bytes();
        let sectors = first..first + bytes.len() as u64 / sector_bytes;
        let mut rest = bytes;
        for (sector, count, source) in snapshot.runs(sectors) {
            let (part, after) = rest.split_at_mut((count * sector_bytes) as usize);
            rest = after;
            if source == SOURCE_BASE {
                self.read_base(sector * sector_bytes, part)?;
            } else {
                self.data.read(source, part)?;
            }
        }
        Ok(())
    }

    fn read_base(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let there = usize::try_from(self.base_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (there, beyond) = bytes.split_at_mut(there.min(bytes.len()));
        beyond.fill(0);
        match &self.base {
            Some(base) if !there.is_empty() => base
                .read_exact_at(there, offset)
                .doing(|| "reading the image from before the recording".into()),
            _ => Ok(()),
        }
    }

    /// What each sector of a range of a snapshot adds to its identity.
    pub(crate) fn contributions(
        &self,
        snapshot: &Snapshot,
        sectors: Range<u64>,
        into: &mut Vec<u128>,
    ) -> Result<()> {
        let sector_bytes = snapshot.sector_bytes();
        let mut bytes = Vec::new();
        let mut at = sectors.start;
        while at < sectors.end {
            let count = (sectors.end - at).min(PIECE_SECTORS);
            let is_empty = snapshot.source(at) == SOURCE_ZEROS
                && snapshot.runs(at..at + count).next().is_some_and(|(_, zeros, _)| zeros == count);
            if is_empty {
                into.resize(into.len() + count as usize, 0);
            } else {
                bytes.resize((count * sector_bytes) as usize, 0);
                self.read(snapshot, at, &mut bytes)?;
                let sectors = bytes.chunks_exact(sector_bytes as usize);
                into.extend(sectors.zip(at..).map(|(bytes, sector)| contribution(sector, bytes)));
            }
            at += count;
        }
        Ok(())
    }

    /// What each sector of a write's data adds, that begins with the sector `first`. Its hashes are proven on the way.
    pub(crate) fn contributions_of(&self, first: u64, chunks: &[Chunk]) -> Result<Vec<u128>> {
        let sector_bytes = self.header.block_size as usize;
        let mut contributions = Vec::with_capacity(chunks.len() * 8);
        let mut bytes = [0; crate::recording::CHUNK_BYTES];
        for chunk in chunks {
            let bytes = &mut bytes[..chunk.length as usize];
            self.data.read_chunk(chunk, bytes)?;
            for sector in bytes.chunks_exact(sector_bytes) {
                contributions.push(contribution(first + contributions.len() as u64, sector));
            }
        }
        Ok(contributions)
    }

    /// The first bytes of a chunk, to see what it is.
    pub(crate) fn beginning(&self, chunk: &Chunk, bytes: &mut [u8]) -> Result<()> {
        let length = bytes.len().min(chunk.length as usize);
        self.data.read(chunk.source, &mut bytes[..length])
    }

    /// Writes a snapshot to the new file `path`, holes for zeros.
    pub fn write_image(&self, snapshot: &Snapshot, path: &Path) -> Result<()> {
        let doing = || format!("writing the image {}", path.display());
        let file = File::create_new(path).doing(doing)?;
        file.set_len(self.header.size).doing(doing)?;
        let sector_bytes = snapshot.sector_bytes();
        let mut bytes = vec![0; (PIECE_SECTORS * sector_bytes) as usize];
        for at in (0..snapshot.sectors()).step_by(PIECE_SECTORS as usize) {
            let count = (snapshot.sectors() - at).min(PIECE_SECTORS);
            let part = &mut bytes[..(count * sector_bytes) as usize];
            self.read(snapshot, at, part)?;
            if !is_zero(part) {
                file.write_all_at(part, at * sector_bytes).doing(doing)?;
            }
        }
        Ok(())
    }
}
