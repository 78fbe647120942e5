//! Takes a document apart by hand: each value with its place, and every mistake at the value that it is about.
//!
//! Deserializing into structures would lose the places that later mistakes, and what is said of an assumption, need.

use std::time::Duration;

use rotproof_document::{Diagnostic, Meaning, NodeId, Tree, Value, list, short};
use rotproof_spec::{Span, nearest};

/// Mistakes reported at once.
const MISTAKES_MAX: usize = 20;

/// A document and what is wrong with it.
pub struct Reader<'a> {
    tree: &'a Tree,
    diagnostics: &'a mut Vec<Diagnostic>,
}

/// A number as JSON and YAML tell them apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Without a fraction.
    Whole(u64),
    /// With one.
    Fraction(f64),
}

impl<'a> Reader<'a> {
    /// Of a tree that has been parsed; mistakes go to `diagnostics`.
    pub fn new(tree: &'a Tree, diagnostics: &'a mut Vec<Diagnostic>) -> Self {
        Self { tree, diagnostics }
    }

    /// The document.
    pub fn root(&self) -> NodeId {
        self.tree.root()
    }

    /// Reports a mistake at `node`.
    pub fn report(&mut self, node: NodeId, message: impl Into<String>, help: impl Into<String>) {
        if self.diagnostics.len() < MISTAKES_MAX {
            self.diagnostics.push(Diagnostic {
                message: message.into(),
                help: Some(help.into()),
                place: Some(self.tree.mark(node)),
                path: self.tree.path(node).as_str().to_owned(),
            });
        }
    }

    /// The line on which `node` stands, from 1.
    pub fn line(&self, node: NodeId) -> usize {
        self.tree.mark(node).line()
    }

    /// What stands at `node`: a list, a mapping, or neither.
    pub fn value(&self, node: NodeId) -> &'a Value {
        &self.tree.node(node).value
    }

    /// The value under `key`.
    pub fn get(&self, node: NodeId, key: &str) -> Option<NodeId> {
        self.tree.get(node, key)
    }

    /// The value under `key`, which must be there; `node` is a mapping.
    pub fn need(&mut self, node: NodeId, key: &str) -> Option<NodeId> {
        let found = self.get(node, key);
        if found.is_none() {
            self.report(node, format!("`{key}` is missing here"), format!("add `{key}` and its value"));
        }
        found
    }

    /// Keys and values of a mapping; anything else is a mistake.
    pub fn entries(&mut self, node: NodeId) -> Option<&'a [(NodeId, NodeId)]> {
        match self.value(node) {
            Value::Mapping(entries) => Some(entries),
            Value::Sequence(_) | Value::Scalar { .. } => {
                self.report(
                    node,
                    "keys with values belong here",
                    "see docs/import.md for the form of the file",
                );
                None
            }
        }
    }

    /// The elements of a list; anything else is a mistake.
    pub fn items(&mut self, node: NodeId) -> Option<&'a [NodeId]> {
        match self.value(node) {
            Value::Sequence(items) => Some(items),
            Value::Mapping(_) | Value::Scalar { .. } => {
                self.report(node, "a list belongs here", "see docs/import.md for the form of the file");
                None
            }
        }
    }

    /// Reports keys that are not among `known`.
    pub fn refuse_other_keys(&mut self, entries: &[(NodeId, NodeId)], known: &[&str]) {
        for &(key, _) in entries {
            if !known.contains(&self.word(key)) {
                self.unknown("key", key, known);
            }
        }
    }

    /// Reports that the word at `node` is none of `known`.
    pub fn unknown(&mut self, what: &str, node: NodeId, known: &[&str]) {
        let word = self.word(node);
        let help = match nearest(word, known.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("one of {}", list(known)),
        };
        self.report(node, format!("unknown {what} `{}`", short(word)), help);
    }

    /// The text of a scalar; empty for a list or mapping.
    pub fn word(&self, node: NodeId) -> &'a str {
        self.tree.text(node)
    }

    /// A text that is not empty.
    pub fn text(&mut self, node: NodeId) -> Option<&'a str> {
        let text = self.word(node);
        // What stands there without quotes for nothing is no text.
        let is_nothing = matches!(
            &self.tree.node(node).value,
            Value::Scalar { text, plain: true } if matches!(text.as_str(), "null" | "Null" | "NULL" | "~")
        );
        if text.is_empty() || is_nothing {
            self.report(node, "a text belongs here", "give one that is not empty");
            return None;
        }
        Some(text)
    }

    /// What the word at `node` stands for.
    pub fn one_of<T: Copy>(&mut self, node: NodeId, known: &[(&str, T)]) -> Option<T> {
        let found = known.iter().find(|(word, _)| *word == self.word(node)).map(|(_, value)| *value);
        if found.is_none() {
            let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
            self.unknown("value", node, &words);
        }
        found
    }

    /// A number that is not negative, not in quotes.
    pub fn number(&mut self, node: NodeId) -> Option<Number> {
        let meaning = match self.value(node) {
            Value::Scalar { text, plain: true } => Meaning::of(text),
            Value::Scalar { text, plain: false } => Meaning::Text(text),
            Value::Sequence(_) | Value::Mapping(_) => Meaning::Nothing,
        };
        match meaning {
            Meaning::Whole(number) if number <= u128::from(u64::MAX) => Some(Number::Whole(number as u64)),
            Meaning::Fraction(number) if number >= 0.0 && number.is_finite() => {
                Some(Number::Fraction(number))
            }
            Meaning::Whole(_) => {
                self.report(node, "a number beyond any that is used here", "give a smaller one");
                None
            }
            _ => {
                self.report(node, "a number that is not negative belongs here", "without quotes");
                None
            }
        }
    }

    /// The time that stands at `node`, if it is one that a trial file can say: below 2^64 nanoseconds.
    pub fn span(&mut self, node: NodeId, time: Option<Duration>) -> Option<Span> {
        match time.filter(|time| u64::try_from(time.as_nanos()).is_ok()) {
            Some(time) => Some(Span(time)),
            None => {
                self.report(node, "this is no time of less than 500 years", "give a shorter one");
                None
            }
        }
    }

    /// A whole number that is not negative.
    pub fn whole(&mut self, node: NodeId) -> Option<u64> {
        match self.number(node)? {
            Number::Whole(number) => Some(number),
            Number::Fraction(_) => {
                self.report(node, "a whole number belongs here", "remove the fraction");
                None
            }
        }
    }
}
