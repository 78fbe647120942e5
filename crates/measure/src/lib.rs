//! Measuring a load: how far it has come, the figures of what it did, and loads without a trial.
//!
//! A trial measures its load with [`Monitor`], [`summarise`] and [`mark_errors`]; `rotproof load` needs nothing but
//! [`load`]. It knows nothing of stacks, subjects, verdicts or terminals.

mod errors;
pub mod load;
mod monitor;
mod performance;
mod watched;

pub use errors::{mark_errors, mark_file_errors};
pub use monitor::{Moment, Monitor};
pub use performance::{summarise, summarise_files};
pub use watched::RuleHits;
