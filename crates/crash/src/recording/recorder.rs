//! Writes a recording while requests pass, from any number of threads.
//!
//! Contents are hashed on the calling thread. Under one lock the event gets its position and its bytes are appended to a
//! buffer; full buffers go to a thread that writes them to the file and come back. Nothing is allocated once warm. A
//! file that cannot be written ends the recording, never the requests: [`Recorder::finish`] says so.

use std::cell::RefCell;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{ContentHash, Error, ErrorKind, Result, Tag};

use super::format::{CHUNK_BYTES, HEAD_BYTES, HEADER_BYTES, Header, check_of, chunk, kind, put};
use super::same::SameChunks;

/// A buffer of this many bytes goes to the file.
const BUFFER_BYTES: usize = 1 << 20;
/// So many buffers may wait for the file before requests do.
const BUFFERS_WAITING: usize = 8;
/// A longer mark is refused.
const MARK_BYTES_MAX: usize = 64 << 10;

/// How to record.
#[derive(Clone, Copy, Debug)]
pub struct RecorderOptions {
    /// Equal chunks are found among about 2 to the power of this many, for 32 bytes of memory each. At most 30.
    pub same_bits: u32,
}

impl Default for RecorderOptions {
    /// A quarter of a million chunks, 8 MiB: what 1 GiB of different data takes.
    fn default() -> Self {
        Self { same_bits: 18 }
    }
}

/// What a recording came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events, completions and marks included.
    pub events: u64,
    /// Writes with data.
    pub writes: u64,
    /// Bytes of their data.
    pub data_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// A recording under way. Shared by all queues; dropped, it ends the file without [`super::What::End`].
pub struct Recorder {
    log: Mutex<Log>,
    failure: Arc<Mutex<Option<Error>>>,
    header: Header,
}

struct Log {
    buffer: Vec<u8>,
    /// Scratch for the body of a record.
    body: Vec<u8>,
    /// Where in the buffer the record at hand begins.
    record_start: usize,
    /// Where that record lies in the file, or between records the next will.
    offset: u64,
    time_ns: u64,
    summary: Summary,
    same: SameChunks,
    /// By number, whether the file knows the tag.
    tags: Vec<bool>,
    to_file: Option<SyncSender<Vec<u8>>>,
    free: Receiver<Vec<u8>>,
    file_thread: Option<JoinHandle<File>>,
}

thread_local! {
    /// Hashes of the chunks of the write at hand; none for zeros.
    static HASHES: RefCell<Vec<Option<ContentHash>>> = const { RefCell::new(Vec::new()) };
}

impl Recorder {
    /// Begins a recording in a new file at `path`. Fails with [`ErrorKind::Invalid`] on a header that no device can
    /// have, else as making the file does.
    pub fn create(path: &Path, header: Header, options: RecorderOptions) -> Result<Arc<Self>> {
        header.check()?;
        let file = File::create_new(path).doing(|| format!("recording to {}", path.display()))?;
        Self::over(file, path, header, options)
    }

    fn over(mut file: File, path: &Path, header: Header, options: RecorderOptions) -> Result<Arc<Self>> {
        let (to_file, buffers) = sync_channel::<Vec<u8>>(BUFFERS_WAITING);
        let (give_back, free) = sync_channel(BUFFERS_WAITING + 1);
        let failure = Arc::new(Mutex::new(None));
        let (noted, shown) = (Arc::clone(&failure), path.display().to_string());
        let file_thread = std::thread::Builder::new()
            .name("recording".into())
            .spawn(move || {
                for mut buffer in buffers {
                    if noted.lock().is_none()
                        && let Err(error) = file.write_all(&buffer)
                    {
                        *noted.lock() = Some(Error::from_io(error, format!("recording to {shown}")));
                    }
                    buffer.clear();
                    // A full list of free buffers needs no other.
                    let _ = give_back.try_send(buffer);
                }
                file
            })
            .doing(|| "starting the thread that writes the recording".into())?;
        // A recording can be told as one from its first moment on.
        let _ = to_file.send(header.encode().to_vec());
        let log = Log {
            buffer: Vec::with_capacity(BUFFER_BYTES * 2),
            body: Vec::new(),
            record_start: 0,
            offset: HEADER_BYTES,
            time_ns: 0,
            summary: Summary::default(),
            same: SameChunks::new(options.same_bits.clamp(1, 30)),
            tags: Vec::new(),
            to_file: Some(to_file),
            free,
            file_thread: Some(file_thread),
        };
        Ok(Arc::new(Self { log: Mutex::new(log), failure, header }))
    }

