//! Files without a name: they grow while a run goes on, are copied to where they belong in the end, and are gone with
//! the process on every other way out, so that nobody has to remove them.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rotproof_block::Result;
use rotproof_block::error::IoContext;

/// A new nameless file on the file system of `folder`, gone with the process.
pub fn scratch_file(folder: &Path) -> Result<File> {
    let nameless =
        OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(folder);
    nameless
        .or_else(|_| unlinked(folder))
        .doing(|| format!("creating a temporary file in {}", folder.display()))
}

/// For file systems without `O_TMPFILE`.
fn unlinked(folder: &Path) -> io::Result<File> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!(".rotproof-{}-{number}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Copies everything that was written to a new file at `path`.
pub(crate) fn publish(mut scratch: File, path: &Path) -> Result<()> {
    let mut copy = || -> io::Result<()> {
        scratch.seek(SeekFrom::Start(0))?;
        let mut file = File::create_new(path)?;
        io::copy(&mut scratch, &mut file)?;
        Ok(())
    };
    copy().doing(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_scratch_file_has_no_name_until_it_is_published() {
        let folder = tempfile::tempdir().expect("a folder");
        let makers: [fn(&Path) -> io::Result<File>; 2] =
            [|folder| scratch_file(folder).map_err(|error| io::Error::other(error.to_string())), unlinked];
        for make in makers {
            let mut file = make(folder.path()).expect("a file");
            file.write_all(b"rows").expect("written");
            assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
            let path = folder.path().join("x");
            publish(file, &path).expect("copied");
            assert_eq!(std::fs::read(&path).expect("it is there"), b"rows");
            std::fs::remove_file(path).expect("removed");
        }
    }
}
