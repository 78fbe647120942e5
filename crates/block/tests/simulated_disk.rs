//! A simulated disk as a device: its time passes on the runtime, and is the same in every run.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rotproof_block::hash::mix;
use rotproof_block::leaf::{DiskProfile, SimulatedDisk};
use rotproof_block::{Buffer, Context, Device, Operation, Queue, Request, Runtime, Time};

const SIZE: u64 = 1 << 30;
const PROFILES: [DiskProfile; 3] = [DiskProfile::HDD, DiskProfile::SSD, DiskProfile::NVME];

fn disk(profile: DiskProfile) -> Arc<SimulatedDisk> {
    SimulatedDisk::new(SIZE, 512, profile).expect("a disk")
}

/// Reads of `length` bytes at the places that `place` gives, `depth` at a time; the time when each was done.
fn reads(
    runtime: &Runtime,
    queues: &[Rc<dyn Queue>],
    depth: u64,
    length: u64,
    count: u64,
    place: fn(u64) -> u64,
) -> Vec<Time> {
    let slots: Vec<_> = (0..depth)
        .map(|slot| {
            let (runtime_, queue) = (runtime.clone(), Rc::clone(&queues[slot as usize % queues.len()]));
            runtime.spawn(async move {
                let mut times = Vec::new();
                for index in (slot..count).step_by(depth as usize) {
                    let offset = place(index) * length % SIZE;
                    let read = Request::read(offset, Buffer::stale(length as usize), Context::default());
                    queue.submit(read).await.result.expect("is read");
                    times.push(runtime_.now());
                }
                times
            })
        })
        .collect();
    runtime
        .block_on(async {
            let mut times = Vec::new();
            for slot in slots {
                times.extend(slot.await);
            }
            times
        })
        .expect("completes")
}

fn in_order(index: u64) -> u64 {
    index
}

fn anywhere(index: u64) -> u64 {
    mix(1, 2, index) % (SIZE / 4096)
}

/// Requests per second of virtual time.
fn rate(profile: DiskProfile, queues: usize, depth: u64, length: u64, place: fn(u64) -> u64) -> f64 {
    let runtime = Runtime::simulated(1);
    let disk = disk(profile);
    let queues: Vec<_> = (0..queues).map(|_| disk.open_queue(&runtime).expect("a queue")).collect();
    let times = reads(&runtime, &queues, depth, length, 1000, place);
    1000.0 / times.iter().max().expect("some").since(Time(0)).as_secs_f64()
}

#[test]
fn a_rotating_disk_streams_fast_and_seeks_slowly() {
    let streamed = rate(DiskProfile::HDD, 1, 1, 1 << 20, in_order) * f64::from(1 << 20);
    assert!((170e6..262e6).contains(&streamed), "{streamed}");
    let random = rate(DiskProfile::HDD, 1, 1, 4096, anywhere);
    assert!((65.0..120.0).contains(&random), "{random}");
}

#[test]
fn one_arm_serves_all_queues_and_flash_serves_them_side_by_side() {
    let arm = rate(DiskProfile::HDD, 4, 4, 4096, anywhere) / rate(DiskProfile::HDD, 1, 1, 4096, anywhere);
    assert!((0.8..1.3).contains(&arm), "{arm}");
    let flash =
        rate(DiskProfile::NVME, 4, 16, 4096, anywhere) / rate(DiskProfile::NVME, 1, 1, 4096, anywhere);
    assert!((12.0..16.5).contains(&flash), "{flash}");
}

#[test]
fn every_run_takes_the_same_time_and_another_seed_another() {
    for profile in PROFILES {
        let run = |seed| {
            let runtime = Runtime::simulated(seed);
            let queues = [disk(profile).open_queue(&runtime).expect("a queue")];
            reads(&runtime, &queues, 8, 4096, 500, anywhere)
        };
        assert_eq!(run(1), run(1), "{profile:?}");
        let has_jitter = matches!(profile, DiskProfile::Flash(_));
        assert_eq!(run(1) != run(2), has_jitter, "{profile:?}");
    }
}

#[test]
fn a_flush_takes_its_time_and_a_durable_write_too() {
    for profile in [DiskProfile::SSD, DiskProfile::NVME] {
        let DiskProfile::Flash(flash) = profile else { unreachable!("constants") };
        let runtime = Runtime::simulated(1);
        let queue = disk(profile).open_queue(&runtime).expect("a queue");
        let time = |request| {
            let before = runtime.now();
            runtime.block_on(queue.submit(request)).expect("completes").result.expect("succeeds");
            runtime.now().since(before)
        };
        let write = || Request::write(0, Buffer::zeroed(4096), Context::default());
        assert!(time(Request::flush(Context::default())) >= flash.flush, "{profile:?}");
        assert!(time(write()) < flash.flush, "{profile:?}");
        assert!(time(Request { operation: Operation::Write { fua: true }, ..write() }) > flash.flush);
        assert_eq!(time(Request::write(0, Buffer::empty(), Context::default())), Duration::ZERO);
    }
}

#[test]
fn hours_of_a_disk_pass_in_seconds() {
    let began = Instant::now();
    let runtime = Runtime::simulated(1);
    let queues = [disk(DiskProfile::HDD).open_queue(&runtime).expect("a queue")];
    let times = reads(&runtime, &queues, 1, 4096, 300_000, anywhere);
    assert!(times.iter().max().expect("some").since(Time(0)) > Duration::from_secs(3000));
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}
