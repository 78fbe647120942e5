//! The trial file: what it may say, and what makes sense as a whole.
//!
//! A file becomes a tree in `rotproof_document`, with the options of the command line in it ([`Overrides`]), then a
//! [`TrialFile`], which [`validate`] looks over. What is not wrong and still will hardly be meant, rules that can never
//! hit, is found by [`mod@never`], which goes through the load with [`traffic`]. Nothing here opens a device or knows what a
//! terminal looks like.

mod crash_spec;
mod never;
#[cfg(test)]
mod never_tests;
mod overrides;
mod room;
mod served;
mod targets;
mod traffic;
mod trial_file;
mod validate;
#[cfg(test)]
mod validate_tests;

pub use crash_spec::{CrashMoment, CrashSpec, MountedBy};
pub use overrides::Overrides;
pub use served::{rules_of_arguments, validate_rule_to_serve};
pub use trial_file::{RuntimeKind, Stop, TrialFile};
