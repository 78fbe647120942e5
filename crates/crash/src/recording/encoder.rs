//! Writes the records of a recording: hashes what was written, finds what is equal, appends to the file.

use std::fs::File;
use std::io::Write as _;

use rotproof_block::{ContentHash, Tag};

use super::format::{CHUNK_BYTES, HEAD_BYTES, HEADER_BYTES, Header, check_of, chunk, kind, put};
use super::recorder::is_zero;
use super::same::SameChunks;

/// What happened, without its data.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    Write {
        offset: u64,
        /// Bytes of its data, in the batch.
        length: usize,
        fua: bool,
        tag: Tag,
    },
    Flush,
    Discard {
        offset: u64,
        length: u64,
    },
    WriteZeroes {
        offset: u64,
        length: u64,
    },
    Done {
        /// How many events before this one the request was submitted.
        distance: u64,
        ok: bool,
    },
    Mark {
        /// Bytes of its text, in the batch.
        length: usize,
    },
    End,
}

/// Events in their order, with their times, and the data of all of them one after the other.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) entries: Vec<(u64, Entry)>,
    pub(super) bytes: Vec<u8>,
}

impl Batch {
    /// Empty, and as large as it was.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }
}

/// See the head of the module.
pub(super) struct Encoder {
    file: File,
    /// What the file does not have yet.
    buffer: Vec<u8>,
    /// Scratch for the body of a record.
    body: Vec<u8>,
    /// Where in the buffer the record at hand begins.
    record_start: usize,
    /// Where that record lies in the file, or between records the next will.
    offset: u64,
    time_ns: u64,
    same: SameChunks,
    /// By number, whether the file knows the tag.
    tags: Vec<bool>,
}

impl Encoder {
    /// Over a new file. Equal chunks are found among about 2 to the power of `same_bits`.
    pub(super) fn new(file: File, header: Header, same_bits: u32) -> Self {
        Self {
            file,
            buffer: header.encode().to_vec(),
            body: Vec::new(),
            record_start: 0,
            offset: HEADER_BYTES,
            time_ns: 0,
            same: SameChunks::new(same_bits),
            tags: Vec::new(),
        }
    }

    /// Appends what happened to the file.
    pub(super) fn encode(&mut self, batch: &Batch) -> std::io::Result<()> {
        let mut bytes = batch.bytes.as_slice();
        for &(time_ns, entry) in &batch.entries {
            match entry {
                Entry::Write { offset, length, fua, tag } => {
                    let (data, rest) = bytes.split_at(length);
                    bytes = rest;
                    self.write((time_ns, offset, fua, tag), data);
                }
                Entry::Flush => self.plain(kind::FLUSH, time_ns),
                Entry::Discard { offset, length } => self.range(kind::DISCARD, time_ns, offset, length),
                Entry::WriteZeroes { offset, length } => {
                    self.range(kind::WRITE_ZEROES, time_ns, offset, length);
                }
                Entry::Done { distance, ok } => {
                    self.begin(kind::DONE, time_ns);
                    put(&mut self.body, distance);
                    self.body.push(u8::from(ok));
                    self.end_record();
                }
                Entry::Mark { length } => {
                    let (text, rest) = bytes.split_at(length);
                    bytes = rest;
                    self.begin(kind::MARK, time_ns);
                    put(&mut self.body, length as u64);
                    self.body.extend_from_slice(text);
                    self.end_record();
                }
                Entry::End => self.plain(kind::END, time_ns),
            }
        }
        self.write_out()
    }

    /// Gives the file all that it does not have.
    pub(super) fn write_out(&mut self) -> std::io::Result<()> {
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written
    }

    /// The file, and how long it is.
    pub(super) fn end(self) -> (File, u64) {
        (self.file, self.offset)
    }

    fn write(&mut self, (time_ns, offset, fua, tag): (u64, u64, bool, Tag), data: &[u8]) {
        self.know(tag);
        self.begin(kind::WRITE, time_ns);
        self.body.push(u8::from(fua));
        put(&mut self.body, offset);
        put(&mut self.body, data.len() as u64);
        put(&mut self.body, u64::from(tag.number()));
        for chunk in data.chunks(CHUNK_BYTES) {
            self.chunk(chunk);
        }
        self.end_record();
    }

    /// Opens a record in the buffer. Data go behind its head, the body behind them.
    fn begin(&mut self, kind: u8, time_ns: u64) {
        self.record_start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; HEAD_BYTES]);
        self.body.clear();
        self.body.push(kind);
        put(&mut self.body, time_ns.saturating_sub(self.time_ns));
        self.time_ns = self.time_ns.max(time_ns);
    }

    fn chunk(&mut self, bytes: &[u8]) {
        if is_zero(bytes) {
            return self.body.push(chunk::ZEROS);
        }
        let hash = ContentHash::of(bytes);
        let here = self.offset + (self.buffer.len() - self.record_start) as u64;
        match self.same.find_or_keep(hash, here) {
            Some(earlier) => {
                self.body.push(chunk::EARLIER);
                put(&mut self.body, earlier);
            }
            None => {
                self.body.push(chunk::HERE);
                self.buffer.extend_from_slice(bytes);
            }
        }
        self.body.extend_from_slice(&hash.0.to_le_bytes());
    }

    /// Closes the record.
    fn end_record(&mut self) {
        let data_length = (self.buffer.len() - self.record_start - HEAD_BYTES) as u32;
        let check = check_of(self.offset, data_length, &self.body);
        let head = &mut self.buffer[self.record_start..][..HEAD_BYTES];
        head[0..4].copy_from_slice(&(self.body.len() as u32).to_le_bytes());
        head[4..8].copy_from_slice(&data_length.to_le_bytes());
        head[8..16].copy_from_slice(&check.to_le_bytes());
        self.buffer.extend_from_slice(&self.body);
        self.offset += (self.buffer.len() - self.record_start) as u64;
    }

    fn plain(&mut self, kind: u8, time_ns: u64) {
        self.begin(kind, time_ns);
        self.end_record();
    }

    fn range(&mut self, kind: u8, time_ns: u64, offset: u64, length: u64) {
        self.begin(kind, time_ns);
        put(&mut self.body, offset);
        put(&mut self.body, length);
        self.end_record();
    }

    /// Writes the name of a tag before its first use.
    fn know(&mut self, tag: Tag) {
        let number = tag.number() as usize;
        if tag == Tag::NONE || self.tags.get(number).is_some_and(|known| *known) {
            return;
        }
        self.tags.resize(self.tags.len().max(number + 1), false);
        self.tags[number] = true;
        let time_ns = self.time_ns;
        self.begin(kind::TAG, time_ns);
        put(&mut self.body, u64::from(tag.number()));
        put(&mut self.body, tag.name().len() as u64);
        self.body.extend_from_slice(tag.name().as_bytes());
        self.end_record();
    }
}
