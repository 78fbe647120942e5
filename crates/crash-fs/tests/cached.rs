//! A device whose reads the kernel keeps, as root: it shows each state as it is, whatever was read and written before.

use std::ffi::CString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use rotproof_block::hash::mix;
use rotproof_block::{Device, ErrorKind, Tag};
use rotproof_crash::recording::{Header, Recorder, RecorderOptions};
use rotproof_crash::{ImageDevice, StateOptions, States, Way};
use rotproof_crash_fs::{Mounting, Scene};
use rotproof_machine::registry::Registry;
use rotproof_subject::FileSystem;

const SIZE: u64 = (2 << 20) + 2048;
const SECTOR: u64 = 512;

/// Writes of all lengths all over a device, a flush now and then.
fn record(path: &Path) {
    let header = Header { size: SIZE, block_size: 512, atomic_write_bytes: 512, id: 3 };
    let recorder = Recorder::create(path, header, RecorderOptions::default()).expect("a new file");
    for number in 0..400u64 {
        let draw = |stream| mix(7, stream, number);
        let length = (1 + draw(1) % if number % 9 == 0 { 300 } else { 9 }) * SECTOR;
        let offset = draw(2) % ((SIZE - length) / SECTOR + 1) * SECTOR;
        let data = vec![draw(3) as u8; length as usize];
        recorder.done(0, recorder.write(0, offset, false, Tag::NONE, &data), true);
        if number % 5 == 4 {
            recorder.done(0, recorder.discard(0, draw(4) % 64 * 4096, 4096), true);
            recorder.done(0, recorder.flush(0), true);
        }
    }
    recorder.finish().expect("there is room");
}

/// All of the device as the kernel sees it, and as it is.
fn both(scene: &Scene, image: &ImageDevice) -> (Vec<u8>, Vec<u8>) {
    let (mut seen, mut wanted) = (vec![0; SIZE as usize], vec![0; SIZE as usize]);
    File::open(scene.device()).expect("as root").read_exact_at(&mut seen, 0).expect("it can be read");
    image.read_at(0, &mut wanted).expect("it can be read");
    (seen, wanted)
}

/// A file in the place of a device, until this is dropped.
struct InPlace<'a>(&'a Path);

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero byte")
}

impl<'a> InPlace<'a> {
    fn of(device: &'a Path, other: &Path) -> Self {
        let (none, bind) = (std::ptr::null::<libc::c_void>(), libc::MS_BIND);
        // SAFETY: both texts end with zero and live across the call, which takes no other memory for a bind mount.
        let answer = unsafe { libc::mount(c(other).as_ptr(), c(device).as_ptr(), none.cast(), bind, none) };
        assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
        Self(device)
    }
}

impl Drop for InPlace<'_> {
    fn drop(&mut self) {
        // SAFETY: the text ends with zero and lives across the call.
        unsafe { libc::umount2(c(self.0).as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_device_that_is_no_longer_ours_is_told_by_its_first_block_and_by_the_one_64_kib_behind() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("memory");
    let state = folder.path().join("state");
    std::fs::create_dir(&state).expect("there is room");
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).expect("ours");
    let run = Registry::at(&state).expect("a registry").begin().expect("a run");
    let path = folder.path().join("recording");
    record(&path);
    let mut states =
        States::new(StateOptions { ways: vec![Way::PrefixAtBarrier], ..StateOptions::new(&path, 1) })
            .expect("a recording");
    let image = ImageDevice::new(Arc::clone(states.contents()), 16 << 20);
    let scene = Scene::cached(&run, "scene", Arc::clone(&image) as Arc<dyn Device>, FileSystem::Btrfs)
        .expect("as root");
    let (_, state) = states.next_state().expect("whole").expect("there is one");
    image.show(state.image.snapshot);
    scene.changed(&image.take_changed(), &image).expect("the kernel can be told");
    scene.forget().expect("nobody uses it");
    let check = || Mounting::check(&scene, &image);
    check().expect("it shows the state");
    let (seen, wanted) = both(&scene, &image);
    assert!(seen == wanted);
    for changed in [None, Some(100), Some((64 << 10) + 100)] {
        let mut bytes = wanted.clone();
        changed.iter().for_each(|&at: &usize| bytes[at] ^= 1);
        // Past the page cache it is read as a device is, which not every file in memory can be.
        let other = std::env::temp_dir().join(format!("rotproof-other-{}", std::process::id()));
        std::fs::write(&other, bytes).expect("there is room");
        let in_place = InPlace::of(scene.device(), &other);
        let checked = check();
        drop(in_place);
        std::fs::remove_file(&other).expect("it is there");
        match changed {
            None => checked.expect("one that shows the same cannot be told from it"),
            Some(at) => {
                let error = checked.expect_err("another device");
                assert_eq!(error.kind(), ErrorKind::Gone, "a change at {at}: {error}");
            }
        }
    }
    check().expect("it is ours again");
    assert!(scene.end().is_empty() && run.finish().is_empty(), "something is left");
}

#[test]
fn the_kernel_sees_each_state_and_nothing_of_the_one_before() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("memory");
    let state = folder.path().join("state");
    std::fs::create_dir(&state).expect("there is room");
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).expect("ours");
    let run = Registry::at(&state).expect("a registry").begin().expect("a run");
    let path = folder.path().join("recording");
    record(&path);
    let mut states = States::new(StateOptions {
        ways: vec![Way::Subsets, Way::PrefixAtBarrier, Way::SingleWrites],
        states_max: 300,
        is_shared: true,
        ..StateOptions::new(&path, 1)
    })
    .expect("a recording");
    let image = ImageDevice::new(Arc::clone(states.contents()), 16 << 20);
    let scene = Scene::cached(&run, "scene", Arc::clone(&image) as Arc<dyn Device>, FileSystem::Ext4)
        .expect("as root");
    let mut number = 0;
    while let Some((_, state)) = states.next_state().expect("whole") {
        number += 1;
        image.show(state.image.snapshot);
        scene.changed(&image.take_changed(), &image).expect("the kernel can be told");
        scene.forget().expect("nobody uses it");
        let (seen, wanted) = both(&scene, &image);
        assert!(seen == wanted, "state {number}");
        // As recovery does: some of it is written, and some of that is seen again at once.
        let device = File::options().write(true).open(scene.device()).expect("as root");
        for write in 0..6 {
            let offset = mix(number, 1, write) % (SIZE / SECTOR) * SECTOR;
            let length = SECTOR.min(SIZE - offset);
            device.write_all_at(&vec![number as u8; length as usize], offset).expect("there is room");
        }
        device.sync_all().expect("it can be flushed");
        drop(device);
        scene.forget().expect("nobody uses it");
        let (seen, wanted) = both(&scene, &image);
        assert!(seen == wanted, "state {number}, written to");
        assert!(image.scratch_bytes() > 0, "what was written has reached the device");
    }
    assert!(number >= 200, "only {number} states");
    assert!(scene.end().is_empty() && run.finish().is_empty(), "something is left");
}
