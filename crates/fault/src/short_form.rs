//! The short form of a rule, for the command line and for lists that want one line per rule:
//!
//! ```text
//! rule       = [ condition { "," condition } ":" ] effect
//! condition  = "read" | "write" | "flush" | "discard" | "any"
//!            | "offset=" range { "|" range }  | "content=" hash { "|" hash }
//!            | "target=" target
//!            | "all" | "until_removed" | "once" | "after=" n | "nth=" n | "matches=" n ".." n
//!            | "every=" n [ "+" offset ] | "burst=" n "/" n [ "+" offset ]
//!            | "probability=" chance [ "/block" | "/request" ] | "at=" span [ "+" span ]
//!            | "transient" | "sticky" | "until_rewritten" [ "=" spares ]
//!            | "tag=" text { "|" text }
//!            | "origin=" ( "host" | "rebuild" | "scrub" ) { "|" ... }
//!            | "kind=" kind { "|" kind } | "address=" range { "|" range } | "places=" n | "copies=" ( "one" | "all" )
//!            | "process=" text { "|" text }
//!            | "during=" phase { "|" phase }  | "name=" text | "on=" text
//! target     = "most_duplicated" [ "(" n ")" ] | "unique" [ "(" n ")" ]
//!            | "file(" text "," "block=" n [ "," "by=" ( "content" | "extent" ) ] ")"
//!            | "last_block_of_every(" size ")"
//!            | "seen(" block { "," ( "after=" n | "at=" span | "by=" word | "apart" ) } ")"
//! block      = "most_duplicated" | "unique" | "last_written" | "next_written"
//! effect     = word [ "(" argument { "," argument } ")" ]
//! argument   = value | key "=" value { "|" value }
//! text       = letters, digits and . _ - /, or anything in double quotes with \" and \\
//! ```
//!
//! What `Display` prints reads back as the same rule. No text makes the parser panic.

use std::fmt;
use std::str::FromStr;

use rotproof_spec::nearest;

use crate::at_mark::AtMark;
use crate::effect::Effect;
use crate::effect_form::{NAMES, effect_of};
use crate::matching::{Match, OperationMatch};
use crate::one_or_many::OneOrMany;
use crate::rule::{EnabledPhase, Persistence, Rule};
use crate::schedule::{Cycle, Per, Schedule};
use crate::seen::Seen;
use crate::short_text::{Quoted, in_quotes, quoted, split_outside};
use crate::target::{KindCopies, Target};

/// Words that stand alone before the colon, and keys that take a value.
pub(crate) const CONDITIONS: [&str; 33] = [
    "read",
    "write",
    "flush",
    "discard",
    "any",
    "offset",
    "content",
    "target",
    "all",
    "until_removed",
    "once",
    "after",
    "every",
    "nth",
    "byte",
    "mark",
    "burst",
    "matches",
    "probability",
    "at",
    "transient",
    "sticky",
    "until_rewritten",
    "during",
    "name",
    "on",
    "tag",
    "origin",
    "kind",
    "address",
    "places",
    "copies",
    "process",
];

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = split_outside(text, ':')?;
        let (conditions, effect) = match parts.as_slice() {
            [effect] => ("", *effect),
            [conditions, effect] => (*conditions, *effect),
            _ => return Err(format!("`{text}` has more than one colon; write conditions: effect")),
        };
        let mut rule = Rule::new(parse_effect(effect)?);
        let mut given = Given::default();
        if !conditions.trim().is_empty() {
            for condition in split_outside(conditions, ',')? {
                apply_condition(&mut rule, &mut given, condition.trim())?;
            }
        }
        Ok(rule)
    }
}

/// Which parts of the rule have been given already, by the word that gave them.
#[derive(Default)]
struct Given<'a>(Vec<(&'static str, &'a str)>);

impl<'a> Given<'a> {
    fn note(&mut self, part: &'static str, word: &'a str) -> Result<(), String> {
        match self.0.iter().find(|(known, _)| *known == part) {
            Some((_, first)) if *first == word => Err(format!("`{word}` is given twice")),
            Some((_, first)) => Err(format!("`{word}` and `{first}` both give the {part}; keep one")),
            None => {
                self.0.push((part, word));
                Ok(())
            }
        }
    }
}

