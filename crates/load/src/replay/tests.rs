//! Replays of small traces, held against what the traces say.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rotproof_block::leaf::{FileOptions, MemoryDevice};
use rotproof_block::{ErrorKind, Operation as BlockOperation, Phase};
use rotproof_spec::{Bytes, Path, Problems};
use rotproof_trace::Remap;
use tempfile::TempDir;

use super::*;
use crate::content::Stage;
use crate::layout::Extent;
use crate::object::ObjectInfo;
use crate::probe::{Probe, Reaction, Rig, uring};
use crate::stream::Step;
use crate::{BLOCK_BYTES, BlockingFile, Classification, DeviceDriver, LoadSpec, Oracle, Workload};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A trace in a file of its own.
struct Saved(TempDir);

impl Saved {
    fn new(bytes: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("trace"), bytes).expect("written");
        Self(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("trace")
    }

    fn spec(&self) -> LoadSpec {
        LoadSpec { trace: Some(Trace::of(self.path())), ..LoadSpec::default() }
    }
}

fn workload(spec: &LoadSpec, blocks: &[u64]) -> Workload {
    let objects: Vec<_> =
        blocks.iter().zip("abcdefgh".chars()).map(|(n, name)| ObjectInfo::new(name, n * BLOCK)).collect();
    Workload::new(spec, 1, &objects).expect("makes sense")
}

fn steps(spec: &LoadSpec, blocks: &[u64]) -> Vec<Step> {
    workload(spec, blocks).stream(Stage::Run, 0).collect()
}

/// What a step does, and to which blocks.
fn short(step: &Step) -> (char, u64, u64) {
    let of = |kind, extent: &Extent| (kind, extent.first_block, u64::from(extent.blocks));
    match step {
        Step::Read(extent) => of('r', extent),
        Step::Write { extent, .. } => of('w', extent),
        Step::Discard(extent) => of('d', extent),
        Step::Flush => ('f', 0, 0),
    }
}

/// A record as `blktrace_api.h` lays it out, of a request that is queued.
fn record(time_ns: u64, sector: u64, bytes: u32, kinds: u32) -> Vec<u8> {
    const QUEUE: u32 = 1;
    let mut record = Vec::new();
    record.extend(0x6561_7407u32.to_le_bytes());
    record.extend(1u32.to_le_bytes());
    record.extend(time_ns.to_le_bytes());
    record.extend(sector.to_le_bytes());
    for field in [bytes, QUEUE | kinds << 16, 77, 8 << 20, 0] {
        record.extend(field.to_le_bytes());
    }
    record.extend([0; 4]);
    record
}

/// A write of blocks 0 and 1, a read of block 4, a millisecond later a write that touches blocks 4 and 5.
fn in_every_format() -> Vec<(Format, Vec<u8>)> {
    let text = |text: &str| text.as_bytes().to_vec();
    let (read, write) = (1, 1 << 1);
    vec![
        (Format::Spc, text("0,0,8192,w,1.0\n0,32,4096,r,1.0\n0,41,4096,W,1.001\n")),
        (
            Format::Msr,
            text(
                "128166372003061629,usr,0,Write,0,8192,900\n128166372003061629,usr,0,Read,16384,4096,900\n\
                 128166372003071629,usr,0,Write,20992,4096,900\n",
            ),
        ),
        (
            Format::Blkparse,
            text(
                "  8,0    3        1     0.000000000   697  Q   W 0 + 16 [dd]\n\
                 \x20 8,0    3        2     0.000000000   697  G   W 0 + 16 [dd]\n\
                 \x20 8,0    3        3     0.000000000   697  Q   R 32 + 8 [dd]\n\
                 \x20 8,0    1        4     0.001000000   697  Q   W 41 + 8 [dd]\n",
            ),
        ),
        (
            Format::Blktrace,
            [
                record(5_000, 0, 8192, write),
                record(5_000, 32, 4096, read),
                record(1_005_000, 41, 4096, write),
            ]
            .concat(),
        ),
        (
            Format::Fio,
            text(
                "fio version 2 iolog\n/x add\n/x open\n/x write 0 8192\n/x read 16384 4096\n/x wait 1000 0\n\
                 /x write 20992 4096\n/x close\n",
            ),
        ),
        (
            Format::Fio,
            text(
                "fio version 3 iolog\n0 /x add\n0 /x write 0 8192\n0 /x read 16384 4096\n1000 /x write 20992 4096\n",
            ),
        ),
        (Format::Disksim, text("0.0 0 0 16 0\n0.0 0 32 8 1\n1.0 0 41 8 0\n")),
        (
            Format::Csv,
            text("time_ms,op,offset,size\n7,write,0,8192\n7,read,16384,4096\n8,write,20992,4096\n"),
        ),
    ]
}

