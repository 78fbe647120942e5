//! Where the requests of a load go, as a trial file says it.

use std::borrow::Cow;

use rotproof_spec::{Bytes, Path, Percent, Problems, WordOrMap, deserialize_word_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::MapAccess;
use serde::{Deserialize, Deserializer, Serialize};

/// The order of the places that a load works on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Each worker goes through its part of the target from front to back, again and again.
    #[default]
    Sequential,
    /// Each request goes to any place of its worker's part, all equally likely.
    Random,
    /// From each place to the one this far behind it; at the end of the part from the second place on, and so forth, so
    /// that each place has its turn.
    Strided {
        /// The distance, a multiple of the block size.
        by: Bytes,
    },
    /// TPC-C's non-uniform random places: `((random(0..=a) | random(0..n)) + c) mod n`. Source: TPC-C 5.11, clause 2.1.6.
    Nurand {
        /// A power of two less one; by default the largest below a quarter of the places.
        #[serde(skip_serializing_if = "Option::is_none")]
        a: Option<u64>,
    },
    /// The place of rank k has a chance in proportion to 1 / k^theta; ranks lie scattered.
    Zipf {
        /// 0 is uniform; 0.99 is what YCSB takes.
        theta: f64,
    },
    /// Self-similar: that share of the places gets the rest of the requests, and so within that share; 20% is the rule of
    /// 80 to 20. Places lie scattered. Source: Gray et al., SIGMOD 1994, section 3.
    Pareto {
        /// Above 0% and up to 50%, which is uniform.
        hot: Percent,
    },
    /// Around the middle of the part.
    Normal {
        /// The standard deviation, as a share of the part.
        deviation: Percent,
    },
    /// Zones one behind the other, each with its share of the requests, uniform within.
    Zoned(Vec<Zone>),
}

/// A zone of a part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// Its share of the requests.
    pub requests: Percent,
    /// Its share of the part.
    pub space: Percent,
}

/// Ranks and exponents beyond this are one place in practice.
const THETA_MAX: f64 = 10.0;

impl Pattern {
    /// In words, for people.
    pub fn describe(&self) -> String {
        match self {
            Self::Sequential => "sequential".into(),
            Self::Random => "random".into(),
            Self::Strided { by } => format!("strided by {by}"),
            Self::Nurand { a: None } => "NURand".into(),
            Self::Nurand { a: Some(a) } => format!("NURand of {a}"),
            Self::Zipf { theta } => format!("Zipf of {theta}"),
            Self::Pareto { hot } => format!("Pareto of {hot}"),
            Self::Normal { deviation } => format!("normal within {deviation}"),
            Self::Zoned(zones) => format!("{} zones", zones.len()),
        }
    }

    /// Reports what makes no sense for requests of `block_size` bytes.
    pub(crate) fn validate(&self, block_size: u64, path: &Path, problems: &mut Problems) {
        match self {
            Self::Sequential | Self::Random | Self::Nurand { a: None } => {}
            Self::Strided { by } => {
                if by.0 == 0 || block_size == 0 || !by.0.is_multiple_of(block_size) {
                    problems.add_with_help(
                        &path.key("strided").key("by"),
                        format!("a stride of {by} does not lead from one request to another"),
                        format!("give a multiple of the block size, {}", Bytes(block_size)),
                    );
                }
            }
            Self::Nurand { a: Some(a) } => {
                if *a == 0 || !(a & (a + 1)).eq(&0) || *a > 1 << 40 {
                    problems.add_with_help(
                        &path.key("nurand").key("a"),
                        format!("{a} is not a power of two less one"),
                        "give for example 255, 1023 or 8191, or leave it out",
                    );
                }
            }
            Self::Zipf { theta } => {
                if !(0.0..=THETA_MAX).contains(theta) {
                    problems.add(
                        &path.key("zipf").key("theta"),
                        format!("theta is {theta}; it can be from 0 to 10"),
                    );
                }
            }
            Self::Pareto { hot } => {
                if !(hot.0 > 0.0 && hot.0 <= 0.5) {
                    problems.add(
                        &path.key("pareto").key("hot"),
                        format!("the hot share is {hot}; it can be above 0% and up to 50%"),
                    );
                }
            }
            Self::Normal { deviation } => {
                if deviation.0 <= 0.0 {
                    problems.add(
                        &path.key("normal").key("deviation"),
                        "a deviation of 0% is one place; give for example 10%",
                    );
                }
            }
            Self::Zoned(zones) => validate_zones(zones, &path.key("zoned"), problems),
        }
    }
}

