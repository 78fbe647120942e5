//! The log of the kernel's device-mapper target `log-writes`, which `replay-log` of xfstests and qemu's `blklogwrites`
//! speak too. Source: `drivers/md/dm-log-writes.c` and `Documentation/admin-guide/device-mapper/log-writes.rst`.
//!
//! A log begins with a super block of one sector; each entry is a sector with its description, and its data. All
//! numbers are little-endian. Entries stand in the order in which they reached the medium for sure: what a flush has
//! covered comes before that flush. So a log says nothing of requests under way at the same time, and a recording made
//! from one has them one after the other.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write as _};
use std::ops::Range;
use std::path::Path;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result, Tag};

use super::event::{Event, What, Write};
use super::format::Header;
use super::reader::Reader;
use super::recorder::{Recorder, RecorderOptions, Summary};
use super::{CHUNK_BYTES, Data};
use crate::ranges::without;

/// First eight bytes of a log.
pub const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1 << 0;
const FUA: u64 = 1 << 1;
const DISCARD: u64 = 1 << 2;
const MARK: u64 = 1 << 3;
/// Set by newer kernels on metadata of file systems; says nothing that matters here.
const METADATA: u64 = 1 << 4;
const ENTRY_BYTES: usize = 32;
/// Data are read in pieces of so many bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Whether the file at `path` begins as a log.
pub fn is_one(path: &Path) -> Result<bool> {
    let mut head = [0; 8];
    let mut file = File::open(path).doing(|| format!("reading {}", path.display()))?;
    Ok(fill(&mut file, &mut head)? && u64::from_le_bytes(head) == MAGIC)
}

/// Writes the recording at `recording` as a log to the new file `log`. Requests that failed are left out, and writes of
/// zeros become writes with data, as the log has no other; of a mark that is longer than a sector holds, the beginning is
/// kept. Gives the number of entries.
pub fn export(recording: &Path, log: &Path) -> Result<u64> {
    let mut reader = Reader::open(recording)?;
    let data = Data::open(recording)?;
    let doing = || format!("writing {}", log.display());
    let file = File::create_new(log).doing(doing)?;
    let sector_bytes = reader.header().block_size as usize;
    let mut out = Out { file: BufWriter::with_capacity(PIECE_BYTES, file), sector_bytes, entries: 0 };
    // The count of entries is not known yet.
    out.super_block().doing(doing)?;
    let mut open: Vec<Open> = Vec::new();
    while let Some(Event { position, what, .. }) = reader.next_event()? {
        match what {
            What::Write(_) | What::Flush | What::Discard { .. } | What::WriteZeroes { .. } => {
                let live = range_of(&what).into_iter().collect();
                open.push(Open { position, what, completed: None, live });
            }
            What::Done { request, ok } => {
                let Some(at) = open.iter().position(|open| open.position == request) else {
                    return Err(Error::new(
                        ErrorKind::Invalid,
                        "the recording has a completion without a request",
                    ));
                };
                if !ok {
                    open.remove(at);
                    continue;
                }
                open[at].completed = Some(position);
                match &open[at].what {
                    What::Flush => {
                        let covered =
                            |open: &Open| open.completed.is_some_and(|completed| completed < request);
                        let mut before: Vec<Open> = open.extract_if(.., |open| covered(open)).collect();
                        before.sort_by_key(|open| open.completed);
                        for request in &before {
                            out.request(request, &data, &doing)?;
                        }
                        open.retain(|open| open.position != request);
                        out.entry(0, 0, FLUSH, &[]).doing(doing)?;
                    }
                    What::Write(Write { fua: true, .. }) => {
                        let write = open.remove(at);
                        out.request(&write, &data, &doing)?;
                        // What had completed before is in the log only later, and must not come over this there.
                        for range in &write.live {
                            let is_before =
                                |open: &&mut Open| open.completed.is_some_and(|done| done < write.position);
                            for other in open.iter_mut().filter(is_before) {
                                other.live = without(&other.live, range);
                            }
                        }
                    }
                    _ => {}
                }
            }
            What::Mark(text) => out.entry(0, 0, MARK, text.as_bytes()).doing(doing)?,
            What::End => {}
        }
    }
    open.retain(|open| open.completed.is_some());
    open.sort_by_key(|open| open.completed);
    for request in &open {
        out.request(request, &data, &doing)?;
    }
    out.file.seek(SeekFrom::Start(0)).doing(doing)?;
    out.super_block().doing(doing)?;
    out.file.flush().doing(doing)?;
    Ok(out.entries)
}

