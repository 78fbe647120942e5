//! A verdict in ranges, against the verdict on everything at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{ContentHash, ErrorKind, Phase, Runtime, Time};
use rotproof_fault::{Injection, RuleReport, RuleState};
use rotproof_load::engine::{Incident, LoadOperation};
use rotproof_load::failure::Version;
use rotproof_load::{
    Classification, ContentId, DeviceDriver, Driver, Failure, LoadReport, LoadSpec, Oracle, RunOn,
    RunOptions, Stage, Way, Workload,
};
use serde_json::json;

use super::*;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 48;

thread_local! {
    /// A load that has written every block once.
    static LOAD: &'static (Workload, Oracle) = Box::leak(Box::new(written()));
}

fn written() -> (Workload, Oracle) {
    let device = MemoryDevice::new(BLOCKS * BLOCK, 512).expect("a device");
    let driver = DeviceDriver::new(device).expect("a driver");
    let spec = LoadSpec { prefill: Some(true), ..LoadSpec::default() };
    let workload = Workload::new(&spec, 5, driver.objects()).expect("makes sense");
    let mut oracle = Oracle::new(&workload);
    let runtime = Runtime::simulated(5);
    let options = RunOptions {
        runtime: RunOn::Simulated(&runtime),
        phase: Phase::Prefill,
        verify: true,
        cancel: Arc::default(),
        progress: Arc::default(),
        recording: None,
        phase_cell: None,
        let_go: None,
    };
    rotproof_load::run(&workload, &driver, &mut oracle, &options).expect("it writes");
    (workload, oracle)
}

/// What a block was to hold: the version that the load has written, or another.
fn truth(block: u64, version: u64) -> u128 {
    let (workload, oracle) = LOAD.with(|load| *load);
    let written = oracle.legal(block)[0];
    if version == 0 { workload.content().hash(written).0 } else { u128::from(block + 1) }
}

/// What one of the rules leaves of it: two of them the same everywhere.
fn damaged(block: u64, version: u64, way: u8) -> u128 {
    match way {
        0 => 7_777,
        1 => 8_888,
        _ => truth(block, version) ^ 1 << 90,
    }
}

fn text(hash: u128) -> String {
    ContentHash(hash).to_string()
}

#[derive(Clone, Debug)]
struct Hit {
    block: u64,
    version: u64,
    way: u8,
    blocks: u64,
    rule: u32,
    phase: &'static str,
    time: u64,
    served: Option<u64>,
    gone: Option<(u64, bool)>,
    of_load: Option<bool>,
    has_aim: bool,
}

fn any_hit() -> impl Strategy<Value = Hit> {
    let place = (0..BLOCKS, 0u64..2, 0u8..8, 1u64..4, 0u32..3);
    let moments = (prop::bool::ANY, 0u64..50, prop::option::of(0u64..50));
    let rest = (prop::option::of((0u64..50, any::<bool>())), prop::option::of(any::<bool>()), any::<bool>());
    (place, moments, rest).prop_map(
        |((block, version, way, blocks, rule), (is_in_run, time, served), (gone, of_load, has_aim))| Hit {
            block,
            version,
            way,
            blocks: blocks.min(BLOCKS - block),
            rule,
            phase: if is_in_run { "run" } else { "check" },
            time,
            served: served.map(|after| time + after),
            gone: gone.map(|(after, is_repaired)| (time + after, is_repaired)),
            of_load,
            has_aim,
        },
    )
}

fn record(sequence: u64, hit: &Hit, is_power_lost: bool) -> Injection {
    let mut record = json!({
        "sequence": sequence, "rule": hit.rule, "name": format!("rule-{}", hit.rule), "operation": "read",
        "offset": hit.block * BLOCK, "length": BLOCK, "time_ns": hit.time, "phase": hit.phase, "request": sequence,
    });
    let mut set = |key: &str, value: serde_json::Value| record[key] = value;
    if let Some((time, is_repaired)) = hit.gone {
        set(if is_repaired { "repaired_at_ns" } else { "replaced_at_ns" }, time.into());
    }
    if hit.way < 3 {
        set("effect", ["zeros", "ones", "noise(draw=1)"][usize::from(hit.way)].into());
        set("before", text(truth(hit.block, hit.version)).into());
        set("after", text(damaged(hit.block, hit.version, hit.way)).into());
        hit.served.into_iter().for_each(|time| set("served_at_ns", time.into()));
        hit.of_load.into_iter().for_each(|is_of_load| set("of_load", is_of_load.into()));
        return serde_json::from_value(record).expect("a record");
    }
    let blocks: Vec<_> = (hit.block..hit.block + hit.blocks)
        .map(|block| json!({ "offset": block * BLOCK, "content": text(truth(block, hit.version)) }))
        .collect();
    set("effect", "error(EIO)".into());
    match hit.way {
        3 | 4 => {
            set("length", (hit.blocks * BLOCK).into());
            set("blocks", blocks.into());
            set("operation", if hit.way == 3 { "read" } else { "write" }.into());
            // What it aimed at may lie elsewhere: a range that begins at the first block.
            if hit.has_aim {
                set("target", json!({ "offset": 0 }));
            }
        }
        5 => {
            set("operation", "flush".into());
            set("offset", 0.into());
            set("length", 0.into());
        }
        6 if is_power_lost => set("effect", "power_cut".into()),
        _ => set("effect", "delay(5ms)".into()),
    }
    serde_json::from_value(record).expect("a record")
}

