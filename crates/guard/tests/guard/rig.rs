//! A guarded scratch directory, and what may happen to it.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rotproof_guard::{GuardedFile, Store, StoreOptions};
use tempfile::TempDir;

pub struct Rig {
    folder: TempDir,
    pub options: StoreOptions,
}

impl Rig {
    pub fn new() -> Self {
        Self::with(StoreOptions::default())
    }

    pub fn with(options: StoreOptions) -> Self {
        // Beside the tests: a file system that has direct I/O.
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        Self { folder, options }
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub fn store(&self) -> Arc<Store> {
        Store::init(self.root(), None, self.options).expect("a guard")
    }

    pub fn open(&self, store: &Arc<Store>, name: &str) -> Arc<GuardedFile> {
        let path = self.path(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .expect("a file");
        GuardedFile::open(store, file.as_raw_fd(), true, &path).expect("a guarded file")
    }

    /// What the machine going down does to what is only in memory; the disk keeps everything.
    pub fn lose_power(&self, store: Arc<Store>, files: Vec<Arc<GuardedFile>>) {
        let shared = store.shared().to_owned();
        // The shared memory goes first, so that nothing is left to be put on the disk.
        let mut kept = Vec::new();
        let mut waiting =
            vec![self.root().join(".rotproof-guard/tables"), self.root().join(".rotproof-guard/slots")];
        while let Some(folder) = waiting.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.path().is_dir() {
                    waiting.push(entry.path());
                } else {
                    kept.push((entry.path(), std::fs::read(entry.path()).expect("sums")));
                }
            }
        }
        std::fs::remove_dir_all(shared).expect("gone");
        drop(files);
        drop(store);
        std::fs::remove_dir_all(self.root().join(".rotproof-guard/tables")).expect("gone");
        let _ = std::fs::remove_dir_all(self.root().join(".rotproof-guard/slots"));
        for (path, bytes) in kept {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, bytes).expect("kept");
        }
    }

    /// Flips a bit in the page cache, as memory that rots: the file's times stay.
    pub fn flip_cached(&self, name: &str, bit: u64) {
        let path = self.path(name);
        let file = OpenOptions::new().read(true).write(true).open(&path).expect("the file");
        let modified = file.metadata().and_then(|metadata| metadata.modified()).expect("times");
        use std::os::unix::fs::FileExt;
        let mut byte = [0];
        file.read_exact_at(&mut byte, bit / 8).expect("a byte");
        byte[0] ^= 1 << (bit % 8);
        file.write_all_at(&byte, bit / 8).expect("flipped");
        file.set_modified(modified).expect("times");
    }

    /// Flips a bit on the disk, with nothing of the file left in the cache.
    pub fn flip_on_disk(&self, name: &str, bit: u64) {
        self.flip_cached(name, bit);
        let file = std::fs::File::open(self.path(name)).expect("the file");
        file.sync_all().expect("on the disk");
        // SAFETY: takes an open descriptor.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
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
