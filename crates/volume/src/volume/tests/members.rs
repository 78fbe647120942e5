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
        let volume = stand.open();
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
