//! States mounted by guests, as root: what a guest sees is the state, a panic is its kernel's word on it, and a guest that is gone
//! without one says nothing.

use std::fs;
use std::sync::Arc;

use rotproof_block::{Device, ErrorKind};
use rotproof_crash_fs::{Blank, GuestScene, Mounting};
use rotproof_machine::Cancel;
use rotproof_machine::registry::Registry;
use rotproof_subject::{FileSystem, FileSystemSpec, MachineSpec};

#[test]
fn a_guest_shows_the_state_and_its_end_is_told_by_what_it_says_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = Registry::at(&folder.path().join("state")).expect("a registry").begin().expect("a run");
    let blank = Blank::make(FileSystem::Ext4, folder.path()).expect("mkfs.ext4");
    let image = blank.device().expect("an image");
    let spec = MachineSpec::new(FileSystemSpec::new(FileSystem::Ext4));
    let device = Arc::clone(&image) as Arc<dyn Device>;
    let mut scene = GuestScene::new(&run, "guest", device, (&spec, &Cancel::new())).expect("a scene");
    let file = scene.mountpoint().join("file");
    let blank = image.snapshot();
    scene.mount(&[]).expect("a new file system");
    fs::write(&file, "text").expect("written");
    scene.unmount().expect("nobody uses it");
    scene.mount(&[]).expect("with a file now");
    assert_eq!(fs::read_to_string(&file).expect("there"), "text");
    scene.unmount().expect("nobody uses it");
    scene.kernel_words();

    // Another state: the guest reads what the device shows, and nothing that it had read before.
    image.show(blank);
    scene.mount(&[]).expect("a new file system again");
    assert!(!file.exists(), "the guest has kept what it had read");
    scene.check(&image).expect("the guest goes on");

    let guest = scene.current().expect("one mounts it");
    assert!(guest.set("/proc/sysrq-trigger", "c").is_err(), "it panics instead");
    scene.unmount().expect("nothing of it is left");
    let words = scene.kernel_words().join("\n");
    assert!(words.contains("Kernel panic"), "{words}");
    scene.check(&image).expect("that is the kernel's word");

    scene.mount(&[]).expect("by another guest");
    fs::write(&file, "text").expect("written");
    scene.current().expect("one mounts it").kill();
    scene.unmount().expect("nothing of it is left");
    let error = scene.check(&image).expect_err("nobody knows what it would have said");
    assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
    // It goes on, and does not let go of the state when it is asked to: this machine ends it.
    scene.mount(&[]).expect("by a third");
    scene.current().expect("one mounts it").unmount().expect("behind the back of the scene");
    scene.unmount().expect("nothing of it is left");
    assert!(scene.current().is_none(), "it was ended");
    let error = scene.check(&image).expect_err("nobody knows how it would have left the state");
    assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
    scene.mount(&[]).expect("by a fourth");
    drop(scene);
    assert!(run.finish().is_empty());
}
