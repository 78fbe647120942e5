//! Volumes that grow, and keep another number of copies; also when the power goes in the middle.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::member::VersionsPolicy;
use crate::testing::read;

impl Stand {
    /// The device number `number` gets larger; what it holds stays where it is.
    fn enlarge(&mut self, number: usize, mebibytes: u64) {
        let larger = MemoryDevice::new(mebibytes << 20, 512).expect("fits");
        let (from, to) = (self.devices[number].open_queue(&self.runtime), larger.open_queue(&self.runtime));
        let (from, to) = (from.expect("opens"), to.expect("opens"));
        for at in (0..self.devices[number].info().size).step_by(1 << 20) {
            let read = self.drive(from.submit(Request::read(at, Buffer::stale(1 << 20), Context::default())));
            read.result.expect("is read");
            let write = Request::write(at, read.buffer, Context::default());
            self.drive(to.submit(write)).result.expect("is written");
        }
        self.devices[number] = Faulty::over(larger);
    }

    fn grow(&self, old: &[usize], new: &[usize]) -> Result<Grown> {
        let of = |numbers: &[usize]| numbers.iter().map(|&number| self.candidate(number)).collect::<Vec<_>>();
        self.drive(grow(&of(old), &of(new), 4711, &self.runtime))
    }

    /// From now on so many changes reach the devices, then none any more.
    pub(super) fn cut_after(&self, changes: u64) -> Arc<AtomicU64> {
        let made = Arc::new(AtomicU64::new(0));
        for device in &self.devices {
            let made = Arc::clone(&made);
            device.plan(move |request, _| {
                if request.operation.is_mutation() && made.fetch_add(1, Ordering::SeqCst) >= changes {
                    Act::Fail(ErrorKind::Gone)
                } else {
                    Act::Pass
                }
            });
        }
        made
    }

    pub(super) fn power_on(&self) {
        self.devices.iter().for_each(|device| device.plan(|_, _| Act::Pass));
    }
}

#[test]
fn a_volume_grows_with_its_members_and_by_further_mirrors() {
    for options in [PLAIN, VolumeOptions::default(), VolumeOptions { ways: 1, ..VolumeOptions::default() }] {
        let ways = usize::from(options.ways);
        let mut stand = Stand::new(4, 12);
        let (old, new): (Vec<usize>, Vec<usize>) = ((0..ways).collect(), (2..2 + ways).collect());
        stand.plug(&old);
        stand.create(options);
        let volume = stand.open();
        let first = volume.info().size;
        stand.write(&volume, first - 65_536, &pattern(1, 65_536));
        stand.close(volume);
        let error = stand.grow(&old, &[]).expect_err("nothing to grow by");
        assert!(error.to_string().contains("make all members"), "{error}");
        for &number in &old {
            stand.enlarge(number, 24);
        }
        let grown = stand.grow(&old, &new).expect("grows");
        assert_eq!(grown.before_bytes, first);
        assert!(grown.after_bytes > first + (20 << 20), "{grown:?}");
        let all: Vec<usize> = new.iter().chain(&old).copied().collect();
        stand.plug(&all);
        let volume = stand.open();
        assert_eq!(volume.info().size, grown.after_bytes);
        assert_eq!(volume.status().segments().len(), 3);
        // Over both seams.
        let second = volume.info().size - (10 << 20);
        stand.write(&volume, first - 4096, &pattern(2, 1 << 20));
        stand.write(&volume, second - (1 << 20), &pattern(3, 4 << 20));
        stand.close(volume);
        let volume = stand.open();
        assert_eq!(stand.read(&volume, first - 65_536, 61_440).expect("is read"), pattern(1, 61_440));
        assert_eq!(stand.read(&volume, first - 4096, 1 << 20).expect("is read"), pattern(2, 1 << 20));
        assert_eq!(stand.read(&volume, second - (1 << 20), 4 << 20).expect("is read"), pattern(3, 4 << 20));
        let scrub =
            stand.drive(volume.scrub(&stand.runtime, Pace::default(), |_, _| {})).expect("goes through");
        assert_eq!(scrub, Upkeep::default());
        stand.close(volume);
        // The devices that it grew by are needed from now on.
        stand.plug(&old);
        assert_eq!(stand.try_open().map(|_| ()).expect_err("half of it").kind(), ErrorKind::Missing);
    }
}

