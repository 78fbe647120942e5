//! Targets against what a device sees written.

use super::*;
use crate::probe::{Probe, Reaction, Rig, Seen};
use crate::{LoadSpec, ObjectInfo, Pattern};
use rotproof_block::{Operation, Phase};
use rotproof_spec::{Percent, Span};
use std::sync::Arc;
use std::time::Duration;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Every write of a load as a device sees it: phase, worker, block, hash.
fn recorded(spec: &LoadSpec, blocks: u64) -> (Workload, Vec<(Phase, u16, u64, ContentHash)>) {
    let probe = Probe::new(blocks, |_| Reaction::Pass).expect("a probe");
    let mut rig = Rig::new(spec, 3, Arc::clone(&probe) as Arc<dyn rotproof_block::Device>);
    if rig.workload.has_prefill() {
        rig.phase(Phase::Prefill);
    }
    rig.phase(Phase::Run);
    let writes = |seen: Seen| {
        let first = seen.offset / BLOCK;
        (first..).zip(seen.hashes).map(move |(block, hash)| (seen.phase, seen.queue, block, hash))
    };
    let is_write = |seen: &Seen| matches!(seen.operation, Operation::Write { .. });
    (rig.workload.clone(), probe.seen().into_iter().filter(is_write).flat_map(writes).collect())
}

fn random_with_duplicates() -> LoadSpec {
    LoadSpec {
        pattern: Pattern::Random,
        duplicates: crate::Duplicates::Share(Percent(0.4)),
        workers: 2,
        requests: Some(1500),
        reads: Percent(0.2),
        ..LoadSpec::default()
    }
}

fn hashes(contents: &[TargetContent]) -> Vec<ContentHash> {
    contents.iter().map(|content| content.hash).collect()
}

fn resolve_one(workload: &Workload, target: Target) -> Result<Vec<TargetContent>> {
    resolve(workload, &[target]).map(|mut resolved| resolved.remove(0))
}

#[test]
fn counts_and_places_are_those_that_a_device_sees() {
    let (workload, writes) = recorded(&random_with_duplicates(), 500);
    let mut counts: HashMap<ContentHash, u64> = HashMap::new();
    let mut holds = HashMap::new();
    for &(phase, _, block, hash) in &writes {
        if phase == Phase::Run {
            *counts.entry(hash).or_default() += 1;
        }
        holds.insert(block, hash);
    }
    let places = |hash| {
        let mut blocks: Vec<u64> =
            holds.iter().filter(|&(_, &held)| held == hash).map(|(&block, _)| block).collect();
        blocks.sort_unstable();
        blocks
    };
    let targets = [Target::MostDuplicated { count: 5 }, Target::Unique { count: 20 }];
    let resolved = resolve(&workload, &targets).expect("resolves");
    let mut ranking: Vec<u64> = counts.values().copied().collect();
    ranking.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(resolved[0].iter().map(|content| content.writes).collect::<Vec<_>>(), ranking[..5]);
    assert_eq!(resolved[1].len(), 20);
    for content in resolved.iter().flatten() {
        assert_eq!(counts[&content.hash], content.writes, "{}", content.label);
        let blocks: Vec<u64> = content.places.iter().map(|&(_, block)| block).collect();
        assert_eq!(blocks, places(content.hash), "{}", content.label);
    }
    assert!(resolved[1].iter().all(|content| content.writes == 1 && content.places.len() == 1));
    let spread: Vec<u64> = resolved[1].iter().map(|content| content.places[0].1).collect();
    assert!(spread.is_sorted() && spread[0] < 100 && spread[19] > 400, "all over the target: {spread:?}");
}

#[test]
fn a_block_is_named_by_what_the_load_first_writes_there() {
    let (workload, writes) = recorded(&random_with_duplicates(), 500);
    for block in 0..500 {
        let first = |phase| {
            writes.iter().find(|write| write.0 == phase && write.2 == block).map(|&(_, _, _, hash)| hash)
        };
        let expected = first(Phase::Run).or_else(|| first(Phase::Prefill)).expect("prefilled at least");
        let target = Target::File { file: "device".into(), block };
        let resolved = resolve_one(&workload, target).expect("resolves");
        assert_eq!(hashes(&resolved), [expected], "{block}");
        assert_eq!(resolved[0].label, format!("device: block {block}"));
    }
}

#[test]
fn the_last_block_of_every_stretch_of_a_sequential_load_is_known_by_its_offset() {
    for workers in [1, 3] {
        let (workload, writes) = recorded(&LoadSpec { workers, ..LoadSpec::default() }, 500);
        let resolved = resolve_one(&workload, Target::LastBlockOfEvery(Bytes(64 * BLOCK))).expect("resolves");
        let expected: Vec<ContentHash> = (1..=7)
            .map(|k| writes.iter().find(|write| write.2 == k * 64 - 1).expect("all are written").3)
            .collect();
        assert_eq!(hashes(&resolved), expected);
    }
}

#[test]
fn the_last_block_of_every_stretch_of_a_random_load_is_counted_by_worker() {
    let (workload, writes) = recorded(&random_with_duplicates(), 500);
    let resolved = resolve_one(&workload, Target::LastBlockOfEvery(Bytes(100 * BLOCK))).expect("resolves");
    let mut expected = Vec::new();
    for worker in 0..2 {
        let of_worker: Vec<ContentHash> = writes
            .iter()
            .filter(|write| write.0 == Phase::Run && write.1 == worker)
            .map(|write| write.3)
            .collect();
        expected.extend(of_worker.chunks_exact(100).map(|stretch| stretch[99]));
    }
    let mut seen = HashSet::new();
    expected.retain(|hash| seen.insert(*hash));
    assert_eq!(hashes(&resolved), expected);
}

