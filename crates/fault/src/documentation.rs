//! Holds `docs/faults.md` to the language: every example in it hits when it is run, and every word of the language has
//! one. An example is a fault of a `yaml` block, a line of the short form, or a span of code in the first column of a
//! table whose head says of which part of a rule it is.

use std::collections::{BTreeSet, HashMap};

use rotproof_block::{ContentHash, Context, Operation, Origin, Phase, Tag, Time};
use rotproof_spec::{Path, Problems, WordOrMap};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use self::carrier::Disk;
use crate::effect_form::{NAMES, keys_of};
use crate::seen::{BLOCKS, OPTIONS};
use crate::short_form::CONDITIONS;
use crate::zeros::{ZEROS, zeros_hash};
use crate::{
    BLOCK_BYTES, Effect, EnabledPhase, Engine, EngineOptions, Errno, FaultEntry, Header, Match, Model,
    OperationMatch, OriginMatch, Persistence, Plan, ResolvedRule, Rule, Schedule, Target, TargetContent,
    validate_plan,
};

#[path = "../tests/carrier/mod.rs"]
mod carrier;

const PAGE: &str = include_str!("../../../docs/faults.md");

/// Where the examples are run; models, which know the size of a device, are drawn for it.
const DEVICE_BYTES: u64 = 64 << 20;

/// What the load would find out for a target: the stream writes it again and again, in all phases.
const TARGET_FILL: u8 = 7;

/// What an example shows, by the head of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Condition,
    Target,
    Schedule,
    Effect,
    Persistence,
    /// A fault of a `yaml` block.
    Fault,
    /// A line of the short form.
    Short,
}

struct Example {
    kind: Kind,
    text: String,
    entry: FaultEntry,
}

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).unwrap_or_else(|why| panic!("docs/faults.md: {text}: {why}"))
}

/// A rule of which only the part that is shown is not plain.
fn rule_of(kind: Kind, text: &str) -> Rule {
    let plain = Rule::new(Effect::ERROR);
    let by_target = |target| Match { target: Some(target), ..Match::default() };
    match kind {
        Kind::Condition => {
            let matching: Match = read(text);
            let of_memory = !matching.kind.is_empty()
                || !matching.address.is_empty()
                || matching.places.is_some()
                || matching.copies.is_some();
            match of_memory {
                false => Rule { matching, ..plain },
                true => Rule {
                    matching,
                    on: Some(crate::MEMORY.to_owned()),
                    ..Rule::new(Effect::BitFlip(crate::Bits::default()))
                },
            }
        }
        Kind::Target => Rule { matching: by_target(read(text)), ..plain },
        Kind::Schedule => Rule { schedule: read(text), ..plain },
        Kind::Effect => Rule::new(read(text)),
        Kind::Persistence => Rule { persistence: read(text), ..plain },
        Kind::Fault | Kind::Short => unreachable!("read as a whole"),
    }
}

/// The blocks of the page between fences of that kind.
fn fenced(kind: &str) -> Vec<&'static str> {
    let fence = format!("```{kind}\n");
    let blocks = PAGE.split(&fence).skip(1);
    blocks.map(|rest| rest.split("```").next().expect("its end")).collect()
}

/// What stands between backticks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn examples() -> Vec<Example> {
    #[derive(Deserialize)]
    struct Faults {
        faults: Vec<serde_json::Value>,
    }

    let mut examples = Vec::new();
    let mut add = |kind, text: &str, entry| examples.push(Example { kind, text: text.to_owned(), entry });
    let mut kind = None;
    for line in PAGE.lines() {
        let Some((first, _)) = line.strip_prefix("| ").and_then(|row| row.split_once(" | ")) else {
            // The rule under the head of a table.
            if !line.starts_with('|') {
                kind = None;
            }
            continue;
        };
        match (kind, first) {
            (Some(kind), _) => {
                assert!(first.contains('`'), "docs/faults.md: no example in {line}");
                code(first).for_each(|text| add(kind, text, FaultEntry::Rule(rule_of(kind, text))));
            }
            (None, "condition") => kind = Some(Kind::Condition),
            (None, "target") => kind = Some(Kind::Target),
            (None, "schedule") => kind = Some(Kind::Schedule),
            (None, "effect") => kind = Some(Kind::Effect),
            (None, "persistence") => kind = Some(Kind::Persistence),
            // Names of models: each has its examples whole.
            (None, _) => {}
        }
    }
    for block in fenced("yaml") {
        for fault in read::<Faults>(block).faults {
            let text = fault.to_string();
            let entry = serde_json::from_value(fault).unwrap_or_else(|why| panic!("{text}: {why}"));
            let kind = if text.starts_with('"') { Kind::Short } else { Kind::Fault };
            add(kind, &text, entry);
        }
    }
    for line in fenced("text").into_iter().flat_map(str::lines) {
        add(Kind::Short, line, line.parse().unwrap_or_else(|why| panic!("docs/faults.md: {line}: {why}")));
    }
    examples
}

