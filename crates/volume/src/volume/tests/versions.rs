//! Versions inside a volume.

use super::*;
use crate::member::VersionsPolicy;

const KEEPING: VolumeOptions =
    VolumeOptions { versions: Some(VersionsPolicy { reserve_percent: 30, every_ms: 0, keep: 3 }), ..PLAIN };

#[test]
fn versions_are_captured_read_gone_back_to_and_given_up_over_checksums_and_stripes() {
    for (members, checksum) in [(2, None), (2, Some(ChecksumKind::Crc32c)), (4, Some(ChecksumKind::Xxh3))] {
        let stand = Stand::new(members, 40);
        stand.create(VolumeOptions { checksum, ..KEEPING });
        let volume = stand.open();
        stand.write(&volume, 0, &pattern(1, 65_536));
        let first = stand.drive(volume.capture(&stand.runtime, "first", 5)).expect("is captured");
        stand.write(&volume, 4096, &pattern(2, 8192));
        stand.close(volume);
        let volume = stand.open();
        assert_eq!(volume.options().versions, KEEPING.versions);
        let (versions, room) = volume.versions_report().expect("keeps some");
        assert_eq!((versions.len(), versions[0].name.as_str(), versions[0].held_bytes), (1, "first", 8192));
        assert!(room.free_bytes < room.bytes);
        let view = volume.view(first).expect("is there");
        let queue = view.open_queue(&stand.runtime).expect("opens");
        let read = Request::read(0, Buffer::stale(65_536), Context::default());
        let completion = stand.drive(queue.submit(read));
        completion.result.expect("is read");
        assert_eq!(completion.buffer.to_vec(), pattern(1, 65_536));
        let undo = stand.drive(volume.roll_back(&stand.runtime, first, 6)).expect("goes back");
        assert_eq!(stand.read(&volume, 0, 65_536).expect("is read"), pattern(1, 65_536));
        stand.drive(volume.roll_back(&stand.runtime, undo, 7)).expect("is undone");
        assert_eq!(stand.read(&volume, 4096, 8192).expect("is read"), pattern(2, 8192));
        stand.drive(volume.delete_version(&stand.runtime, first)).expect("is given up");
        assert_eq!(volume.view(first).map(|_| ()).expect_err("is gone").kind(), ErrorKind::Missing);
        stand.close(volume);
    }
}

#[test]
fn a_volume_with_versions_is_a_device_and_one_without_says_that_it_keeps_none() {
    for on in [On::Simulated, On::Uring] {
        let make = || -> Result<Arc<dyn Device>> {
            let stand = Stand::new(2, 40);
            stand.create(VolumeOptions { checksum: Some(ChecksumKind::Crc32c), ..KEEPING });
            Ok(stand.open())
        };
        if let Err(breach) = check(on, &make) {
            panic!("{on:?}: {breach}");
        }
    }
    let stand = Stand::new(2, 8);
    stand.create(PLAIN);
    let error = stand.drive(stand.open().capture(&stand.runtime, "", 0)).expect_err("keeps none");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_member_is_replaced_under_versions_and_they_stay() {
    let stand = Stand::new(3, 40);
    stand.plug(&[0, 1]);
    stand.create(VolumeOptions { checksum: Some(ChecksumKind::Crc32c), ..KEEPING });
    let volume = stand.open();
    stand.write(&volume, 0, &pattern(1, 65_536));
    let first = stand.drive(volume.capture(&stand.runtime, "first", 5)).expect("is captured");
    stand.write(&volume, 0, &pattern(2, 65_536));
    stand.drive(volume.replace(1, &stand.candidate(2), 9, &stand.runtime)).expect("takes its place");
    assert_eq!(stand.rebuild(&volume).left_bytes, 0);
    stand.close(volume);
    stand.plug(&[2]);
    let volume = stand.open_degraded();
    assert_eq!(stand.read(&volume, 0, 65_536).expect("is read"), pattern(2, 65_536));
    stand.drive(volume.roll_back(&stand.runtime, first, 6)).expect("goes back");
    assert_eq!(stand.read(&volume, 0, 65_536).expect("is read"), pattern(1, 65_536));
}
