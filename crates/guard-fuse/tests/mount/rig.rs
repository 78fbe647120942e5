//! A guarded scratch directory that is mounted.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use rotproof_guard::{Store, StoreOptions};
use rotproof_guard_fuse::{GuardMount, MountOptions};
use tempfile::TempDir;

pub struct Rig {
    // In this order: the mount goes before the folders.
    mount: Option<GuardMount>,
    pub store: Arc<Store>,
    folder: TempDir,
}

impl Rig {
    pub fn new() -> Self {
        Self::with(MountOptions::default())
    }

    pub fn with(options: MountOptions) -> Self {
        // Another file system may be looked at: its folder.
        let place =
            std::env::var_os("ROTPROOF_GUARD_FOLDER").unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
        let folder = TempDir::new_in(place).expect("a folder");
        for name in ["data", "mount"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let store = Store::init(&folder.path().join("data"), None, StoreOptions::default()).expect("a guard");
        let mount = GuardMount::new(&store, &folder.path().join("mount"), options).expect("a mount");
        Self { mount: Some(mount), store, folder }
    }

    /// In the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("mount").join(name)
    }

    /// The same below it.
    pub fn below(&self, name: &str) -> PathBuf {
        self.folder.path().join("data").join(name)
    }

    pub fn unmount(&mut self) {
        self.mount.take().expect("mounted").unmount().expect("unmounted");
    }

    /// Flips a bit on the disk, with nothing of the file left in the cache, and its times as they were.
    pub fn flip_on_disk(&self, name: &str, bit: u64) {
        let file = std::fs::File::options().read(true).write(true).open(self.below(name)).expect("the file");
        let modified = file.metadata().and_then(|metadata| metadata.modified()).expect("times");
        let mut byte = [0];
        file.read_exact_at(&mut byte, bit / 8).expect("a byte");
        file.write_all_at(&[byte[0] ^ 1 << (bit % 8)], bit / 8).expect("flipped");
        file.set_modified(modified).expect("times");
        file.sync_all().expect("on the disk");
        // SAFETY: takes an open descriptor.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }

    /// No block was ever wrong, torn or without sums.
    pub fn assert_all_verified(&self) {
        let counts = self.store.counts.now();
        assert_eq!(
            (counts.refused, counts.unvouched, counts.torn, counts.from_disk),
            (0, 0, 0, 0),
            "{counts:?}"
        );
    }
}

/// Bytes that repeat nowhere.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}
