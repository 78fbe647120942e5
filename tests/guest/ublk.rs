//! `rotproof serve --as ublk` in the guest, as people use it: its disk, its death, its successor.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rotproof_block::conformance::{On, check};
use rotproof_block::leaf::{FileDevice, FileOptions, MemoryDevice};
use rotproof_block::{Device, DeviceInfo, ErrorKind, Queue, Result, Runtime};
use rotproof_export::{UblkDevice, UblkOptions, free_ublk_number};

use crate::disk::{self, DISK_BYTES, rules};

const PATIENCE: Duration = Duration::from_secs(30);
const DISK: &str = "/dev/ublkb0";

pub fn rotproof(arguments: &[&str]) -> Command {
    let mut command = Command::new("/bin/rotproof");
    command.env("PATH", "/bin").args(arguments).current_dir("/run").stdin(Stdio::null());
    command
}

pub fn output(arguments: &[&str]) -> Output {
    rotproof(arguments).output().expect("it starts")
}

fn write_stack(name: &str, leaf: &str) {
    std::fs::write(format!("/run/{name}.yaml"), format!("stack: [{leaf}]\n")).expect("written");
}

/// Serves, and waits until it is ready.
fn start(arguments: &[&str]) -> Child {
    let arguments = [&["serve"], arguments, &["--as", "ublk", "--json"]].concat();
    let mut child = rotproof(&arguments).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("it was asked for");
    BufReader::new(stdout).read_line(&mut line).expect("read");
    assert!(line.contains("\"ready\":true") && line.contains(DISK), "{line}");
    child
}

/// Sends a signal, and gives how it ended.
pub fn end(child: &mut Child, signal: libc::c_int) -> Option<i32> {
    // SAFETY: the process is our child and has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("our child") {
            return status.code();
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn assert_gone() {
    for path in [DISK, "/dev/ublkc0"] {
        assert!(!Path::new(path).exists(), "{path} is still there");
    }
}

/// What is said to somebody whose kernel has none.
pub fn without_the_driver() {
    write_stack("memory", &format!("memory: {{ size: {DISK_BYTES}, block_size: 512 }}"));
    let refused = output(&["serve", "memory.yaml", "--as", "ublk"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{text}");
    assert!(text.contains("modprobe ublk_drv"), "{text}");
}

/// A device of this process's own, through its export. Closed from the top down, in the order of the fields.
struct Reached {
    file: Arc<FileDevice>,
    _served: UblkDevice,
}

impl Device for Reached {
    fn info(&self) -> DeviceInfo {
        self.file.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        self.file.open_queue(runtime)
    }
}

fn reached() -> Result<Arc<dyn Device>> {
    let memory: Arc<dyn Device> = MemoryDevice::new(4 << 20, 512)?;
    let options = UblkOptions { depth: 32, ..UblkOptions::default() };
    // The number of the one before is taken as long as a queue of the kit's has that open.
    let mut number = 0;
    let served = loop {
        number = free_ublk_number(number);
        match UblkDevice::add(&memory, number, &options) {
            Err(error) if error.kind() == ErrorKind::Os(libc::EEXIST) => number += 1,
            result => break result?,
        }
    };
    let file = FileDevice::open(&served.path(), FileOptions::default())?;
    Ok(Arc::new(Reached { file, _served: served }))
}

/// The export keeps the contract of a device, as seen by the file leaf that opens it.
pub fn conformance() {
    check(On::Uring, &reached).expect("every clause holds");
    assert_gone();
}

/// A disk like the others, with the same faults; afterwards nothing is left.
pub fn serve() {
    let [bad, bad_write] = rules();
    let mut child = start(&["memory.yaml", "--fault", &bad, "--fault", &bad_write]);
    let queues = std::fs::read_dir("/sys/block/ublkb0/mq").expect("its queues").count();
    assert_eq!(queues, 2, "one for each processor of this machine");
    disk::exercise(Path::new(DISK), 4);
    disk::file_system(Path::new(DISK));
    disk::write(&disk::open(Path::new(DISK)), 33 << 20..34 << 20, 6);
    let refused = output(&["serve", "memory.yaml", "--as", "ublk", "--name", "thief", "--recover", DISK]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && text.contains("is served by process"), "{text}");
    disk::verify(&disk::open(Path::new(DISK)), 33 << 20..34 << 20, 6);
    // Somebody still has it open.
    let held = disk::open(Path::new(DISK));
    assert_eq!(end(&mut child, libc::SIGTERM), Some(143));
    assert_gone();
    drop(held);
}

/// A server is killed under a program that writes; the next one goes on where it was.
pub fn recover() {
    std::fs::File::create("/run/disk.img").and_then(|file| file.set_len(DISK_BYTES)).expect("made");
    write_stack("file", "file: { path: disk.img }");
    let mut child = start(&["file.yaml"]);
    let device = disk::open(Path::new(DISK));
    disk::write(&device, 0..4 << 20, 5);
    let rounds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..8 {
                disk::write(&device, 4 << 20..8 << 20, 100 + round);
                rounds.store(round, Ordering::Relaxed);
            }
        });
        let deadline = Instant::now() + PATIENCE;
        while rounds.load(Ordering::Relaxed) < 1 {
            assert!(Instant::now() < deadline, "nothing is written");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(end(&mut child, libc::SIGKILL), None);
        write_stack("small", "memory: { size: 1MiB }");
        let other = output(&["serve", "small.yaml", "--as", "ublk", "--recover", DISK]);
        let text = String::from_utf8_lossy(&other.stderr).into_owned();
        assert!(other.status.code() == Some(2) && text.contains("that it was made from"), "{text}");
        let another = output(&["serve", "memory.yaml", "--as", "ublk", "--name", "x", "--recover", "7"]);
        assert_eq!(another.status.code(), Some(3), "there is no such device");
        child = start(&["file.yaml", "--name", "again", "--recover", DISK]);
        writer.join().expect("no write has failed");
    });
    disk::verify(&device, 0..4 << 20, 5);
    disk::verify(&device, 4 << 20..8 << 20, 107);
    // What the dead one has recorded is not its own any more.
    let cleaned = output(&["clean"]);
    assert!(cleaned.status.success(), "{}", String::from_utf8_lossy(&cleaned.stderr));
    disk::verify(&device, 4 << 20..8 << 20, 107);
    drop(device);
    assert_eq!(end(&mut child, libc::SIGTERM), Some(143));
    assert_gone();
    let file = disk::open(&PathBuf::from("/run/disk.img"));
    disk::verify(&file, 4 << 20..8 << 20, 107);
}

/// Nobody takes its place, and its device goes with `rotproof clean`.
pub fn clean() {
    let mut child = start(&["memory.yaml", "--name", "doomed"]);
    assert_eq!(end(&mut child, libc::SIGKILL), None);
    assert!(Path::new(DISK).exists(), "it waits for another server");
    let cleaned = output(&["clean"]);
    let text = String::from_utf8_lossy(&[cleaned.stdout, cleaned.stderr].concat()).into_owned();
    assert!(cleaned.status.success() && text.contains("the ublk device 0"), "{text}");
    assert_gone();
}
