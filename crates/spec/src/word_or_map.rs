//! Values that are written as a word, `once`, or as a word with an argument, `{ every: 3 }`.
//!
//! Serde's own enums refuse the bare word where a variant carries data; many of ours have defaults for theirs, and
//! where an argument is missing the message should show how to give it.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{Error, MapAccess, Visitor};

/// A type with a fixed set of words, each alone or as the key of a map with its argument.
pub trait WordOrMap: Sized {
    /// Every word there is; for messages and for the nearest word.
    const WORDS: &'static [&'static str];
    /// What is expected, with an example.
    const EXPECTING: &'static str;

    /// From the word alone. `None` for a word that does not exist; `Err` says how to write the argument it lacks.
    fn from_word(word: &str) -> Option<Result<Self, String>>;

    /// From a map, whose first key is `key`.
    fn from_map<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Self, A::Error>;
}

/// Deserialises either form.
pub fn deserialize_word_or_map<'de, T: WordOrMap, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    struct Form<T>(PhantomData<T>);

    impl<'de, T: WordOrMap> Visitor<'de> for Form<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::EXPECTING)
        }

        fn visit_str<E: Error>(self, word: &str) -> Result<T, E> {
            match T::from_word(word) {
                Some(value) => value.map_err(E::custom),
                None => Err(E::unknown_variant(word, T::WORDS)),
            }
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
            let Some(key) = map.next_key::<String>()? else {
                return Err(A::Error::custom(format!("an empty map; give {}", T::EXPECTING)));
            };
            if !T::WORDS.contains(&key.as_str()) {
                return Err(A::Error::unknown_variant(&key, T::WORDS));
            }
            let value = T::from_map(&key, &mut map)?;
            match map.next_key::<String>()? {
                None => Ok(value),
                Some(other) => {
                    Err(A::Error::custom(format!("`{other}` beside `{key}`: only one of them can be")))
                }
            }
        }
    }

    deserializer.deserialize_any(Form(PhantomData))
}
