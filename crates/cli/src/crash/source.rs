//! The file that `--recording` names: what it is, and how it comes into the folder of the results.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{ContentHash, Error, ErrorKind, Result};
use rotproof_crash::recording::{Reader, RecorderOptions, log_writes};
use rotproof_crash_fs::RECORDING;
use rotproof_spec::Bytes;

/// So much of a log is hashed at once.
const HASH_PIECE_BYTES: usize = 1 << 20;

/// A file that holds a recording.
pub struct Source<'a> {
    path: &'a Path,
    /// Tells it from others.
    id: u128,
    is_log: bool,
    /// Bytes of the device of a log, if somebody knows.
    size: Option<Bytes>,
}

impl<'a> Source<'a> {
    /// Fails if it is no recording, or if a size is given of one that has its own.
    pub fn look(path: &'a Path, size: Option<Bytes>) -> Result<Self> {
        if log_writes::is_one(path)? {
            return Ok(Self { path, id: hash_of(path)?, is_log: true, size });
        }
        if size.is_some() {
            let what = "`--size` is for logs of dm-log-writes; a recording says how large its device is";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(Self { path, id: Reader::open(path)?.header().id, is_log: false, size })
    }

    /// Where what is found goes if nothing is said: a folder for each recording.
    pub fn default_folder(&self) -> PathBuf {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let id = format!("{:032x}", self.id);
        super::default_folder().join(format!("{stem}-{}", &id[..8]))
    }

    /// The recording as it lies in the folder of the results: a link to it, or what was made of the log.
    pub fn bring(&self, folder: &Path) -> Result<PathBuf> {
        let recording = folder.join(RECORDING);
        if !self.is_log {
            link(self.path, &recording)?;
            return Ok(recording);
        }
        if recording.exists() {
            return match Reader::open(&recording)?.header().id == self.id {
                true => Ok(recording),
                false => Err(other_there(&recording, self.path)),
            };
        }
        // Whole or not there at all.
        let fresh = folder.join(format!(".{RECORDING}.{}", std::process::id()));
        let size = self.size.map(|size| size.0);
        let made = log_writes::import(self.path, &fresh, size, self.id, RecorderOptions::default());
        let made = made.and_then(|_| {
            std::fs::rename(&fresh, &recording).doing(|| format!("writing {}", recording.display()))
        });
        if made.is_err() {
            // What comes first is why it could not be made.
            let _ = std::fs::remove_file(&fresh);
        }
        made.map(|()| recording)
    }
}

fn hash_of(path: &Path) -> Result<u128> {
    let doing = || format!("reading {}", path.display());
    let mut file = File::open(path).doing(doing)?;
    let mut piece = vec![0; HASH_PIECE_BYTES];
    let mut hash = ContentHash(0);
    loop {
        let length = file.read(&mut piece).doing(doing)?;
        if length == 0 {
            return Ok(hash.0);
        }
        let both = [&hash.0.to_le_bytes()[..], &piece[..length]].concat();
        hash = ContentHash::of(&both);
    }
}

/// Makes `name` stand for a file, or finds that it does.
pub fn link(file: &Path, name: &Path) -> Result<()> {
    let doing = || format!("linking {} as {}", file.display(), name.display());
    let whole = file.canonicalize().doing(doing)?;
    match name.canonicalize() {
        Ok(there) if there == whole => Ok(()),
        Ok(_) => Err(other_there(name, file)),
        Err(_) => std::os::unix::fs::symlink(&whole, name).doing(doing),
    }
}

fn other_there(name: &Path, file: &Path) -> Error {
    let what = format!(
        "{} is there already, and is not {}; name another folder with `--results`",
        name.display(),
        file.display()
    );
    Error::new(ErrorKind::Refused, what)
}

/// Tells one image from another without reading all of it.
pub fn name_of(base: Option<&Path>) -> Result<Option<[i64; 3]>> {
    let name = |base: &Path| {
        let about = base.metadata().doing(|| format!("looking at {}", base.display()))?;
        Ok([i64::try_from(about.len()).unwrap_or(i64::MAX), about.mtime(), about.mtime_nsec()])
    };
    base.map(name).transpose()
}
