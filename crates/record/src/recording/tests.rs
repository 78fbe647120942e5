use std::time::Duration;

use rotproof_block::ErrorKind;
use rotproof_spec::Span;

use super::*;
use crate::outcome::Measured;
use crate::run_folder::RunFolder;
use crate::spec::IntervalLength;

const OPERATIONS: &[&str] = &["read", "write"];

fn recording(folder: &Path, interval_ms: u64, samples: bool, workers: u16) -> Arc<Recording> {
    let interval = IntervalLength::Every(Span(Duration::from_millis(interval_ms)));
    let spec = RecordSpec { interval, samples, ..RecordSpec::default() };
    let folder = folder.to_owned();
    Recording::new(RecordingOptions { spec, operations: OPERATIONS, workers, folder }).expect("a folder")
}

fn request(operation: u8, ended_ms: u64, latency_ms: u64) -> Measured {
    Measured {
        operation,
        began: Time((ended_ms - latency_ms) * 1_000_000),
        ended: Time(ended_ms * 1_000_000),
        bytes: 4096,
        retries: 0,
        error: None,
    }
}

/// Phase, start in milliseconds, worker, operation, requests.
fn brief(rows: &[Interval]) -> Vec<(String, u64, Option<u16>, String, u64)> {
    rows.iter()
        .map(|row| {
            let start_ms = row.start.0 / 1_000_000;
            (row.phase.to_string(), start_ms, row.worker, row.operation.to_string(), row.requests)
        })
        .collect()
}

#[test]
fn intervals_are_by_completion_of_each_worker_and_of_all_and_empty_ones_are_zeros() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = recording(folder.path(), 100, false, 2);
    recording.begin_phase("run", 2);
    let (mut a, mut b) = (recording.recorder(0, Time(0)), recording.recorder(1, Time(1_000_000)));
    a.record(&request(0, 10, 5));
    a.record(&request(1, 99, 50));
    b.record(&request(0, 50, 1));
    b.record(&Measured { error: Some(ErrorKind::Medium), retries: 2, ..request(0, 430, 2) });
    assert!(recording.latest(Time(0)).is_empty(), "the other worker may still be in the first interval");
    a.tick(Time(250_000_000));
    assert_eq!(recording.latest(Time(0)).len(), 2, "a read and a write");
    a.finish(Time(440_000_000));
    b.finish(Time(450_000_000));
    recording.end_phase(Time(0), None, Time(450_000_000));
    recording.write_to(folder.path()).expect("written");
    let found = RunFolder::open(folder.path()).expect("a folder");
    let rows = found.intervals().expect("intervals");
    let all: Vec<Interval> = rows.iter().filter(|row| row.worker.is_none()).cloned().collect();
    let run =
        |start, operation: &str, requests| ("run".to_owned(), start, None, operation.to_owned(), requests);
    let wanted: Vec<_> = [(0, 2, 1), (100, 0, 0), (200, 0, 0), (300, 0, 0), (400, 1, 0)]
        .into_iter()
        .flat_map(|(start, reads, writes)| [run(start, "read", reads), run(start, "write", writes)])
        .collect();
    assert_eq!(brief(&all), wanted);
    assert_eq!((all[0].bytes, all[0].latency_ns.max, all[8].errors, all[8].retries), (8192, 5_000_000, 1, 2));
    assert_eq!(
        (all[8].first_error, all[8].bytes, all[8].length_ns),
        (Some(Time(430_000_000)), 0, 50_000_000)
    );
    let of_workers = rows.iter().filter(|row| row.worker.is_some());
    assert_eq!(of_workers.map(|row| row.requests).sum::<u64>(), 4);
    let marks = found.marks().expect("marks");
    assert_eq!(marks, [Mark::span(MarkKind::Phase, "run", Time(0), Time(450_000_000))]);
}

