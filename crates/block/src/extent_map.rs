//! Where a block of a file lies on the device below its file system, as the kernel's extent map (FIEMAP,
//! `Documentation/filesystems/fiemap.rst`) says.
//!
//! It looks at one block of one file. What the file system is, and what an offset means further down, it does not know.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::error::IoContext;
use crate::{Error, ErrorKind, Result};

/// `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;

/// Writes the file out first, so that what waits for its place gets one.
const FIEMAP_FLAG_SYNC: u32 = 1;

const EXTENT_UNKNOWN: u32 = 0x2;
const EXTENT_DELAYED: u32 = 0x4;
const EXTENT_ENCODED: u32 = 0x8;
const EXTENT_ENCRYPTED: u32 = 0x80;
const EXTENT_NOT_ALIGNED: u32 = 0x100;
const EXTENT_INLINE: u32 = 0x200;
const EXTENT_TAIL: u32 = 0x400;
const EXTENT_UNWRITTEN: u32 = 0x800;

/// `struct fiemap` with room for one extent.
#[repr(C)]
#[derive(Default)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extent: Extent,
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// The offset in bytes, on the device below the file system of `path`, of the `length` bytes at `offset` of the file, which
/// is synced first.
///
/// Fails with [`ErrorKind::Unsupported`] if the file system tells nothing, and with [`ErrorKind::Missing`] if these bytes
/// have no place of their own there.
pub fn place_of(path: &Path, offset: u64, length: u64) -> Result<u64> {
    let file = File::open(path).doing(|| format!("opening {} to see where it lies", path.display()))?;
    ask(&file, path, offset, length, FIEMAP_FLAG_SYNC)
}

/// The same of a file that is open, which is not synced: what waits in memory for its place has none. `name` is for people.
pub fn place_in(file: &File, name: &Path, offset: u64, length: u64) -> Result<u64> {
    ask(file, name, offset, length, 0)
}

fn ask(file: &File, path: &Path, offset: u64, length: u64, flags: u32) -> Result<u64> {
    let mut request = Request { start: offset, length, flags, extent_count: 1, ..Request::default() };
    // SAFETY: `request` is a `struct fiemap` followed by the one extent that `extent_count` says there is room for, and
    // lives as long as the call; the kernel writes nothing else.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut request) };
    if answer != 0 {
        let error = std::io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EBADR) => Error::new(
                ErrorKind::Unsupported,
                format!("the file system of {} does not tell where its blocks lie", path.display()),
            ),
            _ => Error::from_io(error, format!("asking where {} lies", path.display())),
        });
    }
    let extent = (request.mapped_extents > 0).then_some(request.extent);
    physical(extent, offset, length).map_err(|why| {
        let context = format!(
            "the {length} bytes at {offset} of {} have no place on the device: {why}",
            path.display()
        );
        Error::new(ErrorKind::Missing, context)
    })
}

/// Where the bytes lie, given the first extent in their range, or why nowhere.
fn physical(extent: Option<Extent>, offset: u64, length: u64) -> Result<u64, &'static str> {
    let hole = "they are a hole, which was never written";
    let extent = extent.ok_or(hole)?;
    let has = |flags: u32| extent.flags & flags != 0;
    if offset < extent.logical || offset >= extent.logical.saturating_add(extent.length) {
        Err(hole)
    } else if has(EXTENT_DELAYED) {
        Err("they wait in memory to be written, though the file was synced")
    } else if has(EXTENT_INLINE | EXTENT_TAIL) {
        Err("the file system keeps them among its metadata, as it may do with a small file")
    } else if has(EXTENT_ENCRYPTED) {
        Err("they are encrypted")
    } else if has(EXTENT_ENCODED) {
        Err("they are compressed, or encoded otherwise")
    } else if has(EXTENT_NOT_ALIGNED) {
        Err("they do not begin at a block of the device")
    } else if has(EXTENT_UNWRITTEN) {
        Err("their place is reserved but was never written, so they are read as zeros without the device")
    } else if has(EXTENT_UNKNOWN) {
        Err("the file system does not say where they are")
    } else if offset + length > extent.logical + extent.length {
        Err("they are in several pieces, as the blocks of the file system are smaller")
    } else {
        Ok(extent.physical + (offset - extent.logical))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_inside_an_extent_lies_as_far_from_its_beginning_on_the_device_as_in_the_file() {
        let extent = Extent { logical: 8192, physical: 1 << 20, length: 16384, ..Extent::default() };
        assert_eq!(physical(Some(extent), 8192, 4096), Ok(1 << 20));
        assert_eq!(physical(Some(extent), 20480, 4096), Ok((1 << 20) + 12288));
    }

    #[test]
    fn what_has_no_place_of_its_own_is_explained() {
        let with = |flags| Some(Extent { physical: 4096, length: 4096, flags, ..Extent::default() });
        for (extent, offset, part) in [
            (None, 0, "a hole"),
            (with(0), 4096, "a hole"),
            (Some(Extent { logical: 8192, length: 4096, ..Extent::default() }), 4096, "a hole"),
            (with(EXTENT_DELAYED | EXTENT_UNKNOWN), 0, "wait in memory"),
            (with(EXTENT_INLINE | EXTENT_NOT_ALIGNED), 0, "metadata"),
            (with(EXTENT_TAIL | EXTENT_NOT_ALIGNED), 0, "metadata"),
            (with(EXTENT_ENCRYPTED | EXTENT_ENCODED), 0, "encrypted"),
            (with(EXTENT_ENCODED), 0, "compressed"),
            (with(EXTENT_NOT_ALIGNED), 0, "do not begin"),
            (with(EXTENT_UNWRITTEN), 0, "never written"),
            (with(EXTENT_UNKNOWN), 0, "does not say"),
            (Some(Extent { length: 1024, ..Extent::default() }), 0, "several pieces"),
        ] {
            let why = physical(extent, offset, 4096).expect_err(part);
            assert!(why.contains(part), "{part}: {why}");
        }
    }

    #[test]
    fn a_file_system_that_tells_nothing_is_named() {
        let error = place_of(Path::new("/proc/self/status"), 0, 4096).expect_err("it has no device");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("/proc/self/status"), "{error}");
    }
}
