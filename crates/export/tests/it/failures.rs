//! Whatever the device does, the program gets an answer, and the export can be ended.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rotproof_block::{Device, DeviceInfo, Error, ErrorKind, Operation, Queue, Result, Runtime};
use rotproof_export::{FuseExport, FuseOptions};

use crate::places::Served;
use crate::scripted::{Action, Scripted};

const MIB: u64 = 1 << 20;
/// Far more than anything here takes, far less than a hang.
const SOON: Duration = Duration::from_secs(20);

fn errno(result: io::Result<()>) -> i32 {
    result.expect_err("the device fails").raw_os_error().expect("an errno")
}

#[test]
fn every_kind_of_error_arrives_as_its_errno() {
    for (kind, expected) in [
        (ErrorKind::Medium, libc::EIO),
        (ErrorKind::NoSpace, libc::ENOSPC),
        (ErrorKind::ReadOnly, libc::EROFS),
        (ErrorKind::TimedOut, libc::ETIMEDOUT),
        (ErrorKind::Gone, libc::ENODEV),
        (ErrorKind::Os(libc::EILSEQ), libc::EILSEQ),
        (ErrorKind::Os(libc::ENOSYS), libc::EOPNOTSUPP),
        (ErrorKind::Os(100_000), libc::EIO),
        (ErrorKind::Internal, libc::EIO),
    ] {
        let served = Served::new(Scripted::new(MIB, 512, move |_| Action::Fail(kind)));
        let file = served.open();
        assert_eq!(errno(file.read_exact_at(&mut [0; 512], 0)), expected, "{kind:?} on read");
        assert_eq!(errno(file.write_all_at(&[0; 512], 0)), expected, "{kind:?} on write");
        assert_eq!(errno(file.write_all_at(&[0; 10], 5)), expected, "{kind:?} on a part of a block");
        for attempt in 0..2 {
            assert_eq!(errno(file.sync_all()), expected, "{kind:?} on flush, attempt {attempt}");
        }
        drop(file);
        served.unmount();
    }
}

#[test]
fn a_request_that_is_late_holds_up_no_other() {
    let served = Served::with(
        Arc::new(Scripted::new(MIB, 512, |request| match request.offset {
            0 => Action::Late(Duration::from_millis(700)),
            _ => Action::Pass,
        })),
        FuseOptions { threads: 1, ..FuseOptions::default() },
    );
    let file = served.open();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| file.read_exact_at(&mut [0; 512], 0).expect("late but there"));
        }
        std::thread::sleep(Duration::from_millis(50));
        for _ in 0..100 {
            file.write_all_at(&[1; 512], 512).expect("written");
            file.read_exact_at(&mut [0; 512], 512).expect("read");
        }
        assert!(began.elapsed() < Duration::from_millis(600), "it took {:?}", began.elapsed());
    });
    assert!(began.elapsed() < Duration::from_millis(2000), "the late ones wait beside each other");
    drop(file);
    served.unmount();
}

#[test]
fn a_late_write_of_part_of_a_block_holds_up_that_block_only() {
    let served = Served::with(
        Arc::new(Scripted::new(4 * MIB, 4096, |request| match (request.operation, request.offset) {
            (Operation::Read, 0) => Action::Late(Duration::from_millis(500)),
            _ => Action::Pass,
        })),
        FuseOptions { threads: 1, ..FuseOptions::default() },
    );
    let file = served.open();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let part = scope.spawn(|| file.write_all_at(&[7; 10], 5).expect("written"));
        std::thread::sleep(Duration::from_millis(50));
        file.write_all_at(&[2; 4096], 2 * MIB).expect("elsewhere");
        assert!(began.elapsed() < Duration::from_millis(400));
        file.write_all_at(&[1; 4096], 0).expect("waits for the part");
        part.join().expect("ends well");
        assert!(began.elapsed() >= Duration::from_millis(450));
    });
    drop(file);
    served.unmount();
}

#[test]
fn parts_of_one_block_written_through_two_exports_at_once_are_both_there() {
    let slow = Scripted::new(MIB, 4096, |request| match request.operation {
        Operation::Read => Action::Late(Duration::from_millis(200)),
        _ => Action::Pass,
    });
    let device: Arc<dyn Device> = Arc::new(slow);
    let exports = [(); 2].map(|()| Served::with(Arc::clone(&device), FuseOptions::default()));
    let files = exports.each_ref().map(Served::open);
    std::thread::scope(|scope| {
        for (file, at) in files.iter().zip([5, 4000]) {
            scope.spawn(move || file.write_all_at(&[7; 10], at).expect("written"));
        }
    });
    let mut block = [0; 4096];
    files[0].read_exact_at(&mut block, 0).expect("read");
    assert_eq!((&block[5..15], &block[4000..4010]), (&[7; 10][..], &[7; 10][..]));
    drop(files);
    for export in exports {
        export.unmount();
    }
}

