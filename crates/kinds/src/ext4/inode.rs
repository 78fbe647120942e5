//! An inode and the blocks that it names: by an extent tree, or by direct and indirect block numbers.

use crate::bytes::{le16, le32};
use crate::kind::Plain;
use crate::map::{Owner, Rank};

use super::{Reader, Run};

const FLAG_INDEX: u32 = 0x1000;
const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_XATTR_INODE: u32 = 0x20_0000;
const FLAG_INLINE_DATA: u32 = 0x1000_0000;

const FORMAT_MASK: u16 = 0xf000;
const DIRECTORY: u16 = 0x4000;
const REGULAR: u16 = 0x8000;
const SYMLINK: u16 = 0xa000;

/// Bytes of an inode for block numbers, or for the root of an extent tree.
const ROOT_BYTES: usize = 60;
const EXTENT_MAGIC: u16 = 0xf30a;
/// `EXT4_MAX_EXTENT_DEPTH`.
const DEPTH_MAX: u16 = 5;
/// Longer extents are allocated and not yet written, `EXT_INIT_MAX_LEN`.
const WRITTEN_BLOCKS_MAX: u16 = 1 << 15;
const DIRECT_BLOCKS: usize = 12;

/// What is needed of `struct ext4_inode`.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) number: u32,
    /// Where it lies on the device, in bytes.
    offset: u64,
    pub(super) xattr_block: u64,
    mode: u16,
    size: u64,
    flags: u32,
    root: [u8; ROOT_BYTES],
}

impl Inode {
    pub(super) fn parse(number: u32, offset: u64, raw: &[u8]) -> Option<Self> {
        Some(Self {
            number,
            offset,
            mode: le16(raw, 0)?,
            size: u64::from(le32(raw, 108)?) << 32 | u64::from(le32(raw, 4)?),
            flags: le32(raw, 32)?,
            root: raw.get(40..40 + ROOT_BYTES)?.try_into().ok()?,
            xattr_block: u64::from(le16(raw, 118)?) << 32 | u64::from(le32(raw, 104)?),
        })
    }

    fn format(&self) -> u16 {
        self.mode & FORMAT_MASK
    }

    pub(super) fn is_directory(&self) -> bool {
        self.format() == DIRECTORY
    }

    pub(super) fn is_symlink(&self) -> bool {
        self.format() == SYMLINK
    }

    pub(super) fn is_of_xattr(&self) -> bool {
        self.flags & FLAG_XATTR_INODE != 0
    }

    /// Whether a directory has a hash tree.
    pub(super) fn has_htree(&self) -> bool {
        self.flags & FLAG_INDEX != 0
    }

    fn has_extents(&self) -> bool {
        self.flags & FLAG_EXTENTS != 0
    }

    /// Whether it names blocks: devices and pipes have none, small links and files keep their content in the inode. Of
    /// bad blocks and the blocks kept for descriptors the inode has no format.
    pub(super) fn has_blocks(&self) -> bool {
        let is_inside = self.is_symlink() && !self.has_extents() && self.size < ROOT_BYTES as u64;
        matches!(self.format(), 0 | DIRECTORY | REGULAR | SYMLINK)
            && self.flags & FLAG_INLINE_DATA == 0
            && !is_inside
    }
}

