//! Documents that people write: YAML in which every value knows its place, and what is wrong with it.
//!
//! A document travels [`read_source`] (text) -> [`parse`] (YAML) -> [`Tree`] (values that know their place), which options
//! of the command line may change ([`set_value`]) -> [`read`] (any `Deserialize`). Each step adds what it finds wrong to one
//! list of [`Diagnostic`]s. It knows neither what a document may say nor what a terminal looks like.

mod diagnostic;
mod failure;
mod option;
mod parse;
mod read;
mod scalar;
mod source;
mod text;
mod tree;

pub use diagnostic::{Diagnostic, Diagnostics};
pub use failure::{list, short};
pub use option::{push_value, set_key, set_value};
pub use parse::parse;
pub use read::read;
pub use scalar::Meaning;
pub use source::{Location, Source};
pub use text::{read_source, source_from_bytes};
pub use tree::{Node, NodeId, Tree, Value};
