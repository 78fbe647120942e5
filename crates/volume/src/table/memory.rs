//! The entries of a table in memory: reserved as a whole, taken page by page as they are loaded, given back when cold.
//!
//! A look at an entry takes no lock and no search: its page has its place. Who meets a page that is going away sees zeros,
//! and so must look again with the page held ([`Entries::hold`]) before it believes one.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rotproof_block::{Error, ErrorKind, Result};

use super::layout::{BLOCK_BYTES, Layout, PAGE_HEADER_BYTES};

/// The page is in memory.
pub(crate) const LOADED: u32 = 1;
/// It has what its place on the medium has not.
pub(crate) const DIRTY: u32 = 2;
/// Some of it is not in the log yet.
pub(crate) const PENDING: u32 = 4;
/// One more that holds it.
const HELD: u32 = 8;

/// Words of bits for a page: one bit for each entry.
const BIT_WORDS: usize = 16;

/// What a table has of a page in memory.
pub(crate) struct Entries {
    layout: Layout,
    /// The pages as they lie on the medium, without their headers.
    values: Map,
    /// For each page: which entries are not in the log yet.
    bits: Map,
    /// For each page: flags, and how many hold it.
    states: Map,
}

impl Entries {
    /// Reserves memory for all of a table; none of it is taken yet.
    pub(crate) fn new(layout: Layout) -> Result<Self> {
        Ok(Self {
            layout,
            values: Map::new(layout.pages * BLOCK_BYTES)?,
            bits: Map::new(layout.pages * BIT_WORDS as u64 * 8)?,
            states: Map::new(layout.pages * 4)?,
        })
    }

    /// The flags of a page, and how many hold it.
    pub(crate) fn state(&self, page: u64) -> &AtomicU32 {
        debug_assert!(page < self.layout.pages);
        // SAFETY: the map has four aligned bytes for each page, and nothing but atomics looks at them.
        unsafe { self.states.at(page * 4).cast::<AtomicU32>().as_ref() }
    }

    /// Whether a page is in memory.
    pub(crate) fn is_loaded(&self, page: u64) -> bool {
        self.state(page).load(Ordering::Acquire) & LOADED != 0
    }

    /// Keeps a page in memory until [`Entries::release`]. False if it is not there.
    pub(crate) fn hold(&self, page: u64) -> bool {
        let before = self.state(page).fetch_add(HELD, Ordering::SeqCst);
        if before & LOADED == 0 {
            self.release(page);
        }
        before & LOADED != 0
    }

    pub(crate) fn release(&self, page: u64) {
        self.state(page).fetch_sub(HELD, Ordering::SeqCst);
    }

    /// Sets flags; those that were set before.
    pub(crate) fn raise(&self, page: u64, flags: u32) -> u32 {
        self.state(page).fetch_or(flags, Ordering::SeqCst)
    }

    /// Clears flags; those that were set before.
    pub(crate) fn lower(&self, page: u64, flags: u32) -> u32 {
        self.state(page).fetch_and(!flags, Ordering::SeqCst)
    }

    /// Which time a page was written last, as far as that fits; it stands where the header is on the medium.
    pub(crate) fn generation(&self, page: u64) -> &AtomicU32 {
        // SAFETY: inside the page, aligned; nothing but atomics looks at it.
        unsafe { self.values.at(page * BLOCK_BYTES).cast::<AtomicU32>().as_ref() }
    }

    fn words(&self, entry: u64) -> &[AtomicU32] {
        let (page, place) = self.layout.place(entry);
        let at = page * BLOCK_BYTES + PAGE_HEADER_BYTES as u64 + (place * self.layout.words * 4) as u64;
        // SAFETY: an entry lies whole inside its page, aligned to four bytes; nothing but atomics looks at it.
        unsafe {
            std::slice::from_raw_parts(self.values.at(at).cast::<AtomicU32>().as_ptr(), self.layout.words)
        }
    }

    /// An entry as it is in memory now; zero if its page is not there.
    pub(crate) fn get(&self, entry: u64) -> u128 {
        let words = self.words(entry).iter().enumerate();
        words.fold(0, |value, (at, word)| value | u128::from(word.load(Ordering::Acquire)) << (32 * at))
    }

    /// Changes an entry, whose page the caller holds.
    pub(crate) fn put(&self, entry: u64, value: u128) {
        for (at, word) in self.words(entry).iter().enumerate() {
            word.store((value >> (32 * at)) as u32, Ordering::Release);
        }
    }

    fn bits(&self, page: u64) -> &[AtomicU64; BIT_WORDS] {
        // SAFETY: the map has 16 aligned words for each page, and nothing but atomics looks at them.
        unsafe { self.bits.at(page * BIT_WORDS as u64 * 8).cast::<[AtomicU64; BIT_WORDS]>().as_ref() }
    }

