//! The mark on a file that Rotproof has filled, by which it knows the file again: an extended attribute that says what filled
//! it, which file it was, and when it was last written to.
//!
//! A file is ours only as long as nobody else has written to it: the time of its last change must be the one in the mark. A
//! copy is another file. Where a file system has no extended attributes, and on devices, there is no mark.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// Whose content it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// A load has made it up, so nobody misses it.
    ByLoad,
    /// Programs have written it to a stack that was served. Only serving it again takes it for granted.
    ByClients,
}

/// The attribute. Programs may use those of `user.`; it goes with the file.
const NAME: &std::ffi::CStr = c"user.rotproof";
const VERSION: &str = "1";
const BYTES_MAX: usize = 128;

/// What has filled the file, if it is as Rotproof left it.
pub(crate) fn read(file: &File) -> Option<Filled> {
    let mut bytes = [0u8; BYTES_MAX];
    // SAFETY: the name ends with zero, and the buffer lives across the call, which fills it up to its length.
    let length =
        unsafe { libc::fgetxattr(file.as_raw_fd(), NAME.as_ptr(), bytes.as_mut_ptr().cast(), bytes.len()) };
    let text = std::str::from_utf8(bytes.get(..usize::try_from(length).ok()?)?).ok()?;
    [Filled::ByLoad, Filled::ByClients]
        .into_iter()
        .find(|&filled| mark(file, filled).as_deref() == Some(text))
}

/// Marks the file as it is now. Where that cannot be, the next use takes it for somebody else's.
pub(crate) fn write(file: &File, filled: Filled) {
    let Some(text) = mark(file, filled) else { return };
    // SAFETY: the name ends with zero, and the text lives across the call, which reads as much of it as it has.
    unsafe { libc::fsetxattr(file.as_raw_fd(), NAME.as_ptr(), text.as_ptr().cast(), text.len(), 0) };
}

fn mark(file: &File, filled: Filled) -> Option<String> {
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let word = match filled {
        Filled::ByLoad => "load",
        Filled::ByClients => "clients",
    };
    let (inode, size) = (metadata.ino(), metadata.len());
    Some(format!("{VERSION} {word} {inode} {size} {}.{:09}", metadata.mtime(), metadata.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_file_is_known_again_until_somebody_writes_to_it_and_a_copy_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        fs::write(&path, "content").expect("written");
        let mut file = File::options().read(true).append(true).open(&path).expect("there");
        assert_eq!(read(&file), None);
        for filled in [Filled::ByLoad, Filled::ByClients] {
            write(&file, filled);
            assert_eq!(read(&file), Some(filled), "this test needs a file system with extended attributes");
        }
        let copy = folder.path().join("y");
        let copied = std::process::Command::new("cp").args(["-a"]).args([&path, &copy]).status();
        assert!(copied.expect("cp is there").success());
        assert_eq!(read(&File::open(&copy).expect("there")), None, "a copy is somebody's");
        // A clock may stand still between two writes.
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).expect("set");
        assert_eq!(read(&file), None);
        write(&file, Filled::ByLoad);
        file.write_all(b"more").expect("written");
        assert_eq!(read(&file), None, "written to since");
    }
}
