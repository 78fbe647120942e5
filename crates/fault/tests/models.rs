//! What models are drawn into, request by request: when a block goes bad, who notices, and what heals it.

mod carrier;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rotproof_block::{Context, Operation, Phase, Time};
use rotproof_fault::{
    BLOCK_BYTES, Effect, Engine, EngineOptions, FaultEntry, Header, Plan, Replay, ResolvedRule, Rule,
};

const SECTOR: u64 = 512;

/// A device in memory under an engine.
struct Disk {
    engine: Arc<Engine>,
    carrier: carrier::Disk,
}

/// How a request ended.
#[derive(Debug, PartialEq)]
struct Ended {
    succeeds: bool,
    delay: Duration,
    data: Vec<u8>,
}

impl Disk {
    fn new(rules: Vec<Rule>, size: u64) -> Self {
        Self::with(rules.into_iter().map(ResolvedRule::from).collect(), size)
    }

    fn with(rules: Vec<ResolvedRule>, size: u64) -> Self {
        let engine = Engine::new(rules, EngineOptions { seed: 1, device_size: size });
        Self { carrier: carrier::Disk::new(&engine, size), engine }
    }

    /// The models of `texts`, drawn.
    fn of(texts: &[&str], seed: u64, size: u64) -> (Self, Plan) {
        let entries: Vec<FaultEntry> =
            texts.iter().map(|text| text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))).collect();
        let plan = Plan::draw(&entries, seed, &rotproof_fault::SiteList::unnamed(Some(size)));
        (Self::new(plan.rules.clone(), size), plan)
    }

    fn carry(&mut self, operation: Operation, offset: u64, length: u64, fill: u8, ms: u64) -> Ended {
        let context = Context { phase: Phase::Run, submitted: Time(ms * 1_000_000), ..Context::default() };
        let header = Header { operation, offset, length, context };
        let payload = if operation == Operation::WRITE { vec![fill; length as usize] } else { Vec::new() };
        let ended = self.carrier.carry(&header, &payload);
        Ended { succeeds: ended.succeeds(), delay: ended.delay, data: ended.data }
    }

    fn read(&mut self, block: u64, ms: u64) -> Ended {
        self.carry(Operation::Read, block * BLOCK_BYTES, BLOCK_BYTES, 0, ms)
    }

    fn write(&mut self, block: u64, fill: u8, ms: u64) -> Ended {
        self.carry(Operation::WRITE, block * BLOCK_BYTES, BLOCK_BYTES, fill, ms)
    }

    /// The blocks that cannot be read.
    fn unreadable(&mut self, ms: u64) -> Vec<u64> {
        let blocks = self.carrier.medium.len() as u64 / BLOCK_BYTES;
        (0..blocks).filter(|&block| !self.read(block, ms).succeeds).collect()
    }
}

fn rule(text: &str) -> Rule {
    text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
}

#[test]
fn a_block_that_has_gone_bad_fails_until_it_is_rewritten_and_is_then_good_for_good() {
    let mut disk =
        Disk::new(vec![rule("read, offset=8KiB, at=10ms, until_rewritten: medium_error")], 1 << 16);
    assert!(disk.read(2, 0).succeeds, "it is not bad yet");
    assert!(!disk.read(2, 10).succeeds && !disk.read(2, 11).succeeds);
    assert!(disk.carry(Operation::WRITE, 2 * BLOCK_BYTES, SECTOR, 1, 12).succeeds);
    assert!(!disk.read(2, 13).succeeds, "a sector of it is not the block");
    assert!(disk.write(2, 1, 14).succeeds);
    assert_eq!(disk.read(2, 15).data, [1; BLOCK_BYTES as usize]);
    assert!(disk.read(2, 10_000).succeeds);
    assert_eq!(disk.engine.report()[0].hits, 3);
}

#[test]
fn a_block_that_is_rewritten_before_anybody_has_noticed_was_never_seen_to_be_bad() {
    for heals in [Operation::WRITE, Operation::WriteZeroes, Operation::Discard] {
        let mut disk =
            Disk::new(vec![rule("read, offset=8KiB, at=10ms, until_rewritten: medium_error")], 1 << 16);
        disk.write(2, 1, 0);
        assert!(disk.carry(heals, 0, 4 * BLOCK_BYTES, 2, 20).succeeds);
        assert!(disk.read(2, 21).succeeds, "{heals:?}");
        assert_eq!(disk.engine.report()[0].hits, 0);
    }
}

#[test]
fn a_rewrite_before_the_block_goes_bad_heals_nothing() {
    let mut disk =
        Disk::new(vec![rule("read, offset=8KiB, at=10ms, until_rewritten: medium_error")], 1 << 16);
    disk.read(0, 0);
    disk.write(2, 1, 9);
    assert!(!disk.read(2, 10).succeeds);
}

