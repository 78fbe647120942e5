//! The files of a cell: what they must hold, made and looked at through the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rotproof_block::hash::mix;
use rotproof_guest::{Question, sum_of};

use crate::files::{ATTRIBUTE, BLOCK, Files, Here, c_path};

/// More than an inode of any of the file systems can hold.
const ATTRIBUTE_BYTES: usize = 1500;

/// Something with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Folder,
    /// What was written to each block that was written, by a number that its content follows from.
    File {
        blocks: BTreeMap<u64, u64>,
        has_attribute: bool,
    },
    Link(String),
}

/// All that must be there, by its path within the file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, Node>,
}

/// What looking at files has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// All is as it must be.
    Right,
    /// Something was handed out that is wrong.
    Wrong(String),
    /// Something could not be had.
    Failed(String),
}

impl Look {
    /// An error of a system call on what is there, and may be done. That something failed, was found damaged, or that
    /// nothing is written any more are reports; to say that a name is not there, or there already, is an answer, and a
    /// wrong one.
    pub(crate) fn of(path: &str, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(
                libc::EIO | libc::EUCLEAN | libc::EBADMSG | libc::EROFS | libc::ESHUTDOWN | libc::ENODEV
                // What ZFS calls a wrong checksum.
                | libc::EBADE,
            ) => Look::Failed(format!("{path}: {error}")),
            _ => Look::Wrong(format!("{path}: {error}")),
        }
    }
}

/// The content of a block: never zeros, another for each number and place.
fn content(number: u64, block: u64) -> Vec<u8> {
    let words = (0..BLOCK as u64 / 8).map(|word| mix(number, block, word).to_le_bytes());
    words.flatten().collect()
}

/// A change to the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Folder(String),
    /// Writes blocks of a file, which is made if it is not there.
    Write(String, Vec<u64>, u64),
    Link(String, String),
    Attribute(String),
    Remove(String),
    Rename(String, String),
}

impl Change {
    /// Does it to the file system at `root`.
    pub(crate) fn perform(&self, root: &Path) -> io::Result<()> {
        let at = |path: &str| root.join(path);
        match self {
            Change::Folder(path) => fs::create_dir(at(path)),
            Change::Write(path, blocks, number) => {
                let file = OpenOptions::new().write(true).create(true).truncate(false).open(at(path))?;
                blocks
                    .iter()
                    .try_for_each(|&block| file.write_all_at(&content(*number, block), block * BLOCK as u64))
            }
            Change::Link(path, target) => std::os::unix::fs::symlink(target, at(path)),
            Change::Attribute(path) => set_attribute(&at(path)),
            Change::Remove(path) if at(path).symlink_metadata()?.is_dir() => fs::remove_dir(at(path)),
            Change::Remove(path) => fs::remove_file(at(path)),
            Change::Rename(from, to) => fs::rename(at(from), at(to)),
        }
    }

    /// The paths that it concerns.
    pub(crate) fn paths(&self) -> Vec<&str> {
        match self {
            Change::Rename(from, to) => vec![from, to],
            Change::Folder(path)
            | Change::Write(path, ..)
            | Change::Link(path, _)
            | Change::Attribute(path)
            | Change::Remove(path) => vec![path],
        }
    }
}

impl Tree {
    /// What must be there after a change.
    pub(crate) fn apply(&mut self, change: &Change) {
        let empty = || Node::File { blocks: BTreeMap::new(), has_attribute: false };
        match change {
            Change::Folder(path) => drop(self.nodes.insert(path.clone(), Node::Folder)),
            Change::Write(path, written, number) => {
                if let Node::File { blocks, .. } = self.nodes.entry(path.clone()).or_insert_with(empty) {
                    blocks.extend(written.iter().map(|&block| (block, *number)));
                }
            }
            Change::Link(path, target) => drop(self.nodes.insert(path.clone(), Node::Link(target.clone()))),
            Change::Attribute(path) => {
                if let Some(Node::File { has_attribute, .. }) = self.nodes.get_mut(path) {
                    *has_attribute = true;
                }
            }
            Change::Remove(path) => drop(self.nodes.remove(path)),
            Change::Rename(from, to) => {
                if let Some(node) = self.nodes.remove(from) {
                    self.nodes.insert(to.clone(), node);
                }
            }
        }
    }

