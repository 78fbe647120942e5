//! Names of files: of each inode in which directory it is, and how it is called there. `struct btrfs_inode_ref`.

use crate::bytes::le16;
use crate::map::Owner;

use super::{Reader, Walk};

const INODE_REF: u8 = 12;

impl Reader<'_> {
    /// Walks a tree of files, and takes down the names if they are wanted. Nodes that a snapshot shares with a tree walked
    /// before are not shown again, so files have their names in that tree alone.
    pub(super) fn read_files(&mut self, walk: Walk, root: (u64, u8)) {
        let mut names = self.names.take();
        self.walk(walk, root, &mut |key, item| {
            let Some(names) = names.as_mut().filter(|_| key.kind == INODE_REF) else { return };
            let of = |inode: u64| Owner { inode: Some(inode), tree: Some(walk.number) };
            let name = le16(item, 8).and_then(|length| item.get(10..10 + usize::from(length)));
            if let Some(name) = name {
                names.add(of(key.object), of(key.offset), name);
            }
        });
        self.names = names;
    }
}