#[derive(Clone, Debug)]
struct Seen {
    block: u64,
    version: u64,
    way: u8,
    phase: Phase,
    time: u64,
}

fn any_seen() -> impl Strategy<Value = Seen> {
    (0..BLOCKS, 0u64..2, 0u8..8, any::<bool>(), 0u64..120).prop_map(
        |(block, version, way, is_in_run, time)| Seen {
            block,
            version,
            way,
            phase: if is_in_run { Phase::Run } else { Phase::Check },
            time,
        },
    )
}

fn way(seen: &Seen) -> Way {
    let &Seen { block, version, way, phase, time } = seen;
    let found = match way {
        0..3 => Some(damaged(block, version, way)),
        // What somebody else lost.
        3 => Some(damaged((block + 17) % BLOCKS, version, 2)),
        4 => Some(99_999),
        _ => None,
    };
    let error = ErrorKind::Medium;
    let what = match way {
        0 => Classification::Zeroed,
        1 => Classification::Ones,
        2..5 => Classification::Noise,
        5 => Classification::Unwritable { error },
        _ => Classification::Unreadable { error },
    };
    let is_write = way == 5;
    let content = ContentId::new(Stage::Run, 0, block * 10 + version);
    Way {
        phase,
        time: Time(time),
        operation: if is_write { LoadOperation::Write } else { LoadOperation::Read },
        expected: vec![Version { content, hash: Some(ContentHash(truth(block, version))) }],
        found: found.map(ContentHash),
        found_sectors: None,
        what,
        count: 1,
    }
}

fn failures(seen: &[Seen]) -> Vec<Failure> {
    let mut failures: BTreeMap<u64, Failure> = BTreeMap::new();
    for seen in seen {
        let failure = failures.entry(seen.block).or_insert_with(|| Failure {
            object_index: 0,
            object: "device".into(),
            block: seen.block,
            offset_bytes: seen.block * BLOCK,
            ways: Vec::new(),
        });
        failure.ways.push(way(seen));
    }
    failures.into_values().collect()
}

/// Requests of several blocks that failed at a time at which blocks of them were seen to fail, and flushes.
fn incidents(seen: &[Seen], is_flush: bool) -> Vec<Incident> {
    let of = |seen: &Seen| Incident {
        object: 0,
        offset_bytes: if is_flush { 0 } else { seen.block.saturating_sub(1) * BLOCK },
        length_bytes: if is_flush { 0 } else { 3 * BLOCK },
        operation: if is_flush { LoadOperation::Flush } else { LoadOperation::Read },
        error: ErrorKind::Medium,
        sent: Time(seen.time.saturating_sub(5)),
        time: Time(seen.time),
    };
    seen.iter().map(of).collect()
}

fn rule(number: u32, is_sticky: bool) -> RuleReport {
    let text = if is_sticky { "sticky: error" } else { "error" };
    RuleReport {
        name: format!("rule-{number}"),
        rule: text.parse().expect("a rule"),
        state: RuleState::Active,
        matches: 1,
        hits: 1,
        hanging: 0,
        targets: Vec::new(),
    }
}

/// A ledger.
#[derive(Debug)]
struct Records(Vec<Injection>);

impl Injections for Records {
    fn each(&self, take: &mut dyn FnMut(&Injection)) -> Result<()> {
        self.0.iter().for_each(take);
        Ok(())
    }