#[test]
fn a_panic_in_the_device_is_an_error_for_the_program_and_ends_the_export() {
    for later in [false, true] {
        let served = Served::new(Scripted::new(MIB, 512, move |request| match (request.offset, later) {
            (0, false) => Action::Panic,
            (0, true) => Action::PanicLater,
            _ => Action::Hang,
        }));
        let file = served.open();
        let began = Instant::now();
        std::thread::scope(|scope| {
            let hung = scope.spawn(|| errno(file.read_exact_at(&mut [0; 512], 512)));
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(errno(file.write_all_at(&[0; 512], 0)), libc::EIO);
            let aborted = hung.join().expect("ends well");
            assert!([libc::EIO, libc::ECONNABORTED, libc::ENOTCONN].contains(&aborted), "{aborted}");
        });
        assert!(file.write_all_at(&[0; 512], 0).is_err(), "nobody serves it any more");
        assert!(began.elapsed() < SOON);
        drop(file);
        let error = served.export.unmount().expect_err("the panic is told");
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains("as the test wants it"), "{error}");
    }
}

#[test]
fn unmounting_a_file_that_is_open_says_so_and_changes_nothing() {
    let served = Served::new(Scripted::new(MIB, 512, |_| Action::Pass));
    let file = served.open();
    let error = served.export.unmount().expect_err("it is open");
    assert_eq!(error.kind(), ErrorKind::Os(libc::EBUSY));
    assert!(error.to_string().contains("close it"), "{error}");
    file.write_all_at(b"still served", 3).expect("nothing has changed");
    drop(file);
    served.export.unmount().expect("closed now");
    served.export.unmount().expect("a second time has no effect");
    served.unmount();
}

#[test]
fn aborting_frees_programs_that_wait_for_a_device_that_hangs() {
    let served = Served::new(Scripted::new(MIB, 512, |_| Action::Hang));
    let file = served.open();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let hung: Vec<_> = (0..4).map(|_| scope.spawn(|| file.read_exact_at(&mut [0; 512], 0))).collect();
        std::thread::sleep(Duration::from_millis(100));
        served.export.abort();
        assert!(hung.into_iter().all(|hung| hung.join().expect("ends well").is_err()));
    });
    drop(file);
    served.unmount();
    assert!(began.elapsed() < SOON);
}

#[test]
fn dropping_an_export_in_use_leaves_neither_a_mount_nor_a_hang() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let device = Arc::new(Scripted::new(MIB, 512, |_| Action::Hang));
    let export = FuseExport::mount(device, directory.path(), FuseOptions::default()).expect("mounts");
    let file = File::open(export.path()).expect("opens");
    let began = Instant::now();
    let reader = std::thread::spawn(move || file.read_exact_at(&mut [0; 512], 0));
    std::thread::sleep(Duration::from_millis(100));
    drop(export);
    assert!(reader.join().expect("ends well").is_err());
    assert!(began.elapsed() < SOON);
    directory.close().expect("nothing is mounted on it any more");
}

#[test]
fn a_device_that_opens_no_queue_leaves_nothing_mounted() {
    struct NoQueue(bool);
    impl Device for NoQueue {
        fn info(&self) -> DeviceInfo {
            Scripted::new(MIB, 512, |_| Action::Pass).info()
        }
        fn open_queue(&self, _: &Runtime) -> Result<Rc<dyn Queue>> {
            assert!(!self.0, "the device panics, as the test wants it");
            Err(Error::new(ErrorKind::Gone, "no queue today"))
        }
    }
    for (panics, kind) in [(false, ErrorKind::Gone), (true, ErrorKind::Internal)] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let error = FuseExport::mount(Arc::new(NoQueue(panics)), directory.path(), FuseOptions::default())
            .expect_err("there is no queue");
        assert_eq!(error.kind(), kind);
        directory.close().expect("nothing is mounted on it");
    }
}

#[test]
fn a_device_without_memory_of_the_past_serves_many_requests_late_and_early() {
    let late = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&late);
    let served = Served::new(Scripted::new(MIB, 512, move |_| {
        if now.fetch_xor(true, Ordering::Relaxed) {
            Action::Late(Duration::from_micros(200))
        } else {
            Action::Pass
        }
    }));
    let file = served.open();
    for round in 0..500u64 {
        let block = [round as u8; 512];
        file.write_all_at(&block, round % 16 * 512).expect("written");
        let mut seen = [0; 512];
        file.read_exact_at(&mut seen, round % 16 * 512).expect("read");
        assert!(seen == block, "round {round}");
    }
    drop(file);
    served.unmount();
}