#[test]
fn a_ramp_up_shortens_the_first_interval_and_a_cool_down_is_a_phase_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = recording(folder.path(), 100, false, 1);
    recording.begin_phase("run", 1);
    let mut recorder = recording.recorder(0, Time(1_000_000_000));
    recorder.begin_at(Time(1_150_000_000));
    recorder.record(&request(0, 1160, 5));
    recorder.recover(Time(1_260_000_000));
    recorder.record(&request(0, 1270, 5));
    recorder.record(&request(0, 1310, 5));
    recorder.finish(Time(1_320_000_000));
    recording.end_phase(
        Time(1_150_000_000),
        Some((Time(1_260_000_000), Time(1_260_000_000))),
        Time(1_320_000_000),
    );
    recording.write_to(folder.path()).expect("written");
    let found = RunFolder::open(folder.path()).expect("a folder");
    let rows = found.intervals().expect("intervals");
    let spans: Vec<_> = rows
        .iter()
        .filter(|row| row.worker.is_none())
        .map(|row| (&*row.phase, row.start.0 / 1_000_000, row.length_ns / 1_000_000, row.requests))
        .collect();
    assert_eq!(
        spans,
        [("run", 1150, 50, 1), ("run", 1200, 60, 0), ("cool_down", 1260, 40, 1), ("cool_down", 1300, 20, 1)]
    );
    let marks = found.marks().expect("marks");
    let names: Vec<_> = marks.iter().map(|mark| (&*mark.name, mark.from_ns / 1_000_000)).collect();
    assert_eq!(names, [("ramp_up", 1000), ("run", 1150), ("cool_down", 1260)]);
}

#[test]
fn samples_before_a_cool_down_are_those_of_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = recording(folder.path(), 100, true, 1);
    recording.begin_phase("run", 1);
    let mut recorder = recording.recorder(0, Time(0));
    recorder.record(&request(0, 10, 5));
    recorder.record(&request(0, 20, 5));
    recorder.recover(Time(30_000_000));
    recorder.record(&request(0, 40, 5));
    recorder.finish(Time(50_000_000));
    recording.end_phase(Time(0), Some((Time(30_000_000), Time(30_000_000))), Time(50_000_000));
    recording.write_to(folder.path()).expect("written");
    let samples = RunFolder::open(folder.path()).and_then(|run| run.samples()).expect("samples");
    let phases: Vec<_> = samples.iter().map(|sample| &*sample.phase).collect();
    assert_eq!(phases, ["run", "run", "cool_down"]);
}

#[test]
fn more_rows_than_are_kept_in_memory_all_come_back_in_their_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = recording(folder.path(), 10, false, 1);
    recording.begin_phase("run", 1);
    let mut recorder = recording.recorder(0, Time(0));
    let intervals = 2 * ROWS_MAX as u64 / 3;
    for index in 0..intervals {
        recorder.record(&request(0, index * 10 + 5, 5));
    }
    assert!(recording.shared.lock().rows.len() < ROWS_MAX);
    recorder.finish(Time(intervals * 10_000_000));
    recording.write_to(folder.path()).expect("written");
    let rows = RunFolder::open(folder.path()).and_then(|found| found.intervals()).expect("intervals");
    let starts: Vec<u64> = rows.iter().filter(|row| row.worker.is_none()).map(|row| row.start.0).collect();
    assert_eq!(starts, (0..intervals).map(|index| index * 10_000_000).collect::<Vec<_>>());
    assert_eq!(rows.iter().filter(|row| row.worker == Some(0)).count() as u64, intervals);
}

#[test]
fn samples_come_back_one_by_one_and_intervals_at_the_end_are_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = RecordSpec { interval: IntervalLength::End, samples: true, ..RecordSpec::default() };
    let options =
        RecordingOptions { spec, operations: OPERATIONS, workers: 1, folder: folder.path().to_owned() };
    let recording = Recording::new(options).expect("a folder");
    recording.begin_phase("run", 1);
    let mut recorder = recording.recorder(0, Time(0));
    let count = 100_000u64;
    for index in 0..count {
        let error = (index == 7).then_some(ErrorKind::TimedOut);
        recorder.record(&Measured { error, ..request((index % 2) as u8, index + 3, 3) });
    }
    recorder.finish(Time(count * 1_000_000));
    recording.write_to(folder.path()).expect("written");
    let found = RunFolder::open(folder.path()).expect("a folder");
    let samples = found.samples().expect("they were kept");
    assert_eq!(samples.len() as u64, count);
    for (sample, index) in samples.iter().zip(0..) {
        assert_eq!((sample.began_ns, sample.latency_ns), (index * 1_000_000, 3_000_000));
        assert_eq!(&*sample.operation, OPERATIONS[(index % 2) as usize]);
        assert_eq!(&*sample.outcome, if index == 7 { "timed_out" } else { "ok" });
    }
    let rows = found.intervals().expect("intervals");
    let all: Vec<_> = rows.iter().filter(|row| row.worker.is_none()).collect();
    assert_eq!(all.iter().map(|row| row.requests).collect::<Vec<_>>(), [count / 2, count / 2]);
    assert!(RunFolder::open(&folder.path().join("nowhere")).is_err());
}

