//! What a file leaf does with files that are not as asked for, and with those that change under it.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::leaf::{FileDevice, FileOptions};
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{
    Buffer, Completion, Context, Device, Error, ErrorKind, Operation, Queue, Request, Runtime,
};

const SIZE: u64 = 1 << 20;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder")
}

fn made(size_bytes: u64) -> FileOptions {
    FileOptions { size_bytes: Some(size_bytes), create: true, ..FileOptions::default() }
}

fn refused(path: &Path, options: FileOptions) -> Error {
    FileDevice::open(path, options).expect_err("must be refused")
}

fn both() -> [Runtime; 2] {
    [Runtime::uring(RuntimeOptions::new(1)).expect("this machine has io_uring"), Runtime::simulated(1)]
}

fn complete(runtime: &Runtime, queue: &Rc<dyn Queue>, request: Request) -> Completion {
    runtime.block_on(queue.submit(request)).expect("completes")
}

fn succeed(runtime: &Runtime, queue: &Rc<dyn Queue>, request: Request) {
    complete(runtime, queue, request).result.expect("succeeds");
}

#[test]
fn a_file_made_on_demand_is_sparse_and_as_large_as_asked_for() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    let device = FileDevice::open(&path, made(1 << 40)).expect("opens");
    assert_eq!(device.info().size, 1 << 40);
    let metadata = std::fs::metadata(&path).expect("it is there");
    assert_eq!((metadata.len(), metadata.blocks()), (1 << 40, 0));
}

#[test]
fn without_a_size_the_file_has_its_own_and_with_a_smaller_one_it_is_not_cut() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    File::create(&path).and_then(|file| file.set_len(SIZE)).expect("a file");
    assert_eq!(FileDevice::open(&path, FileOptions::default()).expect("opens").info().size, SIZE);
    assert_eq!(FileDevice::open(&path, made(SIZE / 2)).expect("opens").info().size, SIZE / 2);
    assert_eq!(std::fs::metadata(&path).expect("it is there").len(), SIZE);
    assert_eq!(FileDevice::open(&path, made(SIZE * 2)).expect("opens").info().size, SIZE * 2);
}

#[test]
fn a_path_that_is_no_file_is_refused_without_being_opened() {
    let folder = folder();
    let pipe = folder.path().join("pipe");
    let name = std::ffi::CString::new(pipe.as_os_str().as_encoded_bytes()).expect("no zero byte");
    // SAFETY: the name is a C string that lives across the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    for path in [folder.path(), &pipe, Path::new("/dev/null")] {
        let error = refused(path, FileOptions { read_only: true, ..FileOptions::default() });
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[test]
fn a_file_that_is_not_there_is_missing_and_the_error_says_what_to_give() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    assert_eq!(refused(&path, FileOptions::default()).kind(), ErrorKind::Missing);
    let error = refused(&path, FileOptions { create: true, ..FileOptions::default() });
    assert!(error.kind() == ErrorKind::Missing && error.to_string().contains("give its size"), "{error}");
    assert_eq!(refused(&path, FileOptions { read_only: true, ..made(SIZE) }).kind(), ErrorKind::Missing);
    let error = refused(&path.join("below/disk.img"), made(SIZE));
    assert!(error.to_string().contains("disk.img"), "{error}");
}

#[test]
fn sizes_that_do_not_fit_are_refused_and_leave_no_file_behind() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    for options in [
        made(0),
        made(SIZE + 1),
        FileOptions { block_size: Some(3000), ..made(SIZE) },
        FileOptions { block_size: Some(256), ..made(SIZE) },
        FileOptions { block_size: Some(1 << 20), ..made(SIZE) },
    ] {
        assert_eq!(refused(&path, options).kind(), ErrorKind::Invalid, "{options:?}");
        assert!(!path.exists(), "{options:?}");
    }
}

#[test]
fn a_read_only_file_cannot_grow() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    File::create(&path).and_then(|file| file.set_len(SIZE)).expect("a file");
    let options = FileOptions { size_bytes: Some(2 * SIZE), read_only: true, ..FileOptions::default() };
    assert_eq!(refused(&path, options).kind(), ErrorKind::Invalid);
    assert_eq!(std::fs::metadata(&path).expect("it is there").len(), SIZE);
}

#[test]
fn a_file_system_without_direct_io_is_named_with_the_way_out() {
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let error = refused(Path::new("/proc/self/status"), options);
    assert_eq!(error.kind(), ErrorKind::Missing);
    assert!(error.to_string().contains("direct: false"), "{error}");
}

#[test]
fn reading_what_a_shrunk_file_has_lost_is_a_medium_error_with_the_buffer() {
    for runtime in both() {
        let folder = folder();
        let path = folder.path().join("disk.img");
        let device = FileDevice::open(&path, made(SIZE)).expect("opens");
        let queue = device.open_queue(&runtime).expect("a queue");
        File::options().write(true).open(&path).and_then(|file| file.set_len(SIZE / 2)).expect("is cut");
        let lost = Request::read(SIZE / 2 - 4096, Buffer::zeroed(8192), Context::default());
        let Completion { result, buffer, .. } = complete(&runtime, &queue, lost);
        assert_eq!(result.expect_err("half of it is gone").kind(), ErrorKind::Medium, "{runtime:?}");
        assert_eq!(buffer.len(), 8192);
        succeed(&runtime, &queue, Request::read(0, Buffer::zeroed(8192), Context::default()));
    }
}

#[test]
fn a_discard_gives_the_space_back_and_what_is_written_is_in_the_file() {
    for runtime in both() {
        let folder = folder();
        let path = folder.path().join("disk.img");
        let device = FileDevice::open(&path, made(SIZE)).expect("opens");
        let queue = device.open_queue(&runtime).expect("a queue");
        let space = || std::fs::metadata(&path).expect("it is there").blocks() * 512;

        let data = Buffer::copy_of(&[0x5a; SIZE as usize]);
        let write = Request::write(0, data, Context::default());
        succeed(&runtime, &queue, Request { operation: Operation::Write { fua: true }, ..write });
        assert!(space() >= SIZE, "{runtime:?}");
        let mut content = Vec::new();
        File::open(&path).and_then(|mut file| file.read_to_end(&mut content)).expect("is read");
        assert!(content.len() as u64 == SIZE && content.iter().all(|&byte| byte == 0x5a), "{runtime:?}");

        succeed(&runtime, &queue, Request::discard(0, SIZE, Context::default()));
        succeed(&runtime, &queue, Request::flush(Context::default()));
        assert!(space() < SIZE / 2, "{runtime:?}");
        assert_eq!(std::fs::metadata(&path).expect("it is there").len(), SIZE);
    }
}

#[test]
fn requests_outlive_the_device_and_the_queue_they_were_given_to() {
    for runtime in both() {
        let folder = folder();
        let device = FileDevice::open(&folder.path().join("disk.img"), made(SIZE)).expect("opens");
        let queue = device.open_queue(&runtime).expect("a queue");
        let data = Buffer::copy_of(&[7; 4096]);
        let write = queue.submit(Request::write(0, data, Context::default()));
        let other: Arc<FileDevice> = Arc::clone(&device);
        drop((queue, device));
        runtime.block_on(write).expect("completes").result.expect("is written");
        let queue = other.open_queue(&runtime).expect("a queue");
        let read = Request::read(0, Buffer::zeroed(4096), Context::default());
        assert!(complete(&runtime, &queue, read).buffer.iter().all(|&byte| byte == 7), "{runtime:?}");
    }
}