#[test]
fn a_trace_of_every_format_becomes_the_same_requests() {
    for (format, bytes) in in_every_format() {
        let saved = Saved::new(bytes);
        let mut spec = saved.spec();
        spec.trace.as_mut().expect("a trace").locate(FilePath::new("")).expect("is there");
        let trace = spec.trace.as_ref().expect("a trace");
        // Sixteen blocks: the device of `blkparse` and `blktrace` has a number that moves it, but by whole rounds.
        assert_eq!(trace.format, Some(format));
        let workload = workload(&spec, &[16]);
        let mut stream = workload.stream(Stage::Run, 0);
        let mut found = Vec::new();
        while let Some(step) = stream.next() {
            found.push((short(&step), stream.due().expect("timed")));
        }
        let shift = (found[0].0.1 + 16) % 16;
        let at = |block: u64| (block + shift) % 16;
        let millisecond = Duration::from_millis(1);
        assert_eq!(
            found,
            [
                (('w', at(0), 2), Duration::ZERO),
                (('r', at(4), 1), Duration::ZERO),
                (('w', at(5), 2), millisecond)
            ],
            "{format:?}"
        );
        assert_eq!(stream.trace().expect("a trace").accesses, 3);
        assert!(stream.take_trouble().is_none());
    }
}

#[test]
fn discards_and_flushes_are_steps_and_what_is_skipped_is_counted() {
    let text = "fio version 2 iolog\n/x add\n/x open\n/x write 0 4096\n/x sync 0 0\n/x trim 0 8192\n/x read 0 4096\n";
    let saved = Saved::new(text);
    let all = [('w', 0, 1), ('f', 0, 0), ('d', 0, 2), ('r', 0, 1)];
    assert_eq!(steps(&saved.spec(), &[8]).iter().map(short).collect::<Vec<_>>(), all);
    let mut spec = saved.spec();
    spec.trace.as_mut().expect("a trace").skip = vec![Operation::Flush, Operation::Discard];
    let workload = workload(&spec, &[8]);
    let mut stream = workload.stream(Stage::Run, 0);
    assert_eq!(stream.by_ref().map(|step| short(&step)).collect::<Vec<_>>(), [all[0], all[3]]);
    let report = stream.trace().expect("a trace");
    assert_eq!((report.accesses, report.skipped), (2, 2));
}

#[test]
fn a_long_access_becomes_several_requests_and_ends_with_the_target() {
    let saved =
        Saved::new("time_us,op,offset,size\n0,write,0,9437184\n0,discard,0,9437184\n0,read,4096,512\n");
    let sizes: Vec<_> = steps(&saved.spec(), &[1500, 1000]).iter().map(short).collect();
    // 2304 blocks: 4 MiB, what is left of the first file, the rest in the second.
    let expected =
        [('w', 0, 1024), ('w', 1024, 476), ('w', 1500, 804), ('d', 0, 1500), ('d', 1500, 804), ('r', 1, 1)];
    assert_eq!(sizes, expected);
}

#[test]
fn a_compressed_trace_is_replayed_as_what_is_in_it_and_one_that_is_cut_off_is_an_error() {
    let mut text = "time_us,op,offset,size\n".to_owned();
    (0..40_000u64).for_each(|n| text.push_str(&format!("{n},write,{},4096\n", n * 7 % 500 * 4096)));
    let compressed = zstd::encode_all(text.as_bytes(), 3).expect("into memory");
    let (plain, saved) = (Saved::new(&text), Saved::new(&compressed));
    let spec = LoadSpec { workers: 3, ..saved.spec() };
    for worker in 0..3 {
        let steps =
            |spec: &LoadSpec| -> Vec<Step> { workload(spec, &[500]).stream(Stage::Run, worker).collect() };
        assert_eq!(steps(&spec), steps(&LoadSpec { workers: 3, ..plain.spec() }));
    }
    let cut = Saved::new(&compressed[..compressed.len() / 2]);
    let mut trace = Trace::of(cut.path());
    trace.format = Some(Format::Csv);
    let workload = workload(&LoadSpec { trace: Some(trace), ..LoadSpec::default() }, &[500]);
    let mut stream = workload.stream(Stage::Run, 0);
    while stream.next().is_some() {}
    assert!(stream.take_trouble().is_some(), "half a trace is not a trace");
}

