//! Streams against what they promise, counted block by block.

use proptest::prelude::*;
use rotproof_spec::{Bytes, Percent};
use std::collections::HashSet;

use super::*;
use crate::{BLOCK_BYTES, LoadSpec, ObjectInfo, Pattern, SizeMix, Stage, Workload};

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
        let spec = LoadSpec { block_size: Bytes(request).into(), workers, ..LoadSpec::default() };
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
        requests += workload.stream(Stage::Prefill, worker).count();
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
            Step::Read(_) | Step::Discard(_) => {}
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
    for (mebibytes, percent) in [(16, 0.3), (64, 0.609), (1024, 0.172)] {
        let blocks = mebibytes * 256;
        let spec = LoadSpec { duplicates: crate::Duplicates::Share(Percent(percent)), ..LoadSpec::default() };
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
    let spec = LoadSpec {
        reads: Percent(0.3),
        flush_every: Some(7),
        duplicates: crate::Duplicates::Share(Percent(0.4)),
        ..random(1, 500)
    };
    let workload = workload(&spec, 1, &[100]);
    let whole: Vec<Step> = workload.stream(Stage::Run, 0).collect();
    for requests in [0, 1, 64, 499] {
        let beginning: Vec<Step> = workload.stream(Stage::Run, 0).ending_after(requests).collect();
        assert_eq!(beginning, whole[..beginning.len()]);
        let drawn = beginning.iter().filter(|step| !matches!(step, Step::Flush)).count();
        assert_eq!(drawn as u64, requests);
    }
}

fn spec_of(yaml_like: &str) -> LoadSpec {
    serde_json::from_str(yaml_like).expect(yaml_like)
}

fn steps(spec: &LoadSpec, blocks: &[u64]) -> Vec<Step> {
    workload(spec, 1, blocks).stream(Stage::Run, 0).collect()
}

fn extent_of(step: &Step) -> Option<(bool, Extent)> {
    match step {
        Step::Read(extent) => Some((true, *extent)),
        Step::Write { extent, .. } => Some((false, *extent)),
        Step::Discard(_) | Step::Flush => None,
    }
}

#[test]
fn sizes_have_their_shares_apart_for_reads_and_writes() {
    let spec = spec_of(
        r#"{ "pattern": "random", "reads": "60%", "requests": 64000, "block_size": {
            "reads": { "4KiB": "50%", "8KiB": "20%", "16KiB": "10%", "32KiB": "8%", "64KiB": "5%", "128KiB": "4%",
                       "256KiB": "2%", "512KiB": "1%" },
            "writes": { "8KiB": "25%", "64KiB": "75%" } } }"#,
    );
    let mut counts: std::collections::BTreeMap<(bool, u32), f64> = Default::default();
    for (is_read, extent) in steps(&spec, &[100_000]).iter().filter_map(extent_of) {
        *counts.entry((is_read, extent.blocks)).or_default() += 1.0;
    }
    let nominal = [
        ((true, 1), 0.5),
        ((true, 2), 0.2),
        ((true, 4), 0.1),
        ((true, 8), 0.08),
        ((true, 16), 0.05),
        ((true, 32), 0.04),
        ((true, 64), 0.02),
        ((true, 128), 0.01),
        ((false, 2), 0.25),
        ((false, 16), 0.75),
    ];
    assert_eq!(counts.len(), nominal.len(), "no size but those: {counts:?}");
    let chi_square: f64 = nominal
        .iter()
        .map(|((is_read, blocks), share)| {
            let expected = share * if *is_read { 38_400.0 } else { 25_600.0 };
            (counts[&(*is_read, *blocks)] - expected).powi(2) / expected
        })
        .sum();
    // 8 degrees of freedom: above 32 with probability 1e-4.
    assert!(chi_square < 32.0, "chi-square {chi_square}: {counts:?}");
}

