use parking_lot::Mutex as Lock;
use rotproof_block::conformance::{On, check};
use rotproof_block::hash::mix;
use rotproof_block::leaf::MemoryDevice;

use rotproof_block::{Buffer, Context, ErrorKind, Operation, Request};

use super::*;
use crate::copies::MemberState;
use crate::faulty::{Act, Faulty};
use crate::mirror::Pace;

mod live;
mod members;
mod reshape;
mod room;
mod versions;

const PLAIN: VolumeOptions = VolumeOptions { ways: 2, chunk_bytes: 65_536, checksum: None, versions: None };
const OPTIONS: OpenOptions =
    OpenOptions { patience: Duration::from_millis(100), epoch_ns: 0, without: Without::Nobody };

/// Devices that outlive the volumes made of them.
struct Stand {
    runtime: Runtime,
    devices: Vec<Arc<Faulty>>,
    plugged: Lock<Vec<usize>>,
}

impl Stand {
    fn new(count: usize, mebibytes: u64) -> Self {
        let device = || Faulty::over(MemoryDevice::new(mebibytes << 20, 512).expect("sizes that fit"));
        Self {
            runtime: Runtime::simulated(1),
            devices: (0..count).map(|_| device()).collect(),
            plugged: Lock::new((0..count).collect()),
        }
    }

    fn candidate(&self, number: usize) -> Candidate {
        Candidate { name: format!("disk{number}"), device: Arc::clone(&self.devices[number]) as _ }
    }

    fn candidates(&self) -> Vec<Candidate> {
        self.plugged.lock().iter().map(|&number| self.candidate(number)).collect()
    }

    fn plug(&self, numbers: &[usize]) {
        *self.plugged.lock() = numbers.to_vec();
    }

    fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future).expect("nothing stalls")
    }

    fn create(&self, options: VolumeOptions) {
        self.drive(Volume::create(&self.candidates(), options, 0xabcd << 64 | 7, &self.runtime))
            .expect("is made");
    }

    fn try_open(&self) -> Result<Arc<Volume>> {
        self.drive(Volume::open(self.candidates(), OPTIONS, &self.runtime))
    }

    fn open(&self) -> Arc<Volume> {
        self.try_open().expect("opens")
    }

    /// Opens it though members are missing that had part in what was done last, which is refused otherwise.
    fn open_degraded(&self) -> Arc<Volume> {
        let error = self.try_open().expect_err("the missing ones may know more");
        assert!(
            error.kind() == ErrorKind::Missing && error.to_string().contains("say `degraded`"),
            "{error}"
        );
        self.drive(Volume::open(self.candidates(), OPTIONS.degraded(), &self.runtime)).expect("opens")
    }

    fn write(&self, volume: &Volume, offset: u64, data: &[u8]) {
        let queue = volume.open_queue(&self.runtime).expect("opens");
        let write = Request::write(offset, Buffer::copy_of(data), Context::default());
        self.drive(queue.submit(write)).result.expect("is written");
    }

    fn read(&self, volume: &Volume, offset: u64, length: usize) -> Result<Vec<u8>> {
        let queue = volume.open_queue(&self.runtime).expect("opens");
        let read = Request::read(offset, Buffer::stale(length), Context::default());
        let completion = self.drive(queue.submit(read));
        completion.result.map(|()| completion.buffer.to_vec())
    }

    fn flush(&self, volume: &Volume) {
        self.drive(volume.flush(&self.runtime)).expect("is flushed");
    }

    /// Closes it in order, and gives it up.
    fn close(&self, volume: Arc<Volume>) {
        self.drive(volume.close(&self.runtime)).expect("closes");
        drop(volume);
    }

    fn rebuild(&self, volume: &Volume) -> Upkeep {
        self.drive(volume.rebuild(&self.runtime, Pace::default(), |_, _| {})).expect("goes through")
    }
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| mix(seed, 0, at) as u8).collect()
}

fn is_current(volume: &Volume) -> bool {
    volume.status().members.iter().all(|member| member.state == MemberState::Current)
}

#[test]
fn it_is_a_device_with_one_two_and_four_members_with_and_without_checksums() {
    for (count, options) in
        [(1, VolumeOptions { ways: 1, ..PLAIN }), (2, PLAIN), (4, PLAIN), (2, VolumeOptions::default())]
    {
        for on in [On::Simulated, On::Uring] {
            let make = || -> Result<Arc<dyn Device>> {
                let stand = Stand::new(count, 8);
                stand.create(options);
                Ok(stand.open())
            };
            if let Err(breach) = check(on, &make) {
                panic!("{on:?}, {count} members, {options:?}: {breach}");
            }
        }
    }
}

