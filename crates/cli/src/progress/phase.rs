//! A phase under way, and what can be said of it in words.

use std::time::{Duration, Instant};

use super::Snapshot;
use super::course::Course;
use crate::units;

/// How long a phase runs before its pace means anything.
const SETTLING: Duration = Duration::from_millis(300);

/// A phase, from when it was first seen.
#[derive(Clone, Debug)]
pub(super) struct Phase {
    pub(super) since: Instant,
    pub(super) snapshot: Snapshot,
    pub(super) course: Course,
}

impl Default for Phase {
    fn default() -> Self {
        let now = Instant::now();
        Self { since: now, snapshot: Snapshot::default(), course: Course::new(now) }
    }
}

impl Phase {
    /// Takes where it stands now.
    pub(super) fn update(&mut self, snapshot: Snapshot) {
        self.course.update(Instant::now(), &snapshot);
        self.snapshot = snapshot;
    }

    /// Bytes per second since the phase began; none before it has run for long enough to tell.
    fn rate(&self) -> Option<f64> {
        let elapsed = self.since.elapsed();
        (elapsed >= SETTLING).then(|| self.snapshot.bytes as f64 / elapsed.as_secs_f64())
    }

    /// The share that is done, if that can be known.
    pub(super) fn share(&self) -> Option<f64> {
        let Snapshot { position, length, .. } = self.snapshot;
        (length > 0).then(|| (position as f64 / length as f64).min(1.0))
    }

    /// How long it will still take at the pace so far; nothing before there is a pace.
    fn left(&self) -> Option<Duration> {
        let share = self.share().filter(|&share| share > 0.001 && self.since.elapsed() >= SETTLING)?;
        Duration::try_from_secs_f64(self.since.elapsed().as_secs_f64() * (1.0 - share) / share).ok()
    }

    /// `215.0 MiB  465.4 MiB/s  12 s left`
    pub(super) fn details(&self) -> String {
        let mut words = Vec::new();
        if self.snapshot.bytes > 0 {
            words.push(units::bytes(self.snapshot.bytes));
            words.extend(self.rate().map(units::rate));
        }
        if let Some(left) = self.left() {
            words.push(format!("{} left", whole_seconds(left)));
        }
        words.join("  ")
    }

    /// `3 errors  2 failing blocks  7 hits`; empty without any.
    pub(super) fn troubles(&self) -> String {
        let mut words = Vec::new();
        if self.snapshot.errors > 0 {
            words.push(units::counted(self.snapshot.errors, "error"));
        }
        if self.snapshot.failures > 0 {
            words.push(units::counted(self.snapshot.failures, "failing block"));
        }
        if self.snapshot.hits > 0 {
            words.push(units::counted(self.snapshot.hits, "injection"));
        }
        words.join("  ")
    }

    /// `52.4k IOPS  p50 45.6 us  p99 126 us`: of the last second; none before there was one in which something completed.
    pub(super) fn latest(&self) -> Option<String> {
        let latest = self.course.latest()?;
        let (median, tail) = latest.latency_ns?;
        let span = |nanoseconds| units::short_duration(Duration::from_nanos(nanoseconds));
        let requests = units::short_count(latest.requests_per_second);
        Some(format!("{requests} IOPS  p50 {}  p99 {}", span(median), span(tail)))
    }

    /// `done in 2.3 s`. Nothing else: what was counted last is a little older than the end of the phase.
    pub(super) fn summary(&self) -> String {
        format!("done in {}", units::duration(self.since.elapsed()))
    }
}

/// Remaining time, without decimals that would only flicker.
fn whole_seconds(span: Duration) -> String {
    let seconds = span.as_secs_f64().ceil() as u64;
    if seconds >= 100 { units::duration(Duration::from_secs(seconds)) } else { format!("{seconds} s") }
}

/// A line about a phase.
pub(super) fn line(phase: &Phase, text: &str) -> String {
    format!("  {:8} {text}", phase.snapshot.phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(seconds: u64, snapshot: Snapshot) -> Phase {
        let since = Instant::now()
            .checked_sub(Duration::from_secs(seconds))
            .expect("the machine has been up so long");
        Phase { since, snapshot, course: Course::new(since) }
    }

    #[test]
    fn the_remaining_time_follows_the_pace_so_far() {
        let half = Snapshot {
            position: 50,
            length: 100,
            bytes: 10 << 20,
            errors: 1,
            failures: 3,
            hits: 2,
            ..Snapshot::default()
        };
        let half = phase(10, half);
        let (details, troubles) = (half.details(), half.troubles());
        assert!(details.starts_with("10.0 MiB  ") && details.ends_with(" s left"), "{details}");
        assert_eq!(troubles, "1 error  3 failing blocks  2 injections");
        let left =
            phase(10, Snapshot { position: 50, length: 100, ..Snapshot::default() }).left().expect("a pace");
        assert!((9..=11).contains(&left.as_secs()), "{left:?}");
    }

    #[test]
    fn without_a_length_or_a_pace_no_time_is_promised() {
        assert_eq!(phase(1, Snapshot { position: 50, ..Snapshot::default() }).left(), None);
        assert_eq!(phase(1, Snapshot { length: 50, ..Snapshot::default() }).left(), None);
    }
}
