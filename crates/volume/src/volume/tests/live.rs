//! Volumes that change their shape under a load: nobody notices but by the time it takes, and a failure in the middle leaves a volume
//! that opens.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::*;
use crate::live::LiveVolume;
use crate::member::VersionsPolicy;

/// Blocks that a load uses.
const BLOCKS: u64 = 512;
const WORKERS: u64 = 6;

/// What each block holds, by the seed of its content; nothing for one that was never written.
type Model = Rc<RefCell<Vec<Option<u64>>>>;

fn block(number: u64, seed: u64) -> Vec<u8> {
    pattern(number << 32 | seed, 4096)
}

/// Writes blocks, each worker its own, until it is stopped; reads some, which must be as the model says.
struct Load {
    model: Model,
    stops: Rc<Cell<bool>>,
    done: Rc<Cell<u64>>,
}

impl Load {
    fn new() -> Self {
        let model = Rc::new(RefCell::new(vec![None; BLOCKS as usize]));
        Self { model, stops: Rc::default(), done: Rc::default() }
    }

    /// Runs while `meanwhile` does.
    async fn during<T>(
        &self,
        device: &Arc<dyn Device>,
        runtime: &Runtime,
        seed: u64,
        meanwhile: impl Future<Output = T>,
    ) -> T {
        self.stops.set(false);
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let queue = device.open_queue(runtime).expect("opens");
                let (model, stops, done) =
                    (Rc::clone(&self.model), Rc::clone(&self.stops), Rc::clone(&self.done));
                runtime.spawn(async move {
                    let mut step = 0;
                    while !stops.get() {
                        step += 1;
                        let draw = mix(seed, worker, step);
                        let number = draw % (BLOCKS / WORKERS) * WORKERS + worker;
                        let context = Context::default();
                        match draw >> 32 & 3 {
                            0 => {
                                let read = Request::read(number * 4096, Buffer::stale(4096), context);
                                let read = queue.submit(read).await;
                                read.result.expect("is read");
                                let expected = model.borrow()[number as usize]
                                    .map_or_else(|| vec![0; 4096], |seed| block(number, seed));
                                assert!(read.buffer[..] == expected[..], "block {number} during the load");
                            }
                            1 if draw >> 40 & 7 == 0 => {
                                queue.submit(Request::flush(context)).await.result.expect("is flushed");
                            }
                            _ => {
                                let content = Buffer::copy_of(&block(number, step));
                                let write = Request::write(number * 4096, content, context);
                                queue.submit(write).await.result.expect("is written");
                                model.borrow_mut()[number as usize] = Some(step);
                            }
                        }
                        done.set(done.get() + 1);
                    }
                })
            })
            .collect();
        let result = meanwhile.await;
        self.stops.set(true);
        for worker in workers {
            worker.await;
        }
        result
    }

    /// Every block is as the model says.
    async fn check(&self, device: &dyn Device, runtime: &Runtime, when: &str) {
        let queue = device.open_queue(runtime).expect("opens");
        for number in 0..BLOCKS {
            let read = Request::read(number * 4096, Buffer::stale(4096), Context::default());
            let read = queue.submit(read).await;
            read.result.unwrap_or_else(|error| panic!("block {number} {when}: {error}"));
            let expected = self.model.borrow()[number as usize]
                .map_or_else(|| vec![0; 4096], |seed| block(number, seed));
            assert!(read.buffer[..] == expected[..], "block {number} {when}");
        }
    }
}

const VERSIONED: VolumeOptions = VolumeOptions {
    ways: 2,
    chunk_bytes: 65_536,
    checksum: Some(ChecksumKind::Crc32c),
    versions: Some(VersionsPolicy { reserve_percent: 20, every_ms: 5, keep: 2 }),
};

impl Stand {
    fn live(&self) -> Arc<LiveVolume> {
        LiveVolume::new(self.open(), OPTIONS)
    }

