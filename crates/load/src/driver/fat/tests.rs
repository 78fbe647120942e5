//! Loads on a FAT volume that is sound, that fails, and that lies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::hash::mix;
use rotproof_block::leaf::{DiskProfile, MemoryDevice, SimulatedDisk};
use rotproof_block::{Operation, Tag};
use rotproof_spec::{Bytes, Percent};

use super::*;
use crate::probe::{Probe, Reaction, uring};
use crate::{Failure, LoadReport, Oracle, Pattern, Progress, RunOptions, Workload, classify, run};

const FILES: FilesSpec = FilesSpec { count: 3, size: Bytes(64 * 4096) };

fn load() -> LoadSpec {
    LoadSpec { files: Some(FILES), ..LoadSpec::default() }
}

/// Everything up to the check, in virtual time.
struct Rig {
    device: Arc<dyn Device>,
    runtime: Runtime,
    workload: Workload,
    oracle: Oracle,
    set: FatSet,
    reports: Vec<LoadReport>,
}

impl Rig {
    fn new(device: Arc<dyn Device>, spec: &LoadSpec) -> Self {
        let runtime = Runtime::simulated(1);
        let (set, _) =
            FatSet::create(Arc::clone(&device), spec, 1, RunOn::Simulated(&runtime)).expect("room enough");
        let workload = Workload::new(spec, 1, set.objects()).expect("makes sense");
        let oracle = Oracle::new(&workload);
        Self { device, runtime, workload, oracle, set, reports: Vec::new() }
    }

    fn phase(&mut self, phase: Phase) -> LoadReport {
        let options = RunOptions { runtime: RunOn::Simulated(&self.runtime), ..uring(phase) };
        let report = run(&self.workload, &self.set, &mut self.oracle, &options).expect("ends");
        self.reports.push(report.clone());
        report
    }

    /// Unmounts and mounts again.
    fn remount(&mut self) -> (Result<()>, Option<Error>) {
        let on = RunOn::Simulated(&self.runtime);
        let closed = self.set.close(Phase::Run, on);
        let (set, error) =
            FatSet::open(Arc::clone(&self.device), FILES, 1, on).expect("the machine is sound");
        self.set = set;
        (closed, error)
    }

    fn failures(&self) -> Vec<Failure> {
        classify(&self.workload, &self.oracle, &self.reports)
    }
}

#[test]
fn a_load_on_a_fat_volume_is_all_there_after_a_remount() {
    let spec = LoadSpec {
        pattern: Pattern::Random,
        reads: Percent(0.3),
        queue_depth: 4,
        workers: 2,
        block_size: Bytes(16 << 10).into(),
        ..load()
    };
    let device = MemoryDevice::new(8 << 20, 512).expect("sizes fit");
    let mut rig = Rig::new(device, &spec);
    rig.phase(Phase::Prefill);
    let report = rig.phase(Phase::Run);
    assert_eq!((report.error_count(), report.sightings.len()), (0, 0));
    let (closed, mounted) = rig.remount();
    assert!(closed.is_ok() && mounted.is_none(), "{closed:?} {mounted:?}");
    let check = rig.phase(Phase::Check);
    assert_eq!((check.reads.bytes, check.sightings.len()), (3 * 64 * 4096, 0));
}

#[test]
fn threads_with_io_uring_share_a_volume() {
    let spec =
        LoadSpec { queue_depth: 2, workers: 3, pattern: Pattern::Random, reads: Percent(0.5), ..load() };
    let device: Arc<dyn Device> = MemoryDevice::new(8 << 20, 512).expect("sizes fit");
    let on = RunOn::Uring { epoch: Instant::now() };
    let (set, files) = FatSet::create(Arc::clone(&device), &spec, 1, on).expect("room enough");
    let workload = Workload::new(&spec, 1, set.objects()).expect("makes sense");
    let mut oracle = Oracle::new(&workload);
    for phase in [Phase::Prefill, Phase::Run] {
        let report = run(&workload, &set, &mut oracle, &uring(phase)).expect("ends");
        assert_eq!((report.error_count(), report.sightings.len()), (0, 0));
    }
    set.close(Phase::Run, on).expect("memory takes everything");
    drop(set);
    let (set, error) = FatSet::open(device, files, 1, on).expect("the machine is sound");
    assert!(error.is_none(), "{error:?}");
    let check = run(&workload, &set, &mut oracle, &uring(Phase::Check)).expect("ends");
    assert_eq!((check.reads.bytes, check.sightings.len()), (3 * 64 * 4096, 0));
}

