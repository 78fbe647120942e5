//! The dedup layer: what is shared, what happens at the same time, what failures leave behind.

use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::task::Poll;

use proptest::prelude::*;
use rotproof_block::conformance::{On, check};
use rotproof_block::leaf::{DiskProfile, FileDevice, FileOptions, MemoryDevice, SimulatedDisk};
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{
    Buffer, Completion, Context, Device, ErrorKind, Operation, Phase, Queue, Request, Result, Runtime,
    Submission,
};
use rotproof_layers::{DedupDevice, DedupOptions, StatsDevice};

use crate::devices::{Awake, with_faults};

const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;

fn memory(size: u64, block_size: u32) -> Arc<dyn Device> {
    MemoryDevice::new(size, block_size).expect("memory")
}

/// A leaf that takes time, so that requests overlap.
fn disk(size: u64) -> Arc<dyn Device> {
    SimulatedDisk::new(size, 512, DiskProfile::NVME).expect("a simulated disk")
}

/// A queue over a dedup layer that counts below.
struct Stand {
    runtime: Runtime,
    queue: Rc<dyn Queue>,
    device: Arc<DedupDevice>,
    below: Arc<StatsDevice>,
}

impl Stand {
    fn new(below: Arc<dyn Device>) -> Self {
        Self::with(below, DedupOptions::default())
    }

    fn with(below: Arc<dyn Device>, options: DedupOptions) -> Self {
        let runtime = Runtime::simulated(1);
        let below = StatsDevice::new(below, "below");
        let device = DedupDevice::new(Arc::<StatsDevice>::clone(&below), options).expect("fits");
        let queue = device.open_queue(&runtime).expect("a queue");
        Self { runtime, queue, device, below }
    }

    fn complete(&self, request: Request) -> Completion {
        self.runtime.block_on(self.queue.submit(request)).expect("every request completes")
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let Completion { result, buffer, .. } = self.complete(write(offset, data));
        assert_eq!(&buffer[..], data, "the caller's buffer is never changed");
        result
    }

    fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let Completion { result, buffer, .. } = self.complete(read(offset, length));
        result.expect("reads");
        buffer.to_vec()
    }

    /// Drives submissions at the same time; their completions in the same order.
    fn together(&self, submissions: Vec<Submission>) -> Vec<Completion> {
        self.runtime.block_on(all(submissions)).expect("every request completes")
    }

    /// Logical and physical blocks in use.
    fn usage(&self) -> (u64, u64) {
        let report = self.device.report();
        (report.logical_blocks, report.physical_blocks)
    }

    /// Requests and bytes of an operation that the device below got.
    fn below(&self, operation: &str) -> (u64, u64) {
        let rows = self.below.report().rows;
        rows.iter()
            .filter(|row| row.operation == operation)
            .fold((0, 0), |(requests, bytes), row| (requests + row.requests, bytes + row.bytes))
    }
}

