//! Takes down what passes while requests pass, from any number of threads.
//!
//! On the path of a request stands as little as can be: under one lock the event gets its position, and its data are copied into
//! a batch. Full batches go to a thread that hashes them, finds what is equal, writes the file ([`Encoder`]), and gives them
//! back. Nothing is allocated once warm. A file that cannot be written ends the recording, never the requests:
//! [`Recorder::finish`] says so.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result, Tag};

use super::encoder::{Batch, Encoder, Entry};
use super::format::Header;

/// A batch with so many bytes of data, or entries, goes to the thread that writes.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_ENTRIES: usize = 16 << 10;
/// So many batches may wait for the file before requests do.
const BATCHES_WAITING: usize = 8;
/// A longer mark is refused.
const MARK_BYTES_MAX: usize = 64 << 10;

/// The name of what came after [`Recorder::stop`].
const NOT_RECORDED: u64 = u64::MAX;

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
    front: Mutex<Front>,
    failure: Arc<Mutex<Option<Error>>>,
    header: Header,
}

struct Front {
    /// Nothing is taken down any more but the end.
    is_stopped: bool,
    batch: Batch,
    time_ns: u64,
    summary: Summary,
    to_file: Option<SyncSender<Batch>>,
    free: Receiver<Batch>,
    /// Gives the file and its length.
    file_thread: Option<JoinHandle<(File, u64)>>,
}

impl Recorder {
    /// Begins a recording in a new file at `path`. Fails with [`ErrorKind::Invalid`] on a header that no device can
    /// have, else as making the file does.
    pub fn create(path: &Path, header: Header, options: RecorderOptions) -> Result<Arc<Self>> {
        header.check()?;
        let file = File::create_new(path).doing(|| format!("recording to {}", path.display()))?;
        Self::over(file, path, header, options)
    }

    fn over(file: File, path: &Path, header: Header, options: RecorderOptions) -> Result<Arc<Self>> {
        let (to_file, batches) = sync_channel::<Batch>(BATCHES_WAITING);
        let (give_back, free) = sync_channel(BATCHES_WAITING + 1);
        let failure = Arc::new(Mutex::new(None));
        let mut encoder = Encoder::new(file, header, options.same_bits.clamp(1, 30));
        let (noted, shown) = (Arc::clone(&failure), path.display().to_string());
        let file_thread = std::thread::Builder::new()
            .name("recording".into())
            .spawn(move || {
                let note = |written: std::io::Result<()>| {
                    if let Err(error) = written {
                        let error = Error::from_io(error, format!("recording to {shown}"));
                        noted.lock().get_or_insert(error);
                    }
                };
                // A recording can be told as one from its first moment on.
                note(encoder.write_out());
                for mut batch in batches {
                    let is_sound = noted.lock().is_none();
                    if is_sound {
                        note(encoder.encode(&batch));
                    }
                    batch.clear();
                    // A full list of free batches needs no other.
                    let _ = give_back.try_send(batch);
                }
                encoder.end()
            })
            .doing(|| "starting the thread that writes the recording".into())?;
        let front = Front {
            is_stopped: false,
            batch: Batch::default(),
            time_ns: 0,
            summary: Summary::default(),
            to_file: Some(to_file),
            free,
            file_thread: Some(file_thread),
        };
        Ok(Arc::new(Self { front: Mutex::new(front), failure, header }))
    }

    /// What was said of the device.
    pub fn header(&self) -> Header {
        self.header
    }

    /// A write is about to be submitted. Gives its name for [`Recorder::done`].
    pub fn write(&self, time_ns: u64, offset: u64, fua: bool, tag: Tag, data: &[u8]) -> u64 {
        let mut front = self.front.lock();
        if front.is_stopped {
            return NOT_RECORDED;
        }
        front.summary.writes += 1;
        front.summary.data_bytes += data.len() as u64;
        front.batch.bytes.extend_from_slice(data);
        front.push(time_ns, Entry::Write { offset, length: data.len(), fua, tag })
    }

    /// A flush is about to be submitted. Gives its name.
    pub fn flush(&self, time_ns: u64) -> u64 {
        self.front.lock().push(time_ns, Entry::Flush)
    }

    /// A discard is about to be submitted. Gives its name.
    pub fn discard(&self, time_ns: u64, offset: u64, length: u64) -> u64 {
        self.front.lock().push(time_ns, Entry::Discard { offset, length })
    }

    /// A write of zeros without data is about to be submitted. Gives its name.
    pub fn write_zeroes(&self, time_ns: u64, offset: u64, length: u64) -> u64 {
        self.front.lock().push(time_ns, Entry::WriteZeroes { offset, length })
    }

