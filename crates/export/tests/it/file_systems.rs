//! Real file systems on the loop device on the file.

use std::fs;

use rotproof_block::leaf::MemoryDevice;
use rotproof_export::{FuseOptions, LoopDevice, LoopOptions};

use crate::places::{Mounted, Served, noise, run};

fn a_file_system_keeps_its_files(make: &str, arguments: &[&str], check: &str, check_arguments: &[&str]) {
    const FILES: u64 = 40;
    let memory = MemoryDevice::new(512 << 20, 512).expect("sizes that fit");
    let served = Served::with(memory, FuseOptions::default());
    let device = LoopDevice::attach(served.path(), LoopOptions::default()).expect("attaches");
    let with_device = |arguments: &[&str]| {
        let device = device.path().to_str().expect("/dev/loopN");
        [arguments, &[device]].concat().into_iter().map(String::from).collect::<Vec<_>>()
    };
    run(make, &with_device(arguments));

    let mounted = Mounted::new(device.path());
    for number in 0..FILES {
        let data = noise(number, 100_000 + number as usize * 4321);
        fs::write(mounted.path().join(format!("file {number}")), &data[..]).expect("written");
    }
    for number in (0..FILES).step_by(3) {
        fs::remove_file(mounted.path().join(format!("file {number}"))).expect("removed");
    }
    run("fstrim", &[mounted.path()]);
    mounted.unmount();
    run(check, &with_device(check_arguments));

    let mounted = Mounted::new(device.path());
    for number in 0..FILES {
        let data = fs::read(mounted.path().join(format!("file {number}")));
        if number % 3 == 0 {
            assert!(data.is_err(), "file {number} was removed");
        } else {
            let expected = noise(number, 100_000 + number as usize * 4321);
            assert!(data.expect("it was written") == expected[..], "file {number}");
        }
    }
    mounted.unmount();
    device.detach().expect("nothing uses it");
    served.unmount();
}

#[test]
fn ext4_keeps_its_files() {
    a_file_system_keeps_its_files("mkfs.ext4", &["-q"], "e2fsck", &["-f", "-n"]);
}

#[test]
fn xfs_keeps_its_files() {
    a_file_system_keeps_its_files("mkfs.xfs", &["-q"], "xfs_repair", &["-n"]);
}

#[test]
fn btrfs_keeps_its_files() {
    a_file_system_keeps_its_files("mkfs.btrfs", &["-q"], "btrfs", &["check"]);
}
