//! When requests begin, which of them count, and when a load is over.

use std::sync::Arc;
use std::time::Duration;

use rotproof_block::leaf::{DiskProfile, SimulatedDisk};
use rotproof_block::{Operation, Phase, Time};
use rotproof_record::{RecordSpec, RecordingOptions};
use rotproof_spec::Span;

use super::tests::{described, memory, mixed};
use super::*;
use crate::probe::{Probe, Reaction, Rig, uring};
use crate::{BLOCK_BYTES, LoadSpec, Pattern};

#[test]
fn a_load_by_time_ends_in_time_and_one_without_time_says_so() {
    let spec = LoadSpec { duration: Some(Span(Duration::from_millis(20))), requests: None, ..mixed() };
    let disk = SimulatedDisk::new(500 * BLOCK_BYTES as u64, 512, DiskProfile::NVME).expect("a disk");
    let mut rig = Rig::new(&spec, 1, disk);
    rig.phase(Phase::Prefill);
    let elapsed = rig.phase(Phase::Run).elapsed();
    assert!((20..25).contains(&elapsed.as_millis()), "{elapsed:?}");
    let drawn: u64 = rig.oracle.drawn()[1].requests.iter().sum();
    let report = &rig.reports[1];
    assert_eq!(drawn, report.reads.requests + report.writes.requests, "what was drawn was done");
    assert!(rig.phase(Phase::Check).sightings.is_empty());
    let mut rig = Rig::new(&spec, 1, memory(500));
    let error = rig.try_phase(Phase::Run).expect_err("no virtual time passes on a memory leaf");
    assert!(error.to_string().contains("virtual time"), "{error}");
}

#[test]
fn a_step_that_was_still_waiting_when_time_was_over_does_not_count_as_done() {
    for seed in 0..20 {
        let probe = Probe::new(2, |_| Reaction::Delay(Duration::from_micros(300))).expect("a probe");
        let spec = LoadSpec {
            pattern: Pattern::Random,
            queue_depth: 4,
            duration: Some(Span(Duration::from_millis(1))),
            ..LoadSpec::default()
        };
        let mut rig = Rig::new(&spec, seed, probe);
        let done = rig.phase(Phase::Run).writes.requests;
        assert_eq!(rig.oracle.drawn()[0].requests, [done], "seed {seed}");
    }
}

