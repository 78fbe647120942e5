//! The memory of a machine that lies in a file: of User Mode Linux or QEMU. An address is an offset in the file, which
//! is the physical address in the machine.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::memory::{Memory, Region};
use crate::needle::Needles;

/// A mapping of the file, shared with the machine.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    at: *mut u8,
    length: usize,
}

// SAFETY: the mapping stays where it is until the drop, and all access goes by copies or atomic bytes.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps all of a file that was opened for reading and writing. It must not become shorter.
    pub fn map(file: File) -> Result<Self> {
        let length = file.metadata().doing(|| "looking at the memory of a machine".into())?.len();
        let length = usize::try_from(length).unwrap_or_default();
        if length == 0 {
            return Err(Error::new(ErrorKind::Invalid, "the file with the memory of the machine is empty"));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses; nothing of ours is there.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).doing(|| "mapping the memory of a machine".into());
        }
        Ok(Self { file, at: at.cast(), length })
    }

    /// How large it is, in bytes.
    pub fn len(&self) -> u64 {
        self.length as u64
    }

    /// Whether it is empty, which it never is.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn check(&self, address: u64, length: usize) -> Result<usize> {
        let end = usize::try_from(address).ok().and_then(|start| start.checked_add(length));
        match end {
            Some(end) if end <= self.length => Ok(end - length),
            _ => {
                let context = format!(
                    "address {address:#x} is beyond the memory of the machine, which ends at {:#x}",
                    self.length
                );
                Err(Error::new(ErrorKind::OutOfRange, context))
            }
        }
    }

    fn seek(&self, from: u64, whence: libc::c_int) -> Result<Option<u64>> {
        let from = libc::off_t::try_from(from).unwrap_or(libc::off_t::MAX);
        // SAFETY: takes numbers. Nobody reads the file by its position.
        let to = unsafe { libc::lseek(self.file.as_raw_fd(), from, whence) };
        if let Ok(to) = u64::try_from(to) {
            return Ok(Some(to));
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            error => Err(error).doing(|| "looking for what a machine's memory holds".into()),
        }
    }
}

impl Memory for SharedMemory {
    fn regions(&self) -> Result<Vec<Region>> {
        let mut regions = Vec::new();
        let mut from = 0;
        while let Some(start) = self.seek(from, libc::SEEK_DATA)? {
            let end = self.seek(start, libc::SEEK_HOLE)?.unwrap_or(self.len()).min(self.len());
            if end <= start {
                break;
            }
            regions.push(Region { range: start..end, kind: None });
            from = end;
        }
        Ok(regions)
    }

    fn find(&self, range: &Range<u64>, needles: &Needles, found: &mut dyn FnMut(usize, u64)) -> Result<()> {
        let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let start = self.check(range.start, length)?;
        // SAFETY: within the mapping. The machine writes there meanwhile: a byte read twice may differ, so what is found is
        // only a hint, which whoever changes it holds against a copy. Nothing but comparisons is done with the bytes.
        let bytes = unsafe { std::slice::from_raw_parts(self.at.add(start), length) };
        needles.find(bytes, &mut |number, at| found(number, range.start + at as u64));
        Ok(())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let start = self.check(address, bytes.len())?;
        if start.is_multiple_of(8) && bytes.len().is_multiple_of(8) {
            for (number, word) in bytes.chunks_exact_mut(8).enumerate() {
                let place = self.at.wrapping_add(start + number * 8).cast();
                // SAFETY: within the mapping, and at a multiple of eight, as the mapping begins at one of a page.
                let read = unsafe { AtomicU64::from_ptr(place) }.load(Ordering::Relaxed);
                word.copy_from_slice(&read.to_ne_bytes());
            }
            return Ok(());
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: within the mapping; a byte of it is an atomic byte.
            *byte = unsafe { AtomicU8::from_ptr(self.at.add(start + at)) }.load(Ordering::Relaxed);
        }
        Ok(())
    }

    fn replace(&self, address: u64, before: u8, after: u8) -> Result<bool> {
        let start = self.check(address, 1)?;
        // SAFETY: within the mapping, which is writable.
        let byte = unsafe { AtomicU8::from_ptr(self.at.add(start)) };
        Ok(byte.compare_exchange(before, after, Ordering::SeqCst, Ordering::Relaxed).is_ok())
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: our mapping; no borrow of it outlives `self`.
        unsafe { libc::munmap(self.at.cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::flip::apply;
    use crate::needle::PAGE_BYTES;

    fn memory() -> (File, SharedMemory) {
        let file = tempfile::tempfile_in("/dev/shm").expect("memory");
        file.set_len(1 << 20).expect("room");
        let memory = SharedMemory::map(file.try_clone().expect("another")).expect("mapped");
        (file, memory)
    }

    #[test]
    fn what_its_owner_writes_is_found_and_what_is_changed_its_owner_reads() {
        let (file, memory) = memory();
        let block: Vec<u8> = (0..PAGE_BYTES).map(|at| (at * 7 % 253) as u8).collect();
        file.write_all_at(&block, 300 * 1024).expect("written");
        let regions = memory.regions().expect("asked");
        assert!(
            regions.iter().map(|region| region.range.end - region.range.start).sum::<u64>() <= 64 << 10,
            "{regions:?}"
        );
        let needles = Needles::new(&[&block]).expect("varied");
        let mut places = Vec::new();
        for region in &regions {
            memory
                .find(&region.range, &needles, &mut |number, at| places.push((number, at)))
                .expect("searched");
        }
        assert_eq!(places, [(0, 300 * 1024)]);
        let mut wrong = block.clone();
        wrong[100] ^= 8;
        apply(&memory, 300 * 1024, &block, &wrong).expect("changed");
        let mut seen = vec![0; PAGE_BYTES];
        file.read_exact_at(&mut seen, 300 * 1024).expect("read");
        assert_eq!(seen, wrong);
    }

    #[test]
    fn what_lies_beyond_is_refused() {
        let (_, memory) = memory();
        for address in [1 << 20, (1 << 20) - 1, u64::MAX - 3] {
            let error = memory.read(address, &mut [0; 8]).expect_err("beyond");
            assert_eq!(error.kind(), ErrorKind::OutOfRange, "{address:#x}");
        }
        assert!(memory.replace(1 << 20, 0, 1).is_err());
    }
}