#[test]
fn ends_and_ramp_ups_count_accesses_of_the_trace_whoever_they_belong_to() {
    let mut text = "time_ms,op,offset,size\n".to_owned();
    (0..100).for_each(|n| text.push_str(&format!("{n},write,{},4096\n", n % 10 * 4096)));
    let saved = Saved::new(text);
    let counts = |spec: &LoadSpec| -> (usize, usize) {
        let workload = workload(spec, &[10]);
        let (mut all, mut ramping) = (0, 0);
        for worker in 0..workload.workers() {
            let mut stream = workload.stream(Stage::Run, worker);
            while stream.next().is_some() {
                all += 1;
                ramping += usize::from(stream.has_ramp_up() && stream.is_ramping_up());
            }
        }
        (all, ramping)
    };
    for workers in [1, 3] {
        let spec = LoadSpec { workers, ..saved.spec() };
        assert_eq!(counts(&spec), (100, 0));
        assert_eq!(counts(&LoadSpec { requests: Some(35), ..spec.clone() }), (35, 0));
        assert_eq!(counts(&LoadSpec { total: Some(Bytes(20 * BLOCK)), ..spec.clone() }), (20, 0));
        let ramp_up = Some(crate::RampUp::Requests(5));
        assert_eq!(counts(&LoadSpec { requests: Some(35), ramp_up, ..spec.clone() }), (40, 5));
        let both = LoadSpec { requests: Some(35), total: Some(Bytes(20 * BLOCK)), ..spec.clone() };
        assert_eq!(counts(&both), (20, 0), "the first one reached");
        let ramp_up = Some(crate::RampUp::Bytes(Bytes(3 * BLOCK)));
        assert_eq!(counts(&LoadSpec { ramp_up, ..both }), (23, 3));
    }
}

#[test]
fn a_timed_replay_keeps_the_times_and_a_speed_shortens_them() {
    let mut text = "time_ms,op,offset,size\n".to_owned();
    (0..50).for_each(|n| text.push_str(&format!("{},write,{},4096\n", n * 10, n * 4096)));
    let saved = Saved::new(text);
    for (speed, milliseconds) in [(1.0, 491), (2.0, 246), (0.5, 981)] {
        let device = Probe::new(64, |_| Reaction::Delay(Duration::from_millis(1))).expect("a probe");
        let mut spec = saved.spec();
        spec.trace.as_mut().expect("a trace").speed = speed;
        let mut rig = Rig::new(&spec, 1, device);
        let report = rig.phase(Phase::Run).clone();
        // And the flush in the end.
        assert_eq!(report.elapsed(), Duration::from_millis(milliseconds + 1), "{speed}");
        assert_eq!(report.trace.as_ref().map(|trace| trace.accesses), Some(50));
        assert!(rig.phase(Phase::Check).sightings.is_empty());
    }
}

#[test]
fn a_stall_is_charged_to_every_request_that_it_held_up() {
    // Ten requests a millisecond apart, to a device that takes five for each, with one in flight.
    let mut text = "time_ms,op,offset,size\n".to_owned();
    (0..10).for_each(|n| text.push_str(&format!("{n},write,{},4096\n", n * 4096)));
    let saved = Saved::new(text);
    let device = Probe::new(64, |_| Reaction::Delay(Duration::from_millis(5))).expect("a probe");
    let mut spec = saved.spec();
    spec.trace.as_mut().expect("a trace").depth = 1;
    let report = Rig::new(&spec, 1, device).phase(Phase::Run).clone();
    // The last one is due at 9 ms and completes at 50 ms.
    let longest = report.writes.latency.max();
    assert!(longest.abs_diff(41_000_000) < 100_000, "{longest}");
}

