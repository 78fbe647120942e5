//! When the requests of a load begin, as a trial file says it: at a rate, in bursts, with time to think, after a
//! ramp-up. Without any of it a worker keeps its queue full.
//!
//! A rate or a burst fixes when each request is due whatever became of those before it (an *open loop*): its latency
//! counts from then, so that a stall is charged to every request that it held up, and not to the one that met it.
//! Source: G. Tene, "How NOT to measure latency", on coordinated omission.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rotproof_spec::{Bytes, Path, Problems, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Requests a second, of all workers of a job together: `500`, or `{ requests: 500, arrivals: poisson }`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// How many a second.
    pub requests: f64,
    /// How they are spread.
    pub arrivals: Arrivals,
}

/// How the requests of a rate are spread over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// One interval like the other.
    #[default]
    Even,
    /// As of many users who know nothing of each other: intervals are exponentially distributed.
    Poisson,
}

/// So many requests of a worker at once, then again so long after the last burst began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Requests of a worker that are due at once.
    pub requests: u64,
    /// From the beginning of a burst to that of the next.
    pub every: Span,
}

/// A pause of a worker, `1ms`, or `{ pause: 1ms, after: 32 }`, or `{ pause: 5s, after: 10s }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinkTime {
    /// How long it is.
    pub pause: Span,
    /// What it comes after, once all requests before it have completed.
    pub after: ThinkAfter,
}

/// What comes before each pause of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkAfter {
    /// So many requests.
    Requests(u64),
    /// Requests for so long since the pause before it ended, as fio's `thinktime_iotime` has it.
    Time(Span),
}

/// What is done before anything is recorded, or after the end: a number of requests or bytes of all workers together, or
/// a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RampUp {
    /// So many requests.
    Requests(u64),
    /// So many bytes.
    Bytes(Bytes),
    /// So long.
    Time(Span),
}

impl RampUp {
    /// How long, if it goes by time.
    pub fn time(self) -> Option<Span> {
        match self {
            Self::Time(span) => Some(span),
            Self::Requests(_) | Self::Bytes(_) => None,
        }
    }
}

impl FromStr for RampUp {
    type Err = String;

    /// A time if it can be one, so that `5m` is five minutes; else bytes.
    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = || text.parse().map(Self::Bytes);
        text.parse().map(Self::Time).or_else(|_| bytes()).map_err(|_: String| {
            format!("`{text}` is neither a span of time such as 5s nor a size such as 64MiB")
        })
    }
}

/// More than this would be one a nanosecond.
const REQUESTS_PER_SECOND_MAX: f64 = 1e9;

impl Rate {
    pub(crate) fn validate(&self, path: &Path, problems: &mut Problems) {
        if !(self.requests > 0.0 && self.requests <= REQUESTS_PER_SECOND_MAX) {
            problems.add_with_help(
                path,
                format!("a rate of {} requests a second is not possible", self.requests),
                "give for example 500, or leave it out to keep the queue full",
            );
        }
    }
}

impl Burst {
    pub(crate) fn validate(&self, path: &Path, problems: &mut Problems) {
        if self.requests == 0 {
            problems.add(&path.key("requests"), "a burst of no requests does nothing");
        }
        if self.every.0.is_zero() {
            problems.add(&path.key("every"), "bursts that follow each other at once are none");
        }
    }
}

impl ThinkTime {
    pub(crate) fn validate(&self, path: &Path, problems: &mut Problems) {
        if self.pause.0.is_zero() {
            problems.add_with_help(
                path,
                "a pause of no time is none",
                "give for example 1ms, or leave it out",
            );
        }
        let nothing = match self.after {
            ThinkAfter::Requests(0) => "a pause after no request would never end; give at least 1",
            ThinkAfter::Time(Span(Duration::ZERO)) => {
                "a pause after no time would never end; give for example 10s"
            }
            _ => return,
        };
        problems.add(&path.key("after"), nothing);
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrivals = match self.arrivals {
            Arrivals::Even => "",
            Arrivals::Poisson => ", as they come",
        };
        write!(f, "{} requests a second{arrivals}", self.requests)
    }
}

impl fmt::Display for ThinkTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pause = self.pause;
        match self.after {
            ThinkAfter::Requests(1) => write!(f, "{pause} to think after each"),
            ThinkAfter::Requests(requests) => write!(f, "{pause} to think after {requests}"),
            ThinkAfter::Time(busy) => write!(f, "busy for {busy}, then idle for {pause}"),
        }
    }
}

