//! Spares, and what a volume of several segments does.

use super::*;

#[test]
fn a_spare_takes_the_place_of_a_member_that_fails_and_waits_over_restarts() {
    for options in [PLAIN, VolumeOptions::default()] {
        let stand = Stand::new(3, 12);
        stand.plug(&[0, 1]);
        stand.create(options);
        let volume = stand.open();
        stand.write(&volume, 4096, &pattern(1, 1 << 20));
        stand.drive(volume.add_spare(&stand.candidate(2), 77, &stand.runtime)).expect("waits");
        assert_eq!(stand.drive(volume.use_spare(5, &stand.runtime)).expect("none has failed"), None);
        stand.close(volume);
        // Known without being there, and used where it is.
        assert_eq!(stand.open().status().spares, [None]);
        stand.plug(&[2, 0, 1]);
        let volume = stand.open();
        assert_eq!(volume.status().spares, [Some("disk2".to_owned())]);
        stand.devices[1].plan(|_, _| Act::Fail(ErrorKind::Gone));
        stand.write(&volume, 8192, &pattern(2, 4096));
        let used = stand.drive(volume.use_spare(6, &stand.runtime)).expect("takes its place");
        assert_eq!(used, Some((1, "disk2".to_owned())));
        assert_eq!(stand.rebuild(&volume).left_bytes, 0);
        assert!(is_current(&volume) && volume.status().spares.is_empty(), "{:?}", volume.status());
        stand.close(volume);
        stand.devices[1].plan(|_, _| Act::Pass);
        stand.plug(&[2]);
        let volume = stand.open_degraded();
        assert_eq!(stand.read(&volume, 8192, 4096).expect("is read"), pattern(2, 4096));
        assert_eq!(stand.read(&volume, 4096, 4096).expect("is read"), pattern(1, 4096));
    }
}

#[test]
fn a_spare_that_goes_is_no_part_of_the_volume_any_more() {
    let stand = Stand::new(3, 12);
    stand.plug(&[0, 1]);
    stand.create(PLAIN);
    let volume = stand.open();
    stand.drive(volume.add_spare(&stand.candidate(2), 77, &stand.runtime)).expect("waits");
    assert!(stand.drive(volume.remove_spare(1, &stand.runtime)).is_err());
    stand.drive(volume.remove_spare(0, &stand.runtime)).expect("goes");
    stand.close(volume);
    assert!(stand.open().status().spares.is_empty());
    let found = stand.drive(read_record(&stand.candidate(2), &stand.runtime)).expect("is read");
    assert!(found.is_none());
}

#[test]
fn without_copies_there_is_nothing_for_a_spare_to_do() {
    let stand = Stand::new(2, 12);
    stand.plug(&[0]);
    stand.create(VolumeOptions { ways: 1, ..PLAIN });
    let volume = stand.open();
    let error = stand.drive(volume.add_spare(&stand.candidate(1), 7, &stand.runtime));
    assert_eq!(error.expect_err("nobody has a copy").kind(), ErrorKind::Invalid);
}

/// A member that says what the others know to be mended since is no stranger to them, and one that went on alone is.
#[test]
fn who_went_on_from_a_record_comes_after_it_and_who_went_on_alone_does_not() {
    let stand = Stand::new(2, 16);
    stand.create(PLAIN);
    let record = |number: usize| {
        let read = stand.drive(read_record(&stand.candidate(number), &stand.runtime)).expect("is read");
        read.expect("is a member")
    };
    let volume = stand.open();
    let (first, second) = (record(0), record(1));
    assert!(first.comes_after(&second) && second.comes_after(&first), "they are of one opening");
    stand.close(volume);
    stand.plug(&[1]);
    let volume = stand.open_degraded();
    stand.close(volume);
    let (away, alone) = (record(0), record(1));
    assert!(alone.comes_after(&away) && !away.comes_after(&alone));
    stand.plug(&[0]);
    let volume = stand.open_degraded();
    stand.close(volume);
    let also_alone = record(0);
    assert!(!alone.comes_after(&also_alone) && !also_alone.comes_after(&alone));
}

#[test]
fn a_member_whose_records_do_not_come_holds_up_an_opening_for_a_while_and_no_longer() {
    let stand = Stand::new(2, 16);
    stand.create(PLAIN);
    stand.devices[1].plan(|_, _| Act::Hang);
    let record = stand.drive(read_record(&stand.candidate(1), &stand.runtime)).expect("comes back");
    assert_eq!(record, None);
    // One copy is enough to know it.
    stand.devices[1].plan(|request, _| if request.offset == 0 { Act::Pass } else { Act::Hang });
    let record = stand.drive(read_record(&stand.candidate(1), &stand.runtime)).expect("comes back");
    assert_eq!(record.expect("is a member").index, 1);
}