#[test]
fn what_a_file_is_written_travels_under_its_name_block_by_block_and_nothing_else_does() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let probe = Probe::new(2048, move |request| {
        log.lock().push((
            request.context.phase,
            request.operation,
            request.offset,
            request.length,
            request.context.tag,
        ));
        Reaction::Pass
    });
    let spec = LoadSpec { flush_every: Some(1), ..load() };
    let mut rig = Rig::new(probe.expect("sizes fit"), &spec);
    assert!(seen.lock().iter().all(|request| request.0 == Phase::Setup && request.4 == Tag::NONE));
    seen.lock().clear();
    rig.phase(Phase::Run);
    let seen = std::mem::take(&mut *seen.lock());
    for name in ["a", "b", "c"] {
        let writes = seen.iter().filter(|request| request.1 == Operation::WRITE && request.4.name() == name);
        let mut places: Vec<u64> = writes
            .map(|&(phase, _, offset, length, _)| {
                assert_eq!((phase, length, offset % 4096), (Phase::Run, 4096, 0));
                offset
            })
            .collect();
        assert_eq!(places.len(), 64, "one write for each block of {name}");
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 64, "and each elsewhere");
    }
    let writes = seen.iter().filter(|request| request.1 == Operation::WRITE).count();
    assert_eq!(writes, 3 * 64, "no metadata among them");
    assert_eq!(seen.iter().filter(|request| request.1 == Operation::Flush).count(), 3 * 64);
}

#[test]
fn virtual_time_passes_for_the_library_as_for_everybody_and_equal_seeds_give_equal_runs() {
    let run = || {
        let disk = SimulatedDisk::new(8 << 20, 512, DiskProfile::NVME).expect("sizes fit");
        let spec = LoadSpec { queue_depth: 4, workers: 2, pattern: Pattern::Random, ..load() };
        let mut rig = Rig::new(disk, &spec);
        let created = rig.runtime.now();
        rig.phase(Phase::Run);
        assert!(rig.remount().0.is_ok());
        rig.phase(Phase::Check);
        assert!(created.0 > 0 && rig.runtime.now() > created);
        (rig.runtime.now(), rig.reports)
    };
    assert_eq!(run(), run());
}

#[test]
fn an_error_of_the_device_comes_through_the_library_as_it_is_and_for_its_block_only() {
    let bad = Arc::new(Mutex::new(None));
    let place = Arc::clone(&bad);
    let probe = Probe::new(2048, move |request| {
        let tag = request.context.tag.name();
        let mut place = place.lock();
        // The seventh block that is written to b can never be read again.
        if request.operation == Operation::WRITE && tag == "b" {
            let (count, offset): &mut (u32, u64) = place.get_or_insert_default();
            *count += 1;
            if *count == 7 {
                *offset = request.offset;
            }
        }
        let is_bad = place.is_some_and(|(_, offset)| (request.offset..request.end()).contains(&offset));
        if is_bad && request.operation == Operation::Read { Reaction::Fail } else { Reaction::Pass }
    });
    let mut rig = Rig::new(probe.expect("sizes fit"), &load());
    rig.phase(Phase::Run);
    let (closed, mounted) = rig.remount();
    assert!(closed.is_ok() && mounted.is_none(), "{closed:?} {mounted:?}");
    rig.phase(Phase::Check);
    let failures = rig.failures();
    let places: Vec<_> = failures.iter().map(|failure| (failure.object.as_str(), failure.block)).collect();
    assert_eq!(places, [("b", 6)]);
    assert_eq!(failures[0].worst().what.kind(), "unreadable");
}

#[test]
fn a_volume_that_is_gone_fails_every_block_and_says_why() {
    let device = MemoryDevice::new(8 << 20, 512).expect("sizes fit");
    let mut rig = Rig::new(device, &load());
    rig.phase(Phase::Run);
    rig.set.close(Phase::Run, RunOn::Simulated(&rig.runtime)).expect("memory takes everything");
    overwrite(&rig, 0, &[0; 4096]);
    let (_, error) = rig.remount();
    let error = error.expect("there is no boot sector");
    assert_eq!(error.kind(), ErrorKind::Os(libc::EUCLEAN));
    assert!(error.to_string().contains("mounting the FAT volume"), "{error}");
    rig.phase(Phase::Check);
    assert_eq!(rig.failures().len(), 3 * 64);
}

fn overwrite(rig: &Rig, offset: u64, data: &[u8]) {
    let queue = rig.device.open_queue(&rig.runtime).expect("memory opens");
    let request = Request::write(offset, Buffer::copy_of(data), Context::default());
    rig.runtime.block_on(queue.submit(request)).expect("at once").result.expect("within the device");
}

