//! Directories: which of their blocks are the hash tree, and the names in the others. `fs/ext4/namei.c`.

use crate::bytes::{le16, le32, u8_at};
use crate::kind::Plain;
use crate::map::{Owner, Rank};

use super::inode::Inode;
use super::{Reader, Run};

/// `EXT4_HTREE_LEVEL`.
const LEVELS_MAX: u8 = 3;
/// Where the entries of the root of a hash tree begin, and those of its other nodes.
const ROOT_ENTRIES: usize = 32;
const NODE_ENTRIES: usize = 8;

impl Reader<'_> {
    /// Claims the blocks of the hash tree; takes down the names, if they are wanted.
    pub(super) fn read_directory(&mut self, inode: &Inode, runs: &[Run]) {
        if inode.has_htree() {
            self.read_htree(inode.number, runs);
        }
        if self.names.is_none() {
            return;
        }
        let parent = Owner::inode(u64::from(inode.number));
        for run in runs {
            for block in run.physical..run.physical + run.blocks {
                let Some(bytes) = self.block(block) else { continue };
                let Some(names) = &mut self.names else { return };
                for (child, name) in entries(&bytes) {
                    names.add(Owner::inode(u64::from(child)), parent, name);
                }
            }
        }
    }

    fn read_htree(&mut self, inode: u32, runs: &[Run]) {
        let Some(root) = physical(runs, 0) else { return };
        let owner = Owner::inode(u64::from(inode));
        self.claim(Rank::Structure, root..root + 1, Plain::Htree, owner);
        let Some(bytes) = self.block(root) else { return };
        let levels = u8_at(&bytes, 0x1e).unwrap_or(0);
        if levels > LEVELS_MAX {
            return self.damaged(root, format!("inode {inode}: a hash tree with {levels} levels"));
        }
        let mut above = vec![(bytes, ROOT_ENTRIES)];
        for _ in 0..levels {
            let mut below = Vec::new();
            for (bytes, from) in &above {
                for logical in children(bytes, *from) {
                    let Some(block) = physical(runs, u64::from(logical)) else { continue };
                    if self.visited.insert(block) {
                        self.claim(Rank::Structure, block..block + 1, Plain::Htree, owner);
                        below.extend(self.block(block).map(|bytes| (bytes, NODE_ENTRIES)));
                    }
                }
            }
            above = below;
        }
    }
}

/// Where a block of a file lies.
fn physical(runs: &[Run], logical: u64) -> Option<u64> {
    let run = runs.iter().find(|run| (run.logical..run.logical + run.blocks).contains(&logical))?;
    Some(run.physical + (logical - run.logical))
}

/// The blocks of the directory that a node of a hash tree names. The first entry has limit and count instead of a hash.
fn children(node: &[u8], from: usize) -> Vec<u32> {
    let count = usize::from(le16(node, from + 2).unwrap_or(0));
    let entries = node.get(from..).unwrap_or_default().chunks_exact(8).take(count);
    entries.filter_map(|entry| le32(entry, 4)).collect()
}

/// Inode and name of each entry, as far as they can be read.
fn entries(block: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let inode = le32(block, at)?;
            let length = usize::from(le16(block, at + 4)?);
            let name = block.get(at + 8..at + 8 + usize::from(u8_at(block, at + 6)?));
            if length < 8 {
                return None;
            }
            at += length;
            match name {
                Some(name) if inode != 0 && !name.is_empty() => return Some((inode, name)),
                _ => {}
            }
        }
    })
}
