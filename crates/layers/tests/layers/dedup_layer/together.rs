//! Requests at the same time: in one queue, on several threads, and on the same block.

use super::*;

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
    // Few blocks and few contents: blocks are freed and taken again all the time, under the eyes of readers. Each of the six
    // that may read at once can keep a former content of each place.
    const PLACES: u64 = 8;
    let device =
        DedupDevice::new(disk(64 * 4096), DedupOptions { size_bytes: Some(PLACES * 4096), verify: false })
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