#[test]
fn workers_that_join_as_they_come_are_waited_for_and_may_come_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = recording(folder.path(), 100, false, 3);
    recording.begin_phase("run", 0);
    let mut first = recording.recorder(2, Time(0));
    first.record(&request(0, 10, 5));
    first.finish(Time(20_000_000));
    let (mut a, mut b) = (recording.recorder(0, Time(30_000_000)), recording.recorder(1, Time(30_000_000)));
    a.record(&request(0, 250, 5));
    assert!(recording.latest(Time(0)).is_empty(), "the other worker may still be in the first interval");
    b.record(&request(1, 40, 5));
    b.finish(Time(260_000_000));
    a.finish(Time(260_000_000));
    let mut last = recording.recorder(2, Time(270_000_000));
    last.record(&request(1, 330, 10));
    last.finish(Time(330_000_000));
    recording.end_phase(Time(0), None, Time(330_000_000));
    recording.write_to(folder.path()).expect("written");
    let rows = RunFolder::open(folder.path()).and_then(|found| found.intervals()).expect("intervals");
    let all: Vec<_> = rows
        .iter()
        .filter(|row| row.worker.is_none())
        .map(|row| (row.start.0 / 1_000_000, &*row.operation, row.requests))
        .collect();
    let both = |start, reads, writes| [(start, "read", reads), (start, "write", writes)];
    assert_eq!(all, [both(0, 1, 1), both(100, 0, 0), both(200, 1, 0), both(300, 0, 1)].concat());
    let mut workers: Vec<_> = rows.iter().filter_map(|row| Some((row.worker?, row.requests))).collect();
    workers.sort_unstable();
    assert_eq!(workers, [(0, 1), (1, 1), (2, 1), (2, 1)]);
}

#[test]
fn the_device_has_a_table_of_its_own_without_workers() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = |samples| RecordingOptions {
        spec: RecordSpec { samples, ..RecordSpec::default() },
        operations: OPERATIONS,
        workers: 1,
        folder: folder.path().to_owned(),
    };
    let (load, device) = (
        Recording::new(options(false)).expect("a folder"),
        Recording::of_device(options(true)).expect("a folder"),
    );
    load.begin_phase("run", 0);
    load.end_phase(Time(0), None, Time(1_000_000_000));
    device.begin_phase("run", 1);
    let mut recorder = device.recorder(0, Time(0));
    recorder.record(&request(1, 500, 5));
    recorder.finish(Time(600_000_000));
    device.end_phase(Time(0), None, Time(600_000_000));
    load.write_to(folder.path()).expect("written");
    let found = RunFolder::open(folder.path()).expect("a folder");
    assert_eq!(found.device_intervals().expect("none yet"), []);
    device.write_intervals(folder.path()).expect("written");
    assert_eq!(found.intervals().expect("of nothing"), []);
    let rows = brief(&found.device_intervals().expect("there are some"));
    assert_eq!(rows, [("run".to_owned(), 0, None, "write".to_owned(), 1)]);
    assert_eq!(found.phases().expect("marks").len(), 1);
    assert!(!found.has_samples());
}

#[test]
fn a_load_is_steady_when_all_workers_have_left_the_window_that_shows_it_and_the_rest_of_an_interval_shows_nothing()
 {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = recording(folder.path(), 100, false, 2);
    let window = Span(Duration::from_millis(500));
    recording.watch_steadiness(SteadySpec { window, ..SteadySpec::default() });
    // Steady enough, but not what was asked for.
    recording.begin_phase("prefill", 1);
    let mut prefill = recording.recorder(0, Time(0));
    (1..100).for_each(|n| prefill.record(&request(1, n * 10, 1)));
    prefill.finish(Time(1_000_000_000));
    recording.end_phase(Time(0), None, Time(1_000_000_000));
    assert!(!recording.is_steady());
    recording.begin_phase("run", 2);
    let (mut a, mut b) = (recording.recorder(0, Time(0)), recording.recorder(1, Time(0)));
    // Ever fewer, until 500 ms; then one every ten.
    let mut ends: Vec<u64> = (0..5).flat_map(|n| (0..60 - 10 * n).map(move |i| n * 100 + i)).collect();
    ends.extend((50..101).map(|n| n * 10));
    ends.iter().for_each(|&at| a.record(&request(0, at + 1, 1)));
    assert!(!recording.is_steady(), "the other worker has told nothing yet");
    b.tick(Time(950_000_000));
    assert!(!recording.is_steady());
    b.tick(Time(1_000_000_000));
    assert!(recording.is_steady());
    a.finish(Time(1_020_000_000));
    b.finish(Time(1_020_000_000));
    recording.end_phase(Time(0), None, Time(1_020_000_000));
    let end = recording.steady_end().expect("it was asked");
    let since = end.state.and_then(|state| state.since_ns);
    assert_eq!((end.attained, since, end.at_ns), (true, Some(500_000_000), Some(1_000_000_000)));
    let marks = recording.marks();
    let mark = marks.iter().find(|mark| mark.kind == MarkKind::Event).expect("it is a mark");
    assert_eq!((&*mark.name, mark.from_ns), ("steady", 1_000_000_000));
    assert_eq!(marks.iter().filter(|mark| &*mark.name == "steady").count(), 1);
}

