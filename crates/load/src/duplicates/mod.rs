//! What a trial file says of the contents that repeat: a share, a built-in profile, or a distribution.

mod distribution;
mod profiles;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_spec::{Percent, nearest};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use distribution::Distribution;
pub use profiles::Profile;

/// Which contents of a load repeat.
#[derive(Clone, Debug, PartialEq)]
pub enum Duplicates {
    /// So much of what is written repeats what the same worker wrote before; some contents often, most never.
    Share(Percent),
    /// As in a known data set.
    Profile(Profile),
    /// As in this distribution.
    Distribution(Distribution),
    /// As in the distribution of this file, which has not been read yet.
    File(PathBuf),
}

impl Default for Duplicates {
    fn default() -> Self {
        Self::Share(Percent(0.0))
    }
}

/// Largest distribution file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Of a plain share, the contents that repeat: of each, as many blocks.
const REPEATED: [u64; 8] = [1, 3, 7, 15, 31, 63, 127, 255];

/// Contents with so many duplicates stand for those that never end.
const ENDLESS: u64 = 1 << 40;

impl Duplicates {
    /// Whether nothing ever repeats.
    pub fn is_none(&self) -> bool {
        match self {
            Self::Share(share) => share.0 <= 0.0,
            Self::Distribution(distribution) => distribution.most() == 0,
            Self::Profile(_) | Self::File(_) => false,
        }
    }

    /// Reads the distribution of a file, looked for in `folder`; anything else stays as it is.
    pub fn read_file(&mut self, folder: &Path) -> Result<()> {
        let Self::File(file) = self else { return Ok(()) };
        *self = Self::Distribution(read_distribution(&folder.join(file))?);
        Ok(())
    }

    /// The distribution; one that is still in a file is none.
    pub fn distribution(&self) -> Result<Distribution> {
        match self {
            Self::Share(share) => Ok(of_share(share.0)),
            Self::Profile(profile) => Ok(profile.distribution()),
            Self::Distribution(distribution) => Ok(distribution.clone()),
            Self::File(file) => read_distribution(file),
        }
    }
}

/// Reads a distribution from a file.
pub fn read_distribution(path: &Path) -> Result<Distribution> {
    let doing = || format!("reading the distribution {}", path.display());
    let size = std::fs::metadata(path).doing(doing)?.len();
    if size > FILE_BYTES_MAX {
        let message = format!("{}: larger than any distribution", path.display());
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    let text = std::fs::read_to_string(path).doing(doing)?;
    text.parse().map_err(|why| Error::new(ErrorKind::Invalid, format!("{}: {why}", path.display())))
}

/// Contents of which so much can be saved: unique ones, and those of [`REPEATED`] with as many blocks for each.
fn of_share(share: f64) -> Distribution {
    if share <= 0.0 {
        return Distribution::from_pairs([(0, 1)]);
    }
    let saved = |times: u64| -> f64 {
        let each = REPEATED.map(|duplicates| (duplicates * times) as f64 / (duplicates * times + 1) as f64);
        each.iter().sum::<f64>() / REPEATED.len() as f64
    };
    // Where the usual ones do not save enough, they repeat more often.
    let Some(times) = (0..30).map(|power| 1u64 << power).find(|&times| saved(times) * 0.95 >= share) else {
        return if share >= 1.0 {
            Distribution::from_pairs([(ENDLESS, 1)])
        } else {
            Distribution::from_pairs([((share / (1.0 - share)).round() as u64, 1)])
        };
    };
    // Blocks in all, large enough for whole contents.
    const BLOCKS: f64 = (1u64 << 36) as f64;
    let repeating = BLOCKS * share / saved(times);
    let each = repeating / REPEATED.len() as f64;
    let mut distribution = Distribution::from_pairs([(0, (BLOCKS - repeating).round() as u64)]);
    for duplicates in REPEATED.map(|duplicates| duplicates * times) {
        distribution.add(duplicates, (each / (duplicates + 1) as f64).round() as u64);
    }
    distribution
}

impl fmt::Display for Duplicates {
    /// As people say it: `30% duplicates`, `duplicates as in kernels (61%)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "{share} duplicates"),
            Self::Profile(profile) => {
                let savable = profile.distribution().savable() * 100.0;
                write!(f, "duplicates as in {} ({savable:.1}%)", profile.word())
            }
            Self::Distribution(distribution) => {
                write!(f, "{:.1}% duplicates by a distribution", distribution.savable() * 100.0)
            }
            Self::File(file) => write!(f, "duplicates as in {}", file.display()),
        }
    }
}

impl Serialize for Duplicates {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Share(share) => share.serialize(serializer),
            Self::Profile(profile) => serializer.serialize_str(profile.word()),
            Self::Distribution(distribution) => {
                let lines: Vec<String> = distribution
                    .lines()
                    .map(|(duplicates, contents)| format!("{duplicates} {contents}"))
                    .collect();
                serializer.collect_map([("distribution", lines)])
            }
            Self::File(file) => serializer.collect_map([("file", file)]),
        }
    }
}

