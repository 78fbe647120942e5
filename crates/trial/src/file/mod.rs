//! The trial file: what it may say, how mistakes in it are found and shown, and what makes sense as a whole.
//!
//! A file travels [`document`] (bytes and options of the command line) -> [`parse`] (YAML) -> [`tree`] (values that
//! know their place) -> [`read`] (any `Deserialize`) -> [`TrialFile`] -> [`validate`]. Each step adds what it finds
//! wrong to one list of [`Diagnostic`]s. What is not wrong and still will hardly be meant, rules that can never hit, is
//! found by [`never`], which goes through the load with [`traffic`]. Nothing here opens a device or knows what a terminal looks like.

mod diagnostic;
pub(crate) mod document;
pub(crate) mod failure;
mod never;
#[cfg(test)]
mod never_tests;
pub(crate) mod parse;
pub(crate) mod read;
pub(crate) mod scalar;
mod served;
mod source;
mod subject_spec;
mod targets;
mod traffic;
pub(crate) mod tree;
mod trial_file;
mod validate;

pub use diagnostic::{Diagnostic, Diagnostics};
pub use document::{Overrides, rules_of_arguments};
pub use served::validate_rule_to_serve;
pub use source::{Place, Source};
pub use subject_spec::{FileSystem, FileSystemSpec, SubjectSpec};
pub use trial_file::{RuntimeKind, TrialFile};
