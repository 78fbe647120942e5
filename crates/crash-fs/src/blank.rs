//! A new, empty file system as an image: what every sequence begins with.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_crash::recording::{Header, Recorder, RecorderOptions};
use rotproof_crash::{Contents, ImageDevice};
use rotproof_machine::{Cancel, Program};
use rotproof_subject::FileSystem;

/// How often the program is started if others disturb it.
const TRIES_MAX: u32 = 20;
/// What a device under test may write, at most.
const SCRATCH_BYTES_MAX: u64 = 256 << 20;

/// An image with a file system that nobody has used yet.
#[derive(Debug)]
pub struct Blank {
    /// The image.
    pub image: PathBuf,
    /// Which file system.
    pub kind: FileSystem,
    /// Bytes of the device.
    pub size: u64,
    /// A recording of nothing, by which the image is a device.
    nothing: PathBuf,
}

impl Blank {
    /// The smallest that makes sense: what its program makes, and its journal not larger than it must be.
    pub fn size_of(kind: FileSystem) -> u64 {
        match kind {
            FileSystem::Ext4 => 32 << 20,
            // mkfs.xfs refuses less than 300 MB.
            FileSystem::Xfs => 304 << 20,
            FileSystem::Btrfs => 128 << 20,
            FileSystem::Jfs | FileSystem::F2fs => kind.device_size_min().0,
        }
    }

    /// Makes one in `folder`, best in memory. Fails with [`ErrorKind::Missing`] where the program is not on this machine.
    pub fn make(kind: FileSystem, folder: &Path) -> Result<Self> {
        let image = folder.join(format!("{}.img", kind.name()));
        let doing = || format!("making {}", image.display());
        let size = Self::size_of(kind);
        std::fs::File::create_new(&image).and_then(|file| file.set_len(size)).doing(doing)?;
        let path = image.to_string_lossy().into_owned();
        let (program, package, arguments): (_, _, &[&str]) = match kind {
            FileSystem::Ext4 => (
                "mkfs.ext4",
                "e2fsprogs",
                &[
                    "-q",
                    "-F",
                    "-b",
                    "4096",
                    "-I",
                    "256",
                    "-E",
                    "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
                ],
            ),
            FileSystem::Xfs => ("mkfs.xfs", "xfsprogs", &["-q", "-f", "-K"]),
            FileSystem::Btrfs => ("mkfs.btrfs", "btrfs-progs", &["-q", "-f", "-K"]),
            FileSystem::Jfs => ("mkfs.jfs", "jfsutils", &["-q"]),
            FileSystem::F2fs => ("mkfs.f2fs", "f2fs-tools", &["-q", "-f", "-t", "0"]),
        };
        let arguments: Vec<&str> = arguments.iter().copied().chain([path.as_str()]).collect();
        let program = Program::find(program, package)?;
        let mut tries = 0;
        while let Err(error) =
            program.start_with(&arguments, &[("BLKID_FILE", "/dev/null")])?.wait(&Cancel::new())
        {
            // mkfs.btrfs looks at the files of all loop devices, and somebody may just be taking one of them away.
            tries += 1;
            if tries == TRIES_MAX || !error.to_string().contains("cannot check mount status") {
                return Err(Error::new(ErrorKind::Missing, doing()).caused_by(error));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let nothing = folder.join(format!("{}.nothing", kind.name()));
        Recorder::create(&nothing, Self::header(size, 0), RecorderOptions { same_bits: 1 })?.finish()?;
        Ok(Self { image, kind, size, nothing })
    }

    /// What recordings of a device with this image say of it: a disk of 512 byte sectors that it tears at 4 KiB only, as
    /// nearly all do.
    pub(crate) fn header(size: u64, id: u128) -> Header {
        Header { size, block_size: 512, atomic_write_bytes: 4096, id }
    }

    /// A device with this image, whose writes go to memory.
    pub fn device(&self) -> Result<Arc<ImageDevice>> {
        let contents = Contents::open(&self.nothing, Self::header(self.size, 0), Some(&self.image))?;
        Ok(ImageDevice::new(Arc::new(contents), SCRATCH_BYTES_MAX))
    }
}