fn apply_condition<'a>(rule: &mut Rule, given: &mut Given<'a>, condition: &'a str) -> Result<(), String> {
    let (word, value) = match condition.split_once('=') {
        Some((word, value)) => (word.trim(), Some(value.trim())),
        None => (condition, None),
    };
    if let Some(&(_, operation)) = OperationMatch::WORDS.iter().find(|(known, _)| *known == word) {
        no_value(word, value)?;
        given.note("operation", word)?;
        rule.matching.operation = Some(operation);
        return Ok(());
    }
    match word {
        "offset" => {
            given.note("offset", word)?;
            rule.matching.offset = list(word, value, "1MiB..2MiB")?;
        }
        "kind" => {
            given.note("kind", word)?;
            rule.matching.kind = list(word, value, "page_cache")?;
        }
        "address" => {
            given.note("address", word)?;
            rule.matching.address = list(word, value, "16MiB..17MiB")?;
        }
        "places" => {
            given.note("places", word)?;
            rule.matching.places = Some(number(word, needed(word, value, "16")?)?);
        }
        "copies" => {
            given.note("copies", word)?;
            rule.matching.copies = Some(needed(word, value, "all")?.parse()?);
        }
        "content" => {
            given.note("content", word)?;
            rule.matching.content = list(word, value, "<32 hexadecimal digits>")?;
        }
        "target" => {
            given.note("target", word)?;
            rule.matching.target = Some(parse_target(needed(word, value, "most_duplicated")?)?);
        }
        "all" | "until_removed" | "once" => {
            no_value(word, value)?;
            given.note("schedule", word)?;
            rule.schedule = if word == "once" { Schedule::Once } else { Schedule::All };
        }
        "after" | "every" | "nth" | "byte" | "mark" | "burst" | "matches" | "probability" | "at" => {
            let parsed = parse_schedule(word, value)?;
            rule.schedule = match rule.schedule.together_with(parsed) {
                Some(both) => both,
                None => given.note("schedule", word).map(|()| parsed)?,
            };
        }
        "transient" | "sticky" => {
            no_value(word, value)?;
            given.note("persistence", word)?;
            rule.persistence = if word == "sticky" { Persistence::Sticky } else { Persistence::Transient };
        }
        "until_rewritten" => {
            given.note("persistence", word)?;
            let spares = value.map(|value| number("until_rewritten", value)).transpose()?;
            rule.persistence = Persistence::UntilRewritten { spares };
        }
        "during" => {
            given.note("during", word)?;
            rule.during =
                needed(word, value, "run|check")?.split('|').map(parse_phase).collect::<Result<_, _>>()?;
        }
        "on" => {
            given.note("on", word)?;
            rule.on = Some(quoted(needed(word, value, "left")?)?);
        }
        "name" => {
            given.note("name", word)?;
            rule.name = Some(quoted(needed(word, value, "rot")?)?);
        }
        "tag" => {
            given.note("tag", word)?;
            let patterns = split_outside(needed(word, value, "*.img")?, '|')?;
            rule.matching.tag = patterns.into_iter().map(str::parse).collect::<Result<_, _>>()?;
        }
        "process" => {
            given.note("process", word)?;
            let patterns = split_outside(needed(word, value, "postgres")?, '|')?;
            rule.matching.process = patterns.into_iter().map(str::parse).collect::<Result<_, _>>()?;
        }
        "origin" => {
            given.note("origin", word)?;
            rule.matching.origin = list(word, value, "scrub")?;
        }
        "" => return Err("an empty condition; is there a comma too many?".to_owned()),
        _ => return Err(unknown("condition", word, &CONDITIONS)),
    }
    Ok(())
}

/// "unknown condition `wirte`; did you mean `write`?"
fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(meant) => format!("unknown {what} `{word}`; did you mean `{meant}`?"),
        None => format!("unknown {what} `{word}`; known are {}", known.join(", ")),
    }
}

fn no_value(word: &str, value: Option<&str>) -> Result<(), String> {
    match value {
        None => Ok(()),
        Some(_) => Err(format!("`{word}` takes no value")),
    }
}