    /// What was said of the device.
    pub fn header(&self) -> Header {
        self.header
    }

    /// A write is about to be submitted. Gives its name for [`Recorder::done`].
    pub fn write(&self, time_ns: u64, offset: u64, fua: bool, tag: Tag, data: &[u8]) -> u64 {
        HASHES.with_borrow_mut(|hashes| {
            hashes.clear();
            hashes.extend(
                data.chunks(CHUNK_BYTES).map(|chunk| (!is_zero(chunk)).then(|| ContentHash::of(chunk))),
            );
            let mut log = self.log.lock();
            log.know(tag);
            log.begin(kind::WRITE, time_ns);
            log.body.push(u8::from(fua));
            put(&mut log.body, offset);
            put(&mut log.body, data.len() as u64);
            put(&mut log.body, u64::from(tag.number()));
            for (hash, chunk) in hashes.iter().zip(data.chunks(CHUNK_BYTES)) {
                log.chunk(*hash, chunk);
            }
            log.summary.writes += 1;
            log.summary.data_bytes += data.len() as u64;
            log.end()
        })
    }

    /// A flush is about to be submitted. Gives its name.
    pub fn flush(&self, time_ns: u64) -> u64 {
        let mut log = self.log.lock();
        log.begin(kind::FLUSH, time_ns);
        log.end()
    }

    /// A discard is about to be submitted. Gives its name.
    pub fn discard(&self, time_ns: u64, offset: u64, length: u64) -> u64 {
        self.log.lock().range(kind::DISCARD, time_ns, offset, length)
    }

    /// A write of zeros without data is about to be submitted. Gives its name.
    pub fn write_zeroes(&self, time_ns: u64, offset: u64, length: u64) -> u64 {
        self.log.lock().range(kind::WRITE_ZEROES, time_ns, offset, length)
    }

    /// The request with this name has completed, and its submitter does not know that yet.
    pub fn done(&self, time_ns: u64, request: u64, ok: bool) {
        let mut log = self.log.lock();
        log.begin(kind::DONE, time_ns);
        let distance = log.summary.events - request;
        put(&mut log.body, distance);
        log.body.push(u8::from(ok));
        log.end();
    }

    /// Says something about the load that holds from now on. A longer text than 64 KiB is cut.
    pub fn mark(&self, time_ns: u64, text: &str) {
        let text = &text[..text.floor_char_boundary(MARK_BYTES_MAX)];
        let mut log = self.log.lock();
        log.begin(kind::MARK, time_ns);
        put(&mut log.body, text.len() as u64);
        log.body.extend_from_slice(text.as_bytes());
        log.end();
    }

    /// Time of the last event, for a mark from somewhere without a clock of the runtime.
    pub fn time_ns(&self) -> u64 {
        self.log.lock().time_ns
    }

    /// Ends the recording in order; what comes after is not recorded. Fails if any of it could not be written: what
    /// could is a truncated recording.
    pub fn finish(&self) -> Result<Summary> {
        let mut log = self.log.lock();
        if log.to_file.is_some() {
            let time_ns = log.time_ns;
            log.begin(kind::END, time_ns);
            log.end();
        }
        let file = log.close()?;
        let summary = Summary { file_bytes: log.offset, ..log.summary };
        drop(log);
        if let Some(error) = self.failure.lock().take() {
            return Err(error);
        }
        if let Some(file) = file {
            file.sync_data().doing(|| "making the recording durable".into())?;
        }
        Ok(summary)
    }
}

