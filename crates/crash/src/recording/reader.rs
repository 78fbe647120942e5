//! Reads a recording from its beginning to its end, or to where it was cut off. Memory does not grow with the file: data
//! are passed over, and whoever wants them has their places.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rotproof_block::error::IoContext;
use rotproof_block::{ContentHash, Error, ErrorKind, Result};

use super::event::{Chunk, Event, What, Write};
use super::format::{
    BODY_BYTES_MAX, Body, CHUNK_BYTES, HEAD_BYTES, HEADER_BYTES, Header, SOURCE_ZEROS, check_of, chunk, kind,
    malformed,
};

const READ_AHEAD_BYTES: usize = 256 << 10;

/// How a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// In order.
    Finished,
    /// The recorder was killed, or the file cut off or damaged: whole records end at `offset`, and `bytes_after` follow
    /// that are none.
    Truncated {
        /// Bytes of the file up to the end of its last whole record.
        offset: u64,
        /// Bytes behind that.
        bytes_after: u64,
    },
}

/// A recording as a stream of events.
#[derive(Debug)]
pub struct Reader {
    file: BufReader<File>,
    path: PathBuf,
    header: Header,
    file_bytes: u64,
    /// Where the next record begins.
    offset: u64,
    position: u64,
    time_ns: u64,
    tags: HashMap<u64, Arc<str>>,
    no_tag: Arc<str>,
    body: Vec<u8>,
    ending: Option<Ending>,
}

impl Reader {
    /// Opens the recording at `path`. Fails with [`ErrorKind::Missing`] if it is not there, with
    /// [`ErrorKind::Invalid`] if it is none or its header is damaged.
    pub fn open(path: &Path) -> Result<Self> {
        let doing = || format!("reading the recording {}", path.display());
        let mut file = File::open(path).doing(doing)?;
        let file_bytes = file.metadata().doing(doing)?.len();
        let mut header = [0; HEADER_BYTES as usize];
        if file_bytes < HEADER_BYTES {
            return Err(
                Error::new(ErrorKind::Invalid, "it is no recording: it is too short").while_doing(doing())
            );
        }
        file.read_exact(&mut header).doing(doing)?;
        let header = Header::decode(&header).map_err(|error| error.while_doing(doing()))?;
        Ok(Self {
            file: BufReader::with_capacity(READ_AHEAD_BYTES, file),
            path: path.to_owned(),
            header,
            file_bytes,
            offset: HEADER_BYTES,
            position: 0,
            time_ns: 0,
            tags: HashMap::new(),
            no_tag: "".into(),
            body: Vec::new(),
            ending: None,
        })
    }

