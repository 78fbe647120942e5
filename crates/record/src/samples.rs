//! Every single request: workers fill chunks, a thread writes them to `samples.parquet`, and hands the memory back.
//!
//! Memory is bounded: a worker whose chunks are all on their way waits for one to come back. Nothing is left out, so a
//! disk for the results that is slower than the load slows the load down.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::outcome::{Measured, outcome_word};
use crate::phase::phases_of;
use crate::scratch::{publish, scratch_file};
use crate::table::{Column, TableWriter, Values};

/// A request, as `samples.parquet` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// `prefill`, `run`, `cool_down`, `check`.
    pub phase: Arc<str>,
    /// Which worker, from 0.
    pub worker: u16,
    /// `read`, `write`, `flush`, or an operation on files.
    pub operation: Arc<str>,
    /// When it began, in nanoseconds since the run did.
    pub began_ns: u64,
    /// From beginning to completion, in nanoseconds.
    pub latency_ns: u64,
    /// Bytes that it was to move.
    pub bytes: u64,
    /// How often it was tried again.
    pub retries: u32,
    /// `ok`, or the kind of its error.
    pub outcome: Arc<str>,
}

/// Requests of one worker in one phase.
pub(crate) struct Chunk {
    pub(crate) phase: Arc<str>,
    pub(crate) worker: u16,
    pub(crate) samples: Vec<Measured>,
}

/// Requests in the chunks of all workers together, and the limits of one.
const CHUNKS_OF_ALL: usize = 1 << 19;
const CHUNK_MIN: usize = 2048;
const CHUNK_MAX: usize = 32_768;
/// Chunks that may be on their way at once, for each worker.
const CHUNKS_PER_WORKER: usize = 3;

const COLUMNS: [Column; 8] = [
    Column::text("phase"),
    Column::integer("worker"),
    Column::text("operation"),
    Column::integer("began_ns"),
    Column::integer("latency_ns"),
    Column::integer("bytes"),
    Column::integer("retries"),
    Column::text("outcome"),
];

/// Where full chunks go.
pub(crate) struct SampleSink {
    full: Mutex<Option<SyncSender<Chunk>>>,
    empty: Mutex<Receiver<Vec<Measured>>>,
    writer: Mutex<Option<JoinHandle<Result<File>>>>,
    /// Requests in a chunk.
    pub(crate) chunk: usize,
}

impl SampleSink {
    /// Starts the thread; it writes to a nameless file beside the results.
    pub(crate) fn start(folder: &Path, operations: &'static [&'static str], workers: u16) -> Result<Self> {
        let table = TableWriter::new(scratch_file(folder)?, "samples", &COLUMNS)?;
        let (full, incoming) = sync_channel(CHUNKS_PER_WORKER * usize::from(workers.max(1)));
        let (outgoing, empty) = sync_channel(CHUNKS_PER_WORKER * usize::from(workers.max(1)) + 1);
        let writer = std::thread::Builder::new()
            .name("samples".into())
            .spawn(move || write_all(table, &incoming, &outgoing, operations))
            .doing(|| "starting the thread that writes samples".to_owned())?;
        Ok(Self {
            full: Mutex::new(Some(full)),
            empty: Mutex::new(empty),
            writer: Mutex::new(Some(writer)),
            chunk: (CHUNKS_OF_ALL / usize::from(workers.max(1))).clamp(CHUNK_MIN, CHUNK_MAX),
        })
    }

    /// An empty chunk: one that came back, or a new one.
    pub(crate) fn empty(&self) -> Vec<Measured> {
        self.empty.lock().try_recv().unwrap_or_else(|_| Vec::with_capacity(self.chunk))
    }

    /// Sends a chunk to be written; waits while too many are on their way.
    pub(crate) fn send(&self, chunk: Chunk) {
        let full = self.full.lock().clone();
        // A writer that has failed takes nothing any more; `finish` says why.
        if let Some(full) = full {
            let _ = full.send(chunk);
        }
    }

    /// Waits until everything is written, and puts it at `path`.
    pub(crate) fn finish(&self, path: &Path) -> Result<()> {
        drop(self.full.lock().take());
        let Some(writer) = self.writer.lock().take() else { return Ok(()) };
        let written = writer.join().unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Internal, "the thread that writes samples panicked"))
        });
        publish(written?, path)
    }
}