#[test]
fn what_was_written_is_there_after_it_is_opened_again_in_any_order() {
    for options in [PLAIN, VolumeOptions::default()] {
        let stand = Stand::new(4, 8);
        stand.create(options);
        let volume = stand.open();
        let data = pattern(1, 300_000 / 512 * 512);
        stand.write(&volume, 65_536 - 512, &data);
        let size = volume.info().size;
        stand.close(volume);
        stand.plug(&[2, 0, 3, 1]);
        let volume = stand.open();
        assert_eq!(volume.info().size, size);
        assert!(volume.notes().is_empty(), "{:?}", volume.notes());
        assert_eq!(stand.read(&volume, 65_536 - 512, data.len()).expect("is read"), data);
        let names: Vec<_> = volume.status().members.into_iter().filter_map(|member| member.name).collect();
        assert_eq!(names, ["disk0", "disk1", "disk2", "disk3"]);
    }
}

#[test]
fn a_member_that_was_away_gets_what_it_has_missed_and_no_more() {
    let stand = Stand::new(2, 34);
    stand.create(PLAIN);
    let volume = stand.open();
    stand.write(&volume, 0, &pattern(1, 1 << 20));
    stand.close(volume);
    stand.plug(&[0]);
    let volume = stand.open_degraded();
    assert!(matches!(volume.status().members[1].state, MemberState::Failed { .. }));
    stand.write(&volume, 9 << 20, &pattern(2, 4096));
    // The power goes.
    drop(volume);
    stand.plug(&[0, 1]);
    let volume = stand.open();
    let MemberState::Behind { missed_bytes } = volume.status().members[1].state else {
        panic!("it is behind")
    };
    assert_eq!(missed_bytes, 4 << 20, "a region of four mebibytes");
    for _ in 0..4 {
        assert_eq!(stand.read(&volume, 9 << 20, 4096).expect("is read"), pattern(2, 4096));
    }
    assert_eq!(stand.rebuild(&volume).copied_bytes, 4 << 20);
    assert!(is_current(&volume));
    stand.close(volume);
    // Now it can go on alone.
    stand.plug(&[1]);
    let volume = stand.open_degraded();
    assert_eq!(stand.read(&volume, 9 << 20, 4096).expect("is read"), pattern(2, 4096));
    assert_eq!(stand.read(&volume, 0, 1 << 20).expect("is read"), pattern(1, 1 << 20));
}

#[test]
fn a_stale_member_alone_is_not_taken_for_the_volume() {
    let stand = Stand::new(2, 8);
    stand.create(PLAIN);
    stand.plug(&[0]);
    let volume = stand.open_degraded();
    stand.write(&volume, 0, &pattern(1, 4096));
    drop(volume);
    // Who has gone on without it needs no permission any more.
    drop(stand.open());
    // The other does not know what it has missed, but that it may have missed something. With permission it goes on alone; the two
    // together are told apart.
    stand.plug(&[1]);
    let volume = stand.open_degraded();
    stand.write(&volume, 0, &pattern(2, 4096));
    drop(volume);
    stand.plug(&[0, 1]);
    let error = stand.try_open().expect_err("both have gone on");
    assert!(
        error.kind() == ErrorKind::Refused && error.to_string().contains("gone on without the other"),
        "{error}"
    );
}

#[test]
fn a_former_member_that_lost_what_it_was_told_is_not_taken_for_the_volume() {
    let stand = Stand::new(3, 12);
    stand.plug(&[0, 1]);
    stand.create(VolumeOptions::default());
    let volume = stand.open();
    stand.write(&volume, 0, &pattern(1, 65_536));
    stand.flush(&volume);
    // From here on it says that it writes, and does not.
    let loses = |request: &Request| matches!(request.operation, Operation::Write { .. });
    stand.devices[0].plan(move |request, _| if loses(request) { Act::Lose } else { Act::Pass });
    stand.drive(volume.replace(0, &stand.candidate(2), 5, &stand.runtime)).expect("takes its place");
    assert_eq!(stand.rebuild(&volume).left_bytes, 0);
    stand.write(&volume, 0, &pattern(2, 65_536));
    stand.close(volume);
    stand.devices[0].plan(|_, _| Act::Pass);
    stand.plug(&[0]);
    let record = stand.drive(read_record(&stand.candidate(0), &stand.runtime)).expect("reads");
    assert!(record.is_some_and(|record| record.members.iter().any(|one| Some(one.id) == record.own_id())));
    let volume = stand.open_degraded();
    assert_eq!(stand.read(&volume, 0, 65_536).expect("is read"), pattern(1, 65_536), "an old volume");
    stand.close(volume);
    for _ in 0..20 {
        stand.close(stand.open());
    }
    // It is the newest by now, and still not taken for the volume.
    stand.plug(&[0, 1, 2]);
    let error = stand.try_open().expect_err("both have gone on").to_string();
    assert!(error.contains("gone on without the other"), "{error}");
}