#[test]
fn a_member_of_a_volume_that_has_grown_is_replaced_as_a_whole() {
    let mut stand = Stand::new(5, 12);
    stand.plug(&[0, 1]);
    stand.create(VolumeOptions::default());
    stand.enlarge(0, 24);
    stand.enlarge(1, 24);
    stand.enlarge(4, 24);
    let size = stand.grow(&[0, 1], &[2, 3]).expect("grows").after_bytes;
    stand.plug(&[0, 1, 2, 3]);
    let volume = stand.open();
    for at in [0, 9 << 20, size / 2, size - 65_536] {
        stand.write(&volume, at, &pattern(at, 65_536));
    }
    stand.drive(volume.replace(0, &stand.candidate(4), 8, &stand.runtime)).expect("takes its place");
    let small = stand.drive(volume.replace(1, &stand.candidate(2), 8, &stand.runtime));
    assert!(small.expect_err("is too small").to_string().contains("too small"));
    let upkeep = stand.rebuild(&volume);
    assert!(upkeep.left_bytes == 0 && is_current(&volume), "{upkeep:?} {:?}", volume.status());
    stand.close(volume);
    stand.plug(&[4, 3]);
    let volume = stand.open_degraded();
    for at in [0, 9 << 20, size / 2, size - 65_536] {
        assert_eq!(stand.read(&volume, at, 65_536).expect("is read"), pattern(at, 65_536), "{at}");
    }
}

#[test]
fn copies_are_added_and_taken_away() {
    for checksum in [None, Some(ChecksumKind::Crc32c)] {
        let stand = Stand::new(6, 12);
        stand.plug(&[0, 1]);
        stand.create(VolumeOptions { ways: 1, checksum, ..PLAIN });
        let of =
            |numbers: &[usize]| numbers.iter().map(|&number| stand.candidate(number)).collect::<Vec<_>>();
        let volume = stand.open();
        stand.write(&volume, 1 << 20, &pattern(1, 1 << 20));
        stand.close(volume);
        // From one copy to two, to three.
        for (old, new) in [(&[0, 1][..], &[2, 3][..]), (&[0, 1, 2, 3], &[4, 5])] {
            let few = stand.drive(add_copy(&of(old), &of(&new[..1]), 1, &stand.runtime));
            assert!(few.expect_err("one is missing").to_string().contains("one for each of the 2"));
            stand.drive(add_copy(&of(old), &of(new), new[0] as u128, &stand.runtime)).expect("is added");
            stand.plug(&[old, new].concat());
            let volume = stand.open();
            assert!(!is_current(&volume));
            assert_eq!(stand.rebuild(&volume).left_bytes, 0);
            assert!(is_current(&volume));
            stand.close(volume);
        }
        let volume = stand.open();
        let names: Vec<_> = volume.status().members.into_iter().filter_map(|member| member.name).collect();
        assert_eq!(names, ["disk0", "disk2", "disk4", "disk1", "disk3", "disk5"]);
        stand.close(volume);
        // Those that were there from the beginning go.
        let all = of(&[0, 1, 2, 3, 4, 5]);
        let odd = stand.drive(remove_copy(&all, &[0, 1], &stand.runtime));
        assert!(odd.expect_err("of one mirror").to_string().contains("one of each mirror"));
        stand.drive(remove_copy(&all, &[0, 3], &stand.runtime)).expect("is taken away");
        stand.plug(&[2, 3, 4, 5]);
        assert!(is_current(&stand.open()));
        let gone = stand.drive(read_record(&stand.candidate(0), &stand.runtime)).expect("is read");
        assert!(gone.is_none(), "it is no member of anything");
        stand.drive(remove_copy(&of(&[2, 3, 4, 5]), &[0, 2], &stand.runtime)).expect("is taken away");
        stand.plug(&[4, 5]);
        let volume = stand.open();
        assert_eq!(stand.read(&volume, 1 << 20, 1 << 20).expect("is read"), pattern(1, 1 << 20));
        stand.close(volume);
        let last = stand.drive(remove_copy(&of(&[4, 5]), &[0], &stand.runtime));
        assert!(last.expect_err("one copy").to_string().contains("keeps one copy"));
    }
}

