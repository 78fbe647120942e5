//! Where a file system is read from: anything that gives bytes at an offset, and takes none.

use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rotproof_block::error::IoContext;
use rotproof_block::{Buffer, Error, ErrorKind, Result};

/// Something that is read, and never written.
pub trait Source {
    /// Its size in bytes.
    fn size(&self) -> u64;

    /// Fills `into` with the bytes from `offset` on. Beyond the end it is an error.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()>;
}

impl<T: Source + ?Sized> Source for &T {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        (**self).read_at(offset, into)
    }
}

impl Source for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let from = usize::try_from(offset).ok().and_then(|from| self.get(from..)?.get(..into.len()));
        into.copy_from_slice(from.ok_or_else(|| beyond(offset, into.len(), self.len() as u64))?);
        Ok(())
    }
}

/// The error of a read that does not end within the source.
pub fn beyond(offset: u64, length: usize, size: u64) -> Error {
    let what = format!("{length} bytes at {offset} end beyond the {size} bytes that there are");
    Error::new(ErrorKind::OutOfRange, what)
}

/// What a direct read must be aligned to: as much as any device asks for.
const ALIGNMENT: u64 = 4096;
/// How much is read directly at once, at most.
const DIRECT_BYTES_MAX: u64 = 1 << 20;

/// An image file or a block device, opened to be read.
#[derive(Debug)]
pub struct ReadOnlyFile {
    file: File,
    size: u64,
    is_direct: bool,
}

impl ReadOnlyFile {
    /// Opens it. With `direct` the kernel's cache of the block device is passed by: a mounted xfs or btrfs keeps its own,
    /// and what the device's cache holds may be old. A mounted ext4 works in the device's cache.
    pub fn open(path: &Path, direct: bool) -> Result<Self> {
        let doing = || format!("opening {} to read it", path.display());
        let mut file = File::open(path).doing(doing)?;
        let kind = file.metadata().doing(doing)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let what = format!("{} is neither a file nor a block device; name one", path.display());
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let size = std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).doing(doing)?;
        let is_direct = direct && kind.is_block_device();
        if is_direct {
            file = File::options().read(true).custom_flags(libc::O_DIRECT).open(path).doing(doing)?;
        }
        Ok(Self { file, size, is_direct })
    }
}

impl Source for ReadOnlyFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(into.len() as u64).filter(|&end| end <= self.size);
        let end = end.ok_or_else(|| beyond(offset, into.len(), self.size))?;
        let doing = |at: u64| format!("reading at {at}");
        if !self.is_direct {
            return self.file.read_exact_at(into, offset).doing(|| doing(offset));
        }
        let mut at = offset;
        while at < end {
            let start = at - at % ALIGNMENT;
            let stop = end.next_multiple_of(ALIGNMENT).min(self.size).min(start + DIRECT_BYTES_MAX);
            let mut buffer = Buffer::zeroed((stop - start) as usize);
            self.file.read_exact_at(&mut buffer, start).doing(|| doing(start))?;
            let until = end.min(stop);
            let wanted = &buffer[(at - start) as usize..(until - start) as usize];
            into[(at - offset) as usize..(until - offset) as usize].copy_from_slice(wanted);
            at = until;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_end_are_an_error_and_no_panic() {
        let bytes = vec![7_u8; 10];
        let mut into = [0; 4];
        assert!(bytes.read_at(6, &mut into).is_ok());
        assert_eq!(into, [7; 4]);
        for offset in [7, 10, 11, u64::MAX] {
            let error = bytes.read_at(offset, &mut into).expect_err("too far");
            assert_eq!(error.kind(), ErrorKind::OutOfRange);
        }
    }

    #[test]
    fn a_folder_is_refused_and_a_file_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = ReadOnlyFile::open(folder.path(), true).expect_err("no file");
        assert!(error.to_string().contains("neither a file nor a block device"), "{error}");
        let path = folder.path().join("image");
        std::fs::write(&path, [1, 2, 3, 4]).expect("written");
        let file = ReadOnlyFile::open(&path, true).expect("opened");
        let mut into = [0; 2];
        file.read_at(1, &mut into).expect("read");
        assert_eq!((into, file.size()), ([2, 3], 4));
        assert!(file.read_at(3, &mut into).is_err());
    }
}
