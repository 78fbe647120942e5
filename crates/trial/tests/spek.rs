//! SPEK's experiments on a simulated disk, as the examples have them: what the report computes of each fault is what the
//! fault was made to do. Half a minute of virtual time each.
//!
//! Source: X. He, M. Zhang, Q. Yang, *SPEK: A Storage Performance Evaluation Kernel Module for Block-Level Storage
//! Systems under Faulty Conditions*.

use std::path::Path;
use std::sync::Arc;

use rotproof_machine::Cancel;
use rotproof_measure::Monitor;
use rotproof_record::statistics::{Change, Degradation, DetectedBy, Effect, Recovery, series};
use rotproof_record::{MarkKind, RunFolder};
use rotproof_trial::file::{Overrides, TrialFile};
use rotproof_trial::runner::{self, Finished, RunOptions};

const SECOND: u64 = 1_000_000_000;

fn run(name: &str, results: &Path) -> Finished {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/spek").join(name);
    let trial = TrialFile::open(&path, &Overrides::default()).unwrap_or_else(|error| panic!("{error}"));
    conduct(&trial, results)
}

fn conduct(trial: &TrialFile, results: &Path) -> Finished {
    let name = &trial.name;
    let options = RunOptions {
        results: results.to_owned(),
        overwrite: false,
        replay: None,
        cancel: Cancel::new(),
        monitor: Arc::new(Monitor::default()),
    };
    let finished = runner::run(trial, &options).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(finished.report.verdict.passes(), "{name}: {:?}", finished.report.expectations);
    finished
}

/// The one fault of a trial, measured.
fn measured(name: &str) -> (Degradation, Finished, tempfile::TempDir) {
    let results = tempfile::tempdir().expect("a folder");
    let finished = run(name, results.path());
    let [only] = finished.report.degradation.as_slice() else { panic!("{:?}", finished.report.degradation) };
    (only.clone(), finished, results)
}

fn ratio(level: &Option<rotproof_record::statistics::Level>) -> f64 {
    level.and_then(|level| level.ratio).expect("a level and one before")
}

#[test]
fn a_transient_delay_costs_what_it_adds_to_each_request_and_nothing_afterwards() {
    let (found, finished, _results) = measured("delay-transient.yaml");
    let run = RunFolder::open(&finished.folder).expect("recorded");
    let phase = run.phases().expect("marks").into_iter().find(|mark| &*mark.name == "run").expect("a load");
    assert_eq!((found.from_ns - phase.from_ns, found.until_ns - found.from_ns), (10 * SECOND, 5 * SECOND));
    // One request at a time: its own time, and 40 ms.
    let before = found.throughput.before.expect("ten intervals").summary;
    let own_seconds = 16384.0 / before.mean;
    let wanted = own_seconds / (own_seconds + 0.040);
    assert!(
        (ratio(&found.throughput.during) / wanted - 1.0).abs() < 0.1,
        "{} for {wanted}",
        ratio(&found.throughput.during)
    );
    assert_eq!((before.count, found.throughput.during.expect("five").summary.count), (10, 5));
    assert!((ratio(&found.throughput.after) - 1.0).abs() < 0.05, "{}", ratio(&found.throughput.after));
    assert_eq!(found.detected_by, Some(DetectedBy::Latency));
    assert_eq!(found.detected_after_ns, Some(SECOND), "an interval");
    assert!(found.recovered_after_ns.expect("it is back") <= SECOND);
    let lost = found.lost_bytes.expect("a level before") / (before.mean * 5.0);
    assert!((lost - (1.0 - wanted)).abs() < 0.05, "{lost} for {}", 1.0 - wanted);
    let marks = run.marks().expect("marks");
    let hits = marks.iter().find(|mark| mark.kind == MarkKind::Injections).expect("it hit");
    assert!(found.from_ns <= hits.from_ns && hits.until_ns.is_some_and(|until| until < found.until_ns));
}

#[test]
fn a_sticky_delay_lasts_as_long_as_the_load_and_the_cool_down_is_as_fast_as_before() {
    let (found, finished, _results) = measured("delay-sticky.yaml");
    let run = RunFolder::open(&finished.folder).expect("recorded");
    let phases = run.phases().expect("marks");
    let cool_down = phases.iter().find(|mark| &*mark.name == "cool_down").expect("there is one");
    assert_eq!(found.until_ns, cool_down.from_ns);
    let lasted = cool_down.until_ns.expect("it ended") - cool_down.from_ns;
    assert!((9 * SECOND..11 * SECOND).contains(&lasted), "{lasted}");
    assert!(ratio(&found.throughput.during) < 0.4, "{}", ratio(&found.throughput.during));
    assert!((ratio(&found.throughput.after) - 1.0).abs() < 0.05, "{}", ratio(&found.throughput.after));
    assert!(found.recovered_after_ns.is_some());
    let lines: Vec<_> = finished.report.performance.iter().map(|line| &*line.phase).collect();
    assert_eq!(
        lines,
        ["run", "cool_down", "prefill", "prefill", "check"],
        "{:?}",
        finished.report.performance
    );
}

