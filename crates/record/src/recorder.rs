//! What one worker tells of its requests. It belongs to the worker's thread; once warm a request costs neither a lock
//! nor an allocation.

use std::sync::Arc;

use rotproof_block::Time;

use crate::histogram::Histogram;
use crate::outcome::Measured;
use crate::recording::Recording;
use crate::samples::{Chunk, SampleSink};

/// Takes note of the requests of one worker in one phase.
pub struct Recorder {
    recording: Arc<Recording>,
    worker: u16,
    phase: PhaseKey,
    /// When the phase began, from which intervals count, and how long each is.
    origin_ns: u64,
    length_ns: u64,
    /// The interval that is open: its number, when it began, when it ends.
    index: u64,
    start_ns: u64,
    until_ns: u64,
    open: Vec<Option<Box<Open>>>,
    samples: Option<Vec<Measured>>,
}

/// A phase of a recording, in the order in which they come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PhaseKey {
    pub(crate) number: u32,
    pub(crate) name: Arc<str>,
}

/// What one operation has done in an interval.
#[derive(Debug, Default)]
pub(crate) struct Open {
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    pub(crate) retries: u64,
    pub(crate) first_error: Option<Time>,
    pub(crate) latency: Histogram,
}

impl Open {
    #[inline]
    fn record(&mut self, measured: &Measured) {
        self.latency.record(measured.ended.0.saturating_sub(measured.began.0));
        match measured.error {
            None => self.bytes += measured.bytes,
            Some(_) => self.errors += 1,
        }
        if measured.error.is_some() || measured.retries > 0 {
            self.retries += u64::from(measured.retries);
            self.first_error.get_or_insert(measured.ended);
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.retries += other.retries;
        self.first_error = [self.first_error, other.first_error].into_iter().flatten().min();
        self.latency.add(&other.latency);
    }

    pub(crate) fn clear(&mut self) {
        (self.bytes, self.errors, self.retries, self.first_error) = (0, 0, 0, None);
        self.latency.clear();
    }
}

/// An interval of one worker that is past.
pub(crate) struct Closed<'a> {
    pub(crate) worker: u16,
    pub(crate) phase: &'a PhaseKey,
    pub(crate) index: u64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// By operation.
    pub(crate) operations: &'a [Option<Box<Open>>],
}

impl Recorder {
    pub(crate) fn new(
        recording: Arc<Recording>,
        worker: u16,
        phase: PhaseKey,
        (origin_ns, length_ns): (u64, u64),
        index: u64,
    ) -> Self {
        let operations = recording.operations().len();
        let start_ns = origin_ns.saturating_add(index.saturating_mul(length_ns));
        let samples = recording.samples().map(SampleSink::empty);
        Self {
            recording,
            worker,
            phase,
            origin_ns,
            length_ns,
            index,
            start_ns,
            until_ns: start_ns.saturating_add(length_ns),
            open: std::iter::repeat_with(|| None).take(operations).collect(),
            samples,
        }
    }

    /// Takes note of a request that has completed, in the order of completion.
    #[inline]
    pub fn record(&mut self, measured: &Measured) {
        if measured.ended.0 >= self.until_ns {
            self.roll(measured.ended.0);
        }
        if let Some(open) = self.open.get_mut(usize::from(measured.operation)) {
            open.get_or_insert_with(Box::default).record(measured);
        }
        if let Some(samples) = &mut self.samples {
            samples.push(*measured);
            self.send_full();
        }
    }

    /// Says what time it is, so that an interval ends though nothing completes. For a worker that waits.
    pub fn tick(&mut self, now: Time) {
        if now.0 >= self.until_ns {
            self.roll(now.0);
        }
    }

    /// From here on requests are recorded; those before were a ramp-up.
    pub fn begin_at(&mut self, now: Time) {
        if now.0 >= self.until_ns {
            self.open_at(now.0);
        }
        self.start_ns = self.start_ns.max(now.0);
    }

    /// What comes from now on belongs to the phase that follows this one, `cool_down`.
    pub fn recover(&mut self, now: Time) {
        self.tick(now);
        self.close(now.0);
        if let Some(samples) = self.samples.take() {
            self.send(samples);
            self.samples = self.recording.samples().map(SampleSink::empty);
        }
        self.phase = self.recording.cool_down_of(&self.phase);
        self.start_ns = self.start_ns.max(now.0);
        self.recording.is_at(self.worker, &self.phase, self.index);
    }

    /// Ends the record of this worker.
    pub fn finish(mut self, now: Time) {
        self.tick(now);
        self.close(now.0);
        if let Some(samples) = self.samples.take() {
            self.send(samples);
        }
        self.recording.ended(self.worker);
    }

    #[cold]
    fn roll(&mut self, now_ns: u64) {
        self.close(self.until_ns);
        self.open_at(now_ns);
    }

    /// Opens the interval that this moment lies in.
    fn open_at(&mut self, now_ns: u64) {
        self.index = (now_ns.saturating_sub(self.origin_ns)) / self.length_ns;
        self.start_ns = self.origin_ns + self.index * self.length_ns;
        self.until_ns = self.start_ns.saturating_add(self.length_ns);
        self.recording.is_at(self.worker, &self.phase, self.index);
    }

    /// Hands over what was recorded until `end_ns`.
    fn close(&mut self, end_ns: u64) {
        let end_ns = end_ns.min(self.until_ns).max(self.start_ns);
        if end_ns == self.start_ns && self.open.iter().flatten().all(|open| open.latency.count() == 0) {
            return;
        }
        self.recording.add(&Closed {
            worker: self.worker,
            phase: &self.phase,
            index: self.index,
            start_ns: self.start_ns,
            end_ns,
            operations: &self.open,
        });
        self.open.iter_mut().flatten().for_each(|open| open.clear());
    }

    fn send_full(&mut self) {
        let Some(sink) = self.recording.samples() else { return };
        if self.samples.as_ref().is_some_and(|samples| samples.len() >= sink.chunk) {
            let full = self.samples.replace(sink.empty()).unwrap_or_default();
            self.send(full);
        }
    }

    #[cold]
    fn send(&self, samples: Vec<Measured>) {
        if let (Some(sink), false) = (self.recording.samples(), samples.is_empty()) {
            sink.send(Chunk { phase: Arc::clone(&self.phase.name), worker: self.worker, samples });
        }
    }
}
