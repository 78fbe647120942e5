//! Rules that come, go and pause while the engine works: each request goes by one set of rules from its decision to
//! its end, names are unique, and what a rule has left behind goes with it.

mod carrier;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rotproof_block::{ContentHash, Context, ErrorKind, Operation, Phase};
use rotproof_fault::{
    BLOCK_BYTES, Engine, EngineOptions, Gate, Header, Passage, ResolvedRule, Rule, RuleState,
};

use crate::carrier::{Disk, Ended};

const DEVICE_BLOCKS: u64 = 64;
const BLOCK: [u8; BLOCK_BYTES as usize] = [7; BLOCK_BYTES as usize];

fn resolved(text: &str) -> ResolvedRule {
    text.parse::<Rule>().unwrap_or_else(|error| panic!("{text}: {error}")).into()
}

fn engine(rules: &[&str]) -> Arc<Engine> {
    let rules = rules.iter().map(|text| resolved(text)).collect();
    Engine::new(rules, EngineOptions { seed: 1, device_size: DEVICE_BLOCKS * BLOCK_BYTES })
}

fn add(engine: &Engine, rules: &[&str]) -> Vec<Arc<str>> {
    engine.add_rules(rules.iter().map(|text| resolved(text)).collect()).expect("names that are free")
}

fn header(operation: Operation, block: u64) -> Header {
    let context = Context { phase: Phase::Run, ..Context::default() };
    Header { operation, offset: block * BLOCK_BYTES, length: BLOCK_BYTES, context }
}

/// A device full of [`BLOCK`].
fn disk(gate: &Gate) -> Disk {
    Disk { gate: gate.clone(), medium: BLOCK.repeat(DEVICE_BLOCKS as usize) }
}

fn begin(gate: &Gate, header: &Header, payload: &[u8]) -> Option<Passage> {
    gate.begin(header, payload)
}

/// The device gives its answer, and this is what the reader sees.
fn end_read(gate: &Gate, header: &Header, passage: Option<Passage>) -> Ended {
    disk(gate).finish(header, passage, &[], false)
}

fn read(gate: &Gate, block: u64) -> Ended {
    disk(gate).carry(&header(Operation::Read, block), &[])
}

/// Whether a read of `block` brings other data than there are.
fn lies(gate: &Gate, block: u64) -> bool {
    read(gate, block).data != BLOCK
}

fn write(gate: &Gate, block: u64, payload: &[u8]) {
    disk(gate).carry(&header(Operation::WRITE, block), payload);
}

#[test]
fn a_paused_rule_neither_acts_nor_counts_and_goes_on_where_it_was() {
    let engine = engine(&["name=third, read, every=3: error"]);
    let gate = engine.gate();
    let fails =
        |count: usize| -> Vec<bool> { (0..count).map(|_| read(&gate, 0).failure.is_some()).collect() };
    assert_eq!(fails(2), [false, false]);
    engine.set_state("third", RuleState::Paused).expect("it is there");
    assert_eq!(fails(4), [false; 4]);
    assert_eq!((engine.report()[0].state, engine.report()[0].matches), (RuleState::Paused, 2));
    engine.set_state("third", RuleState::Active).expect("it is there");
    assert_eq!(fails(2), [true, false]);
    engine.set_state("third", RuleState::Removed).expect("it is there");
    assert_eq!(fails(6), [false; 6]);
    let report = &engine.report()[0];
    assert_eq!((report.state, report.matches, report.hits), (RuleState::Removed, 4, 1));
}

#[test]
fn bad_places_rest_with_their_rule_and_are_forgotten_with_it() {
    for (rule, hit_by_write) in [
        ("name=bad, offset=0, once, sticky: bit_flip(byte=0, bit=0)", false),
        ("name=bad, write, offset=0, once, sticky: zeros", true),
        ("name=bad, read, offset=0, once, sticky: medium_error", false),
    ] {
        let engine = engine(&[rule]);
        let gate = engine.gate();
        let is_bad = || {
            let ended = read(&gate, 0);
            ended.failure.is_some() || ended.data != BLOCK
        };
        if hit_by_write {
            write(&gate, 0, &BLOCK);
        }
        assert_eq!([is_bad(), is_bad()], [true, true], "{rule}");
        engine.set_state("bad", RuleState::Paused).expect("it is there");
        assert!(!is_bad(), "{rule}");
        engine.set_state("bad", RuleState::Active).expect("it is there");
        assert!(is_bad(), "{rule}");
        engine.set_state("bad", RuleState::Removed).expect("it is there");
        assert!(!is_bad(), "{rule}");
        engine.report();
        let again = begin(&gate, &header(Operation::Read, 0), &[]);
        assert!(again.is_none(), "{rule}: nothing is left to look at, but {again:?}");
    }
}

