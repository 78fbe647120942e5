use super::*;

const PATIENCE: Duration = Duration::from_millis(500);

#[test]
fn a_read_that_hangs_is_answered_by_another_and_who_hangs_is_soon_asked_last() {
    let stand = Stand::new(2, 1 << 20);
    let data = pattern(1, BLOCK);
    stand.write(0, &data).expect("is written");
    stand.members[0].plan(|_, _| Act::Hang);
    let mut waited = 0;
    for _ in 0..20 {
        let before = stand.runtime.now();
        assert_eq!(stand.read(0, BLOCK).expect("is read"), data);
        waited += u32::from(stand.runtime.now().since(before) >= PATIENCE);
    }
    assert_eq!(waited, 1, "requests that hang count as under way, so it has never another");
    let report = stand.mirror.report();
    assert_eq!((report[0].late, &report[0].state), (1, &MemberState::Current));
}

#[test]
fn who_is_slow_is_asked_last_and_after_a_while_again() {
    let stand = Stand::new(2, 1 << 20);
    stand.members[0].plan(|_, _| Act::Delay(Duration::from_millis(900)));
    let mut late = Vec::new();
    for _ in 0..200 {
        stand.read(0, BLOCK).expect("is read");
        stand.drive(stand.runtime.sleep(Duration::from_millis(20)));
        late.push(stand.mirror.report()[0].late);
    }
    assert!(stand.events.lock().contains(&MirrorEvent::Slow { member: 0 }));
    // Four seconds, of which one, then two it was left alone.
    assert_eq!(late.last(), Some(&5), "{late:?}");
    stand.members[0].plan(|_, _| Act::Pass);
    stand.drive(stand.runtime.sleep(Duration::from_secs(10)));
    let before = stand.members[0].requests();
    for _ in 0..10 {
        stand.read(0, BLOCK).expect("is read");
    }
    assert_eq!(stand.members[0].requests() - before, 5);
}

#[test]
fn with_nobody_else_to_ask_a_read_waits_as_long_as_it_takes() {
    let stand = Stand::new(2, 1 << 20);
    stand.write(0, &pattern(2, BLOCK)).expect("is written");
    stand.mirror.fail(1, "pulled").expect("there is another");
    stand.members[0].plan(|_, _| Act::Delay(Duration::from_secs(30)));
    assert_eq!(stand.read(0, BLOCK).expect("is read"), pattern(2, BLOCK));
    stand.write(0, &pattern(3, BLOCK)).expect("is written");
    assert_eq!(stand.runtime.now().0, 60_000_000_000);
}

#[test]
fn if_both_are_late_the_first_that_answers_counts() {
    let stand = Stand::new(2, 1 << 20);
    stand.write(0, &pattern(2, BLOCK)).expect("is written");
    stand.members[0].plan(|_, _| Act::Delay(Duration::from_secs(3)));
    stand.members[1].plan(|_, _| Act::Delay(Duration::from_secs(2)));
    assert_eq!(stand.read(0, BLOCK).expect("is read"), pattern(2, BLOCK));
    let seconds = stand.runtime.now().0 / 100_000_000;
    assert!([20, 25].contains(&seconds), "{seconds} tenths");
    // One that fails leaves the other the time that it needs.
    stand.members[0].plan(|_, _| Act::Fail(ErrorKind::Medium));
    assert_eq!(stand.read(0, BLOCK).expect("is read"), pattern(2, BLOCK));
}

#[test]
fn a_write_that_hangs_on_one_member_is_missed_there_and_who_goes_on_so_is_taken_out() {
    let stand = Stand::new(2, 1 << 20);
    stand.members[1].plan(|_, _| Act::Hang);
    for number in 0..8u64 {
        assert!(!matches!(stand.mirror.states()[1], MemberState::Failed { .. }), "{number}");
        stand.write(number * 65_536, &pattern(number, BLOCK)).expect("the other takes it");
    }
    let MemberState::Failed { why } = &stand.mirror.states()[1] else { panic!("it is still there") };
    assert_eq!(why, "it does not answer any more");
    assert_eq!(stand.runtime.now().0, 8 * 500_000_000);
    assert_eq!(stand.mirror.missed(1), [0..8 * 65_536]);
}

#[test]
fn a_write_that_arrives_late_undoes_nothing() {
    let stand = Stand::new(2, 1 << 20);
    stand.members[1]
        .plan(|_, number| if number == 0 { Act::Delay(Duration::from_secs(5)) } else { Act::Pass });
    stand.write(0, &pattern(1, BLOCK)).expect("the other takes it");
    stand.write(0, &pattern(2, BLOCK)).expect("both take it");
    // The first one is still on its way to the second member. Nothing makes that current before it is through.
    let report = stand.rebuild();
    assert_eq!(report.left, [rebuild::Left { member: 1, range: 0..65_536 }]);
    assert!(stand.runtime.now().0 < 5_000_000_000);
    let copies = QueueState::open(&stand.mirror.state, &stand.runtime).expect("opens");
    MirrorQueue(copies).set_current(1, 0, 1 << 20);
    assert!(!stand.mirror.missed(1).is_empty());
    stand.drive(stand.runtime.sleep(Duration::from_secs(5)));
    assert_eq!(stand.on_member(1, 0, BLOCK), pattern(1, BLOCK), "it has undone the second there");
    assert_eq!(stand.read(0, BLOCK).expect("is read"), pattern(2, BLOCK));
    assert_eq!(stand.rebuild().left, []);
    assert_eq!(stand.on_member(1, 0, BLOCK), pattern(2, BLOCK));
}

#[test]
fn a_flush_that_one_member_does_not_answer_succeeds_with_the_other() {
    let stand = Stand::new(2, 1 << 20);
    stand.members[0].plan(|_, _| Act::Hang);
    stand.submit(Request::flush(Context::default())).result.expect("the other has everything");
    assert_eq!(stand.runtime.now().0, 10_000_000_000);
    assert_eq!(stand.mirror.states()[0], MemberState::Behind { missed_bytes: 1 << 20 });
}
