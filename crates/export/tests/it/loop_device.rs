//! The file as a block device.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{Buffer, ErrorKind};
use rotproof_export::{FuseOptions, LoopDevice, LoopOptions, detach_path, find_by_backing_file};

use crate::places::{Served, noise, run};
use crate::scripted::{Action, Scripted};

const MIB: u64 = 1 << 20;

fn memory(block_size: u32) -> Served {
    Served::with(MemoryDevice::new(8 * MIB, block_size).expect("sizes that fit"), FuseOptions::default())
}

fn queue_value(device: &LoopDevice, name: &str) -> String {
    let number = device.path().file_name().expect("/dev/loopN").to_string_lossy().into_owned();
    let text = std::fs::read_to_string(format!("/sys/block/{number}/{name}")).expect("sysfs has it");
    text.trim().into()
}

fn open_direct(path: &Path) -> std::fs::File {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).expect("opens")
}

#[test]
fn what_is_written_to_the_loop_device_is_in_the_file() {
    for block_size in [512, 4096] {
        let served = memory(block_size);
        let options = LoopOptions { block_size: Some(block_size), ..LoopOptions::default() };
        let device = LoopDevice::attach(served.path(), options).expect("attaches");
        assert_eq!(queue_value(&device, "queue/logical_block_size"), block_size.to_string());
        assert_eq!(queue_value(&device, "size"), (8 * MIB / 512).to_string());
        assert_eq!(queue_value(&device, "loop/dio"), "1");
        let data = noise(1, 3 << 20);
        open_direct(device.path()).write_all_at(&data, 4096).expect("written");
        let mut seen = Buffer::zeroed(data.len());
        served.open().read_exact_at(&mut seen, 4096).expect("read");
        assert!(seen[..] == data[..]);
        run(
            "blkdiscard",
            &["-o".as_ref(), "4096".as_ref(), "-l".as_ref(), "1048576".as_ref(), device.path().as_os_str()],
        );
        served.open().read_exact_at(&mut seen, 4096).expect("read");
        assert!(seen[..1 << 20].iter().all(|&byte| byte == 0) && seen[1 << 20..] == data[1 << 20..]);
        device.detach().expect("nothing uses it");
        device.detach().expect("a second time has no effect");
        served.unmount();
    }
}

#[test]
fn errors_of_the_device_reach_a_program_on_the_loop_device() {
    let served = Served::new(Scripted::new(MIB, 512, |request| match request.offset {
        4096 => Action::Fail(ErrorKind::Medium),
        8192 => Action::Fail(ErrorKind::NoSpace),
        16384 => Action::Fail(ErrorKind::Os(libc::EILSEQ)),
        _ => Action::Pass,
    }));
    let device = LoopDevice::attach(served.path(), LoopOptions::default()).expect("attaches");
    let file = open_direct(device.path());
    for (offset, errno) in [(4096, libc::EIO), (8192, libc::ENOSPC), (16384, libc::EILSEQ)] {
        let error = file.write_all_at(&Buffer::zeroed(512), offset).expect_err("the device fails");
        assert_eq!(error.raw_os_error(), Some(errno));
    }
    file.write_all_at(&Buffer::zeroed(512), 0).expect("elsewhere it works");
    drop(file);
    device.detach().expect("nothing uses it");
    served.unmount();
}

#[test]
fn a_loop_device_in_use_says_so_and_frees_itself_later() {
    let served = memory(512);
    let device = LoopDevice::attach(served.path(), LoopOptions::default()).expect("attaches");
    let user = open_direct(device.path());
    let error = device.detach().expect_err("it is open");
    assert_eq!(error.kind(), ErrorKind::Os(libc::EBUSY));
    drop(user);
    device.detach().expect("it is closed now");
    assert_eq!(find_by_backing_file(served.path()), []);
    served.unmount();
}

#[test]
fn a_loop_device_is_found_by_its_file_and_detached_by_its_path() {
    let served = memory(512);
    assert_eq!(find_by_backing_file(served.path()), []);
    let device = LoopDevice::attach(served.path(), LoopOptions::default()).expect("attaches");
    let found = find_by_backing_file(served.path());
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].device.as_path(), found[0].backing_file.as_path()), (device.path(), served.path()));
    detach_path(&found[0].device).expect("nothing uses it");
    detach_path(&found[0].device).expect("free already");
    assert_eq!(find_by_backing_file(served.path()), []);
    device.detach().expect("somebody else has done it");
    served.unmount();
}

#[test]
fn attaching_many_at_once_gives_each_its_own() {
    let served: Vec<_> = (0..6).map(|_| memory(512)).collect();
    std::thread::scope(|scope| {
        for served in &served {
            scope.spawn(|| {
                for _ in 0..5 {
                    let device = LoopDevice::attach(served.path(), LoopOptions::default()).expect("attaches");
                    let found = find_by_backing_file(served.path());
                    assert_eq!(found.len(), 1);
                    assert_eq!(found[0].device, device.path());
                    device.detach().expect("nothing uses it");
                }
            });
        }
    });
    served.into_iter().for_each(Served::unmount);
}

#[test]
fn a_read_only_loop_device_refuses_writes() {
    let served = memory(512);
    let options = LoopOptions { read_only: true, ..LoopOptions::default() };
    let device = LoopDevice::attach(served.path(), options).expect("attaches");
    assert_eq!(queue_value(&device, "ro"), "1");
    device.detach().expect("nothing uses it");
    served.unmount();
}

#[test]
fn a_file_that_cannot_be_attached_is_named() {
    let error =
        LoopDevice::attach(Path::new("/nonexistent/disk"), LoopOptions::default()).expect_err("not there");
    assert_eq!(error.kind(), ErrorKind::Missing);
    assert!(error.to_string().contains("/nonexistent/disk"), "{error}");
}
