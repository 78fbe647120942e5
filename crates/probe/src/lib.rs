//! Probes: the state of a machine over time, beside the figures of the load.
//!
//! A [`Sampler`] looks at a [`Machine`] at an interval of its own, on a thread of its own: `Counters` are what the
//! kernel has counted so far, two of them make a sample, and samples become [`ProbeSeries`]. Other machines look at
//! themselves ([`look_on`]) and say what they see in the lines of [`protocol`], which `remote` reads. It all happens by the
//! wall clock and changes nothing of a run: no request waits for it, and nothing that repeats from a seed depends on it. It
//! knows nothing of loads, faults or terminals.
//!
//! What is sampled goes back to SPEK (X. He, M. Zhang, Q. Yang, *SPEK: A Storage Performance Evaluation Kernel Module for
//! Block-Level Storage Systems under Faulty Conditions*): CPU, network and memory of worker and target. Here also block
//! devices, pressure and processes. A series says of which machine it is.

mod counters;
mod look;
mod machine;
mod processes;
pub mod protocol;
mod rates;
mod recording;
mod remote;
mod sampler;
mod series;
mod spec;
mod standing;
mod table;

pub use machine::{LOCAL, Machine};
pub use rates::{Metric, Unit};
pub use recording::{MachineProbes, ProbeReport, Recording, SeriesSummary};
pub use sampler::{Latest, ProbeValue, Sampler};
pub use series::ProbeSeries;
pub use spec::{Probes, ProbesSpec, machine};
pub use standing::look_on;
