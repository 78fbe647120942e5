use super::*;

#[test]
fn what_one_copy_cannot_read_comes_from_the_other_and_is_written_there_again() {
    let stand = Stand::new(2, 1 << 20);
    let data = pattern(1, 4 * BLOCK);
    stand.write(0, &data).expect("is written");
    let bad = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let is_bad = Arc::clone(&bad);
    // As a disk with a bad sector, which a write puts right.
    stand.members[0].plan(move |request, _| {
        if touches(request, 4096..8192) && is_bad.load(std::sync::atomic::Ordering::Relaxed) {
            if is_read(request) {
                return Act::Fail(ErrorKind::Medium);
            }
            is_bad.store(false, std::sync::atomic::Ordering::Relaxed);
        }
        Act::Pass
    });
    let before: Vec<usize> = stand.members.iter().map(|member| member.requests()).collect();
    // One of the two begins with the bad member.
    assert_eq!(stand.read(0, 4 * BLOCK).expect("is read"), data);
    assert_eq!(stand.read(0, 4 * BLOCK).expect("is read"), data);
    assert!(!bad.load(std::sync::atomic::Ordering::Relaxed), "is put right");
    let asked: Vec<usize> =
        stand.members.iter().zip(before).map(|(member, before)| member.requests() - before).collect();
    assert_eq!(asked, [2, 2], "a repair is a read, a read and a write");
    assert_eq!(*stand.events.lock(), [MirrorEvent::Repaired { member: 0, range: 0..16_384 }]);
    let report = stand.mirror.report();
    assert_eq!((report[0].failed_reads, report[0].repaired_bytes), (1, 16_384));
    assert_eq!(report[0].state, MemberState::Current);
}

#[test]
fn a_large_read_finds_a_good_copy_of_each_block_where_no_member_has_all() {
    let stand = Stand::new(2, 1 << 20);
    let data = pattern(2, 64 * BLOCK);
    stand.write(512, &data).expect("is written");
    for (member, bad) in [(0, 5 * 4096..6 * 4096), (1, 40 * 4096..41 * 4096)] {
        stand.members[member].plan(move |request, _| {
            if is_read(request) && touches(request, bad.clone()) {
                Act::Fail(ErrorKind::Medium)
            } else {
                Act::Pass
            }
        });
    }
    for _ in 0..4 {
        assert_eq!(stand.read(512, 64 * BLOCK).expect("is read"), data);
        // Whoever is asked first next is another.
        stand.read(0, 512).expect("is read");
    }
    let repaired: Vec<u64> = stand.mirror.report().iter().map(|member| member.repaired_bytes).collect();
    assert!(repaired.iter().all(|&bytes| bytes > 0), "{repaired:?}");
}

#[test]
fn what_no_copy_can_read_is_an_error_for_exactly_that() {
    let stand = Stand::new(2, 1 << 20);
    let data = pattern(3, 64 * BLOCK);
    stand.write(0, &data).expect("is written");
    for member in &stand.members {
        member.plan(|request, _| {
            if is_read(request) && touches(request, 8192..12_288) {
                Act::Fail(ErrorKind::Medium)
            } else {
                Act::Pass
            }
        });
    }
    assert_eq!(stand.read(0, 64 * BLOCK).expect_err("a part is gone").kind(), ErrorKind::Medium);
    assert_eq!(stand.read(0, 8192).expect("is read"), data[..8192]);
    assert_eq!(stand.read(12_288, BLOCK).expect("is read"), data[12_288..16_384]);
    assert!(stand.read(8192, BLOCK).is_err());
    let unreadable = MirrorEvent::Unreadable { range: 8192..12_288 };
    assert!(stand.events.lock().contains(&unreadable));
    assert!(stand.mirror.report().iter().all(|member| member.state == MemberState::Current));
}

#[test]
fn a_write_that_one_member_does_not_take_is_not_read_from_there_until_a_rebuild() {
    let stand = Stand::new(2, 1 << 20);
    let (old, new) = (pattern(4, 4 * BLOCK), pattern(5, BLOCK));
    stand.write(0, &old).expect("is written");
    stand.members[1]
        .plan(|request, _| if is_read(request) { Act::Pass } else { Act::Fail(ErrorKind::Medium) });
    stand.write(4096, &new).expect("the other takes it");
    stand.members[1].plan(|_, _| Act::Pass);
    assert_eq!(stand.mirror.states()[1], MemberState::Behind { missed_bytes: GRANULE_BYTES });
    for _ in 0..4 {
        assert_eq!(stand.read(4096, BLOCK).expect("is read"), new);
    }
    let report = stand.rebuild();
    assert_eq!(report, RebuildReport { copied_bytes: GRANULE_BYTES, left: Vec::new() });
    assert_eq!(stand.mirror.states(), [MemberState::Current, MemberState::Current]);
    assert_eq!(stand.on_member(1, 4096, BLOCK), new);
    assert_eq!(stand.on_member(1, 0, BLOCK), old[..BLOCK]);
}

