//! The data in a recording, read at their places.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rotproof_block::error::IoContext;
use rotproof_block::{ContentHash, Error, ErrorKind, Result};

use super::event::Chunk;
use super::format::{SOURCE_BASE, SOURCE_ZEROS, Source};

/// The file of a recording, opened for its data. Can be read from several threads at once.
#[derive(Debug)]
pub struct Data(File);

impl Data {
    /// Opens the recording at `path`, which [`super::Reader`] has found to be one.
    pub fn open(path: &Path) -> Result<Self> {
        File::open(path).map(Self).doing(|| format!("opening the data of {}", path.display()))
    }

    /// Fills `bytes` from `source`, which is zeros or a place in the file.
    pub fn read(&self, source: Source, bytes: &mut [u8]) -> Result<()> {
        match source {
            SOURCE_BASE => {
                Err(Error::new(ErrorKind::Internal, "a recording does not hold what was there before"))
            }
            SOURCE_ZEROS => {
                bytes.fill(0);
                Ok(())
            }
            offset => self.0.read_exact_at(bytes, offset).doing(|| "reading the data of a recording".into()),
        }
    }

    /// Fills `bytes`, as many as the chunk has, and compares them with the chunk's hash. Fails with
    /// [`ErrorKind::Invalid`] if they are others.
    pub fn read_chunk(&self, chunk: &Chunk, bytes: &mut [u8]) -> Result<()> {
        self.read(chunk.source, bytes)?;
        if chunk.source != SOURCE_ZEROS && ContentHash::of(bytes) != chunk.hash {
            let context = format!("the recording is damaged: its data at {} have changed", chunk.source);
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        Ok(())
    }
}
