//! Streams against what they promise, counted block by block.

use proptest::prelude::*;
use rotproof_spec::{Bytes, Percent};
use std::collections::HashSet;

use super::*;
use crate::{BLOCK_BYTES, LoadSpec, ObjectInfo, Pattern, Workload};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn workload(spec: &LoadSpec, seed: u64, blocks: &[u64]) -> Workload {
    let objects: Vec<_> = blocks
        .iter()
        .enumerate()
        .map(|(at, &blocks)| ObjectInfo::new(format!("o{at}"), blocks * BLOCK))
        .collect();
    Workload::new(spec, seed, &objects).expect("makes sense")
}

fn random(workers: u32, requests: u64) -> LoadSpec {
    LoadSpec { pattern: Pattern::Random, workers, requests: Some(requests), ..LoadSpec::default() }
}

#[test]
fn a_sequential_load_of_the_targets_size_writes_every_block_once() {
    for (request, workers) in [(4096, 1), (16384, 3), (1 << 20, 2)] {
        let spec = LoadSpec { block_size: Bytes(request), workers, ..LoadSpec::default() };
        let workload = workload(&spec, 1, &[1000, 3, 517]);
        let mut written = Vec::new();
        for worker in 0..workload.workers() {
            written.extend(workload.stream(Stage::Run, worker).written().map(|written| written.block));
        }
        assert_eq!(written, (0..1520).collect::<Vec<u64>>(), "{request} bytes, {workers} workers");
    }
}

#[test]
fn a_sequential_load_larger_than_its_target_begins_again() {
    let spec = LoadSpec { total: Some(Bytes(25 * BLOCK)), ..LoadSpec::default() };
    let blocks: Vec<u64> =
        workload(&spec, 1, &[10]).stream(Stage::Run, 0).written().map(|written| written.block).collect();
    assert_eq!(blocks, (0..25).map(|n| n % 10).collect::<Vec<u64>>());
}

#[test]
fn a_prefill_writes_every_block_once_in_large_requests() {
    let spec = LoadSpec { prefill: Some(true), ..random(2, 10) };
    let workload = workload(&spec, 1, &[300, 100]);
    let (mut blocks, mut requests) = (Vec::new(), 0);
    for worker in 0..2 {
        let stream = workload.stream(Stage::Prefill, worker);
        requests += stream.clone().count();
        blocks.extend(stream.written().map(|written| written.block));
    }
    assert_eq!(blocks, (0..400).collect::<Vec<u64>>());
    assert_eq!(requests, 4 + 2 + 2, "200 blocks; 100 to the end of the first object; 100 of the second");
}

#[test]
fn a_random_load_is_uniform_and_reaches_the_last_block() {
    let workload = workload(&random(2, 400_000), 9, &[900, 100]);
    let mut counts = vec![0u64; 1000];
    for worker in 0..2 {
        let part = workload.part(worker).blocks;
        for written in workload.stream(Stage::Run, worker).written() {
            assert!(part.contains(&written.block), "a worker stays in its part");
            counts[written.block as usize] += 1;
        }
    }
    assert!(counts[999] > 0 && counts[0] > 0);
    let chi_square: f64 = counts.iter().map(|&count| (count as f64 - 400.0).powi(2) / 400.0).sum();
    // 998 degrees of freedom, standard deviation 44.7.
    assert!((820.0..1180.0).contains(&chi_square), "chi-square {chi_square}");
}

#[test]
fn neighbouring_random_requests_are_unrelated() {
    let workload = workload(&random(1, 100_000), 4, &[16]);
    let blocks: Vec<u64> = workload.stream(Stage::Run, 0).written().map(|written| written.block).collect();
    let mut counts = [0u64; 256];
    for pair in blocks.windows(2) {
        counts[(pair[0] * 16 + pair[1]) as usize] += 1;
    }
    let expected = 99_999.0 / 256.0;
    let chi_square: f64 = counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
    // 255 degrees of freedom, standard deviation 22.6.
    assert!((165.0..345.0).contains(&chi_square), "chi-square {chi_square}");
}

