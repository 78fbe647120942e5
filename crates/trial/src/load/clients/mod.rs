//! One load from several machines: a controller has clients do its workers' work, each some of them, and puts together what
//! they say.
//!
//! It is the same load as with all the workers on one machine: what each does follows from the load, the seed and its
//! number, and each has its own part of the target. Phases begin everywhere at once, when all are ready. Counts and
//! histograms are added up, never averages; blocks are verified where they were written.

mod client;
mod controller;
mod message;

pub use client::serve;
pub use controller::{CLIENTS_MAX, ClientOutcome, ClientsCommand};
