//! What files may be after a crash: between what was made durable and what had begun, and nothing else.
//!
//! It asks only for what the file system promises ([`Promise`]), and where the model does not know it asks for less, so
//! that what it finds is a finding: sizes and blocks that were not made durable may be any that the file ever had, or
//! zeros; names may be those before or after each operation that had begun.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use rotproof_block::Result;
use rotproof_crash::{Crash, Finding};

use crate::check::Oracle;
use crate::doer::xattr_of;
use crate::model::{BLOCK_BYTES, Node, Tree};
use crate::operations::{Operation, Persist, Step};
use crate::promise::Promise;

const SECTOR_BYTES: usize = 512;

/// See the head of the module. Knows one sequence.
#[derive(Clone, Debug)]
pub struct TreeOracle {
    steps: Vec<Step>,
    /// Before the first step, and after each.
    trees: Vec<Tree>,
    promise: Promise,
}

/// What is found under a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Folder,
    File { size: usize, sectors: Vec<Option<u8>>, xattr: Option<u8> },
    Symlink(String),
    Other,
}

/// How far the load had come.
struct Reached {
    /// Steps that had begun.
    begun: usize,
    /// The last step after which everything was made durable.
    synced: usize,
    /// Steps whose persistence point had returned.
    persisted: Vec<usize>,
}

/// The mark that a step begins.
pub(crate) fn begin_mark(step: usize) -> String {
    format!("step {step} begins")
}

/// The mark that a step's persistence point has returned.
pub(crate) fn persisted_mark(step: usize) -> String {
    format!("step {step} is persisted")
}

impl TreeOracle {
    /// The oracle of a sequence, which must be one that can be done.
    pub fn new(steps: &[Step], promise: Promise) -> Self {
        let mut trees = vec![Tree::at_first()];
        for (number, step) in (1..).zip(steps) {
            let mut tree = trees[trees.len() - 1].clone();
            tree.apply(&step.operation, number);
            trees.push(tree);
        }
        Self { steps: steps.to_vec(), trees, promise }
    }

    fn reached(&self, crash: &Crash<'_>) -> Reached {
        let has = |text: &str| crash.marks.iter().any(|mark| mark.text == text);
        let steps = 1..=self.steps.len();
        let begun = steps.clone().filter(|&step| has(&begin_mark(step))).max().unwrap_or(0);
        let persisted: Vec<usize> = steps.filter(|&step| has(&persisted_mark(step))).collect();
        let is_sync = |step: &&usize| self.syncs(**step);
        Reached { begun, synced: persisted.iter().filter(is_sync).max().copied().unwrap_or(0), persisted }
    }

    /// Whether the persistence point of a step makes everything durable.
    fn syncs(&self, step: usize) -> bool {
        let Step { operation, persist } = &self.steps[step - 1];
        let only_data = matches!(operation, Operation::Overwrite(_) | Operation::MmapWrite(_));
        *persist == Persist::Sync && (self.promise.sync_flushes_overwrites || !only_data)
    }

