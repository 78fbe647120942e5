//! Probes on another machine: a command that runs `rotproof probe --json` there, and what it says.
//!
//! The command is anything that leads to that machine and passes on its streams: ssh, `docker exec -i`, `ip netns exec`.
//! Its standard input says when a phase ends and, by its end, that it shall end; so nothing listens anywhere, nothing is
//! left if this process is killed, and who may look at the other machine is settled by who may log in there. Lines are
//! read by a thread of their own, and a load never waits for one. Why so: decision 028.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdout, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_machine::{Cancel, Machine, Process};

use crate::protocol::{self, Hello, Sample};
use crate::recording::{MachineProbes, Moment, Of, Recording};
use crate::sampler::{Latest, show};
use crate::spec::ProbesSpec;

/// How long another machine may take to say who it is: time enough to log in over a slow line.
const HELLO_MAX: Duration = Duration::from_secs(20);
/// How often a wish to stop is asked for meanwhile.
const CANCEL_EVERY: Duration = Duration::from_millis(50);
/// How long what a command says on its way out may take to arrive.
const LAST_WORDS_MAX: Duration = Duration::from_millis(500);
/// The end of what it said on standard error that is kept.
const STDERR_BYTES_MAX: usize = 2048;
/// Figures of one machine; 300 disks have 1,800.
const SERIES_MAX: usize = 2048;
/// Notes of one machine.
const NOTES_MAX: usize = 64;
/// A machine is silent that has said nothing for so many intervals and this.
const SILENT_INTERVALS: u32 = 3;
const SILENT_MIN: Duration = Duration::from_secs(1);

/// Probes on another machine, under way. Dropped, they are ended.
#[derive(Debug)]
pub(crate) struct Remote {
    name: String,
    machine: Machine,
    interval: Duration,
    epoch: Instant,
    process: Process,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The first line, or what came instead.
    hello: Option<std::result::Result<Hello, String>>,
    recording: Recording,
    /// Of each phase whether it is the run, from the first on.
    is_run: Vec<bool>,
    samples: u64,
    /// When the last line came.
    last: Option<Instant>,
    /// Nothing is read any more: since when, and why if that is known.
    ended: Option<(Instant, Option<String>)>,
    /// We have asked for the end, and then it had been silent since.
    is_ending: bool,
    silent_since: Option<Instant>,
    stderr: VecDeque<u8>,
    stderr_has_ended: bool,
}

/// Starts probes on all machines of `spec` and waits until each has said who it is. Fails with [`ErrorKind::Missing`] if one
/// cannot be reached or says something else, with [`ErrorKind::Cancelled`] if the user does not want to wait; nothing is
/// left of any then. Times count from `epoch`; what is seen last stands in `latest`.
pub(crate) fn start_all(
    spec: &ProbesSpec,
    epoch: Instant,
    latest: &Latest,
    cancel: &Cancel,
) -> Result<Vec<Remote>> {
    let start = |(name, command): (&String, &String)| Remote::start(name, command, spec, epoch, latest);
    let remotes: Vec<Remote> = spec.machines.iter().map(start).collect::<Result<_>>()?;
    let deadline = Instant::now() + HELLO_MAX;
    remotes.iter().try_for_each(|remote| remote.wait_for_hello(deadline, cancel))?;
    Ok(remotes)
}

/// Asks all of them to end, and only then waits for one after the other: adds what they have found to `recording`.
pub(crate) fn end_all(mut remotes: Vec<Remote>, recording: &mut Recording) {
    remotes.iter_mut().for_each(Remote::hang_up);
    for remote in remotes {
        let (machine, found) = remote.end();
        recording.absorb(machine, found);
    }
}

