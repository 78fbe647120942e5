//! Loads on devices that behave and on devices that do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rotproof_block::hash::mix;
use rotproof_block::leaf::{DiskProfile, MemoryDevice, SimulatedDisk};
use rotproof_block::{ErrorKind, Operation, Phase, Request};
use rotproof_spec::{Bytes, Percent, Span};

use super::*;
use crate::evidence::Evidence;
use crate::probe::{Probe, Reaction, Rig, uring};
use crate::stream::Step;
use crate::{BLOCK_BYTES, ContentId, DeviceDriver, LoadSpec, Pattern};

pub(super) fn memory(blocks: u64) -> Arc<MemoryDevice> {
    MemoryDevice::new(blocks * BLOCK_BYTES as u64, 512).expect("a small device")
}

pub(super) fn mixed() -> LoadSpec {
    LoadSpec {
        pattern: Pattern::Random,
        reads: Percent(0.4),
        queue_depth: 8,
        workers: 2,
        requests: Some(3000),
        duplicates: crate::Duplicates::Share(Percent(0.2)),
        ..LoadSpec::default()
    }
}

pub(super) fn described(json: &str) -> LoadSpec {
    serde_json::from_str(json).expect(json)
}

#[test]
fn what_a_sequential_load_writes_is_all_there_and_right() {
    let mut rig = Rig::new(&LoadSpec::default(), 1, memory(300));
    let report = rig.phase(Phase::Run);
    assert_eq!((report.writes.requests, report.writes.bytes, report.reads.requests), (300, 300 * 4096, 0));
    assert_eq!(report.flushes.requests, 1, "what was written is flushed in the end");
    assert_eq!(rig.oracle.written_blocks(), 300);
    let report = rig.phase(Phase::Check);
    assert_eq!(
        (report.reads.requests, report.reads.bytes),
        (5, 300 * 4096),
        "large reads: 4 of 64 blocks and a rest"
    );
    assert!(report.sightings.is_empty());
}

#[test]
fn a_mixed_load_verifies_its_reads_on_threads_with_io_uring() {
    let driver = DeviceDriver::new(memory(500)).expect("suits");
    let workload = Workload::new(&mixed(), 3, driver.objects()).expect("makes sense");
    let mut oracle = Oracle::new(&workload);
    let options = uring(Phase::Prefill);
    let prefill = run(&workload, &driver, &mut oracle, &options).expect("prefills");
    assert_eq!(prefill.writes.bytes, 500 * 4096);
    assert_eq!(options.progress.counts().bytes, 500 * 4096);
    let report = run(&workload, &driver, &mut oracle, &uring(Phase::Run)).expect("runs");
    assert_eq!(report.reads.requests + report.writes.requests, 3000);
    assert!((1150..=1250).contains(&report.reads.requests), "{} of 3000 are reads", report.reads.requests);
    assert!(report.effort.is_some() && report.elapsed() > Duration::ZERO);
    let check = run(&workload, &driver, &mut oracle, &uring(Phase::Check)).expect("checks");
    assert_eq!(check.reads.bytes, 500 * 4096);
    assert!(report.sightings.is_empty() && check.sightings.is_empty());
}

#[test]
fn equal_seeds_give_equal_reports_and_oracles_under_the_simulated_runtime() {
    let once = |seed| {
        let disk = SimulatedDisk::new(500 * BLOCK_BYTES as u64, 512, DiskProfile::SSD).expect("a disk");
        let mut rig = Rig::new(&mixed(), seed, disk);
        for phase in [Phase::Prefill, Phase::Run, Phase::Check] {
            rig.phase(phase);
        }
        (rig.reports, rig.oracle)
    };
    let first = once(7);
    assert_eq!(first, once(7));
    assert_ne!(first, once(8));
    assert!(first.0[1].elapsed() > Duration::from_micros(100), "virtual time passes");
}