    /// In pieces so short that most ranges leave some out.
    fn each_of(
        &self,
        is_wanted: &mut dyn FnMut(usize) -> bool,
        take: &mut dyn FnMut(&Injection),
    ) -> Result<()> {
        for (number, piece) in self.0.chunks(3).enumerate() {
            if is_wanted(number) {
                piece.iter().for_each(&mut *take);
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Case {
    records: Records,
    failures: Vec<Failure>,
    reports: Vec<LoadReport>,
    is_direct: bool,
}

type Found = (Vec<RuleOutcome>, Vec<(Failure, CauseRecord)>, Counts);

fn judge(case: &Case, range_max: u64) -> (Found, bool) {
    let (workload, oracle) = LOAD.with(|load| *load);
    let rules: Vec<RuleReport> = (0..3).map(|number| rule(number, number == 1)).collect();
    let evidence = Evidence {
        records: &case.records,
        rules: &rules,
        models: &[],
        failures: &case.failures,
        reports: &case.reports,
        seen_at: &|_, offset| Some((0, offset)),
        lies_below: &|_, offset| offset < BLOCKS / 2 * BLOCK,
        blocks_stay: true,
        keeps_copies: false,
        has_other_users: !case.is_direct,
        is_unreachable: false,
        medium: None,
        load: Some((workload, oracle)),
        exit: None,
        check_exit: None,
        files: None,
    };
    let never_met = vec![0; rules.len()];
    let (mut taken, mut nothing) = (0, |_: Vec<(Failure, CauseRecord)>| Ok(()));
    let in_ranges = by_range::outcomes(&evidence, range_max, &never_met, &mut taken, &mut nothing);
    let is_in_ranges = in_ranges.expect("in memory").is_some();
    let mut found = Vec::new();
    let verdict = Verdict::reach_in_ranges(&evidence, range_max, &Expect::default(), &mut |mut failures| {
        found.append(&mut failures);
        Ok(())
    });
    let verdict = verdict.expect("in memory");
    ((verdict.rules, found, verdict.counts), is_in_ranges)
}

fn report(phase: Phase, incidents: Vec<Incident>) -> LoadReport {
    LoadReport { incidents, ..LoadReport::empty(phase, Time(0)) }
}

fn any_case() -> impl Strategy<Value = Case> {
    let hits = prop::collection::vec(any_hit(), 1..120);
    let seen = prop::collection::vec(any_seen(), 1..60);
    let requests = (prop::collection::vec(any_seen(), 0..4), prop::collection::vec(any_seen(), 0..3));
    (hits, seen, requests, any::<[bool; 3]>()).prop_map(
        |(mut hits, seen, (asked, flushed), [has_flushes, is_power_lost, is_direct])| {
            hits.retain(|hit| hit.way != 5 || has_flushes);
            hits.sort_by_key(|hit| hit.time);
            let records =
                Records((0..).zip(&hits).map(|(number, hit)| record(number, hit, is_power_lost)).collect());
            let refused: Vec<Seen> = seen.iter().filter(|seen| seen.way >= 6).cloned().collect();
            let mut in_run = incidents(&refused, false);
            if has_flushes {
                in_run.extend(incidents(&flushed, true));
            }
            let reports = vec![report(Phase::Run, in_run), report(Phase::Check, incidents(&asked, false))];
            Case { records, failures: failures(&seen), reports, is_direct }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_verdict_in_ranges_is_the_verdict_on_everything_at_once(case in any_case(), range_max in 4u64..60) {
        let (whole, is_in_ranges) = judge(&case, u64::MAX);
        prop_assert!(!is_in_ranges);
        let (in_ranges, _) = judge(&case, range_max);
        prop_assert_eq!(&in_ranges.1, &whole.1);
        prop_assert_eq!(&in_ranges.0, &whole.0);
        prop_assert_eq!(in_ranges.2, whole.2);
    }
}

/// Or the test above would show nothing.
#[test]
fn a_long_list_of_failures_is_judged_in_ranges() {
    let hit = |block| Hit {
        block,
        version: 0,
        way: 0,
        blocks: 1,
        rule: 0,
        phase: "run",
        time: 1,
        served: Some(1),
        gone: None,
        of_load: Some(true),
        has_aim: false,
    };
    let seen: Vec<Seen> =
        (0..BLOCKS).map(|block| Seen { block, version: 0, way: 0, phase: Phase::Run, time: 2 }).collect();
    let case = Case {
        records: Records((0..BLOCKS).map(|block| record(block, &hit(block), false)).collect()),
        failures: failures(&seen),
        reports: vec![report(Phase::Run, Vec::new())],
        is_direct: true,
    };
    let (found, is_in_ranges) = judge(&case, 6);
    assert!(is_in_ranges);
    assert_eq!((found.0[0].fates.silent, found.0[0].failing_blocks), (BLOCKS, BLOCKS));
    assert!(found.1.iter().zip(0..).all(|((_, cause), number)| *cause == CauseRecord::Injection(number)));
}
