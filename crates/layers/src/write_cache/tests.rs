//! The cache as a device, with and without power.

use super::*;
use rotproof_block::Context;
use rotproof_block::conformance::{On, check, check_layer};
use rotproof_block::hash::mix;
use rotproof_block::leaf::{DiskProfile, MemoryDevice, SimulatedDisk};

const OPTIONS: WriteCacheOptions = WriteCacheOptions {
    bytes: 1 << 20,
    write_back: WriteBack::Oldest,
    atomic_unit_bytes: 512,
    lies: Lies { flush: false, fua: false },
};

struct Stand {
    cache: Arc<WriteCacheDevice>,
    memory: Arc<MemoryDevice>,
    runtime: Runtime,
}

impl Stand {
    fn new(options: WriteCacheOptions) -> Self {
        let memory = MemoryDevice::new(1 << 20, 512).expect("memory");
        let cache = WriteCacheDevice::new(Arc::clone(&memory) as Arc<dyn Device>, options).expect("a cache");
        Self { cache, memory, runtime: Runtime::simulated(1) }
    }

    fn try_on(&self, device: &dyn Device, request: Request) -> Result<Buffer> {
        let queue = device.open_queue(&self.runtime).expect("a queue");
        let completion = self.runtime.block_on(queue.submit(request)).expect("it completes");
        completion.result.map(|()| completion.buffer)
    }

    fn write(&self, sector: u64, byte: u8, fua: bool) {
        let write = Request::write(sector * 512, Buffer::copy_of(&[byte; 512]), Context::default());
        self.try_on(&*self.cache, Request { operation: Operation::Write { fua }, ..write }).expect("written");
    }

    fn flush(&self) {
        self.try_on(&*self.cache, Request::flush(Context::default())).expect("flushed");
    }

    fn sectors(&self, device: &dyn Device, count: u64) -> Vec<u8> {
        let read = Request::read(0, Buffer::zeroed(count as usize * 512), Context::default());
        self.try_on(device, read).expect("read").chunks(512).map(|sector| sector[0]).collect()
    }
}

#[test]
fn it_keeps_the_contract_large_or_small_over_fast_and_slow_devices() {
    for write_back in [WriteBack::Oldest, WriteBack::Random] {
        for bytes in [4096, 64 << 10, 1 << 20, 64 << 20] {
            let options = WriteCacheOptions { bytes, write_back, ..OPTIONS };
            let over = |below| WriteCacheDevice::new(below, options);
            for on in [On::Simulated, On::Uring] {
                check(on, &|| Ok(over(MemoryDevice::new(2 << 20, 512)?)?))
                    .unwrap_or_else(|breach| panic!("{bytes} {on:?}: {breach}"));
                check_layer(on, &|below| Ok(over(below)?)).expect("contexts");
            }
            let disk = || SimulatedDisk::new(2 << 20, 512, DiskProfile::NVME);
            check(On::Simulated, &|| Ok(over(disk()?)?)).unwrap_or_else(|breach| panic!("{bytes}: {breach}"));
        }
    }
}

#[test]
fn what_is_acknowledged_is_below_only_after_a_flush_or_with_fua() {
    let stand = Stand::new(OPTIONS);
    stand.write(0, 1, false);
    stand.write(1, 2, false);
    stand.write(1, 3, true);
    stand.write(2, 4, false);
    assert_eq!(stand.sectors(&*stand.cache, 4), [1, 3, 4, 0]);
    assert_eq!(stand.sectors(&*stand.memory, 4), [0, 3, 0, 0], "only what asked for it");
    assert_eq!(stand.cache.volatile_bytes(), 1024);
    stand.flush();
    assert_eq!(stand.sectors(&*stand.memory, 4), [1, 3, 4, 0]);
    assert_eq!(stand.cache.volatile_bytes(), 0);
}

#[test]
fn a_cut_loses_what_was_volatile_and_nothing_that_was_durable() {
    let stand = Stand::new(OPTIONS);
    stand.write(0, 1, false);
    stand.flush();
    stand.write(0, 2, false);
    stand.write(1, 3, true);
    stand.write(2, 4, false);
    let power: &dyn Power = &*stand.cache;
    assert!(power.is_on());
    power.cut(Kept::None);
    assert!(!power.is_on());
    for request in [
        Request::read(0, Buffer::zeroed(512), Context::default()),
        Request::write(0, Buffer::zeroed(512), Context::default()),
        Request::flush(Context::default()),
        Request::discard(0, 512, Context::default()),
    ] {
        let error = stand.try_on(&*stand.cache, request).expect_err("there is no power");
        assert_eq!(error.kind(), ErrorKind::Gone);
    }
    power.restore();
    assert_eq!(stand.sectors(&*stand.cache, 4), [1, 3, 0, 0]);
    stand.write(2, 5, false);
    power.cut(Kept::All);
    power.cut(Kept::None);
    power.restore();
    assert_eq!(stand.sectors(&*stand.cache, 4), [1, 3, 5, 0], "one cut, which kept all");
    power.cut(Kept::None);
    power.restore();
    assert_eq!(stand.sectors(&*stand.cache, 4), [1, 3, 5, 0], "what survived one cut survives the next");
    stand.flush();
    assert_eq!(stand.sectors(&*stand.memory, 4), [1, 3, 5, 0]);
}

