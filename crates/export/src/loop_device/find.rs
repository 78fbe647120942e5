//! Which loop devices have which file, from sysfs alone: the file and whoever serves it are not touched, so this
//! also works when they are dead.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The kernel adds this to the path of a file that has been removed since.
const DELETED: &[u8] = b" (deleted)";

/// A loop device with a file attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopEntry {
    /// The block device, such as `/dev/loop0`.
    pub device: PathBuf,
    /// The file, as the kernel names it.
    pub backing_file: PathBuf,
}

/// The loop devices whose backing file is `file`, compared by its absolute path.
pub fn find_by_backing_file(file: &Path) -> Vec<LoopEntry> {
    let Ok(entries) = fs::read_dir("/sys/block") else { return Vec::new() };
    let mut found: Vec<_> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("loop")?.parse().ok())
        .filter_map(|number: u32| Some((number, backing_file(number)?)))
        .filter(|(_, backing_file)| is_same_file(backing_file, file))
        .collect();
    found.sort();
    let entry =
        |(number, backing_file)| LoopEntry { device: format!("/dev/loop{number}").into(), backing_file };
    found.into_iter().map(entry).collect()
}

/// The file attached to a loop device, if there is one.
pub(super) fn backing_file(number: u32) -> Option<PathBuf> {
    let text = fs::read(format!("/sys/block/loop{number}/loop/backing_file")).ok()?;
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    (!text.is_empty()).then(|| PathBuf::from(std::ffi::OsStr::from_bytes(text)))
}

pub(super) fn is_same_file(backing_file: &Path, file: &Path) -> bool {
    let backing = backing_file.as_os_str().as_bytes();
    backing_file == file || backing.strip_suffix(DELETED) == Some(file.as_os_str().as_bytes())
}