/// How often any rule of the plan hits in a stream of requests of every operation, phase and moment: small ones at the
/// beginning of the device, and large ones over all of it where models have chosen its blocks.
fn hits(plan: Plan, seed: u64) -> u64 {
    let is_drawn = !plan.models.is_empty();
    let resolved = plan.rules.into_iter().map(|rule| {
        let is_of_load = rule.matching.target.as_ref().is_some_and(Target::is_known_to_load);
        let content = ContentHash::of(&[TARGET_FILL; BLOCK_BYTES as usize]);
        let known = TargetContent { content, label: "a block".to_owned(), beginning: None };
        let contents = if is_of_load { vec![known] } else { Vec::new() };
        ResolvedRule { contents, ..ResolvedRule::from(rule) }
    });
    let engine = Engine::new(resolved.collect(), EngineOptions { seed, device_size: DEVICE_BYTES });
    for rule in
        engine.report().iter().filter(|rule| matches!(rule.rule.matching.target, Some(Target::Extent { .. })))
    {
        engine.set_place(&rule.name, 2048 * BLOCK_BYTES).expect("it waits for its place");
    }
    for rule in
        engine.report().iter().filter(|rule| matches!(rule.rule.matching.target, Some(Target::Type { .. })))
    {
        let places = 2048 * BLOCK_BYTES..2052 * BLOCK_BYTES;
        engine.set_places(&rule.name, &[places]).expect("it waits for its places");
    }
    let mut disk = Disk::new(&engine, DEVICE_BYTES);
    let tags = ["", "focal.vdi", "bionic.img", "x1.log"].map(|name| match name {
        "" => Tag::default(),
        name => Tag::intern(name),
    });
    let large = vec![1; 1 << 20];
    for (phase, from_ms, steps) in
        [(Phase::Prefill, 0, 100), (Phase::Run, 1000, 2000), (Phase::Check, 22_000, 1000)]
    {
        for step in 0..steps {
            let submitted = Time((from_ms + step * 10) * 1_000_000);
            engine.mark(&format!("transaction {step} acknowledged"));
            let tag = tags[step as usize % tags.len()];
            let mut send = |operation, offset, length, payload: &[u8]| {
                let origin = if step % 7 == 6 { Origin::Scrub } else { Origin::Host };
                let context = Context { phase, submitted, tag, origin, ..Context::default() };
                disk.carry(&Header { operation, offset, length, context }, payload);
            };
            // The place that an extent is said to have, and few others, so that they are met again.
            let block = if step % 5 == 4 { 2048 } else { step * 37 % 2048 };
            let mut content = [TARGET_FILL; BLOCK_BYTES as usize];
            match step % 3 {
                0 => content = ZEROS,
                1 => content[..8].copy_from_slice(&step.to_le_bytes()),
                _ => {}
            }
            if step % 16 == 15 {
                send(Operation::Discard, (block ^ 1) * BLOCK_BYTES, BLOCK_BYTES, &[]);
            }
            send(Operation::WRITE, block * BLOCK_BYTES, BLOCK_BYTES, &content);
            send(Operation::Read, block * BLOCK_BYTES, BLOCK_BYTES, &[]);
            if step % 8 == 7 {
                send(Operation::Flush, 0, 0, &[]);
            }
            if is_drawn && phase != Phase::Prefill && step % 16 == 0 {
                let offset = ((step / 16) << 20) % DEVICE_BYTES;
                send(Operation::Read, offset, 1 << 20, &[]);
                // Half of the device is never written, where nothing is put right.
                if phase == Phase::Run && offset >= DEVICE_BYTES / 2 {
                    send(Operation::WRITE, offset, 1 << 20, &large);
                    send(Operation::Read, offset, 1 << 20, &[]);
                }
            }
        }
    }
    engine.report().iter().map(|rule| rule.hits).sum()
}