impl Remote {
    fn start(name: &str, command: &str, spec: &ProbesSpec, epoch: Instant, latest: &Latest) -> Result<Self> {
        let machine: Machine = command.parse().map_err(|why| Error::new(ErrorKind::Invalid, why))?;
        let arguments = protocol::arguments(spec);
        let mut to_run = machine.command(arguments.iter().map(String::as_str));
        let mut process =
            Process::start(&mut to_run).doing(|| format!("starting `{command}` for the probes of {name}"))?;
        let shared = Arc::new(Shared::default());
        shared.state.lock().is_run.push(false);
        let streams = process.child.stdout.take().zip(process.child.stderr.take());
        if let Some((stdout, stderr)) = streams {
            let (reader, listener) = (Arc::clone(&shared), Arc::clone(&shared));
            let reader = Reader {
                name: name.to_owned(),
                epoch,
                interval: spec.interval.0,
                shared: reader,
                latest: Arc::clone(latest),
            };
            spawn(move || reader.read(stdout))?;
            spawn(move || listener.listen(stderr))?;
        }
        Ok(Self { name: name.to_owned(), machine, interval: spec.interval.0, epoch, process, shared })
    }

    fn wait_for_hello(&self, deadline: Instant, cancel: &Cancel) -> Result<()> {
        let mut state = self.shared.state.lock();
        let why = loop {
            match &state.hello {
                Some(Ok(_)) => return Ok(()),
                Some(Err(why)) => break why.clone(),
                None if Instant::now() >= deadline => {
                    break format!("it has said nothing within {} s", HELLO_MAX.as_secs());
                }
                None => {
                    cancel.check()?;
                    self.shared.changed.wait_for(&mut state, CANCEL_EVERY);
                }
            }
        };
        let said = self.shared.last_words(&mut state);
        let said = if said.is_empty() { String::new() } else { format!("; on standard error:\n{said}") };
        let asked = match self.machine.is_host() {
            true => format!("ssh {} rotproof probe", self.machine),
            false => format!("{} probe", self.machine),
        };
        let text = format!("no probes on the machine {}: `{asked}` failed: {why}{said}", self.name);
        Err(Error::new(ErrorKind::Missing, text))
    }

    /// A phase begins, and the one before it ends.
    pub(crate) fn begin_phase(&self, is_run: bool) {
        self.shared.state.lock().is_run.push(is_run);
        if let Some(mut stdin) = self.process.child.stdin.as_ref() {
            // A pipe has room for thousands of phases, so this never waits; that it has ended, the reader finds out.
            let _ = stdin.write_all(b"\n");
        }
    }

    /// Asks for the end.
    fn hang_up(&mut self) {
        {
            let mut state = self.shared.state.lock();
            if !std::mem::replace(&mut state.is_ending, true) {
                let is_silent = |last: &Instant| last.elapsed() > silent_after(self.interval);
                state.silent_since = state.last.filter(is_silent);
            }
        }
        self.process.close_input();
    }

    /// Waits for it, and gives what was found.
    fn end(mut self) -> (MachineProbes, Recording) {
        self.hang_up();
        let status = self.process.end();
        let mut state = self.shared.state.lock();
        let deadline = Instant::now() + LAST_WORDS_MAX;
        while state.ended.is_none() && !self.shared.changed.wait_until(&mut state, deadline).timed_out() {}
        let hello = match state.hello.take() {
            Some(Ok(hello)) => Some(hello),
            _ => None,
        };
        if let Some((at, Some(why))) = state.ended.take() {
            let how = status.filter(|status| !status.success()).map(told).unwrap_or_default();
            let said = self.shared.last_words(&mut state);
            let said = said.lines().next_back().map_or(String::new(), |line| format!(": {}", line.trim()));
            let text = format!("{why} {} into the run{how}{said}", self.since_epoch(at));
            state.recording.note(text);
        } else if let Some(last) = state.silent_since {
            let text = format!("silent from {} into the run to its end", self.since_epoch(last));
            state.recording.note(text);
        }
        let machine = MachineProbes {
            name: self.name.clone(),
            host: hello.as_ref().map_or(String::new(), |hello| hello.host.clone()),
            boot: hello.as_ref().map_or(String::new(), |hello| hello.boot.clone()),
            processors: hello.map_or(0, |hello| hello.processors),
            samples: 0,
            run_samples: 0,
            missed: 0,
        };
        let recording = std::mem::take(&mut state.recording).finish();
        (machine, recording)
    }