#[test]
fn as_fast_as_possible_is_as_many_at_once_as_the_depth() {
    let mut text = "time_ms,op,offset,size\n".to_owned();
    (0..64).for_each(|n| text.push_str(&format!("{},write,{},4096\n", n * 1000, n * 4096)));
    let saved = Saved::new(text);
    for (depth, milliseconds) in [(1, 64), (8, 8), (64, 1)] {
        let device = Probe::new(64, |_| Reaction::Delay(Duration::from_millis(1))).expect("a probe");
        let mut spec = saved.spec();
        let trace = spec.trace.as_mut().expect("a trace");
        (trace.pace, trace.depth) = (Pace::Asap, depth);
        let elapsed = Rig::new(&spec, 1, device).phase(Phase::Run).elapsed();
        assert_eq!(elapsed, Duration::from_millis(milliseconds + 1));
    }
}

#[test]
fn what_was_discarded_may_hold_anything_and_what_was_written_after_may_not() {
    let saved = Saved::new(
        "time_us,op,offset,size\n0,write,0,32768\n1,discard,4096,8192\n2,write,8192,4096\n3,read,0,32768\n",
    );
    let device = MemoryDevice::new(8 * BLOCK, 512).expect("a device");
    let mut rig = Rig::new(&saved.spec(), 1, device);
    let report = rig.phase(Phase::Run).clone();
    assert_eq!((report.discards.requests, report.discards.bytes), (1, 2 * BLOCK));
    assert!(report.sightings.is_empty(), "the device reads zeros where it discarded");
    assert_eq!(rig.oracle.written_blocks(), 7);
    rig.damage(1, |data| data.fill(7));
    assert!(rig.phase(Phase::Check).sightings.is_empty(), "anything is right there");
    rig.damage(2, |data| data.fill(7));
    let found: Vec<u64> = rig.phase(Phase::Check).sightings.iter().map(|sighting| sighting.block).collect();
    assert_eq!(found, [2]);
}

#[test]
fn on_a_target_without_discards_they_have_no_effect_and_are_counted() {
    let saved = Saved::new("time_us,op,offset,size\n0,write,0,32768\n1,discard,4096,8192\n");
    let image = saved.0.path().join("image");
    let options =
        FileOptions { size_bytes: Some(8 * BLOCK), create: true, direct: false, ..FileOptions::default() };
    let driver =
        DeviceDriver::new(BlockingFile::open(&image, options).expect("a file")).expect("suits a load");
    let workload = Workload::new(&saved.spec(), 1, crate::Driver::objects(&driver)).expect("makes sense");
    let mut oracle = Oracle::new(&workload);
    let report = crate::run(&workload, &driver, &mut oracle, &uring(Phase::Run)).expect("runs");
    assert_eq!((report.discards.requests, report.unsupported_discards, report.error_count()), (0, 1, 0));
    assert_eq!(oracle.written_blocks(), 8, "they still hold what was written");
    let check = crate::run(&workload, &driver, &mut oracle, &uring(Phase::Check)).expect("checks");
    assert!(check.sightings.is_empty());
}

#[test]
fn a_block_that_a_replay_left_stale_names_the_write() {
    let saved = Saved::new("time_us,op,offset,size\n0,write,0,4096\n1,write,4096,4096\n2,write,0,4096\n");
    let mut rig = Rig::new(&saved.spec(), 1, MemoryDevice::new(8 * BLOCK, 512).expect("a device"));
    rig.phase(Phase::Run);
    let first = crate::ContentId::new(Stage::Run, 0, 0);
    rig.damage(0, |data| rig.workload.content().fill(first, data));
    rig.phase(Phase::Check);
    let failures = rig.failures();
    let Classification::Stale(stale) = &failures[0].worst().what else { panic!("{failures:?}") };
    assert_eq!((stale.content, stale.write, stale.writes), (first, 1, 2));
}

