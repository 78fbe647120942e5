//! Intervals of workers on other machines, on their way to the one recording that has them all.
//!
//! They travel with their histograms, so that the quantiles of all workers together are those of all their requests. Times
//! count from when the phase began on each machine, which is when they were all told to begin.

use serde::{Deserialize, Serialize};

use crate::histogram::{Histogram, HistogramParts};
use crate::recorder::{Closed, Open};
use rotproof_block::Time;

/// What one worker did in one interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemoteInterval {
    /// Which, of all workers of the load.
    pub worker: u16,
    /// Whether it is of the cool-down after the phase.
    pub is_cool_down: bool,
    /// Its number, from 0.
    pub index: u64,
    /// When it began, in nanoseconds since the phase did.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// What each operation did, by its position.
    pub(crate) operations: Vec<Option<RemoteFigures>>,
}

/// What one operation did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RemoteFigures {
    bytes: u64,
    errors: u64,
    retries: u64,
    first_error_ns: Option<u64>,
    latency: HistogramParts,
}

impl RemoteInterval {
    pub(crate) fn of(closed: &Closed<'_>, origin: Time) -> Self {
        let since = |ns: u64| ns.saturating_sub(origin.0);
        let operations = closed.operations.iter().map(|open| {
            open.as_deref().filter(|open| open.latency.count() > 0).map(|open| RemoteFigures {
                bytes: open.bytes,
                errors: open.errors,
                retries: open.retries,
                first_error_ns: open.first_error.map(|time| since(time.0)),
                latency: open.latency.parts(),
            })
        });
        Self {
            worker: closed.worker,
            is_cool_down: closed.phase.number & 1 == 1,
            index: closed.index,
            start_ns: since(closed.start_ns),
            end_ns: since(closed.end_ns),
            operations: operations.collect(),
        }
    }

    /// What it says of so many operations, by the clock of which the phase began at `origin`. `None` if it makes no sense.
    pub(crate) fn operations(&self, count: usize, origin: Time) -> Option<Vec<Option<Box<Open>>>> {
        if self.operations.len() > count || self.end_ns < self.start_ns {
            return None;
        }
        let mut operations = Vec::with_capacity(count);
        for figures in &self.operations {
            operations.push(match figures {
                None => None,
                Some(figures) => Some(Box::new(Open {
                    bytes: figures.bytes,
                    errors: figures.errors,
                    retries: figures.retries,
                    first_error: figures.first_error_ns.map(|since| Time(origin.0.saturating_add(since))),
                    latency: Histogram::from_parts(&figures.latency)?,
                })),
            });
        }
        operations.resize_with(count, || None);
        Some(operations)
    }
}