#[test]
fn a_volume_with_versions_grows_again_and_again_and_keeps_them() {
    for checksum in [None, Some(ChecksumKind::Crc32c)] {
        let mut stand = Stand::new(4, 24);
        stand.plug(&[0, 1]);
        stand.create(VolumeOptions { checksum, versions: Some(VersionsPolicy::default()), ..PLAIN });
        let volume = stand.open();
        let first = volume.info().size;
        stand.write(&volume, 0, &pattern(1, 1 << 20));
        let one = stand_capture(&stand, &volume, "one");
        stand.write(&volume, 65_536, &pattern(2, 1 << 20));
        let two = stand_capture(&stand, &volume, "two");
        stand.write(&volume, first - 65_536, &pattern(3, 65_536));
        stand.close(volume);
        let mut size = first;
        for (step, new) in [(1, &[][..]), (2, &[2, 3][..])] {
            if new.is_empty() {
                stand.enlarge(0, 48);
                stand.enlarge(1, 48);
            }
            let grown = stand.grow(&[0, 1], new).expect("grows");
            assert_eq!(grown.before_bytes, size);
            assert!(grown.after_bytes > size + (8 << 20), "{grown:?}");
            size = grown.after_bytes;
            stand.plug(&[&[0, 1], new].concat());
            let found = stand.drive(inspect(stand.candidates(), &stand.runtime)).expect("is read");
            assert_eq!(found.status.size_bytes, size, "as it is opened");
            let volume = stand.open();
            assert_eq!(volume.info().size, size);
            assert_eq!(stand.read(&volume, 0, 65_536).expect("is read"), pattern(1, 65_536));
            assert_eq!(stand.read(&volume, 65_536, 1 << 20).expect("is read"), pattern(2, 1 << 20));
            assert_eq!(stand.read(&volume, first - 65_536, 65_536).expect("is read"), pattern(3, 65_536));
            let old = volume.view(one).expect("is there");
            assert_eq!(read(&*old, &stand.runtime, 0, 1 << 20).expect("is read"), pattern(1, 1 << 20));
            let old = volume.view(two).expect("is there");
            assert_eq!(read(&*old, &stand.runtime, 65_536, 1 << 20).expect("is read"), pattern(2, 1 << 20));
            assert_eq!(
                read(&*old, &stand.runtime, first - 65_536, 65_536).expect("is read"),
                vec![0; 65_536]
            );
            // What is new is used, and the map with it.
            stand.write(&volume, size - (4 << 20), &pattern(10 + step, 4 << 20));
            let undo = stand.drive(volume.roll_back(&stand.runtime, one, 1)).expect("goes back");
            assert_eq!(
                stand.read(&volume, 65_536, 65_536).expect("is read"),
                pattern(1, 1 << 20)[65_536..131_072]
            );
            stand.drive(volume.roll_back(&stand.runtime, undo, 1)).expect("and forth");
            assert_eq!(
                stand.read(&volume, size - (4 << 20), 4 << 20).expect("is read"),
                pattern(10 + step, 4 << 20)
            );
            let third = stand_capture(&stand, &volume, "three");
            assert!(third > two);
            let scrub = stand.drive(volume.scrub(&stand.runtime, Pace::default(), |_, _| {}));
            assert_eq!(scrub.expect("goes through"), Upkeep::default());
            stand.close(volume);
        }
    }
}

fn stand_capture(stand: &Stand, volume: &Volume, name: &str) -> u64 {
    stand.drive(volume.capture(&stand.runtime, name, 1)).expect("is captured")
}

#[test]
fn whenever_the_power_goes_while_it_grows_it_is_as_before_or_as_wanted() {
    let versioned = VolumeOptions { versions: Some(VersionsPolicy::default()), ..VolumeOptions::default() };
    grows_in_one_step(VolumeOptions::default(), 12, 1);
    grows_in_one_step(versioned, 24, 5);
    grows_in_one_step(VolumeOptions { checksum: None, ..versioned }, 24, 5);
}