#[test]
fn a_write_that_fails_once_is_tried_again_and_nothing_is_missed() {
    let stand = Stand::new(2, 1 << 20);
    stand.members[0].plan(|_, number| if number == 0 { Act::Fail(ErrorKind::Medium) } else { Act::Pass });
    stand.write(0, &pattern(6, BLOCK)).expect("is written");
    assert_eq!(stand.mirror.states()[0], MemberState::Current);
    assert_eq!(stand.on_member(0, 0, BLOCK), pattern(6, BLOCK));
    assert_eq!(stand.mirror.report()[0].failed_writes, 1);
}

#[test]
fn after_a_write_that_all_members_refused_every_reader_finds_the_same() {
    let stand = Stand::new(2, 1 << 20);
    let (old, new) = (pattern(7, BLOCK), pattern(8, BLOCK));
    stand.write(0, &old).expect("is written");
    stand.members[0]
        .plan(|request, _| if is_read(request) { Act::Pass } else { Act::Fail(ErrorKind::Medium) });
    stand.members[1]
        .plan(|request, _| if is_read(request) { Act::Pass } else { Act::FailAfter(ErrorKind::Medium) });
    assert!(stand.write(0, &new).is_err());
    let first = stand.read(0, BLOCK).expect("is read");
    for _ in 0..4 {
        assert_eq!(stand.read(0, BLOCK).expect("is read"), first);
    }
    for member in &stand.members {
        member.plan(|_, _| Act::Pass);
    }
    stand.rebuild();
    assert_eq!(stand.compare().differing_blocks, 0);
    assert_eq!(stand.read(0, BLOCK).expect("is read"), first);
}

#[test]
fn a_member_whose_flush_fails_counts_as_having_nothing() {
    let stand = Stand::new(2, 1 << 20);
    stand.write(0, &pattern(9, BLOCK)).expect("is written");
    stand.members[0].plan(|request, _| {
        if request.operation == Operation::Flush { Act::Fail(ErrorKind::Medium) } else { Act::Pass }
    });
    stand.submit(Request::flush(Context::default())).result.expect("the other has it");
    assert_eq!(stand.mirror.states()[0], MemberState::Behind { missed_bytes: 1 << 20 });
    // The one that is left may not fail as well.
    stand.members[1].plan(|request, _| {
        if request.operation == Operation::Flush { Act::Fail(ErrorKind::Medium) } else { Act::Pass }
    });
    assert!(stand.submit(Request::flush(Context::default())).result.is_err());
    assert_eq!(stand.mirror.states()[1], MemberState::Current);
}

#[test]
fn copies_that_differ_are_told_of_and_left_alone_and_a_resync_makes_them_equal() {
    let stand = Stand::new(3, 1 << 20);
    let data = pattern(10, 32 * BLOCK);
    stand.write(0, &data).expect("is written");
    // Each loses another write.
    for member in [1, 2] {
        stand.members[member].plan(move |request, _| {
            if touches(request, member as u64 * 4096..(member as u64 + 1) * 4096) {
                Act::Lose
            } else {
                Act::Pass
            }
        });
    }
    stand.write(4096, &pattern(11, 2 * BLOCK)).expect("they say so");
    stand.members.iter().for_each(|member| member.plan(|_, _| Act::Pass));
    let report = stand.compare();
    assert_eq!(report.compared_bytes, 1 << 20);
    // One write of two blocks was lost as a whole.
    assert_eq!(report.differing_blocks, 2);
    assert_eq!(report.differences[0], Difference { range: 4096..8192, members: vec![1, 2] });
    assert_eq!(stand.compare(), report, "nothing was changed");
    stand.mirror.resync(&[0..16_384]);
    assert_eq!(stand.read(4096, 2 * BLOCK).expect("is read"), pattern(11, 2 * BLOCK));
    stand.rebuild();
    assert_eq!(stand.compare().differing_blocks, 0);
}

#[test]
fn comparing_writes_again_what_a_copy_cannot_read() {
    let stand = Stand::new(2, 1 << 20);
    let data = pattern(12, 16 * BLOCK);
    stand.write(0, &data).expect("is written");
    stand.members[1].plan(|request, _| {
        if is_read(request) && touches(request, 4096..8192) {
            Act::Fail(ErrorKind::Medium)
        } else {
            Act::Pass
        }
    });
    let report = stand.compare();
    assert_eq!((report.repaired_bytes, report.unreadable_bytes, report.differing_blocks), (4096, 0, 0));
    assert_eq!(stand.mirror.report()[1].repaired_bytes, 4096);
}
