//! A check that looks at all copies that a volume below has of each block, since one that nobody read may be the only one that is left
//! tomorrow.

use std::ops::Range;
use std::sync::atomic::Ordering;

use rotproof_block::Result;

use crate::check::FileFindings;
use crate::copies::{Seen, Survey};
use crate::counts::add;
use crate::file::GuardedFile;
use crate::journal::What;
use crate::live::{LiveEntry, flag};
use crate::sum::{BLOCK, BLOCK_U64};

/// What became of the copies of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mended {
    /// All of them were right.
    Nothing,
    /// All of them are now.
    All,
    /// They are not.
    Not,
}

impl GuardedFile {
    /// Looks at all copies that a volume below has of blocks, and has those that are wrong mended. What was read of these blocks is in
    /// `found`.
    pub(crate) fn check_copies(
        &self,
        survey: &mut Survey<'_>,
        blocks: Range<u64>,
        found: &mut FileFindings,
    ) -> Result<()> {
        let is_right = |block, data: &[u8]| self.is_right(block, data) == Some(true);
        let known: Vec<u64> =
            found.rotten.iter().rev().take_while(|block| **block >= blocks.start).copied().collect();
        let mut differ = Vec::new();
        let unseen = &mut found.copies_unseen;
        survey.look(
            &self.file,
            &self.current_name(),
            blocks,
            self.size(),
            &is_right,
            &mut |block, seen| match seen {
                Seen::Alike => {}
                Seen::Differs if known.contains(&block) => {}
                Seen::Differs => differ.push(block),
                Seen::Nothing => *unseen += 1,
            },
        )?;
        for block in differ {
            let _lock = self.lock_writers()?;
            self.ensure(block)?;
            let entry = self.live.at(block);
            let flags = entry.flags.load(Ordering::Acquire);
            let place = block * BLOCK_U64;
            // Nobody vouches for it, or it was written meanwhile and is not on the disk yet.
            if flags & flag::KNOWN == 0 || flags & flag::DIRTY != 0 || place >= self.size() {
                continue;
            }
            // Whether they still differ, and it is not just being written.
            let mut data = [0; BLOCK];
            let data = &mut data[..BLOCK_U64.min(self.size() - place) as usize];
            match self.mend_all_copies(block, entry, data)? {
                Mended::Nothing => {}
                Mended::All => {
                    add(&self.store.counts.from_copy, 1);
                    self.tell(What::RecoveredFromCopy, block);
                    found.repaired.push(block);
                }
                Mended::Not => {
                    found.blocks = found.blocks.saturating_sub(1);
                    found.rotten.push(block);
                }
            }
        }
        Ok(())
    }

    /// Looks at all copies of a block that the volume has, and writes it again if one is wrong and one is right, which `aside` has then. The
    /// caller holds the lock of writers.
    fn mend_all_copies(&self, block: u64, entry: &LiveEntry, aside: &mut [u8]) -> Result<Mended> {
        let Some(copies) = self.store.copies() else { return Ok(Mended::Nothing) };
        let (place, name) = (block * BLOCK_U64, self.current_name());
        let look = |to: &mut [u8]| copies.look(&self.file, &name, place, to, |data| self.fits(entry, data));
        let looked = look(aside)?;
        if looked.wrong == 0 {
            return Ok(Mended::Nothing);
        }
        let is_written = looked.is_found && self.put_back(place, aside);
        Ok(if is_written && look(aside)?.wrong == 0 { Mended::All } else { Mended::Not })
    }
}