#[test]
fn a_mirror_that_is_whole_tells_that_nobody_went_on_without_it() {
    let stand = Stand::new(4, 12);
    stand.create(VolumeOptions::default());
    let volume = stand.open();
    stand.write(&volume, 0, &pattern(1, 1 << 20));
    stand.close(volume);
    stand.plug(&[0, 1, 3]);
    let volume = stand.open();
    assert_eq!(stand.read(&volume, 0, 1 << 20).expect("is read"), pattern(1, 1 << 20));
    stand.close(volume);
    // One of each could have gone on alone; but of these the second was away before.
    stand.plug(&[1, 3]);
    stand.open();
}

#[test]
fn members_of_another_volume_missing_ones_and_strangers_are_told_apart() {
    let (stand, other) = (Stand::new(4, 8), Stand::new(2, 8));
    stand.create(PLAIN);
    other.drive(Volume::create(&other.candidates(), PLAIN, 99, &other.runtime)).expect("is made");
    let open = |candidates: Vec<Candidate>| {
        stand
            .drive(Volume::open(candidates, OPTIONS, &stand.runtime))
            .map(|_| ())
            .expect_err("is refused")
            .to_string()
    };
    let mut mixed = stand.candidates();
    mixed[3] = Candidate { name: "other".into(), ..other.candidate(0) };
    assert!(open(mixed).contains("other is a member of another volume"));
    let blank = Candidate { name: "blank".into(), device: MemoryDevice::new(8 << 20, 512).expect("fits") };
    // One that says nothing may be one that is missing, but no other.
    assert!(
        open([stand.candidates(), vec![blank.clone()]].concat()).contains("blank is no member of a volume")
    );
    assert!(open(vec![stand.candidate(0), blank]).contains("without one of its members 2, 3"));
    assert!(open(vec![stand.candidate(0), stand.candidate(1)]).contains("without one of its members 2, 3"));
    let again = Candidate { name: "twice".into(), ..stand.candidate(0) };
    assert!(open(vec![stand.candidate(0), again, stand.candidate(2)]).contains("copies of the same member"));
    assert!(open(Vec::new()).contains("no members"));
    stand.drive(forget(&stand.candidate(0), &stand.runtime)).expect("is forgotten");
    let volume = stand.open();
    assert!(volume.notes()[0].contains("disk0 does not say what it is"), "{:?}", volume.notes());
    assert!(matches!(volume.status().members[0].state, MemberState::Failed { .. }));
}

#[test]
fn a_replaced_member_is_filled_and_the_old_one_is_left_alone() {
    for options in [PLAIN, VolumeOptions::default()] {
        let stand = Stand::new(3, 12);
        stand.plug(&[0, 1]);
        stand.create(options);
        let volume = stand.open();
        stand.write(&volume, 4096, &pattern(1, 1 << 20));
        stand.devices[0].plan(|_, _| Act::Fail(ErrorKind::Gone));
        stand.write(&volume, 8192, &pattern(2, 4096));
        let none = stand.drive(volume.replace(7, &stand.candidate(2), 1, &stand.runtime));
        assert_eq!(none.expect_err("no such").kind(), ErrorKind::Invalid);
        stand.drive(volume.replace(0, &stand.candidate(2), 1234, &stand.runtime)).expect("takes its place");
        let upkeep = stand.rebuild(&volume);
        assert_eq!(upkeep.left_bytes, 0);
        assert!(is_current(&volume), "{:?}", volume.status());
        stand.close(volume);
        stand.devices[0].plan(|_, _| Act::Pass);
        stand.plug(&[2, 0]);
        let volume = stand.open_degraded();
        assert!(volume.notes()[0].contains("disk0 was a member once"), "{:?}", volume.notes());
        let mut data = pattern(1, 1 << 20);
        data[4096..8192].copy_from_slice(&pattern(2, 4096));
        assert_eq!(stand.read(&volume, 4096, 1 << 20).expect("is read"), data);
    }
}

