//! The configuration of FISPDK's faulty device: for each direction a list of files, each with one fault.
//!
//! Source: A. Miranda, *Realistic Fault Assessment in SPDK-enabled Storage Stacks*, and the program published with it
//! (`vbdev_faulty.c`, `_load_wr_files` and `corrupt_request_file`), which fills in what is missing and counts from 0.

use std::collections::HashMap;
use std::time::Duration;

use rotproof_document::NodeId;
use rotproof_fault::{
    BLOCK_BYTES, Bits, Cycle, Delay, Draw, Effect, Errno, OneOrMany, OperationMatch, Rule, Schedule,
    TagPattern,
};

use crate::reader::{Number, Reader};
use crate::rules::Import;

const PLAN_KEYS: [&str; 2] = ["write", "read"];
const FILE_KEYS: [&str; 2] = ["fileName", "faultInjection"];
const INJECTION_KEYS: [&str; 3] = ["frequency", "nRequests", "faultType"];
const TYPE_KEYS: [&str; 6] = ["type", "corruptionPattern", "offset", "index", "time", "error"];

const COUNTED: &str = "Corrupted content is counted in blocks of 4096 bytes, delays and errors in requests; FISPDK \
                       counts requests. For requests of 4096 bytes that is the same.";
const ONE_LATER: &str = "ALL_AFTER n spares the first n requests and INTERVAL n hits the n-th, 2n-th, ..., as FISPDK is \
                         described. Its published program counts from 0 and hits one request later; to follow it, \
                         write after=4 for after=3, and every=5+1 for every=5.";
const TAGGED: &str =
    "A file is recognised by the tag of its requests (docs/faults.md): something above must tag them.";

#[derive(Clone, Copy)]
enum Frequency {
    All,
    AllAfter,
    Interval,
}

#[derive(Clone, Copy)]
enum Kind {
    Corrupt,
    Delay,
    Error,
}

#[derive(Clone, Copy)]
enum Pattern {
    Zeros,
    Ones,
    RandomBit,
    CustomBit,
}

/// The rules of a document.
pub fn import(reader: &mut Reader<'_>) -> Import {
    let mut import = Import::default();
    let root = reader.root();
    let Some(entries) = reader.entries(root) else { return import };
    reader.refuse_other_keys(entries, &PLAN_KEYS);
    import.note(TAGGED);
    // Writes before reads, whatever their order in the file: FISPDK keeps them in a table each.
    for (word, operation) in [("write", OperationMatch::Write), ("read", OperationMatch::Read)] {
        let Some(direction) = reader.get(root, word) else { continue };
        let Some(entries) = reader.entries(direction) else { continue };
        reader.refuse_other_keys(entries, &["files"]);
        let Some(files) = reader.need(direction, "files") else { continue };
        let Some(items) = reader.items(files) else { continue };
        import_files(items, operation, reader, &mut import);
    }
    import
}

fn import_files(items: &[NodeId], operation: OperationMatch, reader: &mut Reader<'_>, import: &mut Import) {
    // The table has one fault for each file: the last.
    let mut last: HashMap<&str, NodeId> = HashMap::new();
    for &item in items {
        if let Some(name) = reader.get(item, "fileName") {
            last.insert(reader.word(name), item);
        }
    }
    for &item in items {
        let Some((name, mut rule, mut notes)) = file_rule(item, reader, import) else { continue };
        if let Some(&kept) = last.get(name.as_str())
            && kept != item
        {
            import.note(format!(
                "`{name}` has a fault on line {} too, of which nothing remains here: FISPDK keeps the last one, on line \
                 {}.",
                reader.line(item),
                reader.line(kept),
            ));
            continue;
        }
        if name.contains(['*', '?']) {
            notes.push(
                "`*` and `?` stand for any characters here, and only for themselves in FISPDK.".to_owned(),
            );
        }
        rule.name = Some(format!("{} {name}", operation.word()));
        rule.matching.operation = Some(operation);
        rule.matching.tag = OneOrMany(vec![TagPattern(name)]);
        import.add(reader, item, rule, notes);
    }
}