    fn since_epoch(&self, at: Instant) -> String {
        seconds(at.saturating_duration_since(self.epoch))
    }
}

fn silent_after(interval: Duration) -> Duration {
    interval.saturating_mul(SILENT_INTERVALS) + SILENT_MIN
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

fn told(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!(" (exit code {code})"),
        (None, Some(signal)) => format!(" (killed by signal {signal})"),
        (None, None) => String::new(),
    }
}

/// A thread that nobody waits for: what it reads from may stay open in the hands of somebody else.
fn spawn(run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name("probes".into()).spawn(run);
    thread.map(drop).doing(|| "starting a thread for the probes of another machine".into())
}

impl Shared {
    /// Keeps the end of what is said on standard error, and reads all of it, so that nobody waits for us to.
    fn listen(&self, mut stderr: ChildStderr) {
        let mut bytes = [0; 512];
        while let Ok(count @ 1..) = stderr.read(&mut bytes) {
            let mut state = self.state.lock();
            state.stderr.extend(&bytes[..count]);
            let surplus = state.stderr.len().saturating_sub(STDERR_BYTES_MAX);
            state.stderr.drain(..surplus);
        }
        self.state.lock().stderr_has_ended = true;
        self.changed.notify_all();
    }

    /// What it said on standard error in the end, in lines that show what they are.
    fn last_words(&self, state: &mut parking_lot::MutexGuard<'_, State>) -> String {
        let deadline = Instant::now() + LAST_WORDS_MAX;
        while !state.stderr_has_ended && !self.changed.wait_until(state, deadline).timed_out() {}
        let text = String::from_utf8_lossy(state.stderr.make_contiguous()).into_owned();
        text.lines().fold(String::new(), |mut all, line| {
            let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            if !line.trim().is_empty() {
                // Writing to a text cannot fail.
                let _ = write!(all, "{}  {}", if all.is_empty() { "" } else { "\n" }, line.trim_end());
            }
            all
        })
    }
}

/// Takes the lines as they come.
struct Reader {
    name: String,
    epoch: Instant,
    interval: Duration,
    shared: Arc<Shared>,
    latest: Latest,
}

impl Reader {
    fn read(self, stdout: ChildStdout) {
        let mut input = BufReader::new(stdout);
        let mut line = Vec::new();
        let hello = match protocol::read_line(&mut input, &mut line) {
            Ok(true) => Hello::parse(&line),
            Ok(false) if line.is_empty() => Err("it ended without a word".to_owned()),
            Ok(false) => Hello::parse(&line),
            Err(why) => Err(why),
        };
        let is_right = hello.is_ok();
        {
            let mut state = self.shared.state.lock();
            state.hello = Some(hello);
            state.last = Some(Instant::now());
        }
        self.shared.changed.notify_all();
        let why = if is_right { self.read_samples(&mut input, &mut line) } else { None };
        // What it says after this, nobody hears: it shall not be able to fill our memory.
        drop(input);
        let mut state = self.shared.state.lock();
        state.ended = Some((Instant::now(), why.filter(|_| !state.is_ending)));
        // What was seen last is not what is so now.
        show(&self.latest, &self.name, Vec::new());
        drop(state);
        self.shared.changed.notify_all();
    }

    /// To the end, or to what is no sample; says how it ended.
    fn read_samples(&self, input: &mut BufReader<ChildStdout>, line: &mut Vec<u8>) -> Option<String> {
        loop {
            let sample = match protocol::read_line(input, line) {
                Ok(true) => Sample::parse(line),
                Ok(false) => return Some("ended".to_owned()),
                Err(why) => Err(why),
            };
            let now = Instant::now();
            if let Err(why) = sample.and_then(|sample| self.take(sample, now)) {
                return Some(format!("given up, as {why},"));
            }
        }
    }