#[test]
fn every_example_makes_sense_and_hits() {
    let complaint = |Example { text, entry, .. }: Example| {
        let entries = [entry];
        let mut problems = Problems::default();
        validate_plan(&entries, &Path::root(), &crate::SiteList::unnamed(Some(DEVICE_BYTES)), &mut problems);
        if let Some(problem) = problems.into_iter().next() {
            return Some(format!("{text}: {}", problem.message));
        }
        // A stream of requests never meets memory; trials on guests show that such rules hit.
        if entries[0].rule().is_some_and(Rule::is_on_memory) {
            return None;
        }
        // One seed decides for a rule. A model may draw a device on which nothing goes wrong, and another is tried.
        let seeds = if entries[0].rule().is_some() { 1..=1 } else { 1..=20 };
        let has_hit = seeds.into_iter().any(|seed| {
            hits(Plan::draw(&entries, seed, &crate::SiteList::unnamed(Some(DEVICE_BYTES))), seed) > 0
        });
        (!has_hit).then(|| format!("{text}: it never hits"))
    };
    let complaints: Vec<String> = examples().into_iter().filter_map(complaint).collect();
    assert!(complaints.is_empty(), "docs/faults.md: {}", complaints.join("\n"));
}

#[test]
fn every_example_reads_the_same_in_the_other_form() {
    for Example { text, entry, .. } in examples() {
        assert_eq!(entry.to_string().parse().as_ref(), Ok(&entry), "docs/faults.md: {text}");
        let yaml = serde_saphyr::to_string(&entry).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!(read::<FaultEntry>(&yaml), entry, "docs/faults.md: {text}");
    }
}

#[test]
fn every_word_of_the_language_has_an_example() {
    let mut shown: HashMap<Kind, BTreeSet<String>> = HashMap::new();
    for Example { kind, text, .. } in examples() {
        let words = text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).map(str::to_owned);
        shown.entry(kind).or_default().extend(words);
    }
    let mut missing = Vec::new();
    let mut demand = |kinds: &[Kind], words: &[&str]| {
        assert!(!words.is_empty(), "{kinds:?}");
        for kind in kinds {
            let absent = words.iter().filter(|word| !shown[kind].contains(**word));
            missing.extend(absent.map(|word| format!("{word} as {kind:?}")));
        }
    };
    demand(&[Kind::Condition], &keys_of_form::<Match>().iter().map(String::as_str).collect::<Vec<_>>());
    demand(&[Kind::Condition, Kind::Short], &OperationMatch::WORDS.map(|(word, _)| word));
    demand(&[Kind::Condition], &OriginMatch::WORDS.map(|(word, _)| word));
    demand(&[Kind::Target, Kind::Short], <Target as WordOrMap>::WORDS);
    demand(&[Kind::Target, Kind::Short], &BLOCKS);
    demand(&[Kind::Target, Kind::Short], &OPTIONS);
    demand(&[Kind::Schedule], &keys_of_form::<Schedule>().iter().map(String::as_str).collect::<Vec<_>>());
    demand(&[Kind::Effect], &NAMES);
    for effect in NAMES {
        // What chance has decided is for ledgers.
        let keys = keys_of(effect).expect("a word").iter().filter(|key| **key != "draw");
        keys.for_each(|key| demand(&[Kind::Effect], &[key]));
    }
    demand(&[Kind::Persistence, Kind::Short], <Persistence as WordOrMap>::WORDS);
    demand(&[Kind::Fault, Kind::Short], &Model::WORDS);
    demand(&[Kind::Fault], &keys_of_form::<Rule>().iter().map(String::as_str).collect::<Vec<_>>());
    demand(&[Kind::Short], &CONDITIONS);
    demand(&[Kind::Short], &EnabledPhase::WORDS.map(|(word, _)| word));
    assert!(missing.is_empty(), "docs/faults.md has no example of: {}", missing.join(", "));
    for errno in Errno::NAMES {
        assert!(PAGE.contains(errno), "docs/faults.md does not name {errno}");
    }
    assert!(PAGE.contains(&zeros_hash().to_string()), "docs/faults.md: zeros have the hash {}", zeros_hash());
}

/// The keys, and the words that stand alone, of one part of a rule, as its schema has them.
fn keys_of_form<T: JsonSchema>() -> BTreeSet<String> {
    let schema = schemars::schema_for!(T).to_value();
    let forms = schema.get("anyOf").and_then(|forms| forms.as_array().cloned());
    let mut keys = BTreeSet::new();
    for form in forms.unwrap_or_else(|| vec![schema.clone()]) {
        let words = form.get("enum").and_then(|words| words.as_array()).into_iter().flatten();
        keys.extend(words.filter_map(|word| word.as_str()).map(str::to_owned));
        let properties = form.get("properties").and_then(|keys| keys.as_object()).into_iter();
        keys.extend(properties.flat_map(|keys| keys.keys().cloned()));
    }
    keys
}
