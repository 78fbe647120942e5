//! What `rotproof load` puts its load on, as people write it, and the refusal to write where something is.

use std::fmt;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rotproof_block::leaf::{
    DiskProfile, FileOptions, MemoryDevice, NbdDevice, NbdUri, NullDevice, SimulatedDisk,
};
use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_load::FileEngine;
use rotproof_machine::registry::Registry;
use rotproof_machine::{Claim, ClaimedDevice, Filled, Use};
use rotproof_spec::Bytes;

/// A device, file or export, by its path or URI, or a word for one that is made for the purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadTarget {
    /// A block device or regular file.
    Path(PathBuf),
    /// An export of an NBD server.
    Nbd(NbdUri),
    /// `memory:1GiB`.
    Memory(Bytes),
    /// `null:1GiB`, which keeps no data.
    Null(Bytes),
    /// `disk:ssd:1GiB`, simulated, under virtual time.
    Disk(SimulatedKind, Bytes),
}

/// Which simulated disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum SimulatedKind {
    Hdd,
    Ssd,
    Nvme,
}

impl FromStr for LoadTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wants_size = |word: &str| format!("`{text}` has no size; write for example {word}:1GiB");
        // A number alone is bytes, and nobody means so few.
        let sized = |size: &str| match size.parse::<Bytes>()? {
            Bytes(few @ ..512) => {
                Err(format!("`{text}` has {few} bytes, less than one block; did you mean `{text}MiB`?"))
            }
            size => Ok(size),
        };
        if text.starts_with("nbd:") || text.starts_with("nbd+unix:") || text.starts_with("nbds") {
            return text.parse().map(Self::Nbd).map_err(|error: Error| error.to_string());
        }
        // A path with a colon can be written ./memory:x.
        match text.split_once(':') {
            Some(("memory", size)) => Ok(Self::Memory(sized(size)?)),
            Some(("null", size)) => Ok(Self::Null(sized(size)?)),
            Some(("disk", rest)) => {
                let (profile, size) = rest.split_once(':').ok_or_else(|| wants_size("disk:ssd"))?;
                let kind = match profile {
                    "hdd" => SimulatedKind::Hdd,
                    "ssd" => SimulatedKind::Ssd,
                    "nvme" => SimulatedKind::Nvme,
                    other => return Err(format!("there is no disk `{other}`; hdd, ssd and nvme are known")),
                };
                Ok(Self::Disk(kind, sized(size)?))
            }
            _ if matches!(text, "memory" | "null") => Err(wants_size(text)),
            _ if text.is_empty() => Err("an empty target; give a path".into()),
            _ => Ok(Self::Path(text.into())),
        }
    }
}

impl fmt::Display for LoadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Nbd(uri) => uri.fmt(f),
            Self::Memory(size) => write!(f, "memory:{size}"),
            Self::Null(size) => write!(f, "null:{size}"),
            Self::Disk(SimulatedKind::Hdd, size) => write!(f, "disk:hdd:{size}"),
            Self::Disk(SimulatedKind::Ssd, size) => write!(f, "disk:ssd:{size}"),
            Self::Disk(SimulatedKind::Nvme, size) => write!(f, "disk:nvme:{size}"),
        }
    }
}

/// How to open a target.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Anything will be written.
    pub writes: bool,
    /// What is there may be destroyed.
    pub overwrite: bool,
    /// Past the page cache.
    pub direct: bool,
    /// How a file or block device is read and written.
    pub engine: FileEngine,
    /// The part to use, from the beginning; a file that is made becomes this large.
    pub size: Option<Bytes>,
    /// Others do their shares of the same load on it meanwhile.
    pub is_shared: bool,
}

impl Access {
    fn wanted(self) -> Use {
        let size = self.size.map(|size| size.0);
        match self.writes {
            true => Use { is_shared: self.is_shared, size, ..Use::fill(Filled::ByLoad, self.overwrite) },
            false => Use::READ,
        }
    }
}

impl LoadTarget {
    /// Whether time is virtual there.
    pub fn is_simulated(&self) -> bool {
        matches!(self, Self::Disk(..))
    }

    /// Whether it keeps what is written to it.
    pub fn keeps_data(&self) -> bool {
        !matches!(self, Self::Null(_))
    }

    /// Opens it; until it is dropped, nobody else may use it. Fails with [`ErrorKind::Refused`] where somebody does, and where
    /// something is that would be overwritten without permission.
    pub fn open(&self, access: Access) -> Result<Arc<dyn Device>> {
        if access.engine != FileEngine::IoUring && !matches!(self, Self::Path(_)) {
            let word = access.engine.word();
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("--ioengine {word} is for files and block devices, and {self} is none"),
            ));
        }
        match self {
            Self::Path(path) => open_path(path, access),
            Self::Nbd(uri) => {
                let device = NbdDevice::connect(uri)?;
                refuse_size(access.size, "an NBD export")?;
                let claim = Claim::of_export(&device, &access.wanted(), Registry::of_user()?.folder())?;
                Ok(ClaimedDevice::new(device, claim))
            }
            Self::Memory(size) => {
                refuse_size(access.size, "a device in memory")?;
                Ok(MemoryDevice::new(size.0, 512)?)
            }
            Self::Null(size) => {
                refuse_size(access.size, "a device that stores nothing")?;
                Ok(NullDevice::new(size.0)?)
            }
            Self::Disk(kind, size) => {
                refuse_size(access.size, "a simulated disk")?;
                let profile = match kind {
                    SimulatedKind::Hdd => DiskProfile::HDD,
                    SimulatedKind::Ssd => DiskProfile::SSD,
                    SimulatedKind::Nvme => DiskProfile::NVME,
                };
                Ok(SimulatedDisk::new(size.0, 512, profile)?)
            }
        }
    }
}

