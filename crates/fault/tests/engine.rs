//! What the engine promises beside single decisions: purity, exact counts, rules added while it works, and a cost
//! that does not grow with rules that do not match.

use std::sync::Arc;

use rotproof_block::{ContentHash, Context, Operation, Phase, Time};
use rotproof_fault::{
    BLOCK_BYTES, Bits, Data, Effect, Engine, EngineOptions, Gate, Header, Replay, ResolvedRule, Rule, Step,
    TargetContent, TargetKey,
};

const DEVICE_BYTES: u64 = 1 << 30;

fn rule(text: &str) -> Rule {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn engine_with(seed: u64, rules: Vec<ResolvedRule>) -> Arc<Engine> {
    Engine::new(rules, EngineOptions { seed, device_size: DEVICE_BYTES })
}

fn engine(rules: &[&str]) -> Arc<Engine> {
    engine_with(1, rules.iter().map(|text| rule(text).into()).collect())
}

fn header(operation: Operation, offset: u64, length: u64) -> Header {
    Header { operation, offset, length, context: Context { phase: Phase::Run, ..Context::default() } }
}

/// Writes as a layer over a device that always succeeds and of which nothing can be read.
fn write(gate: &Gate, offset: u64, payload: &[u8]) {
    let header = header(Operation::WRITE, offset, payload.len() as u64);
    let Some(mut passage) = gate.begin(&header, payload) else { return };
    loop {
        match passage.next(Data::Write(payload), || Time(0)) {
            Step::Read(_) => passage.answer(None),
            Step::Submit => passage.submitted(true),
            Step::Wait(_) | Step::Hang(_) => {}
            Step::Complete(_) => return,
        }
    }
}

/// Whether something happens to a request before it is passed on.
fn acts(gate: &Gate, header: &Header, payload: &[u8]) -> bool {
    gate.begin(header, payload).is_some_and(|passage| !passage.is_quiet())
}

#[test]
fn every_500_of_interleaved_large_and_small_writes_hits_the_floor_of_a_500th_of_the_blocks() {
    let engine = engine(&["write, every=500: bit_flip"]);
    let gate = engine.gate();
    let payload = vec![1; 32 * 4096];
    let mut blocks = 0;
    for n in 0..2_000u64 {
        let count = 1 + n % 32;
        write(&gate, n * 32 * BLOCK_BYTES % DEVICE_BYTES, &payload[..(count * BLOCK_BYTES) as usize]);
        blocks += count;
    }
    assert_eq!(engine.report()[0].matches, blocks);
    assert_eq!(engine.ledger().len() as u64, blocks / 500);
}

#[test]
fn two_queues_on_two_threads_share_one_count() {
    let engine = engine(&["write, every=7: error"]);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let engine = Arc::clone(&engine);
            scope.spawn(move || {
                let gate = engine.gate();
                for n in 0..5_000 {
                    write(&gate, (thread * 5_000 + n) * BLOCK_BYTES, &[0; BLOCK_BYTES as usize]);
                }
            });
        }
    });
    assert_eq!(engine.report()[0].hits, 10_000 / 7);
    assert_eq!(engine.report()[0].matches, 10_000);
}

#[test]
fn the_bit_that_chance_flips_depends_on_seed_rule_place_and_count_alone() {
    let flipped = |seed: u64, rules: &[&str], offset: u64| {
        let rules = rules.iter().map(|text| rule(text).into()).collect();
        let engine = engine_with(seed, rules);
        write(&engine.gate(), offset, &[0; 4096]);
        engine.ledger().records().expect("in memory").last().map(|record| record.effect)
    };
    let random = ["write: bit_flip(random)"];
    let first = flipped(1, &random, 0);
    assert!(matches!(first, Some(Effect::BitFlip(Bits::At { byte: 0..4096, bit: 0..8 }))), "{first:?}");
    assert_eq!(first, flipped(1, &random, 0));
    assert_ne!(first, flipped(2, &random, 0));
    assert_ne!(first, flipped(1, &random, 4096));
    assert_ne!(first, flipped(1, &["read: error", "write: bit_flip(random)"], 0));
}

