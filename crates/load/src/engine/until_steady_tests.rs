//! Loads that end as soon as they are steady, on both runtimes.

use std::sync::Arc;

use rotproof_block::hash::mix;
use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{ErrorKind, Phase, Request};
use rotproof_record::statistics::SteadyEnd;
use rotproof_record::{IntervalLength, Mark, MarkKind, RecordSpec, Recording, RecordingOptions};

use super::*;
use crate::probe::{Probe, Reaction, Rig, uring};
use crate::{DeviceDriver, LoadSpec};

const BLOCKS: u64 = 1000;

fn recording(folder: &std::path::Path, workers: u16) -> Arc<Recording> {
    let interval = IntervalLength::Every("10ms".parse().expect("a span"));
    let spec = RecordSpec { interval, ..RecordSpec::default() };
    let operations = LoadOperation::NAMES;
    Recording::new(RecordingOptions { spec, operations, workers, folder: folder.into() }).expect("a folder")
}

fn load(text: &str) -> LoadSpec {
    serde_json::from_str(text).expect(text)
}

/// Microseconds that a request takes which is sent at this millisecond.
type Slowness = fn(u64) -> u64;

/// Two workers on a device that takes as long as that, and a bit more or less.
fn simulated(ends: &str, slowness: Slowness) -> (LoadReport, Vec<Mark>) {
    let react = move |request: &Request| {
        let at_ns = request.context.submitted.0;
        let more = mix(1, request.offset, at_ns) % 100;
        Reaction::Delay(Duration::from_micros(slowness(at_ns / 1_000_000) + more))
    };
    let probe = Probe::new(BLOCKS, react).expect("memory");
    let spec = format!(r#"{{ "pattern": "random", "queue_depth": 4, "workers": 2, {ends} }}"#);
    let rig = Rig::new(&load(&spec), 5, probe);
    let folder = tempfile::tempdir().expect("a folder");
    let recording = recording(folder.path(), 2);
    let options = RunOptions {
        runtime: RunOn::Simulated(&rig.runtime),
        recording: Some(Arc::clone(&recording)),
        ..uring(Phase::Run)
    };
    let mut oracle = Oracle::new(&rig.workload);
    let report = run(&rig.workload, &rig.driver, &mut oracle, &options).expect("runs");
    (report, recording.marks())
}

#[test]
fn a_load_ends_with_the_window_that_shows_it_steady_and_at_the_same_moment_every_time() {
    let spec = r#""duration": "1s", "until_steady": { "window": "100ms" }"#;
    // As a disk whose cache fills up.
    let slowness: Slowness = |at_ms| 500 + 50 * at_ms.min(60);
    let (report, marks) = simulated(spec, slowness);
    let Some(SteadyEnd { attained: true, at_ns: Some(at_ns), state: Some(state) }) = report.until_steady
    else {
        panic!("{:?}", report.until_steady);
    };
    let since_ns = state.since_ns.expect("it was steady");
    assert!(since_ns >= 40_000_000, "not while it becomes slower: {since_ns}");
    assert_eq!(at_ns - since_ns, 100_000_000, "the window");
    // What was under way is waited for, and flushed; nothing else is sent.
    assert!((at_ns..at_ns + 50_000_000).contains(&report.ended.0), "{} {}", at_ns, report.ended.0);
    let steady = marks.iter().find(|mark| mark.kind == MarkKind::Event).expect("it is marked");
    assert_eq!((&*steady.name, steady.from_ns), ("steady", at_ns));
    assert_eq!(simulated(spec, slowness), (report, marks), "again to the byte");
}

#[test]
fn a_load_that_is_never_steady_ends_as_it_would_and_says_so() {
    let swinging: Slowness = |at_ms| if at_ms / 40 % 2 == 0 { 500 } else { 3000 };
    let (report, marks) = simulated(r#""duration": "1s", "until_steady": { "window": "100ms" }"#, swinging);
    let end = report.until_steady.expect("it was to");
    assert!(!end.attained && end.at_ns.is_none(), "{end:?}");
    assert!(end.state.is_some_and(|state| state.range > 0.2 && state.since_ns.is_none()), "{end:?}");
    assert!(report.ended.0 >= 1_000_000_000);
    assert!(marks.iter().all(|mark| mark.kind == MarkKind::Phase));
    let (report, _) = simulated(r#""requests": 200, "until_steady": { "window": "100ms" }"#, |_| 1000);
    let wanted = SteadyEnd { attained: false, at_ns: None, state: None };
    assert_eq!(report.until_steady, Some(wanted), "there was no window");
}

#[test]
fn with_threads_all_workers_end_once_the_load_is_steady() {
    let spec = load(
        r#"{ "pattern": "random", "workers": 2, "duration": "50s",
             "until_steady": { "window": "50ms", "range": "100%", "slope": "100%", "of": "latency" } }"#,
    );
    let driver = DeviceDriver::new(MemoryDevice::new(BLOCKS * 4096, 512).expect("memory")).expect("suits");
    let workload = Workload::new(&spec, 1, driver.objects()).expect("makes sense");
    let folder = tempfile::tempdir().expect("a folder");
    let mut oracle = Oracle::new(&workload);
    let error = run(&workload, &driver, &mut oracle, &uring(Phase::Run)).expect_err("nobody counts");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let options = RunOptions { recording: Some(recording(folder.path(), 2)), ..uring(Phase::Run) };
    let report = run(&workload, &driver, &mut oracle, &options).expect("runs");
    assert!(report.until_steady.expect("it was to").attained, "{:?}", report.until_steady);
    let check = run(&workload, &driver, &mut oracle, &uring(Phase::Check)).expect("checks");
    assert!(report.sightings.is_empty() && check.sightings.is_empty());
}
