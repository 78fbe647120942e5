//! Owned, aligned, pooled memory for the data of a request.
//!
//! Buffers come from free lists of the current thread, one per power of two, so that the path never meets the
//! general allocator once it is warm (DARC found that the allocator cost up to 64% of read throughput). A buffer
//! may be dropped on another thread than it was made on; it then joins that thread's lists.

use std::alloc::{self, Layout};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Every buffer begins at a multiple of this many bytes: a page, what `O_DIRECT` may ask for at the most.
pub const ALIGNMENT: usize = 4096;

/// Buffers up to this size are kept for reuse; larger ones go back to the system.
const POOLED_BYTES_MAX: usize = 4 << 20;
/// How many bytes of free buffers a thread keeps per size class.
const KEPT_BYTES_PER_CLASS: usize = 16 << 20;
const CLASSES: usize = (POOLED_BYTES_MAX / ALIGNMENT).ilog2() as usize + 1;

/// Memory of a request: aligned to [`ALIGNMENT`], initialised, owned.
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    /// Zero for the empty buffer, else a power of two of at least [`ALIGNMENT`].
    capacity: usize,
}

// SAFETY: a buffer owns its memory and hands out access by the usual borrowing rules only.
unsafe impl Send for Buffer {}
// SAFETY: as above; shared access is read-only.
unsafe impl Sync for Buffer {}

thread_local! {
    static FREE: RefCell<Pool> = const { RefCell::new(Pool { lists: [const { Vec::new() }; CLASSES] }) };
}

thread_local! {
    /// Buffers of this thread never go back to the system while it lives.
    static KEEPS_ALL: Cell<bool> = const { Cell::new(false) };
}

/// From now on memory that pooled buffers of this thread give back stays in its lists, however much it is: for memory that
/// the kernel has been told of by its address, where another allocation must never come to lie.
pub(crate) fn keep_all_of_this_thread() {
    KEEPS_ALL.set(true);
}

struct Pool {
    lists: [Vec<NonNull<u8>>; CLASSES],
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (class, list) in self.lists.iter_mut().enumerate() {
            for start in list.drain(..) {
                // SAFETY: the list holds only memory of this class's layout, owned by nobody else.
                unsafe { alloc::dealloc(start.as_ptr(), layout(ALIGNMENT << class)) };
            }
        }
    }
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, ALIGNMENT).expect("a capacity is a power of two far below isize::MAX")
}

fn class_of(capacity: usize) -> Option<usize> {
    (capacity <= POOLED_BYTES_MAX).then(|| (capacity / ALIGNMENT).ilog2() as usize)
}

impl Buffer {
    /// The buffer of a request without data.
    pub const fn empty() -> Self {
        Self { start: NonNull::dangling(), len: 0, capacity: 0 }
    }

    /// `len` bytes of unspecified (old) content: for a read that will fill them, or a caller that will.
    pub fn stale(len: usize) -> Self {
        if len == 0 {
            return Self::empty();
        }
        let capacity = len.next_power_of_two().max(ALIGNMENT);
        let reused = class_of(capacity)
            .and_then(|class| FREE.try_with(|pool| pool.borrow_mut().lists[class].pop()).ok().flatten());
        let start = reused.unwrap_or_else(|| {
            let layout = layout(capacity);
            // SAFETY: the layout has a size above zero. Zeroed, because a buffer is always initialised.
            let start = unsafe { alloc::alloc_zeroed(layout) };
            NonNull::new(start).unwrap_or_else(|| alloc::handle_alloc_error(layout))
        });
        Self { start, len, capacity }
    }

    /// `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        let mut buffer = Self::stale(len);
        buffer.fill(0);
        buffer
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::stale(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// All memory that it stands for, if that comes from the lists and goes back to them; none of a very large one.
    pub(crate) fn pooled_memory(&self) -> Option<(*mut u8, usize)> {
        (self.capacity > 0 && class_of(self.capacity).is_some())
            .then_some((self.start.as_ptr(), self.capacity))
    }

    /// Cuts the buffer to its first `len` bytes; longer than it is has no effect.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.capacity == 0 {
            return;
        }
        let kept = class_of(self.capacity).is_some_and(|class| {
            FREE.try_with(|pool| {
                let list = &mut pool.borrow_mut().lists[class];
                let room = KEEPS_ALL.try_with(Cell::get).unwrap_or(false)
                    || list.len() < (KEPT_BYTES_PER_CLASS / self.capacity).max(1);
                if room {
                    list.push(self.start);
                }
                room
            })
            .unwrap_or(false)
        });
        if !kept {
            // SAFETY: allocated in `stale` with this layout, and not in the free list.
            unsafe { alloc::dealloc(self.start.as_ptr(), layout(self.capacity)) };
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` initialised bytes (dangling only when `len` is zero).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_reused() {
        let first = Buffer::stale(4096);
        let address = first.as_ptr();
        assert_eq!(address as usize % ALIGNMENT, 0);
        drop(first);
        assert_eq!(Buffer::stale(3000).as_ptr(), address, "the same class is served from the free list");
    }

    #[test]
    fn a_buffer_may_die_on_another_thread() {
        let buffer = Buffer::copy_of(b"data");
        std::thread::spawn(move || assert_eq!(&buffer[..], b"data")).join().expect("the thread ends well");
    }

    #[test]
    fn a_thread_that_keeps_all_gives_the_same_memory_again() {
        let kept = std::thread::spawn(|| {
            keep_all_of_this_thread();
            let addresses = |buffers: &[Buffer]| {
                let mut addresses: Vec<usize> =
                    buffers.iter().map(|buffer| buffer.as_ptr() as usize).collect();
                addresses.sort_unstable();
                addresses
            };
            let make = || (0..6).map(|_| Buffer::stale(POOLED_BYTES_MAX)).collect::<Vec<_>>();
            let first = make();
            let wanted = addresses(&first);
            drop(first);
            wanted == addresses(&make())
        });
        assert!(kept.join().expect("the thread ends well"), "24 MiB, where 16 are kept otherwise");
    }

    #[test]
    fn the_empty_buffer_owns_nothing() {
        assert!(Buffer::empty().is_empty());
        assert!(Buffer::stale(0).is_empty());
        assert!(Buffer::zeroed(5 << 20).iter().all(|&byte| byte == 0));
    }
}
