//! A phase where nothing can be redrawn: a line at its end, and every few seconds of a long one.

use std::time::{Duration, Instant};

use super::View;
use super::phase::{Phase, line};
use crate::output::Output;

/// How often there is a line.
const LINE: Duration = Duration::from_secs(5);

pub(super) struct Lines {
    output: Output,
    last: Instant,
    /// Hits that have been told of.
    told: u64,
}

impl Lines {
    pub(super) fn new(output: Output) -> Self {
        Self { output, last: Instant::now(), told: 0 }
    }
}

impl View for Lines {
    fn show(&mut self, phase: &Phase) {
        if self.last.elapsed() < LINE {
            return;
        }
        self.last = Instant::now();
        let percent = phase.share().map_or(String::new(), |share| format!("{:3.0}%  ", share * 100.0));
        self.output
            .note(line(phase, format!("{percent}{}  {}", phase.details(), phase.troubles()).trim_end()));
        if let Some(latest) = phase.latest() {
            self.output.note(line(phase, &latest));
        }
        if phase.snapshot.hits > self.told
            && let Some(hit) = phase.snapshot.last_hits.last()
        {
            self.told = phase.snapshot.hits;
            self.output.note(line(phase, &format!("last fault {hit}")));
        }
    }

    fn end(&mut self, phase: &Phase) {
        self.last = Instant::now();
        self.output.note(line(phase, &phase.summary()));
    }

    fn close(&mut self) {}
}
