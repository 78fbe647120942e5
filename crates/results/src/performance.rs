//! The figures of one operation in one phase, as results and tables show them.

use std::borrow::Cow;

use rotproof_block::current_phase_word;
use rotproof_record::Latencies;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// What one operation did in one phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Performance {
    /// `prefill`, `run`, `cool_down` or `check`.
    #[serde(deserialize_with = "current_phase")]
    pub phase: Cow<'static, str>,
    /// Which job of fio's; absent for a load of Rotproof's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// What was done: `read`, `write`, `flush`, of loads of files also `create` and the like.
    pub operation: Cow<'static, str>,
    /// Requests that completed, whatever the result.
    pub requests: u64,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// Requests that ended with an error.
    pub errors: u64,
    /// How often a failed request was tried again.
    pub retries: u64,
    /// Seconds that the phase took, under the simulated runtime virtual ones.
    pub seconds: f64,
    /// Bytes divided by the seconds of the phase; `None` of one that took no time, as it may in virtual time.
    pub bytes_per_second: Option<f64>,
    /// Requests divided by the seconds of the phase; `None` likewise.
    pub requests_per_second: Option<f64>,
    /// From submission to completion, to three significant digits; at a rate or in bursts from the time at which the
    /// request was due.
    pub latency_ns: Latencies,
    /// The same as a histogram: upper bound in nanoseconds, and how many lay up to it and above the one before. Twenty
    /// bounds for each power of ten; those without a request are left out, and all of what fio counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<(u64, u64)>,
}

/// A phase in today's words.
fn current_phase<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'static, str>, D::Error> {
    let word = String::deserialize(deserializer)?;
    Ok(current_phase_word(&word).to_owned().into())
}