#[test]
fn random_bits_reach_every_part_of_the_block() {
    let engine = engine(&["write: bit_flip(random)"]);
    let gate = engine.gate();
    for n in 0..2_000 {
        write(&gate, n * BLOCK_BYTES, &[0; 4096]);
    }
    let mut eighths = [0; 8];
    let mut bits = [0; 8];
    for record in engine.ledger().records().expect("in memory") {
        let Effect::BitFlip(Bits::At { byte, bit }) = record.effect else { panic!("{:?}", record.effect) };
        eighths[byte as usize / 512] += 1;
        bits[bit as usize] += 1;
    }
    // 250 expected in each of the eight, standard deviation 15.
    assert!(eighths.iter().chain(&bits).all(|count| (175..325).contains(count)), "{eighths:?} {bits:?}");
}

#[test]
fn a_rule_added_later_keeps_the_counts_and_places_of_the_others() {
    let engine = engine(&["write, every=3: bit_flip"]);
    let gate = engine.gate();
    for n in 0..4 {
        write(&gate, n * BLOCK_BYTES, &[0; 4096]);
    }
    engine.add_rules(vec![rule("name=late, write, offset=20480: zeros").into()]).expect("a new name");
    for n in 4..6 {
        write(&gate, n * BLOCK_BYTES, &[0xff; 4096]);
    }
    let report = engine.report();
    assert_eq!((report[0].matches, report[0].hits), (6, 2));
    assert_eq!((report[1].name.as_str(), report[1].matches, report[1].hits), ("late", 1, 1));
}

#[test]
fn the_report_counts_every_aim_that_a_merged_request_met() {
    let engine = engine(&["write, offset=8192|0|40960|4096: error"]);
    write(&engine.gate(), 0, &[0; 4 * 4096]);
    let report = engine.report();
    assert_eq!(report[0].hits, 1);
    let hits: Vec<_> = report[0].targets.iter().map(|aim| (aim.target.clone(), aim.hits)).collect();
    assert_eq!(
        hits,
        [8192, 0, 40960, 4096].map(|offset| (TargetKey::Offset(offset), u64::from(offset != 40960)))
    );
}

