//! What a trial file says of what is to be recorded: `record:`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rotproof_spec::{Path, Problems, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::statistics::SteadySpec;

/// What is recorded of a load over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "keys such as interval and samples")]
pub struct RecordSpec {
    /// How long an interval is, from 10ms to 1h, or `end` for one at the end of each phase. Default `auto`: 1s, or less for
    /// a load that is likely to be short, so that it has some 50.
    pub interval: IntervalLength,
    /// Keep every single request, in samples.parquet. Default no.
    pub samples: bool,
    /// Tell when the load became steady. Default no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady: Option<SteadySpec>,
}

/// How long an interval is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IntervalLength {
    /// Whoever knows the load decides; 1s where nobody does.
    #[default]
    Auto,
    /// As long as its phase.
    End,
    /// So long.
    Every(Span),
}

/// What nobody chose, for a load that is not short.
const USUAL: Duration = Duration::from_secs(1);
/// So many intervals a load has that is short.
const POINTS: u32 = 50;

/// The shortest interval and the longest: SPEK reports every hour at most.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(3600);

impl IntervalLength {
    /// What `auto` is for a load that is likely to take so long: a length that gives some 50 points, in whole
    /// hundredths of a second, and one second at the most. Any other stays.
    #[must_use]
    pub fn resolved(self, likely: Option<Duration>) -> Self {
        match (self, likely) {
            (Self::Auto, Some(likely)) => {
                let hundredths = (likely / POINTS).as_millis() / 10;
                let millis = u64::try_from(hundredths).unwrap_or(u64::MAX).saturating_mul(10);
                Self::Every(Span(Duration::from_millis(millis).clamp(SHORTEST, USUAL)))
            }
            (Self::Auto, None) => Self::Every(Span(USUAL)),
            (chosen, _) => chosen,
        }
    }

    /// In nanoseconds; the largest number for one that ends with its phase.
    pub fn nanoseconds(self) -> u64 {
        match self {
            Self::Auto => u64::try_from(USUAL.as_nanos()).unwrap_or(u64::MAX),
            Self::End => u64::MAX,
            Self::Every(Span(span)) => u64::try_from(span.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

impl RecordSpec {
    /// Reports everything that makes no sense.
    pub fn validate(&self, path: &Path, problems: &mut Problems) {
        if let IntervalLength::Every(span) = self.interval
            && !(SHORTEST..=LONGEST).contains(&span.0)
        {
            problems.add_with_help(
                &path.key("interval"),
                format!("an interval of {span} is not possible"),
                "give 10ms to 1h, or `end` for one at the end of each phase",
            );
        }
        if let Some(steady) = &self.steady {
            steady.validate(&path.key("steady"), problems);
            steady.validate_intervals(self.interval.nanoseconds(), &path.key("steady"), problems);
        }
    }
}

impl fmt::Display for IntervalLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::End => f.pad("end"),
            Self::Every(span) => span.fmt(f),
        }
    }
}

impl FromStr for IntervalLength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => return Ok(Self::Auto),
            "end" => return Ok(Self::End),
            _ => {}
        }
        text.parse().map(Self::Every).map_err(|error| format!("{error}; or `end`"))
    }
}

impl Serialize for IntervalLength {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IntervalLength {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for IntervalLength {
    fn schema_name() -> Cow<'static, str> {
        "IntervalLength".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let span = generator.subschema_for::<Span>();
        json_schema!({
            "description": "A span of time from 10ms to 1h; `end`: as long as the phase; `auto`: some 50 of a short load, else 1s.",
            "anyOf": [{ "const": "end" }, { "const": "auto" }, span]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_load_has_some_fifty_intervals_and_a_long_one_those_of_a_second() {
        let auto = |millis| IntervalLength::Auto.resolved(Some(Duration::from_millis(millis))).to_string();
        let found = [0, 100, 2500, 10_000, 60_000, 1 << 40].map(auto);
        assert_eq!(found, ["10ms", "10ms", "50ms", "200ms", "1s", "1s"]);
        assert_eq!(IntervalLength::Auto.resolved(None).to_string(), "1s");
        assert_eq!(IntervalLength::End.resolved(Some(Duration::ZERO)), IntervalLength::End);
    }

    #[test]
    fn what_is_recorded_survives_its_text_and_intervals_have_limits() {
        for (json, is_sensible) in [
            (r#"{ "interval": "1s", "samples": true }"#, true),
            (r#"{ "interval": "10ms" }"#, true),
            (r#"{ "interval": "end" }"#, true),
            (r#"{ "interval": "9ms" }"#, false),
            (r#"{ "interval": "2h" }"#, false),
            (r#"{ "interval": "0" }"#, false),
            (r#"{ "steady": { "window": "5s", "of": "latency" } }"#, true),
            (r#"{ "steady": { "window": "4s" } }"#, false),
            (r#"{ "steady": { "range": "0%" } }"#, false),
            (r#"{ "steady": {}, "interval": "end" }"#, false),
        ] {
            let spec: RecordSpec = serde_json::from_str(json).expect(json);
            let text = serde_json::to_string(&spec).expect("can be written");
            assert_eq!(serde_json::from_str::<RecordSpec>(&text).expect("and read"), spec);
            let mut problems = Problems::default();
            spec.validate(&Path::root(), &mut problems);
            assert_eq!(problems.into_iter().next().is_none(), is_sensible, "{json}");
        }
        for json in [r#"{ "interval": "often" }"#, r#"{ "every": "1s" }"#, r#"{ "samples": 3 }"#] {
            serde_json::from_str::<RecordSpec>(json).expect_err(json);
        }
    }
}
