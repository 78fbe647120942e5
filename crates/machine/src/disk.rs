//! Which block device a file or device node is on.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The name of the whole disk, such as `vda` or `loop3`, that holds `path` or that `path` is the node of, or would be once
/// created. None where no single disk is behind it, as with btrfs, memory or a network.
pub fn disk_of(path: &Path) -> Option<String> {
    let metadata = path.ancestors().find_map(|path| {
        // The ancestors of a relative path end with an empty one, which is the folder of the process.
        fs::metadata(if path.as_os_str().is_empty() { Path::new(".") } else { path }).ok()
    })?;
    let number = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    let (major, minor) = (libc::major(number), libc::minor(number));
    let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let is_part = folder.join("partition").exists();
    let whole = if is_part { folder.parent()? } else { &folder };
    Some(whole.file_name()?.to_str()?.replace('!', "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_disk_is_behind_has_none_and_every_disk_is_its_own() {
        assert_eq!(disk_of(Path::new("/proc/self/stat")), None);
        assert_eq!(disk_of(Path::new("/sys/missing/for/certain")), None);
        for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().expect("a name of the kernel");
            let node = Path::new("/dev").join(name.replace('!', "/"));
            if fs::metadata(&node).is_ok_and(|found| found.file_type().is_block_device()) {
                assert_eq!(disk_of(&node), Some(name.replace('!', "/")));
            }
        }
    }
}
