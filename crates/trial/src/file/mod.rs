//! The trial file: what it may say, how mistakes in it are found and shown, and what makes sense as a whole.

mod diagnostic;
mod document;
mod failure;
mod parse;
mod read;
mod scalar;
mod source;
mod subject_spec;
mod tree;

pub use diagnostic::{Diagnostic, Diagnostics};
pub use source::{Place, Source};
pub use subject_spec::{FileSystem, FileSystemSpec, SubjectSpec};
