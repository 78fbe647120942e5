//! How effects are written: a word, perhaps with arguments, `torn_write(new=last, sectors=3)` in the short form and
//! `{ torn_write: { new: last, sectors: 3 } }` in YAML. Both are read by the same code.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use rotproof_spec::{Bytes, Span, nearest};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::delay::{Delay, Histogram};
use crate::effect::{Bits, Direction, Draw, Effect, NewPart, Tear};
use crate::errno::Errno;

/// Every word, and the keys that its arguments may have.
const WORDS: [(&str, &[&str]); 17] = [
    ("bit_flip", &["byte", "bit", "mask", "burst", "random", "draw"]),
    ("zeros", &[]),
    ("ones", &[]),
    ("noise", &["draw"]),
    ("lost_write", &[]),
    ("misdirected_write", &["by", "to", "draw"]),
    ("stale_read", &[]),
    ("torn_write", &["new", "sectors", "draw"]),
    ("shorn_write", &["sectors", "draw"]),
    ("medium_error", &[]),
    ("error", &["errno", "after"]),
    ("no_space", &[]),
    ("read_only", &[]),
    ("gone", &[]),
    ("delay", &["uniform", "normal", "exponential", "histogram"]),
    ("bandwidth", &[]),
    ("hang", &[]),
];

/// The words alone, for messages.
pub(crate) const NAMES: [&str; WORDS.len()] = {
    let mut names = [""; WORDS.len()];
    let mut index = 0;
    while index < WORDS.len() {
        names[index] = WORDS[index].0;
        index += 1;
    }
    names
};

const EXPECTING: &str = "an effect such as bit_flip, { bit_flip: { byte: 0, bit: 0 } }, zeros, lost_write, error or \
                         { delay: 10ms }";

/// The keys that the arguments of `word` may have; `None` if there is no such effect.
pub(crate) fn keys_of(word: &str) -> Option<&'static [&'static str]> {
    WORDS.iter().find(|(known, _)| *known == word).map(|(_, keys)| *keys)
}

/// Arguments in the order in which they were given; the key of one without is empty.
#[derive(Debug, Default)]
struct Arguments(Vec<(String, String)>);

impl Arguments {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn number<T: FromStr>(&self, key: &str) -> Result<Option<T>, String> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let number = text.trim().parse().map_err(|_| {
            format!("`{key}` needs a whole number that is not negative and not too large, not `{text}`")
        })?;
        Ok(Some(number))
    }

    fn draw(&self) -> Result<Draw, String> {
        self.number("draw").map(Draw)
    }

    /// The one argument without a key.
    fn plain(&self, word: &str, example: &str) -> Result<&str, String> {
        match self.0.as_slice() {
            [(key, value)] if key.is_empty() => Ok(value),
            _ => Err(format!("`{word}` needs {example}")),
        }
    }
}

/// Two values of a list `5ms|15ms`.
fn pair<'a>(key: &str, text: &'a str, example: &str) -> Result<(&'a str, &'a str), String> {
    match text.split_once('|') {
        Some((one, other)) if !other.contains('|') => Ok((one.trim(), other.trim())),
        _ => Err(format!("`{key}` needs two spans of time: {example}")),
    }
}

/// The effect that a word with arguments means. The keys have been checked.
fn build(word: &str, arguments: &Arguments) -> Result<Effect, String> {
    let effect = match word {
        "bit_flip" => return bits(arguments).map(Effect::BitFlip),
        "noise" => return arguments.draw().map(Effect::Noise),
        "misdirected_write" => return direction(arguments).map(Effect::MisdirectedWrite),
        "torn_write" | "shorn_write" => return tear(word, arguments).map(Effect::TornWrite),
        "error" => return error(arguments),
        "delay" => return delay(arguments).map(Effect::Delay),
        "bandwidth" => {
            let text = arguments.plain(word, "bytes a second: { bandwidth: 10MiB }, bandwidth(10MiB)")?;
            return text.trim().trim_end_matches("/s").parse().map(Effect::Bandwidth);
        }
        "hang" if arguments.0.is_empty() => Effect::Hang(None),
        "hang" => {
            let example =
                "a span of time: { hang: 30s }, hang(30s); or nothing, to hang until it is released";
            let text = arguments.plain(word, example)?;
            return text.parse().map(|span| Effect::Hang(Some(span)));
        }
        "zeros" => Effect::Zeros,
        "ones" => Effect::Ones,
        "lost_write" => Effect::LostWrite,
        "stale_read" => Effect::StaleRead,
        "medium_error" => Effect::MediumError,
        "no_space" => Effect::Error { errno: Errno::ENOSPC, after: false },
        "read_only" => Effect::ReadOnly,
        "gone" => Effect::Gone,
        _ => return Err(unknown(word)),
    };
    if arguments.0.is_empty() { Ok(effect) } else { Err(format!("`{word}` takes no argument")) }
}