#[test]
fn where_writes_were_under_way_copies_are_made_equal() {
    let stand = Stand::new(2, 34);
    stand.create(PLAIN);
    let volume = stand.open();
    stand.write(&volume, 0, &pattern(1, 4096));
    stand.write(&volume, 20 << 20, &pattern(1, 4096));
    stand.flush(&volume);
    // One copy of a write did not arrive before the power went.
    stand.devices[1].plan(|request, _| if request.offset == 21 << 20 { Act::Lose } else { Act::Pass });
    stand.write(&volume, 20 << 20, &pattern(2, 4096));
    drop(volume);
    stand.devices[1].plan(|_, _| Act::Pass);
    let volume = stand.open();
    assert!(volume.notes()[0].contains("under way"), "{:?}", volume.notes());
    let first = stand.read(&volume, 20 << 20, 4096).expect("is read");
    // Again a crash, before it was made equal: still known.
    drop(volume);
    let volume = stand.open();
    for _ in 0..4 {
        assert_eq!(stand.read(&volume, 20 << 20, 4096).expect("is read"), first);
    }
    assert_eq!(stand.rebuild(&volume).copied_bytes, 8 << 20, "two regions");
    let scrub = stand.drive(volume.scrub(&stand.runtime, Pace::default(), |_, _| {})).expect("goes through");
    assert_eq!(scrub, Upkeep::default());
    // After an end in order nothing is in doubt.
    stand.close(volume);
    assert!(stand.open().notes().is_empty());
}

#[test]
fn marks_go_away_once_all_was_flushed() {
    let stand = Stand::new(2, 34);
    stand.create(PLAIN);
    let volume = stand.open();
    stand.write(&volume, 0, &pattern(1, 4096));
    for _ in 0..32 {
        stand.flush(&volume);
    }
    // This one's mark takes the other off the record.
    stand.write(&volume, 16 << 20, &pattern(1, 4096));
    drop(volume);
    let notes = stand.open().notes().to_vec();
    assert!(notes[0].contains("in 1 places"), "{notes:?}");
}

#[test]
fn what_a_member_misses_is_on_record_before_it_is_acknowledged() {
    let stand = Stand::new(2, 8);
    stand.create(PLAIN);
    let volume = stand.open();
    stand.write(&volume, 0, &pattern(1, 4096));
    // From now on it takes no data, and neither of the two any record: so nothing can be acknowledged.
    stand.devices[1].plan(|request, _| {
        if request.operation.is_mutation() { Act::Fail(ErrorKind::Medium) } else { Act::Pass }
    });
    stand.devices[0].plan(|request, _| {
        if request.operation.is_mutation() && request.length == crate::member::COPY_BYTES {
            Act::Fail(ErrorKind::Medium)
        } else {
            Act::Pass
        }
    });
    let queue = volume.open_queue(&stand.runtime).expect("opens");
    let write = || Request::write(0, Buffer::copy_of(&pattern(2, 4096)), Context::default());
    assert!(stand.drive(queue.submit(write())).result.is_err());
    stand.devices[0].plan(|_, _| Act::Pass);
    stand.drive(queue.submit(write())).result.expect("is on record");
    drop(volume);
    stand.devices[1].plan(|_, _| Act::Pass);
    let volume = stand.open();
    assert!(matches!(volume.status().members[1].state, MemberState::Behind { .. }));
    for _ in 0..3 {
        assert_eq!(stand.read(&volume, 0, 4096).expect("is read"), pattern(2, 4096));
    }
}

#[test]
fn every_copy_of_a_record_but_one_may_be_lost() {
    for spared in 0..4 {
        let stand = Stand::new(1, 8);
        stand.create(VolumeOptions { ways: 1, ..PLAIN });
        let queue = stand.devices[0].open_queue(&stand.runtime).expect("opens");
        for (number, place) in crate::member::places(8 << 20).into_iter().flatten().enumerate() {
            if number != spared {
                let noise = Request::write(place, Buffer::copy_of(&pattern(3, 4096)), Context::default());
                stand.drive(queue.submit(noise)).result.expect("is written");
            }
        }
        stand.open();
    }
}
