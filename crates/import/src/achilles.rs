//! The fault plan of AchillesBench: a list of faults, each with an operation, a type, a target and a moment, or below
//! keys that say these for all that they hold.
//!
//! Source: C. Borges, J. Paulo, *Realistic Assessment of Faults in Storage Systems*, and the program published with it
//! (`configParserYaml.c`, `fault.c`), which takes the words of the keys above a fault and then those in it.

use std::time::Duration;

use rotproof_document::{NodeId, Value, short};
use rotproof_fault::{By, Delay, Effect, Moment, OperationMatch, Rule, Schedule, Seen, SeenBlock, Target};
use rotproof_spec::Span;

use crate::reader::Reader;
use crate::rules::Import;

const FAULT_KEYS: [&str; 9] = [
    "operation",
    "type",
    "target",
    "when_operation",
    "when_time",
    "delay",
    "persistent",
    "transient",
    "mode",
];

const OPERATIONS: [(&str, Operation); 4] = [
    ("write", Operation::Of(Some(OperationMatch::Write))),
    ("read", Operation::Of(Some(OperationMatch::Read))),
    ("write_read", Operation::Of(None)),
    ("none", Operation::None),
];
const TYPES: [(&str, Type); 3] =
    [("bit_flip", Type::BitFlip), ("medium_error", Type::Error), ("slow_disk", Type::Slow)];
const TARGETS: [(&str, Block); 4] = [
    ("last_block", Block::Last),
    ("next_block", Block::Next),
    ("top_block", Block::Top),
    ("unique_block", Block::Unique),
];
const MODES: [(&str, Mode); 4] = [
    ("mode_hash", Mode::Hash),
    ("mode_offset", Mode::Offset),
    ("mode_dedup", Mode::Dedup),
    ("mode_disk", Mode::Disk),
];
const YES_NO: [(&str, bool); 2] = [("yes", true), ("no", false)];

const SEEN: &str = "Blocks are chosen from the requests that reach the faults layer, and `when_operation` counts these; \
                    AchillesBench counts the operations of its own processes, to which it deals the faults in turn. A \
                    file system in between merges requests and adds some of its own.";
const SECONDS: &str = "`when_time` is taken for seconds, from the first request of the phase run; AchillesBench names \
                       no unit.";

#[derive(Clone, Copy)]
enum Operation {
    Of(Option<OperationMatch>),
    None,
}

#[derive(Clone, Copy)]
enum Type {
    BitFlip,
    Error,
    Slow,
}

#[derive(Clone, Copy)]
enum Block {
    Last,
    Next,
    Top,
    Unique,
}

#[derive(Clone, Copy)]
enum Mode {
    Hash,
    Offset,
    Dedup,
    Disk,
}

/// What the keys above a fault say of it.
#[derive(Clone, Copy, Default)]
struct Above {
    operation: Option<Operation>,
    kind: Option<Type>,
    block: Option<Block>,
    persistent: Option<bool>,
    mode: Option<Mode>,
}

/// A walk over the document.
#[derive(Default)]
struct Plan {
    faults: Vec<(NodeId, Above)>,
    avoids_repeats: bool,
    /// How many faults the file says there are, in each of its lists.
    lengths: Vec<NodeId>,
}

/// The rules of a document.
pub fn import(reader: &mut Reader<'_>) -> Import {
    let mut import = Import::default();
    let mut plan = Plan::default();
    let root = reader.root();
    if reader.entries(root).is_some() {
        plan.walk(root, Above::default(), false, reader, &mut import);
    }
    let said: Option<u64> = plan.lengths.iter().map(|node| reader.word(*node).parse::<u64>().ok()).sum();
    if let Some(said) = said.filter(|said| !plan.lengths.is_empty() && *said != plan.faults.len() as u64) {
        import.note(format!(
            "`length_faults` says {said}, and there are {}: all of them are taken; AchillesBench goes by the number.",
            plan.faults.len()
        ));
    }
    for &(node, above) in &plan.faults {
        if let Some((rule, notes)) = fault(node, above, plan.avoids_repeats, reader, &mut import) {
            import.note(SEEN);
            import.add(reader, node, rule, notes);
        }
    }
    import
}