#[test]
fn requests_in_flight_never_overlap_and_keep_the_order_of_the_stream() {
    // Ten places and sixteen slots: most steps find their place taken.
    let draws = AtomicU64::new(0);
    let probe = Probe::new(20, move |_| {
        let draw = draws.fetch_add(1, Ordering::Relaxed);
        Reaction::Delay(Duration::from_micros(mix(1, 2, draw) % 1000))
    })
    .expect("a probe");
    let spec = LoadSpec {
        block_size: Bytes(8192).into(),
        queue_depth: 16,
        workers: 1,
        prefill: Some(false),
        ..mixed()
    };
    let mut rig = Rig::new(&spec, 5, probe.clone());
    rig.phase(Phase::Run);
    assert_eq!(probe.overlaps(), 0);
    let seen: Vec<_> = probe.seen().iter().map(|seen| (seen.operation, seen.offset)).collect();
    let mut expected: Vec<_> = rig
        .workload
        .stream(Stage::Run, 0)
        .map(|step| match step {
            Step::Read(extent) => (Operation::Read, extent.offset_bytes()),
            Step::Write { extent, .. } => (Operation::WRITE, extent.offset_bytes()),
            Step::Discard(_) | Step::Flush => (Operation::Flush, 0),
        })
        .collect();
    expected.push((Operation::Flush, 0));
    assert_eq!(seen, expected);
    assert!(rig.phase(Phase::Check).sightings.is_empty());
    assert!(rig.reports[0].sightings.is_empty());
}

#[test]
fn lanes_work_at_once() {
    let probe = Probe::new(64, |_| Reaction::Delay(Duration::from_millis(1))).expect("a probe");
    let spec = LoadSpec { queue_depth: 8, ..LoadSpec::default() };
    let mut rig = Rig::new(&spec, 1, probe);
    // 64 writes, eight at a time, and a flush.
    let report = rig.phase(Phase::Run);
    assert_eq!(report.elapsed(), Duration::from_millis(9));
    assert!(report.writes.latency.min().abs_diff(1_000_000) <= 1000, "{}", report.writes.latency.min());
    assert!(report.writes.latency.max().abs_diff(1_000_000) <= 1000, "{}", report.writes.latency.max());
}

#[test]
fn a_failed_write_is_a_failure_then_and_either_version_is_right_later() {
    for reaction in [Reaction::Fail, Reaction::FailAfter] {
        let is_hit = |request: &Request| {
            request.context.phase == Phase::Run
                && request.operation == Operation::WRITE
                && request.offset == 5 * 4096
        };
        let probe = Probe::new(8, move |request| if is_hit(request) { reaction } else { Reaction::Pass });
        let spec = LoadSpec { prefill: Some(true), ..LoadSpec::default() };
        let mut rig = Rig::new(&spec, 1, probe.expect("a probe"));
        rig.phase(Phase::Prefill);
        let report = rig.phase(Phase::Run);
        assert_eq!(report.writes.errors, [(ErrorKind::Medium, 1)]);
        assert_eq!((report.incidents.len(), report.incidents[0].offset_bytes), (1, 5 * 4096));
        assert_eq!(report.sightings.len(), 1);
        assert_eq!(
            report.sightings.iter().next().map(|seen| seen.evidence),
            Some(Evidence::Error(ErrorKind::Medium))
        );
        let old = ContentId::new(Stage::Prefill, 0, 5);
        let new = ContentId::new(Stage::Run, 0, 5);
        assert_eq!(rig.oracle.legal(5), [old, new]);
        assert!(rig.phase(Phase::Check).sightings.is_empty(), "{reaction:?}");
    }
}

#[test]
fn an_ignored_write_is_found_by_the_check() {
    let is_hit = |request: &Request| request.operation == Operation::WRITE && request.offset == 5 * 4096;
    let probe = Probe::new(8, move |request| if is_hit(request) { Reaction::Ignore } else { Reaction::Pass });
    let mut rig = Rig::new(&LoadSpec::default(), 1, probe.expect("a probe"));
    assert!(rig.phase(Phase::Run).sightings.is_empty());
    let sightings = &rig.phase(Phase::Check).sightings;
    assert_eq!(sightings.iter().map(|sighting| sighting.block).collect::<Vec<_>>(), [5]);
}

#[test]
fn the_check_names_exactly_the_unreadable_blocks() {
    let bad = [3u64, 64, 65, 199];
    let touches = move |request: &Request| {
        request.operation == Operation::Read
            && bad.iter().any(|block| (request.offset..request.end()).contains(&(block * BLOCK_BYTES as u64)))
    };
    let probe =
        Probe::new(200, move |request| if touches(request) { Reaction::Fail } else { Reaction::Pass });
    let mut rig = Rig::new(&LoadSpec::default(), 1, probe.expect("a probe"));
    rig.phase(Phase::Run);
    let report = rig.phase(Phase::Check);
    assert_eq!(report.sightings.iter().map(|sighting| sighting.block).collect::<Vec<_>>(), bad);
    assert_eq!(
        report.reads.error_count(),
        3,
        "of four reads three hold a bad block; looking closer does not count"
    );
    assert_eq!(report.incidents.len(), 3);
}