fn refuse_size(size: Option<Bytes>, what: &str) -> Result<()> {
    match size {
        None => Ok(()),
        Some(_) => Err(Error::new(
            ErrorKind::Invalid,
            format!("--size is for files and block devices; {what} has a size of its own"),
        )),
    }
}

/// Fails on a block device that the kernel lets nobody write to: it can be opened for it, and refuses each write.
fn refuse_read_only(path: &Path) -> Result<()> {
    let Some(device) = fs::metadata(path).ok().filter(|about| about.file_type().is_block_device()) else {
        return Ok(());
    };
    let (major, minor) = (libc::major(device.rdev()), libc::minor(device.rdev()));
    match fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro")) {
        Ok(flag) if flag.trim() == "1" => {
            let why = format!("{} is read-only; only `blockdev --setrw` changes that", path.display());
            Err(Error::new(ErrorKind::Invalid, why))
        }
        _ => Ok(()),
    }
}

fn open_path(path: &Path, access: Access) -> Result<Arc<dyn Device>> {
    let Access { writes, direct, engine, size, .. } = access;
    let options = FileOptions {
        size_bytes: size.map(|size| size.0),
        direct,
        read_only: !writes,
        create: writes,
        ..FileOptions::default()
    };
    if path.is_dir() {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("{} is a folder; give a file in it, which is made if it does not exist", path.display()),
        ));
    }
    if !path.exists() {
        let missing =
            |why: &str| Error::new(ErrorKind::Missing, format!("{} does not exist{why}", path.display()));
        match (writes, size) {
            (false, _) => {
                return Err(missing("; to have it made and written first, add --prefill --size 1GiB"));
            }
            (true, None) => return Err(missing("; give its --size to have it made")),
            (true, Some(size)) => rotproof_machine::require_image_fits(path, size.0)?,
        }
    }
    if writes {
        refuse_read_only(path)?;
    }
    let claim = Claim::of_path(path, &access.wanted())?;
    Ok(ClaimedDevice::new(engine.open(path, options)?, claim))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_as_people_write_them_and_survive_their_text() {
        for text in [
            "/dev/sdb",
            "disk.img",
            "./memory:x",
            "memory:1GiB",
            "null:64MiB",
            "disk:ssd:1GiB",
            "disk:hdd:1GiB",
            "nbd://localhost/x",
            "nbd+unix:///x?socket=/s",
        ] {
            let target: LoadTarget = text.parse().expect(text);
            assert_eq!(target.to_string(), text);
        }
        for text in
            ["", "memory", "null", "memory:much", "disk:ssd", "disk:tape:1GiB", "nbd:localhost", "nbds://x/"]
        {
            text.parse::<LoadTarget>().expect_err(text);
        }
        assert!("disk:ssd:1GiB".parse::<LoadTarget>().expect("a disk").is_simulated());
        assert!(!"null:1GiB".parse::<LoadTarget>().expect("null").keeps_data());
    }

    fn refused(path: &Path, access: Access) -> ErrorKind {
        LoadTarget::Path(path.into()).open(access).err().expect("refused").kind()
    }

    #[test]
    fn what_holds_anything_is_written_only_with_permission_and_read_without() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        let size = Some(Bytes(1 << 20));
        let access = Access {
            writes: true,
            overwrite: false,
            direct: false,
            engine: FileEngine::IoUring,
            size,
            is_shared: false,
        };
        let read = Access { writes: false, ..access };
        assert_eq!(refused(&path, read), ErrorKind::Missing);
        assert_eq!(refused(&path, Access { size: None, ..access }), ErrorKind::Missing);
        assert!(!path.exists());
        let target = LoadTarget::Path(path.clone());
        let made = target.open(access).expect("made");
        assert_eq!(made.info().size, 1 << 20);
        for second in [access, read, Access { overwrite: true, ..access }] {
            assert_eq!(refused(&path, second), ErrorKind::Refused, "two at once");
        }
        drop(made);
        target.open(access).expect("still empty");
        fs::write(&path, vec![7; 1 << 20]).expect("written");
        // A clock may stand still between two writes.
        let file = fs::File::options().write(true).open(&path).expect("there");
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("set");
        assert_eq!(refused(&path, access), ErrorKind::Refused);
        let readers = [(); 2].map(|()| target.open(read).expect("reading harms nobody"));
        assert!(readers[0].info().read_only);
        assert_eq!(refused(&path, Access { overwrite: true, ..access }), ErrorKind::Refused, "they read");
        drop(readers);
        let shares = [(); 2].map(|()| {
            target
                .open(Access { overwrite: true, is_shared: true, ..access })
                .expect("two shares of one load")
        });
        assert_eq!(
            refused(&path, Access { overwrite: true, ..access }),
            ErrorKind::Refused,
            "one load of two"
        );
        drop(shares);
        target.open(Access { overwrite: true, ..access }).expect("permitted");
        let larger = Access { size: Some(Bytes(2 << 20)), ..read };
        assert_eq!(refused(&path, larger), ErrorKind::Invalid, "reading does not make it grow");
        assert_eq!(refused(folder.path(), access), ErrorKind::Invalid);
        let blocking = Access { engine: FileEngine::Psync, ..read };
        assert!(target.open(blocking).expect("reading harms nobody").info().read_only);
        let mapped = Access { engine: FileEngine::Mmap, ..read };
        assert!(target.open(mapped).expect("reading harms nobody").info().read_only);
        let memory = LoadTarget::Memory(Bytes(1 << 20));
        assert_eq!(memory.open(blocking).err().expect("no file").kind(), ErrorKind::Invalid);
        assert_eq!(memory.open(access).err().expect("has a size").kind(), ErrorKind::Invalid);
    }
}
