//! What is shared, what that saves, and the contract of every device.

use super::*;

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
    let requests: Vec<u64> =
        engine.ledger().records().expect("in memory").iter().map(|record| record.request).collect();
    assert_eq!(requests[..2], [77, 77], "passed on whole");
    assert!(requests[2] >= 1 << 62, "a part has a number of its own");
}