#[test]
fn an_error_that_passes_is_an_incident_but_no_failing_block() {
    let count = AtomicU64::new(0);
    let probe = Probe::new(64, move |request| {
        let is_first_read =
            request.operation == Operation::Read && count.fetch_add(1, Ordering::Relaxed) == 0;
        if is_first_read { Reaction::Fail } else { Reaction::Pass }
    });
    let mut rig = Rig::new(&LoadSpec::default(), 1, probe.expect("a probe"));
    rig.phase(Phase::Run);
    let report = rig.phase(Phase::Check);
    assert_eq!((report.reads.error_count(), report.incidents.len(), report.sightings.len()), (1, 1, 0));
}

#[test]
fn a_failed_read_of_the_load_fails_all_its_blocks_and_is_not_repeated() {
    let probe = Probe::new(64, |request| {
        let is_hit = request.operation == Operation::Read && request.offset == 0;
        if is_hit { Reaction::Fail } else { Reaction::Pass }
    })
    .expect("a probe");
    let spec = LoadSpec {
        reads: Percent(1.0),
        prefill: Some(true),
        block_size: Bytes(16384).into(),
        requests: Some(32),
        ..LoadSpec::default()
    };
    let mut rig = Rig::new(&spec, 1, probe.clone());
    rig.phase(Phase::Prefill);
    let report = rig.phase(Phase::Run);
    assert_eq!(report.sightings.iter().map(|sighting| sighting.block).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(report.sightings.iter().all(|sighting| sighting.count == 2), "32 requests come round twice");
    let reads = probe.seen().iter().filter(|seen| seen.phase == Phase::Run).count();
    assert_eq!(reads, 32);
}

#[test]
fn a_read_that_returns_without_having_read_is_seen() {
    // With one block, the memory of a read is that of the write before, and holds the very content expected.
    let probe =
        Probe::new(
            1,
            |request| {
                if request.operation == Operation::Read { Reaction::Ignore } else { Reaction::Pass }
            },
        );
    let spec = LoadSpec { reads: Percent(0.5), requests: Some(640), ..LoadSpec::default() };
    let mut rig = Rig::new(&spec, 1, probe.expect("a probe"));
    rig.phase(Phase::Prefill);
    let sightings = &rig.phase(Phase::Run).sightings;
    assert_eq!(sightings.iter().map(|sighting| sighting.count).sum::<u64>(), 320, "every read is wrong");
}

#[test]
fn never_written_blocks_are_no_failures_unless_zeros_are_expected() {
    let spec = LoadSpec { requests: Some(10), ..LoadSpec::default() };
    let mut rig = Rig::new(&spec, 1, memory(40));
    rig.phase(Phase::Run);
    rig.damage(30, |block| block[17] = 1);
    let report = rig.phase(Phase::Check);
    assert_eq!((report.reads.bytes, report.sightings.len()), (10 * 4096, 0));
    rig.oracle.expect_zeros_where_never_written();
    let report = rig.phase(Phase::Check);
    assert_eq!(report.reads.bytes, 40 * 4096);
    assert_eq!(report.sightings.iter().map(|sighting| sighting.block).collect::<Vec<_>>(), [30]);
}

#[test]
fn flushes_come_after_so_many_writes_and_at_the_end() {
    let probe = Probe::new(20, |_| Reaction::Pass).expect("a probe");
    let spec = LoadSpec { flush_every: Some(8), ..LoadSpec::default() };
    let mut rig = Rig::new(&spec, 1, probe.clone());
    assert_eq!(rig.phase(Phase::Run).flushes.requests, 3);
    let flushes: Vec<_> = (0..)
        .zip(probe.seen())
        .filter(|(_, seen)| seen.operation == Operation::Flush)
        .map(|(at, _)| at)
        .collect();
    assert_eq!(flushes, [8, 17, 22]);
}

#[test]
fn a_flush_is_sent_even_when_all_writes_before_it_are_still_in_flight() {
    let probe = Probe::new(32, |_| Reaction::Delay(Duration::from_millis(1))).expect("a probe");
    let spec = LoadSpec { flush_every: Some(8), queue_depth: 16, ..LoadSpec::default() };
    let mut rig = Rig::new(&spec, 1, probe.clone());
    assert_eq!(rig.phase(Phase::Run).flushes.requests, 5, "one after each eight writes, and one in the end");
    assert_eq!(probe.seen()[8].operation, Operation::Flush);
}

#[test]
fn a_failed_flush_is_an_error_of_the_load() {
    let probe =
        Probe::new(
            20,
            |request| {
                if request.operation == Operation::Flush { Reaction::Fail } else { Reaction::Pass }
            },
        );
    let mut rig = Rig::new(&LoadSpec::default(), 1, probe.expect("a probe"));
    let report = rig.phase(Phase::Run);
    assert_eq!((report.error_count(), report.incidents[0].operation), (1, LoadOperation::Flush));
}

#[test]
fn a_load_that_shall_stop_stops_at_once_even_if_its_requests_hang() {
    for reaction in [Reaction::Hang, Reaction::Delay(Duration::from_micros(10))] {
        let probe = Probe::new(20, move |_| reaction).expect("a probe");
        let driver = DeviceDriver::new(probe.clone()).expect("suits");
        let spec = LoadSpec { duration: Some(Span(Duration::from_secs(3600))), ..LoadSpec::default() };
        let workload = Workload::new(&spec, 1, driver.objects()).expect("makes sense");
        let mut oracle = Oracle::new(&workload);
        let options = uring(Phase::Run);
        let cancel = Arc::clone(&options.cancel);
        let began = Instant::now();
        let report = std::thread::scope(|scope| {
            scope.spawn(move || {
                // At a depth of one the second comes when the first has completed.
                let wanted = if reaction == Reaction::Hang { 1 } else { 2 };
                while probe.seen().len() < wanted && began.elapsed() < Duration::from_secs(15) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                cancel.store(2, Ordering::Relaxed);
            });
            run(&workload, &driver, &mut oracle, &options).expect("what was done up to there")
        });
        assert!(report.is_interrupted && report.ended > report.started);
        assert_eq!(report.writes.requests > 0, reaction != Reaction::Hang, "{reaction:?}");
        assert!(began.elapsed() < Duration::from_secs(20), "{reaction:?}: {:?}", began.elapsed());
        let error =
            run(&workload, &driver, &mut oracle, &uring(Phase::Check)).expect_err("the oracle is gone");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_request_that_hangs_is_told_of_once_and_given_up_when_nothing_else_is_left_to_do() {
    // The first request for block 3 hangs; with a depth of 1 nothing goes on beside it.
    for (json, sends) in [
        (r#"{ "queue_depth": 4, "hung_after": "120ms" }"#, 20),
        (r#"{ "hung_after": "60ms", "flush_every": 1 }"#, 4),
        (r#"{ "queue_depth": 2, "duration": "100ms", "hung_after": "60ms", "pattern": "random" }"#, 0),
    ] {
        let hangs = |request: &Request| {
            let is_hit = request.offset == 3 * 4096 && request.operation == Operation::WRITE;
            if is_hit { Reaction::Hang } else { Reaction::Delay(Duration::from_micros(50)) }
        };
        let driver = DeviceDriver::new(Probe::new(20, hangs).expect("a probe")).expect("suits");
        let workload = Workload::new(&described(json), 1, driver.objects()).expect("makes sense");
        let mut oracle = Oracle::new(&workload);
        let options = uring(Phase::Run);
        let report = run(&workload, &driver, &mut oracle, &options).expect("it ends");
        assert!(!report.is_interrupted, "{json}");
        assert_eq!(report.hung.len(), 1, "{json}: {:?}", report.hung);
        let hung = &report.hung[0];
        assert_eq!((hung.offset_bytes, hung.length_bytes, hung.end), (3 * 4096, 4096, HungEnd::GivenUp));
        assert_eq!((&*hung.operation, hung.object.as_str()), ("write", "device"));
        assert!(hung.age_ns >= workload.hung_after().as_nanos() as u64, "{hung:?}");
        assert_eq!(report.writes.errors, [(ErrorKind::TimedOut, 1)], "{json}");
        assert_eq!(report.writes.latency.len(), report.writes.requests, "{json}: it has a latency too");
        assert!(report.writes.latency.max() + 1_000_000 >= hung.age_ns, "{json}: {hung:?}");
        if sends > 0 {
            assert_eq!(report.writes.requests, sends, "{json}");
        }
        let told = options.progress.take_hung();
        assert_eq!(told.len(), 1, "{json}");
        assert_eq!((told[0].offset_bytes, told[0].end), (3 * 4096, HungEnd::Waiting));
        // What may still come at any time is not judged; everything else is.
        let check = run(&workload, &driver, &mut oracle, &uring(Phase::Check)).expect("it ends");
        assert!(check.sightings.is_empty() && check.hung.is_empty(), "{json}: {:?}", check.sightings);
        let failures = crate::classify(&workload, &oracle, [&report, &check]);
        assert_eq!(failures.len(), 1, "{json}");
        assert_eq!((failures[0].block, failures[0].worst().what.kind()), (3, "unwritable"));
    }
}

#[test]
fn a_request_that_comes_back_late_is_told_of_and_no_error() {
    let slow = |request: &Request| {
        let is_hit = request.offset == 3 * 4096 && request.operation == Operation::WRITE;
        Reaction::Delay(Duration::from_millis(if is_hit { 900 } else { 1 }))
    };
    let driver = DeviceDriver::new(Probe::new(20, slow).expect("a probe")).expect("suits");
    let spec = described(r#"{ "hung_after": "700ms" }"#);
    let workload = Workload::new(&spec, 1, driver.objects()).expect("makes sense");
    let mut oracle = Oracle::new(&workload);
    let report = run(&workload, &driver, &mut oracle, &uring(Phase::Run)).expect("it ends");
    assert_eq!((report.hung.len(), report.error_count(), report.writes.requests), (1, 0, 20));
    assert_eq!(report.hung[0].end, HungEnd::Returned);
    assert!(report.hung[0].age_ns >= 900_000_000);
    let check = run(&workload, &driver, &mut oracle, &uring(Phase::Check)).expect("it ends");
    assert!(check.sightings.is_empty());
}

#[test]
fn a_driver_with_other_objects_and_a_setup_phase_are_refused() {
    let mut rig = Rig::new(&LoadSpec::default(), 1, memory(8));
    assert_eq!(rig.try_phase(Phase::Setup).expect_err("no such phase").kind(), ErrorKind::Invalid);
    rig.driver = DeviceDriver::new(memory(9)).expect("suits");
    assert_eq!(rig.try_phase(Phase::Run).expect_err("another size").kind(), ErrorKind::Invalid);
}

#[test]
fn a_worker_that_cannot_open_its_queue_stops_the_others_before_they_begin() {
    #[derive(Clone)]
    struct Broken(DeviceDriver, Arc<AtomicU64>);
    impl Driver for Broken {
        fn objects(&self) -> &[crate::ObjectInfo] {
            self.0.objects()
        }

        fn open(&self, runtime: &Runtime) -> Result<Vec<Rc<dyn Queue>>> {
            if self.1.fetch_add(1, Ordering::Relaxed) == 1 {
                return Err(Error::new(ErrorKind::Gone, "unplugged"));
            }
            self.0.open(runtime)
        }

        fn shared(&self) -> Arc<dyn Driver> {
            Arc::new(self.clone())
        }
    }
    let probe = Probe::new(20, |_| Reaction::Pass).expect("a probe");
    let driver = Broken(DeviceDriver::new(probe.clone()).expect("suits"), Arc::default());
    let spec = LoadSpec { workers: 3, ..LoadSpec::default() };
    let workload = Workload::new(&spec, 1, driver.objects()).expect("makes sense");
    let error = run(&workload, &driver, &mut Oracle::new(&workload), &uring(Phase::Run)).expect_err("fails");
    assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
    assert!(probe.seen().is_empty());
}

#[test]
fn a_failed_request_is_tried_again_as_often_and_after_what_it_is_told() {
    let run = |json: &str, failing: u64| {
        let count = AtomicU64::new(0);
        let probe = Probe::new(64, move |request| {
            let is_hit = request.operation != Operation::Flush
                && request.context.phase == Phase::Run
                && request.offset == 3 * 4096
                && count.fetch_add(1, Ordering::Relaxed) < failing;
            if is_hit { Reaction::Fail } else { Reaction::Delay(Duration::from_micros(100)) }
        });
        let mut rig = Rig::new(&described(json), 1, probe.expect("a probe"));
        let report = rig.phase(Phase::Run).clone();
        let check = rig.phase(Phase::Check).sightings.len();
        (
            report.error_count(),
            report.writes.retries + report.reads.retries,
            report.sightings.len(),
            check,
            report,
        )
    };
    let twice = r#"{ "requests": 8, "retry": { "count": 2, "delay": "5ms" } }"#;
    let (errors, retries, sightings, check, report) = run(twice, 2);
    assert_eq!((errors, retries, sightings, check), (0, 2, 0, 0));
    assert!(report.writes.latency.max() > 10_000_000, "the waits count");
    assert_eq!(report.writes.requests, 8);
    let (errors, retries, sightings, ..) = run(twice, 3);
    assert_eq!((errors, retries, sightings), (1, 2, 1), "not more often");
    let (errors, retries, ..) = run(r#"{ "requests": 8, "retry": { "count": 2, "on": ["timed_out"] } }"#, 1);
    assert_eq!((errors, retries), (1, 0), "not after other errors");
    let (errors, retries, sightings, ..) =
        run(r#"{ "requests": 8, "reads": "100%", "prefill": true, "retry": 1 }"#, 1);
    assert_eq!((errors, retries, sightings), (0, 1, 0), "reads too");
}

#[test]
fn a_durable_write_needs_no_flush() {
    let probe = Probe::new(20, |_| Reaction::Pass).expect("a probe");
    let mut rig = Rig::new(&described(r#"{ "fua": "100%", "requests": 10 }"#), 1, probe.clone());
    assert_eq!(rig.phase(Phase::Run).flushes.requests, 0);
    assert!(probe.seen().iter().all(|seen| seen.operation == Operation::Write { fua: true }));
    assert!(rig.phase(Phase::Check).sightings.is_empty());
}

#[test]
fn everything_at_once_is_the_same_twice_and_right() {
    let spec = described(
        r#"{ "requests": 3000, "ramp_up": 100, "retry": 1, "duplicates": "20%", "jobs": [
            { "space": "20%", "block_size": { "4KiB": "50%", "32KiB": "50%" }, "flush_every": 7, "fua": "10%" },
            { "pattern": { "zipf": { "theta": 0.9 } }, "sequential": "30%", "reads": "60%", "queue_depth": 8,
              "block_size": { "reads": { "4KiB": "70%", "64KiB": "30%" }, "writes": "16KiB" }, "workers": 2,
              "rate": { "requests": 20000, "arrivals": "poisson" } },
            { "pattern": "nurand", "reads": "50%", "queue_depth": 4, "think_time": { "pause": "1ms", "after": 8 } } ] }"#,
    );
    let once = || {
        let disk = SimulatedDisk::new(5000 * BLOCK_BYTES as u64, 512, DiskProfile::SSD).expect("a disk");
        let mut rig = Rig::new(&spec, 7, disk);
        for phase in [Phase::Prefill, Phase::Run, Phase::Check] {
            rig.phase(phase);
        }
        (rig.reports, rig.oracle)
    };
    let first = once();
    assert_eq!(first, once());
    assert!(first.0.iter().all(|report| report.sightings.is_empty() && report.error_count() == 0));
}

#[test]
fn mixed_sizes_never_overlap_in_flight_and_verify_on_threads() {
    let spec = described(
        r#"{ "pattern": "random", "sequential": "20%", "reads": "40%", "queue_depth": 16, "workers": 2,
             "requests": 4000, "block_size": { "4KiB": "40%", "16KiB": "40%", "64KiB": "20%" } }"#,
    );
    let probe = Probe::new(200, |_| Reaction::Pass).expect("a probe");
    let driver = DeviceDriver::new(probe.clone()).expect("suits");
    let workload = Workload::new(&spec, 3, driver.objects()).expect("makes sense");
    let mut oracle = Oracle::new(&workload);
    for phase in [Phase::Prefill, Phase::Run, Phase::Check] {
        let report = run(&workload, &driver, &mut oracle, &uring(phase)).expect("runs");
        assert!(report.sightings.is_empty());
    }
    assert_eq!(probe.overlaps(), 0);
}

#[test]
fn a_load_that_does_not_verify_looks_at_nothing_and_claims_nothing() {
    let device = rotproof_block::leaf::NullDevice::new(500 * BLOCK_BYTES as u64).expect("a device");
    let mut rig = Rig::new(&mixed(), 1, device);
    let options = RunOptions {
        runtime: RunOn::Simulated(&rig.runtime),
        phase: Phase::Run,
        verify: false,
        cancel: Arc::new(AtomicUsize::new(0)),
        progress: Arc::new(Progress::default()),
        recording: None,
        phase_cell: None,
        let_go: None,
    };
    let report = run(&rig.workload, &rig.driver, &mut rig.oracle, &options).expect("runs");
    assert_eq!((report.reads.requests + report.writes.requests, report.sightings.len()), (3000, 0));
    assert_eq!(rig.oracle.written_blocks(), 0);
}
