//! Why a value of a tree is not what was asked for, in the words of people instead of Rust's types.

use std::fmt;

use rotproof_spec::nearest;
use serde::de::{Error, Expected, Unexpected};

use crate::tree::{NodeId, Tree};

/// A mistake that a `Deserialize` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// Where; unknown as long as it is on its way out of the value concerned.
    pub node: Option<NodeId>,
    /// The word it is about, if that may be a key of the value it is found in.
    pub word: Option<String>,
}

impl ValueError {
    /// Places a failure that has no place yet.
    pub fn at(mut self, node: NodeId) -> Self {
        self.node.get_or_insert(node);
        self
    }

    /// Places a failure of a mapping that has no place yet: at the key with its word, if there is one, unless it may
    /// only follow from another mistake in the mapping.
    pub fn within(self, mapping: NodeId, tree: &Tree) -> Self {
        let key = self.word.as_deref().and_then(|word| tree.key(mapping, word));
        self.at(key.filter(|_| !tree.is_wounded(mapping)).unwrap_or(mapping))
    }

    pub(crate) fn new(message: impl Into<String>, help: Option<String>) -> Self {
        Self { message: message.into(), help, node: None, word: None }
    }

    fn unknown(what: &str, word: &str, known: &'static [&'static str]) -> Self {
        let help = match (nearest(word, known.iter().copied()), known) {
            // The short form of a fault has a colon, which YAML takes for the end of a key.
            (None, _) if word.contains([' ', ',', '=']) => {
                Some("if this line is one text, put quotes around all of it".into())
            }
            (Some(word), _) => Some(format!("did you mean `{word}`?")),
            (None, []) => None,
            (None, [one]) => Some(format!("the only one is `{one}`")),
            (None, _) => Some(format!("one of {}", list(known))),
        };
        Self { word: Some(word.to_owned()), ..Self::new(format!("unknown {what} `{}`", short(word)), help) }
    }
}

/// `a, b or c`.
pub fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
    }
}

/// A text fit for a message: on one line, its middle left out if it is long.
pub fn short(text: &str) -> String {
    const LENGTH_MAX: usize = 60;
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= LENGTH_MAX {
        return line;
    }
    let head: String = line.chars().take(LENGTH_MAX - 1).collect();
    format!("{head}…")
}

/// What was asked for, in the words of people.
fn wanted(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    match text.as_str() {
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => "a whole number from 0 on".into(),
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        "a string" | "a borrowed string" => "a text".into(),
        "a boolean" => "true or false".into(),
        "a sequence" => "a list".into(),
        "a map" => "keys with values".into(),
        other if other.starts_with("struct ") => "keys with values".into(),
        other if other.starts_with("enum ") || other == "variant identifier" => "one of a few words".into(),
        other => other.to_owned(),
    }
}

/// What was found instead.
fn found(unexpected: Unexpected<'_>) -> String {
    match unexpected {
        Unexpected::Unit | Unexpected::Option => "nothing".into(),
        Unexpected::Bool(truth) => format!("`{truth}`"),
        Unexpected::Unsigned(number) => format!("the number {number}"),
        Unexpected::Signed(number) => format!("the number {number}"),
        Unexpected::Float(number) => format!("the number {number}"),
        Unexpected::Str(text) => format!("the text `{}`", short(text)),
        Unexpected::Seq | Unexpected::TupleVariant => "a list".into(),
        Unexpected::Map | Unexpected::StructVariant | Unexpected::NewtypeVariant => "keys with values".into(),
        Unexpected::UnitVariant => "a word alone".into(),
        other => other.to_string(),
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ValueError {}

impl Error for ValueError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        // "What is wrong; what to do": the quantities say both in one sentence.
        let text = message.to_string();
        match text.split_once("; ") {
            Some((message, help)) => Self::new(message, Some(help.to_owned())),
            None => Self::new(text, None),
        }
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let wanted = wanted(expected);
        let is_plural = wanted.starts_with("keys");
        match unexpected {
            Unexpected::Unit if is_plural => {
                let help = "give its keys on the lines below, indented deeper, or in braces";
                Self::new("no value stands here", Some(help.into()))
            }
            Unexpected::Unit => {
                Self::new("no value stands here", Some(format!("give {wanted}, or remove the key")))
            }
            other => {
                let belongs = if is_plural { "belong" } else { "belongs" };
                Self::new(format!("{} where {wanted} {belongs}", found(other)), None)
            }
        }
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("{} is not {}", found(unexpected), wanted(expected)), None)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::new(format!("{length} elements where {} belongs", wanted(expected)), None)
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        Self::unknown("value", word, known)
    }

    fn unknown_field(word: &str, known: &'static [&'static str]) -> Self {
        Self::unknown("key", word, known)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("`{field}` is missing here"), Some(format!("add `{field}:` and its value")))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(format!("`{field}` is given twice"), Some("remove one of them".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_word_names_the_nearest_or_all() {
        let known = &["block_size", "queue_depth", "workers"];
        let near = ValueError::unknown_field("blocksize", known);
        assert_eq!(near.help.as_deref(), Some("did you mean `block_size`?"));
        let far = ValueError::unknown_variant("colour", known);
        assert_eq!(far.message, "unknown value `colour`");
        assert_eq!(far.help.as_deref(), Some("one of block_size, queue_depth or workers"));
    }

    #[test]
    fn a_long_or_multi_line_text_stays_on_one_line() {
        assert_eq!(short("a\nb"), "a b");
        assert_eq!(short(&"x".repeat(100)).chars().count(), 60);
    }
}