async fn all(mut submissions: Vec<Submission>) -> Vec<Completion> {
    let mut completions: Vec<Option<Completion>> = submissions.iter().map(|_| None).collect();
    poll_fn(|task| {
        for (submission, completion) in submissions.iter_mut().zip(&mut completions) {
            if completion.is_none()
                && let Poll::Ready(done) = Pin::new(submission).poll(task)
            {
                *completion = Some(done);
            }
        }
        if completions.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    completions.into_iter().flatten().collect()
}

fn context() -> Context {
    Context { phase: Phase::Run, ..Context::default() }
}

fn write(offset: u64, data: &[u8]) -> Request {
    Request::write(offset, Buffer::copy_of(data), context())
}

fn read(offset: u64, length: usize) -> Request {
    Request::read(offset, Buffer::stale(length), context())
}

fn block(fill: u8) -> Vec<u8> {
    vec![fill; BLOCK]
}

/// A content of its own for each number.
fn unique(number: u64) -> Vec<u8> {
    let mut data = block(0xa5);
    data[..8].copy_from_slice(&number.to_le_bytes());
    data
}

fn at(block: u64) -> u64 {
    block * BLOCK as u64
}

#[test]
fn the_dedup_layer_keeps_the_contract_over_every_leaf_in_both_runtimes() {
    let folder = tempfile::tempdir().expect("a folder");
    let count = std::cell::Cell::new(0);
    let file = || -> Arc<dyn Device> {
        count.set(count.get() + 1);
        let options =
            FileOptions { size_bytes: Some(4 * MIB), direct: false, create: true, ..FileOptions::default() };
        FileDevice::open(&folder.path().join(count.get().to_string()), options).expect("a file")
    };
    let leaves: [&dyn Fn() -> Arc<dyn Device>; 4] =
        [&|| memory(4 * MIB, 512), &|| memory(4 * MIB, 4096), &|| disk(4 * MIB), &file];
    for (number, leaf) in leaves.into_iter().enumerate() {
        for verify in [false, true] {
            for size_bytes in [None, Some(2 * MIB), Some(16 * MIB)] {
                for on in [On::Simulated, On::Uring] {
                    let make = || -> Result<Arc<dyn Device>> {
                        Ok(DedupDevice::new(leaf(), DedupOptions { size_bytes, verify })?)
                    };
                    if let Err(breach) = check(on, &make) {
                        panic!("leaf {number}, verify {verify}, size {size_bytes:?}, {on:?}: {breach}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_dedup_layer_keeps_the_contract_while_every_request_below_is_delayed() {
    for on in [On::Simulated, On::Uring] {
        let make = || -> Result<Arc<dyn Device>> {
            let (faulty, _) = with_faults(memory(4 * MIB, 512), &["any: delay(1us)".to_owned()]);
            Ok(Arc::new(Awake(DedupDevice::new(faulty, DedupOptions::default())?)))
        };
        if let Err(breach) = check(on, &make) {
            panic!("{on:?}: {breach}");
        }
    }
}

#[test]
fn equal_blocks_are_stored_once_and_neighbours_travel_together() {
    let stand = Stand::new(memory(MIB, 512));
    let data = [unique(1), unique(2), unique(3), unique(1), unique(1), unique(4), unique(5)].concat();
    stand.write(at(10), &data).expect("writes");
    assert_eq!(stand.usage(), (7, 5));
    assert_eq!(stand.below("write"), (2, 5 * 4096), "two runs of new blocks");
    assert_eq!(stand.read(at(10), data.len()), data);
    stand.write(at(100), &data).expect("writes");
    assert_eq!(stand.usage(), (14, 5));
    assert_eq!(stand.below("write").0, 2, "nothing new");
    assert!((stand.device.report().ratio - 2.8).abs() < 1e-9);
    let before = stand.below("read").0;
    assert_eq!(stand.read(at(100), 3 * BLOCK), data[..3 * BLOCK]);
    assert_eq!(stand.below("read").0, before + 1, "three blocks in a row, one read");
}

#[test]
fn references_return_to_zero_when_everything_is_given_up_and_all_blocks_can_be_used_again() {
    for operation in [Operation::Discard, Operation::WriteZeroes] {
        let stand = Stand::new(memory(MIB, 512));
        for round in 0..3 {
            for index in 0..256 {
                stand.write(at(index), &unique(round * 1000 + index)).expect("there is room");
            }
            assert_eq!(stand.usage(), (256, 256));
            assert_eq!(stand.write(at(3), &unique(7777)).expect_err("full").kind(), ErrorKind::NoSpace);
            assert_eq!(stand.read(at(3), BLOCK), unique(round * 1000 + 3), "and the old data is still there");
            let clear = Request { operation, ..Request::discard(0, MIB, context()) };
            stand.complete(clear).result.expect("gives up");
            assert_eq!(stand.usage(), (0, 0));
            assert_eq!(stand.read(0, MIB as usize), vec![0; MIB as usize]);
        }
    }
}

#[test]
fn more_can_be_stored_than_there_is_below() {
    let options = DedupOptions { size_bytes: Some(64 * MIB), verify: false };
    let stand = Stand::with(memory(MIB, 512), options);
    for index in 0..64 {
        stand.write(index * MIB, &block(1 + (index % 4) as u8).repeat(256)).expect("four contents");
    }
    assert_eq!(stand.usage(), (64 * 256, 4));
    assert_eq!(stand.read(63 * MIB, BLOCK), block(4));
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    for (below, size_bytes) in [
        (512, None),
        (MIB, Some(0)),
        (MIB, Some(4097)),
        (MIB, Some(DedupDevice::SIZE_MAX + 4096)),
        (1 << 45, None),
    ] {
        let error = DedupDevice::new(memory(below, 512), DedupOptions { size_bytes, verify: false });
        assert_eq!(error.expect_err("does not fit").kind(), ErrorKind::Invalid, "{below} {size_bytes:?}");
    }
    let uneven = DedupDevice::new(memory(MIB + 512, 512), DedupOptions::default()).expect("fits");
    assert_eq!(uneven.info().size, MIB, "whole blocks only");
}

#[test]
fn a_content_that_many_write_at_the_same_time_is_written_once() {
    let stand = Stand::new(disk(MIB));
    let submissions = (0..64).map(|index| stand.queue.submit(write(at(index), &unique(index % 2)))).collect();
    for completion in stand.together(submissions) {
        completion.result.expect("writes");
    }
    assert_eq!(stand.usage(), (64, 2));
    assert_eq!(stand.below("write"), (2, 2 * 4096));
}

#[test]
fn queues_on_two_threads_that_write_the_same_contents_store_each_once() {
    const CONTENTS: u64 = 200;
    for below in [memory(8 * MIB, 512), disk(8 * MIB)] {
        let below = StatsDevice::new(below, "below");
        let device =
            DedupDevice::new(Arc::<StatsDevice>::clone(&below), DedupOptions::default()).expect("fits");
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            for number in 0..2u64 {
                let (device, start) = (&device, &start);
                scope.spawn(move || {
                    let runtime = Runtime::uring(RuntimeOptions::new(1)).expect("io_uring");
                    let queue = device.open_queue(&runtime).expect("a queue");
                    start.wait();
                    for first in (0..CONTENTS).step_by(20) {
                        let wave = first..first + 20;
                        let place = |index| at(number * CONTENTS + index);
                        let writes = wave
                            .clone()
                            .map(|index| queue.submit(write(place(index), &unique(index))))
                            .collect();
                        for completion in runtime.block_on(all(writes)).expect("completes") {
                            completion.result.expect("writes");
                        }
                        let reads =
                            wave.clone().map(|index| queue.submit(read(place(index), BLOCK))).collect();
                        for (index, completion) in wave.zip(runtime.block_on(all(reads)).expect("completes"))
                        {
                            completion.result.expect("reads");
                            assert!(completion.buffer[..] == unique(index), "block {index}");
                        }
                    }
                    runtime.abandon_tasks();
                });
            }
        });
        let report = device.report();
        assert_eq!((report.logical_blocks, report.physical_blocks), (2 * CONTENTS, CONTENTS));
        let rows = below.report().rows;
        let written = rows.iter().find(|row| row.operation == "write").expect("writes");
        assert_eq!(written.bytes, CONTENTS * 4096, "never twice");
    }
}

#[test]
fn threads_that_overwrite_and_discard_shared_contents_never_read_another_one() {
    // Few blocks and few contents: blocks are freed and taken again all the time, under the eyes of readers.
    const PLACES: u64 = 8;
    let device =
        DedupDevice::new(disk(16 * 4096), DedupOptions { size_bytes: Some(PLACES * 4096), verify: false })
            .expect("fits");
    std::thread::scope(|scope| {
        for number in 0..3u64 {
            let device = &device;
            scope.spawn(move || {
                let runtime = Runtime::uring(RuntimeOptions::new(number)).expect("io_uring");
                let queue = device.open_queue(&runtime).expect("a queue");
                for round in 0..400 {
                    let draw = |stream| runtime.random(stream, round);
                    // Each place only ever gets its own few contents, or zeros.
                    let place = draw(1) % PLACES;
                    let fill = 1 + (place * 16 + draw(2) % 3) as u8;
                    let change = match draw(3) % 4 {
                        0 => Request::discard(at(place), 4096, context()),
                        _ => write(at(place), &block(fill)),
                    };
                    let looks = (0..2).map(|_| queue.submit(read(0, PLACES as usize * BLOCK)));
                    let submissions = looks.chain([queue.submit(change)]).collect();
                    for completion in runtime.block_on(all(submissions)).expect("completes") {
                        completion.result.expect("succeeds");
                        if completion.buffer.len() <= BLOCK {
                            continue;
                        }
                        for (place, found) in completion.buffer.chunks(BLOCK).enumerate() {
                            let first = found[0];
                            let legal = first == 0 || (u64::from(first) - 1) / 16 == place as u64;
                            assert!(
                                legal && found.iter().all(|byte| *byte == first),
                                "place {place}: {first}"
                            );
                        }
                    }
                }
                runtime.abandon_tasks();
            });
        }
    });
    let runtime = Runtime::simulated(1);
    let queue = device.open_queue(&runtime).expect("a queue");
    let discard = queue.submit(Request::discard(0, PLACES * 4096, context()));
    runtime.block_on(discard).expect("completes").result.expect("discards");
    let report = device.report();
    assert_eq!((report.logical_blocks, report.physical_blocks), (0, 0), "no reference is left over");
}

#[test]
fn a_read_under_way_keeps_its_block_from_being_used_again() {
    let (slow_reads, _) = with_faults(memory(3 * 4096, 512), &["read: delay(10ms)".to_owned()]);
    let stand = Stand::new(slow_reads);
    stand.write(0, &unique(1)).expect("writes");
    let mut reading = stand.queue.submit(read(0, BLOCK));
    stand
        .runtime
        .block_on(poll_fn(|task| Poll::Ready(Pin::new(&mut reading).poll(task).is_ready())))
        .expect("polls");
    for number in 2..40 {
        stand.write(0, &unique(number)).expect("the other two blocks will do");
    }
    assert_eq!(stand.usage(), (1, 2), "the old block is referred to by the read");
    let completion = stand.runtime.block_on(reading).expect("completes");
    assert!(completion.buffer[..] == unique(1), "what was there when it began");
    assert_eq!(stand.usage(), (1, 1));
    // A read that is given up gives its block up, too.
    let dropped = stand.queue.submit(read(0, BLOCK));
    assert_eq!(stand.usage(), (1, 1));
    stand.write(0, &unique(50)).expect("writes");
    assert_eq!(stand.usage(), (1, 2));
    drop(dropped);
    assert_eq!(stand.usage(), (1, 1));
}

#[test]
fn parts_of_one_block_that_are_written_at_the_same_time_all_survive() {
    for below in [memory(MIB, 512), disk(MIB)] {
        let stand = Stand::new(below);
        stand.write(0, &block(9).repeat(3)).expect("writes");
        let parts = (0..24u64).map(|part| write(part * 512, &[100 + part as u8; 512]));
        for completion in stand.together(parts.map(|part| stand.queue.submit(part)).collect()) {
            completion.result.expect("writes");
        }
        let found = stand.read(0, 3 * BLOCK);
        assert!(
            found.chunks(512).enumerate().all(|(part, data)| data.iter().all(|b| *b == 100 + part as u8))
        );
        assert_eq!(stand.usage(), (3, 3), "what was only passing is free again");
    }
}

#[test]
fn a_part_and_a_whole_block_written_at_the_same_time_end_in_one_order_or_the_other() {
    for part_first in [true, false] {
        let stand = Stand::new(disk(MIB));
        stand.write(0, &block(1)).expect("writes");
        let (part, whole) = (write(512, &[7; 512]), write(0, &block(2)));
        let requests = if part_first { [part, whole] } else { [whole, part] };
        for completion in stand.together(requests.map(|request| stand.queue.submit(request)).into()) {
            completion.result.expect("writes");
        }
        let mut with_part = block(2);
        with_part[512..1024].fill(7);
        let found = stand.read(0, BLOCK);
        assert!(found == with_part || found == block(2), "nothing of what was there before may come back");
        assert_eq!(stand.usage(), (1, 1));
    }
}

#[test]
fn a_write_goes_on_without_anybody_polling_it() {
    let stand = Stand::new(disk(MIB));
    // The second waits for the first, which nobody awaits before.
    let first = stand.queue.submit(write(0, &unique(1)));
    let second = stand.queue.submit(write(at(1), &unique(1)));
    stand.runtime.block_on(second).expect("does not stall").result.expect("writes");
    stand.runtime.block_on(first).expect("completes").result.expect("writes");
    // And when it is given up: its block must not be free before it has landed.
    drop(stand.queue.submit(write(at(2), &unique(2))));
    let third = stand.queue.submit(write(at(3), &unique(2)));
    stand.runtime.block_on(third).expect("does not stall").result.expect("writes");
    assert_eq!(stand.read(at(3), BLOCK), unique(2));
    assert_eq!(stand.read(at(2), BLOCK), unique(2));
    assert_eq!(stand.usage(), (4, 2));
}

#[test]
fn writes_that_the_runtime_abandons_are_not_mapped_and_their_blocks_never_used() {
    let stand = Stand::new(disk(4 * 4096));
    let submission = stand.queue.submit(write(0, &unique(1)));
    assert_eq!(stand.usage(), (0, 1));
    stand.runtime.abandon_tasks();
    drop(submission);
    assert_eq!(stand.usage(), (0, 0));
    for index in 0..3 {
        stand.write(at(index), &unique(10 + index)).expect("three are left");
    }
    assert_eq!(stand.write(at(3), &unique(20)).expect_err("full").kind(), ErrorKind::NoSpace);
}

#[test]
fn a_write_that_fails_leaves_the_old_data_and_its_block_is_taken_last() {
    let (faulty, _) = with_faults(memory(4 * 4096, 512), &["write, offset=4KiB: error".to_owned()]);
    let stand = Stand::new(faulty);
    stand.write(0, &unique(0)).expect("block 0 is good");
    let error = stand.write(0, &[unique(1), unique(2)].concat()).expect_err("block 1 is bad");
    assert_eq!(error.kind(), ErrorKind::Medium);
    assert_eq!(stand.read(0, 2 * BLOCK), [unique(0), block(0)].concat());
    assert_eq!(stand.usage(), (1, 1));
    stand.write(at(1), &unique(1)).expect("a block that is not bad is found");
    assert_eq!(stand.usage(), (2, 2));
}

#[test]
fn who_waits_for_a_content_whose_write_fails_writes_it_itself() {
    let rules = ["write, once: error".to_owned(), "write: delay(1ms)".to_owned()];
    let (faulty, _) = with_faults(memory(MIB, 512), &rules);
    let stand = Stand::new(faulty);
    let submissions = (0..4).map(|index| stand.queue.submit(write(at(index), &unique(1)))).collect();
    let failed: Vec<bool> =
        stand.together(submissions).iter().map(|completion| completion.result.is_err()).collect();
    assert_eq!(failed, [true, false, false, false], "the error is that of the one that wrote");
    assert_eq!(stand.usage(), (3, 1));
    assert_eq!(stand.read(at(3), BLOCK), unique(1));
}

#[test]
fn a_bad_block_reaches_all_that_share_it_unless_the_store_looks_before_it_shares() {
    for (verify, expected) in [(false, [true, true, true]), (true, [true, false, false])] {
        let (faulty, _) = with_faults(memory(MIB, 512), &["write, once: bit_flip".to_owned()]);
        let stand = Stand::with(faulty, DedupOptions { size_bytes: None, verify });
        for index in 0..3 {
            stand.write(at(index), &unique(1)).expect("writes");
        }
        let wrong: Vec<bool> = (0..3).map(|index| stand.read(at(index), BLOCK) != unique(1)).collect();
        assert_eq!(wrong, expected, "verify {verify}");
        assert_eq!(stand.usage(), (3, if verify { 2 } else { 1 }));
        stand.complete(Request::discard(0, MIB, context())).result.expect("discards");
        assert_eq!(stand.usage(), (0, 0));
    }
}

#[test]
fn a_durable_write_of_what_is_there_already_flushes_below() {
    let stand = Stand::new(memory(MIB, 512));
    let durable = |offset, number| Request {
        operation: Operation::Write { fua: true },
        ..write(offset, &unique(number))
    };
    stand.complete(durable(0, 1)).result.expect("writes");
    assert_eq!(stand.below("flush").0, 0, "it was written durably itself");
    stand.complete(durable(at(1), 1)).result.expect("writes");
    assert_eq!(stand.below("flush").0, 1, "the first to write it need not have been");
}

#[test]
fn the_context_reaches_the_device_below_and_parts_are_its_children() {
    let (faulty, engine) = with_faults(memory(MIB, 512), &["write: bit_flip".to_owned()]);
    let stand = Stand::new(faulty);
    let numbered = |request: Request, id| Request { context: Context { id, ..context() }, ..request };
    stand.complete(numbered(write(0, &[unique(1), unique(2)].concat()), 77)).result.expect("writes");
    stand.complete(numbered(write(at(4), &[unique(1), unique(3)].concat()), 78)).result.expect("writes");
    let requests: Vec<u64> = engine.ledger().records().iter().map(|record| record.request).collect();
    assert_eq!(requests[..2], [77, 77], "passed on whole");
    assert!(requests[2] >= 1 << 62, "a part has a number of its own");
}

/// A request of a random history.
#[derive(Clone, Debug)]
struct Step {
    kind: u8,
    sector: u64,
    sectors: u64,
    fill: u8,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u8..8, 0u64..SECTORS, 1u64..40, 0u8..4).prop_map(|(kind, sector, sectors, fill)| Step {
        kind,
        sector,
        sectors: sectors.min(SECTORS - sector),
        fill,
    });
    prop::collection::vec(step, 1..60)
}

const SECTORS: u64 = 128;
const SECTOR: u64 = 512;

/// What a step writes: few contents, so that blocks are shared, and not the same in every sector of a block.
fn payload(step: &Step) -> Vec<u8> {
    (step.sector..step.sector + step.sectors)
        .flat_map(|sector| [step.fill ^ (sector % 8) as u8; SECTOR as usize])
        .collect()
}

fn request_of(step: &Step) -> Request {
    let (offset, length) = (step.sector * SECTOR, step.sectors * SECTOR);
    match step.kind {
        0..4 => write(offset, &payload(step)),
        4 => Request::discard(offset, length, context()),
        5 => Request::write_zeroes(offset, length, context()),
        _ => read(offset, length as usize),
    }
}

fn distinct_blocks(array: &[u8]) -> usize {
    array.chunks(BLOCK).collect::<HashSet<_>>().len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn any_history_of_unaligned_requests_ends_as_a_plain_array_would(
        steps in steps(), verify: bool, slow: bool,
    ) {
        let size = SECTORS * SECTOR;
        // Room for what is new while the old is still there.
        let below = if slow { disk(2 * size) } else { memory(2 * size, 512) };
        let stand = Stand::with(below, DedupOptions { size_bytes: Some(size), verify });
        let mut array = vec![0u8; size as usize];
        for step in &steps {
            let range = (step.sector * SECTOR) as usize..((step.sector + step.sectors) * SECTOR) as usize;
            let Completion { result, buffer, .. } = stand.complete(request_of(step));
            prop_assert!(result.is_ok(), "{:?}: {:?}", step, result);
            match step.kind {
                0..4 => array[range].copy_from_slice(&payload(step)),
                4 | 5 => array[range].fill(0),
                _ => prop_assert!(buffer[..] == array[range], "{:?}", step),
            }
            let (logical, physical) = stand.usage();
            prop_assert!(physical <= logical && physical <= distinct_blocks(&array) as u64);
        }
        prop_assert!(stand.read(0, size as usize) == array);
        stand.complete(Request::discard(0, size, context())).result.expect("discards");
        prop_assert_eq!(stand.usage(), (0, 0));
    }

    #[test]
    fn requests_at_the_same_time_leave_in_each_sector_what_one_of_them_wrote(steps in steps()) {
        let size = SECTORS * SECTOR;
        let stand = Stand::with(disk(64 * size), DedupOptions { size_bytes: Some(size), verify: false });
        let mut legal: Vec<HashSet<u8>> = vec![HashSet::from([0]); SECTORS as usize];
        for wave in steps.chunks(6) {
            let mutations = || wave.iter().filter(|step| step.kind < 6);
            let submissions = mutations().map(|step| stand.queue.submit(request_of(step))).collect();
            for completion in stand.together(submissions) {
                prop_assert!(completion.result.is_ok(), "{:?}", completion.result);
            }
            for sector in 0..SECTORS {
                let written: HashSet<u8> = mutations()
                    .filter(|step| (step.sector..step.sector + step.sectors).contains(&sector))
                    .map(|step| if step.kind < 4 { step.fill ^ (sector % 8) as u8 } else { 0 })
                    .collect();
                if !written.is_empty() {
                    legal[sector as usize] = written;
                }
            }
            for (sector, data) in stand.read(0, size as usize).chunks(SECTOR as usize).enumerate() {
                let is_legal = legal[sector].contains(&data[0]) && data.iter().all(|byte| *byte == data[0]);
                prop_assert!(is_legal, "sector {}: {}, not of {:?}", sector, data[0], legal[sector]);
                legal[sector] = HashSet::from([data[0]]);
            }
        }
        stand.complete(Request::discard(0, size, context())).result.expect("discards");
        prop_assert_eq!(stand.usage(), (0, 0));
    }
}