/// A request that the log does not have yet.
struct Open {
    position: u64,
    what: What,
    completed: Option<u64>,
    /// Bytes of the device that it still has to give to the log.
    live: Vec<Range<u64>>,
}

/// The bytes that a request concerns, if there are any.
fn range_of(what: &What) -> Option<Range<u64>> {
    let (offset, length) = match what {
        What::Write(write) => (write.offset, write.length),
        What::Discard { offset, length } | What::WriteZeroes { offset, length } => (*offset, *length),
        _ => return None,
    };
    (length > 0).then(|| offset..offset + length)
}

struct Out {
    file: BufWriter<File>,
    sector_bytes: usize,
    entries: u64,
}

impl Out {
    fn super_block(&mut self) -> std::io::Result<()> {
        let mut sector = vec![0; self.sector_bytes];
        sector[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        sector[8..16].copy_from_slice(&VERSION.to_le_bytes());
        sector[16..24].copy_from_slice(&self.entries.to_le_bytes());
        sector[24..28].copy_from_slice(&(self.sector_bytes as u32).to_le_bytes());
        self.file.write_all(&sector)
    }

    /// One entry without its data; `text` is that of a mark.
    fn entry(&mut self, offset: u64, length: u64, flags: u64, text: &[u8]) -> std::io::Result<()> {
        let mut sector = vec![0; self.sector_bytes];
        // The kernel keeps a zero byte behind the text.
        let text = &text[..text.len().min(self.sector_bytes - ENTRY_BYTES - 1)];
        let sector_bytes = self.sector_bytes as u64;
        let numbers = [offset / sector_bytes, length / sector_bytes, flags, text.len() as u64];
        for (place, number) in sector.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        sector[ENTRY_BYTES..ENTRY_BYTES + text.len()].copy_from_slice(text);
        self.entries += 1;
        self.file.write_all(&sector)
    }

    /// The entries of a request with its data: one, unless a later write has taken a part of it. An empty one has none: the log
    /// takes it for damage.
    fn request(&mut self, request: &Open, data: &Data, doing: &impl Fn() -> String) -> Result<()> {
        for range in &request.live {
            let length = range.end - range.start;
            match &request.what {
                What::Write(write) => {
                    self.entry(range.start, length, if write.fua { FUA } else { 0 }, &[]).doing(doing)?;
                    self.part_of(write, range, data, doing)?;
                }
                What::WriteZeroes { .. } => {
                    self.entry(range.start, length, 0, &[]).doing(doing)?;
                    std::io::copy(&mut std::io::repeat(0).take(length), &mut self.file).doing(doing)?;
                }
                What::Discard { .. } => self.entry(range.start, length, DISCARD, &[]).doing(doing)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The data of a write that lie in a range of the device.
    fn part_of(
        &mut self,
        write: &Write,
        range: &Range<u64>,
        data: &Data,
        doing: &impl Fn() -> String,
    ) -> Result<()> {
        let mut bytes = [0; CHUNK_BYTES];
        let mut at = write.offset;
        for chunk in write.chunks.iter() {
            let end = at + u64::from(chunk.length);
            let (from, to) = (range.start.max(at), range.end.min(end));
            if from < to {
                let bytes = &mut bytes[..chunk.length as usize];
                data.read_chunk(chunk, bytes)?;
                self.file.write_all(&bytes[(from - at) as usize..(to - at) as usize]).doing(doing)?;
            }
            at = end;
        }
        Ok(())
    }
}

/// Writes the log at `log` as a recording to the new file `recording`. The log does not say how large its device is:
/// `size_bytes` does, or without it the last byte that it touches. A log that was cut off is taken as far as it goes.
pub fn import(
    log: &Path,
    recording: &Path,
    size_bytes: Option<u64>,
    id: u128,
    options: RecorderOptions,
) -> Result<Summary> {
    let size = match size_bytes {
        Some(size) => size,
        None => {
            let mut end = 0;
            for_each_entry(log, |entry, _| {
                end = end.max(entry.offset + entry.length);
                Ok(())
            })?;
            end
        }
    };
    let sector_bytes = LogFile::open(log)?.sector_bytes as u32;
    let header = Header { size, block_size: sector_bytes, atomic_write_bytes: sector_bytes, id };
    let recorder = Recorder::create(recording, header, options)?;
    for_each_entry(log, |entry, data| {
        let Entry { offset, length, flags, .. } = entry;
        if offset.checked_add(*length).is_none_or(|end| end > size) {
            let context = format!("the log writes {length} bytes at {offset} of a device of {size} bytes");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        if flags & MARK != 0 {
            recorder.mark(0, &String::from_utf8_lossy(&entry.text));
            return Ok(());
        }
        if flags & FLUSH != 0 {
            recorder.done(0, recorder.flush(0), true);
        }
        if flags & DISCARD != 0 {
            recorder.done(0, recorder.discard(0, *offset, *length), true);
        } else if *length > 0 {
            recorder.done(0, recorder.write(0, *offset, flags & FUA != 0, Tag::NONE, data), true);
        }
        Ok(())
    })?;
    recorder.finish()
}

/// A log opened behind its super block.
struct LogFile {
    file: BufReader<File>,
    sector_bytes: usize,
    entries: u64,
}

struct Entry {
    offset: u64,
    length: u64,
    flags: u64,
    text: Vec<u8>,
}

impl LogFile {
    fn open(path: &Path) -> Result<Self> {
        let doing = || format!("reading {}", path.display());
        let invalid = |what: &str| Err(Error::new(ErrorKind::Invalid, what).while_doing(doing()));
        let mut file = BufReader::with_capacity(PIECE_BYTES, File::open(path).doing(doing)?);
        let mut head = [0; 28];
        file.read_exact(&mut head).doing(doing)?;
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        if number(0) != MAGIC {
            return invalid("it is no log of dm-log-writes: it does not begin as one");
        }
        if number(8) != VERSION {
            return invalid("it is a log of another version than 1");
        }
        let sector_bytes = u32::from_le_bytes(head[24..28].try_into().expect("four bytes")) as usize;
        if !sector_bytes.is_power_of_two() || !(512..=CHUNK_BYTES).contains(&sector_bytes) {
            return invalid("its sectors are no power of two from 512 to 4096");
        }
        file.seek_relative((sector_bytes - head.len()) as i64).doing(doing)?;
        Ok(Self { file, sector_bytes, entries: number(16) })
    }

    /// The next entry with its data in `data`; nothing at the end or where the log was cut off.
    fn next_entry(&mut self, data: &mut Vec<u8>) -> Result<Option<Entry>> {
        let mut sector = vec![0; self.sector_bytes];
        if self.entries == 0 || !fill(&mut self.file, &mut sector)? {
            return Ok(None);
        }
        self.entries -= 1;
        let number = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().expect("eight bytes"));
        let (first, sectors, flags) = (number(0), number(8), number(16));
        let bytes = |sectors: u64| sectors.checked_mul(self.sector_bytes as u64);
        let (Some(offset), Some(length)) = (bytes(first), bytes(sectors)) else {
            return Err(Error::new(ErrorKind::Invalid, "an entry of the log lies beyond any device"));
        };
        if flags & !(FLUSH | FUA | DISCARD | MARK | METADATA) != 0 {
            let context = format!("an entry of the log has flags {flags:#x} that are not known");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let text_length = (number(24) as usize).min(self.sector_bytes - ENTRY_BYTES);
        let text = sector[ENTRY_BYTES..ENTRY_BYTES + text_length].to_vec();
        data.clear();
        if flags & (DISCARD | MARK) == 0 {
            // Grows with what is there, not with what an entry claims.
            let read = (&mut self.file).take(length).read_to_end(data);
            if read.doing(|| "reading the data of an entry".into())? as u64 != length {
                return Ok(None);
            }
        }
        Ok(Some(Entry { offset, length, flags, text }))
    }
}

/// Fills `bytes`; no if the file ends before.
fn fill(file: &mut impl Read, bytes: &mut [u8]) -> Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error).doing(|| "reading an entry of the log".into()),
    }
}

fn for_each_entry(log: &Path, mut each: impl FnMut(&Entry, &[u8]) -> Result<()>) -> Result<()> {
    let mut file = LogFile::open(log)?;
    let mut data = Vec::new();
    while let Some(entry) = file.next_entry(&mut data).map_err(|error| error.while_doing(log.display()))? {
        each(&entry, &data)?;
    }
    Ok(())
}