fn validate_zones(zones: &[Zone], path: &Path, problems: &mut Problems) {
    for (index, zone) in zones.iter().enumerate() {
        if zone.space.0 <= 0.0 {
            problems.add(&path.index(index).key("space"), "a zone without space has no places");
        }
    }
    for (what, sum) in [
        ("requests", zones.iter().map(|zone| zone.requests.0).sum::<f64>()),
        ("space", zones.iter().map(|zone| zone.space.0).sum::<f64>()),
    ] {
        if (sum - 1.0).abs() > 1e-6 {
            problems
                .add(path, format!("the zones share out {} of the {what}; it must be 100%", Percent(sum)));
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StridedKeys {
    by: Bytes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NurandKeys {
    #[serde(default)]
    a: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ZipfKeys {
    theta: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ParetoKeys {
    hot: Percent,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NormalKeys {
    deviation: Percent,
}

impl WordOrMap for Pattern {
    const WORDS: &'static [&'static str] =
        &["sequential", "random", "strided", "nurand", "zipf", "pareto", "normal", "zoned"];
    const EXPECTING: &'static str = "a pattern: sequential, random, nurand, { strided: { by: 1MiB } }, { zipf: { theta: 0.99 } }, \
         { pareto: { hot: 20% } }, { normal: { deviation: 10% } } or { zoned: [...] }";

    fn from_word(word: &str) -> Option<Result<Self, String>> {
        let needs = |example: &str| Some(Err(format!("`{word}` needs more: {example}")));
        match word {
            "sequential" => Some(Ok(Self::Sequential)),
            "random" => Some(Ok(Self::Random)),
            "nurand" => Some(Ok(Self::Nurand { a: None })),
            "strided" => needs("{ strided: { by: 1MiB } }"),
            "zipf" => needs("{ zipf: { theta: 0.99 } }"),
            "pareto" => needs("{ pareto: { hot: 20% } }"),
            "normal" => needs("{ normal: { deviation: 10% } }"),
            "zoned" => needs("{ zoned: [{ requests: 90%, space: 10% }, { requests: 10%, space: 90% }] }"),
            _ => None,
        }
    }

    fn from_map<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Self, A::Error> {
        use serde::de::Error;
        match key {
            "strided" => map.next_value().map(|StridedKeys { by }| Self::Strided { by }),
            "nurand" => map.next_value().map(|NurandKeys { a }| Self::Nurand { a }),
            "zipf" => map.next_value().map(|ZipfKeys { theta }| Self::Zipf { theta }),
            "pareto" => map.next_value().map(|ParetoKeys { hot }| Self::Pareto { hot }),
            "normal" => map.next_value().map(|NormalKeys { deviation }| Self::Normal { deviation }),
            "zoned" => map.next_value().map(Self::Zoned),
            word => Err(A::Error::custom(format!("`{word}` takes no options; write `pattern: {word}`"))),
        }
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_word_or_map(deserializer)
    }
}

impl JsonSchema for Pattern {
    fn schema_name() -> Cow<'static, str> {
        "Pattern".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let percent = generator.subschema_for::<Percent>();
        let bytes = generator.subschema_for::<Bytes>();
        let zone = generator.subschema_for::<Zone>();
        let with = |word: &str, description: &str, key: &str, value: Schema, required: &[&str]| {
            json_schema!({
                "description": description,
                "type": "object",
                "properties": { word: {
                    "type": "object",
                    "properties": { key: value },
                    "required": required,
                    "additionalProperties": false
                } },
                "required": [word],
                "additionalProperties": false
            })
        };
        let integer = json_schema!({ "description": "By default below a quarter of the places.", "type": "integer", "minimum": 1 });
        let theta = json_schema!({ "description": "0 is uniform.", "type": "number", "minimum": 0, "maximum": THETA_MAX });
        json_schema!({
            "description": "Where the requests go.",
            "anyOf": [
                {
                    "description": "sequential: front to back. random: uniform. nurand: TPC-C's hot spot.",
                    "enum": ["sequential", "random", "nurand"]
                },
                with("strided", "So far from each request to the next.", "by", bytes, &["by"]),
                with("nurand", "TPC-C's hot spot; a is a power of two less one.", "a", integer, &[]),
                with("zipf", "Rank k in proportion to 1 / k^theta.", "theta", theta, &["theta"]),
                with("pareto", "That share of the places gets the rest of the requests.", "hot", percent.clone(), &["hot"]),
                with("normal", "Around the middle; the deviation is a share of the part.", "deviation", percent, &["deviation"]),
                {
                    "description": "Zones one behind the other; requests and space each add up to 100%.",
                    "type": "object",
                    "properties": { "zoned": { "type": "array", "items": zone, "minItems": 1 } },
                    "required": ["zoned"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(json: &str) -> Vec<String> {
        let pattern: Pattern = serde_json::from_str(json).expect(json);
        let mut problems = Problems::default();
        pattern.validate(4096, &Path::root().key("pattern"), &mut problems);
        problems.iter().map(|problem| problem.path.to_string()).collect()
    }

    #[test]
    fn every_pattern_reads_and_survives_its_text() {
        for json in [
            r#""sequential""#,
            r#""random""#,
            r#""nurand""#,
            r#"{"nurand":{"a":8191}}"#,
            r#"{"strided":{"by":"1MiB"}}"#,
            r#"{"zipf":{"theta":0.99}}"#,
            r#"{"pareto":{"hot":"20%"}}"#,
            r#"{"normal":{"deviation":"10%"}}"#,
            r#"{"zoned":[{"requests":"90%","space":"10%"},{"requests":"10%","space":"90%"}]}"#,
        ] {
            let pattern: Pattern = serde_json::from_str(json).expect(json);
            assert!(problems_of(json).is_empty(), "{json}");
            let text = serde_json::to_string(&pattern).expect("can be written");
            assert_eq!(serde_json::from_str::<Pattern>(&text).expect("and read"), pattern, "{text}");
        }
    }

    #[test]
    fn senseless_numbers_are_reported_at_their_places() {
        for (json, place) in [
            (r#"{"strided":{"by":1000}}"#, "pattern.strided.by"),
            (r#"{"strided":{"by":0}}"#, "pattern.strided.by"),
            (r#"{"nurand":{"a":1000}}"#, "pattern.nurand.a"),
            (r#"{"nurand":{"a":0}}"#, "pattern.nurand.a"),
            (r#"{"zipf":{"theta":-1}}"#, "pattern.zipf.theta"),
            (r#"{"pareto":{"hot":"60%"}}"#, "pattern.pareto.hot"),
            (r#"{"normal":{"deviation":0}}"#, "pattern.normal.deviation"),
            (r#"{"zoned":[{"requests":1,"space":0.5}]}"#, "pattern.zoned"),
            (r#"{"zoned":[{"requests":1,"space":1},{"requests":0,"space":0}]}"#, "pattern.zoned[1].space"),
        ] {
            assert_eq!(problems_of(json), [place], "{json}");
        }
        for json in [r#""zipf""#, r#""zip""#, r#"{"random":{}}"#, r#"{"zipf":{"theta":1,"x":2}}"#] {
            serde_json::from_str::<Pattern>(json).expect_err(json);
        }
    }
}