impl Plan {
    fn walk(
        &mut self,
        node: NodeId,
        above: Above,
        in_faults: bool,
        reader: &mut Reader<'_>,
        import: &mut Import,
    ) {
        match reader.value(node) {
            Value::Mapping(entries) => {
                for &(key, value) in entries {
                    self.entry(key, value, above, in_faults, reader, import);
                }
            }
            Value::Sequence(items) if in_faults => {
                self.faults.extend(items.iter().map(|item| (*item, above)));
            }
            Value::Sequence(_) => {
                reader.report(
                    node,
                    "a list that is not below `faults`",
                    "put the faults below the key `faults`",
                );
            }
            Value::Scalar { text, .. } if text.is_empty() => {}
            Value::Scalar { text, .. } => {
                let message = format!("`{}` where faults belong", short(text));
                reader.report(node, message, "give a list of faults, or keys with such lists");
            }
        }
    }

    fn entry(
        &mut self,
        key: NodeId,
        value: NodeId,
        mut above: Above,
        in_faults: bool,
        reader: &mut Reader<'_>,
        import: &mut Import,
    ) {
        let word = reader.word(key);
        let mut in_faults = in_faults;
        match word {
            "avoid_repeatable_faults" => {
                self.avoids_repeats = reader.one_of(value, &YES_NO).unwrap_or(false);
                return;
            }
            "length_faults" => {
                self.lengths.push(value);
                return;
            }
            "faults" => in_faults = true,
            "persistent" => above.persistent = Some(true),
            "transient" => above.persistent = Some(false),
            _ => {
                let known = [
                    find(&OPERATIONS[..3], word).map(|operation| above.operation = Some(operation)),
                    find(&TYPES, word).map(|kind| above.kind = Some(kind)),
                    find(&TARGETS, word).map(|block| above.block = Some(block)),
                    find(&MODES, word).map(|mode| above.mode = Some(mode)),
                ];
                if known.iter().all(Option::is_none) {
                    if let Value::Scalar { .. } = reader.value(value) {
                        reader.unknown("key", key, &["faults", "avoid_repeatable_faults", "length_faults"]);
                        return;
                    }
                    import.note(format!("The key `{}` says nothing of the faults below it.", short(word)));
                }
            }
        }
        self.walk(value, above, in_faults, reader, import);
    }
}

fn find<T: Copy>(known: &[(&str, T)], word: &str) -> Option<T> {
    known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value)
}

/// What a fault says under `key`, or else what stands above it; neither is a mistake.
fn needed<T: Copy>(
    node: NodeId,
    key: &str,
    known: &[(&str, T)],
    above: Option<T>,
    reader: &mut Reader<'_>,
) -> Option<T> {
    match reader.get(node, key) {
        Some(value) => reader.one_of(value, known),
        None if above.is_some() => above,
        None => {
            let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
            let help = format!(
                "add `{key}` with one of {}; AchillesBench would leave the fault out",
                words.join(", ")
            );
            reader.report(node, format!("a fault without `{key}`"), help);
            None
        }
    }
}

fn fault(
    node: NodeId,
    above: Above,
    avoids_repeats: bool,
    reader: &mut Reader<'_>,
    import: &mut Import,
) -> Option<(Rule, Vec<String>)> {
    let entries = reader.entries(node)?;
    reader.refuse_other_keys(entries, &FAULT_KEYS);
    let mut notes = Vec::new();
    let operation = needed(node, "operation", &OPERATIONS, above.operation, reader);
    let kind = needed(node, "type", &TYPES, above.kind, reader);
    let block = needed(node, "target", &TARGETS, above.block, reader);
    let mode = match reader.get(node, "mode") {
        Some(value) => reader.one_of(value, &MODES),
        None => Some(above.mode.unwrap_or(Mode::Hash)),
    };
    let moment = moment(node, reader, import);
    let effect = kind.and_then(|kind| effect(node, kind, reader, &mut notes));
    let persistent = persistence(node, above.persistent, reader, &mut notes);
    let seen =
        block.zip(mode).and_then(|(block, mode)| seen_block(node, block, mode, avoids_repeats, reader));
    let Operation::Of(operation) = operation? else {
        let node = reader.get(node, "operation").unwrap_or(node);
        reader.report(node, "a fault on no operation never shows", "take write, read or write_read");
        return None;
    };
    let mut rule = Rule::new(effect?);
    rule.matching.operation = operation;
    rule.matching.target = Some(Target::Seen(Seen { block: seen?, moment: moment? }));
    rule.schedule = if persistent? { Schedule::All } else { Schedule::Once };
    Some((rule, notes))
}

