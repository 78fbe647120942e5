//! The side of the controller: starts the clients, lets each phase begin when all are ready, listens, and adds up.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rotproof_block::{Error, ErrorKind, Phase, Result, Time};
use rotproof_load::engine::{LoadOperation, PortableReport, Progress, ProgressCounts, ProgressKind};
use rotproof_load::{LoadReport, LoadSpec, RampUp};
use rotproof_machine::{Heard, Machine, Remote};
use rotproof_record::{IntervalLength, Recording};

use super::message::{Assignment, Order, Told, VERSION};
use crate::load::kept::Kept;
use crate::load::{Found, LoadCommand, LoadOutcome};
use rotproof_results::Performance;

use crate::{mark_errors, summarise};

/// Clients of one load, at most.
pub const CLIENTS_MAX: usize = 64;
/// How long a client may take to say that it is there.
const HELLO_WITHIN: Duration = Duration::from_secs(60);
/// How long clients may take to tell what they did when they were asked to stop.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// How often it looks whether it shall stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A load, and the machines that it comes from.
#[derive(Clone, Debug)]
pub struct ClientsCommand {
    /// The load of all of them together. Its workers are a multiple of the clients; each client gets as many. What is
    /// recorded and what probes look at is kept by this machine, which does nothing else.
    pub load: LoadCommand,
    /// Where its clients are.
    pub clients: Vec<Machine>,
}

/// What one client did.
#[derive(Clone, Debug)]
pub struct ClientOutcome {
    /// How it is reached.
    pub machine: Machine,
    /// What its machine calls itself.
    pub host: String,
    /// The workers that were its own.
    pub workers: Range<u16>,
    /// Its figures, of each phase and operation.
    pub performance: Vec<Performance>,
    /// Requests of its own that ended with an error.
    pub errors: u64,
    /// Blocks of its own that were wrong or unreadable, or could not be written: object and block.
    pub failing_blocks: Vec<(u32, u64)>,
}

/// A client, as far as it is known.
struct Client {
    remote: Remote,
    workers: Range<u16>,
    host: String,
    state: State,
    reports: Vec<LoadReport>,
    found: Option<Found>,
}

/// What a client does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It has not said that it is there.
    Called,
    /// It makes ready for its next phase, or for the end.
    Preparing,
    /// It could begin this phase.
    Ready(Phase),
    /// It is in a phase.
    Running,
    /// It has said all there is.
    Ended,
}

impl ClientsCommand {
    /// Carries it out. Fails as [`LoadCommand::run`] does, and if a client cannot be reached, fails, or talks nonsense; the
    /// text says which.
    pub fn run(&self) -> Result<LoadOutcome> {
        self.refuse_what_is_of_one_machine()?;
        let monitor = &self.load.monitor;
        monitor.begin("setup", None);
        let workers = self.load.load.workers;
        let epoch = Instant::now();
        let recorded = (LoadOperation::NAMES, u16::try_from(workers).unwrap_or(u16::MAX));
        let kept = Kept::start(
            self.load.record.as_ref(),
            recorded,
            self.load.probes.as_ref(),
            (self.load.seed, epoch, &self.load.cancel),
            monitor,
        )?;
        let (mut conversation, heard) = Conversation::start(self, epoch)?;
        let mut reports: Vec<LoadReport> = Vec::new();
        while let Some(phase) = conversation.gather(&heard)? {
            kept.begin_phase(phase == Phase::Run);
            reports.push(conversation.phase(phase, &heard, kept.recording())?);
            kept.begin_phase(false);
        }
        if let Some(recording) = kept.recording() {
            mark_errors(recording, &reports);
        }
        self.load.cancel.check_haste()?;
        let clients = std::mem::take(&mut conversation.clients);
        let all_found = || clients.iter().filter_map(|client| client.found.as_ref());
        let Some(first) = all_found().next() else {
            return Err(Error::new(ErrorKind::Internal, "a load without clients"));
        };
        let mut failures: Vec<_> = all_found().flat_map(|found| found.failures.clone()).collect();
        for way in failures.iter_mut().flat_map(|failure| &mut failure.ways) {
            let begun = conversation.begun.iter().find(|(phase, _)| *phase == way.phase);
            way.time = Time(way.time.0.saturating_add(begun.map_or(0, |(_, time)| time.0)));
        }
        failures.sort_by_key(|failure| (failure.object_index, failure.block));
        let is_interrupted = all_found().any(|found| found.is_interrupted);
        let written_blocks = all_found().map(|found| found.written_blocks).sum();
        let (load, size_bytes) = (first.load.clone(), first.size_bytes);
        let found = Found { load, size_bytes, written_blocks, failures, is_interrupted };
        let outcome = self.load.outcome(&reports, kept.end(), found);
        let clients = clients.iter().zip(&self.clients).map(|(client, machine)| client.outcome(machine));
        Ok(LoadOutcome { clients: clients.collect(), ..outcome })
    }