fn unknown(word: &str) -> String {
    match nearest(word, NAMES) {
        Some(meant) => format!("unknown effect `{word}`; did you mean `{meant}`?"),
        None => format!("unknown effect `{word}`; known are {}", NAMES.join(", ")),
    }
}

fn bits(arguments: &Arguments) -> Result<Bits, String> {
    if let [(key, value)] = arguments.0.as_slice()
        && key.is_empty()
    {
        return if value == "random" {
            Ok(Bits::Random { count: 1, draw: Draw::default() })
        } else {
            Err(format!("`{value}` is no bit; write {{ byte: 0, bit: 0 }} or random"))
        };
    }
    let (byte, bit) = (arguments.number::<u32>("byte")?, arguments.number::<u8>("bit")?);
    let (mask, burst) = (arguments.number::<u8>("mask")?, arguments.number::<u32>("burst")?);
    let random = arguments.number::<u32>("random")?;
    let at = |byte: Option<u32>| byte.unwrap_or(0);
    match (mask, burst, random) {
        (None, None, None) => Ok(Bits::At { byte: at(byte), bit: bit.unwrap_or(0) }),
        (Some(mask), None, None) if bit.is_none() => Ok(Bits::Mask { byte: at(byte), mask }),
        (None, Some(count), None) if byte.is_some() || bit.is_some() => {
            Ok(Bits::Burst { byte: at(byte), bit: bit.unwrap_or(0), count })
        }
        (None, Some(count), None) => Ok(Bits::RandomBurst { count, draw: arguments.draw()? }),
        (None, None, Some(count)) if byte.is_none() && bit.is_none() => {
            Ok(Bits::Random { count, draw: arguments.draw()? })
        }
        _ => Err("these do not go together; give byte and bit, byte and mask, burst (with or without a place), or \
                  random"
            .to_owned()),
    }
}

fn direction(arguments: &Arguments) -> Result<Direction, String> {
    match (arguments.get("by"), arguments.get("to")) {
        (None, None) if arguments.get("").is_none() => arguments.draw().map(Direction::Anywhere),
        (Some(by), None) => by.parse().map(Direction::By),
        (None, Some(to)) => to.parse().map(Direction::To),
        _ => Err("say how far, `by: 1MiB`, or where, `to: 8MiB`, or neither".to_owned()),
    }
}

fn tear(word: &str, arguments: &Arguments) -> Result<Tear, String> {
    let new = match (word, arguments.get("new").or(arguments.get(""))) {
        ("shorn_write", None) => NewPart::Shorn,
        (_, None | Some("first")) if word != "shorn_write" => NewPart::First,
        (_, Some("last")) if word != "shorn_write" => NewPart::Last,
        (_, Some("scattered")) if word != "shorn_write" => NewPart::Scattered,
        (_, other) => {
            return Err(format!(
                "`{}` is no part of a block; a torn write has stored the first, the last, or scattered sectors",
                other.unwrap_or_default()
            ));
        }
    };
    Ok(Tear { new, sectors: arguments.number("sectors")?, draw: arguments.draw()? })
}

fn error(arguments: &Arguments) -> Result<Effect, String> {
    let (mut errno, mut after) = (Errno::EIO, false);
    for (key, value) in &arguments.0 {
        match (key.as_str(), value.as_str()) {
            ("after", "true") | ("", "after") => after = true,
            ("after", "false") => after = false,
            ("after", other) => return Err(format!("`after` is true or false, not `{other}`")),
            (_, name) => errno = name.parse()?,
        }
    }
    Ok(Effect::Error { errno, after })
}