#[test]
fn a_target_hits_the_contents_that_it_was_resolved_to_and_says_which() {
    let content = |fill: u8| ContentHash::of(&[fill; 4096]);
    let contents = [1, 2]
        .map(|fill| TargetContent {
            content: content(fill),
            label: format!("block {fill} of file a"),
            beginning: None,
        })
        .to_vec();
    let rule = rule("write, target=unique(2): bit_flip");
    let engine = engine_with(1, vec![ResolvedRule { contents, ..ResolvedRule::from(rule) }]);
    let gate = engine.gate();
    for fill in [0, 2, 3, 2] {
        write(&gate, u64::from(fill) * BLOCK_BYTES, &[fill; 4096]);
    }
    let records = engine.ledger().records().expect("in memory");
    let expected = TargetKey::Content { hash: content(2), label: "block 2 of file a".into() };
    assert_eq!(
        records.iter().map(|record| record.target.clone()).collect::<Vec<_>>(),
        [Some(expected.clone()), Some(expected)]
    );
    assert_eq!(engine.report()[0].targets.iter().map(|aim| aim.hits).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn content_and_target_together_hit_what_both_name() {
    let hashes = [1u8, 2].map(|fill| ContentHash::of(&[fill; 4096]));
    let rule = rule(&format!("write, content={}, target=unique(2): bit_flip", hashes[0]));
    let contents = hashes
        .map(|content| TargetContent { content, label: "one of them".to_owned(), beginning: None })
        .to_vec();
    let engine = engine_with(1, vec![ResolvedRule { contents, ..ResolvedRule::from(rule) }]);
    for fill in [1, 2] {
        write(&engine.gate(), u64::from(fill) * BLOCK_BYTES, &[fill; 4096]);
    }
    assert_eq!(
        engine.ledger().records().expect("in memory").iter().map(|record| record.offset).collect::<Vec<_>>(),
        [BLOCK_BYTES]
    );
}

#[test]
fn a_target_that_was_not_resolved_hits_nothing() {
    let engine = engine(&["write, target=unique: bit_flip"]);
    write(&engine.gate(), 0, &[1; 4096]);
    assert_eq!(engine.report()[0].matches, 0);
}

#[test]
fn a_rule_by_extent_hits_nothing_until_it_is_told_its_place_and_then_that_alone() {
    let engine =
        engine(&["write, name=placed, target=file(a, block=7, by=extent): error", "name=other: lost_write"]);
    let gate = engine.gate();
    let write_all = || (0..4).for_each(|block| write(&gate, block * BLOCK_BYTES, &[1; 4096]));
    write_all();
    assert_eq!(engine.report()[0].matches, 0);
    engine.set_place("placed", 2 * BLOCK_BYTES).expect("it waits for its place");
    write_all();
    engine.set_place("placed", BLOCK_BYTES).expect("it keeps the first");
    write_all();
    let report = engine.report();
    assert_eq!((report[0].matches, report[0].hits), (2, 2));
    assert_eq!(report[0].targets[0].target, TargetKey::Offset(2 * BLOCK_BYTES));
    for (name, offset, part) in [
        ("other", 0, "by: extent"),
        ("placd", 0, "did you mean `placed`"),
        ("placed", DEVICE_BYTES, "beyond"),
    ] {
        let error = engine.set_place(name, offset).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_replay_by_extent_goes_to_where_it_hit_then() {
    let rules = vec![rule("write, name=placed, target=file(a, block=7, by=extent): error")];
    let first = engine_with(1, vec![rules[0].clone().into()]);
    first.set_place("placed", 2 * BLOCK_BYTES).expect("it waits for its place");
    write(&first.gate(), 2 * BLOCK_BYTES, &[1; 4096]);
    let replay = Replay::new(&first.ledger().records().expect("in memory"), &rules).expect("its own ledger");
    let recorded = Some(replay.of_rule(0));
    let again = engine_with(1, vec![ResolvedRule { recorded, ..ResolvedRule::from(rules[0].clone()) }]);
    again.set_place("placed", 3 * BLOCK_BYTES).expect("it waits for its place");
    for block in 0..4 {
        write(&again.gate(), block * BLOCK_BYTES, &[1; 4096]);
    }
    assert_eq!(hit_blocks(&again), [2]);
}

#[test]
fn rules_sleep_during_setup() {
    let engine = engine(&["any: error"]);
    let mut header = header(Operation::Flush, 0, 0);
    header.context.phase = Phase::Setup;
    assert!(!acts(&engine.gate(), &header, &[]));
    header.context.phase = Phase::Check;
    assert!(acts(&engine.gate(), &header, &[]));
}

#[test]
fn a_flush_that_a_sticky_rule_has_hit_fails_ever_after() {
    let engine = engine(&["flush, nth=2, sticky: error"]);
    let gate = engine.gate();
    let fails: Vec<bool> = (0..4).map(|_| acts(&gate, &header(Operation::Flush, 0, 0), &[])).collect();
    assert_eq!(fails, [false, true, true, true]);
}

#[test]
fn equal_runs_have_equal_digests_and_different_ones_have_not() {
    let digest = |fill: u8| {
        let engine = engine(&["write, every=3: bit_flip(random)", "write, offset=0..1MiB, every=5: error"]);
        let gate = engine.gate();
        for n in 0..100 {
            write(&gate, n * BLOCK_BYTES, &[fill; 4096]);
        }
        rotproof_fault::digest(engine.ledger()).expect("in memory")
    };
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

/// Blocks of records, in order.
fn hit_blocks(engine: &Engine) -> Vec<u64> {
    engine.ledger().records().expect("in memory").iter().map(|record| record.offset / BLOCK_BYTES).collect()
}

#[test]
fn chance_hits_as_often_as_it_says_and_depends_on_block_and_visit_alone() {
    let run = |seed: u64, order: &[u64]| {
        let engine = engine_with(seed, vec![rule("write, probability=2%: bit_flip").into()]);
        let gate = engine.gate();
        for &block in order {
            write(&gate, block * BLOCK_BYTES, &[7; BLOCK_BYTES as usize]);
        }
        let mut hits = hit_blocks(&engine);
        hits.sort_unstable();
        hits
    };
    let forward: Vec<u64> = (0..20_000).map(|n| n % 10_000).collect();
    let mut backward = forward.clone();
    backward.reverse();
    let hits = run(1, &forward);
    assert_eq!(hits, run(1, &backward), "the order of the requests changes nothing");
    assert_ne!(hits, run(2, &forward));
    // 400 expected, within five standard deviations.
    assert!((300..500).contains(&hits.len()), "{}", hits.len());
}

#[test]
fn a_probability_per_request_hits_all_its_blocks_or_none() {
    let engine =
        engine(&["write, probability=50%/request: bit_flip", "write, probability=1e-3/block: error"]);
    let gate = engine.gate();
    for n in 0..1000u64 {
        write(&gate, n * 4 * BLOCK_BYTES, &[7; 4 * BLOCK_BYTES as usize]);
    }
    let report = engine.report();
    let failed =
        engine.ledger().records().expect("in memory").iter().filter(|record| record.rule == 1).count() as u64;
    assert_eq!(report[1].hits, failed);
    // One block in a thousand, four blocks a request.
    assert!((1..=15).contains(&failed), "{failed}");
    assert_eq!(report[0].hits % 4, 0);
    assert!((1600..2400).contains(&report[0].hits), "{}", report[0].hits);
}

#[test]
fn a_window_in_time_begins_with_the_load() {
    let engine = engine(&["write, at=10ms+5ms, during=prefill|run|check: error"]);
    let gate = engine.gate();
    let mut failed = Vec::new();
    for (phase, ms) in [
        (Phase::Prefill, 500),
        (Phase::Run, 1000),
        (Phase::Run, 1009),
        (Phase::Run, 1010),
        (Phase::Check, 1014),
        (Phase::Check, 1015),
    ] {
        let context = Context { phase, submitted: Time(ms * 1_000_000), ..Context::default() };
        let header = Header { context, ..header(Operation::WRITE, 0, BLOCK_BYTES) };
        if acts(&gate, &header, &[0; BLOCK_BYTES as usize]) {
            failed.push(ms);
        }
    }
    assert_eq!(failed, [1010, 1014]);
}

#[test]
fn a_rule_with_a_tag_hits_the_requests_of_that_file_alone() {
    let engine =
        engine(&["write, tag=focal.img, every=3: bit_flip", "write, tag=*.log|x?, offset=0..1GiB: zeros"]);
    let gate = engine.gate();
    let send = |tag: &str, block: u64| {
        let context =
            Context { phase: Phase::Run, tag: rotproof_block::Tag::intern(tag), ..Context::default() };
        let header = Header { context, ..header(Operation::WRITE, block * BLOCK_BYTES, BLOCK_BYTES) };
        acts(&gate, &header, &[0; BLOCK_BYTES as usize])
    };
    let hits = |tag: &str| (0..9).filter(|&block| send(tag, block)).count();
    assert_eq!(hits("focal.img"), 3);
    assert_eq!(hits("bionic.img"), 0);
    assert_eq!(hits("a.log"), 9);
    assert_eq!(hits("x1"), 9);
    assert_eq!(hits(""), 0);
    assert_eq!(engine.report()[0].matches, 9);
}