fn needed<'a>(word: &str, value: Option<&'a str>, example: &str) -> Result<&'a str, String> {
    value.filter(|value| !value.is_empty()).ok_or_else(|| format!("`{word}` needs a value: {word}={example}"))
}

fn number<N: FromStr>(what: &str, text: &str) -> Result<N, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("`{what}` needs a whole number that is not negative, not `{text}`"))
}

fn list<T: FromStr<Err = String>>(
    word: &str,
    value: Option<&str>,
    example: &str,
) -> Result<OneOrMany<T>, String> {
    needed(word, value, example)?.split('|').map(|element| element.trim().parse()).collect()
}

fn parse_schedule(word: &str, value: Option<&str>) -> Result<Schedule, String> {
    match word {
        "after" => number(word, needed(word, value, "3")?).map(Schedule::After),
        "nth" => number(word, needed(word, value, "3")?).map(Schedule::Nth),
        "mark" => {
            let text = needed(word, value, "17")?;
            let number = text.parse().ok().map(AtMark::Nth);
            number.map_or_else(|| quoted(text).map(|text| AtMark::text(&text)), Ok).map(Schedule::Mark)
        }
        "byte" => Ok(Schedule::Byte(needed(word, value, "64KiB")?.parse()?)),
        "every" => {
            let (n, offset) = with_offset(word, needed(word, value, "3")?)?;
            Ok(Schedule::Every(Cycle { n: number(word, n)?, burst: 1, offset }))
        }
        "burst" => {
            let (cycle, offset) = with_offset(word, needed(word, value, "5/100")?)?;
            let (burst, n) = cycle
                .split_once('/')
                .ok_or_else(|| format!("`burst` needs hits and a cycle: burst={cycle}/100"))?;
            Ok(Schedule::Every(Cycle { n: number(word, n)?, burst: number(word, burst)?, offset }))
        }
        "matches" => {
            let text = needed(word, value, "10..20")?;
            let (from, to) = text
                .split_once("..")
                .ok_or_else(|| format!("`matches` needs two ends: matches={text}..{text}"))?;
            Ok(Schedule::Between { from: number(word, from)?, to: number(word, to)? })
        }
        "probability" => {
            let text = needed(word, value, "1%")?;
            let (chance, per) = match text.split_once('/') {
                None => (text, None),
                Some((chance, "block")) => (chance, Some(Per::Block)),
                Some((chance, "request")) => (chance, Some(Per::Request)),
                Some((_, other)) => {
                    return Err(unknown("unit of a probability", other, &["block", "request"]));
                }
            };
            Ok(Schedule::Probability { chance: chance.parse()?, per })
        }
        _ => {
            let text = needed(word, value, "10s+5s")?;
            let (at, lasts) = match text.split_once('+') {
                None => (text, None),
                Some((at, lasts)) => (at, Some(lasts.parse()?)),
            };
            Ok(Schedule::Time { at: at.parse()?, lasts })
        }
    }
}

/// Splits `500+10` into `500` and 10.
fn with_offset<'a>(word: &str, text: &'a str) -> Result<(&'a str, u64), String> {
    match text.split_once('+') {
        None => Ok((text, 0)),
        Some((rest, offset)) => Ok((rest, number(word, offset)?)),
    }
}

fn parse_phase(text: &str) -> Result<EnabledPhase, String> {
    let text = text.trim();
    EnabledPhase::WORDS
        .iter()
        .find(|(word, _)| *word == text)
        .map(|&(_, phase)| phase)
        .ok_or_else(|| unknown("phase", text, &EnabledPhase::WORDS.map(|(word, _)| word)))
}

/// Takes `word(a, b)` apart; without parentheses there are no arguments.
fn call(text: &str) -> Result<(&str, Vec<&str>), String> {
    let text = text.trim();
    let Some((word, rest)) = text.split_once('(') else { return Ok((text, Vec::new())) };
    let arguments =
        rest.strip_suffix(')').ok_or_else(|| format!("`{text}` must end with its closing parenthesis"))?;
    let arguments = if arguments.trim().is_empty() { Vec::new() } else { split_outside(arguments, ',')? };
    Ok((word.trim(), arguments.into_iter().map(str::trim).collect()))
}

