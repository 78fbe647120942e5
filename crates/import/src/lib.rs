//! Fault plans and loads that were written for other programs, as rules and loads of ours.
//!
//! A file is read by the same parser as a trial file, so that every mistake has its place. What a format leaves open
//! is assumed, and the assumption told; what cannot be carried is a mistake. Nothing is guessed in silence and nothing
//! left out. Knows no terminal.

mod achilles;
mod fio;
mod fispdk;
mod reader;
mod rules;
mod written;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use fio::{FioSteady, ImportedLoad};
use reader::Reader;
use rotproof_document::{Diagnostics, NodeId, Source, Tree, Value, parse, read_source, source_from_bytes};
pub use rules::{Imported, ImportedRule};

/// A format that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// The JSON of FISPDK.
    Fispdk,
    /// The YAML of AchillesBench.
    Achilles,
    /// fio's job files.
    Fio,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Fispdk, Self::Achilles, Self::Fio];

    /// The word it is asked for with.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fispdk => "fispdk",
            Self::Achilles => "achilles",
            Self::Fio => "fio",
        }
    }

    /// Whether the key `faults` stands somewhere in a mapping of mappings.
    fn has_faults(tree: &Tree, node: NodeId) -> bool {
        match &tree.node(node).value {
            Value::Mapping(entries) => entries
                .iter()
                .any(|(key, value)| tree.text(*key) == "faults" || Self::has_faults(tree, *value)),
            Value::Scalar { .. } | Value::Sequence(_) => false,
        }
    }

    /// The one that a document looks like: each has a key at the top that the others have not.
    fn of(tree: &Tree) -> Option<Self> {
        let has = |key| tree.get(tree.root(), key).is_some();
        // A trial of ours has faults, too.
        if has("faults") && !has("stack") {
            return Some(Self::Achilles);
        }
        (has("write") || has("read")).then(|| {
            let files =
                |key| tree.get(tree.root(), key).is_some_and(|node| tree.get(node, "files").is_some());
            // Achilles' keys may stand above its faults.
            if Self::has_faults(tree, tree.root()) && !files("write") && !files("read") {
                Self::Achilles
            } else {
                Self::Fispdk
            }
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fispdk => "FISPDK",
            Self::Achilles => "AchillesBench",
            Self::Fio => "fio",
        })
    }
}

/// What an import brings.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Brought {
    /// Faults.
    Plan(Imported),
    /// A load.
    Load(Box<ImportedLoad>),
}

impl fmt::Display for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(plan) => plan.fmt(f),
            Self::Load(load) => load.fmt(f),
        }
    }
}

/// Reads the fault plan or load at `path`; without a `format` it is told from the content.
pub fn open(path: &Path, format: Option<Format>) -> Result<Brought, Diagnostics> {
    from_source(&read_source(path)?, format)
}

/// As [`open`], from the content of a file called `name`.
pub fn parse_bytes(name: &str, bytes: &[u8], format: Option<Format>) -> Result<Brought, Diagnostics> {
    from_source(&source_from_bytes(name, bytes.to_vec())?, format)
}

/// As [`parse_bytes`], of what is to be a plan.
#[cfg(test)]
fn parse_plan(name: &str, bytes: &[u8], format: Option<Format>) -> Result<Imported, Diagnostics> {
    parse_bytes(name, bytes, format).map(|brought| match brought {
        Brought::Plan(plan) => plan,
        Brought::Load(load) => panic!("a load: {load}"),
    })
}

fn from_source(source: &Arc<Source>, format: Option<Format>) -> Result<Brought, Diagnostics> {
    if format == Some(Format::Fio) || format.is_none() && fio::looks_like(&source.text) {
        return fio::import(source).map(|load| Brought::Load(Box::new(load)));
    }
    let mut diagnostics = Vec::new();
    let Some(tree) = parse(&without_tabs(source), &mut diagnostics) else {
        if diagnostics.is_empty() {
            return Err(Diagnostics::one(
                &source.name,
                format!("there is nothing in {}", source.name),
                None,
                None,
            ));
        }
        return Err(Diagnostics::new(&source.name, diagnostics));
    };
    let Some(format) = format.or_else(|| Format::of(&tree)) else {
        return Err(Diagnostics::one(
            &source.name,
            "this looks like no fault plan that can be imported",
            Some(
                "FISPDK's has `write` or `read` at the top, AchillesBench's `faults`, a job file of fio's a [section]; \
                 `--as` says which it is meant to be",
            ),
            Some(tree.mark(tree.root())),
        ));
    };
    let mut reader = Reader::new(&tree, &mut diagnostics);
    let imported = match format {
        Format::Fispdk => fispdk::import(&mut reader),
        Format::Achilles => achilles::import(&mut reader),
        Format::Fio => return fio::import(source).map(|load| Brought::Load(Box::new(load))),
    };
    let imported = imported.finish(format, &source.name, &mut reader);
    if diagnostics.is_empty() {
        Ok(Brought::Plan(imported))
    } else {
        Err(Diagnostics::new(&source.name, diagnostics))
    }
}

/// JSON may be indented with tabs, YAML may not: they become spaces where they are no part of a text, which moves
/// nothing.
fn without_tabs(source: &Arc<Source>) -> Arc<Source> {
    if !source.text.trim_start().starts_with('{') || !source.text.contains('\t') {
        return Arc::clone(source);
    }
    let (mut in_quotes, mut escaped) = (false, false);
    let text = source.text.chars().map(|c| {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_quotes => escaped = true,
            '"' => in_quotes = !in_quotes,
            '\t' if !in_quotes => return ' ',
            _ => {}
        }
        c
    });
    Arc::new(Source { name: source.name.clone(), text: text.collect() })
}
