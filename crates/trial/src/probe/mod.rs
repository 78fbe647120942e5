//! Probes: the state of a machine over time, beside the figures of the load.
//!
//! A [`Sampler`] looks at a [`Machine`] at an interval of its own, on a thread of its own: [`Counters`] are what the
//! kernel has counted so far, two of them make a sample, and samples become [`ProbeSeries`]. It all happens by the wall
//! clock and changes nothing of a run: no request waits for it, and nothing that repeats from a seed depends on it. It
//! knows nothing of loads, faults or terminals.
//!
//! What is sampled goes back to SPEK (X. He, M. Zhang, Q. Yang, *SPEK: A Storage Performance Evaluation Kernel Module for
//! Block-Level Storage Systems under Faulty Conditions*): CPU, network and memory of worker and target. Here also block
//! devices, pressure and processes. Load and subject share one machine today; a series says which it is of.

mod counters;
mod machine;
mod processes;
mod rates;
mod recording;
mod sampler;
mod series;
mod spec;
mod table;

pub use machine::Machine;
pub use rates::{Metric, Unit};
pub use recording::{ProbeReport, Recording, SeriesSummary};
pub use sampler::{Latest, ProbeValue, Sampler};
pub use series::ProbeSeries;
pub use spec::{Probes, ProbesSpec};