impl<'de> Deserialize<'de> for Duplicates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = Duplicates;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a share such as 30%, a profile such as kernels, or { file: data.dist }")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Duplicates, E> {
                let text = text.trim();
                if let Some(profile) = Profile::from_word(text) {
                    return Ok(Duplicates::Profile(profile));
                }
                if text.starts_with(|first: char| first.is_ascii_alphabetic()) {
                    let meant = nearest(text, Profile::WORDS)
                        .map(|word| format!("; did you mean {word}?"))
                        .unwrap_or_else(|| format!("; known are {}", Profile::WORDS.join(", ")));
                    return Err(E::custom(format!("`{text}` is no profile of duplicates{meant}")));
                }
                text.parse().map(Duplicates::Share).map_err(E::custom)
            }

            fn visit_f64<E: serde::de::Error>(self, share: f64) -> std::result::Result<Duplicates, E> {
                self.visit_str(&share.to_string())
            }

            fn visit_u64<E: serde::de::Error>(self, share: u64) -> std::result::Result<Duplicates, E> {
                self.visit_str(&share.to_string())
            }

            fn visit_i64<E: serde::de::Error>(self, share: i64) -> std::result::Result<Duplicates, E> {
                self.visit_str(&share.to_string())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Duplicates, A::Error> {
                const KEYS: &[&str] = &["file", "distribution"];
                use serde::de::Error as _;
                let Some(key) = map.next_key::<String>()? else {
                    return Err(A::Error::custom("no duplicates; give a file or a distribution"));
                };
                let found = match key.as_str() {
                    "file" => Duplicates::File(map.next_value()?),
                    "distribution" => {
                        let lines: Vec<String> = map.next_value()?;
                        Duplicates::Distribution(lines.join("\n").parse().map_err(A::Error::custom)?)
                    }
                    other => return Err(A::Error::unknown_field(other, KEYS)),
                };
                match map.next_key::<String>()? {
                    None => Ok(found),
                    Some(other) => {
                        Err(A::Error::custom(format!("`{other}` beside `{key}`; give one of them")))
                    }
                }
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for Duplicates {
    fn schema_name() -> Cow<'static, str> {
        "Duplicates".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let share = generator.subschema_for::<Percent>();
        json_schema!({
            "description": "Which contents of a load repeat.",
            "anyOf": [
                share,
                { "description": "As in a known data set.", "enum": Profile::WORDS },
                {
                    "description": "As in a distribution.",
                    "type": "object",
                    "properties": {
                        "file": {
                            "description": "A file of lines `<duplicates> <contents>`, beside the trial file, as `rotproof content scan` writes it.",
                            "type": "string"
                        },
                        "distribution": {
                            "description": "The lines of such a file.",
                            "type": "array",
                            "items": { "type": "string" },
                            "minItems": 1
                        }
                    },
                    "additionalProperties": false,
                    "minProperties": 1,
                    "maxProperties": 1
                }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Duplicates {
        serde_json::from_str(json).unwrap_or_else(|why| panic!("{json}: {why}"))
    }

    #[test]
    fn every_form_reads_and_survives_its_text() {
        for (json, wanted) in [
            ("\"30%\"", Duplicates::Share(Percent(0.3))),
            ("0.3", Duplicates::Share(Percent(0.3))),
            ("0", Duplicates::Share(Percent(0.0))),
            ("\"kernels\"", Duplicates::Profile(Profile::Kernels)),
            ("{\"file\": \"x.dist\"}", Duplicates::File("x.dist".into())),
            (
                "{\"distribution\": [\"0 10\", \"1 5\"]}",
                Duplicates::Distribution(Distribution::from_pairs([(0, 10), (1, 5)])),
            ),
        ] {
            let found = read(json);
            assert_eq!(found, wanted, "{json}");
            let text = serde_json::to_string(&found).expect("plain data");
            assert_eq!(read(&text), found, "{text}");
        }
        assert!(read("0").is_none() && !read("\"archival\"").is_none());
        assert!(read("{\"distribution\": [\"0 10\"]}").is_none());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_does() {
        for (json, part) in [
            ("\"kernel\"", "did you mean kernels"),
            ("\"qqqqqq\"", "known are kernels"),
            ("\"130%\"", "not between"),
            ("{\"fiel\": 3}", "unknown field `fiel`"),
            ("{}", "give a file or a distribution"),
            ("{\"distribution\": [\"x\"]}", "line 1"),
            ("{\"file\": \"a\", \"distribution\": [\"0 1\"]}", "beside `file`"),
        ] {
            let error = serde_json::from_str::<Duplicates>(json).expect_err(json).to_string();
            assert!(error.contains(part), "{json}: {error}");
        }
    }

    #[test]
    fn a_plain_share_is_what_can_be_saved() {
        for share in [0.001, 0.05, 0.3, 0.5, 0.8, 0.9, 0.99, 0.999_9] {
            let distribution = of_share(share);
            assert!((distribution.savable() - share).abs() < 1e-4, "{share}: {}", distribution.savable());
        }
        assert!(of_share(1.0).savable() > 0.999_999 && of_share(0.0).savable() == 0.0);
    }

    #[test]
    fn a_file_is_read_beside_the_trial_and_refused_with_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("good.dist"), "0 3\n1 1\n").expect("written");
        std::fs::write(folder.path().join("bad.dist"), "0\n").expect("written");
        let mut good = Duplicates::File("good.dist".into());
        good.read_file(folder.path()).expect("a distribution");
        assert_eq!(good, Duplicates::Distribution(Distribution::from_pairs([(0, 3), (1, 1)])));
        for (file, part) in [("bad.dist", "bad.dist: line 1"), ("none.dist", "none.dist")] {
            let error = Duplicates::File(file.into()).read_file(folder.path()).expect_err(file);
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
