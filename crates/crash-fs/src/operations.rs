//! What is done to files: every operation that matters, alone and in pairs, each with every way to make it durable.
//!
//! After ACE of CrashMonkey (Mohan et al., "Finding Crash-Consistency Bugs with Bounded Black-Box Crash Testing", OSDI
//! 2018, section 5.2): a small set of names, short sequences, and a persistence point behind each operation.

use std::fmt;

use rotproof_block::hash::mix;

use crate::model::Tree;

/// One operation. Paths are relative to the mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An empty file.
    Create(&'static str),
    /// A folder.
    Mkdir(&'static str),
    /// Two blocks at the end of a file.
    Append(&'static str),
    /// The first block of a file again.
    Overwrite(&'static str),
    /// The same through a mapping.
    MmapWrite(&'static str),
    /// A block of zeros at the end, without writing (`fallocate`).
    Falloc(&'static str),
    /// Down to one block.
    Truncate(&'static str),
    /// A name becomes another, which may exist.
    Rename(&'static str, &'static str),
    /// A second name.
    Link(&'static str, &'static str),
    /// A name (the second) that points to another.
    Symlink(&'static str, &'static str),
    /// A name less.
    Unlink(&'static str),
    /// An extended attribute.
    SetXattr(&'static str),
}

/// What makes it durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// Nothing.
    Nothing,
    /// `fsync` of a file.
    Fsync(&'static str),
    /// `fdatasync` of a file.
    Fdatasync(&'static str),
    /// `fsync` of a folder.
    FsyncFolder(&'static str),
    /// `syncfs`.
    Sync,
}

/// An operation and what makes it durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub operation: Operation,
    /// And then.
    pub persist: Persist,
}

use Operation::{
    Append, Create, Falloc, Link, Mkdir, MmapWrite, Overwrite, Rename, SetXattr, Symlink, Truncate, Unlink,
};

/// On the folders `A` and `B` and the files `A/foo`, of two blocks, and `A/bar`, of one.
const OPERATIONS: [Operation; 16] = [
    Create("A/new"),
    Mkdir("A/dir"),
    Append("A/foo"),
    Overwrite("A/foo"),
    MmapWrite("A/foo"),
    Falloc("A/foo"),
    Truncate("A/foo"),
    Rename("A/foo", "A/baz"),
    Rename("A/foo", "A/bar"),
    Rename("A/foo", "B/foo"),
    Link("A/foo", "A/link"),
    Link("A/foo", "B/link"),
    Symlink("foo", "A/symlink"),
    Unlink("A/bar"),
    Unlink("A/foo"),
    SetXattr("A/foo"),
];

impl Operation {
    /// The file that the operation leaves, if it leaves one.
    fn leaves(&self) -> Option<&'static str> {
        match self {
            Create(path)
            | Append(path)
            | Overwrite(path)
            | MmapWrite(path)
            | Falloc(path)
            | Truncate(path)
            | SetXattr(path)
            | Rename(_, path)
            | Link(_, path) => Some(path),
            Mkdir(_) | Symlink(..) | Unlink(_) => None,
        }
    }

    fn folder(&self) -> &'static str {
        let path = match self {
            Create(path)
            | Mkdir(path)
            | Append(path)
            | Overwrite(path)
            | MmapWrite(path)
            | Falloc(path)
            | Truncate(path)
            | Unlink(path)
            | SetXattr(path)
            | Rename(_, path)
            | Link(_, path)
            | Symlink(_, path) => path,
        };
        path.split_once('/').map_or("", |(folder, _)| folder)
    }

    fn changes_data(&self) -> bool {
        matches!(self, Append(_) | Overwrite(_) | MmapWrite(_) | Falloc(_) | Truncate(_))
    }

    /// Every way to make it durable, and none.
    fn persists(&self) -> Vec<Persist> {
        let mut persists = vec![Persist::Nothing, Persist::Sync, Persist::FsyncFolder(self.folder())];
        persists.extend(self.leaves().map(Persist::Fsync));
        persists.extend(self.leaves().filter(|_| self.changes_data()).map(Persist::Fdatasync));
        persists
    }
}

/// Every operation with every way to make it durable.
fn steps() -> Vec<Step> {
    let with = |operation: &Operation| {
        let operation = operation.clone();
        let persists = operation.persists().into_iter();
        persists.map(move |persist| Step { operation: operation.clone(), persist })
    };
    OPERATIONS.iter().flat_map(with).collect()
}

/// All sequences of one step.
pub fn of_length_one() -> Vec<Vec<Step>> {
    steps().into_iter().map(|step| vec![step]).collect()
}

/// All sequences of two steps that can be done one after the other.
pub fn of_length_two() -> Vec<Vec<Step>> {
    let steps = steps();
    let mut sequences = Vec::new();
    for first in &steps {
        let mut tree = Tree::at_first();
        if !tree.apply(&first.operation, 1) {
            continue;
        }
        for second in &steps {
            if tree.clone().apply(&second.operation, 2) {
                sequences.push(vec![first.clone(), second.clone()]);
            }
        }
    }
    sequences
}

/// So many of the sequences, drawn from the seed, in their order.
pub fn sample(sequences: &[Vec<Step>], count: usize, seed: u64) -> Vec<Vec<Step>> {
    let mut drawn: Vec<(u64, usize)> = (0..sequences.len()).map(|at| (mix(seed, 5, at as u64), at)).collect();
    drawn.sort_unstable();
    let mut places: Vec<usize> = drawn.into_iter().take(count).map(|(_, at)| at).collect();
    places.sort_unstable();
    places.into_iter().map(|at| sequences[at].clone()).collect()
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Create(path) => write!(f, "creat {path}"),
            Mkdir(path) => write!(f, "mkdir {path}"),
            Append(path) => write!(f, "append {path}"),
            Overwrite(path) => write!(f, "overwrite {path}"),
            MmapWrite(path) => write!(f, "mmap write {path}"),
            Falloc(path) => write!(f, "falloc {path}"),
            Truncate(path) => write!(f, "truncate {path}"),
            Rename(from, to) => write!(f, "rename {from} {to}"),
            Link(from, to) => write!(f, "link {from} {to}"),
            Symlink(target, path) => write!(f, "symlink {target} {path}"),
            Unlink(path) => write!(f, "unlink {path}"),
            SetXattr(path) => write!(f, "setxattr {path}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        match self.persist {
            Persist::Nothing => Ok(()),
            Persist::Fsync(path) | Persist::FsyncFolder(path) => write!(f, ", fsync {path}"),
            Persist::Fdatasync(path) => write!(f, ", fdatasync {path}"),
            Persist::Sync => write!(f, ", sync"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_all_there_each_once_and_can_be_done() {
        let one = of_length_one();
        assert_eq!(one.len(), 16 * 3 + 12 + 5, "nothing, sync, the folder; the file; its data");
        let mut words: Vec<String> =
            one.iter().flatten().map(|step| format!("{step} {:?}", step.persist)).collect();
        words.sort();
        words.dedup();
        assert_eq!(words.len(), one.len());
        let two = of_length_two();
        assert!(two.len() > one.len() * one.len() / 2 && two.len() < one.len() * one.len());
        let sampled = sample(&two, 50, 1);
        assert_eq!(sampled.len(), 50);
        assert_eq!(sampled, sample(&two, 50, 1));
        assert_ne!(sampled, sample(&two, 50, 2));
    }
}
