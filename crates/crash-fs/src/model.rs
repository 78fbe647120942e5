//! What files are after each operation, by the plainest model: names, inodes, blocks of one byte.

use std::collections::BTreeMap;

use crate::operations::Operation;

/// Bytes of a block. Every sector of it holds the block's byte.
pub const BLOCK_BYTES: usize = 4096;

/// A file, folder or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A folder.
    Folder,
    /// A file.
    File {
        /// The byte of each block.
        blocks: Vec<u8>,
        /// Its extended attribute.
        xattr: Option<u8>,
    },
    /// What it points to.
    Symlink(&'static str),
}

/// All names and what they stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Inode by path.
    pub names: BTreeMap<&'static str, u64>,
    /// Nodes by inode; those without a name stay.
    pub nodes: BTreeMap<u64, Node>,
}

impl Tree {
    /// What every sequence begins with, durable.
    pub fn at_first() -> Self {
        let file = |blocks: &[u8]| Node::File { blocks: blocks.to_vec(), xattr: None };
        let nodes = [Node::Folder, Node::Folder, file(&[0x11, 0x12]), file(&[0x21])];
        Self {
            names: [("A", 0), ("B", 1), ("A/foo", 2), ("A/bar", 3)].into(),
            nodes: (0..).zip(nodes).collect(),
        }
    }

    /// What a path stands for.
    pub fn node(&self, path: &str) -> Option<&Node> {
        self.names.get(path).and_then(|inode| self.nodes.get(inode))
    }

    fn add(&mut self, path: &'static str, node: Node) -> bool {
        let inode = self.nodes.len() as u64;
        let is_free = !self.names.contains_key(path);
        if is_free {
            self.names.insert(path, inode);
            self.nodes.insert(inode, node);
        }
        is_free
    }

    fn file(&mut self, path: &str) -> Option<(&mut Vec<u8>, &mut Option<u8>)> {
        match self.names.get(path).and_then(|inode| self.nodes.get_mut(inode)) {
            Some(Node::File { blocks, xattr }) => Some((blocks, xattr)),
            _ => None,
        }
    }

    /// Does an operation as the step with this number, from 1; no if it cannot be done, and then nothing is.
    pub fn apply(&mut self, operation: &Operation, step: u8) -> bool {
        let change = |file: Option<(&mut Vec<u8>, &mut Option<u8>)>, change: &dyn Fn(&mut Vec<u8>)| match file
        {
            Some((blocks, _)) if !blocks.is_empty() => {
                change(blocks);
                true
            }
            _ => false,
        };
        match *operation {
            Operation::Create(path) => self.add(path, Node::File { blocks: Vec::new(), xattr: None }),
            Operation::Mkdir(path) => self.add(path, Node::Folder),
            Operation::Symlink(target, path) => self.add(path, Node::Symlink(target)),
            Operation::Append(path) => {
                let bytes = [byte_of(step, 0), byte_of(step, 1)];
                change(self.file(path), &|blocks| blocks.extend(bytes))
            }
            Operation::Overwrite(path) | Operation::MmapWrite(path) => {
                change(self.file(path), &|blocks| blocks[0] = byte_of(step, 0))
            }
            Operation::Falloc(path) => change(self.file(path), &|blocks| blocks.push(0)),
            Operation::Truncate(path) => change(self.file(path), &|blocks| blocks.truncate(1)),
            Operation::SetXattr(path) => match self.file(path) {
                Some((_, xattr)) => {
                    *xattr = Some(byte_of(step, 0));
                    true
                }
                None => false,
            },
            Operation::Rename(from, to) => {
                // Of two names of one file, rename does nothing.
                if !self.names.contains_key(from) || self.names.get(from) == self.names.get(to) {
                    return false;
                }
                let inode = self.names.remove(from);
                self.names.extend(inode.map(|inode| (to, inode)));
                true
            }
            Operation::Link(from, to) => {
                let Some(&inode) = self.names.get(from).filter(|_| !self.names.contains_key(to)) else {
                    return false;
                };
                self.names.insert(to, inode);
                true
            }
            Operation::Unlink(path) => self.names.remove(path).is_some(),
        }
    }
}

/// The byte that a step writes into the n-th block that it writes: every one different, and none zero.
pub fn byte_of(step: u8, block: u8) -> u8 {
    0x40 + step * 8 + block
}