fn moment(node: NodeId, reader: &mut Reader<'_>, import: &mut Import) -> Option<Moment> {
    match (reader.get(node, "when_operation"), reader.get(node, "when_time")) {
        (Some(_), Some(time)) => {
            reader.report(time, "`when_operation` and `when_time` both give the moment", "keep one of them");
            None
        }
        (Some(operation), None) => reader.whole(operation).map(Moment::After),
        (None, Some(time)) => {
            import.note(SECONDS);
            let seconds = reader.whole(time)?;
            reader.span(time, Some(Duration::from_secs(seconds))).map(Moment::At)
        }
        (None, None) => {
            let help = "add `when_operation` or `when_time`; AchillesBench would leave the fault out";
            reader.report(node, "a fault without a moment", help);
            None
        }
    }
}

fn effect(node: NodeId, kind: Type, reader: &mut Reader<'_>, notes: &mut Vec<String>) -> Option<Effect> {
    let delay = reader.get(node, "delay");
    if delay.is_some() && !matches!(kind, Type::Slow) {
        notes.push("`delay` says nothing beside a type other than slow_disk.".to_owned());
    }
    match (kind, delay) {
        (Type::BitFlip, _) => Some(Effect::BitFlip(rotproof_fault::Bits::default())),
        (Type::Error, _) => Some(Effect::ERROR),
        (Type::Slow, None) => {
            notes.push("Without `delay`, AchillesBench takes a millisecond.".to_owned());
            Some(Effect::Delay(Delay::Constant(Span(Duration::from_millis(1)))))
        }
        (Type::Slow, Some(delay)) => {
            let milliseconds = reader.whole(delay)?;
            let span = reader.span(delay, Some(Duration::from_millis(milliseconds)))?;
            Some(Effect::Delay(Delay::Constant(span)))
        }
    }
}

/// Whether each matching request is hit, rather than the first alone.
fn persistence(
    node: NodeId,
    above: Option<bool>,
    reader: &mut Reader<'_>,
    notes: &mut Vec<String>,
) -> Option<bool> {
    let persistent = reader.get(node, "persistent");
    let transient = reader.get(node, "transient");
    match (persistent, transient) {
        (Some(_), Some(transient)) => {
            reader.report(transient, "`persistent` and `transient` say the same in two ways", "keep one of them");
            None
        }
        (Some(persistent), None) => reader.one_of(persistent, &YES_NO),
        (None, Some(transient)) => reader.one_of(transient, &YES_NO).map(|transient| !transient),
        (None, None) => above.or_else(|| {
            notes.push(
                "Whether it is persistent is not said, and AchillesBench would take what the fault before it had. Taken \
                 for transient: the first matching request."
                    .to_owned(),
            );
            Some(false)
        }),
    }
}

