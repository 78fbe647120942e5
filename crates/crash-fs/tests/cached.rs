//! A device whose reads the kernel keeps, as root: it shows each state as it is, whatever was read and written before.

use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use rotproof_block::hash::mix;
use rotproof_block::{Device, Tag};
use rotproof_crash::recording::{Header, Recorder, RecorderOptions};
use rotproof_crash::{ImageDevice, StateOptions, States, Way};
use rotproof_crash_fs::Scene;
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