    fn refuse_what_is_of_one_machine(&self) -> Result<()> {
        let LoadSpec { trace, workers, until_steady, .. } = &self.load.load;
        let clients = self.clients.len();
        let why = if clients == 0 || clients > CLIENTS_MAX {
            format!("{clients} of them; give 1 to {CLIENTS_MAX}")
        } else if self.load.target.is_simulated() {
            format!("{} is simulated, and each would have one of its own", self.load.target)
        } else if trace.is_some() {
            "a trace is replayed from one machine; leave out --trace".to_owned()
        } else if until_steady.is_some() {
            "none of them knows whether all together are steady; leave out --steadystate".to_owned()
        } else if self.load.record.as_ref().is_some_and(|record| record.spec.samples) {
            "samples of every request stay on one machine; leave out --samples".to_owned()
        } else if !(*workers as usize).is_multiple_of(clients) {
            format!("{workers} workers cannot be shared by {clients}")
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Invalid, format!("--client: {why}")))
    }

    fn assignment(&self, workers: &Range<u16>) -> Assignment {
        let LoadCommand { target, load, seed, access, verify, verify_only, record, .. } = &self.load;
        Assignment {
            target: target.to_string(),
            load: load.clone(),
            seed: *seed,
            overwrite: access.overwrite,
            direct: access.direct,
            engine: access.engine,
            size: access.size,
            verify: *verify,
            verify_only: *verify_only,
            interval: record.as_ref().map_or(IntervalLength::End, |record| record.spec.interval),
            workers: (workers.start, workers.end),
        }
    }
}

impl Client {
    fn outcome(&self, machine: &Machine) -> ClientOutcome {
        ClientOutcome {
            machine: machine.clone(),
            host: self.host.clone(),
            workers: self.workers.clone(),
            performance: summarise(&self.reports),
            errors: self.reports.iter().map(LoadReport::error_count).sum(),
            failing_blocks: self
                .found
                .iter()
                .flat_map(|found| &found.failures)
                .map(|failure| (failure.object_index, failure.block))
                .collect(),
        }
    }
}

/// Who said what.
type From = (usize, Heard);

/// All clients, and what has been agreed with them.
struct Conversation<'a> {
    command: &'a ClientsCommand,
    clients: Vec<Client>,
    epoch: Instant,
    /// The phases so far, and when each began.
    begun: Vec<(Phase, Time)>,
    /// When they were asked to stop.
    stopped: Option<Instant>,
}