    fn of(&self, numbers: &[usize]) -> Vec<Candidate> {
        numbers.iter().map(|&number| self.candidate(number)).collect()
    }

    fn slow_down(&self) {
        for device in &self.devices {
            device.plan(|_, number| Act::Delay(Duration::from_micros(20 + mix(1, 2, number) % 60)));
        }
    }
}

#[test]
fn it_is_a_device_like_the_volume_below() {
    for on in [On::Simulated, On::Uring] {
        let make = || -> Result<Arc<dyn Device>> {
            let stand = Stand::new(2, 8);
            stand.create(VolumeOptions::default());
            Ok(stand.live().present())
        };
        if let Err(breach) = check(on, &make) {
            panic!("{on:?}: {breach}");
        }
    }
}

#[test]
fn a_load_goes_on_while_the_volume_gets_larger_and_other_copies() {
    for options in [PLAIN, VolumeOptions::default(), VERSIONED] {
        let stand = Stand::new(6, 16);
        stand.plug(&[0, 1]);
        stand.create(options);
        let live = stand.live();
        let (present, runtime, load) = (live.present(), &stand.runtime, Load::new());
        stand.slow_down();
        let pause = || runtime.sleep(Duration::from_millis(20));
        let before = present.info().size;
        stand.drive(load.during(&present, runtime, 7, async {
            pause().await;
            live.add_copy(&stand.of(&[2]), 1, runtime).await.expect("keeps a copy more");
            pause().await;
            assert!(live.volume().is_to_rebuild());
            live.volume().rebuild(runtime, Pace::default(), |_, _| {}).await.expect("is filled");
            pause().await;
            let grown = live.grow(&stand.of(&[3, 4, 5]), 2, runtime).await.expect("grows");
            assert_eq!(grown.before_bytes, before);
            pause().await;
            live.remove_copy(&[0, 4], runtime).await.expect("keeps a copy fewer");
            pause().await;
        }));
        assert!(load.done.get() > 1000, "{options:?}: {} requests", load.done.get());
        assert_eq!((live.volume().status().members.len(), live.failure()), (4, None), "{options:?}");
        assert!(present.info().size > before, "{options:?}");
        // What is new is there, through a queue that is opened now.
        let last = present.info().size - 4096;
        crate::testing::write(&*present, runtime, last, &[9; 4096]).expect("is written");
        if options.versions.is_some() {
            assert!(!live.volume().versions().expect("keeps some").names().is_empty(), "none captured");
        }
        stand.drive(load.check(&*present, runtime, "in use"));
        stand.drive(live.close(runtime)).expect("closes");
        drop((live, present));
        stand.plug(&[1, 2, 3, 5]);
        let volume = stand.open();
        stand.drive(load.check(&*volume, runtime, "opened again"));
        assert_eq!(stand.read(&volume, last, 4096).expect("is read"), [9; 4096]);
        let scrub = stand.drive(volume.scrub(runtime, Pace::default(), |_, _| {})).expect("goes through");
        assert_eq!((scrub.left_bytes, scrub.differing_bytes), (0, 0), "{options:?}");
    }
}

#[test]
fn a_change_that_makes_no_sense_is_refused_and_the_volume_goes_on() {
    let stand = Stand::new(4, 12);
    stand.plug(&[0, 1]);
    stand.create(PLAIN);
    let live = stand.live();
    let (present, runtime, load) = (live.present(), &stand.runtime, Load::new());
    stand.slow_down();
    stand.drive(load.during(&present, runtime, 3, async {
        let error = live.grow(&[], 1, runtime).await.expect_err("nothing to grow by");
        assert!(error.to_string().contains("nothing to grow by"), "{error}");
        let error = live.add_copy(&stand.of(&[2, 3]), 1, runtime).await.expect_err("one is enough");
        assert!(error.to_string().contains("give one for each of the 1 mirrors"), "{error}");
        let error = live.remove_copy(&[0, 1], runtime).await.expect_err("that would be all");
        assert!(error.to_string().contains("one of each mirror"), "{error}");
    }));
    // A request that never ends: nothing is changed, and nobody is held for longer than that is found out.
    stand.devices.iter().for_each(|device| device.plan(|_, _| Act::Hang));
    let queue = present.open_queue(runtime).expect("opens");
    let hanging = runtime.spawn(queue.submit(Request::read(0, Buffer::stale(4096), Context::default())));
    let error = stand.drive(async {
        runtime.sleep(Duration::from_millis(1)).await;
        live.grow(&stand.of(&[2, 3]), 1, runtime).await
    });
    assert_eq!(error.expect_err("nothing ends").kind(), ErrorKind::TimedOut);
    stand.devices.iter().for_each(|device| device.plan(|_, _| Act::Pass));
    stand.drive(load.check(&*present, runtime, "after all that"));
    drop(hanging);
}