    /// The request with this name has completed, and its submitter does not know that yet.
    pub fn done(&self, time_ns: u64, request: u64, ok: bool) {
        let mut front = self.front.lock();
        if front.is_stopped {
            return;
        }
        let distance = front.summary.events - request;
        front.push(time_ns, Entry::Done { distance, ok });
    }

    /// Says something about the load that holds from now on. A longer text than 64 KiB is cut.
    pub fn mark(&self, time_ns: u64, text: &str) {
        let text = &text[..text.floor_char_boundary(MARK_BYTES_MAX)];
        let mut front = self.front.lock();
        if front.is_stopped {
            return;
        }
        front.batch.bytes.extend_from_slice(text.as_bytes());
        front.push(time_ns, Entry::Mark { length: text.len() });
    }

    /// Time of the last event, for a mark from somewhere without a clock of the runtime.
    pub fn time_ns(&self) -> u64 {
        self.front.lock().time_ns
    }

    /// How many events there are so far.
    pub fn events(&self) -> u64 {
        self.front.lock().summary.events
    }

    /// Nothing is recorded any more, and nothing of what is under way completes in the recording. [`Recorder::finish`] still ends it
    /// in order.
    pub fn stop(&self) {
        self.front.lock().is_stopped = true;
    }

    /// Ends the recording in order; what comes after is not recorded. Fails if any of it could not be written: what
    /// could is a truncated recording.
    pub fn finish(&self) -> Result<Summary> {
        let mut front = self.front.lock();
        if front.to_file.is_some() {
            let time_ns = front.time_ns;
            front.push(time_ns, Entry::End);
        }
        let file = front.close()?;
        if let Some((_, file_bytes)) = &file {
            front.summary.file_bytes = *file_bytes;
        }
        let summary = front.summary;
        drop(front);
        if let Some(error) = self.failure.lock().take() {
            return Err(error);
        }
        if let Some((file, _)) = file {
            file.sync_data().doing(|| "making the recording durable".into())?;
        }
        Ok(summary)
    }
}

impl Front {
    /// Takes down an event whose data are in the batch, and gives its position.
    fn push(&mut self, time_ns: u64, entry: Entry) -> u64 {
        if self.is_stopped && !matches!(entry, Entry::End) {
            return NOT_RECORDED;
        }
        // Threads may come out of order by less than anybody can tell.
        self.time_ns = self.time_ns.max(time_ns);
        self.batch.entries.push((self.time_ns, entry));
        let position = self.summary.events;
        self.summary.events += 1;
        if self.batch.bytes.len() >= BATCH_BYTES || self.batch.entries.len() >= BATCH_ENTRIES {
            self.hand_over();
        }
        position
    }

    /// Gives the batch to the thread that writes, for another; waits if that has too many.
    fn hand_over(&mut self) {
        match &self.to_file {
            Some(to_file) => {
                let next = self.free.try_recv().unwrap_or_default();
                let full = std::mem::replace(&mut self.batch, next);
                let _ = to_file.send(full);
            }
            // After the end there is nobody to write: what comes then is not recorded.
            None => self.batch.clear(),
        }
    }

    /// Writes what is left and ends the thread; gives the file and its length the first time.
    fn close(&mut self) -> Result<Option<(File, u64)>> {
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
        let _ = self.front.get_mut().close();
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
    fn what_comes_after_a_stop_is_not_recorded_and_what_was_under_way_stays_so() {
        use super::super::{Event, Reader, What};
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("r");
        let header = Header { size: 1 << 20, block_size: 512, atomic_write_bytes: 512, id: 1 };
        let recorder = Recorder::create(&path, header, RecorderOptions::default()).expect("a recording");
        let first = recorder.write(0, 0, false, Tag::NONE, &[1; 512]);
        recorder.done(0, first, true);
        let under_way = recorder.write(0, 512, false, Tag::NONE, &[2; 512]);
        recorder.mark(0, "now");
        recorder.stop();
        recorder.done(0, under_way, true);
        recorder.done(0, recorder.write(0, 1024, false, Tag::NONE, &[3; 512]), true);
        recorder.done(0, recorder.flush(0), true);
        recorder.mark(0, "later");
        assert_eq!(recorder.finish().expect("there is room").events, 5);
        let mut reader = Reader::open(&path).expect("a recording");
        let mut found = Vec::new();
        while let Some(Event { what, .. }) = reader.next_event().expect("whole") {
            found.push(match what {
                What::Write(write) => format!("write {}", write.offset),
                What::Mark(text) => text,
                other => format!("{other:?}"),
            });
        }
        assert_eq!(found, ["write 0", "Done { request: 0, ok: true }", "write 512", "now", "End"]);
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