/// The name of a file, the rule for it, and what was assumed.
fn file_rule(
    item: NodeId,
    reader: &mut Reader<'_>,
    import: &mut Import,
) -> Option<(String, Rule, Vec<String>)> {
    let entries = reader.entries(item)?;
    reader.refuse_other_keys(entries, &FILE_KEYS);
    let (name, injection) = (reader.need(item, "fileName"), reader.need(item, "faultInjection"));
    let name = reader.text(name?)?.to_owned();
    let injection = injection?;
    let entries = reader.entries(injection)?;
    reader.refuse_other_keys(entries, &INJECTION_KEYS);
    let mut notes = Vec::new();
    let schedule = schedule(injection, reader, import, &mut notes);
    let fault = reader.need(injection, "faultType")?;
    let entries = reader.entries(fault)?;
    reader.refuse_other_keys(entries, &TYPE_KEYS);
    let effect = effect(fault, reader, import, &mut notes)?;
    Some((name, Rule { schedule: schedule?, ..Rule::new(effect) }, notes))
}

fn schedule(
    injection: NodeId,
    reader: &mut Reader<'_>,
    import: &mut Import,
    notes: &mut Vec<String>,
) -> Option<Schedule> {
    let frequency = reader.need(injection, "frequency")?;
    let frequency = reader.one_of(
        frequency,
        &[("ALL", Frequency::All), ("ALL_AFTER", Frequency::AllAfter), ("INTERVAL", Frequency::Interval)],
    )?;
    let given = reader.get(injection, "nRequests");
    if matches!(frequency, Frequency::All) {
        if given.is_some() {
            notes.push("`nRequests` says nothing beside ALL.".to_owned());
        }
        return Some(Schedule::All);
    }
    import.note(ONE_LATER);
    let number = match given {
        None => {
            notes.push("Without `nRequests`, FISPDK takes 1.".to_owned());
            1
        }
        Some(node) => match reader.whole(node)? {
            0 => {
                reader.report(
                    node,
                    "`nRequests` must be above 0",
                    "FISPDK would take 1 without a word; write that",
                );
                return None;
            }
            number => number,
        },
    };
    Some(match frequency {
        Frequency::All => Schedule::All,
        Frequency::AllAfter => Schedule::After(number),
        Frequency::Interval => Schedule::Every(Cycle::every(number)),
    })
}

fn effect(
    fault: NodeId,
    reader: &mut Reader<'_>,
    import: &mut Import,
    notes: &mut Vec<String>,
) -> Option<Effect> {
    let kind = reader.need(fault, "type")?;
    let kind = reader.one_of(
        kind,
        &[
            ("CORRUPT_CONTENT", Kind::Corrupt),
            ("DELAY_OPERATION", Kind::Delay),
            ("MEDIUM_ERROR", Kind::Error),
        ],
    )?;
    import.note(COUNTED);
    match kind {
        Kind::Corrupt => corruption(fault, reader, notes),
        Kind::Delay => delay(fault, reader, notes),
        Kind::Error => {
            notes
                .push("FISPDK's program only announces MEDIUM_ERROR: there the request succeeds.".to_owned());
            error(fault, reader, notes)
        }
    }
}

fn corruption(fault: NodeId, reader: &mut Reader<'_>, notes: &mut Vec<String>) -> Option<Effect> {
    let pattern = reader.need(fault, "corruptionPattern")?;
    let pattern = reader.one_of(
        pattern,
        &[
            ("REPLACE_ALL_ZEROS", Pattern::Zeros),
            ("REPLACE_ALL_ONES", Pattern::Ones),
            ("BITFLIP_RANDOM_INDEX", Pattern::RandomBit),
            ("BITFLIP_CUSTOM_INDEX", Pattern::CustomBit),
        ],
    )?;
    Some(match pattern {
        Pattern::Zeros => Effect::Zeros,
        Pattern::Ones => Effect::Ones,
        Pattern::RandomBit => Effect::BitFlip(Bits::Random { count: 1, draw: Draw(None) }),
        Pattern::CustomBit => {
            let byte = place(fault, "offset", BLOCK_BYTES, reader, notes);
            let bit = place(fault, "index", 8, reader, notes);
            Effect::BitFlip(Bits::At { byte: u32::try_from(byte?).ok()?, bit: u8::try_from(bit?).ok()? })
        }
    })
}