impl<'a> Conversation<'a> {
    /// Reaches all clients and tells each what its share is.
    fn start(command: &'a ClientsCommand, epoch: Instant) -> Result<(Self, Receiver<From>)> {
        let (send, heard) = channel();
        let each = u16::try_from(command.load.load.workers as usize / command.clients.len()).unwrap_or(1);
        let mut clients = Vec::new();
        for (number, machine) in command.clients.iter().enumerate() {
            let send = send.clone();
            let first = number as u16 * each;
            clients.push(Client {
                // If nobody listens any more, the client is being ended.
                remote: machine.start("client", move |heard| drop(send.send((number, heard))))?,
                workers: first..first + each,
                host: String::new(),
                state: State::Called,
                reports: Vec::new(),
                found: None,
            });
        }
        let mut conversation = Self { command, clients, epoch, begun: Vec::new(), stopped: None };
        let until = Instant::now() + HELLO_WITHIN;
        while let Some(silent) = conversation.clients.iter().position(|client| client.state == State::Called)
        {
            if Instant::now() >= until {
                return Err(conversation.lost(silent, "it says nothing"));
            }
            conversation.hear(&heard, None)?;
            command.load.cancel.check()?;
        }
        for client in 0..conversation.clients.len() {
            let workers = conversation.clients[client].workers.clone();
            conversation.order(client, &Order::Begin(Box::new(command.assignment(&workers))))?;
        }
        Ok((conversation, heard))
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn order(&mut self, client: usize, order: &Order) -> Result<()> {
        let line = serde_json::to_string(order)
            .map_err(|error| Error::new(ErrorKind::Internal, "writing a message").caused_by(error))?;
        match self.clients[client].remote.tell(&line) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.lost(client, "it hears nothing any more")),
        }
    }

    /// The error of a client that does not do as it should.
    fn lost(&mut self, client: usize, why: &str) -> Error {
        let remote = &mut self.clients[client].remote;
        remote.listen_for_last_words();
        remote.lost(why)
    }

    /// Waits until each client is ready for its next phase or has said all there is. Which phase that is; none if all have
    /// ended.
    fn gather(&mut self, heard: &Receiver<From>) -> Result<Option<Phase>> {
        let waits = |client: &Client| !matches!(client.state, State::Ready(_) | State::Ended);
        while self.clients.iter().any(waits) {
            self.hear(heard, None)?;
        }
        let ready = self.clients.iter().filter_map(|client| match client.state {
            State::Ready(phase) => Some(phase),
            _ => None,
        });
        // One that has written nothing has nothing to check.
        Ok(ready.min())
    }

    /// Lets a phase begin, listens until the last client has ended it, and adds up what they did.
    fn phase(
        &mut self,
        phase: Phase,
        heard: &Receiver<From>,
        recording: Option<&Arc<Recording>>,
    ) -> Result<LoadReport> {
        let LoadCommand { monitor, load, .. } = &self.command.load;
        let around = [load.ramp_up, load.cool_down].into_iter().flatten().filter_map(RampUp::time);
        let duration = load.duration.filter(|_| phase == Phase::Run);
        let duration = duration.map(|span| span.0 + around.map(|span| span.0).sum::<Duration>());
        let planned = load.total.map(|total| total.0).filter(|_| phase == Phase::Run);
        let progress = monitor.begin_load(phase.word(), planned, duration);
        let began = self.now();
        if let Some(recording) = recording {
            recording.begin_phase(phase.word(), u16::try_from(load.workers).unwrap_or(u16::MAX));
            recording.begin_at(began);
        }
        self.begun.push((phase, began));
        let before: Vec<usize> = self.clients.iter().map(|client| client.reports.len()).collect();
        for client in 0..self.clients.len() {
            if self.clients[client].state == State::Ready(phase) {
                self.order(client, &Order::Go)?;
                self.clients[client].state = State::Running;
            }
        }
        while self.clients.iter().any(|client| client.state == State::Running) {
            self.hear(heard, Some((&progress, recording, began)))?;
        }
        let told = self.clients.iter().zip(before).filter_map(|(client, before)| client.reports.get(before));
        let mut told = told.cloned();
        let Some(mut sum) = told.next() else {
            return Err(Error::new(ErrorKind::Internal, "a phase without clients"));
        };
        told.for_each(|report| sum.add(report));
        if let Some(recording) = recording {
            let cooled_down = sum.cool_down.as_ref().map(|cool_down| (cool_down.complete, cool_down.started));
            recording.end_phase(sum.started, cooled_down, sum.ended);
        }
        Ok(sum)
    }

    /// Hears the next message, if one comes soon, and the wish to stop.
    fn hear(&mut self, heard: &Receiver<From>, during: Option<During<'_>>) -> Result<()> {
        let cancel = &self.command.load.cancel;
        if cancel.is_cancelled() && self.stopped.is_none() {
            self.stopped = Some(Instant::now());
            for client in 0..self.clients.len() {
                if self.clients[client].state != State::Ended {
                    self.order(client, &Order::Stop)?;
                }
            }
        }
        cancel.check_haste()?;
        if self.stopped.is_some_and(|stopped| stopped.elapsed() > STOP_WITHIN) {
            cancel.check()?;
        }
        let (client, heard) = match heard.recv_timeout(LOOK_EVERY) {
            Ok(heard) => heard,
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::new(ErrorKind::Internal, "nobody listens to the clients any more"));
            }
        };
        match heard {
            Heard::Line(line) => match serde_json::from_str(&line) {
                Ok(told) => self.take(client, told, during),
                Err(_) => {
                    let start: String = line.chars().filter(|char| !char.is_control()).take(80).collect();
                    Err(self.lost(client, &format!("this is no message of rotproof {VERSION}: {start}")))
                }
            },
            Heard::End(_) if self.clients[client].state == State::Ended => Ok(()),
            Heard::End(why) => {
                let why = why.unwrap_or_else(|| "it ended before the load did".to_owned());
                Err(self.lost(client, &why))
            }
        }
    }

    fn take(&mut self, number: usize, told: Told, during: Option<During<'_>>) -> Result<()> {
        let client = &mut self.clients[number];
        match (told, &client.state, during) {
            (Told::Hello { rotproof, host }, State::Called, _) => {
                if rotproof != VERSION {
                    let why = format!("it has rotproof {rotproof}, this is {VERSION}; both must be the same");
                    return Err(self.lost(number, &why));
                }
                client.host = host.chars().filter(|char| !char.is_control()).take(64).collect();
                client.state = State::Preparing;
            }
            (Told::Ready { phase }, State::Preparing, _) => {
                let known = Phase::ALL.into_iter().find(|known| known.word() == phase);
                match known.filter(|known| !self.begun.iter().any(|(begun, _)| begun == known)) {
                    Some(phase) => client.state = State::Ready(phase),
                    None => return Err(self.lost(number, "it is ready for a phase that is not to come")),
                }
            }
            (Told::Interval(interval), State::Running, Some((_, recording, _))) => {
                let is_its_own = client.workers.contains(&interval.worker);
                let added = match recording {
                    Some(recording) if is_its_own => recording.add_remote(&interval),
                    Some(_) => Err(Error::new(ErrorKind::Invalid, "a worker that is not its own")),
                    None => Ok(()),
                };
                added.map_err(|error| self.lost(number, &error.to_string()))?;
            }
            (Told::Progress(counts, failures), State::Running, Some((progress, ..))) => {
                for (kind, (requests, bytes, errors)) in ProgressKind::ALL.into_iter().zip(counts) {
                    progress.add(kind, ProgressCounts { requests, bytes, errors, failures: 0 });
                }
                progress.add(ProgressKind::Other, ProgressCounts { failures, ..ProgressCounts::default() });
            }
            // What was on its way when the phase ended.
            (Told::Progress(..), ..) => {}
            (Told::Phase(report), State::Running, Some((_, _, began))) => {
                client.reports.push(PortableReport::into_report(*report, began));
                client.state = State::Preparing;
            }
            (Told::End(found), State::Preparing, _) => {
                client.found = Some(*found);
                client.state = State::Ended;
                client.remote.hang_up();
            }
            (Told::Failed { kind, message }, ..) => {
                let kind = ErrorKind::PLAIN.into_iter().find(|known| known.word() == kind);
                let cancel = &self.command.load.cancel;
                cancel.check()?;
                let machine = &self.command.clients[number];
                return Err(Error::new(kind.unwrap_or(ErrorKind::Missing), format!("{machine}: {message}")));
            }
            _ => return Err(self.lost(number, "it speaks out of turn")),
        }
        Ok(())
    }
}

impl Drop for Conversation<'_> {
    fn drop(&mut self) {
        // All at once, so that they end side by side.
        self.clients.iter_mut().for_each(|client| client.remote.hang_up());
    }
}

/// Where the figures of a phase that goes on are to be put, and when it began.
type During<'a> = (&'a Progress, Option<&'a Arc<Recording>>, Time);