/// Every `stride` changes the power goes, of members of so many MiB, and twice as many then.
fn grows_in_one_step(options: VolumeOptions, mebibytes: u64, stride: usize) {
    let (mut before, mut after) = (0_usize, 0);
    for changes in (0..).step_by(stride) {
        let mut stand = Stand::new(4, mebibytes);
        stand.plug(&[0, 1]);
        stand.create(options);
        let volume = stand.open();
        let small = volume.info().size;
        stand.write(&volume, 65_536, &pattern(1, 65_536));
        if options.versions.is_some() {
            stand_capture(&stand, &volume, "kept");
        }
        stand.close(volume);
        stand.enlarge(0, 2 * mebibytes);
        stand.enlarge(1, 2 * mebibytes);
        let made = stand.cut_after(changes);
        let grown = stand.grow(&[0, 1], &[2, 3]);
        let is_whole = made.load(Ordering::SeqCst) <= changes;
        stand.power_on();
        // Whoever has only what it was made of must have it, unless it has grown.
        let volume = match stand.try_open() {
            Ok(volume) => volume,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Missing, "{changes}: {error}");
                stand.plug(&[0, 1, 2, 3]);
                stand.open()
            }
        };
        match volume.info().size == small {
            true => before += 1,
            false => after += 1,
        }
        assert_eq!(stand.read(&volume, 65_536, 65_536).expect("is read"), pattern(1, 65_536), "{changes}");
        if options.versions.is_some() {
            let kept = volume.view(1).expect("is there");
            assert_eq!(
                read(&*kept, &stand.runtime, 65_536, 65_536).expect("is read"),
                pattern(1, 65_536),
                "{changes}"
            );
        }
        let size = volume.info().size;
        stand.write(&volume, size - 65_536, &pattern(2, 65_536));
        stand.close(volume);
        // What was given up can be done again.
        if size == small {
            stand.plug(&[0, 1]);
            let volume = stand.open();
            // Without checksums copies that may differ are made equal first.
            stand.rebuild(&volume);
            stand.close(volume);
            stand.grow(&[0, 1], &[2, 3]).expect("grows now");
            stand.plug(&[0, 1, 2, 3]);
            let volume = stand.open();
            assert_eq!(stand.read(&volume, 65_536, 65_536).expect("is read"), pattern(1, 65_536));
            assert_eq!(stand.read(&volume, small - 65_536, 65_536).expect("is read"), pattern(2, 65_536));
        }
        if is_whole {
            grown.expect("nothing was cut");
            break;
        }
    }
    assert!(before * stride > 20 && after > 0, "{before} as before, {after} as wanted");
}

/// The member that is to stay goes at its nth request, for good or until it is wanted. What was said to be done is then true, and what was
/// not leaves the other one as it was.
#[test]
fn a_copy_is_not_let_go_when_the_one_that_is_to_stay_goes_meanwhile() {
    let (mut refused, mut nth) = (0, 0);
    loop {
        let stand = Stand::new(2, 12);
        stand.create(VolumeOptions::default());
        let volume = stand.open();
        stand.write(&volume, 0, &pattern(1, 65_536));
        stand.close(volume);
        let end = stand.devices[0].requests() as u64 + nth;
        let act = move |number| if number >= end { Act::Fail(ErrorKind::Gone) } else { Act::Pass };
        stand.devices[0].plan(move |_, number| act(number));
        let done = stand.drive(remove_copy(&stand.candidates(), &[1], &stand.runtime));
        let is_over = stand.devices[0].requests() as u64 <= end;
        if done.is_ok() {
            stand.power_on();
        } else {
            refused += 1;
        }
        stand.plug(&[usize::from(done.is_err())]);
        let options = OPTIONS.degraded();
        let volume = stand.drive(Volume::open(stand.candidates(), options, &stand.runtime));
        let volume = volume.unwrap_or_else(|error| panic!("at {nth}, {done:?}: {error}"));
        let is = stand.read(&volume, 0, 65_536).expect("is read");
        assert!(is == pattern(1, 65_536), "at {nth}, {done:?}");
        if is_over {
            break;
        }
        nth += 2;
    }
    assert!(refused > 10, "{refused} of {nth}");
}