#[test]
fn a_cut_may_keep_any_version_of_each_sector_that_no_flush_has_covered() {
    let mut seen = std::collections::HashSet::new();
    for seed in 0..200 {
        let stand = Stand::new(OPTIONS);
        for sector in 0..8 {
            stand.write(sector, 1, false);
        }
        stand.flush();
        for (sector, byte) in [(0, 2), (0, 3), (1, 2), (2, 2)] {
            stand.write(sector, byte, false);
        }
        stand.write(1, 4, true);
        stand.cache.cut(Kept::Part { seed });
        stand.cache.restore();
        let found = stand.sectors(&*stand.cache, 4);
        assert!([1, 2, 3].contains(&found[0]) && found[1] == 4 && [1, 2].contains(&found[2]), "{found:?}");
        assert_eq!(found[3], 1);
        seen.insert(found);
    }
    assert_eq!(seen.len(), 6, "three versions of one, two of another: {seen:?}");
}

#[test]
fn a_cache_that_lies_acknowledges_and_forgets() {
    for (flush, fua) in [(true, false), (false, true), (true, true)] {
        let stand = Stand::new(WriteCacheOptions { lies: Lies { flush, fua }, ..OPTIONS });
        stand.write(0, 1, true);
        assert_eq!(stand.sectors(&*stand.memory, 1), [u8::from(!fua)], "{flush} {fua}");
        stand.write(1, 1, false);
        stand.flush();
        assert_eq!(stand.sectors(&*stand.memory, 2)[1], u8::from(!flush), "{flush} {fua}");
        stand.cache.cut(Kept::None);
        stand.cache.restore();
        let expected = [u8::from(!fua || !flush), u8::from(!flush)];
        assert_eq!(stand.sectors(&*stand.cache, 2), expected, "{flush} {fua}");
    }
}

#[test]
fn a_full_cache_writes_back_and_a_slow_device_makes_it_wait() {
    let disk = SimulatedDisk::new(16 << 20, 512, DiskProfile::HDD).expect("a disk");
    let options = WriteCacheOptions { bytes: 1 << 20, ..OPTIONS };
    let cache = WriteCacheDevice::new(disk, options).expect("a cache");
    let runtime = Runtime::simulated(1);
    let queue = cache.open_queue(&runtime).expect("a queue");
    let mut waits = Vec::new();
    for index in 0..64u64 {
        let began = runtime.now();
        let write = Request::write(mix(1, 1, index) % 200 * 65536, Buffer::zeroed(65536), Context::default());
        runtime.block_on(queue.submit(write)).expect("it completes").result.expect("written");
        waits.push(runtime.now().since(began).as_millis());
        assert!(cache.volatile_bytes() <= 1 << 20);
    }
    assert!(waits[..16].iter().all(|&wait| wait == 0), "{waits:?}");
    let stalls = waits.iter().filter(|&&wait| wait > 0).count();
    assert!((5..=7).contains(&stalls), "one for every half of the cache: {waits:?}");
}

#[test]
fn requests_under_way_when_the_power_goes_fail() {
    let disk = SimulatedDisk::new(1 << 20, 512, DiskProfile::HDD).expect("a disk");
    let cache = WriteCacheDevice::new(disk, OPTIONS).expect("a cache");
    let runtime = Runtime::simulated(1);
    let queue = cache.open_queue(&runtime).expect("a queue");
    let write = Request::write(0, Buffer::copy_of(&[7; 4096]), Context::default());
    runtime.block_on(queue.submit(write)).expect("it completes").result.expect("acknowledged");
    let flush = queue.submit(Request::flush(Context::default()));
    let read = queue.submit(Request::read(65536, Buffer::zeroed(512), Context::default()));
    let completions = runtime.block_on(async {
        runtime.yield_now().await;
        cache.cut(Kept::None);
        (flush.await, read.await)
    });
    let (flush, read) = completions.expect("they complete");
    assert_eq!(flush.result.expect_err("the power went").kind(), ErrorKind::Gone);
    assert_eq!(read.result.expect_err("the power went").kind(), ErrorKind::Gone);
    cache.restore();
    let read = queue.submit(Request::read(0, Buffer::zeroed(4096), Context::default()));
    let buffer = runtime.block_on(read).expect("it completes").buffer;
    assert!(buffer.iter().all(|byte| *byte == 7), "it was on its way to the medium");
}

#[test]
fn a_cache_that_cannot_be_is_refused() {
    let below = || MemoryDevice::new(1 << 20, 4096).expect("memory");
    for options in [
        WriteCacheOptions { atomic_unit_bytes: 512, ..OPTIONS },
        WriteCacheOptions { atomic_unit_bytes: 12_288, ..OPTIONS },
        WriteCacheOptions { bytes: 512, atomic_unit_bytes: 4096, ..OPTIONS },
    ] {
        let error = WriteCacheDevice::new(below(), options).expect_err("no such cache");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}