#[test]
fn a_place_that_would_be_remapped_rests_while_its_rule_is_paused() {
    let engine = engine(&["name=sector, offset=0, once, until_rewritten: bit_flip(byte=0, bit=0)"]);
    let gate = engine.gate();
    assert!(lies(&gate, 0));
    engine.set_state("sector", RuleState::Paused).expect("it is there");
    write(&gate, 0, &BLOCK);
    engine.set_state("sector", RuleState::Active).expect("it is there");
    assert!(lies(&gate, 0));
    write(&gate, 0, &BLOCK);
    assert!(!lies(&gate, 0));
}

#[test]
fn damage_that_is_stored_stays_when_its_rule_goes() {
    let engine = engine(&["name=rot, write, offset=0: bit_flip(byte=0, bit=0)"]);
    let gate = engine.gate();
    write(&gate, 0, &BLOCK);
    for state in [RuleState::Paused, RuleState::Removed] {
        engine.set_state("rot", state).expect("it is there");
        assert!(lies(&gate, 0), "{state:?}");
    }
    write(&gate, 0, &BLOCK);
    assert!(!lies(&gate, 0));
}

#[test]
fn a_device_that_is_gone_or_read_only_is_so_by_the_rules_that_act() {
    let engine = engine(&["name=ro, write, once: read_only", "name=gone, read, nth=2: gone"]);
    let gate = engine.gate();
    let failure = |operation, payload: &[u8]| {
        let ended = disk(&gate).carry(&header(operation, 0), payload);
        ended.failure.map(|errno| errno.to_string())
    };
    let both = || [failure(Operation::Read, &[]), failure(Operation::WRITE, &BLOCK)];
    let error = |name: &str| Some(name.to_owned());
    assert_eq!(both(), [None, error("EROFS")]);
    assert_eq!(both(), [error("ENODEV"), error("ENODEV")]);
    engine.set_state("gone", RuleState::Paused).expect("it is there");
    assert_eq!(both(), [None, error("EROFS")]);
    engine.set_state("gone", RuleState::Active).expect("it is there");
    assert_eq!(both(), [error("ENODEV"), error("ENODEV")]);
    engine.set_state("gone", RuleState::Removed).expect("it is there");
    engine.set_state("ro", RuleState::Removed).expect("it is there");
    assert_eq!(both(), [None, None]);
}

#[test]
fn a_stale_read_shows_no_version_that_was_overwritten_while_its_rule_was_paused() {
    let engine = engine(&["name=old, read, offset=0: stale_read"]);
    let gate = engine.gate();
    // Block 0 is read back as `BLOCK`, whatever was written, but for what the engine shows instead.
    write(&gate, 0, &BLOCK);
    engine.set_state("old", RuleState::Paused).expect("it is there");
    write(&gate, 0, &BLOCK);
    engine.set_state("old", RuleState::Active).expect("it is there");
    read(&gate, 0);
    assert_eq!(engine.ledger().len(), 0, "nobody has seen the previous version");
    write(&gate, 0, &BLOCK);
    read(&gate, 0);
    assert_eq!(engine.ledger().len(), 1);
}

#[test]
fn a_request_under_way_goes_by_the_rules_as_they_were() {
    let content = ContentHash::of(&BLOCK);
    let by_content = format!("name=c, read, content={content}: error");
    let read_header = header(Operation::Read, 0);

    // One that comes meanwhile is for the next request.
    let engine_1 = engine(&["name=other, read, content=0123456789abcdef0123456789abcdef: error"]);
    let gate = engine_1.gate();
    let passage = begin(&gate, &read_header, &[]);
    assert!(passage.is_some(), "it is to be looked at");
    add(&engine_1, &[&by_content]);
    assert_eq!(end_read(&gate, &read_header, passage).failure, None);
    assert!(read(&gate, 0).failure.is_some());

    // One that pauses meanwhile still acts.
    let engine_2 = engine(&[&by_content]);
    let gate = engine_2.gate();
    let passage = begin(&gate, &read_header, &[]);
    engine_2.set_state("c", RuleState::Paused).expect("it is there");
    assert!(end_read(&gate, &read_header, passage).failure.is_some());
    assert!(read(&gate, 0).failure.is_none());

    // And a place that is forgotten meanwhile is still bad.
    let engine_3 = engine(&["name=place, offset=0, once, sticky: bit_flip(byte=0, bit=0)"]);
    let gate = engine_3.gate();
    assert!(lies(&gate, 0));
    let passage = begin(&gate, &read_header, &[]);
    engine_3.set_state("place", RuleState::Removed).expect("it is there");
    // Other queues go on, and reports are asked for.
    assert!(!lies(&engine_3.gate(), 0));
    engine_3.report();
    assert!(end_read(&gate, &read_header, passage).data != BLOCK);
    assert!(!lies(&gate, 0));
}

