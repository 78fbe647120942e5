//! Whether a device can be asked for its completions.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Whether `path`, a block device, or a file that is there or can be made, lies on a device whose queues can be polled.
/// What cannot be found out counts as no.
pub fn can_be_polled(path: &Path) -> bool {
    let folder = || path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(metadata) = fs::metadata(path).or_else(|_| fs::metadata(folder())) else { return false };
    let device = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    let node = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    // A partition has the queue of its disk.
    [format!("{node}/queue/io_poll"), format!("{node}/../queue/io_poll")]
        .iter()
        .any(|file| fs::read_to_string(file).is_ok_and(|text| text.trim() == "1"))
}
