//! The names in a directory: those kept in the inode, and those in its blocks. `fs/xfs/libxfs/xfs_da_format.h`.

use crate::bytes::{be16, be32, be64, u8_at};
use crate::map::Owner;
use crate::reader::Names;

use super::Reader;
use super::fork::{FORMAT_LOCAL, Fork, Run};

/// The first half of a directory, where names are.
const NAMES_END: u64 = 1 << 35;
const UNUSED: u16 = 0xffff;

impl Reader<'_> {
    pub(super) fn take_names(&mut self, directory: Owner, fork: &Fork, runs: &[Run]) {
        let has_type = self.layout.has_file_types;
        if fork.format == FORMAT_LOCAL {
            if let Some(names) = &mut self.names {
                take_short(names, directory, &fork.bytes, has_type);
            }
            return;
        }
        let block = self.layout.block_bytes;
        let directory_block = block << self.layout.directory_block_bits.min(7);
        for run in runs.iter().filter(|run| run.logical.saturating_mul(block) < NAMES_END) {
            for at in (0..run.blocks * block).step_by(directory_block as usize) {
                let Some(bytes) = self.block(run.offset + at, directory_block.min(run.blocks * block - at))
                else {
                    continue;
                };
                if let Some(names) = &mut self.names {
                    take_block(names, directory, &bytes, has_type);
                }
            }
        }
    }
}

/// `struct xfs_dir2_sf_hdr` and its entries.
fn take_short(names: &mut Names, directory: Owner, bytes: &[u8], has_type: bool) {
    let wide = u8_at(bytes, 1).unwrap_or(0) > 0;
    let count = u8_at(bytes, if wide { 1 } else { 0 }).unwrap_or(0);
    let number = if wide { 8 } else { 4 };
    let mut at = 2 + number;
    for _ in 0..count {
        let Some(length) = u8_at(bytes, at).map(usize::from) else { return };
        let Some(name) = bytes.get(at + 3..at + 3 + length) else { return };
        let behind = at + 3 + length + usize::from(has_type);
        let inode = if wide { be64(bytes, behind) } else { be32(bytes, behind).map(u64::from) };
        let Some(inode) = inode else { return };
        names.add(Owner::inode(inode), directory, name);
        at = behind + number;
    }
}

/// Entries of a block: of a directory with one block (`XDB3`, which ends with hashes), or of a larger one (`XDD3`).
fn take_block(names: &mut Names, directory: Owner, bytes: &[u8], has_type: bool) {
    let (header, is_single) = match bytes.get(..4) {
        Some(b"XDB3") => (64, true),
        Some(b"XDD3") => (64, false),
        Some(b"XD2B") => (16, true),
        Some(b"XD2D") => (16, false),
        _ => return,
    };
    let mut end = bytes.len();
    if is_single {
        let leaves = be32(bytes, end.saturating_sub(8)).unwrap_or(0) as usize;
        end = end.saturating_sub(8).saturating_sub(leaves.saturating_mul(8));
    }
    let mut at = header;
    while at < end {
        if be16(bytes, at) == Some(UNUSED) {
            match be16(bytes, at + 2).map(usize::from) {
                Some(length) if length >= 8 => at += length,
                _ => return,
            }
            continue;
        }
        let (Some(inode), Some(length)) = (be64(bytes, at), u8_at(bytes, at + 8).map(usize::from)) else {
            return;
        };
        let Some(name) = bytes.get(at + 9..at + 9 + length) else { return };
        if length == 0 {
            return;
        }
        names.add(Owner::inode(inode), directory, name);
        at += (9 + length + usize::from(has_type) + 2).next_multiple_of(8);
    }
}