    /// Puts a sample where it belongs. Fails if there is too much of something.
    fn take(&self, mut sample: Sample, now: Instant) -> std::result::Result<(), String> {
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        let since = now.saturating_duration_since(self.epoch);
        // At each border of a phase there is one more, and what was held up on the way may come all at once.
        let due = since.as_nanos() / self.interval.as_nanos().max(1);
        let most = u64::try_from(due).unwrap_or(u64::MAX).saturating_add(16 + state.is_run.len() as u64);
        state.samples += 1;
        if state.samples > most {
            return Err("it sends more samples than were asked for".to_owned());
        }
        if let Some(last) = state.last.replace(now) {
            let silence = now.saturating_duration_since(last);
            if silence > silent_after(self.interval) {
                let from = seconds(last.saturating_duration_since(self.epoch));
                note(
                    &mut state.recording,
                    format!("silent for {} from {from} into the run on", seconds(silence)),
                );
            }
        }
        let phase = usize::try_from(sample.phase).unwrap_or(usize::MAX);
        let moment = Moment {
            time_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
            seconds: sample.span.as_secs_f64(),
            is_of_run: state.is_run.get(phase).copied().unwrap_or(false),
        };
        let recording = &mut state.recording;
        recording.count(moment);
        recording.miss(sample.missed);
        sample.notes.drain(..).for_each(|text| note(recording, text));
        for (metric, instance, value) in &sample.values {
            let of = Of { machine: &self.name, metric: *metric, instance, is_of_subject: false };
            recording.add(moment, of, *value);
            if recording.series().len() > SERIES_MAX {
                return Err(format!("it has more than {SERIES_MAX} figures"));
            }
        }
        show(&self.latest, &self.name, sample.values);
        Ok(())
    }
}

fn note(recording: &mut Recording, text: String) {
    if recording.notes().len() < NOTES_MAX {
        recording.note(text);
    }
}

#[cfg(test)]
mod tests {
    use rotproof_machine::process::{Liveness, ProcessIdentity};

    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    fn hello() -> String {
        Hello::of_this_machine(INTERVAL).to_line()
    }

    fn spec(command: &str) -> ProbesSpec {
        ProbesSpec {
            interval: rotproof_spec::Span(INTERVAL),
            machines: [("target".to_owned(), command.to_owned())].into(),
            ..ProbesSpec::default()
        }
    }

    /// A command that does what `script` says, with the right first line as `$0`.
    fn shell(script: &str) -> String {
        format!("sh -c '{script}' '{}'", hello())
    }

    fn start(script: &str) -> Result<Vec<Remote>> {
        start_all(&spec(&shell(script)), Instant::now(), &Latest::default(), &Cancel::new())
    }

    const SAMPLE: &str = r#"{"phase":0,"span_ns":100000000,"values":[["cpu.user","",0.5]]}"#;