/// A change of the shape.
type Change = fn(&Stand, &LiveVolume) -> Result<()>;

const CHANGES: [(&str, Change); 3] = [
    ("grow", |stand, live| stand.drive(live.grow(&stand.of(&[2, 3]), 9, &stand.runtime)).map(|_| ())),
    ("add a copy", |stand, live| stand.drive(live.add_copy(&stand.of(&[2]), 9, &stand.runtime))),
    ("remove a copy", |stand, live| stand.drive(live.remove_copy(&[0], &stand.runtime))),
];

/// Has a load written, flushes, and then has each change happen with the devices in `failing` taking no write any more after so
/// many, for every number of them.
fn fail_in_the_middle(options: VolumeOptions, failing: &[usize], step: u64) {
    for (name, change) in CHANGES {
        let mut changes = 0;
        loop {
            let stand = Stand::new(4, 10);
            stand.plug(&[0, 1]);
            stand.create(options);
            let live = stand.live();
            let (present, runtime, load) = (live.present(), &stand.runtime, Load::new());
            stand.slow_down();
            let span = runtime.sleep(Duration::from_millis(10));
            stand.drive(load.during(&present, runtime, 5 + changes, span));
            crate::testing::flush(&*present, runtime);
            let made = stand.cut_after_of(failing, changes);
            let done = change(&stand, &live);
            let is_over = made.load(std::sync::atomic::Ordering::SeqCst) <= changes;
            let what = format!("{name}, no write of {failing:?} after {changes}, {options:?}, {done:?}");
            stand.power_on();
            // Whoever uses it goes on, and finds all: only a volume none of whose members was left cannot.
            match live.failure() {
                None => stand.drive(load.check(&*present, runtime, &format!("in use: {what}"))),
                // The last copy that was to stay has failed.
                Some(_) if name == "remove a copy" && failing == [1] => {}
                Some(why) => assert!(failing.len() > 1, "{why}: {what}"),
            }
            // As after a kill: nothing was closed.
            drop((live, present));
            let gone = |number: usize| {
                let record = stand.drive(read_record(&stand.candidate(number), runtime));
                record.expect("is readable").is_none()
            };
            let there: Vec<usize> = (0..4).filter(|&number| !gone(number)).collect();
            stand.plug(&there);
            let volume = stand.try_open().unwrap_or_else(|error| panic!("{error}: {what}, {there:?}"));
            stand.drive(load.check(&*volume, runtime, &format!("opened again: {what}")));
            let upkeep = stand.rebuild(&volume);
            assert_eq!(upkeep.left_bytes, 0, "{what}");
            stand.close(volume);
            if is_over {
                done.unwrap_or_else(|error| panic!("{error}: {what}"));
                break;
            }
            changes += step;
        }
    }
}

impl Stand {
    /// As [`Stand::cut_after`], of these devices alone.
    fn cut_after_of(&self, failing: &[usize], changes: u64) -> Arc<std::sync::atomic::AtomicU64> {
        let made = self.cut_after(changes);
        for (number, device) in self.devices.iter().enumerate() {
            if !failing.contains(&number) {
                device.plan(|_, _| Act::Pass);
            }
        }
        made
    }
}

