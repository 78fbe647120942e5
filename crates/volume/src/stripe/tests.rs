use proptest::prelude::*;
use rotproof_block::conformance::{self, On};
use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{Context, ability};

use super::*;
use crate::copies::{Copies, Members};
use crate::mirror::{MirrorDevice, MirrorOptions};

fn memory(bytes: u64) -> Arc<dyn Device> {
    MemoryDevice::new(bytes, 512).expect("sizes that fit")
}

fn mirror(bytes: u64) -> Arc<dyn Device> {
    MirrorDevice::new(vec![memory(bytes), memory(bytes)], MirrorOptions::default()).expect("two devices")
}

fn stripe(parts: Vec<Arc<dyn Device>>, chunk: u32) -> Arc<StripeDevice> {
    StripeDevice::new(parts, chunk).expect("parts that fit")
}

fn run(device: &dyn Device, requests: Vec<Request>) -> Vec<Completion> {
    let runtime = Runtime::simulated(1);
    let queue = device.open_queue(&runtime).expect("opens");
    requests.into_iter().map(|request| runtime.block_on(queue.submit(request)).expect("completes")).collect()
}

#[test]
fn it_is_a_device() {
    for on in [On::Simulated, On::Uring] {
        for (sizes, chunk) in
            [(&[1 << 20, (1 << 20) + 512, 3 << 20][..], 4096), (&[2 << 20], 65_536), (&[1 << 20; 2], 65_536)]
        {
            let parts = || sizes.iter().map(|&size| memory(size)).collect();
            let make = || -> Result<Arc<dyn Device>> { Ok(stripe(parts(), chunk)) };
            if let Err(breach) = conformance::check(on, &make) {
                panic!("{on:?}, {sizes:?}: {breach}");
            }
        }
    }
}

#[test]
fn contexts_reach_its_parts() {
    for on in [On::Simulated, On::Uring] {
        conformance::check_layer(on, &|below| Ok(stripe(vec![below], 4096))).expect("one part");
        conformance::check_layer(on, &|below| Ok(stripe(vec![memory(4 << 20), below], 4096)))
            .expect("two parts");
    }
}

#[test]
fn of_each_part_whole_chunks_of_the_smallest_are_used() {
    let device = stripe(vec![memory(200 << 10), memory(130 << 10), memory(1 << 20)], 64 << 10);
    assert_eq!(device.info().size, 3 * (128 << 10));
    assert_eq!(device.info().atomic_write_bytes, 4096);
    assert_eq!(stripe_size([200 << 10, 130 << 10].into_iter(), 64 << 10), Some(256 << 10));
    assert_eq!(stripe_place(1, 128 << 10, &[1 << 20, 130 << 10], 64 << 10), None);
    assert_eq!(stripe_place(1, 65 << 10, &[1 << 20, 130 << 10], 64 << 10), Some(193 << 10));
    let none = StripeDevice::new(vec![memory(1 << 20), memory(4096)], 64 << 10).expect_err("no chunk");
    assert_eq!(none.kind(), ErrorKind::Invalid);
    assert!(StripeDevice::new(Vec::new(), 4096).is_err());
    let small_chunk = MemoryDevice::new(1 << 20, 4096).expect("sizes that fit");
    assert!(StripeDevice::new(vec![small_chunk], 512).is_err());
}