    /// Notes that an entry is not in the log.
    pub(crate) fn note(&self, entry: u64) {
        let (page, place) = self.layout.place(entry);
        self.bits(page)[place / 64].fetch_or(1 << (place % 64), Ordering::SeqCst);
    }

    /// The entries of a page that are not in the log, which count as being there from now on.
    pub(crate) fn take_notes(&self, page: u64) -> Vec<u64> {
        let first = self.layout.entries_of(page).start;
        let mut noted = Vec::new();
        for (at, word) in self.bits(page).iter().enumerate() {
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                noted.push(first + at as u64 * 64 + u64::from(bits.trailing_zeros()));
                bits &= bits - 1;
            }
        }
        noted
    }

    /// Fills a page with what the medium has; from now on it is in memory.
    pub(crate) fn load(&self, page: u64, bytes: &[u8]) {
        let first = page * BLOCK_BYTES;
        for (at, word) in bytes.chunks_exact(4).enumerate().skip(PAGE_HEADER_BYTES / 4) {
            let word = u32::from_le_bytes(word.try_into().expect("four bytes"));
            // SAFETY: inside the page, aligned to four bytes; nothing but atomics looks at it.
            let place = unsafe { self.values.at(first + at as u64 * 4).cast::<AtomicU32>().as_ref() };
            place.store(word, Ordering::Release);
        }
        self.raise(page, LOADED);
    }

    /// Copies the entries of a page to where a page is being made.
    pub(crate) fn copy_to(&self, page: u64, bytes: &mut [u8]) {
        let first = page * BLOCK_BYTES;
        for (at, word) in bytes.chunks_exact_mut(4).enumerate().skip(PAGE_HEADER_BYTES / 4) {
            // SAFETY: as in `load`.
            let place = unsafe { self.values.at(first + at as u64 * 4).cast::<AtomicU32>().as_ref() };
            word.copy_from_slice(&place.load(Ordering::Acquire).to_le_bytes());
        }
    }

    /// Gives the memory of a page back, if nobody holds it and the medium has all of it. Whether that was so.
    pub(crate) fn evict(&self, page: u64) -> bool {
        let gone = self.state(page).compare_exchange(LOADED, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if gone {
            self.values.give_back(page * BLOCK_BYTES, BLOCK_BYTES);
        }
        gone
    }
}

/// Anonymous memory, reserved without being taken: pages come with the first write, and read as zeros before.
struct Map {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: plain memory, which `Entries` touches through atomics only.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    fn new(bytes: u64) -> Result<Self> {
        let too_large = || Error::new(ErrorKind::NoSpace, format!("no room in memory for {bytes} bytes"));
        let length = usize::try_from(bytes).map_err(|_| too_large())?;
        // SAFETY: a fresh private mapping at an address of the kernel's choice touches nothing of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(too_large().caused_by(std::io::Error::last_os_error()));
        }
        let start = NonNull::new(start.cast()).ok_or_else(too_large)?;
        Ok(Self { start, length })
    }

    /// The byte at `offset`, which must be inside.
    fn at(&self, offset: u64) -> NonNull<u8> {
        debug_assert!(offset < self.length as u64);
        // SAFETY: inside the mapping, as the caller says.
        unsafe { self.start.add(offset as usize) }
    }

    /// A page of the system is given back and reads as zeros.
    fn give_back(&self, offset: u64, bytes: u64) {
        // SAFETY: a whole page inside our private anonymous mapping.
        unsafe { libc::madvise(self.at(offset).as_ptr().cast(), bytes as usize, libc::MADV_DONTNEED) };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; nobody holds it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_and_go_with_their_pages() {
        for words in [1, 2, 4] {
            let layout = Layout::new(5000, words);
            let entries = Entries::new(layout).expect("memory");
            assert!(!entries.hold(1) && entries.get(layout.page_entries) == 0);
            entries.load(1, &[0xab; 4096]);
            assert!(entries.hold(1));
            let (first, full) = (layout.page_entries, u128::MAX >> (128 - 32 * words));
            assert_eq!(entries.get(first), full / 0xff * 0xab);
            entries.put(first + 3, full - 7);
            entries.note(first + 3);
            entries.note(first + layout.page_entries - 1);
            assert_eq!(entries.get(first + 3), full - 7);
            assert_eq!(entries.take_notes(1), [first + 3, first + layout.page_entries - 1]);
            assert!(entries.take_notes(1).is_empty());
            let mut page = vec![0; 4096];
            entries.copy_to(1, &mut page);
            assert!(!entries.evict(1), "it is held");
            entries.release(1);
            entries.raise(1, DIRTY);
            assert!(!entries.evict(1), "it is dirty");
            entries.lower(1, DIRTY);
            assert!(entries.evict(1) && entries.get(first + 3) == 0 && !entries.is_loaded(1));
            entries.load(1, &page);
            assert_eq!(entries.get(first + 3), full - 7);
        }
    }
}