fn seen_block(
    node: NodeId,
    block: Block,
    mode: Mode,
    avoids_repeats: bool,
    reader: &mut Reader<'_>,
) -> Option<SeenBlock> {
    let refuse = |reader: &mut Reader<'_>, message: &str, help: &str| {
        let at = reader.get(node, "mode").unwrap_or(node);
        reader.report(at, message, help);
        None
    };
    let by = match mode {
        Mode::Hash => By::Content,
        Mode::Offset => By::Place,
        Mode::Dedup => {
            let help = "take mode_hash, above or below a `dedup` layer of the stack";
            return refuse(reader, "mode_dedup is for a device that deduplicates by itself", help);
        }
        Mode::Disk => {
            let help = "choose blocks with mode_hash or mode_offset; for all of a device write a rule without conditions";
            return refuse(reader, "AchillesBench injects nothing in mode_disk", help);
        }
    };
    match (block, by) {
        (Block::Last, by) => Some(SeenBlock::LastWritten { by }),
        (Block::Next, by) => Some(SeenBlock::NextWritten { by }),
        (Block::Top | Block::Unique, By::Place) => {
            let message =
                "a block that is chosen by how often its content was written has no offset of its own";
            refuse(reader, message, "take mode_hash")
        }
        (Block::Top, By::Content) => Some(SeenBlock::MostDuplicated { apart: avoids_repeats }),
        // Each fault on a unique block takes the next of them.
        (Block::Unique, By::Content) => Some(SeenBlock::Unique { apart: true }),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Format, parse_plan};
    use rotproof_trial::file::{Overrides, TrialFile};

    const SAMPLE: &str = include_str!("../../../examples/import/achilles.yml");

    fn rules(text: &str) -> Vec<String> {
        let imported = parse_plan("a.yml", text.as_bytes(), None).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(imported.format, Format::Achilles);
        imported.rules.iter().map(|imported| imported.rule.to_string()).collect()
    }

    #[test]
    fn a_plan_with_keys_above_its_faults_is_taken_as_it_is() {
        assert_eq!(
            rules(SAMPLE),
            [
                "write, target=seen(last_written, after=1000, by=content): bit_flip(byte=0, bit=0)",
                "write, target=seen(most_duplicated, after=2000, apart=true): bit_flip(byte=0, bit=0)",
                "read, target=seen(unique, after=3000, apart=true), once: error",
                "target=seen(next_written, at=10s): delay(250ms)",
            ]
        );
    }

    #[test]
    fn the_faults_of_one_list_may_say_everything_themselves() {
        let text = "faults:\n- type: medium_error\n  operation: write_read\n  target: top_block\n  when_time: 3\n  transient: no\n";
        assert_eq!(rules(text), ["target=seen(most_duplicated, at=3s): error"]);
        let text = "write:\n  slow_disk:\n    faults:\n      last_block:\n        persistent:\n          - when_operation: 5\n            type: bit_flip\n";
        assert_eq!(
            rules(text),
            ["write, target=seen(last_written, after=5, by=content): bit_flip(byte=0, bit=0)"]
        );
    }

    #[test]
    fn what_is_not_said_is_assumed_and_told() {
        let text = "faults: { mine: { write: { slow_disk: { last_block: [{ when_operation: 5 }] } } } }";
        let imported = parse_plan("a.yml", text.as_bytes(), None).expect("a plan");
        let [rule] = imported.rules.as_slice() else { panic!("{imported}") };
        assert_eq!(
            rule.rule.to_string(),
            "write, target=seen(last_written, after=5, by=content), once: delay(1ms)"
        );
        assert!(rule.notes.iter().any(|note| note.contains("a millisecond")));
        assert!(rule.notes.iter().any(|note| note.contains("Taken for transient")));
        assert!(imported.notes.iter().any(|note| note.contains("`mine` says nothing")));
        assert!(imported.notes.iter().any(|note| note.contains("in the phases run and check")));
        let told = |length: u64| {
            let text = format!("length_faults: {length}\n{text}");
            let imported = parse_plan("a.yml", text.as_bytes(), None).expect("a plan");
            imported.notes.iter().any(|note| note.contains("`length_faults` says"))
        };
        assert_eq!([told(1), told(2)], [false, true]);
    }

    #[test]
    fn what_cannot_be_carried_is_told_with_its_place() {
        let one = |rest: &str| {
            format!(
                "faults:\n  - type: bit_flip\n    operation: write\n    target: last_block\n    when_operation: 5\n    persistent: yes\n    {rest}\n"
            )
        };
        let without = |key: &str| {
            let lines = one("mode: mode_hash");
            lines.lines().filter(|line| !line.trim().starts_with(key)).collect::<Vec<_>>().join("\n")
        };
        for (text, wanted) in [
            (one("mode: mode_disk"), "a.yml:7:11: AchillesBench injects nothing in mode_disk"),
            (one("mode: mode_dedup"), "7:11: mode_dedup is for a device"),
            (one("mode: mode_hashes"), "did you mean `mode_hash`?"),
            (one("transient: no"), "7:16: `persistent` and `transient`"),
            (one("when_time: 5"), "7:16: `when_operation` and `when_time`"),
            (one("delai: 5"), "did you mean `delay`?"),
            (one("mode: mode_offset").replace("last_block", "top_block"), "has no offset of its own"),
            (one("").replace("write", "none"), "never shows"),
            (one("").replace("bit_flip", "bitflip"), "did you mean `bit_flip`?"),
            (one("").replace("yes", "true"), "one of yes or no"),
            (one("").replace("5", "five"), "a number that is not negative"),
            (one("delay: 0").replace("bit_flip", "slow_disk"), "a delay of 0 changes nothing"),
            (one("delay: 18446744073709551615").replace("bit_flip", "slow_disk"), "less than 500 years"),
            (one("").replace("when_operation: 5", "when_time: 18446744073709551615"), "less than 500 years"),
            (without("operation"), "a fault without `operation`"),
            (without("target"), "a fault without `target`"),
            (without("when_operation"), "a fault without a moment"),
            ("faults: 3".to_owned(), "`3` where faults belong"),
            ("faults: [3]".to_owned(), "keys with values belong here"),
            ("faults: []\nwrite: [{ type: bit_flip }]".to_owned(), "not below `faults`"),
            ("faults: []\nlegnth_faults: 3".to_owned(), "did you mean `length_faults`?"),
        ] {
            let mistakes = parse_plan("a.yml", text.as_bytes(), None).expect_err(&text).to_string();
            assert!(mistakes.contains(wanted), "{text}: {mistakes}");
        }
    }

    #[test]
    fn what_is_printed_is_the_faults_of_a_trial_that_makes_sense() {
        let imported = parse_plan("a.yml", SAMPLE.as_bytes(), None).expect("a plan");
        let trial = format!("stack: [memory: {{ size: 1GiB }}]\n{imported}\n");
        let trial = TrialFile::parse("t.yaml", trial.as_bytes(), &Overrides::default())
            .unwrap_or_else(|error| panic!("{error}\n{imported}"));
        let written =
            |rule: &rotproof_fault::Rule| rotproof_fault::Rule { name: None, ..rule.clone() }.to_string();
        assert_eq!(
            trial.plan().expect("no models").rules.iter().map(written).collect::<Vec<_>>(),
            rules(SAMPLE)
        );
    }

    proptest::proptest! {
        #[test]
        fn any_plan_of_the_words_of_the_format_is_carried_or_refused(
            words in proptest::collection::vec((0usize..5, 0usize..5, 0usize..5, 0usize..5, 0u64..5, 0usize..6), 0..5),
            avoids in 0usize..3,
        ) {
            let mut text = format!("avoid_repeatable_faults: {}\nfaults:\n", ["yes", "no", "perhaps"][avoids]);
            for (operation, kind, target, mode, when, rest) in words {
                text += &format!(
                    "  - operation: {}\n    type: {}\n    target: {}\n    mode: {}\n    {}: {when}\n    {}\n",
                    ["write", "read", "write_read", "none", ""][operation],
                    ["bit_flip", "medium_error", "slow_disk", "melt", "[]"][kind],
                    ["last_block", "next_block", "top_block", "unique_block", "{}"][target],
                    ["mode_hash", "mode_hash", "mode_offset", "mode_dedup", "mode_disk"][mode],
                    ["when_operation", "when_time"][when as usize % 2],
                    ["persistent: yes", "transient: yes", "delay: 9", "persistent: 1", "", "delay: -1"][rest],
                );
            }
            if let Ok(imported) = parse_plan("a.yml", text.as_bytes(), None) {
                let trial = format!("stack: [memory: {{ size: 1GiB }}]\n{imported}\n");
                let trial = TrialFile::parse("t.yaml", trial.as_bytes(), &Overrides::default());
                proptest::prop_assert_eq!(trial.map(|trial| trial.plan().expect("no models").rules.len()), Ok(imported.rules.len()), "{}", imported);
            }
        }

        #[test]
        fn no_bytes_make_an_import_panic(bytes: Vec<u8>) {
            let _ = parse_plan("a.yml", &bytes, Some(Format::Achilles));
        }

        #[test]
        fn no_change_to_a_plan_makes_an_import_panic(at in 0usize..900, length in 0usize..20, instead in "[ -~\n]{0,8}") {
            let mut text = SAMPLE.to_owned();
            let start = at.min(text.len());
            let end = (start + length).min(text.len());
            text.replace_range(start..end, &instead);
            let _ = parse_plan("a.yml", text.as_bytes(), None);
        }
    }
}