#[test]
fn sizes_do_not_depend_on_whether_reads_or_writes_came_before() {
    let spec = spec_of(
        r#"{ "pattern": "random", "reads": "50%", "requests": 64000,
             "block_size": { "4KiB": "50%", "64KiB": "50%" } }"#,
    );
    let mut counts = [0.0; 8];
    let steps: Vec<_> = steps(&spec, &[100_000]).iter().filter_map(extent_of).collect();
    for pair in steps.windows(2) {
        let bits = [pair[0].0, pair[0].1.blocks > 1, pair[1].1.blocks > 1];
        counts[bits.iter().fold(0, |number, &bit| number * 2 + usize::from(bit))] += 1.0;
    }
    let expected = (steps.len() - 1) as f64 / 8.0;
    let chi_square: f64 = counts.iter().map(|found: &f64| (found - expected).powi(2) / expected).sum();
    // 7 degrees of freedom: above 30 with probability 1e-4.
    assert!(chi_square < 30.0, "chi-square {chi_square}: {counts:?}");
}

#[test]
fn a_share_of_requests_goes_on_where_the_last_ended_and_the_rest_follows_the_pattern() {
    let spec = spec_of(
        r#"{ "pattern": "random", "sequential": "20%", "reads": "40%", "requests": 64000,
             "block_size": { "4KiB": "50%", "16KiB": "50%" } }"#,
    );
    let extents: Vec<_> = steps(&spec, &[1 << 20]).iter().filter_map(extent_of).collect();
    let going_on = extents
        .windows(2)
        .filter(|pair| pair[1].1.first_block == pair[0].1.first_block + u64::from(pair[0].1.blocks))
        .count();
    let share = going_on as f64 / 64_000.0;
    assert!((share - 0.2).abs() < 0.001, "{share}");
    let mut thirds = [0.0; 3];
    extents.iter().for_each(|(_, extent)| thirds[((extent.first_block * 3) >> 20) as usize] += 1.0);
    let expected = 64_000.0 / 3.0;
    let chi_square: f64 = thirds.iter().map(|found: &f64| (found - expected).powi(2) / expected).sum();
    assert!(chi_square < 20.0, "chi-square {chi_square}: {thirds:?}");
}

#[test]
fn requests_begin_at_multiples_of_the_alignment() {
    for (pattern, align, size) in [
        ("random", "64KiB", "4KiB"),
        ("random", "4KiB", "64KiB"),
        ("sequential", "32KiB", "4KiB"),
        ("sequential", "32KiB", "32KiB"),
    ] {
        let spec = spec_of(&format!(
            r#"{{ "pattern": "{pattern}", "requests": 1000, "align": "{align}", "block_size": "{size}" }}"#
        ));
        let align = spec.align.expect("given").0;
        let extents: Vec<_> = steps(&spec, &[333, 1000]).iter().filter_map(extent_of).collect();
        assert!(
            extents.iter().all(|(_, extent)| extent.offset_bytes().is_multiple_of(align)),
            "{pattern} {align}"
        );
        let whole =
            extents.iter().filter(|(_, extent)| extent.len_bytes() as u64 == spec.block_size.largest_bytes());
        assert!(whole.count() > 950, "{pattern} {size}: only the ends of objects cut a request short");
    }
}

