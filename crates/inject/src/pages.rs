//! What a page of a machine's memory is, by the flags that its kernel publishes (`/proc/kpageflags`;
//! `include/uapi/linux/kernel-page-flags.h`, Linux 6.1, and Documentation/admin-guide/mm/pagemap.rst).

use std::fmt;

/// What a page is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageKind {
    /// It caches what lies on a device, and holds what lies there.
    PageCache,
    /// It caches what is still to be written to a device.
    Dirty,
    /// Memory of a process.
    Anonymous,
    /// The kernel's own: its objects, page tables, itself.
    Kernel,
    /// Nobody's. What stood in it last may still be there.
    Free,
}

impl PageKind {
    /// The word for it in rules and ledgers.
    pub fn word(self) -> &'static str {
        match self {
            Self::PageCache => "page_cache",
            Self::Dirty => "dirty",
            Self::Anonymous => "anonymous",
            Self::Kernel => "kernel",
            Self::Free => "free",
        }
    }
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

const DIRTY: u64 = 1 << 4;
const LRU: u64 = 1 << 5;
const WRITEBACK: u64 = 1 << 8;
const BUDDY: u64 = 1 << 10;
const ANON: u64 = 1 << 12;
const SWAP_BACKED: u64 = 1 << 14;
const UNEVICTABLE: u64 = 1 << 18;
const NO_PAGE: u64 = 1 << 20;

/// What a page with these flags is; `None` where there is no page.
///
/// A page without any flag is in use by the kernel. A page of a file system that lies in memory alone is the kernel's
/// own, too: it caches nothing.
pub fn page_kind(flags: u64) -> Option<PageKind> {
    if flags & NO_PAGE != 0 {
        return None;
    }
    Some(if flags & BUDDY != 0 {
        PageKind::Free
    } else if flags & (ANON | SWAP_BACKED) != 0 {
        PageKind::Anonymous
    } else if flags & LRU != 0 && flags & UNEVICTABLE == 0 {
        if flags & (DIRTY | WRITEBACK) != 0 { PageKind::Dirty } else { PageKind::PageCache }
    } else {
        PageKind::Kernel
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_a_kernel_published_are_understood() {
        for (flags, kind) in [
            (0x400, Some(PageKind::Free)),
            (0, Some(PageKind::Kernel)),
            // Of the file system that the machine was started from.
            (0x4_0838, Some(PageKind::Kernel)),
            // Referenced, up to date, on the list of the least recently used.
            (0x2c, Some(PageKind::PageCache)),
            (0x38, Some(PageKind::Dirty)),
            (0x128, Some(PageKind::Dirty)),
            (0x5828, Some(PageKind::Anonymous)),
            // A slab, and what is reserved.
            (0x80, Some(PageKind::Kernel)),
            (0x1_0000_0000, Some(PageKind::Kernel)),
            (0x10_0000, None),
        ] {
            assert_eq!(page_kind(flags), kind, "{flags:#x}");
        }
    }
}
