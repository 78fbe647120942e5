mod healing;
mod members;
mod model;
mod patience;

use std::future::Future;

use parking_lot::Mutex;
use rotproof_block::conformance::{self, On};
use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{Buffer, Completion, Context, Operation, Request};

use super::missed::GRANULE_BYTES;
use super::*;
use crate::faulty::{Act, Faulty};

const BLOCK: usize = 4096;

fn memory(bytes: u64) -> Arc<dyn Device> {
    MemoryDevice::new(bytes, 512).expect("sizes that fit")
}

/// A mirror on virtual time whose members fail as they are told.
struct Stand {
    runtime: Runtime,
    members: Vec<Arc<Faulty>>,
    mirror: Arc<MirrorDevice>,
    queue: Rc<dyn Queue>,
    events: Arc<Mutex<Vec<MirrorEvent>>>,
}

impl Stand {
    fn new(ways: usize, bytes: u64) -> Self {
        let members: Vec<Arc<Faulty>> = (0..ways).map(|_| Faulty::over(memory(bytes))).collect();
        let devices = members.iter().map(|member| Arc::clone(member) as Arc<dyn Device>).collect();
        let mirror = MirrorDevice::new(devices, MirrorOptions::default()).expect("members that fit");
        let events: Arc<Mutex<Vec<MirrorEvent>>> = Arc::default();
        let told = Arc::clone(&events);
        mirror.on_event(Arc::new(move |event| told.lock().push(event.clone())));
        let runtime = Runtime::simulated(1);
        let queue = mirror.open_queue(&runtime).expect("opens");
        Self { runtime, members, mirror, queue, events }
    }

    fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future).expect("nothing stalls")
    }

    fn submit(&self, request: Request) -> Completion {
        self.drive(self.queue.submit(request))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let completion = self.submit(Request::write(offset, Buffer::copy_of(data), Context::default()));
        assert!(completion.buffer[..] == *data, "the buffer comes back as it was");
        completion.result
    }

    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let completion = self.submit(Request::read(offset, Buffer::stale(length), Context::default()));
        assert_eq!(completion.buffer.len(), length, "the buffer comes back");
        completion.result.map(|()| completion.buffer.to_vec())
    }

    /// What a member itself holds.
    fn on_member(&self, member: usize, offset: u64, length: usize) -> Vec<u8> {
        self.members[member].plan(|_, _| Act::Pass);
        let queue = self.members[member].open_queue(&self.runtime).expect("opens");
        let read = Request::read(offset, Buffer::stale(length), Context::default());
        let completion = self.drive(queue.submit(read));
        completion.result.expect("is read");
        completion.buffer.to_vec()
    }

    fn rebuild(&self) -> RebuildReport {
        self.drive(self.mirror.rebuild(&self.runtime, Pace::default(), |_| {})).expect("opens")
    }

    fn compare(&self) -> CompareReport {
        self.drive(self.mirror.compare(&self.runtime, 0, Pace::default(), |_| {})).expect("opens")
    }
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| rotproof_block::hash::mix(seed, 0, at / 8).to_le_bytes()[(at % 8) as usize])
        .collect()
}

fn is_read(request: &Request) -> bool {
    request.operation == Operation::Read
}

fn touches(request: &Request, range: Range<u64>) -> bool {
    request.offset < range.end && range.start < request.end()
}

#[test]
fn it_is_a_device() {
    for on in [On::Simulated, On::Uring] {
        for ways in 2..=WAYS_MAX {
            let make = || -> Result<Arc<dyn Device>> {
                let members = (0..ways).map(|_| memory(2 << 20)).collect();
                Ok(MirrorDevice::new(members, MirrorOptions::default())?)
            };
            if let Err(breach) = conformance::check(on, &make) {
                panic!("{on:?}, {ways} ways: {breach}");
            }
        }
    }
}

#[test]
fn it_is_one_also_while_a_member_is_out_behind_or_fails_whatever_it_is_asked() {
    for on in [On::Simulated, On::Uring] {
        for trouble in 0..4 {
            let make = || -> Result<Arc<dyn Device>> {
                let faulty = Faulty::over(memory(2 << 20));
                let members: Vec<Arc<dyn Device>> = vec![memory(2 << 20), Arc::clone(&faulty) as _];
                let mirror = MirrorDevice::new(members, MirrorOptions::default())?;
                match trouble {
                    0 => mirror.fail(1, "pulled")?,
                    1 => mirror.state.slots[1].missed.mark(0..1 << 20).then_some(()).expect("is new"),
                    2 => faulty.plan(
                        |_, number| if number % 3 == 0 { Act::Fail(ErrorKind::Medium) } else { Act::Pass },
                    ),
                    _ => faulty.plan(|_, _| Act::Delay(Duration::from_micros(20))),
                }
                Ok(mirror)
            };
            if let Err(breach) = conformance::check(on, &make) {
                panic!("{on:?}, trouble {trouble}: {breach}");
            }
        }
    }
}

#[test]
fn contexts_reach_its_members() {
    for on in [On::Simulated, On::Uring] {
        for at in 0..2 {
            let make = |below: Arc<dyn Device>| -> Result<Arc<dyn Device>> {
                let mut members = vec![memory(4 << 20)];
                members.insert(at, below);
                Ok(MirrorDevice::new(members, MirrorOptions::default())?)
            };
            conformance::check_layer(on, &make).expect("contexts are passed on");
        }
    }
}

#[test]
fn reads_are_spread_over_its_members() {
    let stand = Stand::new(3, 1 << 20);
    for block in 0..30 {
        stand.read(block * BLOCK as u64, BLOCK).expect("is read");
    }
    let asked: Vec<usize> = stand.members.iter().map(|member| member.requests()).collect();
    assert_eq!(asked, [10, 10, 10]);
    // With several under way the one with the least has the next.
    stand.members[0].plan(|_, _| Act::Delay(Duration::from_millis(9)));
    stand.members[1].plan(|_, _| Act::Delay(Duration::from_millis(1)));
    stand.members[2].plan(|_, _| Act::Delay(Duration::from_millis(1)));
    let queue = Rc::clone(&stand.queue);
    let reader = |queue: Rc<dyn Queue>| async move {
        for _ in 0..20 {
            let read = Request::read(0, Buffer::stale(BLOCK), Context::default());
            queue.submit(read).await.result.expect("is read");
        }
    };
    let tasks: Vec<_> = (0..3).map(|_| stand.runtime.spawn(reader(Rc::clone(&queue)))).collect();
    stand.drive(async {
        for task in tasks {
            task.await;
        }
    });
    assert!(stand.members[0].requests() < 20, "{} of 90", stand.members[0].requests());
}

#[test]
fn members_that_do_not_fit_are_refused() {
    let new =
        |members: Vec<Arc<dyn Device>>| MirrorDevice::new(members, MirrorOptions::default()).map(|_| ());
    assert_eq!(new(vec![memory(512)]).expect_err("one").kind(), ErrorKind::Invalid);
    assert_eq!(new(vec![memory(512); 4]).expect_err("four").kind(), ErrorKind::Invalid);
    let large: Arc<dyn Device> = MemoryDevice::new(8192, 4096).expect("sizes that fit");
    assert_eq!(new(vec![Arc::clone(&large), memory(512)]).expect_err("no block").kind(), ErrorKind::Invalid);
    let mixed =
        MirrorDevice::new(vec![large, memory(4096 + 512)], MirrorOptions::default()).expect("a block");
    assert_eq!((mixed.info().size, mixed.info().block_size), (4096, 4096));
}
