use std::cell::Cell;

use super::*;

#[test]
fn who_is_gone_is_taken_out_and_the_last_stays_whatever_it_answers() {
    let stand = Stand::new(2, 1 << 20);
    stand.write(0, &pattern(1, BLOCK)).expect("is written");
    stand.members[0].plan(|_, _| Act::Fail(ErrorKind::Gone));
    stand.write(65_536, &pattern(2, BLOCK)).expect("the other takes it");
    assert!(matches!(stand.mirror.states()[0], MemberState::Failed { .. }));
    // What it took was never flushed, so it may have forgotten that too.
    assert_eq!(stand.mirror.missed(0), [0..131_072]);
    let before = stand.members[0].requests();
    stand.write(262_144, &pattern(3, BLOCK)).expect("the other takes it");
    assert_eq!(stand.members[0].requests(), before, "it is not asked any more");
    stand.members[1].plan(|_, _| Act::Fail(ErrorKind::Gone));
    assert_eq!(stand.read(0, BLOCK).expect_err("nobody is left").kind(), ErrorKind::Gone);
    assert_eq!(stand.write(0, &pattern(4, BLOCK)).expect_err("nobody is left").kind(), ErrorKind::Gone);
    assert_eq!(stand.mirror.states()[1], MemberState::Current);
    assert_eq!(stand.mirror.fail(1, "pulled").expect_err("the last").kind(), ErrorKind::Refused);
    stand.members[1].plan(|_, _| Act::Pass);
    assert_eq!(stand.read(262_144, BLOCK).expect("is back"), pattern(3, BLOCK));
}

#[test]
fn who_fails_too_often_is_taken_out() {
    let stand = Stand::new(3, 8 << 20);
    stand.members[2].plan(|_, _| Act::Fail(ErrorKind::Medium));
    for granule in 0..128 {
        stand.read(granule * GRANULE_BYTES, BLOCK).expect("another has it");
    }
    let MemberState::Failed { why } = &stand.mirror.states()[2] else { panic!("it is still there") };
    assert!(why.contains("in a row"), "{why}");
    assert_eq!(stand.members[2].requests(), 32);
}

#[test]
fn nobody_who_alone_has_something_is_taken_out_or_told_to_have_missed_it() {
    let stand = Stand::new(2, 1 << 20);
    stand.members[1].plan(|_, _| Act::Fail(ErrorKind::Medium));
    stand.write(0, &pattern(1, BLOCK)).expect("the other takes it");
    stand.members[1].plan(|_, _| Act::Pass);
    assert_eq!(stand.mirror.fail(0, "pulled").expect_err("has it alone").kind(), ErrorKind::Refused);
    let everything = std::slice::from_ref(&(0..1 << 20));
    let refused = stand.mirror.replace(0, memory(1 << 20), everything).expect_err("has it alone");
    assert_eq!(refused.kind(), ErrorKind::Refused);
    let queue = MirrorQueue(QueueState::open(&stand.mirror.state, &stand.runtime).expect("opens"));
    queue.set_missed(0, 0, BLOCK as u64);
    assert_eq!(stand.mirror.missed(0), []);
    assert!(queue.is_current(0, 0, 65_536) && !queue.is_current(1, 0, 512));
    assert_eq!((queue.choose(0, 512), queue.choose(0, 512)), (0, 0));
    stand.rebuild();
    stand.mirror.fail(0, "pulled").expect("the other has it as well");
    let gone = stand.drive(queue.submit_to(0, Request::read(0, Buffer::stale(512), Context::default())));
    assert_eq!(gone.result.expect_err("is out").kind(), ErrorKind::Gone);
}

