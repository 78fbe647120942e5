//! Who uses a block device of the kernel's.

use std::ffi::OsString;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Whether somebody uses a block device, and who: something of the kernel that has it for itself, such as a file system that is mounted, or
/// a program that has it open, as far as this user may see.
pub(crate) fn user_of(device: &Path) -> Option<String> {
    let alone = std::fs::File::options().read(true).custom_flags(libc::O_EXCL).open(device);
    if alone.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
        return Some("a file system that is mounted, or something else of the kernel".into());
    }
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    let is_number = |name: &OsString| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    for process in entries(Path::new("/proc")).filter(|entry| is_number(&entry.file_name())) {
        for open in entries(&process.path().join("fd")) {
            if std::fs::read_link(open.path()).is_ok_and(|path| path == device) {
                return Some(format!("process {}", process.file_name().display()));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_has_it_open_is_found() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().canonicalize().expect("a path");
        assert_eq!(user_of(&path), Some(format!("process {}", std::process::id())));
        let (_, path) = file.keep().expect("stays");
        assert_eq!(user_of(&path), None);
        std::fs::remove_file(path).expect("goes");
    }
}
