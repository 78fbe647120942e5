//! What all descriptions in YAML share: quantities with units, and problems that know their place in the file.
//!
//! The crates above describe themselves (a stack, a fault rule, a load) with plain serde types built from these.
//! [`Problems`] collects everything that makes no sense, each with the path of the offending value, so that the
//! user sees all mistakes at once, with line and column.

mod measure;
mod number;
mod problem;
mod quantity;
mod word_or_map;

pub use measure::Measure;
pub use number::{Percent, number_in_range};
pub use problem::{Path, Problem, Problems, nearest};
pub use quantity::{ByteRange, Bytes, End, Span};
pub use word_or_map::{WordOrMap, deserialize_word_or_map};