#[test]
fn a_device_that_is_put_in_while_all_goes_on_is_rebuilt_and_nothing_is_lost() {
    let stand = Stand::new(2, 4 << 20);
    stand.write(0, &pattern(1, 1 << 20)).expect("is written");
    stand.mirror.fail(0, "pulled").expect("there is another");
    stand.write(4096, &pattern(2, BLOCK)).expect("the other takes it");
    let small = stand.mirror.replace(0, memory(1 << 20), &[]).expect_err("too small");
    assert_eq!(small.kind(), ErrorKind::Invalid);
    let fresh = Faulty::over(memory(8 << 20));
    fresh.plan(|_, _| Act::Delay(Duration::from_micros(300)));
    stand.mirror.replace(0, Arc::clone(&fresh) as _, std::slice::from_ref(&(0..4 << 20))).expect("fits");
    assert_eq!(stand.mirror.states()[0], MemberState::Behind { missed_bytes: 4 << 20 });
    // Writes of another task, all the while.
    let queue = Rc::clone(&stand.queue);
    let writes = Rc::new(Cell::new(0u64));
    let (count, runtime) = (Rc::clone(&writes), stand.runtime.clone());
    let writer = stand.runtime.spawn(async move {
        for number in 0..400u64 {
            let offset = runtime.random(3, number) % 1024 * 4096;
            let write =
                Request::write(offset, Buffer::copy_of(&pattern(100 + number, BLOCK)), Context::default());
            queue.submit(write).await.result.expect("is written");
            count.set(number + 1);
        }
    });
    let mut told = Vec::new();
    let report =
        stand.drive(stand.mirror.rebuild(&stand.runtime, Pace::default(), |progress| told.push(progress)));
    let report = report.expect("opens");
    assert!(writes.get() > 0 && told.len() > 1, "they went on together");
    assert_eq!(told.last(), Some(&Progress { done_bytes: 4 << 20, total_bytes: 4 << 20 }));
    assert_eq!(report, RebuildReport { copied_bytes: 4 << 20, left: Vec::new() });
    stand.drive(writer);
    assert_eq!(stand.mirror.states(), [MemberState::Current, MemberState::Current]);
    assert_eq!(stand.compare(), CompareReport { compared_bytes: 4 << 20, ..CompareReport::default() });
    // The new one alone has everything.
    stand.mirror.fail(1, "pulled").expect("there is another");
    let mut model = vec![0; 4 << 20];
    model[..1 << 20].copy_from_slice(&pattern(1, 1 << 20));
    model[4096..8192].copy_from_slice(&pattern(2, BLOCK));
    for number in 0..400u64 {
        let offset = (stand.runtime.random(3, number) % 1024 * 4096) as usize;
        model[offset..offset + BLOCK].copy_from_slice(&pattern(100 + number, BLOCK));
    }
    assert!(stand.read(0, 4 << 20).expect("is read") == model);
}

#[test]
fn a_rebuild_keeps_its_pace_and_goes_on_where_it_was() {
    let stand = Stand::new(2, 16 << 20);
    stand.mirror.fail(1, "pulled").expect("there is another");
    stand.mirror.replace(1, memory(16 << 20), std::slice::from_ref(&(0..16 << 20))).expect("fits");
    let pace = Pace { bytes_per_second: Some(1 << 20) };
    let seen = Rc::new(Cell::new(0));
    {
        let seen = Rc::clone(&seen);
        let mut rebuild =
            Box::pin(stand.mirror.rebuild(&stand.runtime, pace, move |told| seen.set(told.done_bytes)));
        let mut end = Box::pin(stand.runtime.sleep(Duration::from_millis(7_500)));
        // Given up half way.
        stand.drive(std::future::poll_fn(|context| {
            assert!(rebuild.as_mut().poll(context).is_pending());
            end.as_mut().poll(context)
        }));
    }
    assert_eq!(seen.get(), 8 << 20);
    assert_eq!(stand.mirror.states()[1], MemberState::Behind { missed_bytes: 8 << 20 });
    assert_eq!(stand.rebuild().copied_bytes, 8 << 20);
    assert_eq!(stand.mirror.states()[1], MemberState::Current);
}

