//! The export is a file that any program can use, whatever its sizes and offsets.

use std::fs;
use std::io::{ErrorKind as IoKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{Buffer, Context, Features, Operation, Phase};
use rotproof_export::FuseOptions;

use crate::places::{Served, noise, run};
use crate::scripted::{Action, Scripted};

const MIB: u64 = 1 << 20;

fn memory(size: u64, block_size: u32) -> Served {
    Served::with(MemoryDevice::new(size, block_size).expect("sizes that fit"), FuseOptions::default())
}

fn fallocate(file: &fs::File, mode: i32, offset: u64, length: u64) -> Result<(), i32> {
    // SAFETY: plain numbers.
    let answer =
        unsafe { libc::fallocate(file.as_raw_fd(), mode, offset.cast_signed(), length.cast_signed()) };
    if answer == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().expect("an errno")) }
}

#[test]
fn the_directory_shows_one_file_of_the_devices_size() {
    let device = MemoryDevice::new(3 * MIB, 512).expect("sizes that fit");
    let served =
        Served::with(device, FuseOptions { file_name: "a disk.img".into(), ..FuseOptions::default() });
    let names: Vec<_> = fs::read_dir(served.export.mountpoint())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, ["a disk.img"]);
    let metadata = fs::metadata(served.path()).expect("it is there");
    assert!(metadata.is_file());
    assert_eq!((metadata.len(), metadata.mode() & 0o777, metadata.uid()), (3 * MIB, 0o600, 0));
    let missing = fs::metadata(served.export.mountpoint().join("a disk.im")).expect_err("another name");
    assert_eq!(missing.kind(), IoKind::NotFound);
    run("df", &[served.export.mountpoint()]);
    served.unmount();
}

#[test]
fn names_of_every_length_are_found() {
    for length in [1, 39, 40, 41, 254, 255] {
        let file_name = "n".repeat(length);
        let device = MemoryDevice::new(MIB, 512).expect("sizes that fit");
        let served = Served::with(device, FuseOptions { file_name, ..FuseOptions::default() });
        assert_eq!(fs::metadata(served.path()).expect("it is there").len(), MIB, "{length}");
        served.unmount();
    }
}

#[test]
fn dd_cp_and_cmp_work_with_sizes_that_fit_no_block() {
    for block_size in [512, 4096] {
        let served = memory(4 * MIB, block_size);
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let original = scratch.path().join("original");
        fs::write(&original, &noise(1, 1_234_567)[..]).expect("written");
        let (original, disk) = (original.display(), served.path().display());
        for block in ["1000", "512", "77777", "1M"] {
            run("dd", &[format!("if={original}"), format!("of={disk}"), format!("bs={block}")]);
            run("cmp", &["-n".into(), "1234567".into(), original.to_string(), disk.to_string()]);
            run("dd", &["if=/dev/zero".into(), format!("of={disk}"), "bs=1M".into(), "count=4".into()]);
        }
        run("cp", &[original.to_string(), disk.to_string()]);
        run("cmp", &["-n".into(), "1234567".into(), original.to_string(), disk.to_string()]);
        let copy = scratch.path().join("copy");
        run("cp", &[disk.to_string(), copy.display().to_string()]);
        let mut expected = noise(1, 1_234_567).to_vec();
        expected.resize(4 << 20, 0);
        assert!(fs::read(&copy).expect("copied") == expected, "the rest of the device is untouched");
        served.unmount();
    }
}

#[test]
fn the_device_ends_where_a_block_device_would() {
    let served = memory(MIB, 4096);
    let file = served.open();
    let mut bytes = [1; 100];
    assert_eq!(file.read_at(&mut bytes, MIB - 10).expect("a short read"), 10);
    assert_eq!(file.read_at(&mut bytes, MIB).expect("nothing"), 0);
    assert_eq!(file.read_at(&mut bytes, 5 * MIB).expect("nothing"), 0);
    assert_eq!(file.write_at(&[7; 100], MIB - 10).expect("a short write"), 10);
    for offset in [MIB, MIB + 1, 1 << 40] {
        let error = file.write_at(&[7; 100], offset).expect_err("beyond the end");
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    }
    assert_eq!(file.metadata().expect("metadata").len(), MIB);
    let mut all = Vec::new();
    served.open().read_to_end(&mut all).expect("read");
    assert_eq!(all.len() as u64, MIB);
    assert!(all[all.len() - 10..] == [7; 10]);
    drop(file);
    served.unmount();
}