fn parse_effect(text: &str) -> Result<Effect, String> {
    let (word, arguments) = call(text)?;
    if word.is_empty() {
        return Err("the effect is missing; write conditions: effect, for example read: error".to_owned());
    }
    if NAMES.contains(&word) {
        return effect_of(word, &arguments);
    }
    if CONDITIONS.contains(&word.split('=').next().unwrap_or(word)) {
        return Err(format!("`{text}` is a condition; the effect is missing: {text}: error"));
    }
    match word.split_once(['=', ' ']) {
        Some((effect, argument)) if NAMES.contains(&effect) => {
            Err(format!("what an effect takes stands in parentheses: {effect}({})", argument.trim()))
        }
        Some((first, effect)) if CONDITIONS.contains(&first) => Err(format!(
            "`{text}` has no colon before its effect; for example {first}: {}",
            effect.trim(),
            text = text.trim()
        )),
        _ => effect_of(word, &arguments),
    }
}

fn parse_target(text: &str) -> Result<Target, String> {
    let (word, arguments) = call(text)?;
    let count = || match arguments.as_slice() {
        [] => Ok(1),
        [count] => number(word, count.strip_prefix("count=").unwrap_or(count)),
        _ => Err(format!("`{word}` takes one number: {word}(3)")),
    };
    match word {
        "most_duplicated" => count().map(|count| Target::MostDuplicated { count }),
        "unique" => count().map(|count| Target::Unique { count }),
        "file" => match arguments.as_slice() {
            [file, block, by @ ..] if by.len() <= 1 => {
                let block = number("block", block.strip_prefix("block=").unwrap_or(block))?;
                let by = by.first().map(|by| by.strip_prefix("by=").unwrap_or(by).trim());
                Target::of_file(quoted(file)?, block, by)
            }
            _ => Err("`file` needs a name and a block: target=file(a, block=7)".to_owned()),
        },
        "type" => {
            let [kind, options @ ..] = arguments.as_slice() else {
                return Err("`type` needs a kind of block: target=type(inode_table, copies=one)".to_owned());
            };
            let (mut copies, mut file) = (None, None);
            for option in options {
                let is_given = match option.split_once('=') {
                    Some(("copies", word)) => copies.replace(KindCopies::from_word(word.trim())?).is_some(),
                    Some(("file", name)) => file.replace(quoted(name)?).is_some(),
                    _ => return Err(format!("`type` takes copies=one and file=a, not `{option}`")),
                };
                if is_given {
                    return Err(format!("`{option}` is given twice"));
                }
            }
            Ok(Target::Type { kind: quoted(kind)?, copies: copies.unwrap_or_default(), file })
        }
        "last_block_of_every" => match arguments.as_slice() {
            [size] => size.parse().map(Target::LastBlockOfEvery),
            _ => Err("`last_block_of_every` needs one size: target=last_block_of_every(64MiB)".to_owned()),
        },
        "seen" => Seen::from_arguments(&arguments).map(Target::Seen),
        _ => Err(unknown(
            "target",
            word,
            &["most_duplicated", "unique", "file", "last_block_of_every", "seen"],
        )),
    }
}

impl FromStr for Effect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_effect(text)
    }
}

impl fmt::Display for Target {
    /// As in the short form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MostDuplicated { count } => write!(f, "most_duplicated({count})"),
            Self::Unique { count } => write!(f, "unique({count})"),
            Self::File { file, block } => write!(f, "file({}, block={block})", Quoted(file)),
            Self::Extent { file, block } => write!(f, "file({}, block={block}, by=extent)", Quoted(file)),
            Self::Type { kind, copies, file } => {
                write!(f, "type({}, copies={}", Quoted(kind), copies.word())?;
                file.iter().try_for_each(|file| write!(f, ", file={}", Quoted(file)))?;
                f.write_str(")")
            }
            Self::LastBlockOfEvery(bytes) => write!(f, "last_block_of_every({bytes})"),
            Self::Seen(seen) => seen.fmt(f),
        }
    }
}