fn delay(arguments: &Arguments) -> Result<Delay, String> {
    let [(key, value)] = arguments.0.as_slice() else {
        return Err("`delay` needs a span of time: { delay: 10ms }, delay(10ms)".to_owned());
    };
    match key.as_str() {
        "uniform" => {
            let (from, to) = pair(key, value, "uniform: [5ms, 15ms]")?;
            Ok(Delay::Uniform(from.parse()?, to.parse()?))
        }
        "normal" => {
            let (mean, deviation) = pair(key, value, "normal: [10ms, 2ms], the mean and the deviation")?;
            Ok(Delay::Normal(mean.parse()?, deviation.parse()?))
        }
        "exponential" => value.parse().map(Delay::Exponential),
        "histogram" => {
            let bar = |text: &str| -> Result<(Span, u32), String> {
                let (span, weight) = text.split_once('*').unwrap_or((text, "1"));
                let weight = weight.trim().parse().map_err(|_| format!("`{weight}` is no weight"))?;
                Ok((span.trim().parse()?, weight))
            };
            let bars: Vec<(Span, u32)> = value.split('|').map(bar).collect::<Result<_, _>>()?;
            Histogram::new(&bars).map(Delay::Histogram)
        }
        _ => value.parse().map(Delay::Constant),
    }
}

impl Effect {
    /// The word it is written with.
    pub fn word(self) -> &'static str {
        match self {
            Self::BitFlip(_) => "bit_flip",
            Self::Zeros => "zeros",
            Self::Ones => "ones",
            Self::Noise(_) => "noise",
            Self::LostWrite => "lost_write",
            Self::MisdirectedWrite(_) => "misdirected_write",
            Self::StaleRead => "stale_read",
            Self::TornWrite(Tear { new: NewPart::Shorn, .. }) => "shorn_write",
            Self::TornWrite(_) => "torn_write",
            Self::MediumError => "medium_error",
            Self::Error { .. } => "error",
            Self::ReadOnly => "read_only",
            Self::Gone => "gone",
            Self::Delay(_) => "delay",
            Self::Bandwidth(_) => "bandwidth",
            Self::Hang(_) => "hang",
        }
    }

    /// Its arguments, without those that are the default.
    fn arguments(self) -> Vec<(&'static str, String)> {
        let mut list: Vec<(&'static str, String)> = Vec::new();
        let mut push = |key, value: &dyn fmt::Display| list.push((key, value.to_string()));
        match self {
            Self::BitFlip(bits) => match bits {
                Bits::At { byte, bit } => {
                    push("byte", &byte);
                    push("bit", &bit);
                }
                Bits::Mask { byte, mask } => {
                    push("byte", &byte);
                    push("mask", &mask);
                }
                Bits::Burst { byte, bit, count } => {
                    push("byte", &byte);
                    push("bit", &bit);
                    push("burst", &count);
                }
                Bits::Random { count: 1, draw: Draw(None) } => push("", &"random"),
                Bits::Random { count, draw } => {
                    push("random", &count);
                    draw.0.iter().for_each(|draw| push("draw", draw));
                }
                Bits::RandomBurst { count, draw } => {
                    push("burst", &count);
                    draw.0.iter().for_each(|draw| push("draw", draw));
                }
            },
            Self::Noise(draw) | Self::MisdirectedWrite(Direction::Anywhere(draw)) => {
                draw.0.iter().for_each(|draw| push("draw", draw));
            }
            Self::MisdirectedWrite(Direction::By(by)) => push("by", &by),
            Self::MisdirectedWrite(Direction::To(to)) => push("to", &to),
            Self::TornWrite(Tear { new, sectors, draw }) => {
                if !matches!(new, NewPart::First | NewPart::Shorn) {
                    push("new", &new);
                }
                sectors.iter().for_each(|sectors| push("sectors", sectors));
                draw.0.iter().for_each(|draw| push("draw", draw));
            }
            Self::Error { errno, after } => {
                if errno != Errno::EIO {
                    push(if after { "errno" } else { "" }, &errno);
                }
                if after {
                    push("after", &true);
                }
            }
            Self::Delay(delay) => match delay {
                Delay::Constant(span) => push("", &span),
                Delay::Uniform(from, to) => push("uniform", &format_args!("{from}|{to}")),
                Delay::Normal(mean, deviation) => push("normal", &format_args!("{mean}|{deviation}")),
                Delay::Exponential(mean) => push("exponential", &mean),
                Delay::Histogram(histogram) => push("histogram", &histogram),
            },
            Self::Bandwidth(Bytes(rate)) => push("", &Bytes(rate)),
            Self::Hang(span) => span.iter().for_each(|span| push("", span)),
            Self::Zeros
            | Self::Ones
            | Self::LostWrite
            | Self::StaleRead
            | Self::MediumError
            | Self::ReadOnly
            | Self::Gone => {}
        }
        list
    }
}

