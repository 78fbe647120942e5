//! What happened to blocks, a line of JSON each, kept beside the tables.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use rotproof_block::Result;
use rotproof_block::error::IoContext;
use serde::{Deserialize, Serialize};

use crate::sum::Algorithm;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Data do not have their sums, and no right copy was found.
    Rotten,
    /// The page cache was wrong, the disk right.
    RecoveredFromDisk,
    /// The disk was wrong, the page cache right, and was written back.
    RecoveredFromCache,
    /// Taken from the mirror, and written back.
    RecoveredFromMirror,
    /// Taken from another copy of the volume below, and written back.
    RecoveredFromCopy,
    /// The data were right, a sum in the table was not.
    SumMended,
    /// Written when the machine went down, and never made durable: taken in as it was found.
    Torn,
    /// Changed by somebody who does not know of the guard.
    Foreign,
    /// Written through the guard, and wrong before it was made durable.
    WriteFailed,
    /// Mapped for writing by a program, whose stores no guard sees: nothing vouches for the file until it is taken in again.
    Mapped,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since 1970.
    pub time: u64,
    /// What happened.
    pub what: What,
    /// Where the file is, below the guarded directory, as far as is known.
    pub file: String,
    /// Its inode.
    pub inode: u64,
    /// The block, counted from 0; the first of them.
    pub block: u64,
    /// How many blocks.
    pub blocks: u64,
}

/// Appends and reads events.
#[derive(Debug)]
pub struct Journal(PathBuf);

impl Journal {
    /// At this place, which need not be there yet.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Appends. A journal that cannot be written changes nothing of what a reader is told, so nothing fails by it.
    pub fn tell(&self, what: What, file: &str, inode: u64, block: u64, blocks: u64) {
        let time = crate::clock::wall_nanoseconds() / 1_000_000_000;
        let event = Event { time, what, file: file.to_owned(), inode, block, blocks };
        let Some(line) = line_of(&event) else { return };
        let file = OpenOptions::new().create(true).append(true).open(&self.0);
        // One write, so that lines of several processes do not mix.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }

    /// All events, the oldest first, and how many lines could not be read.
    pub fn read(&self) -> Result<(Vec<Event>, usize)> {
        let bytes = match std::fs::read(&self.0) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
            Err(error) => return Err(error).doing(|| format!("reading {}", self.0.display())),
        };
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let read: Vec<Option<Event>> = lines.map(parse).collect();
        let damaged = read.iter().filter(|event| event.is_none()).count();
        Ok((read.into_iter().flatten().collect(), damaged))
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(crate::sum::BLOCK)
        .fold(0, |sum: u32, part| sum.rotate_left(1) ^ Algorithm::Crc32c.of(part).word() as u32)
}

/// An event as a line, with its end.
pub fn line_of(event: &Event) -> Option<String> {
    let json = serde_json::to_string(event).ok()?;
    Some(format!("{:08x} {json}\n", checksum(json.as_bytes())))
}

/// An event from a line without its end; none if it is damaged.
pub fn parse(line: &[u8]) -> Option<Event> {
    let line = std::str::from_utf8(line).ok()?;
    let (sum, json) = line.split_once(' ')?;
    (u32::from_str_radix(sum, 16).ok()? == checksum(json.as_bytes())).then_some(())?;
    serde_json::from_str(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_back_and_damaged_lines_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("events");
        let journal = Journal::new(path.clone());
        assert_eq!(journal.read().expect("nothing"), (Vec::new(), 0));
        journal.tell(What::Rotten, "a/b", 5, 6, 1);
        journal.tell(What::Torn, "c", 7, 8, 2);
        let (events, damaged) = journal.read().expect("two");
        assert_eq!((events.len(), damaged, events[0].what, events[1].block), (2, 0, What::Rotten, 8));
        let mut bytes = std::fs::read(&path).expect("bytes");
        bytes[30] ^= 1;
        std::fs::write(&path, bytes).expect("damaged");
        assert_eq!(journal.read().map(|(events, damaged)| (events.len(), damaged)).expect("one"), (1, 1));
    }
}
