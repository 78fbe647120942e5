//! Other copies of a block below the file system: a volume that keeps everything twice and has no checksums cannot tell which of its copies is
//! right, but the guard above can. It asks the server of the volume by its control socket (`docs/control.md`, `volume_read`).

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rotproof_block::error::IoContext;
use rotproof_block::extent_map::place_in;
use rotproof_block::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::sum::{BLOCK, BLOCK_U64};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a line of an answer.
const LINE_BYTES_MAX: u64 = 256 << 10;
/// Blocks of a file that are asked for at once.
const STRETCH_BLOCKS: u64 = 16;

/// The server of a volume.
#[derive(Clone, Debug)]
pub struct VolumeCopies {
    socket: PathBuf,
}

/// What was found in the copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// One is right.
    pub is_found: bool,
    /// So many are wrong, or cannot be read.
    pub wrong: usize,
}

/// All copies of many blocks of one file, one stretch after the other.
pub struct Survey<'a> {
    copies: &'a VolumeCopies,
    connection: BufReader<UnixStream>,
    partition_start: u64,
}

/// What a survey has found of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// All of its copies are right.
    Alike,
    /// One is not, or cannot be read.
    Differs,
    /// It has no place of its own on the volume, or nobody tells which.
    Nothing,
}

#[derive(Deserialize)]
struct Answer {
    ok: Option<Stretch>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Stretch {
    copies: usize,
    data: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
}

impl VolumeCopies {
    /// The one that answers at this socket.
    pub fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Whether somebody answers there who can be asked: its first block is. Fails with the words of who does not.
    pub fn is_there(&self) -> Result<()> {
        let mut connection = self.connect()?;
        self.ask(&mut connection, 0, 0, 4096).map(drop)
    }

    /// Reads all copies of `to.len()` bytes at `place` of a file, and says how many of them are not right. The first that is, is in `to`
    /// then.
    pub fn look(
        &self,
        file: &File,
        name: &Path,
        place: u64,
        to: &mut [u8],
        is_right: impl Fn(&[u8]) -> bool,
    ) -> Result<Looked> {
        let offset = place_in(file, name, place, to.len() as u64)? + partition_start(file)?;
        let length = to.len().next_multiple_of(4096);
        let mut connection = self.connect()?;
        let mut looked = Looked::default();
        let mut copy = 0;
        loop {
            let stretch = self.ask(&mut connection, copy, offset, length as u64)?;
            let data = stretch.data.as_deref().and_then(bytes_of).filter(|data| data.len() == length);
            match data.filter(|data| is_right(&data[..to.len()])) {
                None => looked.wrong += 1,
                Some(_) if looked.is_found => {}
                Some(data) => {
                    to.copy_from_slice(&data[..to.len()]);
                    looked.is_found = true;
                }
            }
            copy += 1;
            if copy >= stretch.copies {
                return Ok(looked);
            }
        }
    }

    /// Begins to look at all copies of the blocks of a file.
    pub fn survey(&self, file: &File) -> Result<Survey<'_>> {
        Ok(Survey { copies: self, connection: self.connect()?, partition_start: partition_start(file)? })
    }

    fn connect(&self) -> Result<BufReader<UnixStream>> {
        let doing = || format!("asking the server of a volume at {}", self.socket.display());
        let stream = UnixStream::connect(&self.socket).doing(doing)?;
        stream.set_read_timeout(Some(PATIENCE)).doing(doing)?;
        stream.set_write_timeout(Some(PATIENCE)).doing(doing)?;
        let mut stream = BufReader::new(stream);
        let greeting = self.line(&mut stream)?;
        if !greeting.starts_with(b"{\"rotproof\":\"control\"") {
            let what = format!("{} is no control socket of Rotproof", self.socket.display());
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(stream)
    }

    fn ask(
        &self,
        stream: &mut BufReader<UnixStream>,
        copy: usize,
        offset: u64,
        length: u64,
    ) -> Result<Stretch> {
        let doing = || format!("asking the server of a volume at {}", self.socket.display());
        let question = serde_json::json!({
            "id": copy, "do": "volume_read", "copy": copy, "offset": offset, "length": length
        });
        writeln!(stream.get_mut(), "{question}").doing(doing)?;
        let line = self.line(stream)?;
        match serde_json::from_slice(&line) {
            Ok(Answer { ok: Some(stretch), .. }) => Ok(stretch),
            Ok(Answer { error: Some(refusal), .. }) => {
                Err(Error::new(ErrorKind::Refused, format!("{}: {}", doing(), refusal.message)))
            }
            _ => Err(Error::new(ErrorKind::Invalid, format!("{}: it answers something else", doing()))),
        }
    }

    fn line(&self, stream: &mut BufReader<UnixStream>) -> Result<Vec<u8>> {
        let doing = || format!("asking the server of a volume at {}", self.socket.display());
        let mut line = Vec::new();
        stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).doing(doing)?;
        Ok(line)
    }
}

