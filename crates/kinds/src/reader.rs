//! Reading whole blocks of a source, and errors of what cannot be read at all.

use std::collections::{BTreeMap, HashMap};

use rotproof_block::{Error, ErrorKind, Result};

use crate::map::Owner;
use crate::source::Source;

/// `length` bytes at `offset`.
pub(crate) fn bytes_at(source: &dyn Source, offset: u64, length: usize) -> Result<Vec<u8>> {
    if offset.checked_add(length as u64).is_none_or(|end| end > source.size()) {
        return Err(crate::beyond(offset, length, source.size()));
    }
    let mut bytes = vec![0; length];
    source.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// A super block that says what cannot be.
pub(crate) fn invalid(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("the super block is damaged: {what}"))
}

/// A layout that is not read.
pub(crate) fn unsupported(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{what}; this layout is not read"))
}

/// How deep a path may be before it is taken for a circle.
const DEPTH_MAX: usize = 256;

/// Names as directories have them: of each inode one directory and the name in it.
#[derive(Default)]
pub(crate) struct Names {
    parents: HashMap<Owner, (Owner, Vec<u8>)>,
}

impl Names {
    /// `child` is called `name` in the directory `parent`. The first name of several counts.
    pub(crate) fn add(&mut self, child: Owner, parent: Owner, name: &[u8]) {
        if name != b"." && name != b".." {
            self.parents.entry(child).or_insert_with(|| (parent, name.to_owned()));
        }
    }

    /// The paths of all that can be followed to one of the `roots`. Bytes that are no UTF-8 are replaced.
    pub(crate) fn paths(&self, roots: &[Owner]) -> BTreeMap<Owner, String> {
        let mut paths: BTreeMap<Owner, String> = roots.iter().map(|&root| (root, "/".to_owned())).collect();
        for &child in self.parents.keys() {
            let mut parts: Vec<&[u8]> = Vec::new();
            let mut at = child;
            while let Some((parent, name)) = self.parents.get(&at).filter(|_| !roots.contains(&at)) {
                parts.push(name);
                at = *parent;
                if parts.len() > DEPTH_MAX {
                    break;
                }
            }
            if roots.contains(&at) && at != child {
                let texts = parts.iter().rev().map(|part| String::from_utf8_lossy(part));
                paths.insert(child, texts.fold(String::new(), |path, part| path + "/" + &part));
            }
        }
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_end_at_a_root_and_circles_have_none() {
        let mut names = Names::default();
        let inode = Owner::inode;
        names.add(inode(3), inode(2), b"folder");
        names.add(inode(4), inode(3), b"file");
        names.add(inode(4), inode(2), b"other-link");
        names.add(inode(3), inode(3), b".");
        names.add(inode(5), inode(6), b"a");
        names.add(inode(6), inode(5), b"b");
        let paths = names.paths(&[inode(2)]);
        assert_eq!(paths[&inode(4)], "/folder/file");
        assert_eq!(paths[&inode(2)], "/");
        assert_eq!(paths.len(), 3, "{paths:?}");
    }
}