#[test]
fn the_size_cannot_be_changed_but_truncating_on_open_does_no_harm() {
    let served = memory(MIB, 512);
    served.open().write_all_at(b"kept", 0).expect("written");
    for size in [0, 1, MIB - 1, MIB + 1] {
        let error = served.open().set_len(size).expect_err("a device has its size");
        assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{size}");
    }
    served.open().set_len(MIB).expect("that is the size");
    let truncated = fs::File::create(served.path()).expect("O_TRUNC is ignored, as on a block device");
    assert_eq!(truncated.metadata().expect("metadata").len(), MIB);
    let mut start = [0; 4];
    served.open().read_exact_at(&mut start, 0).expect("read");
    assert_eq!(&start, b"kept");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    assert!(fs::set_permissions(served.path(), mode).is_err(), "attributes stay");
    let times = fs::FileTimes::new().set_modified(std::time::SystemTime::now());
    truncated.set_times(times).expect("times are not kept, and that is no error");
    assert!(fs::remove_file(served.path()).is_err());
    assert!(fs::write(served.export.mountpoint().join("second"), "x").is_err());
    drop(truncated);
    served.unmount();
}

#[test]
fn punched_and_zeroed_ranges_read_as_zeros_at_any_alignment() {
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    let served = memory(MIB, 4096);
    let file = served.open();
    let ranges = [
        (0, 4096),
        (4096, 65536),
        (100, 200),
        (4000, 200),
        (5000, 3192),
        (4096, 5000),
        (1000, 500_000),
        (0, MIB),
    ];
    for (index, (offset, length)) in (0..).zip(ranges) {
        for mode in [PUNCH, ZERO, ZERO | libc::FALLOC_FL_KEEP_SIZE] {
            let mut expected = noise(index, MIB as usize).to_vec();
            file.write_all_at(&expected, 0).expect("written");
            fallocate(&file, mode, offset, length).expect("supported");
            expected[offset as usize..][..length as usize].fill(0);
            let mut seen = vec![1; MIB as usize];
            file.read_exact_at(&mut seen, 0).expect("read");
            assert!(seen == expected, "mode {mode} at {offset} for {length}");
        }
    }
    fallocate(&file, PUNCH, MIB - 10, 100).expect("beyond the end there is nothing to punch");
    fallocate(&file, PUNCH, 2 * MIB, 100).expect("nothing at all");
    assert_eq!(fallocate(&file, ZERO, MIB - 10, 100), Err(libc::ENOSPC));
    assert_eq!(fallocate(&file, 0, 0, 4096), Err(libc::EOPNOTSUPP));
    assert_eq!(fallocate(&file, libc::FALLOC_FL_COLLAPSE_RANGE, 0, 4096), Err(libc::EOPNOTSUPP));
    drop(file);
    served.unmount();
}

#[test]
fn each_call_arrives_as_the_operation_that_it_means() {
    fn seen_by(features: Features, use_file: impl FnOnce(&Served)) -> Vec<(Operation, u64, u64)> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let device = Scripted::new(MIB, 512, move |request| {
            log.lock().expect("no test panics inside").push((
                request.operation,
                request.offset,
                request.length,
            ));
            Action::Pass
        })
        .with(|info| info.features = features);
        let served = Served::new(device);
        use_file(&served);
        served.unmount();
        let seen = seen.lock().expect("no test panics inside");
        seen.clone()
    }
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    let all = Features { flush: true, fua: true, discard: true, write_zeroes: true };
    let none = Features { flush: true, fua: false, discard: false, write_zeroes: false };
    let plain = (Operation::WRITE, 512, 1024);
    let flush = (Operation::Flush, 0, 0);
    let fua = (Operation::Write { fua: true }, 512, 1024);

    for features in [all, none] {
        let durable = if features.fua { vec![fua] } else { vec![plain, flush] };
        for flag in [libc::O_DSYNC, libc::O_SYNC] {
            let seen = seen_by(features, |served| {
                served.open_with(flag).write_all_at(&[1; 1024], 512).expect("written");
            });
            // Some kernels make the file durable once more after a synchronous write.
            assert!(seen.starts_with(&durable), "{seen:?}");
            assert!(seen[durable.len()..].iter().all(|&more| more == flush), "{seen:?}");
        }
        let seen = seen_by(features, |served| {
            let file = served.open();
            file.write_all_at(&[1; 1024], 512).expect("written");
            file.sync_all().expect("durable");
        });
        assert_eq!(seen, [plain, flush]);
    }

    let seen = seen_by(all, |served| {
        let file = served.open();
        fallocate(&file, PUNCH, 4096, 8192).expect("supported");
        fallocate(&file, ZERO_KEEP, 4096, 8192).expect("supported");
    });
    assert_eq!(seen, [(Operation::Discard, 4096, 8192), (Operation::WriteZeroes, 4096, 8192)]);
    let seen = seen_by(Features { discard: false, ..all }, |served| {
        fallocate(&served.open(), PUNCH, 4096, 8192).expect("a hole reads as zeros");
    });
    assert_eq!(seen, [(Operation::WriteZeroes, 4096, 8192)]);
    let seen = seen_by(none, |served| {
        assert_eq!(fallocate(&served.open(), PUNCH, 4096, 8192), Err(libc::EOPNOTSUPP));
        assert_eq!(fallocate(&served.open(), ZERO_KEEP, 4096, 8192), Err(libc::EOPNOTSUPP));
    });
    assert_eq!(seen, []);
}