#[test]
fn malformed_lines_are_counted_and_too_many_end_the_load() {
    let mut text = "0,0,4096,w,0.0\n".to_owned();
    (0..20).for_each(|n| text.push_str(&format!("rubbish {n}\n0,{},4096,w,0.1\n", n * 8)));
    let saved = Saved::new(text);
    let device = || MemoryDevice::new(64 * BLOCK, 512).expect("a device");
    let mut spec = saved.spec();
    // Half of it is rubbish, so that it does not tell itself.
    spec.trace.as_mut().expect("a trace").format = Some(Format::Spc);
    let report = Rig::new(&spec, 1, device()).phase(Phase::Run).trace.clone().expect("a trace");
    assert_eq!((report.accesses, report.malformed, report.malformed_lines.len()), (21, 20, 10));
    assert_eq!(report.malformed_lines[0].number, 2);
    spec.trace.as_mut().expect("a trace").malformed_max = 19;
    let error = Rig::new(&spec, 1, device()).try_phase(Phase::Run).expect_err("too many").to_string();
    assert!(error.contains("line 40") && error.contains("malformed_max"), "{error}");
}

#[test]
fn a_trace_that_changes_meanwhile_is_noticed() {
    let saved = Saved::new("0,0,4096,w,0.0\n0,8,4096,w,0.0\n");
    let mut rig = Rig::new(&saved.spec(), 1, MemoryDevice::new(64 * BLOCK, 512).expect("a device"));
    let mut file = File::options().append(true).open(saved.path()).expect("there");
    file.write_all(b"0,16,4096,w,0.0\n").expect("written");
    drop(file);
    let error = rig.try_phase(Phase::Run).expect_err("changed").to_string();
    assert!(error.contains("was changed while it was replayed"), "{error}");
}

#[test]
fn what_cannot_be_replayed_is_refused_with_the_reason() {
    let refused = |saved: &Saved| Trace::of(saved.path()).locate(FilePath::new("")).expect_err("refused");
    let missing = Trace::of("/nonexistent/trace").locate(FilePath::new("")).expect_err("missing");
    assert_eq!(missing.kind(), ErrorKind::Missing);
    let error = refused(&Saved::new("hello\nworld\n"));
    assert!(error.to_string().contains("say which with `format`"), "{error}");
    let folder = tempfile::tempdir().expect("a folder");
    let path = std::ffi::CString::new(folder.path().join("trace").to_str().expect("UTF-8")).expect("no zero");
    // SAFETY: the path is a string that ends with zero.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let error = refused(&Saved(folder));
    assert!(error.to_string().contains("no regular file"), "a pipe is not waited for: {error}");
}

