//! The files of a cluster: those of a data directory, or of one in memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::source::{ReadOnlyFile, Source};

/// Files by their paths from a folder on, with `/` between names.
pub trait Folder {
    /// All of them, in the order of their paths.
    fn paths(&self) -> Result<Vec<String>>;

    /// One of them, to be read.
    fn open(&self, path: &str) -> Result<Box<dyn Source + '_>>;
}

impl Folder for BTreeMap<String, Vec<u8>> {
    fn paths(&self) -> Result<Vec<String>> {
        Ok(self.keys().cloned().collect())
    }

    fn open(&self, path: &str) -> Result<Box<dyn Source + '_>> {
        match self.get(path) {
            Some(bytes) => Ok(Box::new(bytes)),
            None => Err(Error::new(ErrorKind::Missing, format!("there is no {path}"))),
        }
    }
}

/// How deep a data directory is: that of a tablespace in it is the deepest.
const DEPTH_MAX: usize = 8;

/// A data directory.
#[derive(Clone, Debug)]
pub struct DataDirectory {
    root: PathBuf,
}

impl DataDirectory {
    /// The one at `path`, or around it if it is a file of one; `None` if there is none. The second is the file's path in it.
    pub fn around(path: &Path) -> Option<(Self, Option<String>)> {
        let real = path.canonicalize().ok()?;
        let is_one = |root: &Path| {
            root.join("PG_VERSION").is_file() && root.join("global").is_dir() && root.join("base").is_dir()
        };
        if real.is_dir() {
            return is_one(&real).then_some((Self { root: real }, None));
        }
        let root = real.ancestors().skip(1).take(DEPTH_MAX).find(|root| is_one(root))?;
        let inside = real.strip_prefix(root).ok()?.to_str()?.to_owned();
        Some((Self { root: root.to_owned() }, Some(inside)))
    }

    fn collect(&self, folder: &str, depth: usize, paths: &mut Vec<String>) -> Result<()> {
        let place = self.root.join(folder);
        let doing = || format!("listing {}", place.display());
        for entry in fs::read_dir(&place).doing(doing)? {
            let entry = entry.doing(doing)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            // Logs and tablespaces may be links to elsewhere. What ended meanwhile is not there.
            match fs::metadata(entry.path()) {
                Ok(about) if about.is_dir() && depth < DEPTH_MAX => self.collect(&path, depth + 1, paths)?,
                Ok(about) if about.is_file() => paths.push(path),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Folder for DataDirectory {
    fn paths(&self) -> Result<Vec<String>> {
        let mut paths = Vec::new();
        self.collect("", 0, &mut paths)?;
        paths.sort_unstable();
        Ok(paths)
    }

    fn open(&self, path: &str) -> Result<Box<dyn Source + '_>> {
        Ok(Box::new(ReadOnlyFile::open(&self.root.join(path), false)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_is_found_from_any_of_its_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("data");
        fs::create_dir_all(root.join("base/5")).expect("made");
        fs::create_dir(root.join("global")).expect("made");
        fs::write(root.join("base/5/1259"), "x").expect("written");
        assert!(DataDirectory::around(&root).is_none(), "without a version it is none");
        fs::write(root.join("PG_VERSION"), "15\n").expect("written");
        let (found, file) = DataDirectory::around(&root).expect("found");
        assert_eq!(
            (found.paths().expect("listed"), file),
            (vec!["PG_VERSION".into(), "base/5/1259".into()], None)
        );
        let (found, file) = DataDirectory::around(&root.join("base/5/1259")).expect("found");
        assert_eq!(file.as_deref(), Some("base/5/1259"));
        assert_eq!(found.open("base/5/1259").expect("opened").size(), 1);
        assert!(DataDirectory::around(&root.join("base/5")).is_none());
        assert!(DataDirectory::around(folder.path()).is_none());
    }
}