#[test]
fn stretches_are_counted_in_each_file() {
    let objects = [ObjectInfo::new("a", 16 * BLOCK), ObjectInfo::new("b", 24 * BLOCK)];
    let workload = Workload::new(&LoadSpec::default(), 1, &objects).expect("makes sense");
    let resolved = resolve_one(&workload, Target::LastBlockOfEvery(Bytes(8 * BLOCK))).expect("resolves");
    let places: Vec<_> = resolved.iter().flat_map(|content| content.places.clone()).collect();
    assert_eq!(places, [(0, 7), (0, 15), (1, 7), (1, 15), (1, 23)]);
}

#[test]
fn a_load_that_only_reads_means_what_was_prefilled() {
    let spec = LoadSpec {
        reads: Percent(1.0),
        duplicates: crate::Duplicates::Share(Percent(0.3)),
        ..LoadSpec::default()
    };
    let (workload, writes) = recorded(&spec, 200);
    let resolved =
        resolve_one(&workload, Target::File { file: "device".into(), block: 9 }).expect("resolves");
    assert_eq!(hashes(&resolved), [writes.iter().find(|write| write.2 == 9).expect("prefilled").3]);
    assert!(resolve_one(&workload, Target::MostDuplicated { count: 2 }).is_ok());
}

#[test]
fn targets_that_make_no_sense_say_why() {
    let objects = [ObjectInfo::new("a", 16 * BLOCK), ObjectInfo::new("b", 16 * BLOCK)];
    let error = |spec: &LoadSpec, target| {
        let workload = Workload::new(spec, 1, &objects).expect("makes sense");
        resolve_one(&workload, target).expect_err("makes no sense").to_string()
    };
    let spec = LoadSpec { requests: Some(3), ..LoadSpec::default() };
    let file = |file: &str, block| Target::File { file: file.into(), block };
    assert!(error(&spec, file("c", 0)).contains("no file `c`"));
    assert!(error(&spec, file("a", 16)).contains("16 blocks"));
    assert!(error(&spec, file("b", 0)).contains("never writes b: block 0"));
    assert!(error(&spec, Target::MostDuplicated { count: 1 }).contains("`duplicates`"));
    assert!(error(&spec, Target::Unique { count: 4 }).contains("only 3"));
    assert!(error(&spec, Target::Unique { count: 0 }).contains("at least 1"));
    assert!(error(&spec, Target::LastBlockOfEvery(Bytes(1 << 20))).contains("never completes"));
    assert!(error(&spec, Target::LastBlockOfEvery(Bytes(1000))).contains("multiple"));
    let reading = LoadSpec { reads: Percent(1.0), prefill: Some(false), ..LoadSpec::default() };
    assert!(error(&reading, file("a", 0)).contains("prefill"));
    let timed = LoadSpec { duration: Some(Span(Duration::from_secs(1))), ..LoadSpec::default() };
    assert!(error(&timed, Target::Unique { count: 1 }).contains("`duration`"));
}

#[test]
fn a_load_by_time_still_knows_the_first_content_of_a_block() {
    let objects = [ObjectInfo::new("a", 64 * BLOCK)];
    let duration = Some(Span(Duration::from_secs(1)));
    for pattern in [Pattern::Sequential, Pattern::Random] {
        let timed = Workload::new(
            &LoadSpec { pattern: pattern.clone(), duration, ..LoadSpec::default() },
            1,
            &objects,
        );
        let counted = LoadSpec { pattern, requests: Some(5000), ..LoadSpec::default() };
        let counted = Workload::new(&counted, 1, &objects).expect("makes sense");
        let target = Target::File { file: "a".into(), block: 33 };
        assert_eq!(
            hashes(&resolve_one(&timed.expect("makes sense"), target.clone()).expect("resolves")),
            hashes(&resolve_one(&counted, target).expect("resolves"))
        );
    }
}

#[test]
fn what_the_prefill_writes_can_be_named_also_where_the_load_writes_again() {
    let spec = LoadSpec { prefill: Some(true), ..random_with_duplicates() };
    let (workload, writes) = recorded(&spec, 500);
    let of_prefill = |block: u64| {
        let found = writes.iter().find(|&&(phase, _, at, _)| phase == Phase::Prefill && at == block);
        found.map(|&(_, _, _, hash)| hash).expect("everything is written")
    };
    let file = |block| Target::File { file: "device".into(), block };
    let targets: Vec<Target> = (0..500).map(file).collect();
    let resolved = resolve_in(&workload, Stage::Prefill, &targets).expect("resolves");
    for (block, contents) in (0..).zip(&resolved) {
        assert_eq!(hashes(contents), [of_prefill(block)], "block {block}");
    }
    let later = resolve(&workload, &targets).expect("resolves");
    assert!(later.iter().zip(&resolved).any(|(later, before)| later != before), "the load writes others");
    let stretches = Target::LastBlockOfEvery(Bytes(8 * BLOCK));
    let resolved = resolve_in(&workload, Stage::Prefill, &[stretches]).expect("resolves").remove(0);
    let mut wanted: Vec<ContentHash> = (0..500 / 8).map(|stretch| of_prefill(stretch * 8 + 7)).collect();
    let mut seen = HashSet::new();
    wanted.retain(|hash| seen.insert(*hash));
    assert_eq!(hashes(&resolved), wanted);
    // Whatever the load does afterwards, for however long.
    let spec = LoadSpec { requests: None, duration: Some(Span(Duration::from_secs(1))), ..spec };
    let endless = Workload::new(&spec, 3, workload.objects()).expect("a load");
    assert_eq!(resolve_in(&endless, Stage::Prefill, &targets[..1]).expect("resolves")[0], {
        resolve_in(&workload, Stage::Prefill, &targets[..1]).expect("resolves").remove(0)
    });
}
