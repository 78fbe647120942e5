//! Blocks that a rule chooses by itself, from what has passed by it: the most duplicated content so far, one without a
//! duplicate, the block written last, the next one. Source: AchillesBench, which has its benchmark say them; here the
//! engine knows, whatever the requests come from.

use std::fmt;
use std::str::FromStr;

use rotproof_spec::{Span, nearest};
use serde::ser::SerializeMap;

/// A choice that is made once, when its moment comes, from the requests seen until then. If there is nothing to choose
/// from it is made as soon as there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// What is chosen.
    pub block: SeenBlock,
    /// When.
    pub moment: Moment,
}

/// What can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SeenBlock {
    /// The content that has been written most often, at least twice; of several the one with the smallest hash.
    MostDuplicated {
        /// Only one that no other rule has chosen.
        apart: bool,
    },
    /// A content that has been written once; of several the one with the smallest hash.
    Unique {
        /// Only one that no other rule has chosen.
        apart: bool,
    },
    /// The last block of the last write.
    LastWritten {
        /// The place, or the content wherever it comes by.
        by: By,
    },
    /// The first block of the next write.
    NextWritten {
        /// The place, or the content wherever it comes by.
        by: By,
    },
}

/// How a rule recognises the block that it has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum By {
    /// By its place on the device.
    #[default]
    Place,
    /// By what it holds.
    Content,
}

/// When a choice is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moment {
    /// After so many reads and writes in phases in which the rule is enabled.
    After(u64),
    /// At the first read or write, in such a phase, that comes so long after the phase *run* began.
    At(Span),
}

/// What can stand behind `seen`.
pub(crate) const BLOCKS: [&str; 4] = ["most_duplicated", "unique", "last_written", "next_written"];
/// What can stand beside it.
pub(crate) const OPTIONS: [&str; 4] = ["after", "at", "by", "apart"];

/// The parts of a choice, as they are read.
#[derive(Debug, Default)]
pub(crate) struct SeenParts {
    pub(crate) block: Option<String>,
    pub(crate) after: Option<u64>,
    pub(crate) at: Option<Span>,
    pub(crate) by: Option<String>,
    pub(crate) apart: Option<bool>,
}

impl SeenParts {
    pub(crate) fn build(self) -> Result<Seen, String> {
        let Some(word) = self.block else {
            return Err(
                "`seen` is missing; write for example { seen: most_duplicated, after: 1000 }".to_owned()
            );
        };
        let by = match self.by.as_deref() {
            None => None,
            Some("place") => Some(By::Place),
            Some("content") => Some(By::Content),
            Some(other) => return Err(format!("`by` is place or content, not `{other}`")),
        };
        let apart = self.apart;
        let block = match (word.as_str(), by, apart) {
            ("most_duplicated" | "unique", Some(By::Place), _) => {
                return Err(format!("`{word}` is a content, which may lie in many places; leave `by` out"));
            }
            ("most_duplicated", _, apart) => SeenBlock::MostDuplicated { apart: apart.unwrap_or(false) },
            ("unique", _, apart) => SeenBlock::Unique { apart: apart.unwrap_or(false) },
            ("last_written" | "next_written", _, Some(_)) => {
                return Err(format!(
                    "`apart` chooses among contents, but there is one `{word}`; leave it out"
                ));
            }
            ("last_written", by, None) => SeenBlock::LastWritten { by: by.unwrap_or_default() },
            ("next_written", by, None) => SeenBlock::NextWritten { by: by.unwrap_or_default() },
            (other, ..) => {
                return Err(match nearest(other, BLOCKS) {
                    Some(meant) => format!("no such block is seen: `{other}`; did you mean `{meant}`?"),
                    None => format!("no such block is seen: `{other}`; one of {}", BLOCKS.join(", ")),
                });
            }
        };
        let moment = match (self.after, self.at) {
            (Some(_), Some(_)) => return Err("`after` and `at` both give the moment; keep one".to_owned()),
            (None, Some(at)) => Moment::At(at),
            (after, None) => Moment::After(after.unwrap_or(0)),
        };
        Ok(Seen { block, moment })
    }
}

impl Seen {
    /// Whether what is chosen is recognised by its content.
    pub fn is_by_content(self) -> bool {
        match self.block {
            SeenBlock::MostDuplicated { .. } | SeenBlock::Unique { .. } => true,
            SeenBlock::LastWritten { by } | SeenBlock::NextWritten { by } => by == By::Content,
        }
    }