#[test]
fn requests_say_in_which_phase_and_on_which_queue_they_were_made() {
    let seen = Arc::new(Mutex::new(Vec::<Context>::new()));
    let log = Arc::clone(&seen);
    let device = Scripted::new(MIB, 512, move |request| {
        log.lock().expect("no test panics inside").push(request.context);
        Action::Pass
    });
    let phase = Arc::new(AtomicU8::new(Phase::Setup as u8));
    let options = FuseOptions { phase: Arc::clone(&phase), threads: 3, ..FuseOptions::default() };
    let served = Served::with(Arc::new(device), options);
    let file = served.open();
    for now in [Phase::Setup, Phase::Run, Phase::Check] {
        phase.store(now as u8, Ordering::Relaxed);
        file.write_all_at(&[1; 512], 0).expect("written");
        file.read_exact_at(&mut [0; 512], 0).expect("read");
    }
    drop(file);
    served.unmount();
    let seen = seen.lock().expect("no test panics inside");
    let phases: Vec<_> = seen.iter().map(|context| context.phase).collect();
    assert_eq!(phases, [Phase::Setup, Phase::Setup, Phase::Run, Phase::Run, Phase::Check, Phase::Check]);
    assert!(seen.iter().all(|context| context.queue < 3 && context.id > 0));
    let mut ids: Vec<_> = seen.iter().map(|context| (context.queue, context.id)).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 6, "an id is unique on its queue");
}

#[test]
fn a_shared_mapping_and_direct_io_see_the_same_bytes() {
    let served = memory(MIB, 512);
    let file = served.open();
    file.write_all_at(&noise(3, 8192), 4096).expect("written");
    // SAFETY: a new mapping of an open file; the result is checked.
    let start = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), MIB as usize, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    // SAFETY: mapped above with this length, unmapped below, and nobody else uses it in between.
    let mapped = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>(), MIB as usize) };
    assert!(mapped[4096..12288] == noise(3, 8192)[..]);
    mapped[6000..6010].fill(9);
    // SAFETY: the mapping made above.
    assert_eq!(unsafe { libc::msync(start, MIB as usize, libc::MS_SYNC) }, 0);
    // SAFETY: the mapping made above, not used any more.
    assert_eq!(unsafe { libc::munmap(start, MIB as usize) }, 0);
    let mut seen = vec![0; 8192];
    file.read_exact_at(&mut seen, 4096).expect("read");
    let mut expected = noise(3, 8192).to_vec();
    expected[1904..1914].fill(9);
    assert!(seen == expected);
    drop(file);
    served.unmount();
}

#[test]
fn a_read_only_device_is_a_read_only_file() {
    let served = Served::new(Scripted::new(MIB, 512, |_| Action::Pass).with(|info| info.read_only = true));
    let error = fs::OpenOptions::new().write(true).open(served.path()).expect_err("read-only");
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    assert_eq!(fs::read(served.path()).expect("readable").len() as u64, MIB);
    served.unmount();
}

#[test]
fn a_large_transfer_through_direct_io_arrives_whole() {
    let served = memory(16 * MIB, 512);
    let file = served.open_with(libc::O_DIRECT);
    let data: Buffer = noise(5, 9 << 20);
    file.write_all_at(&data, 512).expect("written");
    let mut seen = Buffer::zeroed(data.len());
    file.read_exact_at(&mut seen, 512).expect("read");
    assert!(seen[..] == data[..]);
    let mut appended = served.open();
    appended.seek(SeekFrom::Start(10 * MIB)).expect("a plain file");
    appended.write_all(b"tail").expect("written");
    drop((file, appended));
    served.unmount();
}

#[test]
fn options_that_make_no_sense_are_refused_before_anything_is_mounted() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (threads, file_name) in
        [(0, "disk"), (65, "disk"), (1, ""), (1, ".."), (1, "a/b"), (1, "a\0b"), (1, &"n".repeat(256))]
    {
        let device = MemoryDevice::new(MIB, 512).expect("sizes that fit");
        let options = FuseOptions { threads, file_name: file_name.into(), ..FuseOptions::default() };
        let error =
            rotproof_export::FuseExport::mount(device, directory.path(), options).expect_err("senseless");
        assert_eq!(error.kind(), rotproof_block::ErrorKind::Invalid);
    }
    directory.close().expect("nothing is mounted on it");
}