impl Reader<'_> {
    /// The blocks of a file, in their order. Claims the blocks that say where they are.
    pub(super) fn runs_of(&mut self, inode: &Inode) -> Vec<Run> {
        let mut runs = Vec::new();
        if inode.has_extents() {
            self.follow_extents(inode.number, (inode.offset, &inode.root), None, &mut runs);
        } else {
            self.follow_numbers(inode, &mut runs);
        }
        runs
    }

    /// One node of an extent tree, which lies at `offset`; `depth` is what its parent says it has, `None` for the root.
    fn follow_extents(
        &mut self,
        inode: u32,
        (offset, node): (u64, &[u8]),
        depth: Option<u16>,
        runs: &mut Vec<Run>,
    ) {
        let header = (|| Some((le16(node, 0)?, le16(node, 2)?, le16(node, 6)?)))();
        let Some((EXTENT_MAGIC, entries, own_depth)) = header else {
            // A file system that was just made has inodes in use without a mode or a block.
            if node.iter().any(|&byte| byte != 0) || depth.is_some() {
                self.builder.damaged(offset, format!("inode {inode}: a node of the extent tree is none"));
            }
            return;
        };
        if own_depth > DEPTH_MAX || depth.is_some_and(|depth| depth != own_depth) {
            let what = format!("inode {inode}: its extent tree is {own_depth} deep at a wrong place");
            return self.builder.damaged(offset, what);
        }
        for entry in node.get(12..).unwrap_or_default().chunks_exact(12).take(usize::from(entries)) {
            let (Some(logical), Some(half), Some(other), Some(low)) =
                (le32(entry, 0), le16(entry, 4), le16(entry, 6), le32(entry, 8))
            else {
                return;
            };
            if own_depth == 0 {
                let blocks = if half > WRITTEN_BLOCKS_MAX { half - WRITTEN_BLOCKS_MAX } else { half };
                let (physical, blocks) = (u64::from(other) << 32 | u64::from(low), u64::from(blocks));
                if self.is_there(inode, &(physical..physical + blocks)) {
                    runs.push(Run { logical: u64::from(logical), physical, blocks });
                }
                continue;
            }
            let child = u64::from(le16(entry, 8).unwrap_or(0)) << 32 | u64::from(le32(entry, 4).unwrap_or(0));
            if let Some(bytes) = self.visit(inode, child, Plain::ExtentTree) {
                let offset = child * self.layout.block_bytes;
                self.follow_extents(inode, (offset, &bytes), Some(own_depth - 1), runs);
            }
        }
    }

    /// Claims and reads a block that says where others are; once.
    fn visit(&mut self, inode: u32, block: u64, kind: Plain) -> Option<Vec<u8>> {
        if !self.is_there(inode, &(block..block.saturating_add(1))) {
            return None;
        }
        if !self.visited.insert(block) {
            self.damaged(block, format!("inode {inode} names a {kind:?} block that is another's already"));
            return None;
        }
        self.claim(Rank::Structure, block..block + 1, kind, Owner::inode(u64::from(inode)));
        self.block(block)
    }

    fn follow_numbers(&mut self, inode: &Inode, runs: &mut Vec<Run>) {
        let mut logical = 0;
        for index in 0..DIRECT_BLOCKS + 3 {
            let block = le32(&inode.root, 4 * index).unwrap_or(0);
            let depth = index.saturating_sub(DIRECT_BLOCKS - 1) as u32;
            self.follow_number(inode.number, u64::from(block), depth, &mut logical, runs);
        }
    }

    /// A block number: of content (`depth` 0), or of a block of further numbers.
    fn follow_number(&mut self, inode: u32, block: u64, depth: u32, logical: &mut u64, runs: &mut Vec<Run>) {
        let each = self.layout.block_bytes / 4;
        let below = if depth == 0 { None } else { self.visit_if_any(inode, block) };
        match below {
            Some(numbers) => {
                for number in numbers.chunks_exact(4) {
                    let number = u64::from(le32(number, 0).unwrap_or(0));
                    self.follow_number(inode, number, depth - 1, logical, runs);
                }
            }
            None => {
                if depth == 0 && block > 0 && self.is_there(inode, &(block..block + 1)) {
                    match runs.last_mut() {
                        Some(last)
                            if last.physical + last.blocks == block
                                && last.logical + last.blocks == *logical =>
                        {
                            last.blocks += 1;
                        }
                        _ => runs.push(Run { logical: *logical, physical: block, blocks: 1 }),
                    }
                }
                *logical = logical.saturating_add(each.saturating_pow(depth));
            }
        }
    }

    fn visit_if_any(&mut self, inode: u32, block: u64) -> Option<Vec<u8>> {
        if block == 0 { None } else { self.visit(inode, block, Plain::Indirect) }
    }
}
