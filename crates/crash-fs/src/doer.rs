//! Does operations to a mounted file system, and makes them durable.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, Result};

use crate::model::{BLOCK_BYTES, byte_of};
use crate::operations::{Operation, Persist};

/// The extended attribute that is set.
pub(crate) const XATTR: &std::ffi::CStr = c"user.rotproof";

/// Makes what every sequence begins with, and makes it durable.
pub(crate) fn set_up(root: &Path) -> Result<()> {
    let doing = || format!("making the first files in {}", root.display());
    for folder in ["A", "B"] {
        std::fs::create_dir(root.join(folder)).doing(doing)?;
    }
    for (path, blocks) in [("A/foo", &[0x11u8, 0x12][..]), ("A/bar", &[0x21])] {
        let file = File::create_new(root.join(path)).doing(doing)?;
        for (block, byte) in (0..).zip(blocks) {
            file.write_all_at(&[*byte; BLOCK_BYTES], block * BLOCK_BYTES as u64).doing(doing)?;
        }
        file.sync_all().doing(doing)?;
    }
    persist(root, Persist::Sync)
}

/// Does an operation as the step with this number.
pub(crate) fn perform(root: &Path, operation: &Operation, step: u8) -> Result<()> {
    let doing = || format!("doing `{operation}` in {}", root.display());
    let at = |path: &str| root.join(path);
    let open = |path: &str| OpenOptions::new().read(true).write(true).open(at(path));
    let length = |file: &File| file.metadata().map(|metadata| metadata.len());
    let done = match *operation {
        Operation::Create(path) => File::create_new(at(path)).map(drop),
        Operation::Mkdir(path) => std::fs::create_dir(at(path)),
        Operation::Append(path) => open(path).and_then(|file| {
            let end = length(&file)?;
            (0..2u8).try_for_each(|block| {
                let place = end + u64::from(block) * BLOCK_BYTES as u64;
                file.write_all_at(&[byte_of(step, block); BLOCK_BYTES], place)
            })
        }),
        Operation::Overwrite(path) => {
            open(path).and_then(|file| file.write_all_at(&[byte_of(step, 0); BLOCK_BYTES], 0))
        }
        Operation::MmapWrite(path) => open(path).and_then(|file| write_mapped(&file, byte_of(step, 0))),
        Operation::Falloc(path) => open(path).and_then(|file| {
            let end = length(&file)?;
            // SAFETY: takes an open descriptor and numbers.
            check(unsafe { libc::fallocate(file.as_raw_fd(), 0, end as i64, BLOCK_BYTES as i64) })
        }),
        Operation::Truncate(path) => open(path).and_then(|file| file.set_len(BLOCK_BYTES as u64)),
        Operation::Rename(from, to) => std::fs::rename(at(from), at(to)),
        Operation::Link(from, to) => std::fs::hard_link(at(from), at(to)),
        Operation::Symlink(target, path) => std::os::unix::fs::symlink(target, at(path)),
        Operation::Unlink(path) => std::fs::remove_file(at(path)),
        Operation::SetXattr(path) => {
            let value = [byte_of(step, 0)];
            let path = CString::new(at(path).as_os_str().as_bytes()).map_err(std::io::Error::other);
            path.and_then(|path| {
                // SAFETY: both texts end with zero, and the value is as long as told; all live across the call.
                check(unsafe { libc::setxattr(path.as_ptr(), XATTR.as_ptr(), value.as_ptr().cast(), 1, 0) })
            })
        }
    };
    done.doing(doing)
}

/// Makes durable what is to be.
pub(crate) fn persist(root: &Path, persist: Persist) -> Result<()> {
    let doing = || format!("doing {persist:?} in {}", root.display());
    match persist {
        Persist::Nothing => Ok(()),
        Persist::Fsync(path) | Persist::FsyncFolder(path) => {
            File::open(root.join(path)).and_then(|file| file.sync_all()).doing(doing)
        }
        Persist::Fdatasync(path) => {
            File::open(root.join(path)).and_then(|file| file.sync_data()).doing(doing)
        }
        Persist::Sync => {
            let root = File::open(root).doing(doing)?;
            // SAFETY: takes an open descriptor.
            check(unsafe { libc::syncfs(root.as_raw_fd()) }).doing(doing)
        }
    }
}

/// Fills the first block through a mapping.
fn write_mapped(file: &File, byte: u8) -> std::io::Result<()> {
    // SAFETY: a fresh shared mapping of one block at a place of the kernel's choice.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            BLOCK_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the mapping is one block long, nobody else has it, and it is not used after it is undone.
    unsafe {
        start.cast::<u8>().write_bytes(byte, BLOCK_BYTES);
        check(libc::munmap(start, BLOCK_BYTES))
    }
}

fn check(answer: libc::c_int) -> std::io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The extended attribute of a file, if it has it.
pub(crate) fn xattr_of(path: &Path) -> Result<Option<u8>> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| {
        Error::new(rotproof_block::ErrorKind::Internal, "a path with a zero byte").caused_by(error)
    })?;
    let mut value = [0u8; 16];
    // SAFETY: both texts end with zero, and the value is as long as told; all live across the call.
    let length =
        unsafe { libc::lgetxattr(name.as_ptr(), XATTR.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    match length {
        1 => Ok(Some(value[0])),
        0.. => Ok(Some(0)),
        _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::ENODATA) => Ok(None),
        _ => Err(std::io::Error::last_os_error())
            .doing(|| format!("reading an attribute of {}", path.display())),
    }
}