#[test]
fn what_nobody_can_read_stays_missed_after_a_rebuild() {
    let stand = Stand::new(2, 1 << 20);
    stand.members[0].plan(|request, _| {
        if is_read(request) && touches(request, 131_072..135_168) {
            Act::Fail(ErrorKind::Medium)
        } else {
            Act::Pass
        }
    });
    stand.mirror.fail(1, "pulled").expect("there is another");
    stand.mirror.replace(1, memory(1 << 20), std::slice::from_ref(&(0..1 << 20))).expect("fits");
    let report = stand.rebuild();
    assert_eq!(report.left, [rebuild::Left { member: 1, range: 131_072..196_608 }]);
    assert_eq!(stand.mirror.missed(1), [131_072..196_608]);
}

#[test]
fn a_member_that_is_not_there_from_the_start_misses_what_is_written() {
    let there = memory(1 << 20);
    let members = vec![Err("not plugged in".to_owned()), Ok(there)];
    let mirror = MirrorDevice::with_failed(&members, MirrorOptions::default()).expect("one is there");
    assert_eq!(mirror.states()[0], MemberState::Failed { why: "not plugged in".to_owned() });
    let runtime = Runtime::simulated(1);
    let queue = mirror.open_queue(&runtime).expect("opens");
    let write = queue.submit(Request::write(65_536, Buffer::zeroed(BLOCK), Context::default()));
    runtime.block_on(write).expect("completes").result.expect("the other takes it");
    assert_eq!(mirror.missed(0), [65_536..131_072]);
    mirror.note_missed(0, &[0..1]);
    assert_eq!(mirror.missed(0), [0..131_072]);
    assert!(mirror.has_missed(0, &(0..1)) && !mirror.has_missed(0, &(131_072..1 << 20)));
    let none: Vec<Result<Arc<dyn Device>, String>> = vec![Err(String::new()), Err(String::new())];
    assert_eq!(
        MirrorDevice::with_failed(&none, MirrorOptions::default()).expect_err("none").kind(),
        ErrorKind::Gone
    );
}

/// Takes note of what it is told, and takes a second for that.
struct Slow {
    told: Mutex<Vec<(usize, Range<u64>)>>,
}

impl MissLog for Slow {
    fn missed(
        &self,
        runtime: &Runtime,
        member: usize,
        range: Range<u64>,
    ) -> Option<std::pin::Pin<Box<dyn Future<Output = Result<()>>>>> {
        let mut told = self.told.lock();
        if told.contains(&(member, range.clone())) {
            return None;
        }
        told.push((member, range));
        let runtime = runtime.clone();
        Some(Box::pin(async move {
            runtime.sleep(Duration::from_secs(1)).await;
            Ok(())
        }))
    }
}

#[test]
fn what_is_missed_is_on_record_before_the_write_is_acknowledged() {
    let stand = Stand::new(2, 1 << 20);
    let log = Arc::new(Slow { told: Mutex::default() });
    stand.mirror.set_miss_log(Arc::clone(&log) as _);
    stand.write(0, &pattern(1, BLOCK)).expect("is written");
    assert_eq!(stand.runtime.now().0, 0);
    stand.members[1].plan(|_, _| Act::Fail(ErrorKind::Medium));
    stand.write(0, &pattern(2, BLOCK)).expect("the other takes it");
    assert_eq!(stand.runtime.now().0, 1_000_000_000);
    stand.write(0, &pattern(2, BLOCK)).expect("the other takes it");
    assert_eq!(stand.runtime.now().0, 1_000_000_000);
    stand.mirror.fail(1, "pulled").expect("there is another");
    stand.write(4096, &pattern(2, BLOCK)).expect("the other takes it");
    assert_eq!(stand.runtime.now().0, 2_000_000_000);
    assert_eq!(*log.told.lock(), [(1, 0..4096), (1, 4096..8192)]);
}
