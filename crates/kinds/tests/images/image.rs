//! Images of real file systems, made by their own tools and filled by the kernel.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Runs a program to its end and gives what it printed; anything else than success ends the test.
pub fn output_of(program: &str, arguments: &[&OsStr]) -> String {
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; install its package"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// An image in a folder of its own, and a folder to mount it on.
pub struct Image {
    pub folder: TempDir,
    pub path: PathBuf,
    kind: &'static str,
}

/// Unmounts when it goes, and waits until the loop device has gone too: a namespace that was made meanwhile, of whoever
/// else works on this machine, may hold the mount for a moment longer.
pub struct Mounted(pub PathBuf, PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let left = Command::new("umount").arg(&self.0).status();
        let mut is_gone = left.is_ok_and(|status| status.success());
        for _ in 0..1000 {
            let held = Command::new("losetup").arg("-j").arg(&self.1).output();
            is_gone &= held.as_ref().is_ok_and(|held| held.status.success());
            if !is_gone || held.is_ok_and(|held| held.stdout.is_empty()) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(std::thread::panicking() || is_gone, "it is not unmounted");
    }
}

impl Image {
    pub fn make(kind: &'static str, size: u64, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        File::create(&path).and_then(|file| file.set_len(size)).expect("an image");
        fs::create_dir(folder.path().join("mount")).expect("a mount point");
        let force = if kind == "ext4" { "-F" } else { "-f" };
        let mut arguments: Vec<&OsStr> = vec![OsStr::new("-q"), OsStr::new(force)];
        arguments.extend(options.iter().map(OsStr::new));
        arguments.push(path.as_os_str());
        output_of(&format!("mkfs.{kind}"), &arguments);
        Self { folder, path, kind }
    }

    pub fn mount(&self) -> Mounted {
        let place = self.folder.path().join("mount");
        output_of(
            "mount",
            &[
                "-t".as_ref(),
                self.kind.as_ref(),
                "-o".as_ref(),
                "loop".as_ref(),
                self.path.as_ref(),
                place.as_ref(),
            ],
        );
        Mounted(place, self.path.clone())
    }

    /// Makes it, and fills it with what has every kind of block.
    pub fn filled(kind: &'static str, size: u64, options: &[&str]) -> Self {
        let image = Self::make(kind, size, options);
        let mounted = image.mount();
        fill(&mounted.0);
        drop(mounted);
        image
    }

    /// A copy of the image as it lies there, while it may be mounted.
    pub fn copy(&self, name: &str) -> PathBuf {
        let to = self.folder.path().join(name);
        fs::copy(&self.path, &to).expect("copied");
        to
    }
}

/// Small and large files, one in many pieces, a directory with many names, links, and attributes too large for an inode.
pub fn fill(root: &Path) {
    let folder = root.join("folder");
    fs::create_dir(&folder).expect("a folder");
    for index in 0..3000 {
        let name = format!("a-rather-long-name-for-a-file-so-that-the-folder-grows-{index:05}");
        fs::write(folder.join(name), vec![index as u8; index % 7 * 300]).expect("a file");
    }
    fs::write(root.join("large"), vec![1; 3 << 20]).expect("a file");
    // Every second block, so that there are many extents.
    let holed = File::create(root.join("pieces")).expect("a file");
    for block in 0..1500_u64 {
        holed.write_all_at(&[block as u8; 4096], block * 8192).expect("written");
    }
    holed.sync_all().expect("synced");
    std::os::unix::fs::symlink("x".repeat(900), root.join("long-link")).expect("a link");
    std::os::unix::fs::symlink("short", root.join("short-link")).expect("a link");
    let marked = root.join("marked");
    fs::write(&marked, "marked").expect("a file");
    for index in 0..3 {
        set_attribute(&marked, &format!("user.attribute{index}"), &[b'v'; 280]);
    }
    for index in (0..3000).step_by(3) {
        let name = format!("a-rather-long-name-for-a-file-so-that-the-folder-grows-{index:05}");
        fs::remove_file(folder.join(name)).expect("removed");
    }
}

/// The bytes that FIEMAP says a file has, as ranges on the device.
pub fn fiemap(path: &Path) -> Vec<(u64, u64)> {
    let listed = output_of("filefrag", &["-s".as_ref(), "-e".as_ref(), "-b512".as_ref(), path.as_ref()]);
    let rows = listed.lines().filter_map(|line| {
        // `   0:        0..    6143:      69632..     75775:   6144: ...`
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        let (first, last) = fields.get(2)?.split_once("..")?;
        fields[0].parse::<u64>().ok()?;
        Some((first.trim().parse::<u64>().ok()? * 512, (last.trim().parse::<u64>().ok()? + 1) * 512))
    });
    rows.collect()
}

fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    let path = CString::new(path.as_os_str().as_bytes()).expect("no zero");
    let name = CString::new(name).expect("no zero");
    // SAFETY: both strings end with zero, the value is as long as it is said to be, and all live across the call.
    let answer =
        unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}
