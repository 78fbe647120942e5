//! Which mark of the load a rule waits for, and whether it has come.
//!
//! A mark is what the load says of itself, such as "transaction 17 acknowledged". It is no request, so a rule that waits for one hits the
//! first request that comes after it: whatever the load has done by then, nothing of it has reached the device since.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rotproof_block::Tag;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A mark of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtMark {
    /// The n-th that it sets, from 1.
    Nth(u64),
    /// The first with this text.
    Text(Tag),
}

impl AtMark {
    /// The first mark with this text.
    pub fn text(text: &str) -> Self {
        Self::Text(Tag::intern(text))
    }
}

impl fmt::Display for AtMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nth(n) => n.fmt(f),
            Self::Text(text) => text.name().fmt(f),
        }
    }
}

impl Serialize for AtMark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nth(n) => serializer.serialize_u64(*n),
            Self::Text(text) => serializer.serialize_str(text.name()),
        }
    }
}

impl<'de> Deserialize<'de> for AtMark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrText;

        impl Visitor<'_> for NumberOrText {
            type Value = AtMark;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the number of a mark, or its text in quotes")
            }

            fn visit_u64<E: Error>(self, n: u64) -> Result<AtMark, E> {
                Ok(AtMark::Nth(n))
            }

            fn visit_i64<E: Error>(self, n: i64) -> Result<AtMark, E> {
                u64::try_from(n).map(AtMark::Nth).map_err(|_| E::custom("marks are counted from 1"))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<AtMark, E> {
                Ok(AtMark::text(text))
            }
        }

        deserializer.deserialize_any(NumberOrText)
    }
}

impl JsonSchema for AtMark {
    fn schema_name() -> Cow<'static, str> {
        "AtMark".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A mark of the load: the n-th that it sets, or the first with this text.",
            "anyOf": [{ "type": "integer", "minimum": 1 }, { "type": "string", "minLength": 1 }]
        })
    }
}

/// How far a rule has come that waits for a mark.
#[derive(Debug, Default)]
pub(crate) struct MarkWait {
    seen: AtomicU64,
    state: AtomicU8,
}

const WAITING: u8 = 0;
const HAS_COME: u8 = 1;
const IS_OVER: u8 = 2;

impl MarkWait {
    /// The load has set a mark.
    pub(crate) fn note(&self, wanted: AtMark, text: &str) {
        let number = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        let is_it = match wanted {
            AtMark::Nth(n) => n == number,
            AtMark::Text(wanted) => wanted.name() == text,
        };
        if is_it {
            // Once only, whatever else has that text. What comes after the mark must see it, on any thread.
            let _ = self.state.compare_exchange(WAITING, HAS_COME, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Whether this match is the first after the mark.
    pub(crate) fn is_first_after(&self) -> bool {
        self.state.load(Ordering::SeqCst) == HAS_COME
            && self.state.compare_exchange(HAS_COME, IS_OVER, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_waited_for_by_number_or_text_and_once() {
        for (wanted, position) in [(AtMark::Nth(3), 2), (AtMark::text("b"), 1), (AtMark::Nth(9), 5)] {
            let wait = MarkWait::default();
            let mut hits = Vec::new();
            for (at, text) in ["a", "b", "c", "b", "a"].into_iter().enumerate() {
                wait.note(wanted, text);
                hits.extend(
                    [wait.is_first_after(), wait.is_first_after()].iter().filter(|hit| **hit).map(|_| at),
                );
            }
            let expected: Vec<usize> = (position < 5).then_some(position).into_iter().collect();
            assert_eq!(hits, expected, "{wanted}");
        }
    }
}
