//! How far a run is and how it goes: a few redrawn lines on a terminal, a line now and then elsewhere.
//!
//! A thread asks for a [`Snapshot`] a few times a second, so that the run itself only counts. It knows nothing of
//! what is running. All of it goes to standard error; whatever else is printed meanwhile comes above ([`undisturbed`]).

mod course;
mod lines;
mod phase;
mod screen;

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rotproof_load::engine::Latencies;

use crate::output::Output;
use lines::Lines;
use phase::Phase;
use screen::Screen;
pub use screen::undisturbed;

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
    /// Requests of this phase so far.
    pub requests: u64,
    /// Requests of this phase that ended with an error so far, as the table of the verdict counts them.
    pub errors: u64,
    /// Blocks that this phase found wrong or unreadable so far, as the failures of the verdict.
    pub failures: u64,
    /// The latencies of this phase so far, of something that has any.
    pub latencies: Option<Latencies>,
    /// Faults injected so far.
    pub hits: u64,
    /// The last few of them, each with its rule and its place.
    pub last_hits: Vec<String>,
}

/// What the thread is called that shows it.
const THREAD_NAME: &str = "progress";

/// How often a terminal is redrawn.
const REDRAW: Duration = Duration::from_millis(100);

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
            let mut view: Box<dyn View> = if output.stderr_is_redrawn() {
                Box::new(Screen::new(output))
            } else {
                Box::new(Lines::new(output))
            };
            let mut phase = Phase::default();
            loop {
                phase = follow(&mut *view, phase, poll());
                if !phase.snapshot.phase.is_empty() {
                    view.show(&phase);
                }
                // The other side says stop by hanging up.
                if stopped.recv_timeout(REDRAW) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            // What went on between the last look and the end may be another phase.
            let phase = follow(&mut *view, phase, poll());
            if !phase.snapshot.phase.is_empty() {
                view.end(&phase);
            }
            view.close();
        };
        match std::thread::Builder::new().name(THREAD_NAME.into()).spawn(watch) {
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

/// The phase that a snapshot is of; one that it ends is shown as ended.
fn follow(view: &mut dyn View, phase: Phase, snapshot: Snapshot) -> Phase {
    let is_same = phase.snapshot.phase == snapshot.phase;
    if !is_same && !phase.snapshot.phase.is_empty() {
        view.end(&phase);
    }
    let mut phase = if is_same { phase } else { Phase::default() };
    phase.update(snapshot);
    phase
}

/// A way to show a phase.
trait View {
    fn show(&mut self, phase: &Phase);
    fn end(&mut self, phase: &Phase);
    fn close(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_ends_under_its_own_name() {
        struct Ends(Vec<String>);
        impl View for Ends {
            fn show(&mut self, _: &Phase) {}
            fn end(&mut self, phase: &Phase) {
                self.0.push(phase.snapshot.phase.clone());
            }
            fn close(&mut self) {}
        }
        let mut ends = Ends(Vec::new());
        let mut phase = Phase::default();
        for name in ["", "prefill", "run", "run", "check"] {
            phase = follow(&mut ends, phase, Snapshot { phase: name.into(), ..Snapshot::default() });
        }
        assert_eq!((phase.snapshot.phase.as_str(), ends.0), ("check", vec!["prefill".into(), "run".into()]));
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