impl fmt::Display for Effect {
    /// As in the short form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        let arguments: Vec<String> = self
            .arguments()
            .into_iter()
            .map(|(key, value)| if key.is_empty() { value } else { format!("{key}={value}") })
            .collect();
        if arguments.is_empty() { Ok(()) } else { write!(f, "({})", arguments.join(", ")) }
    }
}

/// From the short form: the word, and what stood between the parentheses, split at its commas.
pub(crate) fn effect_of(word: &str, arguments: &[&str]) -> Result<Effect, String> {
    let Some(keys) = keys_of(word) else { return Err(unknown(word)) };
    let mut list = Arguments::default();
    for argument in arguments {
        let (key, value) = match argument.split_once('=') {
            Some((key, value)) => (key.trim(), value.trim()),
            None => ("", argument.trim()),
        };
        if !key.is_empty() && !keys.contains(&key) {
            return Err(match nearest(key, keys.iter().copied()) {
                Some(meant) => format!("unknown argument of {word} `{key}`; did you mean `{meant}`?"),
                None if keys.is_empty() => format!("`{word}` takes no argument"),
                None => format!("unknown argument of {word} `{key}`; known are {}", keys.join(", ")),
            });
        }
        if !key.is_empty() && list.get(key).is_some() {
            return Err(format!("`{key}` is given twice"));
        }
        list.0.push((key.to_owned(), value.to_owned()));
    }
    build(word, &list)
}

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