impl Log {
    /// Opens a record in the buffer. Data go behind its head, the body behind them.
    fn begin(&mut self, kind: u8, time_ns: u64) {
        self.buffer.extend_from_slice(&[0; HEAD_BYTES]);
        self.body.clear();
        self.body.push(kind);
        // Threads may come out of order by less than anybody can tell.
        put(&mut self.body, time_ns.saturating_sub(self.time_ns));
        self.time_ns = self.time_ns.max(time_ns);
        self.record_start = self.buffer.len() - HEAD_BYTES;
    }

    fn chunk(&mut self, hash: Option<ContentHash>, bytes: &[u8]) {
        let Some(hash) = hash else { return self.body.push(chunk::ZEROS) };
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

    /// Closes the record and gives its position.
    fn end(&mut self) -> u64 {
        let is_event = self.body[0] != kind::TAG;
        let data_length = (self.buffer.len() - self.record_start - HEAD_BYTES) as u32;
        let check = check_of(self.offset, data_length, &self.body);
        let head = &mut self.buffer[self.record_start..][..HEAD_BYTES];
        head[0..4].copy_from_slice(&(self.body.len() as u32).to_le_bytes());
        head[4..8].copy_from_slice(&data_length.to_le_bytes());
        head[8..16].copy_from_slice(&check.to_le_bytes());
        self.buffer.extend_from_slice(&self.body);
        self.offset += (self.buffer.len() - self.record_start) as u64;
        if self.buffer.len() >= BUFFER_BYTES {
            self.hand_over();
        }
        let position = self.summary.events;
        self.summary.events += u64::from(is_event);
        position
    }

    fn range(&mut self, kind: u8, time_ns: u64, offset: u64, length: u64) -> u64 {
        self.begin(kind, time_ns);
        put(&mut self.body, offset);
        put(&mut self.body, length);
        self.end()
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
        self.end();
    }

    /// Gives the buffer to the thread that writes, for another; waits if that has too many.
    fn hand_over(&mut self) {
        let next = self.free.try_recv().unwrap_or_else(|_| Vec::with_capacity(BUFFER_BYTES * 2));
        let full = std::mem::replace(&mut self.buffer, next);
        // After the end there is nobody to write: what comes then is not recorded.
        if let Some(to_file) = &self.to_file {
            let _ = to_file.send(full);
        }
    }

    /// Writes what is left and ends the thread; gives the file the first time.
    fn close(&mut self) -> Result<Option<File>> {
        if self.to_file.is_some() {
            self.hand_over();
        }
        self.to_file = None;
        match self.file_thread.take().map(JoinHandle::join) {
            Some(Ok(file)) => Ok(Some(file)),
            Some(Err(_)) => {
                Err(Error::new(ErrorKind::Internal, "the thread that writes the recording failed"))
            }
            None => Ok(None),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Who wants to know of errors has finished it.
        let _ = self.log.get_mut().close();
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recorder({:032x})", self.header.id)
    }
}

/// Whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // Most data say so with their first byte. In words, so that the rest is compared many at a time.
    bytes.first().is_none_or(|&first| first == 0)
        && bytes.chunks(64).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_that_finds_no_room_stops_no_request_and_says_so_at_the_end() {
        let path = Path::new("/dev/full");
        let file = File::options().write(true).open(path).expect("Linux has it");
        let header = Header { size: 1 << 20, block_size: 512, atomic_write_bytes: 512, id: 1 };
        let recorder = Recorder::over(file, path, header, RecorderOptions::default()).expect("a thread");
        for _ in 0..10_000 {
            recorder.done(0, recorder.write(0, 0, false, Tag::NONE, &[1; 4096]), true);
        }
        let error = recorder.finish().expect_err("nothing could be written");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().contains("/dev/full"), "{error}");
    }

    #[test]
    fn zeros_are_zeros_wherever_another_byte_may_hide() {
        for length in [0, 1, 63, 64, 65, 4096] {
            let mut bytes = vec![0; length];
            assert!(is_zero(&bytes));
            for at in 0..length {
                bytes[at] = 1;
                assert!(!is_zero(&bytes), "{length} {at}");
                bytes[at] = 0;
            }
        }
    }
}