#[test]
fn an_open_loop_charges_a_stall_to_every_request_that_it_held_up() {
    // One request a millisecond; the tenth takes 100 ms.
    let probe = Probe::new(64, |request| {
        let is_tenth = request.operation == Operation::WRITE && request.offset == 9 * 4096;
        Reaction::Delay(if is_tenth { Duration::from_millis(100) } else { Duration::from_micros(10) })
    });
    let spec = described(r#"{ "rate": 1000, "requests": 60 }"#);
    let mut rig = Rig::new(&spec, 1, probe.expect("a probe"));
    let report = rig.phase(Phase::Run);
    let held_up = report.writes.latency.len() - report.writes.latency.count_between(0, 1_000_000);
    assert_eq!(held_up, 51, "the tenth and all that were due meanwhile");
    assert!(report.writes.latency.max().abs_diff(100_000_000) < 200_000);
    let closed = described(r#"{ "requests": 60 }"#);
    let probe = Probe::new(64, |request| {
        let is_tenth = request.operation == Operation::WRITE && request.offset == 9 * 4096;
        Reaction::Delay(if is_tenth { Duration::from_millis(100) } else { Duration::from_micros(10) })
    });
    let mut rig = Rig::new(&closed, 1, probe.expect("a probe"));
    let latency = &rig.phase(Phase::Run).writes.latency;
    assert_eq!(latency.len() - latency.count_between(0, 1_000_000), 1, "a closed loop meets it once");
}

#[test]
fn a_rate_is_kept_as_long_as_the_device_keeps_up() {
    let probe = Probe::new(64, |_| Reaction::Delay(Duration::from_micros(10))).expect("a probe");
    let spec = described(r#"{ "rate": 2000, "duration": "100ms", "workers": 2, "queue_depth": 4 }"#);
    let mut rig = Rig::new(&spec, 1, probe);
    let report = rig.phase(Phase::Run);
    assert_eq!(report.writes.requests, 200);
    assert!((99..102).contains(&report.elapsed().as_millis()), "{:?}", report.elapsed());
    let requests = report.writes.requests;
    assert_eq!(rig.oracle.drawn()[0].requests.iter().sum::<u64>(), requests, "what was drawn was done");
    assert!(rig.phase(Phase::Check).sightings.is_empty());
}

#[test]
fn a_load_by_time_lasts_until_its_end_though_nothing_more_is_due() {
    for json in [
        r#"{ "rate": 10, "duration": "250ms" }"#,
        r#"{ "burst": { "requests": 3, "every": "100ms" }, "queue_depth": 2, "duration": "250ms" }"#,
    ] {
        let probe = Probe::new(64, |_| Reaction::Delay(Duration::from_micros(10))).expect("a probe");
        let mut rig = Rig::new(&described(json), 1, probe);
        let elapsed = rig.phase(Phase::Run).elapsed();
        assert_eq!(elapsed.as_millis(), 250, "{json}: or its mean rate would be too high");
    }
}

#[test]
fn bursts_and_pauses_come_when_they_are_told_to() {
    let began = |spec: &LoadSpec| {
        let times = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let seen = Arc::clone(&times);
        let probe = Probe::new(64, move |request| {
            if request.operation == Operation::WRITE {
                seen.lock().push(request.context.submitted.0 / 1_000_000);
            }
            Reaction::Delay(Duration::from_millis(1))
        });
        let mut rig = Rig::new(spec, 1, probe.expect("a probe"));
        rig.phase(Phase::Run);
        times.lock().clone()
    };
    let burst = r#"{ "requests": 9, "queue_depth": 3, "burst": { "requests": 3, "every": "10ms" } }"#;
    assert_eq!(began(&described(burst)), [0, 0, 0, 10, 10, 10, 20, 20, 20]);
    let think = r#"{ "requests": 8, "queue_depth": 2, "think_time": { "pause": "10ms", "after": 4 } }"#;
    assert_eq!(began(&described(think)), [0, 0, 1, 1, 12, 12, 13, 13]);
    let each = r#"{ "requests": 3, "think_time": "5ms" }"#;
    assert_eq!(began(&described(each)), [0, 6, 12]);
    let by_time = r#"{ "requests": 6, "queue_depth": 2, "think_time": { "pause": "10ms", "after": "2ms" } }"#;
    assert_eq!(began(&described(by_time)), [0, 0, 1, 1, 12, 12]);
}

#[test]
fn a_load_that_is_busy_and_idle_by_turns_shows_both_in_its_intervals_and_ends_on_time() {
    let json = r#"{ "duration": "35s", "workers": 2, "think_time": { "pause": "5s", "after": "10s" } }"#;
    let folder = tempfile::tempdir().expect("a folder");
    let once = || {
        let recording = Recording::new(RecordingOptions {
            spec: RecordSpec::default(),
            operations: LoadOperation::NAMES,
            workers: 2,
            folder: folder.path().to_owned(),
        });
        let recording = recording.expect("intervals of a second");
        let probe = Probe::new(2000, |_| Reaction::Delay(Duration::from_millis(50))).expect("a probe");
        let rig = Rig::new(&described(json), 1, probe);
        let options = RunOptions {
            runtime: RunOn::Simulated(&rig.runtime),
            recording: Some(Arc::clone(&recording)),
            ..uring(Phase::Run)
        };
        let mut oracle = Oracle::new(&rig.workload);
        let report = run(&rig.workload, &rig.driver, &mut oracle, &options).expect("it ends");
        let intervals = recording.latest(Time(0));
        let writes = intervals.iter().filter(|interval| &*interval.operation == "write");
        (report.elapsed(), writes.map(|interval| interval.requests).collect::<Vec<_>>())
    };
    let (elapsed, writes) = once();
    let is_busy: Vec<bool> = writes.iter().map(|requests| *requests > 20).collect();
    let turn = [[true; 10].as_slice(), &[false; 5]].concat();
    assert_eq!(is_busy[..35], [&turn[..], &turn[..], &turn[..5]].concat(), "{writes:?}");
    assert_eq!(writes.iter().sum::<u64>(), 1000, "20 a second of each worker, for 25 of 35 seconds");
    assert_eq!(elapsed.as_secs(), 35);
    assert_eq!((elapsed, writes), once());
    let idle_at_the_end = described(&json.replace("35s", "12s"));
    let probe = Probe::new(2000, |_| Reaction::Delay(Duration::from_millis(50))).expect("a probe");
    let mut rig = Rig::new(&idle_at_the_end, 1, probe);
    let report = rig.phase(Phase::Run);
    assert_eq!((report.elapsed().as_secs(), report.writes.requests), (12, 400), "and does not begin anew");
}

#[test]
fn a_ramp_up_is_verified_but_not_recorded() {
    let spec = described(r#"{ "requests": 50, "ramp_up": 20, "workers": 2, "queue_depth": 2 }"#);
    let probe = Probe::new(200, |request| {
        let is_hit = request.operation == Operation::WRITE && request.offset == 4096;
        if is_hit { Reaction::Fail } else { Reaction::Delay(Duration::from_millis(1)) }
    });
    let mut rig = Rig::new(&spec, 1, probe.expect("a probe"));
    let report = rig.phase(Phase::Run);
    assert_eq!((report.writes.latency.len(), report.writes.requests), (50, 51), "but an error is never lost");
    assert_eq!((report.error_count(), report.sightings.len()), (1, 1));
    let elapsed = report.elapsed();
    assert!((13..=15).contains(&elapsed.as_millis()), "25 of each worker by two, and a flush: {elapsed:?}");
    assert_eq!(rig.oracle.drawn()[0].requests, [35, 35]);
    assert!(rig.phase(Phase::Check).sightings.is_empty());
    let timed = described(r#"{ "duration": "20ms", "ramp_up": "10ms" }"#);
    let probe = Probe::new(64, |_| Reaction::Delay(Duration::from_millis(1))).expect("a probe");
    let mut rig = Rig::new(&timed, 1, probe);
    let report = rig.phase(Phase::Run);
    assert_eq!(report.writes.requests, 20);
    assert_eq!(report.elapsed(), Duration::from_millis(21));
    assert_eq!(rig.oracle.drawn()[0].requests, [30]);
}

#[test]
fn of_several_ends_the_first_one_reached_counts() {
    for (json, requests) in [
        (r#"{ "requests": 50, "duration": "20ms" }"#, 20),
        (r#"{ "requests": 5, "duration": "20ms" }"#, 5),
        (r#"{ "requests": 50, "duration": "20ms", "total": "28KiB" }"#, 7),
        (r#"{ "requests": 50, "duration": "20ms", "ramp_up": "32KiB" }"#, 20 - 8),
        (r#"{ "requests": 5, "ramp_up": "32KiB" }"#, 5),
        (r#"{ "requests": 25, "duration": "20ms", "ramp_up": "10ms" }"#, 15),
    ] {
        let probe = Probe::new(64, |_| Reaction::Delay(Duration::from_millis(1))).expect("a probe");
        let mut rig = Rig::new(&described(json), 1, probe);
        assert_eq!(rig.phase(Phase::Run).writes.requests, requests, "{json}");
        assert!(rig.phase(Phase::Check).sightings.is_empty(), "{json}");
    }
}

#[test]
fn a_load_recovers_from_whichever_end_comes_first() {
    // A millisecond a request, one after the other.
    for (ends, requests) in [
        (r#""requests": 200, "duration": "10s""#, 200),
        (r#""total": "800KiB", "duration": "10s""#, 200),
        (r#""requests": 2000, "duration": "100ms""#, 200),
        (r#""duration": "100ms""#, 200),
        // What a ramp-up by time does counts towards the end, and is in no figure.
        (r#""requests": 200, "duration": "10s", "ramp_up": "30ms""#, 140),
        (r#""requests": 2000, "duration": "70ms", "ramp_up": "30ms""#, 140),
    ] {
        let spec =
            described(&format!(r#"{{ "workers": 2, "cool_down": "50ms", "pattern": "random", {ends} }}"#));
        let probe = Probe::new(400, |_| Reaction::Delay(Duration::from_millis(1))).expect("a probe");
        let mut rig = Rig::new(&spec, 3, probe.clone());
        let report = rig.phase(Phase::Run).clone();
        assert_eq!(report.writes.requests, requests, "{ends}");
        let cool_down = report.cool_down.as_ref().expect("it has one");
        assert_eq!(cool_down.writes.requests, 100, "{ends}");
        let of = |worker: u16| {
            let seen = probe.seen().into_iter().filter(|seen| seen.phase == Phase::CoolDown);
            seen.filter(|seen| seen.queue == worker && seen.operation == Operation::WRITE).count() as u64
        };
        assert_eq!([of(0), of(1)], [50, 50], "{ends}");
        assert_eq!(
            report.cool_down_elapsed().as_millis() / 10,
            5,
            "{ends}: {:?}",
            report.cool_down_elapsed()
        );
        let check = rig.phase(Phase::Check);
        assert!(check.sightings.is_empty(), "{ends}: what was written in both is known");
    }
}