    fn word(self) -> &'static str {
        match self.block {
            SeenBlock::MostDuplicated { .. } => BLOCKS[0],
            SeenBlock::Unique { .. } => BLOCKS[1],
            SeenBlock::LastWritten { .. } => BLOCKS[2],
            SeenBlock::NextWritten { .. } => BLOCKS[3],
        }
    }

    /// What is not the default of `by` and `apart`.
    fn options(self) -> (bool, bool) {
        match self.block {
            SeenBlock::MostDuplicated { apart } | SeenBlock::Unique { apart } => (false, apart),
            SeenBlock::LastWritten { by } | SeenBlock::NextWritten { by } => (by == By::Content, false),
        }
    }

    /// From the arguments of the short form: `most_duplicated, after=1000`.
    pub(crate) fn from_arguments(arguments: &[&str]) -> Result<Self, String> {
        let mut parts = SeenParts::default();
        for argument in arguments {
            let (key, value) = match argument.split_once('=') {
                Some((key, value)) => (key.trim(), value.trim()),
                None if *argument == "apart" => ("apart", "true"),
                None => ("seen", argument.trim()),
            };
            let is_given = match key {
                "seen" => parts.block.replace(value.to_owned()).is_some(),
                "after" => parts.after.replace(parsed(key, value)?).is_some(),
                "at" => parts.at.replace(value.parse()?).is_some(),
                "by" => parts.by.replace(value.to_owned()).is_some(),
                "apart" => parts.apart.replace(parsed(key, value)?).is_some(),
                other => {
                    return Err(format!("unknown argument `{other}`; `seen` takes {}", OPTIONS.join(", ")));
                }
            };
            if is_given {
                return Err(format!("`{key}` is given twice"));
            }
        }
        parts.build()
    }

    pub(crate) fn write_map<M: SerializeMap>(self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("seen", self.word())?;
        match self.moment {
            Moment::After(0) => {}
            Moment::After(requests) => map.serialize_entry("after", &requests)?,
            Moment::At(at) => map.serialize_entry("at", &at)?,
        }
        let (by_content, apart) = self.options();
        if by_content {
            map.serialize_entry("by", "content")?;
        }
        if apart {
            map.serialize_entry("apart", &true)?;
        }
        Ok(())
    }
}

fn parsed<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| match key {
        "apart" => format!("`apart` is true or false, not `{value}`"),
        _ => format!("`{key}` needs a whole number that is not negative, not `{value}`"),
    })
}

impl fmt::Display for Seen {
    /// As in the short form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seen({}", self.word())?;
        match self.moment {
            Moment::After(0) => {}
            Moment::After(requests) => write!(f, ", after={requests}")?,
            Moment::At(at) => write!(f, ", at={at}")?,
        }
        let (by_content, apart) = self.options();
        f.write_str(if by_content { ", by=content" } else { "" })?;
        f.write_str(if apart { ", apart=true)" } else { ")" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(arguments: &str) -> Result<Seen, String> {
        let arguments: Vec<&str> = arguments.split(',').map(str::trim).collect();
        Seen::from_arguments(&arguments)
    }

    #[test]
    fn a_choice_says_what_when_and_how_it_is_recognised() {
        let block = SeenBlock::MostDuplicated { apart: true };
        assert_eq!(
            seen("most_duplicated, after=1000, apart"),
            Ok(Seen { block, moment: Moment::After(1000) })
        );
        let block = SeenBlock::LastWritten { by: By::Content };
        let moment = Moment::At("10s".parse().expect("a span"));
        assert_eq!(seen("last_written, at=10s, by=content"), Ok(Seen { block, moment }));
        let block = SeenBlock::NextWritten { by: By::Place };
        assert_eq!(seen("next_written"), Ok(Seen { block, moment: Moment::After(0) }));
    }

    #[test]
    fn what_makes_no_sense_is_explained() {
        for (arguments, part) in [
            ("after=3", "`seen` is missing"),
            ("most_duplicate", "did you mean `most_duplicated`?"),
            ("unique, by=place", "leave `by` out"),
            ("last_written, apart", "leave it out"),
            ("last_written, by=hash", "place or content"),
            ("unique, after=3, at=3s", "keep one"),
            ("unique, after=x", "whole number"),
            ("unique, at=3", "span of time"),
            ("unique, after=3, after=4", "given twice"),
            ("unique, unique", "given twice"),
            ("unique, since=3", "unknown argument `since`"),
        ] {
            let complaint = seen(arguments).expect_err(arguments);
            assert!(complaint.contains(part), "{arguments}: {complaint}");
        }
    }
}