    /// The same without some paths, of which then nothing is expected.
    pub(crate) fn without(&self, paths: &BTreeSet<String>) -> Self {
        let nodes = self.nodes.iter().filter(|(path, _)| !paths.contains(*path));
        Self { nodes: nodes.map(|(path, node)| (path.clone(), node.clone())).collect() }
    }

    /// Looks at everything.
    pub(crate) fn look(&self, files: &impl Files) -> Look {
        let found = self
            .folders()
            .map(|folder| self.look_at_folder(files, folder, true))
            .chain(self.nodes.keys().map(|path| self.look_at(files, path)));
        worst(found)
    }

    /// All that [`Tree::look`] asks.
    pub(crate) fn questions(&self) -> Vec<Question> {
        let names = self.folders().map(|folder| Question::Names(folder.to_owned()));
        names.chain(self.nodes.keys().flat_map(|path| self.questions_about(path))).collect()
    }

    /// All that [`Tree::look_at`] asks.
    pub(crate) fn questions_about(&self, path: &str) -> Vec<Question> {
        let of = || path.to_owned();
        match self.nodes.get(path) {
            None => Vec::new(),
            Some(Node::Folder) => vec![Question::Folder(of())],
            Some(Node::Link(_)) => vec![Question::Link(of())],
            Some(Node::File { has_attribute: false, .. }) => vec![Question::Content(of())],
            Some(Node::File { .. }) => vec![Question::Content(of()), Question::Attribute(of())],
        }
    }

    fn folders(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().filter(|(_, node)| **node == Node::Folder).map(|(path, _)| path.as_str())
    }

    /// Looks at the names in a folder. With `may_have_more` further names are none of our business.
    pub(crate) fn look_at_folder(&self, files: &impl Files, folder: &str, may_have_more: bool) -> Look {
        let prefix = format!("{folder}/");
        let wanted: BTreeSet<&str> = names_below(&prefix, &self.nodes);
        match files.names(folder) {
            Err(error) => Look::of(folder, &error),
            Ok(listed) => {
                let missing = wanted.iter().find(|name| !listed.contains(**name));
                let more = listed.iter().find(|name| !may_have_more && !wanted.contains(name.as_str()));
                match (missing, more) {
                    (Some(name), _) => Look::Wrong(format!("{folder} is listed without {name}")),
                    (None, Some(name)) => {
                        Look::Wrong(format!("{folder} is listed with {}", name.escape_debug()))
                    }
                    (None, None) => Look::Right,
                }
            }
        }
    }

    /// Looks at one thing: content, attribute, where it points.
    pub(crate) fn look_at(&self, files: &impl Files, path: &str) -> Look {
        let Some(node) = self.nodes.get(path) else { return Look::Right };
        let looked = match node {
            Node::Folder => files.is_folder(path),
            Node::Link(target) => files.link(path).map(|found| found == *target),
            Node::File { blocks, has_attribute } => is_content(files, path, blocks)
                .and_then(|is_right| Ok(is_right && (!has_attribute || is_attribute(files, path)?))),
        };
        match looked {
            Ok(true) => Look::Right,
            Ok(false) => Look::Wrong(format!("{path} holds something else")),
            Err(error) => Look::of(path, &error),
        }
    }

