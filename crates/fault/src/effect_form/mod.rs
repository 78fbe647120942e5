//! How effects are written: a word, perhaps with arguments, `torn_write(new=last, sectors=3)` in the short form and
//! `{ torn_write: { new: last, sectors: 3 } }` in YAML. Both are read by the same code.

mod schema;
mod yaml;

use std::fmt;
use std::str::FromStr;

use rotproof_spec::{Bytes, Span, nearest};

use crate::delay::{Delay, Histogram};
use crate::effect::{Bits, Direction, Draw, Effect, NewPart, Tear};
use crate::errno::Errno;
use crate::power_cut::{Keeps, PowerCut};

/// Every word, and the keys that its arguments may have.
const WORDS: [(&str, &[&str]); 18] = [
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
    ("power_cut", &["keeps", "everywhere", "draw"]),
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
        "power_cut" => return power_cut(arguments),
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

fn power_cut(arguments: &Arguments) -> Result<Effect, String> {
    let mut cut = PowerCut { draw: arguments.draw()?, ..PowerCut::default() };
    for (key, value) in &arguments.0 {
        match (key.as_str(), value.as_str()) {
            ("draw", _) => {}
            ("everywhere", "true") | ("", "everywhere") => cut.everywhere = true,
            ("everywhere", "false") => cut.everywhere = false,
            ("everywhere", other) => return Err(format!("`everywhere` is true or false, not `{other}`")),
            (_, keeps) => cut.keeps = keeps.parse()?,
        }
    }
    Ok(Effect::PowerCut(cut))
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
            Self::PowerCut(_) => "power_cut",
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
            Self::PowerCut(PowerCut { keeps, everywhere, draw }) => {
                if keeps != Keeps::Part {
                    push("keeps", &keeps);
                }
                if everywhere {
                    push("everywhere", &true);
                }
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
