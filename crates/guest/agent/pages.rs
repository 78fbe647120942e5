//! Where a block of a file lies in memory, and what a page of memory is: from `/proc/self/pagemap` and
//! `/proc/kpageflags` (Documentation/admin-guide/mm/pagemap.rst), the kernel's own word for both.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use crate::nodes::ROOT;
use crate::sys::{EINVAL, EIO, Mapped, errno};

/// Opening shall not change when the file was read.
const O_NOATIME: i32 = 0o1_000_000;

/// The number of the page that holds the block in the page cache; none if it is not there. The file is not read from
/// the device.
pub fn page_of(file: &str, block: u64) -> Result<Option<u64>, i32> {
    let path = format!("{ROOT}/{file}");
    let file =
        OpenOptions::new().read(true).custom_flags(O_NOATIME).open(path).map_err(|error| errno(&error))?;
    let length = file.metadata().map_err(|error| errno(&error))?.len();
    if block * 4096 >= length {
        return Ok(None);
    }
    let mapped = Mapped::page_of(file.as_raw_fd(), block)?;
    if !mapped.is_in_memory()? {
        return Ok(None);
    }
    mapped.touch();
    let mut entry = [0; 8];
    let pagemap = File::open("/proc/self/pagemap").map_err(|error| errno(&error))?;
    pagemap.read_exact_at(&mut entry, mapped.address() / 4096 * 8).map_err(|error| errno(&error))?;
    let entry = u64::from_le_bytes(entry);
    let is_present = entry >> 63 == 1;
    Ok(is_present.then_some(entry & ((1 << 55) - 1)))
}

/// The flags of a range of pages, as the kernel publishes them.
pub fn flags(first: u64, count: u64) -> Result<Vec<u64>, i32> {
    let file = File::open("/proc/kpageflags").map_err(|error| errno(&error))?;
    let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(8)).ok_or(EINVAL)?;
    let mut bytes = vec![0; length.min(1 << 20)];
    let mut flags = Vec::new();
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], first * 8 + read as u64) {
            Ok(0) => break,
            Ok(some) => read += some,
            Err(_) => return Err(EIO),
        }
    }
    flags.extend(
        bytes[..read]
            .chunks_exact(8)
            .map(|word| word.iter().rev().fold(0, |value: u64, &byte| value << 8 | u64::from(byte))),
    );
    Ok(flags)
}