impl Drop for SampleSink {
    /// Ends the thread of a run that was given up.
    fn drop(&mut self) {
        drop(self.full.get_mut().take());
        if let Some(writer) = self.writer.get_mut().take() {
            // What it has written goes with its nameless file.
            let _ = writer.join();
        }
    }
}

fn write_all(
    mut table: TableWriter<File>,
    incoming: &Receiver<Chunk>,
    outgoing: &SyncSender<Vec<Measured>>,
    operations: &'static [&'static str],
) -> Result<File> {
    let operations: Vec<Arc<str>> = operations.iter().chain(&["unknown"]).map(|&name| name.into()).collect();
    let mut failed = None;
    for chunk in incoming {
        if failed.is_none() {
            failed = table.write(&to_columns(&chunk, &operations)).err();
        }
        let mut samples = chunk.samples;
        samples.clear();
        // Where nobody wants it back it is freed.
        let _ = outgoing.try_send(samples);
    }
    match failed {
        Some(error) => Err(error),
        None => table.finish(),
    }
}

/// The last of the operations is an unknown one.
fn to_columns(chunk: &Chunk, operations: &[Arc<str>]) -> Vec<Values> {
    let samples = &chunk.samples;
    let integers = |value: fn(&Measured) -> u64| {
        Values::Integers(
            samples.iter().map(|sample| i64::try_from(value(sample)).unwrap_or(i64::MAX)).collect(),
        )
    };
    let unknown = u8::try_from(operations.len() - 1).unwrap_or(u8::MAX);
    let (mut outcomes, mut outcome_of) = (vec![Arc::from(outcome_word(None))], Vec::new());
    if samples.iter().any(|sample| sample.error.is_some()) {
        outcome_of.extend(samples.iter().map(|sample| number_of(outcome_word(sample.error), &mut outcomes)));
    } else {
        outcome_of.resize(samples.len(), 0);
    }
    vec![
        Values::Few(vec![Arc::clone(&chunk.phase)], vec![0; samples.len()]),
        Values::Integers(vec![i64::from(chunk.worker); samples.len()]),
        Values::Few(
            operations.to_vec(),
            samples.iter().map(|sample| sample.operation.min(unknown)).collect(),
        ),
        integers(|sample| sample.began.0),
        integers(|sample| sample.ended.0.saturating_sub(sample.began.0)),
        integers(|sample| sample.bytes),
        integers(|sample| sample.retries.into()),
        Values::Few(outcomes, outcome_of),
    ]
}

/// Which of the words it is; a new one is added. There are fewer than twenty.
fn number_of(word: &str, words: &mut Vec<Arc<str>>) -> u8 {
    let number = words.iter().position(|known| **known == *word).unwrap_or_else(|| {
        words.push(word.into());
        words.len() - 1
    });
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// The rows of a table that was read.
pub(crate) fn from_table(table: &crate::table::Table) -> Result<Vec<Sample>> {
    let (phases, operations) = (phases_of(table)?, table.texts("operation")?);
    let outcomes = table.texts("outcome")?;
    let (workers, began) = (table.integers("worker")?, table.integers("began_ns")?);
    let (latencies, bytes) = (table.integers("latency_ns")?, table.integers("bytes")?);
    let retries = table.integers("retries")?;
    Ok((0..table.rows())
        .map(|row| Sample {
            phase: Arc::clone(&phases[row]),
            worker: u16::try_from(workers[row]).unwrap_or(u16::MAX),
            operation: Arc::clone(&operations[row]),
            began_ns: began[row].unsigned_abs(),
            latency_ns: latencies[row].unsigned_abs(),
            bytes: bytes[row].unsigned_abs(),
            retries: u32::try_from(retries[row]).unwrap_or(u32::MAX),
            outcome: Arc::clone(&outcomes[row]),
        })
        .collect())
}