#[test]
fn spares_are_used_up_by_what_is_noticed_and_by_what_is_not() {
    let text = "read, offset=0..16KiB, at=0ms, until_rewritten=2: medium_error";
    let mut disk = Disk::new(vec![rule(text)], 1 << 16);
    assert!(!disk.read(0, 1).succeeds, "noticed");
    for block in 0..4 {
        disk.write(block, 1, 2);
        disk.write(block, 1, 3);
    }
    assert_eq!(disk.unreadable(4), [2, 3]);
}

#[test]
fn time_begins_with_the_first_request_of_the_load_though_no_rule_is_concerned() {
    let mut disk = Disk::new(vec![rule("read, offset=8KiB, at=10ms: error")], 1 << 16);
    disk.read(0, 1000);
    disk.write(0, 1, 1009);
    assert!(!disk.read(2, 1010).succeeds);
}

#[test]
fn latent_sector_errors_are_the_blocks_drawn_and_a_scrub_that_rewrites_them_ends_them() {
    let (mut disk, plan) =
        Disk::of(&["name=media: model(latent_sector_errors, acceleration=1e6)"], 3, 8 << 20);
    let [only] = &plan.rules[..] else { panic!("all of them lie behind the device: {:?}", plan.rules) };
    let drawn: Vec<u64> = only.matching.offset.iter().map(|range| range.start / BLOCK_BYTES).collect();
    assert!(drawn.len() > 5, "{drawn:?}");
    disk.write(drawn[0], 1, 0);
    assert_eq!(disk.unreadable(1), drawn[1..], "the first was rewritten before anybody noticed");
    for &block in &drawn {
        disk.write(block, 1, 2);
    }
    assert_eq!(disk.unreadable(3), [0u64; 0]);
    assert_eq!(disk.engine.report()[0].name, "media.1");
}

#[test]
fn rot_shows_in_exactly_its_bits_from_its_time_on() {
    let (mut disk, plan) = Disk::of(&["name=rot: model(bit_rot, acceleration=1e6, over=1s)"], 1, 8 << 20);
    let size = disk.carrier.medium.len();
    let flipped = |disk: &mut Disk, ms: u64| {
        let blocks = size as u64 / BLOCK_BYTES;
        let data: Vec<u8> = (0..blocks).flat_map(|block| disk.read(block, ms).data).collect();
        let bits = |byte: &u8| u64::from(byte.count_ones());
        data.iter().map(bits).sum::<u64>()
    };
    assert!(plan.rules.len() > 3, "{:?}", plan.rules);
    assert!(flipped(&mut disk, 0) < plan.rules.len() as u64);
    assert_eq!(flipped(&mut disk, 1000), plan.rules.len() as u64);
    let Effect::BitFlip(rotproof_fault::Bits::At { byte, bit }) = plan.rules[0].effect else {
        panic!("a bit")
    };
    let block = plan.rules[0].matching.offset.0[0].start / BLOCK_BYTES;
    assert_eq!(disk.read(block, 1001).data[byte as usize] & 1 << bit, 1 << bit);
    // A read of another sector shows nothing of it.
    let elsewhere = (u64::from(byte) / SECTOR + 1) % 8 * SECTOR;
    let part = disk.carry(Operation::Read, block * BLOCK_BYTES + elsewhere, SECTOR, 0, 1002);
    assert_eq!(part.data, [0; SECTOR as usize]);
    disk.write(block, 0, 1003);
    assert_eq!(disk.read(block, 1004).data, [0; BLOCK_BYTES as usize], "what is rewritten is fresh");
}

#[test]
fn undetected_disk_errors_come_as_often_as_they_are_asked_for() {
    let text = "name=ude: model(undetected_disk_errors, dropped=0.01, far_off_track=0.02, read=0.03)";
    let (mut disk, _) = Disk::of(&[text], 1, 32 << 20);
    let blocks = 8192u64;
    for block in 0..blocks {
        assert!(disk.write(block, 1, 0).succeeds, "it says that all went well");
    }
    for block in 0..blocks {
        assert!(disk.read(block, 1).succeeds);
    }
    let report = disk.engine.report();
    let names: Vec<&str> = report.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["ude.dropped", "ude.far_off_track", "ude.read"]);
    for (rule, probability) in report.iter().zip([0.01, 0.02, 0.03]) {
        // A misdirected write has a record for each of the two blocks that suffer.
        let hits = if rule.name == "ude.far_off_track" { rule.hits as f64 / 2.0 } else { rule.hits as f64 };
        let mean = blocks as f64 * probability;
        assert!((hits - mean).abs() <= 5.0 * mean.sqrt(), "{}: {hits}, not about {mean}", rule.name);
    }
}