#[test]
fn keys_that_a_trace_leaves_no_room_for_are_reported() {
    for (json, places) in [
        (r#"{ "trace": { "file": "t" } }"#, &[][..]),
        (r#"{ "trace": { "file": "t" }, "workers": 4, "requests": 5, "prefill": true }"#, &[]),
        (
            r#"{ "trace": { "file": "t" }, "reads": "5%", "queue_depth": 2 }"#,
            &["load.reads", "load.queue_depth"],
        ),
        (r#"{ "trace": { "file": "t" }, "jobs": [{}] }"#, &["load.jobs"]),
        (
            r#"{ "trace": { "file": "t", "depth": 0, "speed": 0 } }"#,
            &["load.trace.depth", "load.trace.speed"],
        ),
        (r#"{ "trace": { "file": "t", "pace": "asap", "speed": 2 } }"#, &["load.trace.speed"]),
        (r#"{ "trace": { "file": "t", "skip": ["read", "write"] } }"#, &["load.trace.skip"]),
    ] {
        let spec: LoadSpec = serde_json::from_str(json).expect(json);
        let mut problems = Problems::default();
        spec.validate(&Path::root().key("load"), &mut problems);
        let found: Vec<_> = problems.iter().map(|problem| problem.path.to_string()).collect();
        assert_eq!(found, places, "{json}");
    }
    for json in [
        r#"{ "trace": {} }"#,
        r#"{ "trace": { "file": "t", "format": "pcap" } }"#,
        r#"{ "trace": { "file": "t", "pace": "slow" } }"#,
        r#"{ "trace": { "file": "t", "times": 2 } }"#,
    ] {
        serde_json::from_str::<LoadSpec>(json).expect_err(json);
    }
}

fn access_lines() -> impl Strategy<Value = Vec<(u8, u64, u64, u64)>> {
    prop::collection::vec((0u8..3, 0u64..4, 0u64..60, 1u64..9), 1..80)
}

proptest! {
    /// Against a replay that goes through the trace block by block, without workers, parts or pieces.
    #[test]
    fn to_every_block_happens_what_the_trace_says_in_its_order(
        lines in access_lines(), objects in prop::collection::vec(1u64..40, 1..4), workers in 1u32..5,
    ) {
        let mut text = "time_us,device,op,offset,size\n".to_owned();
        for (number, (operation, device, sector8, length)) in lines.iter().enumerate() {
            let word = ["read", "write", "discard"][usize::from(*operation)];
            // Half a block at a time, so that blocks are touched in part.
            text.push_str(&format!("{number},{device},{word},{},{}\n", sector8 * 2048, length * 2048));
        }
        let saved = Saved::new(text);
        let spec = LoadSpec { workers, ..saved.spec() };
        let total: u64 = objects.iter().sum();
        let infos: Vec<_> = objects.iter().map(|blocks| ObjectInfo::new("x", blocks * BLOCK)).collect();
        let Ok(workload) = Workload::new(&spec, 1, &infos) else { return Ok(()) };

        let remap = Remap::new(total * BLOCK, BLOCK).expect("has blocks");
        let mut slow: HashMap<u64, Vec<char>> = HashMap::new();
        for (operation, device, sector8, length) in lines {
            // A device whose name is a number keeps it.
            let device = device as u32;
            let access = rotproof_trace::Access {
                at_ns: 0,
                operation: [Operation::Read, Operation::Write, Operation::Discard][usize::from(operation)],
                device,
                offset: sector8 * 2048,
                length: length * 2048,
                took_ns: None,
            };
            let (start, bytes) = remap.place(&access);
            for block in start / BLOCK..(start + bytes) / BLOCK {
                slow.entry(block).or_default().push(['r', 'w', 'd'][usize::from(operation)]);
            }
        }
        let mut found: HashMap<u64, Vec<char>> = HashMap::new();
        for worker in 0..workload.workers() {
            let part = workload.part(worker).blocks;
            let mut numbers = 0;
            for step in workload.stream(Stage::Run, worker) {
                let (kind, first, blocks) = short(&step);
                prop_assert!(part.start <= first && first + blocks <= part.end);
                let (object, within) = workload.layout().locate(first);
                prop_assert!(within + blocks <= objects[object as usize]);
                (first..first + blocks).for_each(|block| found.entry(block).or_default().push(kind));
                if let Step::Write { first, extent, .. } = step {
                    prop_assert_eq!(first, numbers);
                    numbers += u64::from(extent.blocks);
                }
            }
        }
        prop_assert_eq!(found, slow);
    }

    /// Whatever the order of completions, a replay leaves on the device what the oracle says.
    #[test]
    fn a_replay_at_any_depth_is_verified(lines in access_lines(), workers in 1u32..4, depth in 1u32..9, seed: u64) {
        let mut text = "time_us,op,offset,size\n".to_owned();
        for (operation, _, sector8, length) in lines {
            let word = ["read", "write", "discard"][usize::from(operation)];
            text.push_str(&format!("0,{word},{},{}\n", sector8 * 2048, length * 2048));
        }
        let saved = Saved::new(text);
        let mut spec = LoadSpec { workers, ..saved.spec() };
        spec.trace.as_mut().expect("a trace").depth = depth;
        let draws = std::sync::atomic::AtomicU64::new(0);
        let device = Probe::new(40, move |_| {
            let draw = draws.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Reaction::Delay(Duration::from_micros(rotproof_block::hash::mix(seed, 1, draw) % 1000))
        });
        let device = device.expect("a probe");
        let mut rig = Rig::new(&spec, 1, Arc::clone(&device) as Arc<dyn rotproof_block::Device>);
        prop_assert!(rig.phase(Phase::Run).sightings.is_empty());
        prop_assert_eq!(device.overlaps(), 0);
        prop_assert!(rig.phase(Phase::Check).sightings.is_empty());
        let discards = device.seen().iter().filter(|seen| seen.operation == BlockOperation::Discard).count();
        prop_assert_eq!(discards as u64, rig.reports[0].discards.requests);
    }
}