/// The file systems' metadata begin the volume; whatever is done to them, a load must come to an end and tell.
#[test]
fn no_damage_to_the_metadata_hangs_or_ends_the_process() {
    let mut lost = 0;
    for seed in 0..60 {
        let device = MemoryDevice::new(8 << 20, 512).expect("sizes fit");
        let mut rig = Rig::new(device, &load());
        rig.phase(Phase::Run);
        rig.set.close(Phase::Run, RunOn::Simulated(&rig.runtime)).expect("memory takes everything");
        let number = |index| mix(seed, 1, index);
        for damage in 0..1 + number(0) % 4 {
            // 512 bytes of noise, or small numbers, which are clusters that exist.
            let small = number(damage) % 2 == 0;
            let byte = |index: u64| match number(1000 * damage + index) {
                number if small && index % 2 == 1 => (number % 2 == 3) as u8,
                number => number as u8,
            };
            let data: Vec<u8> = (0..512).map(byte).collect();
            overwrite(&rig, number(100 + damage) % 64 * 512, &data);
        }
        let (_, error) = rig.remount();
        rig.phase(Phase::Check);
        lost += usize::from(error.is_some());
        let _ = rig.set.close(Phase::Check, RunOn::Simulated(&rig.runtime));
    }
    assert!((1..60).contains(&lost), "{lost} of 60 volumes could not be mounted");
}

#[test]
fn a_load_that_shall_stop_stops_though_the_library_waits_for_the_device() {
    let probe =
        Probe::new(
            2048,
            |request| {
                if request.context.phase == Phase::Run { Reaction::Hang } else { Reaction::Pass }
            },
        );
    let on = RunOn::Uring { epoch: Instant::now() };
    let (set, _) = FatSet::create(probe.expect("sizes fit"), &load(), 1, on).expect("room enough");
    let workload = Workload::new(&load(), 1, set.objects()).expect("makes sense");
    let mut oracle = Oracle::new(&workload);
    let cancel = Arc::new(AtomicUsize::new(0));
    let (stop, stopper) = (Arc::clone(&cancel), Duration::from_millis(100));
    let helper = std::thread::spawn(move || {
        std::thread::sleep(stopper);
        stop.store(2, Ordering::Relaxed);
    });
    let options = RunOptions { cancel, progress: Arc::new(Progress::default()), ..uring(Phase::Run) };
    let report = run(&workload, &set, &mut oracle, &options).expect("what was done up to there");
    assert!(report.is_interrupted);
    helper.join().expect("ends well");
    // The job was given up half-way, and the library with it.
    assert_eq!(set.close(Phase::Run, on).expect_err("there is no library any more").kind(), ErrorKind::Gone);
}

#[test]
fn volumes_of_every_size_can_be_made_and_hold_their_blocks_on_blocks_of_the_device() {
    const MIB: u64 = 1 << 20;
    // Around 16 MiB and 256 MiB the entries of the table grow.
    let sizes = [1, 2, 7, 15, 16, 17, 64, 255, 256, 257, 300, 700, 5000].map(|size| size * MIB);
    let odd = [16 * MIB + 4096, 16 * MIB - 512, 256 * MIB + 65536, 258 * MIB + 12288];
    for size in sizes.into_iter().chain(odd) {
        let device = MemoryDevice::new(size, 512).expect("sizes fit");
        let spec = LoadSpec { files: Some(FilesSpec { count: 2, size: Bytes(8 * 4096) }), ..load() };
        let mut rig = Rig::new(device, &spec);
        let report = rig.phase(Phase::Run);
        assert_eq!((report.error_count(), report.writes.bytes), (0, 16 * 4096), "{size} bytes");
        assert!(rig.set.close(Phase::Run, RunOn::Simulated(&rig.runtime)).is_ok());
    }
}

#[test]
fn what_cannot_be_made_is_refused_with_its_reason() {
    let runtime = Runtime::simulated(1);
    let create = |size: u64, count: u32, blocks: u64| {
        let device: Arc<dyn Device> = MemoryDevice::new(size, 512).expect("sizes fit");
        let files = Some(FilesSpec { count, size: Bytes(blocks * 4096) });
        let spec = LoadSpec { files, ..LoadSpec::default() };
        FatSet::create(device, &spec, 1, RunOn::Simulated(&runtime)).err().expect("it cannot be").kind()
    };
    assert_eq!(create(2 << 20, 3, 256), ErrorKind::NoSpace, "files larger than the volume");
    assert_eq!(create(8192, 1, 1), ErrorKind::Invalid, "a volume smaller than its tables");
}
