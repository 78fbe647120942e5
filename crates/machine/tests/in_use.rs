//! What is dear to somebody is not overwritten: real file systems, partition tables and swap space, made by the
//! programs that users have. Needs root and loop devices.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rotproof_block::ErrorKind;
use rotproof_export::{LoopDevice, LoopOptions};
use rotproof_machine::{Claim, Filled, Use};
use tempfile::TempDir;

fn image(sandbox: &TempDir, name: &str, size_mib: u64) -> PathBuf {
    let path = sandbox.path().join(name);
    File::create(&path).and_then(|file| file.set_len(size_mib << 20)).expect("a sparse image");
    path
}

fn run(program: &str, arguments: &[&str], last: &Path) {
    let output = Command::new(program)
        .args(arguments)
        .arg(last)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program} is needed: {error}"));
    assert!(output.status.success(), "{program} failed: {}", String::from_utf8_lossy(&output.stderr));
}

fn partition(image: &Path, script: &str) {
    use std::io::Write;
    let mut child = Command::new("sfdisk")
        .arg("--quiet")
        .arg(image)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("sfdisk is needed: {error}"));
    child.stdin.take().expect("piped").write_all(script.as_bytes()).expect("written");
    assert!(child.wait().expect("our child").success(), "sfdisk failed");
}

fn attach(image: &Path) -> LoopDevice {
    LoopDevice::attach(image, LoopOptions { direct_io: false, ..LoopOptions::default() }).expect("attached")
}

fn claim(path: &Path, overwrite: bool) -> rotproof_block::Result<Claim> {
    Claim::of_path(path, &Use::fill(Filled::ByLoad, overwrite))
}

fn refusal(path: &Path, overwrite: bool) -> String {
    let error = claim(path, overwrite).expect_err("it must be refused");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    error.to_string()
}

/// Refused without permission, in these words, and allowed with it.
fn needs_permission(path: &Path, words: &str) {
    let text = refusal(path, false);
    assert!(text.contains(words) && text.contains("--overwrite"), "{text}");
    drop(claim(path, true).expect("permitted"));
}

/// Refused with permission too, in these words.
fn is_in_use(path: &Path, words: &str) {
    for overwrite in [false, true] {
        let text = refusal(path, overwrite);
        assert!(text.contains(words), "{text}");
    }
}

/// A mount that goes with the test, even if that fails.
struct Mounted(PathBuf);