#[test]
fn a_block_beside_its_track_reads_now_old_and_now_new() {
    let (mut disk, plan) =
        Disk::of(&["name=ude: model(undetected_disk_errors, near_off_track=0.5)"], 1, 256 * BLOCK_BYTES);
    let near: Vec<u64> =
        plan.rules[0].matching.offset.iter().map(|range| range.start / BLOCK_BYTES).collect();
    for fill in [1, 2] {
        (0..256).for_each(|block| assert!(disk.write(block, fill, 0).succeeds));
    }
    for block in 0..256 {
        let seen: Vec<u8> = (0..60).map(|_| disk.read(block, 1).data[0]).collect();
        // Each with a probability of 2^-60, that all are alike.
        let both = [1, 2].map(|fill| seen.contains(&fill));
        assert_eq!(both, [near.contains(&block), true], "block {block}");
    }
}

#[test]
fn a_slow_device_is_slow_within_its_spells_and_a_stopped_one_lets_nobody_go_before_their_end() {
    for form in ["transient", "stops"] {
        let text = format!("model(fail_slow, form={form}, share=30%, spell=400h, over=10s, slowness=70ms)");
        let (mut disk, plan) = Disk::of(&[&text], 1, 1 << 20);
        let windows: Vec<(u128, u128)> = plan
            .rules
            .iter()
            .map(|rule| match rule.schedule {
                rotproof_fault::Schedule::Time { at, lasts: Some(lasts) } => {
                    (at.0.as_nanos(), (at.0 + lasts.0).as_nanos())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let mut slow = 0;
        for ms in 0..10_000u64 {
            let now = u128::from(ms) * 1_000_000;
            let window = windows.iter().find(|(from, until)| (*from..*until).contains(&now));
            let ended = disk.write(ms % 256, 1, ms);
            assert!(ended.succeeds);
            assert_eq!(ended.delay > Duration::ZERO, window.is_some(), "{form} at {ms} ms");
            slow += usize::from(window.is_some());
            if let (Some((_, until)), "stops") = (window, form) {
                assert!(now + ended.delay.as_nanos() >= *until);
            }
        }
        assert!(slow > 1000, "{slow}");
    }
}

#[test]
fn a_dying_disk_gets_worse_and_its_spares_run_out() {
    let text = "name=d: model(dying_disk, errors=60, spares=20, over=10s, delay_from=1ms, delay_to=1s)";
    let (mut disk, plan) = Disk::of(&[text], 1, 4 << 20);
    let bad: Vec<usize> = [1000, 5000, 10_000].map(|ms| disk.unreadable(ms).len()).to_vec();
    assert!(bad[0] < bad[1] && bad[1] < bad[2], "{bad:?}");
    for block in 0..1024 {
        disk.write(block, 1, 10_001);
    }
    assert_eq!(disk.unreadable(10_002).len(), bad[2] - 20, "twenty could be remapped");
    let mean = |disk: &mut Disk, ms: u64| {
        (0..1000).map(|block| disk.read(block, ms).delay.as_secs_f64()).sum::<f64>() / 1000.0
    };
    let (mut disk, _) =
        Disk::of(&["model(dying_disk, errors=0, over=10s, delay_from=1ms, delay_to=1s)"], 1, 4 << 20);
    let (first, last) = (mean(&mut disk, 0), mean(&mut disk, 10_000));
    // Five standard errors of the mean of a thousand exponential delays.
    assert!((first / 0.001 - 1.0).abs() < 0.16 && (last - 1.0).abs() < 0.16, "{first} {last}");
    assert!(plan.rules.iter().all(|rule| rule.name.as_deref().is_some_and(|name| name.starts_with("d."))));
}

#[test]
fn a_failed_disk_is_gone_for_every_operation_from_its_moment_on() {
    let (mut disk, plan) =
        Disk::of(&["name=dead: model(whole_disk_failure, acceleration=200, over=10s)"], 1, 1 << 20);
    let [only] = &plan.rules[..] else { panic!("{:?}", plan.rules) };
    let rotproof_fault::Schedule::Time { at, lasts: None } = only.schedule else { panic!("{only}") };
    let ms = at.0.as_millis() as u64;
    assert!(disk.read(0, 0).succeeds && disk.write(0, 1, ms.saturating_sub(1)).succeeds);
    for operation in [Operation::Read, Operation::WRITE, Operation::Discard] {
        assert!(!disk.carry(operation, 0, BLOCK_BYTES, 0, ms + 1).succeeds, "{operation:?}");
    }
    assert!(!disk.carry(Operation::Flush, 0, 0, 0, ms + 2).succeeds);
}

#[test]
fn the_ledger_of_models_replays_to_the_same_ledger() {
    let texts = [
        "name=media: model(latent_sector_errors, acceleration=1e6, over=1s)",
        "name=ude: model(undetected_disk_errors, dropped=0.05, near_off_track=0.05, far_off_track=0.05, read=0.05)",
        "name=rot: model(bit_rot, acceleration=1e6, over=1s)",
        "name=slow: model(fail_slow, form=transient, share=5%, over=1s)",
        "name=dying: model(dying_disk, over=1s)",
    ];
    let size = 4u64 << 20;
    let run = |disk: &mut Disk| {
        let ended: Vec<Ended> = (0..4000u64)
            .map(|n| {
                let block = n * 7919 % 1024;
                let ms = n / 3;
                if n % 3 == 0 { disk.write(block, n as u8, ms) } else { disk.read(block, ms) }
            })
            .collect();
        (disk.engine.ledger().records().expect("in memory"), ended)
    };
    let (mut disk, plan) = Disk::of(&texts, 1, size);
    let (records, ended) = run(&mut disk);
    let replay = Replay::new(&records, &plan.rules).expect("its own ledger");
    let rules = plan.rules.iter().cloned().zip(0..).map(|(rule, index)| ResolvedRule {
        recorded: Some(replay.of_rule(index)),
        ..ResolvedRule::from(rule)
    });
    let (again, same) = run(&mut Disk::with(rules.collect(), size));
    assert!(records.len() > 500, "{}", records.len());
    assert_eq!(again, records);
    assert!(same == ended, "requests end alike");
    assert_eq!(replay.missing(&again[..]).expect("in memory"), [0u64; 0]);
}

/// One request of a random run: operation, first sector, sectors.
fn any_request() -> impl Strategy<Value = (Operation, u64, u64)> {
    let operation = prop_oneof![
        5 => Just(Operation::Read),
        3 => Just(Operation::WRITE),
        1 => Just(Operation::WriteZeroes),
        1 => Just(Operation::Discard),
        1 => Just(Operation::Flush),
    ];
    (operation, 0u64..40, 1u64..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// The slow oracle keeps for each block whether it is good, bad, or has been put right.
    #[test]
    fn blocks_go_bad_and_are_healed_as_a_list_of_blocks_says(
        bad_at in proptest::collection::vec(proptest::option::of(0u64..60), 5),
        requests in proptest::collection::vec(any_request(), 1..80),
        spares in proptest::option::of(0u32..4),
    ) {
        // Four blocks and a piece of a fifth.
        let size = 4 * BLOCK_BYTES + 3 * SECTOR;
        let spare = spares.map_or_else(String::new, |spares| format!("={spares}"));
        let texts: Vec<(u64, u64, Rule)> = bad_at.iter().zip(0u64..).filter_map(|(at, block)| {
            let at = (*at)?;
            let text = format!(
                "read, offset={}, at={at}ms, until_rewritten{spare}: medium_error", block * BLOCK_BYTES
            );
            Some((block, at, rule(&text)))
        }).collect();
        let mut disk = Disk::new(texts.iter().map(|(.., rule)| rule.clone()).collect(), size);
        let mut healed = [false; 5];
        let mut spares_left = [spares.unwrap_or(u32::MAX); 5];
        for ((operation, start, count), ms) in requests.into_iter().zip(0u64..) {
            let offset = (start * SECTOR).min(size - SECTOR);
            let end = (offset + count * SECTOR).min(size);
            let (offset, length) = if operation == Operation::Flush { (0, 0) } else { (offset, end - offset) };
            let is_bad = |block: u64, healed: &[bool; 5]| {
                texts.iter().any(|(one, at, _)| *one == block && *at <= ms) && !healed[block as usize]
            };
            let mut fails = false;
            for block in 0..5u64 {
                let first = block * BLOCK_BYTES;
                let last = (first + BLOCK_BYTES).min(size);
                let touches = length > 0 && offset < last && offset + length > first;
                if operation == Operation::Read {
                    fails |= touches && is_bad(block, &healed);
                } else if touches && offset <= first && offset + length >= last && is_bad(block, &healed) {
                    let left = &mut spares_left[block as usize];
                    healed[block as usize] = *left > 0;
                    *left = left.saturating_sub(1);
                }
            }
            let ended = disk.carry(operation, offset, length, 7, ms);
            prop_assert_eq!(ended.succeeds, !fails, "{:?} at {} ms", operation, ms);
        }
    }
}
