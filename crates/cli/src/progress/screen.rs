//! A phase on a terminal: a few lines that are redrawn where they stand, and no screen of their own, so there is nothing to
//! restore but those lines.

use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::View;
use super::phase::{Phase, line};
use crate::output::{Output, Paint};
use crate::table::clip;
use crate::units;

/// Characters of the bar.
const BAR_WIDTH: usize = 20;
/// How wide the lines are at the most, and where the terminal does not tell.
const WIDTH: usize = 80;
/// On terminals with fewer rows than this there is one line only.
const ROWS_MIN: usize = 10;
/// Room for a throughput behind its line.
const RATE_WIDTH: usize = 12;

/// What is on the terminal now, so that whoever prints does it above.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Prints while nothing is drawn, so that no line is torn.
pub fn undisturbed<T>(print: impl FnOnce() -> T) -> T {
    // A panic of the display itself may hold what suspending would wait for.
    let is_broken_display =
        std::thread::panicking() && std::thread::current().name() == Some(super::THREAD_NAME);
    let shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match shown.filter(|_| !is_broken_display) {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

pub(super) struct Screen {
    bar: ProgressBar,
    output: Output,
}

impl Screen {
    pub(super) fn new(output: Output) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
        *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
        Self { bar, output }
    }
}

impl View for Screen {
    fn show(&mut self, phase: &Phase) {
        let size = console::Term::stderr().size_checked();
        let (rows, columns) = size.map_or((24, WIDTH), |(rows, columns)| (rows.into(), columns.into()));
        // A character in the last column would make some terminals begin a new line.
        let lines = frame(phase, self.output.stderr_paint(), columns.min(WIDTH + 1).saturating_sub(1));
        let count = if rows < ROWS_MIN { 1 } else { lines.len() };
        self.bar.set_message(lines[..count].join("\n"));
    }

    fn end(&mut self, phase: &Phase) {
        let text = self.output.stderr_paint().dim(phase.summary()).to_string();
        self.bar.set_message("");
        self.output.note(line(phase, &text));
    }

    fn close(&mut self) {
        self.bar.finish_and_clear();
        *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.close();
    }
}

/// What stands on the terminal, no line wider than `width`. It is composed here as a whole, so that no frame shows a half
/// of it.
fn frame(phase: &Phase, paint: Paint, width: usize) -> Vec<String> {
    let Some(latest) = phase.course.latest().filter(|_| phase.snapshot.latencies.is_some()) else {
        let details = [phase.details(), phase.troubles()].join("  ");
        let mut lines = vec![heading(phase, &details, paint, width)];
        lines.extend(hits(phase, paint, width));
        return lines;
    };
    let mut lines = vec![heading(phase, &phase.details(), paint, width)];
    let sparkline = phase.course.sparkline(width.saturating_sub(2 + RATE_WIDTH));
    lines.push(format!("  {sparkline}  {}", units::short_rate(latest.bytes_per_second)));
    let words = [phase.latest().unwrap_or_default(), phase.troubles()].join("  ");
    lines.push(clip(format!("           {}", words.trim()).trim_end(), width));
    lines.extend(hits(phase, paint, width));
    lines
}

/// `  run      ━━━━━━━━━━──────────  52%  1.2 GiB  205.0 MiB/s  12 s left`
fn heading(phase: &Phase, details: &str, paint: Paint, width: usize) -> String {
    let details = details.trim_end();
    let Some(share) = phase.share() else { return clip(&line(phase, details), width) };
    let full = (share * BAR_WIDTH as f64) as usize;
    let (done, left) = ("━".repeat(full), "─".repeat(BAR_WIDTH - full));
    let percent = format!("{:3}%", (share * 100.0) as u64);
    let before = line(phase, "").chars().count() + BAR_WIDTH + 1 + percent.len() + 2;
    if before + 8 > width {
        return clip(&line(phase, &format!("{percent}  {details}")), width);
    }
    let details = clip(details, width - before);
    line(phase, &format!("{}{} {percent}  {details}", paint.bold(done), paint.dim(left)))
}

/// The last faults, each with its rule and its place.
fn hits(phase: &Phase, paint: Paint, width: usize) -> Vec<String> {
    let hits = phase.snapshot.last_hits.iter();
    hits.map(|hit| paint.notable(clip(&format!("  fault    {hit}"), width)).to_string()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rotproof_load::engine::Latencies;

    use super::*;
    use crate::progress::Snapshot;

    fn phase() -> Phase {
        let mut phase = Phase::default();
        let start = Instant::now();
        for second in 0..20u64 {
            phase.course.update(
                start + Duration::from_secs(second),
                &Snapshot { bytes: (second * second) << 20, ..Snapshot::default() },
            );
        }
        phase.snapshot = Snapshot {
            phase: "run".into(),
            position: 52,
            length: 100,
            bytes: 1 << 30,
            hits: 12,
            last_hits: vec![
                "media: read of 4.0 KiB at 1.2 MiB in a very long name of a file, with an error"
                    .into();
                2
            ],
            latencies: Some(Latencies::default()),
            ..Snapshot::default()
        };
        phase
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in 20..=80 {
            for line in frame(&phase(), Paint::OFF, width) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn a_run_shows_how_far_it_is_its_course_and_its_faults() {
        let lines = frame(&phase(), Paint::OFF, 80);
        assert!(lines[0].starts_with("  run      ━━━━━━━━━━──────────  52%  1.0 GiB"), "{lines:#?}");
        assert!(lines[1].contains("█  37.0 MiB/s"), "{lines:#?}");
        assert!(lines.last().is_some_and(|line| line.starts_with("  fault    media: read of")), "{lines:#?}");
    }
}
