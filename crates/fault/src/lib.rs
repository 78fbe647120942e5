//! Rule language, decisions, effects and the ledger of injected faults.
//!
//! A [`Rule`] says which requests are hit ([`Match`]), when ([`Schedule`]), with what ([`Effect`]) and for how long
//! ([`Persistence`]).
//!
//! This crate decides; it knows no device, so that the same engine can stand behind a C interface in a stack that is
//! not ours. Who carries requests to a device and back is the layer above.

mod effect;
mod hash_text;
mod matching;
mod one_or_many;
mod rule;
mod schedule;
mod short_form;
mod short_text;
mod target;
#[cfg(test)]
mod test_rules;

pub use effect::{Bit, Effect};
pub use hash_text::HashText;
pub use matching::{Match, OperationKind, OperationMatch};
pub use one_or_many::OneOrMany;
pub use rule::{AwakePhase, Persistence, Rule, RuleEntry};
pub use schedule::Schedule;
pub use target::Target;

/// The unit of faults: a block of the device, aligned to this many bytes. Contents are hashed and effects on data
/// act per such block, as in AchillesBench.
pub const BLOCK_BYTES: u64 = 4096;