#[test]
fn what_one_request_asks_of_a_part_is_one_request_there() {
    let counting: Vec<_> = (0..3).map(|_| crate::faulty::Faulty::over(memory(1 << 20))).collect();
    let parts = counting.iter().map(|part| Arc::clone(part) as Arc<dyn Device>).collect();
    let device = stripe(parts, 4096);
    let data: Vec<u8> = (0..40_000u32).flat_map(u32::to_le_bytes).take(20 * 4096).collect();
    let completions = run(
        &*device,
        vec![
            Request::write(2048, Buffer::copy_of(&data), Context::default()),
            Request::read(2048, Buffer::zeroed(data.len()), Context::default()),
            Request::read(4096, Buffer::zeroed(4096), Context::default()),
        ],
    );
    assert!(completions[1].buffer[..] == data[..]);
    assert!(completions[2].buffer[..] == data[2048..2048 + 4096]);
    let seen: Vec<usize> = counting.iter().map(|part| part.requests()).collect();
    assert_eq!(seen, [2, 3, 2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_holds_what_a_plain_array_does(
        parts in 1usize..5,
        chunk in 9u32..14,
        requests in proptest::collection::vec((0u64..400, 1u64..60, 0u8..4, any::<u8>()), 1..40),
    ) {
        let device = stripe((0..parts).map(|_| memory(256 << 10)).collect(), 1 << chunk);
        let mut model = vec![0u8; device.info().size as usize];
        let runtime = Runtime::simulated(1);
        let queue = device.open_queue(&runtime).expect("opens");
        for (block, blocks, kind, fill) in requests {
            let (offset, length) = (block * 512, blocks * 512);
            let range = offset as usize..(offset + length) as usize;
            let data: Vec<u8> = (0..length).map(|at| fill.wrapping_add((at / 97) as u8)).collect();
            let request = match kind {
                0 => Request::write(offset, Buffer::copy_of(&data), Context::default()),
                1 => Request::discard(offset, length, Context::default()),
                2 => Request::write_zeroes(offset, length, Context::default()),
                _ => Request::read(offset, Buffer::stale(length as usize), Context::default()),
            };
            let completion = runtime.block_on(queue.submit(request)).expect("completes");
            if range.end > model.len() {
                prop_assert_eq!(completion.result.expect_err("beyond the end").kind(), ErrorKind::OutOfRange);
                continue;
            }
            completion.result.expect("it works");
            match kind {
                0 => model[range].copy_from_slice(&data),
                1 | 2 => model[range].fill(0),
                _ => prop_assert!(completion.buffer[..] == model[range]),
            }
        }
    }
}

#[test]
fn a_stripe_over_mirrors_has_copies_and_members() {
    let plain = stripe(vec![mirror(1 << 20), memory(1 << 20)], 4096);
    assert!(ability::find::<dyn Copies>(&*plain).is_none(), "not all parts have them");
    let device = stripe(vec![mirror(1 << 20), mirror(1 << 20)], 4096);
    let copies = ability::find::<dyn Copies>(&*device).expect("all parts have them");
    let members = ability::find::<dyn Members>(&*device).expect("all parts have them");
    assert_eq!((copies.count(), members.states().len()), (2, 4));
    let runtime = Runtime::simulated(1);
    let queue = copies.open_copies(&runtime).expect("opens");
    let data: Vec<u8> = (0..16_384u32).map(|at| (at / 13) as u8).collect();
    let write = Request::write(1024, Buffer::copy_of(&data), Context::default());
    runtime.block_on(queue.submit_to(1, write)).expect("completes").result.expect("written");
    let read = |copy: usize| {
        let read = Request::read(1024, Buffer::zeroed(data.len()), Context::default());
        let completion = runtime.block_on(queue.submit_to(copy, read)).expect("completes");
        completion.result.expect("read");
        completion.buffer.to_vec()
    };
    assert_eq!(read(1), data);
    assert_eq!(read(0), vec![0; data.len()], "the other copy has been left alone");
    runtime
        .block_on(queue.submit_to(0, Request::flush(Context::default())))
        .expect("completes")
        .result
        .expect("flushed");
    // Member 3 is the second copy of the second part.
    queue.set_missed(1, 4096, 4096);
    assert_eq!(members.missed(3), [0..65_536]);
    assert_eq!(members.missed(1), []);
    assert!(!queue.is_current(1, 0, 8192) && queue.is_current(1, 0, 4096) && queue.is_current(0, 0, 1 << 20));
    assert_eq!(queue.choose(0, 65_536), 0);
    assert_eq!(members.to_rebuild(), [0..131_072]);
    queue.set_current(1, 0, 131_072);
    assert_eq!(members.to_rebuild(), []);
    members.fail(3, "pulled").expect("there is another");
    assert!(matches!(members.states()[3], crate::copies::MemberState::Failed { .. }));
    members.replace(3, memory(1 << 20), &[0..1 << 20]).expect("it is large enough");
    assert_eq!(members.to_rebuild(), [0..2 << 20]);
    assert_eq!(members.fail(4, "there is none").expect_err("no such member").kind(), ErrorKind::Invalid);
}