#[test]
fn workers_of_two_machines_are_recorded_as_if_they_were_of_one() {
    /// Two workers that do the same in each of two phases, wherever their clocks stand.
    fn work(recordings: [&Arc<Recording>; 2], clocks: [u64; 2]) {
        for phase in ["run", "check"] {
            let mut recorders = Vec::new();
            for (worker, (recording, clock)) in (0..).zip(recordings.iter().zip(clocks)) {
                if worker == 0 || !Arc::ptr_eq(recordings[0], recordings[1]) {
                    recording.begin_phase(phase, 2);
                }
                recorders.push(recording.recorder(worker, Time(clock)));
            }
            for (worker, (recorder, clock)) in (0..).zip(recorders.iter_mut().zip(clocks)) {
                for (operation, ended_ms, latency_ms) in
                    [(0, 10, 5), (1, 99, 50 + worker), (0, 250 + worker, 3), (0, 460, 7)]
                {
                    let request = request(operation, ended_ms, latency_ms);
                    let at = |time: Time| Time(time.0 + clock);
                    recorder.record(&Measured {
                        began: at(request.began),
                        ended: at(request.ended),
                        ..request
                    });
                }
                let request = request(1, 470, 1);
                let (began, ended) = (Time(request.began.0 + clock), Time(request.ended.0 + clock));
                recorder.record(&Measured { error: Some(ErrorKind::Medium), began, ended, ..request });
            }
            for (recorder, clock) in recorders.into_iter().zip(clocks) {
                recorder.finish(Time(clock + 480_000_000));
            }
            let count = if Arc::ptr_eq(recordings[0], recordings[1]) { 1 } else { 2 };
            for (recording, clock) in recordings.iter().zip(clocks).take(count) {
                recording.end_phase(Time(clock), None, Time(clock + 480_000_000));
            }
        }
    }

    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let one = recording(folders[0].path(), 100, false, 2);
    work([&one, &one], [0, 0]);

    let whole = recording(folders[1].path(), 100, false, 2);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let remotes = [0, 1].map(|_| {
        let sent = Arc::clone(&sent);
        let interval = IntervalLength::Every(Span(Duration::from_millis(100)));
        Recording::forwarding(OPERATIONS, interval, move |interval| {
            let text = serde_json::to_string(&interval).expect("JSON");
            sent.lock().push(text);
        })
    });
    work([&remotes[0], &remotes[1]], [7_000_000_000, 123_000_000]);
    let sent = std::mem::take(&mut *sent.lock());
    // Each worker did something in three intervals of each phase.
    assert_eq!(sent.len(), 12);
    for (phase, sent) in ["run", "check"].into_iter().zip([&sent[..6], &sent[6..]]) {
        whole.begin_phase(phase, 2);
        whole.begin_at(Time(0));
        for text in sent {
            let interval: RemoteInterval = serde_json::from_str(text).expect("the same");
            whole.add_remote(&interval).expect("makes sense");
        }
        let wrong = RemoteInterval { index: u64::MAX, ..serde_json::from_str(&sent[0]).expect("the same") };
        assert_eq!(whole.add_remote(&wrong).expect_err("no such interval").kind(), ErrorKind::Invalid);
        whole.end_phase(Time(0), None, Time(480_000_000));
    }
    let late: RemoteInterval = serde_json::from_str(&sent[0]).expect("the same");
    assert!(whole.add_remote(&late).is_err(), "no phase goes on");
    let read = |recording: &Recording, folder: &tempfile::TempDir| {
        recording.write_to(folder.path()).expect("written");
        let mut rows = RunFolder::open(folder.path()).expect("a folder").intervals().expect("intervals");
        rows.sort_by_key(|row| (row.phase.to_string(), row.start, row.worker, row.operation.to_string()));
        rows
    };
    let (found, wanted) = (read(&whole, &folders[1]), read(&one, &folders[0]));
    assert_eq!(brief(&found), brief(&wanted));
    assert!(found == wanted);
}
