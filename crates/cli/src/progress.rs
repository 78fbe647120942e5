//! How far a run is: one redrawn line on a terminal, a line now and then elsewhere.
//!
//! A thread asks for a [`Snapshot`] a few times a second, so that the run itself only counts. It knows nothing of
//! what is running.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Output;
use crate::units;

/// Where a run stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// What is going on, in one word: `setup`, `prefill`, `run`, `check`.
    pub phase: String,
    /// How much of the phase is done, in any unit.
    pub position: u64,
    /// How much there is to do, in the same unit; 0 if that is not known.
    pub length: u64,
    /// Bytes moved in this phase, for the rate.
    pub bytes: u64,
    /// Requests of this phase that ended with an error, and blocks found wrong, so far.
    pub errors: u64,
}

/// How often a terminal is redrawn.
const REDRAW: Duration = Duration::from_millis(100);

/// How often there is a line elsewhere.
const LINE: Duration = Duration::from_secs(5);

/// How long a phase runs before its pace means anything.
const SETTLING: Duration = Duration::from_millis(300);

/// The display, as long as it is kept.
#[derive(Debug)]
pub struct Progress {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Shows what `poll` tells, until dropped. With `quiet` it shows nothing.
    pub fn start(output: Output, quiet: bool, poll: impl Fn() -> Snapshot + Send + 'static) -> Self {
        if quiet {
            return Self { thread: None };
        }
        let (stop, stopped) = channel();
        let watch = move || {
            let mut view: Box<dyn View> = if output.stderr_is_terminal() {
                Box::new(Bar::new(output))
            } else {
                Box::new(Lines::new(output))
            };
            let mut phase = Phase::default();
            loop {
                let snapshot = poll();
                if phase.snapshot.phase != snapshot.phase {
                    if !phase.snapshot.phase.is_empty() {
                        view.end(&phase);
                    }
                    phase = Phase { since: Instant::now(), ..Phase::default() };
                }
                phase.snapshot = snapshot;
                if !phase.snapshot.phase.is_empty() {
                    view.show(&phase);
                }
                // The other side says stop by hanging up.
                if stopped.recv_timeout(REDRAW) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            phase.snapshot = poll();
            if !phase.snapshot.phase.is_empty() {
                view.end(&phase);
            }
            view.close();
        };
        match std::thread::Builder::new().name("progress".into()).spawn(watch) {
            Ok(thread) => Self { thread: Some((stop, thread)) },
            // A run is no worse for having no display.
            Err(_) => Self { thread: None },
        }
    }
}

impl Drop for Progress {
    /// Leaves the terminal as it was, before the next word is printed.
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            // It prints only; if it has panicked, there is nothing to show and nothing to save.
            let _ = thread.join();
        }
    }
}

/// A phase under way.
#[derive(Clone, Debug)]
struct Phase {
    since: Instant,
    snapshot: Snapshot,
}

impl Default for Phase {
    fn default() -> Self {
        Self { since: Instant::now(), snapshot: Snapshot::default() }
    }
}

impl Phase {
    /// Bytes per second since the phase began; none before it has run for long enough to tell.
    fn rate(&self) -> Option<f64> {
        let elapsed = self.since.elapsed();
        (elapsed >= SETTLING).then(|| self.snapshot.bytes as f64 / elapsed.as_secs_f64())
    }

    /// The share that is done, if that can be known.
    fn share(&self) -> Option<f64> {
        let Snapshot { position, length, .. } = self.snapshot;
        (length > 0).then(|| (position as f64 / length as f64).min(1.0))
    }

    /// How long it will still take at the pace so far; nothing before there is a pace.
    fn left(&self) -> Option<Duration> {
        let share = self.share().filter(|&share| share > 0.001 && self.since.elapsed() >= SETTLING)?;
        Duration::try_from_secs_f64(self.since.elapsed().as_secs_f64() * (1.0 - share) / share).ok()
    }

    /// `215.0 MiB  465.4 MiB/s  12 s left  3 errors`
    fn details(&self) -> String {
        let mut words = Vec::new();
        if self.snapshot.bytes > 0 {
            words.push(units::bytes(self.snapshot.bytes));
            words.extend(self.rate().map(units::rate));
        }
        if let Some(left) = self.left() {
            words.push(format!("{} left", whole_seconds(left)));
        }
        if self.snapshot.errors > 0 {
            words.push(units::counted(self.snapshot.errors, "error"));
        }
        words.join("  ")
    }

