//! Files that are written beside the one they replace: there is the old one or all of the new one, and what a link points to
//! is not written to.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

/// Puts a file with this content at `path`, whatever is there.
pub fn write_whole(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let doing = || format!("writing {}", path.display());
    let Some(name) = path.file_name() else {
        return Err(Error::new(ErrorKind::Invalid, format!("{} is no name of a file", path.display())));
    };
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(beside);
    // One of a process that had the same number and was killed.
    let _ = fs::remove_file(&beside);
    // Neither follows a link: a new file is none, and a name is replaced, not what it stands for.
    let written = File::create_new(&beside)
        .and_then(|mut file| file.write_all(content.as_ref()))
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written.doing(doing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_replaced_and_what_it_points_to_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let (page, letter) = (folder.path().join("page"), folder.path().join("letter"));
        fs::write(&letter, "dear").expect("written");
        std::os::unix::fs::symlink(&letter, &page).expect("linked");
        write_whole(&page, "new").expect("written");
        write_whole(&page, "newer").expect("written again");
        assert_eq!(fs::read(&letter).expect("it is there"), b"dear");
        assert_eq!(fs::read(&page).expect("it is there"), b"newer");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing beside them");
        fs::create_dir(folder.path().join("taken")).expect("made");
        write_whole(&folder.path().join("taken"), "x").expect_err("a folder is there");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 3, "nothing beside them");
    }
}