#[test]
fn seeds_and_workers_go_different_ways() {
    let places = |seed, worker| -> Vec<u64> {
        let workload = workload(&random(2, 200), seed, &[100_000]);
        let start = workload.part(worker).blocks.start;
        workload.stream(Stage::Run, worker).written().map(|written| written.block - start).collect()
    };
    assert_eq!(places(1, 0), places(1, 0));
    assert_ne!(places(1, 0), places(2, 0));
    assert_ne!(places(1, 0), places(1, 1));
}

#[test]
fn the_share_of_reads_is_exact() {
    for percent in [0.0, 0.01, 0.3, 0.5, 0.999, 1.0] {
        let spec = LoadSpec { reads: Percent(percent), ..random(1, 64_000) };
        let workload = workload(&spec, 1, &[1000]);
        let reads = workload.stream(Stage::Run, 0).filter(|step| matches!(step, Step::Read(_))).count();
        assert_eq!(reads as u64, (percent * 64_000.0_f64).round() as u64, "{percent}");
    }
}

#[test]
fn a_flush_follows_every_so_many_writes_and_reads_do_not_count() {
    let spec = LoadSpec { reads: Percent(0.5), flush_every: Some(10), ..random(1, 1000) };
    let (mut writes, mut flushes) = (0, 0);
    for step in workload(&spec, 1, &[1000]).stream(Stage::Run, 0) {
        match step {
            Step::Write { .. } => writes += 1,
            Step::Read(_) => {}
            Step::Flush => {
                flushes += 1;
                assert_eq!(writes, flushes * 10);
            }
        }
    }
    assert_eq!(flushes, writes / 10);
}

#[test]
fn realised_duplication_holds_at_every_size_of_a_load() {
    for (mebibytes, percent) in [(1, 0.3), (64, 0.609), (1024, 0.172)] {
        let blocks = mebibytes * 256;
        let spec = LoadSpec { duplicates: Percent(percent), ..LoadSpec::default() };
        let workload = workload(&spec, 1, &[blocks]);
        let mut seen = HashSet::new();
        let repeated =
            workload.stream(Stage::Run, 0).written().filter(|written| !seen.insert(written.content)).count();
        let realised = repeated as f64 / blocks as f64;
        assert!((realised - percent).abs() < 0.01, "{mebibytes} MiB: {realised} instead of {percent}");
    }
}

#[test]
fn a_stream_that_ends_earlier_is_the_beginning_of_the_whole() {
    let spec =
        LoadSpec { reads: Percent(0.3), flush_every: Some(7), duplicates: Percent(0.4), ..random(1, 500) };
    let workload = workload(&spec, 1, &[100]);
    let whole: Vec<Step> = workload.stream(Stage::Run, 0).collect();
    for requests in [0, 1, 64, 499] {
        let beginning: Vec<Step> = workload.stream(Stage::Run, 0).ending_after(requests).collect();
        assert_eq!(beginning, whole[..beginning.len()]);
        let drawn = beginning.iter().filter(|step| !matches!(step, Step::Flush)).count();
        assert_eq!(drawn as u64, requests);
    }
}

proptest! {
    #[test]
    fn a_load_moves_what_it_is_told_to(
        blocks in prop::collection::vec(1u64..200, 1..4),
        total_blocks in 1u64..500,
        workers in 1u32..4,
        request_shift in 12u32..15,
        pattern in prop_oneof![Just(Pattern::Sequential), Just(Pattern::Random)],
    ) {
        let objects: Vec<_> =
            blocks.iter().enumerate().map(|(at, &blocks)| ObjectInfo::new(format!("o{at}"), blocks * BLOCK)).collect();
        let request = 1u64 << request_shift;
        let spec = LoadSpec {
            pattern, workers, block_size: Bytes(request), total: Some(Bytes(total_blocks * BLOCK)), ..LoadSpec::default()
        };
        let Ok(workload) = Workload::new(&spec, 1, &objects) else { return Ok(()) };
        let mut moved = 0;
        for worker in 0..workload.workers() {
            let part = workload.part(worker).blocks;
            for written in workload.stream(Stage::Run, worker).written() {
                prop_assert!(part.contains(&written.block));
                moved += BLOCK;
            }
        }
        prop_assert!(moved >= total_blocks * BLOCK);
        prop_assert!(moved < total_blocks * BLOCK + u64::from(workers) * request);
    }
}