    /// What it says of the device.
    pub fn header(&self) -> Header {
        self.header
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it ends; known once [`Reader::next_event`] has given nothing.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Begins again.
    pub fn rewind(&mut self) -> Result<()> {
        self.file.seek(SeekFrom::Start(HEADER_BYTES)).doing(|| format!("reading {}", self.path.display()))?;
        (self.offset, self.position, self.time_ns, self.ending) = (HEADER_BYTES, 0, 0, None);
        self.tags.clear();
        Ok(())
    }

    /// The next event; nothing at the end, where [`Reader::ending`] tells which end that is. Fails with
    /// [`ErrorKind::Invalid`] on a record that is whole and makes no sense.
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        while self.ending.is_none() {
            let Some(data_start) = self.next_record()? else { break };
            let event = self
                .interpret(data_start)
                .map_err(|error| error.while_doing(format_args!("reading {}", self.path.display())))?;
            if let Some(event) = event {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Reads the next record's body; gives where its data begin. Nothing if no whole record follows.
    fn next_record(&mut self) -> Result<Option<u64>> {
        let left = self.file_bytes - self.offset;
        let truncated = Some(Ending::Truncated { offset: self.offset, bytes_after: left });
        if left < HEAD_BYTES as u64 {
            self.ending = truncated;
            return Ok(None);
        }
        let mut head = [0; HEAD_BYTES];
        let doing = || format!("reading {}", self.path.display());
        self.file.read_exact(&mut head).doing(doing)?;
        let body_length = u32::from_le_bytes(head[0..4].try_into().expect("four bytes")) as usize;
        let data_length = u32::from_le_bytes(head[4..8].try_into().expect("four bytes"));
        let check = u64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
        let whole = HEAD_BYTES as u64 + body_length as u64 + u64::from(data_length);
        if whole > left || body_length > BODY_BYTES_MAX || body_length == 0 {
            self.ending = truncated;
            return Ok(None);
        }
        self.file.seek_relative(i64::from(data_length)).doing(doing)?;
        self.body.resize(body_length, 0);
        self.file.read_exact(&mut self.body).doing(doing)?;
        if check != check_of(self.offset, data_length, &self.body) {
            self.ending = truncated;
            return Ok(None);
        }
        let data_start = self.offset + HEAD_BYTES as u64;
        self.offset += whole;
        Ok(Some(data_start))
    }

    /// The event of the record at hand, if it is one.
    fn interpret(&mut self, data_start: u64) -> Result<Option<Event>> {
        let Header { size, block_size, .. } = self.header;
        let mut body = Body(&self.body);
        let kind = body.byte()?;
        let time_ns = self.time_ns.saturating_add(body.number()?);
        let range = |body: &mut Body<'_>| {
            let (offset, length) = (body.number()?, body.number()?);
            let fits = (offset | length) & u64::from(block_size - 1) == 0
                && offset.checked_add(length).is_some_and(|end| end <= size);
            if fits { Ok((offset, length)) } else { Err(malformed()) }
        };
        let what = match kind {
            kind::TAG => {
                let (number, name) = (body.number()?, body.text()?);
                self.tags.insert(number, name.into());
                return Ok(None);
            }
            kind::WRITE => {
                let fua = body.byte()? != 0;
                let (offset, length) = range(&mut body)?;
                let tag = match body.number()? {
                    0 => Arc::clone(&self.no_tag),
                    number => Arc::clone(self.tags.get(&number).ok_or_else(malformed)?),
                };
                let chunks = chunks(&mut body, length, data_start)?;
                What::Write(Write { offset, length, fua, tag, chunks })
            }
            kind::FLUSH => What::Flush,
            kind::DISCARD => {
                let (offset, length) = range(&mut body)?;
                What::Discard { offset, length }
            }
            kind::WRITE_ZEROES => {
                let (offset, length) = range(&mut body)?;
                What::WriteZeroes { offset, length }
            }
            kind::DONE => {
                let request = self.position.checked_sub(body.number()?).ok_or_else(malformed)?;
                What::Done { request, ok: body.byte()? != 0 }
            }
            kind::MARK => What::Mark(body.text()?),
            kind::END => {
                self.ending = Some(Ending::Finished);
                What::End
            }
            _ => return Err(malformed()),
        };
        self.time_ns = time_ns;
        let event = Event { position: self.position, time_ns, what };
        self.position += 1;
        Ok(Some(event))
    }
}

/// The chunks of a write of `length` bytes, whose own data begin at `data_start`.
fn chunks(body: &mut Body<'_>, length: u64, data_start: u64) -> Result<Arc<[Chunk]>> {
    let mut here = data_start;
    let mut left = length;
    let mut chunks = Vec::with_capacity((left as usize).div_ceil(CHUNK_BYTES).min(body.0.len()));
    while left > 0 {
        let length = left.min(CHUNK_BYTES as u64) as u32;
        left -= u64::from(length);
        chunks.push(match body.byte()? {
            chunk::ZEROS => Chunk { source: SOURCE_ZEROS, length, hash: ContentHash(0) },
            chunk::EARLIER => {
                let source = body.number()?;
                if !(HEADER_BYTES..here).contains(&source) {
                    return Err(malformed());
                }
                Chunk { source, length, hash: body.hash()? }
            }
            chunk::HERE => {
                let source = here;
                here += u64::from(length);
                Chunk { source, length, hash: body.hash()? }
            }
            _ => return Err(malformed()),
        });
    }
    Ok(chunks.into())
}
