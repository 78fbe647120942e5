//! Room on the file systems that a run writes to, asked for before it writes.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rotproof_block::{Error, ErrorKind, Result};

/// Bytes that this user may still write on the file system that `path` is on, or would be once created.
pub fn free_bytes(path: &Path) -> Result<u64> {
    let folder = existing_ancestor(path);
    let name = CString::new(folder.as_os_str().as_bytes())
        .map_err(|_| Error::new(ErrorKind::Invalid, "a path must not hold a zero byte"))?;
    let mut statistics = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `name` ends with zero, `statistics` is large enough, and read only after success.
    let statistics = unsafe {
        if libc::statvfs(name.as_ptr(), statistics.as_mut_ptr()) != 0 {
            let error = std::io::Error::last_os_error();
            return Err(Error::from_io(error, format!("asking for the free space of {}", folder.display())));
        }
        statistics.assume_init()
    };
    Ok(statistics.f_bavail.saturating_mul(statistics.f_frsize))
}

/// Fails with [`ErrorKind::NoSpace`] unless `bytes` more fit where `path` is; `what` begins the sentence, for example
/// "the results folder".
pub fn require_free(path: &Path, bytes: u64, what: &str) -> Result<()> {
    let free = free_bytes(path)?;
    if bytes <= free {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::NoSpace,
        format!(
            "{what} needs {bytes} bytes, but only {free} are free at {}; free some space, or choose another place \
             or a smaller size",
            path.display()
        ),
    ))
}

/// Fails with [`ErrorKind::NoSpace`] unless an image file of `size` bytes at `path` could be filled: what it holds
/// already need not be free. A block device always has its room.
pub fn require_image_fits(path: &Path, size: u64) -> Result<()> {
    match bytes_to_fill(path, size) {
        0 => Ok(()),
        missing => require_free(path, missing, &format!("the file {}", path.display())),
    }
}

/// How many more bytes the file system must give until an image of `size` bytes is filled.
fn bytes_to_fill(path: &Path, size: u64) -> u64 {
    match path.metadata() {
        // `blocks` counts in units of 512 bytes, whatever the file system's.
        Ok(metadata) if metadata.is_file() => size.saturating_sub(metadata.blocks().saturating_mul(512)),
        Ok(_) => 0,
        Err(_) => size,
    }
}

/// `path` or the nearest folder above it that is there.
fn existing_ancestor(path: &Path) -> &Path {
    path.ancestors()
        .find(|ancestor| ancestor.exists())
        .unwrap_or_else(|| Path::new(if path.is_absolute() { "/" } else { "." }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_yet_counts_on_the_folder_above() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let free = free_bytes(&folder.path().join("not/there/yet")).expect("asked");
        assert!(free > 0);
        assert!(require_free(folder.path(), 1, "one byte").is_ok());
        assert!(free_bytes(Path::new("a-relative-name-that-is-not-there")).is_ok());
    }

    #[test]
    fn too_much_is_refused_with_both_numbers() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let error = require_image_fits(&folder.path().join("disk.img"), 1 << 60).expect_err("an exbibyte");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().contains("1152921504606846976"), "{error}");
    }

    #[test]
    fn space_that_the_image_holds_already_need_not_be_free() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let image = folder.path().join("disk.img");
        assert_eq!(bytes_to_fill(&image, 4 << 20), 4 << 20);
        std::fs::write(&image, vec![1u8; 1 << 20]).expect("written");
        std::fs::File::open(&image).and_then(|file| file.sync_all()).expect("allocated");
        assert!(
            (3 << 20..(3 << 20) + 65536).contains(&bytes_to_fill(&image, 4 << 20).next_multiple_of(65536))
        );
        assert_eq!(bytes_to_fill(&image, 4096), 0);
        assert_eq!(bytes_to_fill(Path::new("/dev/null"), u64::MAX), 0, "no regular file, no question");
    }
}