/// A load of 400 requests a second, which the disk does easily. For a second and a half nothing is faster than 60 ms, so
/// that requests pile up and are caught up with; then, long after, a fault that does nothing to be felt.
#[test]
fn a_load_at_a_rate_is_slow_but_loses_nothing_and_what_does_nothing_has_no_measurable_effect() {
    let yaml = "name: rate\nruntime: simulated\nseed: 11\nstack: [disk: { profile: ssd, size: 32MiB }, faults]\n\
                load: { pattern: random, reads: 100%, block_size: 4KiB, duration: 40s, rate: 400 }\n\
                record: { interval: 500ms }\nfaults:\n\
                - 'name=slow, read, at=10s+3s: delay(60ms)'\n- 'name=harmless, read, at=20s+10s: delay(10ns)'\n";
    let trial = TrialFile::parse("rate.yaml", yaml.as_bytes(), &Overrides::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let results = tempfile::tempdir().expect("a folder");
    let finished = conduct(&trial, results.path());
    let [slow, harmless] = finished.report.degradation.as_slice() else {
        panic!("{:?}", finished.report.degradation)
    };
    assert_eq!(slow.effect, Effect::Degraded, "{slow:?}");
    assert_eq!(slow.latency_mean_ns.change, Change::Higher, "{slow:?}");
    assert!(ratio(&slow.latency_mean_ns.during) > 10.0, "{slow:?}");
    assert_ne!(slow.recovery, Some(Recovery::Never), "{slow:?}");
    assert_eq!(harmless.effect, Effect::None, "{harmless:?}");
    assert_eq!((harmless.recovery, harmless.lost_bytes), (None, None), "{harmless:?}");
    // The interval in which it caught up lies before this window, and is no level.
    let before = harmless.throughput.before.expect("intervals").summary;
    assert!(before.max < 1.01 * before.min, "{before:?}");
    let share = ratio(&harmless.throughput.during);
    assert!((share - 1.0).abs() < 0.02, "{share}");
}

#[test]
fn correctable_errors_of_every_second_attempt_halve_the_throughput_of_a_load_that_tries_again() {
    let (found, finished, _results) = measured("correctable.yaml");
    let during = found.throughput.during.expect("five intervals");
    assert!((0.45..0.55).contains(&ratio(&found.throughput.during)), "{}", ratio(&found.throughput.during));
    let range = during.ratio_confidence.expect("several intervals");
    assert!(range.low < 0.5 && 0.5 < range.high, "{range:?}");
    assert!((ratio(&found.throughput.after) - 1.0).abs() < 0.05, "{}", ratio(&found.throughput.after));
    assert_eq!(found.detected_by, Some(DetectedBy::Error));
    assert!(found.detected_after_ns.expect("noticed") < SECOND, "at its moment");
    assert!(found.recovered_after_ns.expect("back") <= SECOND);
    let reads = finished.report.performance.iter().find(|line| line.phase == "run").expect("reads");
    assert!(reads.retries > 0 && reads.errors == 0, "{reads:?}");
}

#[test]
fn sticky_uncorrectable_errors_leave_nothing() {
    let (found, finished, _results) = measured("uncorrectable.yaml");
    let during = found.throughput.during.expect("fifteen intervals");
    // At most the one request that was under way when everything failed.
    assert!(during.summary.mean * during.summary.count as f64 <= 4096.0, "{during:?}");
    assert_eq!((during.summary.min, found.depth), (0.0, Some(1.0)));
    assert_eq!((found.recovered_after_ns, found.detected_by), (None, Some(DetectedBy::Error)));
    assert!(finished.report.counts.errors > 0);
}

/// Bytes a second of each whole interval of the run.
fn course(finished: &Finished) -> Vec<f64> {
    let rows = RunFolder::open(&finished.folder).and_then(|run| run.intervals()).expect("recorded");
    let points = series(&rows);
    let whole = points.iter().filter(|point| point.end_ns - point.start_ns == SECOND);
    whole.map(rotproof_record::statistics::Point::bytes_per_second).collect()
}

#[test]
fn a_disk_alone_is_steady_and_one_with_a_write_cache_swings_about_the_same_mean() {
    let results = tempfile::tempdir().expect("a folder");
    let (steady, swinging) = (run("steady.yaml", results.path()), run("swinging.yaml", results.path()));
    let (of_steady, of_swinging) = (course(&steady), course(&swinging));
    let mean = |course: &[f64]| course.iter().take(60).sum::<f64>() / 60.0;
    let ratio = mean(&of_swinging) / mean(&of_steady);
    assert!((0.9..1.5).contains(&ratio), "means are alike: {ratio}");
    let idle = of_swinging.iter().take(60).filter(|&&rate| rate == 0.0).count();
    assert!(idle >= 20, "the cache takes nothing in a third of the seconds and more: {idle}");
    assert!(of_steady.iter().all(|&rate| rate > 0.7 * mean(&of_steady)), "{of_steady:?}");
    let variation =
        |finished: &Finished| finished.report.throughput_variation.expect("a minute of intervals");
    assert!(variation(&steady) < 0.1, "{}", variation(&steady));
    assert!(variation(&swinging) > 1.0, "{}", variation(&swinging));
}

#[test]
fn equal_trials_leave_equal_tables_to_the_byte_and_another_seed_others() {
    let results = tempfile::tempdir().expect("a folder");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/spek/correctable.yaml");
    let tables = |seed: u64| {
        let values = vec!["record={ interval: 100ms, samples: true }".into(), "load.duration=21s".into()];
        let overrides = Overrides { seed: Some(seed), values, ..Overrides::default() };
        let trial = TrialFile::open(&path, &overrides).unwrap_or_else(|error| panic!("{error}"));
        let options = RunOptions {
            results: results.path().to_owned(),
            overwrite: false,
            replay: None,
            cancel: Cancel::new(),
            monitor: Arc::new(Monitor::default()),
        };
        let folder = runner::run(&trial, &options).expect("runs").folder;
        ["intervals", "samples", "marks", "ledger", "failures"]
            .map(|name| std::fs::read(folder.join(format!("{name}.parquet"))).expect("it is there"))
    };
    let (first, again, other) = (tables(7), tables(7), tables(8));
    assert!(first == again, "the same seed");
    assert!(first[0] != other[0] && first[1] != other[1], "another seed");
}
