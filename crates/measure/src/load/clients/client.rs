//! The side of a client: `rotproof client`, which does its share of a load for a controller at the other end of its standard
//! input and output.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::{Error, ErrorKind, Result, Time};
use rotproof_load::LoadReport;
use rotproof_load::engine::{LoadOperation, PortableReport, ProgressCounts, ProgressKind};
use rotproof_machine::{Cancel, start_thread};
use rotproof_record::Recording;

use super::message::{Assignment, Order, Told, VERSION};
use crate::Monitor;
use crate::load::{Access, Found, LoadCommand, Share};

/// How often it tells how far it is.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// How often it looks whether it shall stop while it waits for the others.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Does the share of the controller that speaks on `input`, and tells it what came of it on `output`. An error is one of
/// the conversation; what goes wrong with the load, the controller is told.
pub fn serve(
    input: impl BufRead + Send + 'static,
    output: impl Write + Send + 'static,
    cancel: &Cancel,
) -> Result<()> {
    let output = Arc::new(Speech(Mutex::new(Box::new(output))));
    output.tell(&Told::Hello { rotproof: VERSION.to_owned(), host: host_name() })?;
    let orders = listen(input, cancel.clone())?;
    let assignment = match orders.recv() {
        Ok(Order::Begin(assignment)) => assignment,
        Ok(Order::Go) => return Err(Error::new(ErrorKind::Invalid, "told to go on before it began")),
        // Whoever looked only whether it is there has hung up.
        Ok(Order::Stop) | Err(_) => return Ok(()),
    };
    let ended = carry_out(&assignment, &output, &orders, cancel);
    output.tell(&match ended {
        Ok(found) => Told::End(Box::new(found)),
        Err(error) => Told::Failed { kind: error.kind().word().to_owned(), message: error.to_string() },
    })
}

/// What it says, line by line, from several threads.
struct Speech(Mutex<Box<dyn Write + Send>>);

impl Speech {
    fn tell(&self, told: &Told) -> Result<()> {
        let mut line = serde_json::to_string(told)
            .map_err(|error| Error::new(ErrorKind::Internal, "writing a message").caused_by(error))?;
        line.push('\n');
        let mut output = self.0.lock();
        let sent = output.write_all(line.as_bytes()).and_then(|()| output.flush());
        sent.map_err(|error| Error::from_io(error, "telling the controller"))
    }
}

/// Hands on the orders as they come. When they end, or one of them says so, or makes no sense, the load is to stop.
fn listen(input: impl BufRead + Send + 'static, cancel: Cancel) -> Result<Receiver<Order>> {
    let (send, orders) = channel();
    start_thread("orders", move || {
        for line in input.lines() {
            let order = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            match order {
                Some(Order::Stop) | None => break,
                Some(order) => {
                    if send.send(order).is_err() {
                        break;
                    }
                }
            }
        }
        cancel.cancel(libc::SIGTERM);
        let _ = send.send(Order::Stop);
    })?;
    Ok(orders)
}

fn carry_out(
    assignment: &Assignment,
    output: &Arc<Speech>,
    orders: &Receiver<Order>,
    cancel: &Cancel,
) -> Result<Found> {
    let monitor = Arc::new(Monitor::default());
    let command = LoadCommand {
        target: assignment.target.parse().map_err(|why| {
            Error::new(ErrorKind::Invalid, format!("the target {}: {why}", assignment.target))
        })?,
        load: assignment.load.clone(),
        seed: assignment.seed,
        access: Access {
            writes: false,
            overwrite: assignment.overwrite,
            direct: assignment.direct,
            engine: assignment.engine,
            size: assignment.size,
            is_shared: true,
        },
        verify: assignment.verify,
        verify_only: assignment.verify_only,
        probes: None,
        record: None,
        cancel: cancel.clone(),
        monitor: Arc::clone(&monitor),
    };
    let speech = Arc::clone(output);
    let recording = Recording::forwarding(LoadOperation::NAMES, assignment.interval, move |interval| {
        // If nobody listens any more, the input has ended as well, and the load stops.
        let _ = speech.tell(&Told::Interval(interval));
    });
    let origins = Arc::new(Mutex::new(Vec::new()));
    let (speech, of_phases) = (Arc::clone(output), Arc::clone(&origins));
    let share = Share {
        workers: assignment.workers.0..assignment.workers.1,
        recording: Arc::clone(&recording),
        ready: Box::new(|phase| {
            output.tell(&Told::Ready { phase: phase.to_owned() })?;
            loop {
                match orders.recv_timeout(LOOK_EVERY) {
                    Ok(Order::Go) => return Ok(()),
                    Ok(_) | Err(RecvTimeoutError::Disconnected) => {
                        return Err(Error::new(ErrorKind::Cancelled, "stopped by the controller"));
                    }
                    Err(RecvTimeoutError::Timeout) => cancel.check()?,
                }
            }
        }),
        ended: Box::new(move |report: &LoadReport| {
            let origin = recording.began().unwrap_or(report.started);
            of_phases.lock().push((report.phase, origin));
            speech.tell(&Told::Phase(Box::new(PortableReport::of(report, origin))))
        }),
    };
    let mut outcome = {
        let _progress = TellProgress::start(Arc::clone(output), monitor)?;
        command.run_share(Some(&share))?
    };
    let origins = origins.lock();
    for way in outcome.failures.iter_mut().flat_map(|failure| &mut failure.ways) {
        let origin =
            origins.iter().find(|(phase, _)| *phase == way.phase).map_or(Time::default(), |(_, at)| *at);
        way.time = Time(way.time.0.saturating_sub(origin.0));
    }
    Ok(Found {
        load: outcome.load,
        size_bytes: outcome.size_bytes,
        written_blocks: outcome.verified_blocks,
        failures: outcome.failures,
        is_interrupted: outcome.is_interrupted,
    })
}

/// Tells now and then what has been done, from a thread of its own, until it is dropped.
struct TellProgress {
    stop: Option<std::sync::mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl TellProgress {
    fn start(output: Arc<Speech>, monitor: Arc<Monitor>) -> Result<Self> {
        let (stop, stopped) = channel();
        let thread = start_thread("progress", move || {
            let mut told: (&'static str, [ProgressCounts; ProgressKind::ALL.len()], u64) = Default::default();
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(PROGRESS_EVERY) {
                let Some((phase, progress)) = monitor.phases().pop() else { continue };
                if told.0 != phase {
                    told = (phase, Default::default(), 0);
                }
                let now = ProgressKind::ALL.map(|kind| progress.counts_of(kind));
                let failures = progress.counts().failures;
                let mut since = [(0, 0, 0); ProgressKind::ALL.len()];
                for ((since, now), told) in since.iter_mut().zip(&now).zip(&told.1) {
                    *since = (
                        now.requests.saturating_sub(told.requests),
                        now.bytes.saturating_sub(told.bytes),
                        now.errors.saturating_sub(told.errors),
                    );
                }
                let new_failures = failures.saturating_sub(told.2);
                if since != [(0, 0, 0); ProgressKind::ALL.len()] || new_failures > 0 {
                    let _ = output.tell(&Told::Progress(since, new_failures));
                }
                told = (phase, now, failures);
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for TellProgress {
    fn drop(&mut self) {
        self.stop = None;
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// What the machine calls itself.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(|char| !char.is_control()).take(64).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}