impl JsonSchema for Effect {
    fn schema_name() -> Cow<'static, str> {
        "Effect".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (span, bytes) = (generator.subschema_for::<Span>(), generator.subschema_for::<Bytes>());
        let draw = json_schema!({ "description": "What chance decided, as a ledger tells it.", "type": "integer", "minimum": 0 });
        let with = |word: &str, description: &str, value: Schema| {
            json_schema!({
                "description": description,
                "type": "object",
                "properties": { word: value },
                "required": [word],
                "additionalProperties": false
            })
        };
        let spans = json_schema!({ "type": "array", "items": span.clone(), "minItems": 2, "maxItems": 2 });
        let bits = json_schema!({
            "anyOf": [
                { "description": "One that follows from the seed.", "const": "random" },
                {
                    "type": "object",
                    "properties": {
                        "byte": { "description": "Byte of the block, from 0. Default 0.", "type": "integer", "minimum": 0, "maximum": crate::BLOCK_BYTES - 1 },
                        "bit": { "description": "Bit of the byte, 0 is the lowest. Default 0.", "type": "integer", "minimum": 0, "maximum": 7 },
                        "mask": { "description": "Bits of the byte, instead of one.", "type": "integer", "minimum": 1, "maximum": 255 },
                        "burst": { "description": "So many bits in a row, from byte and bit on; without them where chance says.", "type": "integer", "minimum": 1 },
                        "random": { "description": "So many bits, each where chance says.", "type": "integer", "minimum": 1 },
                        "draw": draw.clone()
                    },
                    "additionalProperties": false
                }
            ]
        });
        // Those that need an argument are not words alone.
        let alone: Vec<&str> =
            NAMES.into_iter().filter(|name| build(name, &Arguments::default()).is_ok()).collect();
        let sectors = json_schema!({ "description": "How many sectors of 512 bytes are stored. Default: chance.", "type": "integer", "minimum": 1, "maximum": 7 });
        json_schema!({
            "description": "What a hit does.",
            "anyOf": [
                {
                    "description": "bit_flip: the lowest bit of byte 0 of the block flips. zeros, ones, noise: the block is that. lost_write: acknowledged, but the old data stays. misdirected_write: lands on another block. stale_read: brings what was there before the last write. torn_write: some sectors are stored. shorn_write: the first 3 or 7 eighths are stored. medium_error: the block cannot be transferred. error: the whole request fails (EIO). no_space: ENOSPC. read_only, gone: from now on. hang: the request does not come back until it is released.",
                    "enum": alone
                },
                {
                    "description": "The short form, arguments in parentheses: torn_write(new=last).",
                    "type": "string",
                    "pattern": r"^[a-z_]+\(.*\)$"
                },
                with("bit_flip", "Bits of the block flip.", bits),
                with("noise", "The block is noise.", json_schema!({ "type": "object", "properties": { "draw": draw.clone() }, "additionalProperties": false })),
                with("misdirected_write", "A write lands on another block; the right one keeps the old data.", json_schema!({
                    "type": "object",
                    "properties": { "by": bytes.clone(), "to": bytes.clone(), "draw": draw.clone() },
                    "additionalProperties": false
                })),
                with("torn_write", "Only some sectors of the block are stored.", json_schema!({
                    "anyOf": [
                        { "enum": ["first", "last", "scattered"] },
                        {
                            "type": "object",
                            "properties": { "new": { "description": "Which sectors are stored. Default first.", "enum": ["first", "last", "scattered"] }, "sectors": sectors.clone(), "draw": draw.clone() },
                            "additionalProperties": false
                        }
                    ]
                })),
                with("shorn_write", "Only the first eighths of the block are stored.", json_schema!({
                    "type": "object",
                    "properties": { "sectors": sectors, "draw": draw },
                    "additionalProperties": false
                })),
                with("error", "The whole request fails with this error.", json_schema!({
                    "anyOf": [
                        { "enum": Errno::NAMES },
                        {
                            "type": "object",
                            "properties": {
                                "errno": { "description": "The error. Default EIO.", "enum": Errno::NAMES },
                                "after": { "description": "Only after it took effect.", "type": "boolean" }
                            },
                            "additionalProperties": false
                        }
                    ]
                })),
                with("delay", "The whole request takes longer.", json_schema!({
                    "anyOf": [
                        span.clone(),
                        with("uniform", "Any span between the two.", spans.clone()),
                        with("normal", "A normal distribution: mean and deviation.", spans),
                        with("exponential", "An exponential distribution with this mean.", span.clone()),
                        with("histogram", "Spans with their weights: [\"1ms*90\", \"50ms*10\"].", json_schema!({ "type": "array", "items": { "type": "string" }, "minItems": 1 }))
                    ]
                })),
                with("bandwidth", "Requests take as long as if no more than that many bytes a second could pass.", bytes),
                with("hang", "The request does not come back until then, or until it is released or the rule is removed or paused.", span)
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_rules::any_effect;

    fn json(text: &str) -> Effect {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn defaults_are_filled_in() {
        assert_eq!(json("\"bit_flip\""), Effect::BitFlip(Bits::At { byte: 0, bit: 0 }));
        assert_eq!(json("{\"bit_flip\": {\"bit\": 2}}"), Effect::BitFlip(Bits::At { byte: 0, bit: 2 }));
        assert_eq!(json("\"error\""), Effect::ERROR);
        assert_eq!(json("\"no_space\""), json("{\"error\": \"ENOSPC\"}"));
        assert_eq!(json("\"torn_write(last)\""), json("{\"torn_write\": {\"new\": \"last\"}}"));
        assert_eq!(
            json("{\"delay\": {\"uniform\": [\"1ms\", \"3ms\"]}}"),
            json("\"delay(uniform=1ms|3ms)\"")
        );
        assert_eq!(json("{\"error\": {\"errno\": \"EIO\", \"after\": true}}"), json("\"error(EIO, after)\""));
    }

    #[test]
    fn what_is_missing_or_too_much_is_explained() {
        let complaint = |text| serde_json::from_str::<Effect>(text).expect_err(text).to_string();
        assert!(complaint("\"delay\"").contains("{ delay: 10ms }"));
        assert!(complaint("{\"zeros\": 1}").contains("takes no argument"));
        assert!(complaint("\"bitflip\"").contains("unknown variant"));
        assert!(complaint("{\"bit_flip\": {\"bye\": 1}}").contains("unknown field"));
        assert!(complaint("{\"delay\": 10}").contains("span of time"));
        assert!(complaint("3").contains("an effect"));
        assert!(complaint("{\"error\": \"ENOSPCE\"}").contains("did you mean `ENOSPC`"));
        assert!(complaint("{\"bit_flip\": {\"mask\": 3, \"random\": 2}}").contains("go together"));
        assert!(complaint("{\"torn_write\": \"middle\"}").contains("no part"));
        assert!(complaint("{\"delay\": {\"uniform\": \"1ms\"}}").contains("two spans"));
        assert!(complaint("{\"zeros\": {\"draw\": 1}}").contains("takes no argument"));
        assert!(complaint("{\"zeros\": null, \"ones\": null}").contains("only one"));
    }

    proptest::proptest! {
        #[test]
        fn an_effect_survives_json_and_the_short_form(effect in any_effect()) {
            let text = serde_json::to_string(&effect).expect("plain data");
            proptest::prop_assert_eq!(serde_json::from_str::<Effect>(&text).expect(&text), effect);
            proptest::prop_assert_eq!(effect.to_string().parse(), Ok(effect), "{}", effect);
        }
    }
}