impl fmt::Display for RampUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests(1) => f.write_str("1 request"),
            Self::Requests(requests) => write!(f, "{requests} requests"),
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Time(span) => span.fmt(f),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RateKeys {
    requests: f64,
    #[serde(default)]
    arrivals: Arrivals,
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { requests, arrivals } = *self;
        match arrivals {
            Arrivals::Even => serializer.serialize_f64(requests),
            Arrivals::Poisson => RateKeys { requests, arrivals }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Rate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("requests a second such as 500, or { requests: 500, arrivals: poisson }")
            }

            fn visit_f64<E: Error>(self, requests: f64) -> Result<Rate, E> {
                Ok(Rate { requests, arrivals: Arrivals::Even })
            }

            fn visit_u64<E: Error>(self, requests: u64) -> Result<Rate, E> {
                self.visit_f64(requests as f64)
            }

            fn visit_i64<E: Error>(self, requests: i64) -> Result<Rate, E> {
                self.visit_f64(requests as f64)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Rate, A::Error> {
                let RateKeys { requests, arrivals } =
                    RateKeys::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(Rate { requests, arrivals })
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for Rate {
    fn schema_name() -> Cow<'static, str> {
        "Rate".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let arrivals = generator.subschema_for::<Arrivals>();
        json_schema!({
            "description": "Requests a second, of all workers together: 500, or { requests: 500, arrivals: poisson }.",
            "anyOf": [
                { "type": "number", "minimum": 0 },
                {
                    "description": "With how they are spread over time.",
                    "type": "object",
                    "properties": { "requests": { "type": "number", "minimum": 0 }, "arrivals": arrivals },
                    "required": ["requests"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ThinkTimeKeys {
    pause: Span,
    #[serde(default)]
    after: ThinkAfter,
}

impl Default for ThinkAfter {
    fn default() -> Self {
        Self::Requests(1)
    }
}

impl Serialize for ThinkAfter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Requests(requests) => serializer.serialize_u64(*requests),
            Self::Time(span) => span.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ThinkAfter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl Visitor<'_> for Form {
            type Value = ThinkAfter;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of requests such as 32, or a span of time such as 10s")
            }

            fn visit_u64<E: Error>(self, requests: u64) -> Result<ThinkAfter, E> {
                Ok(ThinkAfter::Requests(requests))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ThinkAfter, E> {
                text.parse().map(ThinkAfter::Time).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl Serialize for ThinkTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { pause, after } = *self;
        match after {
            ThinkAfter::Requests(1) => pause.serialize(serializer),
            _ => ThinkTimeKeys { pause, after }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ThinkTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = ThinkTime;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a span of time such as 1ms, or { pause: 1ms, after: 32 }, or { pause: 5s, after: 10s }",
                )
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ThinkTime, E> {
                text.parse().map(|pause| ThinkTime { pause, after: ThinkAfter::default() }).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ThinkTime, A::Error> {
                let ThinkTimeKeys { pause, after } =
                    ThinkTimeKeys::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(ThinkTime { pause, after })
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for ThinkTime {
    fn schema_name() -> Cow<'static, str> {
        "ThinkTime".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let span = generator.subschema_for::<Span>();
        json_schema!({
            "description": "A pause of a worker after each request: 1ms; after so many: { pause: 1ms, after: 32 }; or after so long: { pause: 5s, after: 10s }.",
            "anyOf": [
                span.clone(),
                {
                    "description": "The pause, and after how many requests it comes, or how long the worker is busy before it.",
                    "type": "object",
                    "properties": {
                        "pause": span.clone(),
                        "after": { "anyOf": [{ "type": "integer", "minimum": 1 }, span] }
                    },
                    "required": ["pause"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

impl Serialize for RampUp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Requests(requests) => serializer.serialize_u64(*requests),
            // Below 1KiB a number alone would read as requests.
            Self::Bytes(Bytes(bytes)) if !bytes.is_multiple_of(1024) => {
                serializer.collect_str(&format_args!("{bytes}B"))
            }
            Self::Bytes(bytes) => bytes.serialize(serializer),
            Self::Time(span) => span.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for RampUp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl Visitor<'_> for Form {
            type Value = RampUp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a number of requests such as 1000, a size such as 64MiB, or a span of time such as 5s",
                )
            }

            fn visit_u64<E: Error>(self, requests: u64) -> Result<RampUp, E> {
                Ok(RampUp::Requests(requests))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<RampUp, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for RampUp {
    fn schema_name() -> Cow<'static, str> {
        "RampUp".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let span = generator.subschema_for::<Span>();
        let bytes = generator.subschema_for::<Bytes>();
        json_schema!({
            "description": "Requests or bytes of all workers together, or a time.",
            "anyOf": [{ "type": "integer", "minimum": 0 }, span, bytes]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survives<T>(json: &str) -> T
    where
        T: Serialize + for<'de> Deserialize<'de> + PartialEq + fmt::Debug,
    {
        let value: T = serde_json::from_str(json).expect(json);
        let text = serde_json::to_string(&value).expect("can be written");
        assert_eq!(serde_json::from_str::<T>(&text).expect("and read"), value, "{text}");
        value
    }

    #[test]
    fn every_form_reads_and_survives_its_text() {
        assert_eq!(survives::<Rate>("500"), Rate { requests: 500.0, arrivals: Arrivals::Even });
        assert_eq!(survives::<Rate>("0.5").requests, 0.5);
        let poisson = survives::<Rate>(r#"{"requests":20,"arrivals":"poisson"}"#);
        assert_eq!(poisson, Rate { requests: 20.0, arrivals: Arrivals::Poisson });
        let millisecond = Span(Duration::from_millis(1));
        for (json, after, shown) in [
            (r#""1ms""#, ThinkAfter::Requests(1), "1ms to think after each"),
            (r#"{"pause":"1ms","after":32}"#, ThinkAfter::Requests(32), "1ms to think after 32"),
            (
                r#"{"pause":"1ms","after":"5m"}"#,
                ThinkAfter::Time(Span(Duration::from_secs(300))),
                "busy for 5min, then idle for 1ms",
            ),
        ] {
            let think_time = survives::<ThinkTime>(json);
            assert_eq!(think_time, ThinkTime { pause: millisecond, after });
            assert_eq!(think_time.to_string(), shown);
        }
        assert_eq!(survives::<RampUp>("100"), RampUp::Requests(100));
        assert_eq!(survives::<RampUp>(r#""1ms""#), RampUp::Time(millisecond));
        assert_eq!(survives::<RampUp>(r#""5m""#), RampUp::Time(Span(Duration::from_secs(300))));
        assert_eq!(survives::<RampUp>(r#""64MiB""#), RampUp::Bytes(Bytes(64 << 20)));
        assert_eq!(survives::<RampUp>(r#""100B""#), RampUp::Bytes(Bytes(100)));
        survives::<Burst>(r#"{"requests":8,"every":"10ms"}"#);
    }

    #[test]
    fn what_is_no_pace_is_told() {
        for json in [r#""fast""#, r#"{"arrivals":"even"}"#, r#"{"requests":1,"arrivals":"late"}"#, "[]"] {
            serde_json::from_str::<Rate>(json).expect_err(json);
        }
        for json in
            ["1", r#"{"after":1}"#, r#"{"pause":"1ms","before":1}"#, r#"{"pause":"1ms","after":"long"}"#]
        {
            serde_json::from_str::<ThinkTime>(json).expect_err(json);
        }
        for json in ["-1", r#""soon""#, "{}"] {
            serde_json::from_str::<RampUp>(json).expect_err(json);
        }
        let mut problems = Problems::default();
        let path = Path::root();
        for requests in [0.0, -1.0, 1e10, f64::NAN] {
            Rate { requests, arrivals: Arrivals::Even }.validate(&path.key("rate"), &mut problems);
        }
        Burst { requests: 0, every: Span::default() }.validate(&path.key("burst"), &mut problems);
        for after in [ThinkAfter::Requests(0), ThinkAfter::Time(Span::default())] {
            ThinkTime { pause: Span::default(), after }.validate(&path.key("think"), &mut problems);
        }
        let places: Vec<_> = problems.iter().map(|problem| problem.path.to_string()).collect();
        assert_eq!(
            places,
            [
                "rate",
                "rate",
                "rate",
                "rate",
                "burst.requests",
                "burst.every",
                "think",
                "think.after",
                "think",
                "think.after"
            ]
        );
    }
}
