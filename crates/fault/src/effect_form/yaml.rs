//! Effects in YAML and JSON: a word, or a word with its arguments. Built while it is read, so that a mistake is shown at
//! its own place.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Arguments, EXPECTING, NAMES, build, keys_of};
use crate::effect::Effect;

impl Serialize for Effect {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// A number as a number, all else as text.
        struct Value<'a>(&'a str);

        impl Serialize for Value<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match (self.0.parse::<u64>(), self.0) {
                    (Ok(number), _) => serializer.serialize_u64(number),
                    (_, "true") => serializer.serialize_bool(true),
                    (_, text) if text.contains('|') => serializer.collect_seq(text.split('|')),
                    (_, text) => serializer.serialize_str(text),
                }
            }
        }

        struct Keyed<'a>(&'a [(&'static str, String)]);

        impl Serialize for Keyed<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().map(|(key, value)| (key, Value(value))))
            }
        }

        let arguments = self.arguments();
        if arguments.is_empty() {
            return serializer.serialize_str(self.word());
        }
        let mut map = serializer.serialize_map(Some(1))?;
        match arguments.as_slice() {
            [("", value)] => map.serialize_entry(self.word(), &Value(value))?,
            keyed => map.serialize_entry(self.word(), &Keyed(keyed))?,
        }
        map.end()
    }
}

/// A scalar as it was written, or a list of such joined by `|`.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;

        impl<'de> Visitor<'de> for Scalar {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a list of values")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }

            fn visit_bool<E: Error>(self, yes: bool) -> Result<Text, E> {
                Ok(Text(yes.to_string()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Text, A::Error> {
                let mut texts = Vec::new();
                while let Some(Text(text)) = list.next_element()? {
                    texts.push(text);
                }
                Ok(Text(texts.join("|")))
            }
        }

        deserializer.deserialize_any(Scalar)
    }
}

/// What stands behind the word of an effect in YAML. Built here, so that a mistake is shown at its own place.
struct ArgumentsOf<'a> {
    word: &'a str,
    keys: &'static [&'static str],
}

impl<'de> DeserializeSeed<'de> for ArgumentsOf<'_> {
    type Value = Effect;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Effect, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl ArgumentsOf<'_> {
    fn plain<E: Error>(self, text: String) -> Result<Effect, E> {
        build(self.word, &Arguments(vec![(String::new(), text)])).map_err(E::custom)
    }
}

impl<'de> Visitor<'de> for ArgumentsOf<'_> {
    type Value = Effect;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what {} takes", self.word)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Effect, E> {
        self.plain(text.to_owned())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Effect, E> {
        self.plain(number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Effect, E> {
        self.plain(number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Effect, E> {
        self.plain(number.to_string())
    }

    fn visit_unit<E: Error>(self) -> Result<Effect, E> {
        build(self.word, &Arguments::default()).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Effect, A::Error> {
        let mut list = Arguments::default();
        while let Some(key) = map.next_key::<String>()? {
            if !self.keys.contains(&key.as_str()) {
                return Err(match self.keys {
                    [] => A::Error::custom(format!("`{}` takes no argument", self.word)),
                    keys => A::Error::unknown_field(&key, keys),
                });
            }
            let Text(value) = map.next_value()?;
            list.0.push((key, value));
        }
        build(self.word, &list).map_err(A::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Effect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrMap;

        impl<'de> Visitor<'de> for WordOrMap {
            type Value = Effect;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTING)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Effect, E> {
                if text.contains('(') {
                    return text.parse().map_err(E::custom);
                }
                match keys_of(text) {
                    Some(_) => build(text, &Arguments::default()).map_err(E::custom),
                    None => Err(E::unknown_variant(text, &NAMES)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Effect, A::Error> {
                let Some(word) = map.next_key::<String>()? else {
                    return Err(A::Error::custom(format!("an empty map; give {EXPECTING}")));
                };
                let Some(keys) = keys_of(&word) else {
                    return Err(A::Error::unknown_variant(&word, &NAMES));
                };
                let effect = map.next_value_seed(ArgumentsOf { word: &word, keys })?;
                match map.next_key::<String>()? {
                    None => Ok(effect),
                    Some(other) => {
                        Err(A::Error::custom(format!("`{other}` beside `{word}`: only one of them can be")))
                    }
                }
            }
        }

        deserializer.deserialize_any(WordOrMap)
    }
}