    /// `done in 2.3 s`. Nothing else: what was counted last is a little older than the end of the phase.
    fn summary(&self) -> String {
        format!("done in {}", units::duration(self.since.elapsed()))
    }
}

/// Remaining time, without decimals that would only flicker.
fn whole_seconds(span: Duration) -> String {
    let seconds = span.as_secs_f64().ceil() as u64;
    if seconds >= 100 { units::duration(Duration::from_secs(seconds)) } else { format!("{seconds} s") }
}

/// A way to show a phase.
trait View {
    fn show(&mut self, phase: &Phase);
    fn end(&mut self, phase: &Phase);
    fn close(&mut self);
}

/// One line that is redrawn. It is composed here as a whole, so that no frame shows a half of it.
struct Bar {
    bar: ProgressBar,
    output: Output,
}

/// Characters of the bar.
const BAR_WIDTH: usize = 20;

impl Bar {
    fn new(output: Output) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, output }
    }
}

impl View for Bar {
    fn show(&mut self, phase: &Phase) {
        let mut text = phase.details();
        if let Some(share) = phase.share() {
            let paint = self.output.stderr_paint();
            let full = (share * BAR_WIDTH as f64) as usize;
            let (done, left) = ("━".repeat(full), "─".repeat(BAR_WIDTH - full));
            let percent = (share * 100.0) as u64;
            text = format!("{}{} {percent:3}%  {text}", paint.bold(done), paint.dim(left));
        }
        self.bar.set_message(line(phase, &text));
    }

    fn end(&mut self, phase: &Phase) {
        let text = self.output.stderr_paint().dim(phase.summary()).to_string();
        self.bar.set_message("");
        self.bar.suspend(|| self.output.note(line(phase, &text)));
    }

    fn close(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A line at the end of each phase, and every few seconds of a long one.
struct Lines {
    output: Output,
    last: Instant,
}

impl Lines {
    fn new(output: Output) -> Self {
        Self { output, last: Instant::now() }
    }
}

impl View for Lines {
    fn show(&mut self, phase: &Phase) {
        if self.last.elapsed() >= LINE {
            self.last = Instant::now();
            let percent = phase.share().map_or(String::new(), |share| format!("{:3.0}%  ", share * 100.0));
            self.output.note(line(phase, &format!("{percent}{}", phase.details())));
        }
    }

    fn end(&mut self, phase: &Phase) {
        self.last = Instant::now();
        self.output.note(line(phase, &phase.summary()));
    }

    fn close(&mut self) {}
}

fn line(phase: &Phase, text: &str) -> String {
    format!("  {:8} {text}", phase.snapshot.phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(seconds: u64, snapshot: Snapshot) -> Phase {
        let since = Instant::now()
            .checked_sub(Duration::from_secs(seconds))
            .expect("the machine has been up so long");
        Phase { since, snapshot }
    }

    #[test]
    fn the_remaining_time_follows_the_pace_so_far() {
        let half = Snapshot { position: 50, length: 100, bytes: 10 << 20, errors: 1, ..Snapshot::default() };
        let details = phase(10, half).details();
        assert!(details.starts_with("10.0 MiB  "), "{details}");
        assert!(details.contains(" s left  1 error"), "{details}");
        let left =
            phase(10, Snapshot { position: 50, length: 100, ..Snapshot::default() }).left().expect("a pace");
        assert!((9..=11).contains(&left.as_secs()), "{left:?}");
    }

    #[test]
    fn without_a_length_or_a_pace_no_time_is_promised() {
        assert_eq!(phase(1, Snapshot { position: 50, ..Snapshot::default() }).left(), None);
        assert_eq!(phase(1, Snapshot { length: 50, ..Snapshot::default() }).left(), None);
    }

    #[test]
    fn a_display_stops_when_it_is_dropped_and_asks_a_last_time() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU64, Ordering};
        let asked = Arc::new(AtomicU64::new(0));
        let counter = asked.clone();
        let output = Output::new(crate::args::ColorChoice::Never);
        let progress = Progress::start(output, false, move || {
            counter.fetch_add(1, Ordering::Relaxed);
            Snapshot::default()
        });
        drop(progress);
        let after = asked.load(Ordering::Relaxed);
        assert!(after >= 2, "once to show, once at the end");
        std::thread::sleep(REDRAW * 2);
        assert_eq!(asked.load(Ordering::Relaxed), after, "nobody asks any more");
    }
}
