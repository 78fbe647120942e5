//! However long a load runs, it takes no more memory: counted at the allocator, in a process of its own.
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{Phase, Runtime};
use rotproof_load::{DeviceDriver, Driver, LoadSpec, Oracle, Progress, RunOn, RunOptions, Workload};

/// Counts the bytes in use, and the most there ever were.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that a load of so many requests needed at once, beyond what there was before.
fn peak_of(requests: u64) -> usize {
    let json = r#"{ "reads": "50%", "queue_depth": 16, "pattern": "random", "flush_every": 100, "retry": 1,
        "block_size": { "4KiB": "80%", "16KiB": "20%" }, "duplicates": "20%", "workers": 2 }"#;
    let spec: LoadSpec = serde_json::from_str(json).expect("a load");
    let spec = LoadSpec { requests: Some(requests), ..spec };
    let before = IN_USE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let driver = DeviceDriver::new(MemoryDevice::new(1 << 20, 512).expect("a device")).expect("suits");
    let workload = Workload::new(&spec, 1, driver.objects()).expect("makes sense");
    let mut oracle = Oracle::new(&workload);
    let runtime = Runtime::simulated(1);
    let options = RunOptions {
        runtime: RunOn::Simulated(&runtime),
        phase: Phase::Run,
        verify: true,
        cancel: Arc::new(AtomicUsize::new(0)),
        progress: Arc::new(Progress::default()),
        recording: None,
        phase_cell: None,
        let_go: None,
    };
    let report = rotproof_load::run(&workload, &driver, &mut oracle, &options).expect("runs");
    assert_eq!(report.reads.requests + report.writes.requests, requests);
    assert!(report.sightings.is_empty());
    PEAK.load(Ordering::Relaxed) - before
}

#[test]
fn a_load_thirty_times_as_long_takes_no_more_memory() {
    // Pools of the thread fill up in the first.
    peak_of(10_000);
    let (short, long) = (peak_of(10_000), peak_of(300_000));
    assert!(long <= short + 4096, "{long} bytes instead of {short}");
}