impl Survey<'_> {
    /// Looks at all copies of blocks of the file, of which `size` bytes are there. `is_right` is asked for a block and what one of its
    /// copies has, and `tell` hears of each block, in their order.
    ///
    /// Fails if the server of the volume does not answer any more.
    pub fn look(
        &mut self,
        file: &File,
        name: &Path,
        blocks: Range<u64>,
        size: u64,
        is_right: &dyn Fn(u64, &[u8]) -> bool,
        tell: &mut dyn FnMut(u64, Seen),
    ) -> Result<()> {
        let mut from = blocks.start;
        while from < blocks.end {
            let to = blocks.end.min(from + STRETCH_BLOCKS);
            let right = |block, data: &[u8]| {
                let valid = size.saturating_sub(block * BLOCK_U64).min(BLOCK_U64) as usize;
                is_right(block, &data[..valid])
            };
            if let Some(seen) = self.stretch(file, name, from..to, &right)? {
                (from..to).zip(seen).for_each(|(block, seen)| tell(block, seen));
            } else {
                // They lie apart, or some of them nowhere.
                for block in from..to {
                    let seen = self.stretch(file, name, block..block + 1, &right)?;
                    tell(block, seen.map_or(Seen::Nothing, |seen| seen[0]));
                }
            }
            from = to;
        }
        Ok(())
    }

    /// `None` if they cannot be had at once.
    fn stretch(
        &mut self,
        file: &File,
        name: &Path,
        blocks: Range<u64>,
        is_right: &dyn Fn(u64, &[u8]) -> bool,
    ) -> Result<Option<Vec<Seen>>> {
        let length = (blocks.end - blocks.start) * BLOCK_U64;
        let Ok(place) = place_in(file, name, blocks.start * BLOCK_U64, length) else { return Ok(None) };
        let mut seen = vec![Seen::Alike; (blocks.end - blocks.start) as usize];
        let mut copy = 0;
        loop {
            let offset = place + self.partition_start;
            let stretch = match self.copies.ask(&mut self.connection, copy, offset, length) {
                Ok(stretch) => stretch,
                // It has no such stretch: where two segments meet, or nowhere.
                Err(error) if error.kind() == ErrorKind::Refused => return Ok(None),
                Err(error) => return Err(error),
            };
            let data = stretch.data.as_deref().and_then(bytes_of).filter(|data| data.len() as u64 == length);
            for (at, block) in blocks.clone().enumerate() {
                let is_as_it_should =
                    data.as_ref().is_some_and(|data| is_right(block, &data[at * BLOCK..][..BLOCK]));
                if !is_as_it_should {
                    seen[at] = Seen::Differs;
                }
            }
            copy += 1;
            if copy >= stretch.copies {
                return Ok(Some(seen));
            }
        }
    }
}

/// Where the file system of a file begins on its disk, if it is in a partition: bytes.
fn partition_start(file: &File) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let device = file.metadata().doing(|| "looking at a file".to_owned())?.dev();
    let path = format!("/sys/dev/block/{}:{}/start", libc::major(device), libc::minor(device));
    match std::fs::read_to_string(&path) {
        Ok(sectors) => {
            let sectors: u64 = sectors.trim().parse().map_err(|_| {
                Error::new(ErrorKind::Invalid, format!("{path} has no number: {}", sectors.trim()))
            })?;
            Ok(sectors * 512)
        }
        // A whole disk.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error).doing(|| format!("reading {path}")),
    }
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    if rest.is_empty() { bytes } else { None }
}
