//! What is left after a failure: of a write, of a block, of the one who asked.

use super::*;

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
