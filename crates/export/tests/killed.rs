//! A process that serves a file under a loop device under a file system, and writes to that itself, is killed; what it leaves can be removed
//! by others, without a hang. A program without the test harness, because it is its own victim.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rotproof_block::leaf::MemoryDevice;
use rotproof_export::{
    FuseExport, FuseOptions, LoopDevice, LoopOptions, abort_path, detach_path, find_by_backing_file,
    unmount_path,
};

/// Far more than anything here takes, far less than a hang.
const PATIENCE: Duration = Duration::from_secs(20);

/// In the environment of the victim: where to serve.
const DIRECTORY: &str = "ROTPROOF_TEST_SERVE";

fn main() {
    match std::env::var_os(DIRECTORY) {
        Some(directory) => serve(Path::new(&directory)),
        None => a_killed_export_leaves_only_what_others_can_remove(),
    }
}

fn serve(directory: &Path) {
    let memory = MemoryDevice::new(64 << 20, 512).expect("sizes that fit");
    let export = FuseExport::mount(memory, directory, FuseOptions::default()).expect("mounts");
    let device = LoopDevice::attach(export.path(), LoopOptions::default()).expect("attaches");
    writeln!(std::io::stdout(), "{}", device.path().display()).expect("somebody listens");
    // The file system appears when the other process has mounted it; then writes to it are always under way.
    let point = directory.with_file_name("fs");
    loop {
        let file = OpenOptions::new().write(true).custom_flags(libc::O_DSYNC).open(point.join("file"));
        let Ok(file) = file else { continue };
        for offset in 0.. {
            file.write_all_at(&[7; 4096], offset % 1000 * 4096).expect("served by this very process");
        }
    }
}

/// Kills and reaps the process it holds.
struct Victim(Child);

impl Victim {
    /// Whether it has ended within a few seconds of its kill.
    fn kill(&mut self) -> bool {
        let _ = self.0.kill();
        let deadline = Instant::now() + PATIENCE;
        while self.0.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        Instant::now() < deadline
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Removes what is left when the test fails.
struct Remains {
    file_system: PathBuf,
    export: PathBuf,
}

impl Drop for Remains {
    fn drop(&mut self) {
        let _ = abort_path(&self.export);
        let _ = unmount_path(&self.file_system, true);
        for entry in find_by_backing_file(&self.export.join("disk")) {
            let _ = detach_path(&entry.device);
        }
        let _ = unmount_path(&self.export, true);
    }
}

fn a_killed_export_leaves_only_what_others_can_remove() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let remains = Remains { file_system: scratch.path().join("fs"), export: scratch.path().join("export") };
    let (point, directory) = (&remains.file_system, &remains.export);
    std::fs::create_dir(point).expect("made");
    std::fs::create_dir(directory).expect("made");
    let program = std::env::current_exe().expect("this program");
    let child =
        Command::new(program).env(DIRECTORY, directory).stdout(Stdio::piped()).spawn().expect("starts");
    let mut victim = Victim(child);
    let mut device = String::new();
    let output = victim.0.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut device).expect("it says where the device is");
    let device = device.trim();
    for command in
        [vec!["mkfs.ext4", "-q", device], vec!["mount", device, point.to_str().expect("plain text")]]
    {
        let status = Command::new(command[0]).args(&command[1..]).status().expect("installed");
        assert!(status.success(), "{command:?}");
    }
    std::fs::write(point.join("file"), vec![1; 5 << 20]).expect("written");

    wait_until("the victim writes to its own file system", || {
        std::fs::read(point.join("file")).is_ok_and(|bytes| bytes.starts_with(&[7; 8192]))
    });
    let _ = victim.0.kill();
    abort_path(directory).expect("its connection is left");
    assert!(victim.kill(), "nothing keeps it alive any more");
    assert!(std::fs::metadata(directory.join("disk")).is_err(), "nobody serves it any more");
    let found = find_by_backing_file(&directory.join("disk"));
    assert_eq!(found.len(), 1, "the loop device outlives the process");
    assert_eq!(found[0].device, Path::new(device));
    unmount_path(point, true).expect("the file system's mount is left");
    detach_path(Path::new(device)).expect("the loop device is left");
    unmount_path(directory, true).expect("the dead mount is left");
    wait_until("the loop device lets go of the dead file", || {
        find_by_backing_file(&directory.join("disk")).is_empty()
    });
    drop(remains);
    scratch.close().expect("nothing is left");
}

fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