    /// Looks at one thing of a file system that is mounted here without its content: what it is, how large, where it points, its
    /// attribute.
    pub(crate) fn look_up(&self, root: &Path, path: &str) -> Look {
        let files = Here(root);
        let looked = match self.nodes.get(path) {
            Some(Node::File { blocks, has_attribute }) => {
                fs::symlink_metadata(root.join(path)).and_then(|about| {
                    Ok(about.is_file()
                        && about.len() == size_of(blocks)
                        && (!has_attribute || is_attribute(&files, path)?))
                })
            }
            _ => return self.look_at(&files, path),
        };
        match looked {
            Ok(true) => Look::Right,
            Ok(false) => Look::Wrong(format!("{path} is told to be something else")),
            Err(error) => Look::of(path, &error),
        }
    }
}

/// The names directly in a folder, whose path ends the prefix.
fn names_below<'a>(prefix: &str, nodes: &'a BTreeMap<String, Node>) -> BTreeSet<&'a str> {
    let below = nodes.keys().filter_map(|path| path.strip_prefix(prefix));
    below.filter(|name| !name.contains('/')).collect()
}

/// So many failures are enough: each may make the kernel write pages into its log.
const FAILURES_MAX: usize = 10;

/// Of several findings the gravest: wrong, then failed. After some failures no more is looked at.
pub(crate) fn worst(found: impl IntoIterator<Item = Look>) -> Look {
    let (mut worst, mut failures) = (Look::Right, 0);
    for look in found {
        match look {
            Look::Wrong(_) => return look,
            Look::Failed(_) => {
                failures += 1;
                worst = if failures == 1 { look } else { worst };
                if failures == FAILURES_MAX {
                    break;
                }
            }
            Look::Right => {}
        }
    }
    worst
}

fn size_of(blocks: &BTreeMap<u64, u64>) -> u64 {
    blocks.keys().next_back().map_or(0, |last| (last + 1) * BLOCK as u64)
}

/// A block that could not be read does not hide another that is wrong.
fn is_content(files: &impl Files, path: &str, blocks: &BTreeMap<u64, u64>) -> io::Result<bool> {
    let length = size_of(blocks);
    let found = files.content(path, length)?;
    if found.length != length {
        return Ok(false);
    }
    let (mut failed, mut is_right) = (None, true);
    for (block, sum) in (0..).zip(&found.blocks) {
        match sum {
            Ok(sum) => {
                let wanted = |&number: &u64| sum_of(&content(number, block));
                is_right &= *sum == blocks.get(&block).map_or_else(sum_of_zeros, wanted);
            }
            // Nobody has reported anything.
            Err(0) => is_right = false,
            Err(errno) => failed = Some(*errno),
        }
    }
    match failed {
        Some(errno) if is_right => Err(io::Error::from_raw_os_error(errno)),
        // Fewer blocks come only behind errors.
        None => Ok(is_right && found.blocks.len() as u64 == length / BLOCK as u64),
        Some(_) => Ok(false),
    }
}

fn sum_of_zeros() -> u64 {
    sum_of(&[0; BLOCK])
}