    fn judge(&self, seen: &BTreeMap<String, Seen>, reached: &Reached) -> Vec<Finding> {
        let trees = &self.trees[reached.synced..=reached.begun];
        let mut findings = Vec::new();
        for (path, what) in seen {
            let inodes: BTreeSet<u64> =
                trees.iter().filter_map(|tree| tree.names.get(path.as_str()).copied()).collect();
            if inodes.is_empty() {
                findings
                    .push(Finding::new("stray name", format!("{path} is there, and was not at any time")));
                continue;
            }
            let reasons: Vec<String> =
                inodes.iter().filter_map(|&inode| self.unlike(inode, what, reached).err()).collect();
            if reasons.len() == inodes.len() {
                findings.push(Finding::new("content", format!("{path}: {}", reasons.join("; or "))));
            }
        }
        let names: BTreeSet<&str> = trees.iter().flat_map(|tree| tree.names.keys().copied()).collect();
        for path in &names {
            if !seen.contains_key(*path) && trees.iter().all(|tree| tree.names.contains_key(path)) {
                findings
                    .push(Finding::new("lost name", format!("{path} is not there, and was at every time")));
            }
        }
        for inode in trees[0].nodes.keys() {
            let of = |tree: &Tree| -> Vec<&'static str> {
                tree.names.iter().filter(|(_, one)| *one == inode).map(|(path, _)| *path).collect()
            };
            let paths: Vec<&str> = trees.iter().flat_map(of).collect();
            let has_one_always = trees.iter().all(|tree| !of(tree).is_empty());
            let is_it =
                |path: &&str| seen.get(*path).is_some_and(|seen| self.unlike(*inode, seen, reached).is_ok());
            if has_one_always && !paths.iter().any(is_it) {
                let words = format!("what always had one of the names {paths:?} is under none of them");
                findings.push(Finding::new("lost file", words));
            }
        }
        findings.extend(
            reached
                .persisted
                .iter()
                .filter(|&&step| step > reached.synced)
                .flat_map(|&step| self.kept(step, seen, reached)),
        );
        if self.promise.names_in_order {
            let is_it = |tree: &Tree| {
                tree.names.len() == seen.len() && tree.names.keys().all(|path| seen.contains_key(*path))
            };
            if findings.is_empty() && !trees.iter().any(is_it) {
                let there: Vec<&String> = seen.keys().collect();
                let words = format!("the names {there:?} were never there together");
                findings.push(Finding::new("order of names", words));
            }
        }
        // What is written through a mapping has no place in the order.
        let is_mapped = |step: &Step| matches!(step.operation, Operation::MmapWrite(_));
        if self.promise.data_in_order && findings.is_empty() && !self.steps.iter().any(is_mapped) {
            let in_order =
                (reached.synced..=reached.begun).any(|step| self.is_between(step, seen, reached.begun));
            if !in_order {
                let words = "a later change is there, and an earlier one is not".to_owned();
                findings.push(Finding::new("order of data", words));
            }
        }
        findings
    }

    /// Whether all is as after so many steps, or as in the middle of the next.
    fn is_between(&self, step: usize, seen: &BTreeMap<String, Seen>, begun: usize) -> bool {
        let next = (step + 1).min(begun);
        [step, next].into_iter().any(|named| {
            let names = &self.trees[named].names;
            names.len() == seen.len()
                && names.iter().all(|(path, inode)| {
                    let versions = (step..=next).filter_map(|tree| self.trees[tree].nodes.get(inode));
                    seen.get(*path).is_some_and(|seen| is_one_of(&versions.collect::<Vec<_>>(), seen))
                })
        })
    }

    /// What the persistence point of a step must have kept of names.
    fn kept(&self, step: usize, seen: &BTreeMap<String, Seen>, reached: &Reached) -> Vec<Finding> {
        let since = &self.trees[step..=reached.begun];
        let same = |path: &str| {
            let inode = since[0].names.get(path);
            since.iter().all(|tree| tree.names.get(path) == inode).then_some(inode.copied())
        };
        let lost = |path: &str, how: &str| {
            Finding::new(
                "lost after fsync",
                format!("{path} is {how}, in spite of `{}`", self.steps[step - 1]),
            )
        };
        let must_be = |path: &str, inode: u64| match seen.get(path) {
            None => Some(lost(path, "not there")),
            Some(what) => {
                let why = self.unlike(inode, what, reached).err()?;
                Some(lost(path, &format!("not what it must be ({why})")))
            }
        };
        match self.steps[step - 1].persist {
            Persist::Fsync(path) if self.promise.fsync_keeps_name => {
                same(path).flatten().and_then(|inode| must_be(path, inode)).into_iter().collect()
            }
            Persist::FsyncFolder(folder) => {
                let is_in = |path: &&str| path.split_once('/').is_some_and(|(first, _)| first == folder);
                let names: BTreeSet<&str> = self.trees[..=reached.begun]
                    .iter()
                    .flat_map(|tree| tree.names.keys().copied())
                    .filter(is_in)
                    .collect();
                let judge = |path: &str| match same(path)? {
                    Some(inode) => must_be(path, inode),
                    None => seen.contains_key(path).then(|| lost(path, "there again")),
                };
                names.into_iter().filter_map(judge).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Why what is seen cannot be this inode.
    fn unlike(&self, inode: u64, seen: &Seen, reached: &Reached) -> Result<(), String> {
        let of = |tree: usize| self.trees[tree].nodes.get(&inode);
        let Some(node) = (0..=reached.begun).find_map(of) else {
            return Err("it had not been made".to_owned());
        };
        let (size, sectors, xattr) = match (node, seen) {
            (Node::Folder, Seen::Folder) => return Ok(()),
            (Node::Symlink(target), Seen::Symlink(found)) if found == target => return Ok(()),
            (Node::File { .. }, Seen::File { size, sectors, xattr }) => (*size, sectors, *xattr),
            _ => return Err(format!("it is {seen:?} and was {node:?}")),
        };
        // The last tree of which its data, and its attribute, are durable.
        let names_it = |step: &usize, path: &str| self.trees[*step].names.get(path) == Some(&inode);
        let of_data = |step: &&usize| match self.steps[**step - 1].persist {
            Persist::Sync => self.syncs(**step),
            Persist::Fsync(path) | Persist::Fdatasync(path) => names_it(step, path),
            Persist::FsyncFolder(_) | Persist::Nothing => false,
        };
        let of_all =
            |step: &&usize| of_data(step) && !matches!(self.steps[**step - 1].persist, Persist::Fdatasync(_));
        let data_since = reached.persisted.iter().filter(of_data).max().copied().unwrap_or(0);
        let all_since = reached.persisted.iter().filter(of_all).max().copied().unwrap_or(0);
        // What did not exist when it was last made durable may be as if it had just begun.
        let versions = |since: usize| -> Vec<(Vec<u8>, Option<u8>)> {
            let version = |tree: usize| match of(tree) {
                Some(Node::File { blocks, xattr }) => (blocks.clone(), *xattr),
                _ => (Vec::new(), None),
            };
            (since..=reached.begun).map(version).collect()
        };
        let data = versions(data_since);
        let lengths = || data.iter().map(|(blocks, _)| blocks.len() * BLOCK_BYTES);
        let (least, most) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
        if size < least || size > most {
            return Err(format!("it has {size} bytes, and at least {least} and at most {most} it had"));
        }
        for (sector, found) in sectors.iter().enumerate() {
            let block = sector * SECTOR_BYTES / BLOCK_BYTES;
            let allowed: BTreeSet<Option<u8>> =
                data.iter().map(|(blocks, _)| blocks.get(block).copied()).collect();
            let is_known = found.is_some() && allowed.contains(found);
            // A block that was always there is written in place, or beside it: it never shows zeros in between.
            let is_new = allowed.contains(&None);
            let is_zero = *found == Some(0) && is_new;
            if !is_known && !is_zero && (self.promise.only_own_data || !is_new) {
                return Err(format!("its sector {sector} holds {found:x?}, and one of {allowed:x?} it had"));
            }
        }
        let xattrs: BTreeSet<Option<u8>> = versions(all_since).into_iter().map(|(_, xattr)| xattr).collect();
        if !xattrs.contains(&xattr) {
            return Err(format!("its attribute is {xattr:x?}, and one of {xattrs:x?} it had"));
        }
        Ok(())
    }
}

/// Whether what is seen lies between these versions of one inode: of a size from the least to the most, and each sector of one of
/// them, or zeros where one of them has no block.
fn is_one_of(versions: &[&Node], seen: &Seen) -> bool {
    let files: Vec<(&Vec<u8>, Option<u8>)> = versions
        .iter()
        .filter_map(|node| match node {
            Node::File { blocks, xattr } => Some((blocks, *xattr)),
            _ => None,
        })
        .collect();
    let Seen::File { size, sectors, xattr } = seen else {
        return versions.iter().any(|node| match (node, seen) {
            (Node::Folder, Seen::Folder) => true,
            (Node::Symlink(target), Seen::Symlink(found)) => target == found,
            _ => false,
        });
    };
    let lengths = || files.iter().map(|(blocks, _)| blocks.len() * BLOCK_BYTES);
    let fits = lengths().min().is_some_and(|least| *size >= least)
        && lengths().max().is_some_and(|most| *size <= most)
        && files.iter().any(|(_, one)| one == xattr);
    fits && sectors.iter().enumerate().all(|(sector, found)| {
        let block = sector * SECTOR_BYTES / BLOCK_BYTES;
        let allowed: BTreeSet<Option<u8>> =
            files.iter().map(|(blocks, _)| blocks.get(block).copied()).collect();
        (found.is_some() && allowed.contains(found)) || (*found == Some(0) && allowed.contains(&None))
    })
}

impl Oracle for TreeOracle {
    fn look(&mut self, mountpoint: &Path, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        let mut seen = BTreeMap::new();
        let mut findings = Vec::new();
        observe(mountpoint, "", &mut seen, &mut findings);
        // What cannot be read is a finding of its own, and of what was not seen nothing is known.
        if findings.is_empty() {
            findings = self.judge(&seen, &self.reached(crash));
        }
        Ok(findings)
    }
}

/// All that is below a folder, by its path from the mount point.
fn observe(root: &Path, folder: &str, seen: &mut BTreeMap<String, Seen>, findings: &mut Vec<Finding>) {
    let unreadable = |path: &str, error: &dyn std::fmt::Display| {
        Finding::new("unreadable", format!("{path} cannot be read: {error}"))
    };
    let entries = match std::fs::read_dir(root.join(folder)) {
        Ok(entries) => entries,
        Err(error) => return findings.push(unreadable(folder, &error)),
    };
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return findings.push(unreadable(folder, &error)),
        };
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if path == "lost+found" {
            continue;
        }
        match see(&root.join(&path)) {
            Ok(what) => {
                let is_folder = what == Seen::Folder;
                seen.insert(path.clone(), what);
                if is_folder {
                    observe(root, &path, seen, findings);
                }
            }
            Err(error) => findings.push(unreadable(&path, &error)),
        }
    }
}

fn see(path: &Path) -> Result<Seen> {
    use rotproof_block::error::IoContext;
    let doing = || format!("reading {}", path.display());
    let metadata = path.symlink_metadata().doing(doing)?;
    if metadata.is_dir() {
        return Ok(Seen::Folder);
    }
    if metadata.is_symlink() {
        return Ok(Seen::Symlink(std::fs::read_link(path).doing(doing)?.to_string_lossy().into_owned()));
    }
    if !metadata.is_file() {
        return Ok(Seen::Other);
    }
    let mut bytes = Vec::new();
    // Far more than any sequence writes, in case the size is nonsense.
    File::open(path).and_then(|file| file.take(1 << 24).read_to_end(&mut bytes)).doing(doing)?;
    let one_byte = |sector: &[u8]| sector.iter().all(|byte| *byte == sector[0]).then(|| sector[0]);
    Ok(Seen::File {
        size: usize::try_from(metadata.len()).unwrap_or(usize::MAX),
        sectors: bytes.chunks(SECTOR_BYTES).map(one_byte).collect(),
        xattr: xattr_of(path)?,
    })
}

#[cfg(test)]
mod tests;
