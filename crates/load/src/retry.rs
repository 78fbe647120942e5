//! What a load does when a request fails, as a trial file says it: nothing, or try it again.

use std::borrow::Cow;
use std::fmt;

use rotproof_block::ErrorKind;
use rotproof_spec::{Path, Problems, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `3`, or `{ count: 3, delay: 10ms, on: [medium, timed_out] }`. A flush is never tried again: that a second one
/// succeeds says nothing about what the first one lost (A. Rebello et al., "Can applications recover from fsync
/// failures?", USENIX ATC 2020).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How often, at the most.
    pub count: u32,
    /// How long to wait before each.
    pub delay: Span,
    /// After which errors; empty for all.
    pub on: Vec<RetryOn>,
}

/// An error after which a request may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryOn {
    /// The medium could not read or write (EIO).
    Medium,
    /// It took too long (ETIMEDOUT).
    TimedOut,
    /// No space was left (ENOSPC).
    NoSpace,
    /// The device was gone (ENODEV).
    Gone,
    /// Any other error.
    Other,
}

/// More tries than this would hide a device that never recovers.
const COUNT_MAX: u32 = 1000;

impl Retry {
    /// Whether a request that failed so may be tried again.
    pub(crate) fn applies(&self, error: ErrorKind) -> bool {
        let word = match error {
            ErrorKind::Medium => RetryOn::Medium,
            ErrorKind::TimedOut => RetryOn::TimedOut,
            ErrorKind::NoSpace => RetryOn::NoSpace,
            ErrorKind::Gone => RetryOn::Gone,
            _ => RetryOn::Other,
        };
        self.on.is_empty() || self.on.contains(&word)
    }

    pub(crate) fn validate(&self, path: &Path, problems: &mut Problems) {
        if self.count == 0 || self.count > COUNT_MAX {
            problems.add_with_help(
                path,
                format!("to try {} times again is not possible", self.count),
                format!("give a number from 1 to {COUNT_MAX}, or leave it out for none"),
            );
        }
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = if self.count == 1 { "once".to_owned() } else { format!("{} times", self.count) };
        let delay = if self.delay.0.is_zero() { String::new() } else { format!(" after {}", self.delay) };
        write!(f, "failed requests again up to {times}{delay}")
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    count: u32,
    #[serde(default)]
    delay: Span,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    on: Vec<RetryOn>,
}

impl Serialize for Retry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { count, delay, on } = self.clone();
        if delay.0.is_zero() && on.is_empty() {
            return serializer.serialize_u32(count);
        }
        Keys { count, delay, on }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Retry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Retry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("how often to try again, such as 3, or { count: 3, delay: 10ms, on: [medium, timed_out] }")
            }

            fn visit_u64<E: Error>(self, count: u64) -> Result<Retry, E> {
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                Ok(Retry { count, delay: Span::default(), on: Vec::new() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Retry, A::Error> {
                let Keys { count, delay, on } =
                    Keys::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(Retry { count, delay, on })
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for Retry {
    fn schema_name() -> Cow<'static, str> {
        "Retry".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let span = generator.subschema_for::<Span>();
        let on = generator.subschema_for::<RetryOn>();
        json_schema!({
            "description": "Try a failed read or write again, at most so often.",
            "anyOf": [
                { "type": "integer", "minimum": 1, "maximum": COUNT_MAX },
                {
                    "description": "How often, how long to wait before, and after which errors (default: all).",
                    "type": "object",
                    "properties": {
                        "count": { "type": "integer", "minimum": 1, "maximum": COUNT_MAX },
                        "delay": span,
                        "on": { "type": "array", "items": on }
                    },
                    "required": ["count"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_read_and_survive_their_text() {
        for (json, text) in [
            ("3", "failed requests again up to 3 times"),
            (
                r#"{"count":1,"delay":"10ms","on":["medium","timed_out"]}"#,
                "failed requests again up to once after 10ms",
            ),
        ] {
            let retry: Retry = serde_json::from_str(json).expect(json);
            assert_eq!(retry.to_string(), text);
            let again = serde_json::to_string(&retry).expect("can be written");
            assert_eq!(serde_json::from_str::<Retry>(&again).expect("and read"), retry);
        }
        for json in ["-1", r#""often""#, r#"{"delay":"1ms"}"#, r#"{"count":1,"on":["eio"]}"#] {
            serde_json::from_str::<Retry>(json).expect_err(json);
        }
    }

    #[test]
    fn it_applies_to_the_errors_it_names_and_without_names_to_all() {
        let all = Retry { count: 1, delay: Span::default(), on: Vec::new() };
        assert!(all.applies(ErrorKind::Medium) && all.applies(ErrorKind::Os(5)));
        let some = Retry { on: vec![RetryOn::TimedOut, RetryOn::Other], ..all };
        assert!(some.applies(ErrorKind::TimedOut) && some.applies(ErrorKind::Os(5)));
        assert!(!some.applies(ErrorKind::Medium) && !some.applies(ErrorKind::NoSpace));
        let mut problems = Problems::default();
        for count in [0, 1001] {
            Retry { count, ..some.clone() }.validate(&Path::root(), &mut problems);
        }
        assert_eq!(problems.iter().count(), 2);
    }
}