fn set_attribute(path: &Path) -> io::Result<()> {
    let (path, value) = (c_path(path)?, [b'v'; ATTRIBUTE_BYTES]);
    // SAFETY: both texts end with zero, the value is as long as told, and all live across the call.
    let answer =
        unsafe { libc::setxattr(path.as_ptr(), ATTRIBUTE.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn is_attribute(files: &impl Files, path: &str) -> io::Result<bool> {
    let wanted = (ATTRIBUTE_BYTES as u64, sum_of(&[b'v'; ATTRIBUTE_BYTES]));
    Ok(files.attribute(path)? == Some(wanted))
}

/// Has the file system write everything, and say whether it could.
pub(crate) fn sync(root: &Path) -> io::Result<()> {
    let root = File::open(root)?;
    // SAFETY: takes an open descriptor.
    if unsafe { libc::syncfs(root.as_raw_fd()) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use rotproof_guest::Answer;

    use super::*;
    use crate::files::Said;

    fn made(root: &Path) -> Tree {
        let mut tree = Tree::default();
        for change in [
            Change::Folder("folder".into()),
            Change::Write("folder/file".into(), vec![0, 2], 5),
            Change::Folder("folder/inner".into()),
            Change::Write("folder/inner/deep".into(), vec![0], 6),
            Change::Link("link".into(), "somewhere".into()),
        ] {
            change.perform(root).expect("done");
            tree.apply(&change);
        }
        tree
    }

    #[test]
    fn what_was_made_is_right_and_each_thing_that_is_wrong_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let tree = made(root);
        assert_eq!(tree.look(&Here(root)), Look::Right);
        assert_eq!(tree.look_at_folder(&Here(root), "folder", false), Look::Right);
        assert_eq!(tree.look_up(root, "folder/file"), Look::Right);
        fs::write(root.join("folder/more"), "x").expect("written");
        assert_eq!(tree.look(&Here(root)), Look::Right);
        assert!(
            matches!(tree.look_at_folder(&Here(root), "folder", false), Look::Wrong(why) if why.contains("more"))
        );
        let file = File::options().write(true).open(root.join("folder/file")).expect("opened");
        file.write_all_at(b"!", 9000).expect("written");
        assert!(
            matches!(tree.look(&Here(root)), Look::Wrong(why) if why == "folder/file holds something else")
        );
        assert_eq!(tree.without(&BTreeSet::from(["folder/file".to_owned()])).look(&Here(root)), Look::Right);
        assert_eq!(tree.look_up(root, "folder/file"), Look::Right, "its size is right");
        fs::remove_file(root.join("link")).expect("removed");
        assert!(matches!(tree.look_at(&Here(root), "link"), Look::Wrong(_)));
    }

    #[test]
    fn changes_are_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let mut tree = made(root);
        for change in [
            Change::Write("folder/file".into(), vec![1], 9),
            Change::Rename("folder/file".into(), "moved".into()),
            Change::Remove("folder/inner/deep".into()),
            Change::Remove("folder/inner".into()),
        ] {
            change.perform(root).expect("done");
            tree.apply(&change);
            assert_eq!(tree.look(&Here(root)), Look::Right, "{change:?}");
        }
    }

    #[test]
    fn a_block_that_ends_early_without_an_error_is_wrong_and_one_with_an_error_is_reported() {
        let mut tree = Tree::default();
        tree.apply(&Change::Write("file".into(), vec![0, 1], 5));
        let right = |block| Ok(sum_of(&content(5, block)));
        for (blocks, is_expected) in [
            (vec![right(0), right(1)], Look::Right),
            (vec![right(0), Err(0)], Look::Wrong("file holds something else".into())),
            (vec![Err(libc::EIO), Err(0)], Look::Wrong("file holds something else".into())),
            (vec![right(0)], Look::Wrong("file holds something else".into())),
            (vec![right(0), Err(libc::EIO)], Look::of("file", &io::Error::from_raw_os_error(libc::EIO))),
        ] {
            let said = Said::new(tree.questions(), vec![Ok(Answer::Content(8192, blocks))]);
            assert_eq!(tree.look(&said), is_expected);
        }
    }

    #[test]
    fn reports_and_wrong_answers_are_told_apart() {
        let of = |errno| Look::of("x", &io::Error::from_raw_os_error(errno));
        for errno in [libc::EIO, libc::EUCLEAN, libc::EBADMSG, libc::EROFS, libc::EBADE] {
            assert!(matches!(of(errno), Look::Failed(_)));
        }
        for errno in [libc::ENOENT, libc::EEXIST, libc::ENOTDIR] {
            assert!(matches!(of(errno), Look::Wrong(_)));
        }
        let failures = (0..100).map(|number| if number < 20 { of(libc::EIO) } else { of(libc::ENOENT) });
        assert!(matches!(worst(failures), Look::Failed(_)), "after ten failures it is enough");
    }
}
