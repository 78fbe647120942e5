//! The memory that a client shares: regions of files, mapped here, addressed as its guest sees them.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use vm_memory::mmap::MmapRegion;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap};

use super::message::{REGIONS_MAX, RegionDescription};

/// Guest memory at one moment; those who use it keep it mapped.
pub(super) type Memory = GuestMemoryMmap<()>;

/// A client asked for what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// The regions of one client.
#[derive(Default)]
pub(super) struct MemoryTable {
    regions: Vec<(RegionDescription, Arc<GuestRegionMmap<()>>)>,
    memory: Option<Arc<Memory>>,
}

impl MemoryTable {
    /// All regions together; none before there is one.
    pub(super) fn memory(&self) -> Option<&Arc<Memory>> {
        self.memory.as_ref()
    }

    /// Takes these regions for those that were.
    pub(super) fn replace(
        &mut self,
        descriptions: Vec<RegionDescription>,
        files: Vec<OwnedFd>,
    ) -> Result<(), Refused> {
        if descriptions.len() != files.len() {
            return Err(Refused);
        }
        let mut next = Self::default();
        for (description, file) in descriptions.into_iter().zip(files) {
            next.map(description, file)?;
        }
        next.assemble()?;
        *self = next;
        Ok(())
    }

    /// Takes one region more.
    pub(super) fn add(&mut self, description: RegionDescription, file: OwnedFd) -> Result<(), Refused> {
        self.map(description, file)?;
        self.assemble().inspect_err(|_| _ = self.regions.pop())
    }

    /// Forgets a region. The file's offset does not matter, as the protocol has it.
    pub(super) fn remove(&mut self, description: RegionDescription) -> Result<(), Refused> {
        let name = |region: &RegionDescription| (region.guest_address, region.user_address, region.size);
        let wanted = |(region, _): &(RegionDescription, _)| name(region) == name(&description);
        let place = self.regions.iter().position(wanted).ok_or(Refused)?;
        self.regions.remove(place);
        self.assemble()
    }

    /// Where the guest sees what the client's process sees at `address`.
    pub(super) fn guest_address(&self, address: u64) -> Result<GuestAddress, Refused> {
        self.regions
            .iter()
            .find_map(|(region, _)| {
                let offset = address.checked_sub(region.user_address)?;
                (offset < region.size).then(|| GuestAddress(region.guest_address + offset))
            })
            .ok_or(Refused)
    }

    fn map(&mut self, description: RegionDescription, file: OwnedFd) -> Result<(), Refused> {
        let RegionDescription { guest_address, size, file_offset, .. } = description;
        if self.regions.len() >= REGIONS_MAX {
            return Err(Refused);
        }
        // What is mapped must not be cut off: touching it would kill this process. A memfd that can be sealed is;
        // one that cannot, or another kind of file, is left to its owner.
        // SAFETY: plain numbers; the descriptor is open.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) };
        let file = File::from(file);
        if !is_of_memory(&file) {
            return Err(Refused);
        }
        let end = file_offset.checked_add(size).ok_or(Refused)?;
        if file.metadata().map_err(|_| Refused)?.len() < end {
            return Err(Refused);
        }
        let size = usize::try_from(size).map_err(|_| Refused)?;
        let mapping = MmapRegion::from_file(FileOffset::new(file, file_offset), size).map_err(|_| Refused)?;
        let region = GuestRegionMmap::new(mapping, GuestAddress(guest_address)).ok_or(Refused)?;
        self.regions.push((description, Arc::new(region)));
        Ok(())
    }

    fn assemble(&mut self) -> Result<(), Refused> {
        let mut regions: Vec<_> = self.regions.iter().map(|(_, region)| Arc::clone(region)).collect();
        regions.sort_by_key(|region| vm_memory::GuestMemoryRegion::start_addr(&**region));
        self.memory = match regions.is_empty() {
            true => None,
            false => Some(Arc::new(Memory::from_arc_regions(regions).map_err(|_| Refused)?)),
        };
        Ok(())
    }
}

/// Whether a file is memory and nothing else: a memfd, in `/dev/shm`, or of huge pages. One on a disk may be on the very device
/// that is served here. Whoever then touches its mapping waits for a thread that may wait for the lock on this process' memory
/// map (`docs/decisions/029-mappings-apart.md`).
fn is_of_memory(file: &File) -> bool {
    // SAFETY: all zeros is a value of this structure, which lives across the call that fills it; the descriptor is open.
    let (answer, statistics) = unsafe {
        let mut statistics: libc::statfs = std::mem::zeroed();
        (libc::fstatfs(file.as_raw_fd(), &raw mut statistics), statistics)
    };
    answer == 0 && [libc::TMPFS_MAGIC, libc::HUGETLBFS_MAGIC].contains(&statistics.f_type)
}

#[cfg(test)]
mod tests {
    use std::os::fd::FromRawFd;

    use super::*;

    fn add(file: OwnedFd) -> Result<(), Refused> {
        File::from(file.try_clone().expect("a second descriptor")).set_len(1 << 20).expect("room");
        let region =
            RegionDescription { guest_address: 0, size: 1 << 20, user_address: 1 << 30, file_offset: 0 };
        MemoryTable::default().add(region, file)
    }

    #[test]
    fn only_memory_is_mapped_and_no_file_that_may_be_on_the_device_itself() {
        // SAFETY: the name is a string with its zero byte; what is opened is owned by nobody else.
        let memory =
            unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC)) };
        assert_eq!(add(memory), Ok(()));
        let folder = std::env::current_exe().expect("this program");
        let on_disk = tempfile::tempfile_in(folder.parent().expect("a folder")).expect("a file");
        // Where this program lies in memory itself, there is no disk to try.
        let expected = if is_of_memory(&on_disk) { Ok(()) } else { Err(Refused) };
        assert_eq!(add(on_disk.into()), expected);
    }
}