    /// Waits until it has taken so many samples, or has ended.
    fn wait_for(remote: &Remote, samples: u64) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut state = remote.shared.state.lock();
        while state.samples < samples && state.ended.is_none() {
            assert!(Instant::now() < deadline, "nothing comes: {state:?}");
            remote.shared.changed.wait_for(&mut state, Duration::from_millis(10));
        }
    }

    #[test]
    fn a_machine_that_cannot_be_reached_or_is_something_else_is_told_with_what_it_said() {
        for (script, why) in [
            (
                "echo Permission denied >&2; exit 255",
                "it ended without a word; on standard error:\n  Permission denied",
            ),
            ("echo Welcome", "it does not begin as `rotproof probe --json` does, but with `Welcome`"),
            (r#"echo "$0" | sed s/version.:./\&99./"#, "install the same on both"),
            ("yes | tr -d \\\\n", "a line of more than 1048576 bytes"),
        ] {
            let error = start(script).expect_err(script);
            assert_eq!(error.kind(), ErrorKind::Missing);
            let text = error.to_string();
            assert!(text.starts_with("no probes on the machine target: `sh -c"), "{text}");
            assert!(text.contains(why), "{text}");
        }
    }

    #[test]
    fn the_wish_to_stop_ends_the_wait_for_a_machine_that_says_nothing() {
        let cancel = Cancel::new();
        cancel.cancel(2);
        let spec = spec("sleep 60; echo");
        let error = start_all(&spec, Instant::now(), &Latest::default(), &cancel).expect_err("nobody waits");
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    }

    #[test]
    fn samples_belong_to_the_phase_that_they_say_and_stand_among_the_latest() {
        let latest = Latest::default();
        let script = format!(
            r#"echo "$0"; read x; echo "{0}"; read x; echo "{1}"; cat >/dev/null"#,
            SAMPLE.replace('"', "\\\""),
            SAMPLE.replace("\"phase\":0", "\"phase\":1").replace("0.5", "0.75").replace('"', "\\\""),
        );
        let spec = spec(&shell(&script));
        let mut remotes = start_all(&spec, Instant::now(), &latest, &Cancel::new()).expect("it is there");
        for is_run in [true, false] {
            remotes.iter().for_each(|remote| remote.begin_phase(is_run));
        }
        wait_for(&remotes[0], 2);
        let seen: Vec<_> = latest.lock().iter().map(|value| (value.machine.clone(), value.value)).collect();
        assert_eq!(seen, [("target".to_owned(), 0.75)]);
        let mut recording = Recording::default();
        end_all(std::mem::take(&mut remotes), &mut recording);
        assert!(latest.lock().is_empty(), "a machine that nobody looks at any more has no latest values");
        let report = recording.report(&spec);
        assert_eq!(report.machines.len(), 1);
        let machine = &report.machines[0];
        assert_eq!((machine.name.as_str(), machine.samples, machine.run_samples), ("target", 2, 1));
        assert_eq!(report.notes, [""; 0]);
        assert!(report.series.len() == 1 && (report.series[0].mean - 0.75).abs() < 1e-9, "{report:?}");
        assert_eq!(recording.series()[0].values, [0.5, 0.75]);
    }

    #[test]
    fn one_that_ends_talks_nonsense_or_falls_silent_in_the_middle_is_told_in_a_note() {
        let sample = SAMPLE.replace('"', "\\\"");
        for (then, wanted) in [
            ("echo broken pipe >&2; exit 7", &["ended", "into the run (exit code 7):", "broken pipe"][..]),
            ("echo nonsense; cat >/dev/null", &["given up, as `nonsense` is no sample", "into the run"]),
            (r#"while echo "$s"; do :; done"#, &["given up, as it sends more samples than were asked for,"]),
        ] {
            let script = format!(r#"s="{sample}"; echo "$0"; echo "$s"; {then}"#);
            let remotes = start(&script).expect("it begins well");
            wait_for(&remotes[0], u64::MAX);
            let mut recording = Recording::default();
            end_all(remotes, &mut recording);
            let notes = recording.notes();
            assert!(notes.len() == 1 && wanted.iter().all(|part| notes[0].contains(part)), "{notes:?}");
            assert!(notes[0].starts_with("target: ") && recording.series()[0].values[0] == 0.5);
        }
        let remotes =
            start(&format!(r#"echo "$0"; echo "{sample}"; cat >/dev/null"#)).expect("it begins well");
        wait_for(&remotes[0], 1);
        std::thread::sleep(silent_after(INTERVAL) + INTERVAL);
        let mut recording = Recording::default();
        end_all(remotes, &mut recording);
        let notes = recording.notes();
        assert!(notes.len() == 1 && notes[0].contains("target: silent from 0."), "{notes:?}");
    }

    #[test]
    fn nothing_of_a_command_is_left_even_if_it_does_not_want_to_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("process");
        let script =
            format!(r#"echo $$ >{}; echo "$0"; trap "" TERM; while :; do sleep 1; done"#, file.display());
        let remotes = start(&script).expect("it begins well");
        let number = std::fs::read_to_string(file).expect("it comes before the first line");
        let process = ProcessIdentity::of(number.trim().parse().expect("a number")).expect("it runs");
        assert_eq!(process.liveness(), Liveness::Alive);
        drop(remotes);
        // A process that is killed runs a moment longer, in the kernel.
        let deadline = Instant::now() + Duration::from_secs(30);
        while process.liveness() == Liveness::Alive {
            assert!(Instant::now() < deadline, "it goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
