//! The trial file: what it may say, how mistakes in it are found and shown, and what makes sense as a whole.

mod subject_spec;

pub use subject_spec::{FileSystem, FileSystemSpec, SubjectSpec};
