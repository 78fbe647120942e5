//! The thread that looks at a machine at its interval, and at the beginning and end of a phase; and other machines that
//! do so themselves.
//!
//! Whoever runs the trial only leaves word and never waits, until the end.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::Result;
use rotproof_block::error::IoContext;
use rotproof_machine::Cancel;

use crate::look::Looks;
use crate::machine::Machine;
use crate::rates::Metric;
use crate::recording::{Moment, Of, Recording};
use crate::remote::{self, Remote};
use crate::spec::ProbesSpec;

/// Samples until it is ended.
#[derive(Debug)]
pub struct Sampler {
    words: Sender<Word>,
    thread: JoinHandle<Recording>,
    latest: Latest,
    /// Other machines.
    remotes: Vec<Remote>,
}

/// What was seen at the last look, for whoever wants to know meanwhile.
pub type Latest = Arc<Mutex<Vec<ProbeValue>>>;

/// One value of the last look.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeValue {
    /// Of which machine.
    pub machine: String,
    /// What is measured.
    pub metric: Metric,
    /// Of which device, interface, resource or process; empty for the machine as a whole.
    pub instance: String,
    /// In the unit of the metric.
    pub value: f64,
}

/// What the thread is told.
enum Word {
    /// A phase begins; whether it is the run.
    Phase {
        is_run: bool,
    },
    SubjectDisk(String),
}

impl Sampler {
    /// Looks at this machine and at those that `spec` names from now on. Times count from `epoch`. Fails with
    /// [`rotproof_block::ErrorKind::Missing`] if one of the others cannot be reached or is none that can be looked at, and
    /// with [`rotproof_block::ErrorKind::Cancelled`] if the user does not want to wait for it.
    pub fn begin(spec: &ProbesSpec, epoch: Instant, cancel: &Cancel) -> Result<Self> {
        let latest = Latest::default();
        let remotes = remote::start_all(spec, epoch, &latest, cancel)?;
        let local = Self::start_with(Machine::local(spec), spec.interval.0, epoch, latest)?;
        Ok(Self { remotes, ..local })
    }

    /// Looks at this machine alone from now on. Times count from `epoch`.
    pub fn on_this_machine(spec: &ProbesSpec, epoch: Instant) -> Result<Self> {
        Self::start(Machine::local(spec), spec.interval.0, epoch)
    }

    /// Looks at `machine` every `interval` from now on. Times count from `epoch`.
    pub fn start(machine: Machine, interval: Duration, epoch: Instant) -> Result<Self> {
        Self::start_with(machine, interval, epoch, Latest::default())
    }

    fn start_with(machine: Machine, interval: Duration, epoch: Instant, latest: Latest) -> Result<Self> {
        let (words, told) = channel();
        let shown = Arc::clone(&latest);
        let begin = move || State {
            looks: Looks::begin(machine, interval),
            epoch,
            is_run: false,
            recording: Recording::default(),
            latest: shown,
        };
        let thread = std::thread::Builder::new()
            .name("probes".into())
            .spawn(move || begin().sample(&told))
            .doing(|| "starting the thread of the probes".into())?;
        Ok(Self { words, thread, latest, remotes: Vec::new() })
    }

    /// Where the values of the last look stand.
    pub fn latest(&self) -> &Latest {
        &self.latest
    }

    /// A phase begins, and the one before it ends: so that figures of the run have nothing of what comes before or
    /// after.
    pub fn begin_phase(&self, is_run: bool) {
        self.tell(Word::Phase { is_run });
        self.remotes.iter().for_each(|remote| remote.begin_phase(is_run));
    }

    /// A block device, such as `loop3`, belongs to the subject.
    pub fn add_subject_disk(&self, name: &str) {
        self.tell(Word::SubjectDisk(name.to_owned()));
    }

    fn tell(&self, word: Word) {
        // It ends before it is told to only by a panic, which the end will tell of.
        let _ = self.words.send(word);
    }

    /// Looks a last time, and ends the commands that lead to other machines.
    pub fn end(self) -> Recording {
        drop(self.words);
        let mut recording = self.thread.join().unwrap_or_else(|_| {
            let mut recording = Recording::default();
            recording.note("the probes ended with a defect of Rotproof, and what they had found is lost");
            recording
        });
        remote::end_all(self.remotes, &mut recording);
        recording
    }
}

struct State {
    looks: Looks,
    epoch: Instant,
    is_run: bool,
    recording: Recording,
    latest: Latest,
}