#[test]
fn a_change_that_is_cut_anywhere_leaves_a_volume_that_opens_with_all_that_it_held() {
    fail_in_the_middle(PLAIN, &[0, 1, 2, 3], 2);
    fail_in_the_middle(VERSIONED, &[0, 1, 2, 3], 7);
}

#[test]
fn a_member_that_fails_in_the_middle_of_a_change_is_noticed_by_nobody() {
    fail_in_the_middle(PLAIN, &[0], 3);
    fail_in_the_middle(VolumeOptions::default(), &[1], 3);
    fail_in_the_middle(VERSIONED, &[0], 11);
}

#[test]
fn a_volume_is_destroyed_only_if_whoever_is_asked_agrees() {
    let stand = Stand::new(2, 8);
    stand.create(VolumeOptions::default());
    let (live, runtime) = (stand.live(), &stand.runtime);
    let present = live.present();
    crate::testing::write(&*present, runtime, 0, &[1; 4096]).expect("is written");
    let refuse = || Err(rotproof_block::Error::new(ErrorKind::Refused, "somebody uses it"));
    let error = stand.drive(live.destroy(runtime, refuse)).expect_err("is refused");
    assert_eq!(error.to_string(), "somebody uses it");
    assert_eq!(crate::testing::read(&*present, runtime, 0, 4096).expect("is read"), [1; 4096]);
    stand.drive(live.destroy(runtime, || Ok(()))).expect("is ended");
    let queue = present.open_queue(runtime).err().expect("there is nothing to open");
    assert!(queue.to_string().contains("destroyed"), "{queue}");
    let error = stand.try_open().expect_err("there is no volume");
    assert!(error.to_string().contains("no member of a volume"), "{error}");
}

/// A device that was let go and does not know it, since it lost what it was told, would be taken for the volume as it was then.
#[test]
fn what_a_former_member_says_is_not_taken_for_a_volume_whose_members_stop_to_answer_in_the_middle_of_a_change()
 {
    use std::sync::atomic::{AtomicBool, Ordering};
    for copies in [true, false] {
        let stand = Stand::new(2, 8);
        stand.create(PLAIN);
        let live = stand.live();
        let present = live.present();
        let queue = present.open_queue(&stand.runtime).expect("opens");
        let write = |seed: u64| {
            let write = Request::write(0, Buffer::copy_of(&pattern(seed, 4096)), Context::default());
            stand.drive(queue.submit(write)).result.expect("is written");
            stand.drive(queue.submit(Request::flush(Context::default()))).result.expect("is flushed");
        };
        write(1);
        let is_dead = Arc::new(AtomicBool::new(false));
        stand.devices[0]
            .plan(|request, _| if request.operation.is_mutation() { Act::Lose } else { Act::Pass });
        stand.drive(live.remove_copy(&[0], &stand.runtime)).expect("is let go");
        write(2);
        let sees = Arc::clone(&is_dead);
        stand.devices[0].plan(move |request, _| {
            sees.store(true, Ordering::Relaxed);
            if request.operation.is_mutation() { Act::Lose } else { Act::Pass }
        });
        let dies = Arc::clone(&is_dead);
        let gone = Act::Fail(ErrorKind::Gone);
        stand.devices[1].plan(move |_, _| if dies.load(Ordering::Relaxed) { gone } else { Act::Pass });
        let new = stand.of(&[0]);
        let error = match copies {
            true => stand.drive(live.add_copy(&new, 77, &stand.runtime)).expect_err("it cannot be done"),
            false => stand.drive(live.grow(&new, 77, &stand.runtime)).expect_err("it cannot be done"),
        };
        assert!(is_dead.load(Ordering::Relaxed) && live.failure().is_some(), "{error}");
        let read = Request::read(0, Buffer::stale(4096), Context::default());
        let read = stand.drive(queue.submit(read));
        assert!(read.result.is_err(), "{copies}: what it held before is handed out");
    }
}