impl Mounted {
    fn new(sandbox: &TempDir, device: &Path, name: &str) -> Self {
        let point = sandbox.path().join(name);
        std::fs::create_dir(&point).expect("created");
        run("mount", &[device.to_str().expect("UTF-8")], &point);
        Self(point)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn what_the_usual_programs_make_is_recognised() {
    let sandbox = tempfile::tempdir().expect("a temporary folder");
    for (program, arguments, size_mib, words) in [
        ("mkfs.ext2", &["-q", "-F"][..], 8, "an ext2 file system"),
        ("mkfs.ext3", &["-q", "-F"], 8, "an ext3 file system"),
        ("mkfs.ext4", &["-q", "-F"], 8, "an ext4 file system"),
        ("mkfs.xfs", &["-q"], 300, "an XFS file system"),
        ("mkfs.btrfs", &["-q"], 128, "a btrfs file system"),
        ("mkswap", &[], 8, "swap space"),
    ] {
        let path = image(&sandbox, program, size_mib);
        drop(claim(&path, false).expect("empty so far"));
        run(program, arguments, &path);
        needs_permission(&path, words);
    }
    let path = image(&sandbox, "gpt", 8);
    partition(&path, "label: gpt\n,4M\n,\n");
    needs_permission(&path, "a GPT partition table");
    // What is left of it when its beginning has been overwritten.
    let mut content = std::fs::read(&path).expect("readable");
    content[..1 << 20].fill(0);
    std::fs::write(&path, content).expect("written");
    needs_permission(&path, "a GPT partition table (its backup)");
    let path = image(&sandbox, "mbr", 8);
    partition(&path, "label: dos\n,4M\n,\n");
    needs_permission(&path, "an MBR partition table");
}

#[test]
fn a_block_device_with_a_file_system_needs_permission_and_a_mounted_one_has_none() {
    let sandbox = tempfile::tempdir().expect("a temporary folder");
    let path = image(&sandbox, "disk.img", 8);
    let attached = attach(&path);
    let device = attached.path().to_owned();
    drop(claim(&device, false).expect("a blank device"));
    is_in_use(&path, &format!("attached to {}", device.display()));
    run("mkfs.ext4", &["-q", "-F"], &device);
    needs_permission(&device, "an ext4 file system");
    let mounted = Mounted::new(&sandbox, &device, "mount");
    let place = mounted.0.display().to_string();
    is_in_use(&device, &format!("mounted on {place}"));
    is_in_use(&path, &format!("attached to {} and mounted on {place}", device.display()));
    let other_name = sandbox.path().join("link.img");
    std::fs::hard_link(&path, &other_name).expect("linked");
    is_in_use(&other_name, "attached to");
    drop(mounted);
    needs_permission(&device, "an ext4 file system");
    attached.detach().expect("detached");
    needs_permission(&path, "an ext4 file system");
}

#[test]
fn a_device_of_a_mounted_btrfs_is_in_use_whatever_the_table_of_mounts_shows() {
    let sandbox = tempfile::tempdir().expect("a temporary folder");
    let (one, two) = (image(&sandbox, "one.img", 128), image(&sandbox, "two.img", 128));
    let devices = [attach(&one), attach(&two)];
    let [first, second] = devices.each_ref().map(|device| device.path().to_owned());
    run("mkfs.btrfs", &["-q", "-f", "-d", "raid1", "-m", "raid1", first.to_str().expect("UTF-8")], &second);
    let mounted = Mounted::new(&sandbox, &first, "mount");
    is_in_use(&first, "mounted on");
    is_in_use(&second, "in use");
    drop(mounted);
    needs_permission(&second, "a btrfs file system");
    for device in devices {
        run("btrfs", &["device", "scan", "--forget"], device.path());
        device.detach().expect("detached");
    }
}

#[test]
fn what_another_program_claims_is_in_use() {
    let sandbox = tempfile::tempdir().expect("a temporary folder");
    let attached = attach(&image(&sandbox, "disk.img", 8));
    let other =
        OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(attached.path()).expect("claimed");
    is_in_use(attached.path(), "in use");
    drop(other);
    drop(claim(attached.path(), false).expect("free again"));
    attached.detach().expect("detached");
}

#[test]
fn a_disk_whose_partition_is_mounted_is_in_use() {
    let sandbox = tempfile::tempdir().expect("a temporary folder");
    let path = image(&sandbox, "disk.img", 16);
    partition(&path, "label: gpt\n,8M\n,\n");
    let output = Command::new("losetup")
        .args(["--find", "--show", "--partscan"])
        .arg(&path)
        .output()
        .expect("losetup is needed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let disk = PathBuf::from(String::from_utf8(output.stdout).expect("UTF-8").trim());
    let detach = Detach(disk.clone());
    let first = PathBuf::from(format!("{}p1", disk.display()));
    if !first.exists() {
        // A kernel that reads no partition tables can be told of a partition all the same: number, start, sectors.
        let arguments = [&disk.display().to_string(), "1", "2048", "16384"];
        assert!(Command::new("addpart").args(arguments).status().expect("addpart is needed").success());
    }
    run("mkfs.ext4", &["-q", "-F"], &first);
    needs_permission(&disk, "a GPT partition table");
    needs_permission(&first, "an ext4 file system");
    let mounted = Mounted::new(&sandbox, &first, "mount");
    is_in_use(&disk, "which is mounted on");
    is_in_use(&first, "is mounted on");
    drop(mounted);
    drop(detach);
}

#[test]
fn swap_space_in_use_is_left_alone() {
    let sandbox = tempfile::tempdir().expect("a temporary folder");
    let attached = attach(&image(&sandbox, "swap.img", 8));
    run("mkswap", &[], attached.path());
    needs_permission(attached.path(), "swap space");
    run("swapon", &["--priority", "0"], attached.path());
    let swap = Swap(attached.path().to_owned());
    is_in_use(attached.path(), "in use as swap space");
    drop(swap);
    needs_permission(attached.path(), "swap space");
    attached.detach().expect("detached");
}

/// A loop device that goes with the test.
struct Detach(PathBuf);

impl Drop for Detach {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// Swap space that goes with the test.
struct Swap(PathBuf);

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(&self.0).status();
    }
}

#[test]
fn what_only_blkid_knows_is_called_what_blkid_calls_it() {
    let sandbox = tempfile::tempdir().expect("a temporary folder");
    let path = image(&sandbox, "bfs", 8);
    run("mkfs.bfs", &[], &path);
    needs_permission(&path, "what blkid takes for bfs");
}

#[test]
fn a_device_is_locked_for_others_and_remembered_until_somebody_else_writes_to_it() {
    use std::os::unix::fs::FileExt;
    let sandbox = tempfile::tempdir().expect("a temporary folder");
    let attached = attach(&image(&sandbox, "disk.img", 8));
    let device = attached.path();
    let write = |offset: u64| {
        let file = OpenOptions::new().write(true).open(device).expect("opens");
        file.write_all_at(&[7; 4096], offset).and_then(|()| file.sync_all()).expect("written");
    };
    let claimed = claim(device, false).expect("blank");
    is_in_use(device, &format!("in use by process {}", std::process::id()));
    Claim::of_path(device, &Use::READ).expect_err("not even read");
    let excluded = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(device);
    assert_eq!(excluded.expect_err("the kernel's own claim").raw_os_error(), Some(libc::EBUSY));
    write(1 << 20);
    drop(claimed);
    drop(claim(device, false).expect("what this process has written, it may write over"));
    write(2 << 20);
    needs_permission(device, "it holds data");
    let readers = [(); 2].map(|()| Claim::of_path(device, &Use::READ).expect("readers share"));
    is_in_use(device, "in use by process");
    drop(readers);
    drop(claim(device, true).expect("free again"));
    attached.detach().expect("detached");
}