impl State {
    fn sample(mut self, told: &Receiver<Word>) -> Recording {
        loop {
            match told.recv_timeout(self.looks.until_next()) {
                Ok(Word::SubjectDisk(name)) => self.looks.machine.add_subject_disk(&name),
                Ok(Word::Phase { is_run }) => {
                    self.look();
                    self.is_run = is_run;
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.look();
                    let missed = self.looks.plan_next();
                    self.recording.miss(missed);
                }
                // The other side says stop by hanging up.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.look();
        for note in self.looks.machine.notes() {
            self.recording.note(note);
        }
        self.recording.finish()
    }

    fn look(&mut self) {
        let mut values = Vec::new();
        let seen = self.looks.look(&mut |metric, instance, value| {
            values.push((metric, instance.to_owned(), value));
        });
        let Some((now, span)) = seen else { return };
        let moment = Moment {
            time_ns: u64::try_from(now.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX),
            seconds: span.as_secs_f64(),
            is_of_run: self.is_run,
        };
        let (machine, recording) = (&self.looks.machine, &mut self.recording);
        recording.count(moment);
        for (metric, instance, value) in &values {
            let is_of_subject = metric.name.starts_with("disk.") && machine.is_of_subject(instance);
            let of = Of { machine: machine.name(), metric: *metric, instance, is_of_subject };
            recording.add(moment, of, *value);
        }
        show(&self.latest, machine.name(), values);
    }
}

/// Puts what was seen of a machine in the place of what was seen of it before.
pub(crate) fn show(latest: &Latest, machine: &str, values: Vec<(Metric, String, f64)>) {
    let mut latest = latest.lock();
    latest.retain(|value| value.machine != machine);
    latest.extend(values.into_iter().map(|(metric, instance, value)| ProbeValue {
        machine: machine.to_owned(),
        metric,
        instance,
        value,
    }));
}

#[cfg(test)]
mod tests {
    use rotproof_machine::ProcessorUse;

    use super::*;
    use crate::look::APART_MIN;
    use crate::machine::{OWN_NAME, recorded};
    use crate::rates::{CPU_UTILISATION, PROCESS_USER};

    /// Keeps this thread busy for so much processor time, however long it takes to get it.
    fn burn(seconds: f64) {
        let used = || ProcessorUse::of_this_thread().expect("measured").user_seconds;
        let (before, mut value) = (used(), 1u64);
        while used() - before < seconds {
            (0..100_000).for_each(|_| value = std::hint::black_box(value.wrapping_mul(3)));
        }
    }

    #[test]
    fn a_busy_loop_is_seen_in_the_cpu_figures_of_the_run() {
        let spec = ProbesSpec::default();
        let sampler = Sampler::start(Machine::local(&spec), Duration::from_millis(100), Instant::now())
            .expect("a thread");
        sampler.begin_phase(true);
        burn(0.2);
        sampler.begin_phase(false);
        let recording = sampler.end();
        let report = recording.report(&spec);
        let mean = |name, instance| {
            let found =
                report.series.iter().find(|series| series.metric == name && series.instance == instance);
            found.unwrap_or_else(|| panic!("{name} of {instance} in {report:?}")).mean
        };
        let utilisation = mean(CPU_UTILISATION.name, "");
        assert!(utilisation > 0.0 && utilisation <= 1.0, "{utilisation}");
        assert!(mean(PROCESS_USER.name, OWN_NAME) > 0.0, "{report:?}");
        assert!(report.run_samples >= 1 && report.samples >= report.run_samples, "{report:?}");
        for series in recording.series() {
            assert!(
                series.times_ns.is_sorted() && series.times_ns.len() == series.values.len(),
                "{series:?}"
            );
        }
    }

    #[test]
    fn a_machine_that_tells_nothing_gives_no_series_and_says_why() {
        let machine = Machine::in_folders("bare", "/nowhere", "/nowhere", &ProbesSpec::default());
        let sampler = Sampler::start(machine, Duration::from_millis(100), Instant::now()).expect("a thread");
        sampler.begin_phase(true);
        std::thread::sleep(APART_MIN * 2);
        let recording = sampler.end();
        let report = recording.report(&ProbesSpec::default());
        assert!(recording.series().is_empty() && report.run_samples > 0, "{report:?}");
        assert!(report.notes.iter().any(|note| note.contains("/nowhere/pressure/io")), "{report:?}");
    }

    #[test]
    fn the_disk_of_the_subject_is_marked() {
        let folder = recorded::folder();
        // A figure per second takes two looks, and on a busy machine the thread that looks may come late.
        let look = |patience: u32| {
            let (proc, sys) = (folder.path().join("proc"), folder.path().join("sys"));
            let machine = Machine::in_folders("recorded", proc, sys, &ProbesSpec::default());
            let sampler =
                Sampler::start(machine, Duration::from_secs(3600), Instant::now()).expect("a thread");
            sampler.add_subject_disk("loop3");
            std::thread::sleep(APART_MIN * patience);
            sampler.begin_phase(true);
            std::thread::sleep(APART_MIN * patience);
            let recording = sampler.end();
            let disks = recording.series().iter().filter(|series| series.metric.name == "disk.reads");
            let found: Vec<_> = disks.map(|series| (series.instance.clone(), series.is_of_subject)).collect();
            assert!(recording.series().iter().all(|series| series.machine == "recorded"));
            found
        };
        let wanted = [("loop3".to_owned(), true), ("vda".to_owned(), false)];
        assert!([2, 4, 16, 64, 128].into_iter().any(|patience| look(patience) == wanted));
    }
}
