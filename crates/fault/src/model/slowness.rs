//! How slow a slow device is: the delay or the rate that the effects `delay` and `bandwidth` take, as one parameter.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rotproof_spec::Span;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::delay::Delay;
use crate::effect::Effect;

/// What requests of a slow device suffer: the delay of each, `100ms` or `exponential=50ms`; or all of them a rate,
/// `bandwidth=100KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slowness(pub(super) Effect);

impl Default for Slowness {
    fn default() -> Self {
        Self(Effect::Delay(Delay::Exponential(Span(Duration::from_millis(50)))))
    }
}

impl FromStr for Slowness {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let effect = match text.strip_prefix("bandwidth=") {
            Some(rate) => format!("bandwidth({rate})"),
            None => format!("delay({text})"),
        };
        effect.parse().map(Self).map_err(|why| {
            format!("`{text}` is no slowness ({why}); write for example 100ms, exponential=50ms or bandwidth=100KiB")
        })
    }
}

impl fmt::Display for Slowness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The effect prints as `delay(100ms)` or `bandwidth(100KiB)`.
        let text = self.0.to_string();
        let arguments = text.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or_default();
        match self.0 {
            Effect::Bandwidth(_) => write!(f, "bandwidth={arguments}"),
            _ => f.write_str(arguments),
        }
    }
}

impl Serialize for Slowness {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Slowness {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Slowness;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a slowness such as 100ms, exponential=50ms or bandwidth=100KiB")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Slowness, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Text)
    }
}

impl JsonSchema for Slowness {
    fn schema_name() -> Cow<'static, str> {
        "Slowness".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The delay of each request, 100ms, exponential=50ms, uniform=5ms|50ms; or a rate for all of them, bandwidth=100KiB.",
            "type": "string"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slowness_reads_back_as_it_prints() {
        for text in
            ["100ms", "exponential=50ms", "uniform=5ms|50ms", "histogram=1ms*90|50ms*10", "bandwidth=100KiB"]
        {
            let slowness: Slowness = text.parse().unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(slowness.to_string(), text);
        }
        assert!("fast".parse::<Slowness>().expect_err("no delay").contains("exponential=50ms"));
        assert!("bandwidth=".parse::<Slowness>().is_err() && "1ms) x(".parse::<Slowness>().is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text: String) {
            let _ = text.parse::<Slowness>();
        }
    }
}