#[test]
fn every_request_sees_one_set_of_rules_while_they_come_and_go() {
    let content = ContentHash::of(&BLOCK);
    let engine = engine(&[]);
    let is_over = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let gate = engine.gate();
                    let mut seen = [0u64; 4];
                    while !is_over.load(Ordering::Relaxed) {
                        let header = header(Operation::Read, 0);
                        let passage = begin(&gate, &header, &[]);
                        // The device below takes its time.
                        std::thread::yield_now();
                        let slept = end_read(&gate, &header, passage).delay.as_millis() as usize;
                        seen[slept] += 1;
                    }
                    seen
                })
            })
            .collect();
        for round in 0..1000 {
            let (place, data) = (format!("place-{round}"), format!("content-{round}"));
            // The first is decided on before the read, the second when it is back.
            let rules = [
                format!("name={place}, read, offset=0: delay(1ms)"),
                format!("name={data}, read, content={content}: delay(2ms)"),
            ];
            add(&engine, &[&rules[0], &rules[1]]);
            std::thread::yield_now();
            engine.set_state(&place, RuleState::Removed).expect("it is there");
            engine.set_state(&data, RuleState::Removed).expect("it is there");
            std::thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
        let add_up = |sum: [u64; 4], one: [u64; 4]| std::array::from_fn(|index| sum[index] + one[index]);
        readers.into_iter().map(|reader| reader.join().expect("no panic")).fold([0; 4], add_up)
    });
    let [_, place_alone, content_alone, both] = seen;
    assert_eq!(place_alone, 0, "there was never a set with the first and without the second: {seen:?}");
    assert!(both > 0, "the rules were met: {seen:?}");
    let hits: u64 = engine.report().iter().map(|report| report.hits).sum();
    assert_eq!(hits, 2 * both + content_alone, "each is on record");
}

#[test]
fn a_name_is_that_of_one_rule_until_it_is_removed() {
    let engine = engine(&["name=fault-2: error", "read: error"]);
    let names =
        |engine: &Engine| -> Vec<String> { engine.report().into_iter().map(|report| report.name).collect() };
    assert_eq!(names(&engine), ["fault-2", "fault-3"], "the second by position has a name that is free");
    assert_eq!(add(&engine, &["write: error", "name=rot: error"]), ["fault-4".into(), "rot".into()]);
    for taken in ["name=rot: zeros", "name=fault-4: zeros"] {
        let error = engine.add_rules(vec![resolved("read: zeros"), resolved(taken)]).expect_err(taken);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("already"), "{error}");
    }
    let twice = vec![resolved("name=new: zeros"), resolved("name=new: ones")];
    assert!(engine.add_rules(twice).is_err());
    assert_eq!(names(&engine).len(), 4, "nothing was added of what was refused");
    engine.set_state("rot", RuleState::Removed).expect("it is there");
    add(&engine, &["name=rot, read: ones"]);
    engine.set_state("rot", RuleState::Paused).expect("the new one");
    let states: Vec<RuleState> = engine.report().into_iter().skip(3).map(|report| report.state).collect();
    assert_eq!(states, [RuleState::Removed, RuleState::Paused]);
}

#[test]
fn rules_of_a_plan_with_one_name_are_told_apart() {
    let engine = engine(&["name=rot: zeros", "name=rot: ones"]);
    let names: Vec<String> = engine.report().into_iter().map(|report| report.name).collect();
    assert_eq!(names, ["rot", "fault-2"]);
}

#[test]
fn a_name_that_no_rule_has_is_explained() {
    let engine = engine(&["name=rotten: zeros"]);
    let complaint = |name: &str| {
        let error = engine.set_state(name, RuleState::Paused).expect_err("no such rule");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    };
    assert!(complaint("roten").contains("did you mean `rotten`"));
    assert!(complaint("zzz").contains("a list of the rules names them"));
    engine.set_state("rotten", RuleState::Removed).expect("it is there");
    assert!(complaint("rotten").contains("was removed"));
    assert!(complaint("zzz").contains("none at all"));
}
