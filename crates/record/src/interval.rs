//! What happened in one interval: a row of `intervals.parquet`.

use std::sync::Arc;

use rotproof_block::{Error, ErrorKind, Result, Time};
use serde::Serialize;

use crate::histogram::Histogram;
use crate::phase::phases_of;
use crate::table::{Column, Table, Values};

/// What one operation did in one interval, of one worker or of all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// `prefill`, `run`, `cool_down`, `check`.
    pub phase: Arc<str>,
    /// When it began, in nanoseconds since the run did, on the clock of the runtime.
    #[serde(serialize_with = "nanoseconds")]
    pub start: Time,
    /// How long it was, in nanoseconds: the last of a phase and the first after a ramp-up are shorter than the others.
    pub length_ns: u64,
    /// Which worker, from 0; `None` is all of them together.
    pub worker: Option<u16>,
    /// `read`, `write`, `flush`, or an operation on files.
    pub operation: Arc<str>,
    /// Requests that completed within it, whatever the result.
    pub requests: u64,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// Requests that completed with an error.
    pub errors: u64,
    /// Attempts beyond the first of the requests that completed within it.
    pub retries: u64,
    /// When the first request completed that had failed, whether another attempt succeeded or not.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_nanoseconds")]
    pub first_error: Option<Time>,
    /// From beginning to completion, of all that completed within it.
    pub latency_ns: Latencies,
    /// The same as the text of a [`Histogram`], so that percentiles of several intervals can be told; of all workers together
    /// alone, and absent where nothing completed.
    #[serde(skip)]
    pub histogram: Option<Arc<str>>,
}

/// Latencies in nanoseconds; all 0 without requests. Percentiles of an interval are within 1/64, those of a whole phase to
/// three significant digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Latencies {
    pub min: u64,
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn nanoseconds<S: serde::Serializer>(time: &Time, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.0)
}

fn optional_nanoseconds<S: serde::Serializer>(
    time: &Option<Time>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    time.map(|time| time.0).serialize(serializer)
}

impl Latencies {
    /// Those of a histogram.
    pub fn of(histogram: &Histogram) -> Self {
        Self {
            min: histogram.min(),
            mean: histogram.mean(),
            p50: histogram.quantile(0.5),
            p90: histogram.quantile(0.9),
            p99: histogram.quantile(0.99),
            p99_9: histogram.quantile(0.999),
            max: histogram.max(),
        }
    }
}

impl Interval {
    /// When it ended.
    pub fn end(&self) -> Time {
        Time(self.start.0 + self.length_ns)
    }

    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        self.length_ns as f64 / 1e9
    }

    /// Bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        per_second(self.bytes, self.length_ns)
    }

    /// Requests per second, failed ones among them.
    pub fn requests_per_second(&self) -> f64 {
        per_second(self.requests, self.length_ns)
    }
}

fn per_second(amount: u64, length_ns: u64) -> f64 {
    if length_ns == 0 { 0.0 } else { amount as f64 * 1e9 / length_ns as f64 }
}

/// The columns of `intervals.parquet`, in their order.
pub(crate) const COLUMNS: [Column; 18] = [
    Column::text("phase"),
    Column::integer("start_ns"),
    Column::integer("length_ns"),
    Column::optional_integer("worker"),
    Column::text("operation"),
    Column::integer("requests"),
    Column::integer("bytes"),
    Column::integer("errors"),
    Column::integer("retries"),
    Column::optional_integer("first_error_ns"),
    Column::integer("latency_min_ns"),
    Column::real("latency_mean_ns"),
    Column::integer("latency_p50_ns"),
    Column::integer("latency_p90_ns"),
    Column::integer("latency_p99_ns"),
    Column::integer("latency_p99_9_ns"),
    Column::integer("latency_max_ns"),
    Column::optional_text(HISTOGRAM),
];

const HISTOGRAM: &str = "latency_histogram";

/// Rows as columns.
pub(crate) fn to_columns(rows: &[Interval]) -> Vec<Values> {
    let integers = |value: fn(&Interval) -> u64| {
        Values::Integers(rows.iter().map(|row| i64::try_from(value(row)).unwrap_or(i64::MAX)).collect())
    };
    vec![
        Values::Texts(rows.iter().map(|row| Arc::clone(&row.phase)).collect()),
        integers(|row| row.start.0),
        integers(|row| row.length_ns),
        Values::OptionalIntegers(rows.iter().map(|row| row.worker.map(i64::from)).collect()),
        Values::Texts(rows.iter().map(|row| Arc::clone(&row.operation)).collect()),
        integers(|row| row.requests),
        integers(|row| row.bytes),
        integers(|row| row.errors),
        integers(|row| row.retries),
        Values::OptionalIntegers(rows.iter().map(|row| row.first_error.map(|time| time.0 as i64)).collect()),
        integers(|row| row.latency_ns.min),
        Values::Reals(rows.iter().map(|row| row.latency_ns.mean).collect()),
        integers(|row| row.latency_ns.p50),
        integers(|row| row.latency_ns.p90),
        integers(|row| row.latency_ns.p99),
        integers(|row| row.latency_ns.p99_9),
        integers(|row| row.latency_ns.max),
        Values::OptionalTexts(rows.iter().map(|row| row.histogram.clone()).collect()),
    ]
}

/// The rows of a table that was read.
pub(crate) fn from_table(table: &Table) -> Result<Vec<Interval>> {
    let (phases, operations) = (phases_of(table)?, table.texts("operation")?);
    let workers = table.optional_integers("worker")?;
    let first_errors = table.optional_integers("first_error_ns")?;
    let means = table.reals("latency_mean_ns")?;
    // Runs of earlier versions have none.
    let histograms = match table.columns().any(|(name, _)| name == HISTOGRAM) {
        true => Some(table.optional_texts(HISTOGRAM)?),
        false => None,
    };
    let names = [
        "start_ns",
        "length_ns",
        "requests",
        "bytes",
        "errors",
        "retries",
        "latency_min_ns",
        "latency_p50_ns",
        "latency_p90_ns",
        "latency_p99_ns",
        "latency_p99_9_ns",
        "latency_max_ns",
    ];
    let numbers: Vec<&[i64]> = names.iter().map(|name| table.integers(name)).collect::<Result<_>>()?;
    let rows = (0..table.rows()).map(|row| {
        let mut left = numbers.iter().map(|column| {
            u64::try_from(column[row]).map_err(|_| damaged("a number below zero where none can be"))
        });
        let mut next = || left.next().unwrap_or(Ok(0));
        Ok(Interval {
            phase: Arc::clone(&phases[row]),
            start: Time(next()?),
            length_ns: next()?,
            worker: workers[row]
                .map(u16::try_from)
                .transpose()
                .map_err(|_| damaged("no number of a worker"))?,
            operation: Arc::clone(&operations[row]),
            requests: next()?,
            bytes: next()?,
            errors: next()?,
            retries: next()?,
            first_error: first_errors[row].map(|time| Time(time.unsigned_abs())),
            latency_ns: Latencies {
                min: next()?,
                mean: means[row],
                p50: next()?,
                p90: next()?,
                p99: next()?,
                p99_9: next()?,
                max: next()?,
            },
            histogram: histograms.and_then(|histograms| histograms[row].clone()),
        })
    });
    rows.collect()
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("intervals.parquet is damaged: {what}"))
}