impl fmt::Display for Rule {
    /// The short form; what is left out is the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut conditions = Vec::new();
        if let Some(name) = &self.name {
            conditions.push(format!("name={}", Quoted(name)));
        }
        if let Some(on) = &self.on {
            conditions.push(format!("on={}", Quoted(on)));
        }
        let Match { operation, offset, content, target, tag, origin, kind, address, places, copies, process } =
            &self.matching;
        if let Some(operation) = operation {
            conditions.push(operation.word().to_owned());
        }
        if !offset.is_empty() {
            conditions.push(format!("offset={}", joined(offset)));
        }
        if !content.is_empty() {
            conditions.push(format!("content={}", joined(content)));
        }
        if let Some(target) = target {
            conditions.push(format!("target={target}"));
        }
        if !tag.is_empty() {
            conditions.push(format!("tag={}", joined(tag)));
        }
        if !origin.is_empty() {
            conditions.push(format!("origin={}", joined(origin)));
        }
        if !kind.is_empty() {
            conditions.push(format!("kind={}", joined(kind)));
        }
        if !address.is_empty() {
            conditions.push(format!("address={}", joined(address)));
        }
        conditions.extend(places.map(|places| format!("places={places}")));
        conditions.extend(copies.map(|copies| format!("copies={}", copies.word())));
        if !process.is_empty() {
            conditions.push(format!("process={}", joined(process)));
        }
        match self.schedule {
            Schedule::All => {}
            Schedule::Once => conditions.push("once".to_owned()),
            Schedule::After(n) => conditions.push(format!("after={n}")),
            Schedule::Nth(n) => conditions.push(format!("nth={n}")),
            Schedule::Mark(AtMark::Nth(n)) => conditions.push(format!("mark={n}")),
            // Quoted always: a text may be a number.
            Schedule::Mark(AtMark::Text(text)) => conditions.push(format!("mark={}", in_quotes(text.name()))),
            Schedule::Byte(number) => conditions.push(format!("byte={number}")),
            Schedule::Every(Cycle { n, burst, offset }) => {
                let offset = if offset == 0 { String::new() } else { format!("+{offset}") };
                conditions.push(match burst {
                    1 => format!("every={n}{offset}"),
                    _ => format!("burst={burst}/{n}{offset}"),
                });
            }
            Schedule::Between { from, to } => conditions.push(format!("matches={from}..{to}")),
            Schedule::Probability { chance, per } => {
                let per = per.map_or_else(String::new, |per| format!("/{}", per.word()));
                conditions.push(format!("probability={chance}{per}"));
            }
            Schedule::Time { at, lasts } => {
                let lasts = lasts.map_or_else(String::new, |lasts| format!("+{lasts}"));
                conditions.push(format!("at={at}{lasts}"));
            }
            Schedule::Within { chance, per, at, lasts } => {
                let lasts = lasts.map_or_else(String::new, |lasts| format!("+{lasts}"));
                let per = per.map_or_else(String::new, |per| format!("/{}", per.word()));
                conditions.extend([format!("at={at}{lasts}"), format!("probability={chance}{per}")]);
            }
        }
        match self.persistence {
            Persistence::Transient => {}
            Persistence::Sticky => conditions.push("sticky".to_owned()),
            Persistence::UntilRewritten { spares: None } => conditions.push("until_rewritten".to_owned()),
            Persistence::UntilRewritten { spares: Some(spares) } => {
                conditions.push(format!("until_rewritten={spares}"));
            }
        }
        if self.during != Rule::new(self.effect).during {
            let phases: Vec<_> = self.during.iter().map(|phase| phase.word()).collect();
            conditions.push(format!("during={}", phases.join("|")));
        }
        if !conditions.is_empty() {
            write!(f, "{}: ", conditions.join(", "))?;
        }
        self.effect.fmt(f)
    }
}

