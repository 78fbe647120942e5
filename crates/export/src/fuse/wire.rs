//! The kernel's FUSE protocol, as far as a directory with one file needs it: numbers, flags and structures of
//! `include/uapi/linux/fuse.h` (protocol 7.45), in the machine's own byte order.
//!
//! It knows the layout of messages and nothing of what they mean to us. Reading untrusted bytes is `parse`'s work.

/// The protocol's major version.
pub(super) const MAJOR: u32 = 7;
/// The minor version that is spoken: the one that brought the last flag in [`init`] (Linux 6.14).
pub(super) const MINOR: u32 = 42;
/// The oldest minor version that has everything a fast export needs: requests of 1 MiB (Linux 4.20).
pub(super) const MINOR_MIN: u32 = 28;

/// The node of the directory.
pub(super) const ROOT: u64 = 1;

/// Bytes of the header of a request.
pub(super) const HEADER_BYTES: usize = size_of::<InHeader>();
/// Bytes before the payload of a write: its header and its fields.
pub(super) const HEAD_BYTES: usize = HEADER_BYTES + size_of::<WriteIn>();

/// Numbers of the operations.
pub(super) mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const ACCESS: u32 = 34;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
}

/// What the two sides can do, agreed upon in INIT; bits from 32 on travel in `flags2`.
pub(super) mod init {
    /// Several reads of the page cache (of a mapping) under way at once.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// Writes of more than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// Direct I/O of one call split into several requests under way at once, and the caller not waiting for them.
    /// Without it a loop device has one request in flight.
    pub const ASYNC_DIO: u64 = 1 << 15;
    /// Lookups beside each other.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// An aborted connection is told from an unmounted one.
    pub const ABORT_ERROR: u64 = 1 << 21;
    /// Requests of more than 32 pages.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// The file never has set-uid bits or capabilities to be cleared by a write, so the kernel need not look.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// There is a second word of flags.
    pub const EXTENDED: u64 = 1 << 30;
    /// Shared mappings of a file that is opened for direct I/O.
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// Requests come by io_uring once every queue has an entry; until then they wait.
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Flags of an open file.
pub(super) mod open {
    /// Every read and write goes to us, none to the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// What the page cache has of the file from before is still right.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// Closing sends no FLUSH.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Writes do not wait for each other.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Messages to the kernel that answer nothing: their code stands in the place of the error.
pub(super) mod notify {
    /// Part of a file is another one now: `fuse_notify_inval_inode_out` follows.
    pub const INVAL_INODE: i32 = 2;
    /// Part of a file is this now: `fuse_notify_store_out` and the bytes follow.
    pub const STORE: i32 = 4;
}

/// Which fields of a [`SetattrIn`] hold.
pub(super) mod setattr {
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const HANDLE: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// A structure that is nothing but numbers.
///
/// # Safety
/// `repr(C)`, without padding, and every bit pattern is a value.
pub(super) unsafe trait Plain: Copy {
    /// Reads the structure from the beginning of `bytes`, if they are enough.
    fn from_prefix(bytes: &[u8]) -> Option<Self> {
        // SAFETY: there are enough bytes, and any of them make a value; the read needs no alignment.
        (bytes.len() >= size_of::<Self>()).then(|| unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    /// The bytes of the structure.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: no padding, so every byte is initialised; the slice borrows the structure.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }
}

/// Declares structures of the protocol, each checked against its size in the kernel's header.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident: $bytes:literal { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default)]
        pub(super) struct $name { $(pub $field: $type),* }

        const _: () = assert!(size_of::<$name>() == $bytes && $bytes == 0 $(+ size_of::<$type>())*);

        // SAFETY: `repr(C)`, and the line above shows that the fields, all of them numbers, leave no gap.
        unsafe impl Plain for $name {}
    )*};
}

plain! {
    /// Begins every request.
    InHeader: 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// Begins every answer; `error` is zero or minus an errno.
    OutHeader: 16 { len: u32, error: i32, unique: u64 }
    /// The part of INIT that is used; older kernels send the first 16 bytes only.
    InitIn: 16 { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    /// Which bytes of a file are others now.
    InvalInode: 24 { ino: u64, off: i64, len: i64 }
    /// Where bytes go that are told unasked.
    Store: 24 { nodeid: u64, offset: u64, size: u32, padding: u32 }
    InitOut: 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16,
        flags2: u32, unused: [u32; 7],
    }
    /// The beginning of SETATTR's fields; owner, mode and times follow.
    SetattrIn: 24 { valid: u32, padding: u32, fh: u64, size: u64 }
    OpenIn: 8 { flags: u32, open_flags: u32 }
    OpenOut: 16 { fh: u64, open_flags: u32, padding: u32 }
    ReadIn: 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn: 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteOut: 8 { size: u32, padding: u32 }
    FallocateIn: 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    Attr: 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32,
        mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32,
        flags: u32,
    }
    AttrOut: 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    EntryOut: 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }
    StatfsOut: 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    /// Begins an entry of a directory; the name follows, filled up with zeros to a multiple of eight bytes.
    Dirent: 24 { ino: u64, off: u64, namelen: u32, kind: u32 }
    /// What a command to the device over io_uring carries; the rest of its 80 bytes is zero.
    RingCommand: 24 { flags: u64, commit: u64, queue: u16, padding: [u16; 3] }
}

/// A request in its entry of a ring, beside its payload; its answer too.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RingRequest {
    /// [`InHeader`], or [`OutHeader`] in an answer.
    pub in_out: [u8; 128],
    /// The operation's fields.
    pub fields: [u8; RingRequest::FIELDS_BYTES],
    pub flags: u64,
    /// What the answer must name.
    pub commit: u64,
    /// Bytes of payload, either way.
    pub payload_len: u32,
    pub padding: u32,
    pub reserved: u64,
}

impl RingRequest {
    /// Room for the fields of an operation.
    pub(super) const FIELDS_BYTES: usize = 128;
}

const _: () = assert!(size_of::<RingRequest>() == 288);

impl Default for RingRequest {
    fn default() -> Self {
        let (in_out, fields) = ([0; 128], [0; Self::FIELDS_BYTES]);
        Self { in_out, fields, flags: 0, commit: 0, payload_len: 0, padding: 0, reserved: 0 }
    }
}