/// A number below `end`; FISPDK takes 0 where there is none.
fn place(
    fault: NodeId,
    key: &str,
    end: u64,
    reader: &mut Reader<'_>,
    notes: &mut Vec<String>,
) -> Option<u64> {
    let Some(node) = reader.get(fault, key) else {
        notes.push(format!("Without `{key}`, FISPDK takes 0."));
        return Some(0);
    };
    let number = reader.whole(node)?;
    if number >= end {
        let help = if end == 8 {
            "a byte has the bits 0 to 7; FISPDK would take 0 without a word".to_owned()
        } else {
            format!("faults act on blocks of {end} bytes: give the byte of the block, 0 to {}", end - 1)
        };
        reader.report(node, format!("`{key}` is {number}"), help);
        return None;
    }
    Some(number)
}

fn delay(fault: NodeId, reader: &mut Reader<'_>, notes: &mut Vec<String>) -> Option<Effect> {
    let Some(node) = reader.get(fault, "time") else {
        reader.report(fault, "a delay without `time`", "add the seconds; FISPDK would take 0 without a word");
        return None;
    };
    let seconds = match reader.number(node)? {
        Number::Whole(seconds) => {
            notes.push(format!(
                "{seconds} seconds are meant; FISPDK's program takes a `time` without a fraction for 0."
            ));
            seconds as f64
        }
        Number::Fraction(seconds) => seconds,
    };
    let span = reader.span(node, Duration::try_from_secs_f64(seconds).ok())?;
    if span.0.is_zero() {
        reader.report(node, format!("{seconds} seconds are no delay"), "give a time above 0");
        return None;
    }
    Some(Effect::Delay(Delay::Constant(span)))
}

