//! Files that a program has mapped for writing: its stores reach the file without passing a guard, so nothing vouches for it.

use std::sync::atomic::Ordering;

use rotproof_block::Result;

use crate::file::{GuardedFile, blocks_of};
use crate::journal::What;
use crate::live::{flag, state};

impl GuardedFile {
    /// A program is about to store into a mapping of the file. From now on nothing vouches for any of its blocks, until all
    /// processes have closed it and it was taken in again (`rotproof guard accept`): a block could neither be verified nor
    /// accused. The journal has it.
    pub fn disown(&self) -> Result<()> {
        let _lock = self.lock_writers()?;
        let head = self.live.head();
        if head.state.load(Ordering::Relaxed) & state::MAPPED != 0 {
            return Ok(());
        }
        // Blocks that the table on the disk says nothing of are unknown from here, not zeros.
        head.state.fetch_or(state::MAPPED, Ordering::Relaxed);
        head.state.fetch_and(!state::COMPLETE, Ordering::Relaxed);
        let blocks = blocks_of(self.size());
        self.make_room(blocks)?;
        for block in 0..blocks {
            let entry = self.live.at(block);
            entry.begin();
            entry.verified.store(0, Ordering::Relaxed);
            entry.flags.store(flag::LOADED | flag::DIRTY, Ordering::Release);
            entry.end();
            head.set_dirty(self.live.region_of(block));
        }
        // Those behind the end were looked up as zeros, perhaps; what is appended has none of their sums, and no others.
        for block in self.live.touched(blocks..u64::MAX).into_iter().flatten() {
            let Some(entry) = self.live.entry(block) else { break };
            entry.begin();
            entry.flags.store(0, Ordering::Release);
            entry.end();
        }
        self.tell_many(What::Mapped, 0, blocks);
        Ok(())
    }

    /// Whether [`GuardedFile::disown`] was called since somebody has it open.
    pub fn is_disowned(&self) -> bool {
        self.live.head().state.load(Ordering::Relaxed) & state::MAPPED != 0
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use crate::{GuardedFile, Store, StoreOptions};

    #[test]
    fn what_is_written_after_it_was_mapped_is_read_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::init(folder.path(), None, StoreOptions::default()).expect("a guard");
        for (before, after) in [(1, 1), (10, 10), (60, 10), (300, 900), (2000, 5000)] {
            let path = folder.path().join(format!("{before}"));
            let below = std::fs::File::options().read(true).write(true).create_new(true).open(&path);
            let below = below.expect("a file");
            let file = GuardedFile::open(&store, below.as_raw_fd(), true, &path).expect("a guarded file");
            file.write_at(&vec![1; before * 4096], 0).expect("written");
            file.disown().expect("mapped");
            file.append(&vec![2; after * 4096], None).expect("appended");
            let mut data = vec![0; (before + after) * 4096];
            assert_eq!(file.read_at(&mut data, 0).expect("read"), data.len());
            assert!(data[..before * 4096].iter().all(|byte| *byte == 1));
            assert!(data[before * 4096..].iter().all(|byte| *byte == 2));
            file.set_size(before as u64 * 4096 - 5).expect("cut");
            file.set_size(data.len() as u64).expect("grown");
            assert_eq!(file.read_at(&mut data, 0).expect("read"), data.len());
            assert!(data[before * 4096..].iter().all(|byte| *byte == 0));
            drop(file);
            let file = GuardedFile::open(&store, below.as_raw_fd(), true, &path).expect("a guarded file");
            file.write_at(&[3; 10], 7).expect("written");
            file.sync(false).expect("durable");
            assert_eq!(file.read_at(&mut data, 0).expect("read"), data.len());
        }
    }
}