fn joined<T: fmt::Display>(list: &OneOrMany<T>) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Bits;
    use crate::test_rules::any_rule;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn complaint(text: &str) -> String {
        text.parse::<Rule>().expect_err(text)
    }

    #[test]
    fn the_documented_examples_say_what_they_look_like() {
        let first = rule("write, offset=1MiB..2MiB, every=3, sticky: bit_flip(byte=0, bit=0)");
        assert_eq!(first.matching.operation, Some(OperationMatch::Write));
        assert_eq!(first.matching.offset.0, ["1MiB..2MiB".parse().expect("a range")]);
        assert_eq!(first.schedule, Schedule::Every(Cycle::every(3)));
        assert_eq!(first.persistence, Persistence::Sticky);
        assert_eq!(first.effect, Effect::BitFlip(Bits::default()));
        let second = rule("read, target=most_duplicated: error");
        assert_eq!(second.matching.target, Some(Target::MostDuplicated { count: 1 }));
        let third = rule("content=000102030405060708090a0b0c0d0e0f, once: delay(10ms)");
        assert_eq!(third.matching.content.0.len(), 1);
        assert_eq!(third.schedule, Schedule::Once);
        assert_eq!(rule("error"), Rule::new(Effect::ERROR), "all conditions are optional");
        let fourth = rule("target=file(\"odd, name\", block=7), during=prefill|run, name=\"a: b\": zeros");
        assert_eq!(fourth.matching.target, Some(Target::File { file: "odd, name".to_owned(), block: 7 }));
        assert_eq!(fourth.name.as_deref(), Some("a: b"));
        assert_eq!(fourth.during.0, [EnabledPhase::Prefill, EnabledPhase::Run]);
    }

    #[test]
    fn mistakes_are_explained_with_the_nearest_word() {
        for (text, part) in [
            ("wirte: error", "did you mean `write`"),
            ("write: eror", "did you mean `error`"),
            ("write, every: error", "every=3"),
            ("write, every=x: error", "whole number"),
            ("write, every=-1: error", "whole number"),
            ("read, write: error", "both give the operation"),
            ("once, every=3: error", "both give the schedule"),
            ("burst=5: error", "burst=5/100"),
            ("write, byte: error", "byte=64KiB"),
            ("write, mark: error", "mark=17"),
            ("write, mark=a b: error", "double quotes"),
            ("write, byte=x: error", "size"),
            ("byte=1MiB, nth=3: error", "both give the schedule"),
            ("matches=5: error", "matches=5..5"),
            ("probability=2: error", "between 0 and 1"),
            ("probability=1%/file: error", "block, request"),
            ("at=5: error", "span of time"),
            ("every=3+x: error", "whole number"),
            ("sticky, sticky: error", "twice"),
            ("write, offset=1MB..x: error", "size"),
            ("write, content=12: error", "32 hexadecimal digits"),
            ("write, target=uniq: error", "did you mean `unique`"),
            ("write, target=file(a): error", "target=file(a, block=7)"),
            ("write, target=file(a, block=7, by=place): error", "content or extent"),
            ("write: delay", "delay(10ms)"),
            ("write: delay=2ms", "delay(2ms)"),
            ("write: delay 2ms", "delay(2ms)"),
            ("write: delay(10)", "span of time"),
            ("write: bit_flip(byt=1)", "did you mean `byte`"),
            ("write: bit_flip(byte=1", "parenthesis"),
            ("write, name=\"a: error", "quote"),
            ("write, , once: error", "comma too many"),
            ("write: zeros(3)", "no argument"),
            ("write", "the effect is missing"),
            ("write zeros", "no colon before its effect; for example write: zeros"),
            ("", "the effect is missing"),
            ("write: error: error", "more than one colon"),
            ("during=setup: error", "unknown phase"),
            ("sticky=yes: error", "takes no value"),
        ] {
            let complaint = complaint(text);
            assert!(complaint.contains(part), "{text}: {complaint}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_reads_back_as_the_same_rule(rule in any_rule()) {
            let text = rule.to_string();
            proptest::prop_assert_eq!(text.parse::<Rule>(), Ok(rule), "{}", text);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text: String) {
            let _ = text.parse::<Rule>();
        }

        #[test]
        fn no_text_of_its_own_words_makes_the_parser_panic(
            text in "((write|read|offset=|content=|target=|file|every=|during=|name=|bit_flip|delay|byte=|[0-9]{1,3}|[:,()\"|=. \\\\]|ms|KiB))*"
        ) {
            let _ = text.parse::<Rule>();
        }
    }
}