fn error(fault: NodeId, reader: &mut Reader<'_>, notes: &mut Vec<String>) -> Option<Effect> {
    let Some(node) = reader.get(fault, "error") else {
        notes.push("Without `error`, it is EIO.".to_owned());
        return Some(Effect::ERROR);
    };
    // Negative in SPDK, as in the kernel.
    let number = reader.word(node).trim_start_matches('-').parse::<i32>().ok();
    match number.and_then(Errno::from_number) {
        Some(errno) => Some(Effect::Error { errno, after: false }),
        None => {
            let help = format!("the number of one of {}", Errno::NAMES.join(", "));
            reader.report(node, "this is no error number of a block device", help);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Format, parse_plan};
    use rotproof_trial::file::{Overrides, TrialFile};

    const THESIS: &str = include_str!("../../../examples/import/fispdk.json");

    fn rules(text: &str) -> Vec<String> {
        let imported = parse_plan("f.json", text.as_bytes(), None).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(imported.format, Format::Fispdk);
        imported.rules.iter().map(|imported| imported.rule.to_string()).collect()
    }

    /// A file with one fault on writes of `a.img`.
    fn one(injection: &str) -> String {
        format!(r#"{{"write": {{"files": [{{"fileName": "a.img", "faultInjection": {injection}}}]}}}}"#)
    }

    #[test]
    fn the_published_configuration_is_taken_as_it_is() {
        assert_eq!(
            rules(THESIS),
            [
                r#"name="write focal.img", write, tag=focal.img: bit_flip(byte=0, bit=0)"#,
                r#"name="write bionic.img", write, tag=bionic.img, after=3: zeros"#,
                r#"name="read bionic.img", read, tag=bionic.img, every=5: bit_flip(byte=0, bit=0)"#,
            ]
        );
        // Tabs are fine in JSON.
        assert_eq!(rules(&THESIS.replace("  ", "\t")), rules(THESIS));
    }

    #[test]
    fn each_frequency_pattern_and_type_has_its_rule() {
        for (injection, wanted) in [
            (
                r#"{"frequency": "ALL", "faultType": {"type": "CORRUPT_CONTENT", "corruptionPattern": "REPLACE_ALL_ONES"}}"#,
                "ones",
            ),
            (
                r#"{"frequency": "ALL_AFTER", "nRequests": 500, "faultType": {"type": "CORRUPT_CONTENT", "corruptionPattern": "BITFLIP_RANDOM_INDEX"}}"#,
                "after=500: bit_flip(random)",
            ),
            (
                r#"{"frequency": "INTERVAL", "nRequests": 500, "faultType": {"type": "DELAY_OPERATION", "time": 0.25}}"#,
                "every=500: delay(250ms)",
            ),
            (
                r#"{"frequency": "INTERVAL", "faultType": {"type": "DELAY_OPERATION", "time": 2}}"#,
                "every=1: delay(2s)",
            ),
            (r#"{"frequency": "ALL", "faultType": {"type": "MEDIUM_ERROR"}}"#, "error"),
            (
                r#"{"frequency": "ALL", "faultType": {"type": "MEDIUM_ERROR", "error": -61}}"#,
                "error(ENODATA)",
            ),
            (
                r#"{"frequency": "ALL", "faultType": {"type": "CORRUPT_CONTENT", "corruptionPattern": "BITFLIP_CUSTOM_INDEX", "offset": 4095, "index": 7}}"#,
                "bit_flip(byte=4095, bit=7)",
            ),
        ] {
            let rules = rules(&one(injection));
            let separator = if wanted.contains(':') { ", " } else { ": " };
            assert_eq!(rules, [format!(r#"name="write a.img", write, tag=a.img{separator}{wanted}"#)]);
        }
    }

    #[test]
    fn what_is_missing_is_assumed_and_said() {
        let text = one(
            r#"{"frequency": "INTERVAL", "faultType": {"type": "CORRUPT_CONTENT", "corruptionPattern": "BITFLIP_CUSTOM_INDEX"}}"#,
        );
        let imported = parse_plan("f.json", text.as_bytes(), None).expect("a plan");
        assert_eq!(
            imported.rules[0].notes,
            [
                "Without `nRequests`, FISPDK takes 1.",
                "Without `offset`, FISPDK takes 0.",
                "Without `index`, FISPDK takes 0."
            ]
        );
        assert!(imported.notes.iter().any(|note| note.contains("one request later")), "{imported}");
    }

    #[test]
    fn of_two_faults_on_one_file_the_last_is_kept_and_the_other_told() {
        let file = r#"{"fileName": "a", "faultInjection": {"frequency": "ALL", "faultType": {"type": "CORRUPT_CONTENT", "corruptionPattern": "REPLACE_ALL_ZEROS"}}}"#;
        let text = format!("{{\"read\": {{\"files\": [\n{file},\n{}]}}}}", file.replace("ZEROS", "ONES"));
        let imported = parse_plan("f.json", text.as_bytes(), None).expect("a plan");
        assert_eq!(imported.rules.len(), 1);
        assert_eq!(imported.rules[0].rule.to_string(), r#"name="read a", read, tag=a: ones"#);
        assert!(imported.notes.iter().any(|note| note.contains("on line 2 too")), "{imported}");
    }

    #[test]
    fn what_cannot_be_carried_is_told_with_its_place() {
        let corrupt = |rest: &str| {
            one(&format!(r#"{{"frequency": "ALL", "faultType": {{"type": "CORRUPT_CONTENT", {rest}}}}}"#))
        };
        for (text, wanted) in [
            (
                corrupt(r#""corruptionPattern": "BITFLIP_CUSTOM_INDEX", "offset": 4096"#),
                "1:179: `offset` is 4096; faults act on blocks",
            ),
            (
                corrupt(r#""corruptionPattern": "BITFLIP_CUSTOM_INDEX", "index": 8"#),
                "`index` is 8; a byte has the bits 0 to 7",
            ),
            (
                corrupt(r#""corruptionPattern": "BITFLIP_CUSTOM_INDEX", "index": "1""#),
                "a number that is not negative",
            ),
            (corrupt(r#""corruptionPattern": "REPLACE_ALL_ZERO""#), "did you mean `REPLACE_ALL_ZEROS`?"),
            (corrupt(r#""offset": 0"#), "`corruptionPattern` is missing"),
            (
                one(r#"{"frequency": "SOMETIMES", "faultType": {"type": "MEDIUM_ERROR"}}"#),
                "one of ALL, ALL_AFTER or INTERVAL",
            ),
            (
                one(r#"{"frequency": "INTERVAL", "nRequests": 0, "faultType": {"type": "MEDIUM_ERROR"}}"#),
                "must be above 0",
            ),
            (
                one(r#"{"frequency": "INTERVAL", "nRequests": 1.5, "faultType": {"type": "MEDIUM_ERROR"}}"#),
                "a whole number",
            ),
            (one(r#"{"frequency": "ALL"}"#), "`faultType` is missing"),
            (
                one(r#"{"frequency": "ALL", "faultType": {"type": "DELAY_OPERATION"}}"#),
                "a delay without `time`",
            ),
            (
                one(r#"{"frequency": "ALL", "faultType": {"type": "DELAY_OPERATION", "time": 0.0}}"#),
                "no delay",
            ),
            (
                one(r#"{"frequency": "ALL", "faultType": {"type": "DELAY_OPERATION", "time": 1e18}}"#),
                "less than 500 years",
            ),
            (
                one(r#"{"frequency": "ALL", "faultType": {"type": "MEDIUM_ERROR", "error": 1}}"#),
                "no error number of a block device",
            ),
            (
                one(r#"{"frequency": "ALL", "often": 1, "faultType": {"type": "MEDIUM_ERROR"}}"#),
                "unknown key `often`",
            ),
            (r#"{"write": {"files": {}}}"#.to_owned(), "a list belongs here"),
            (r#"{"write": []}"#.to_owned(), "keys with values belong here"),
            (r#"{"write": {}}"#.to_owned(), "`files` is missing"),
            (r#"{"writes": {}}"#.to_owned(), "this looks like no fault plan"),
            (r#"{"write": {"files": [{"fileName": ""}]}}"#.to_owned(), "`faultInjection` is missing"),
            (String::new(), "there is nothing in f.json"),
            ("{".to_owned(), "this is not YAML"),
        ] {
            let mistakes = parse_plan("f.json", text.as_bytes(), None).expect_err(&text).to_string();
            assert!(mistakes.contains(wanted), "{text}: {mistakes}");
        }
    }

    #[test]
    fn what_is_printed_is_the_faults_of_a_trial_that_makes_sense() {
        let imported = parse_plan("f.json", THESIS.as_bytes(), None).expect("a plan");
        let trial = format!("stack: [memory: {{ size: 1GiB }}]\n{imported}\n");
        let trial = TrialFile::parse("t.yaml", trial.as_bytes(), &Overrides::default())
            .unwrap_or_else(|error| panic!("{error}\n{imported}"));
        let rules: Vec<_> = imported.rules.into_iter().map(|imported| imported.rule).collect();
        assert_eq!(trial.plan().expect("no models").rules, rules);
    }

    proptest::proptest! {
        #[test]
        fn any_plan_of_the_format_is_carried_or_refused_and_what_is_carried_reads_back(
            names in proptest::collection::vec(".{1,6}", 1..4),
            frequency in 0usize..4, number in 0u64..4, kind in 0usize..4, place in 0u64..9000,
        ) {
            let frequency = ["ALL", "ALL_AFTER", "INTERVAL", "NEVER"][frequency];
            let fault = [
                serde_json::json!({"type": "CORRUPT_CONTENT", "corruptionPattern": "BITFLIP_CUSTOM_INDEX", "offset": place, "index": number}),
                serde_json::json!({"type": "CORRUPT_CONTENT", "corruptionPattern": "REPLACE_ALL_ZEROS"}),
                serde_json::json!({"type": "DELAY_OPERATION", "time": place as f64 / 7.0}),
                serde_json::json!({"type": "MEDIUM_ERROR", "error": number}),
            ][kind].clone();
            let files: Vec<_> = names.iter().map(|name| serde_json::json!({
                "fileName": name,
                "faultInjection": {"frequency": frequency, "nRequests": number, "faultType": fault},
            })).collect();
            let text = serde_json::json!({ "read": { "files": files } }).to_string();
            if let Ok(imported) = parse_plan("f.json", text.as_bytes(), None) {
                let trial = format!("stack: [memory: {{ size: 1GiB }}]\n{imported}\n");
                let trial = TrialFile::parse("t.yaml", trial.as_bytes(), &Overrides::default());
                let rules: Vec<_> = imported.rules.iter().map(|imported| imported.rule.clone()).collect();
                proptest::prop_assert_eq!(trial.map(|trial| trial.plan().expect("no models").rules), Ok(rules), "{}", imported);
            }
        }

        #[test]
        fn no_bytes_make_an_import_panic(bytes: Vec<u8>) {
            let _ = parse_plan("f.json", &bytes, Some(Format::Fispdk));
        }

        #[test]
        fn no_change_to_a_plan_makes_an_import_panic(at in 0usize..900, length in 0usize..20, instead in "[ -~\n]{0,8}") {
            let mut text = THESIS.to_owned();
            let start = at.min(text.len());
            let end = (start + length).min(text.len());
            text.replace_range(start..end, &instead);
            let _ = parse_plan("f.json", text.as_bytes(), None);
        }
    }
}
