//! Rule language, decisions, effects and the ledger of injected faults.
//!
//! A [`Rule`] says which requests are hit ([`Match`]), when ([`Schedule`]), with what ([`Effect`]) and for how long
//! ([`Persistence`]).
//!
//! A [`Model`] is drawn into rules before the run.
//!
//! The [`Engine`] holds rules whose targets have been resolved, what they have done to the device (an overlay over
//! its pristine data), and the [`Ledger`] of it. Each queue has a [`Gate`], at which its requests begin; a
//! [`Passage`] says step by step what is to be done with one.
//!
//! This crate decides what is injected and changes the bytes. It knows no device, so that the same engine can stand behind a C
//! interface in a stack that is not ours. Who carries requests to a device and back is the layer above.
//!
//! | to find out | read |
//! |---|---|
//! | what can be written in a rule | `rule`, `matching`, `target`, `schedule`, `effect`; as text `effect_form`, `short_form` |
//! | how a rule is found for a request | `index`, `content_index`, `coarse_map`; its state while it runs: `active_rule`, `aims` |
//! | what is decided for a request | `evaluator`, from `decided` matches to an `injection`; in which order: `passage` |
//! | how bytes are changed | `corruption`: the deviation of a block, down to the bit; `block_state` and `overlay`: which blocks have one |
//! | what is remembered | `record`, `ledger`, `packed`, `spilled`, `since`; read again: `read_ledger`, `replay` |
//! | several places for faults | `sites` |

#[cfg(test)]
extern crate self as rotproof_fault;

mod active_rule;
mod aims;
mod at_mark;
mod block_state;
mod chance;
mod clock;
mod coarse_map;
mod content_counts;
mod content_index;
mod contradiction;
mod corruption;
mod decided;
mod delay;
#[cfg(test)]
mod documentation;
mod effect;
mod effect_form;
mod engine;
mod errno;
mod evaluator;
mod few;
mod geometry;
mod hang;
mod hash_text;
mod index;
mod injection;
mod interval;
mod ledger;
mod matching;
mod memory;
pub mod model;
mod one_or_many;
mod origin;
mod overlay;
mod packed;
mod passage;
mod power_cut;
mod read_ledger;
mod record;
mod record_list;
mod recorded;
mod replay;
mod resolved;
mod rule;
mod rule_set;
mod rule_state;
mod schedule;
mod seen;
mod short_form;
mod short_text;
mod since;
mod sites;
mod spilled;
mod statistics;
mod tag;
mod target;
#[cfg(test)]
mod test_rules;
mod validate;
mod visits;
mod zeros;

pub use at_mark::AtMark;
pub use chance::Chance;
pub use contradiction::validate_all;
pub use delay::{Delay, Histogram};
pub use effect::{Bits, Direction, Draw, Effect, NewPart, Tear};
pub use engine::{Engine, EngineOptions, OnCut, Recogniser, RuleReport, TargetReport};
pub use errno::Errno;
pub use geometry::Header;
pub use hang::Hang;
pub use hash_text::HashText;
pub use ledger::{Injections, Ledger, digest};
pub use matching::{Match, OperationKind, OperationMatch};
pub use memory::{Copies, MEMORY, MemoryKind};
pub use model::{DrawnModel, FaultEntry, Model, ModelEntry, Plan, validate_plan};
pub use one_or_many::OneOrMany;
pub use origin::OriginMatch;
pub use passage::{Data, End, Gate, Look, Passage, Step, Way};
pub use power_cut::{Keeps, PowerCut};
pub use read_ledger::read_ledger;
pub use record::{BlockContent, Injection, SECTORS, TargetKey, UNNAMED_SITE, Visit, sector_hashes};
pub use recorded::Recorded;
pub use replay::Replay;
pub use resolved::{ResolvedRule, TargetContent};
pub use rule::{EnabledPhase, Persistence, Rule, RuleEntry};
pub use rule_state::RuleState;
pub use schedule::{Cycle, Per, Schedule};
pub use seen::{By, Moment, Seen, SeenBlock};
pub use sites::{SiteList, Sites, Unplaced};
pub use tag::TagPattern;
pub use target::{KindCopies, Target};

/// The unit of faults: a block of the device, aligned to this many bytes. Contents are hashed and effects on data
/// act per such block, as in AchillesBench.
pub const BLOCK_BYTES: u64 = 4096;