#[test]
fn requests_are_due_when_the_rate_says_and_flushes_have_no_time() {
    let spec = spec_of(r#"{ "rate": 1000, "workers": 2, "requests": 100, "flush_every": 10 }"#);
    let workload = workload(&spec, 1, &[1000]);
    let mut stream = workload.stream(Stage::Run, 1);
    let mut times = Vec::new();
    while let Some(step) = stream.next() {
        match step {
            Step::Flush => assert_eq!(stream.due(), None),
            _ => times.push(stream.due().expect("a rate").as_micros()),
        }
    }
    assert_eq!(times, (0..50).map(|n| 1000 + n * 2000).collect::<Vec<u128>>());
    let mut prefill = workload.stream(Stage::Prefill, 1);
    prefill.next();
    assert_eq!(prefill.due(), None, "a prefill hurries");
}

#[test]
fn a_ramp_up_comes_on_top_and_is_known() {
    let bytes = |requests: &str| spec_of(&format!(r#"{{ "ramp_up": 30, "workers": 3, {requests} }}"#));
    for spec in [bytes(r#""requests": 60"#), bytes(r#""total": "240KiB""#)] {
        let workload = workload(&spec, 1, &[1000]);
        for worker in 0..3 {
            let mut stream = workload.stream(Stage::Run, worker);
            let mut ramping = Vec::new();
            while stream.next().is_some() {
                ramping.push(stream.is_ramping_up());
            }
            assert_eq!(ramping.iter().filter(|&&is_ramping| is_ramping).count(), 10);
            assert!(ramping.is_sorted_by_key(|is_ramping| !is_ramping), "it comes first");
            assert!((30..=31).contains(&ramping.len()), "{}", ramping.len());
        }
    }
}

#[test]
fn a_share_of_writes_is_durable_by_itself() {
    let spec = spec_of(r#"{ "pattern": "random", "reads": "50%", "fua": "25%", "requests": 6400 }"#);
    let durable = |wanted: bool| {
        steps(&spec, &[1000])
            .iter()
            .filter(|step| matches!(step, Step::Write { fua, .. } if *fua == wanted))
            .count()
    };
    assert_eq!((durable(true), durable(false)), (800, 2400));
}

#[test]
fn jobs_differ_in_what_they_do_and_stay_in_their_space() {
    let spec = spec_of(
        r#"{ "requests": 300, "jobs": [
            { "name": "log", "space": "10%", "block_size": "64KiB", "flush_every": 1 },
            { "pattern": "random", "reads": "100%", "workers": 2, "queue_depth": 4 } ] }"#,
    );
    let workload = workload(&spec, 1, &[16_000]);
    assert_eq!(workload.workers(), 3);
    let log: Vec<Step> = workload.stream(Stage::Run, 0).collect();
    assert_eq!(log.iter().filter(|step| matches!(step, Step::Flush)).count(), 100);
    let of_worker = |worker| -> Vec<Extent> {
        workload
            .stream(Stage::Run, worker)
            .filter_map(|step| extent_of(&step))
            .map(|(_, extent)| extent)
            .collect()
    };
    assert!(of_worker(0).iter().all(|extent| extent.blocks == 16 && extent.first_block < 1600));
    for worker in [1, 2] {
        let part = workload.part(worker).blocks;
        assert_eq!(part.end - part.start, 7200);
        assert!(of_worker(worker).iter().all(|extent| part.contains(&extent.first_block)));
        assert!(workload.stream(Stage::Run, worker).all(|step| matches!(step, Step::Read(_))));
    }
    assert_eq!([0, 1599, 1600, 8800, 15_999].map(|block| workload.worker_of_block(block)), [0, 0, 1, 2, 2]);
}

proptest! {
    #[test]
    fn requests_of_any_size_and_alignment_stay_in_their_part_and_keep_their_size(
        objects in prop::collection::vec(1u64..400, 1..4),
        workers in 1u32..4,
        sizes in prop::collection::btree_set(12u32..18, 1..4),
        align in prop::option::of(12u32..18),
        pattern in prop_oneof![Just("sequential"), Just("random")],
        seed: u64,
    ) {
        let share = 1.0 / sizes.len() as f64;
        let sizes: Vec<_> = sizes.into_iter().map(|shift| (Bytes(1 << shift), Percent(share))).collect();
        let largest = sizes.iter().map(|(size, _)| size.0).max().expect("some") / BLOCK;
        let spec = LoadSpec {
            pattern: serde_json::from_value(serde_json::json!(pattern)).expect("a pattern"),
            reads: Percent(0.5),
            block_size: crate::BlockSizes::All(SizeMix(sizes)),
            align: align.map(|shift| Bytes(1 << shift)),
            workers,
            requests: Some(600),
            ..LoadSpec::default()
        };
        let infos: Vec<_> = objects.iter().map(|&blocks| ObjectInfo::new("x", blocks * BLOCK)).collect();
        let Ok(workload) = Workload::new(&spec, seed, &infos) else { return Ok(()) };
        for worker in 0..workload.workers() {
            let part = workload.part(worker).blocks;
            for step in workload.stream(Stage::Run, worker) {
                let Some((_, extent)) = extent_of(&step) else { continue };
                let blocks = extent.target_blocks();
                prop_assert!(part.start <= blocks.start && blocks.end <= part.end, "{:?} of {:?}", blocks, part);
                prop_assert_eq!(workload.layout().locate(extent.first_block), (extent.object, extent.first_in_object));
                let object = workload.layout().object_blocks(extent.object);
                prop_assert!(blocks.end <= object.end && extent.blocks >= 1 && u64::from(extent.blocks) <= largest);
            }
        }
    }
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
            pattern, workers, block_size: Bytes(request).into(), total: Some(Bytes(total_blocks * BLOCK)), ..LoadSpec::default()
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
