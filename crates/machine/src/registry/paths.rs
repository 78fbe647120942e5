//! Files, folders and sockets as resources of a run. Nothing here looks into a mounted file system, as its server may be dead.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::kind::{FileIdentity, Keeper, Kind, Resource, read_as};
use super::plan::Plan;
use crate::mounts::{is_mounted_at_or_below, mounts};

/// A kind of what a path is the name of.
macro_rules! of_path {
    ($(#[$doc:meta])* $name:ident, $kind:ident, $word:literal, $keeper:ident, $text:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Where, absolute.
            pub path: PathBuf,
        }

        pub(super) static $kind: Kind = Kind {
            word: $word,
            read: read_as::<$name>,
            kept_by: Keeper::$keeper,
            goes_first: false,
            finds: &[],
        };

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("the ", $text), self.path.display())
            }
        }

        impl Resource for $name {
            fn kind(&self) -> &'static Kind {
                &$kind
            }

            fn exists(&self) -> Result<bool> {
                exists(&self.path)
            }

            fn remove(&self, made: Option<FileIdentity>) -> Result<()> {
                remove_path(&self.path, made, PathKind::$name)
            }

            fn plan(&self, made: Option<FileIdentity>, machine: &mut Plan) -> Result<bool> {
                machine.remove_path(&self.path, made, PathKind::$name)
            }
        }
    };
}

of_path!(
    /// A folder, removed only when it is empty.
    Directory, DIRECTORY, "directory", FileSystem, "folder {}"
);
of_path!(
    /// A folder that belongs to the run with all that is in it.
    Tree, TREE, "tree", FileSystem, "folder {} and what is in it"
);
of_path!(
    /// A file.
    File, FILE, "file", FileSystem, "file {}"
);
of_path!(
    /// A Unix socket.
    Socket, SOCKET, "socket", Process, "socket {}"
);

fn exists(path: &Path) -> Result<bool> {
    // Something dead may be mounted there; then it is there, and `stat` could hang.
    Ok(is_mounted_at_or_below(&mounts()?, path) || path.symlink_metadata().is_ok())
}

/// What a path is the name of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PathKind {
    Directory,
    /// A directory, whatever is in it.
    Tree,
    File,
    Socket,
}

impl PathKind {
    /// Whether that is what is there.
    fn is_kind_of(self, metadata: &Metadata) -> bool {
        let kind = metadata.file_type();
        match self {
            Self::Directory | Self::Tree => kind.is_dir(),
            Self::File => kind.is_file(),
            Self::Socket => kind.is_socket(),
        }
    }
}

fn remove_path(path: &Path, recorded: Option<FileIdentity>, kind: PathKind) -> Result<()> {
    if is_mounted_at_or_below(&mounts()?, path) {
        return Err(still_mounted(path));
    }
    let Some(metadata) = look(path)? else { return Ok(()) };
    check_kind(path, &metadata, recorded, kind)?;
    let removed = match kind {
        // The standard library follows no link, also not if one is put in the way meanwhile.
        PathKind::Tree if recorded.is_some() => std::fs::remove_dir_all(path),
        PathKind::Directory | PathKind::Tree => std::fs::remove_dir(path),
        PathKind::File | PathKind::Socket => std::fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => Err(not_empty(path)),
        other => other.doing(|| format!("removing {}", path.display())),
    }
}

/// What is there, if anything.
pub(super) fn look(path: &Path) -> Result<Option<Metadata>> {
    match path.symlink_metadata() {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).doing(|| format!("looking at {}", path.display())),
    }
}

/// Fails unless that is what the run had made there.
pub(super) fn check_kind(
    path: &Path,
    metadata: &Metadata,
    recorded: Option<FileIdentity>,
    kind: PathKind,
) -> Result<()> {
    let is_ours = match recorded {
        Some(identity) => FileIdentity::of(path)? == identity,
        // Killed between creation and its record: only what is still as it was created can be it.
        None => match kind {
            // It is removed only if it is empty.
            PathKind::Directory | PathKind::Tree => true,
            PathKind::File => metadata.len() == 0,
            // Somebody else may have been there first, and lives.
            PathKind::Socket => {
                let refused = std::io::ErrorKind::ConnectionRefused;
                UnixStream::connect(path).is_err_and(|error| error.kind() == refused)
            }
        },
    };
    if !is_ours || !kind.is_kind_of(metadata) {
        return Err(Error::new(
            ErrorKind::Refused,
            format!("left alone: {} is not what the run created there", path.display()),
        ));
    }
    Ok(())
}

pub(super) fn still_mounted(path: &Path) -> Error {
    Error::new(
        ErrorKind::Refused,
        format!("left alone: something is still mounted at or below {}", path.display()),
    )
}

pub(super) fn not_empty(path: &Path) -> Error {
    Error::new(
        ErrorKind::Refused,
        format!("left alone: the folder {} holds files that the run did not record", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn file(path: &Path, made: Option<FileIdentity>) -> Result<()> {
        File { path: path.to_owned() }.remove(made)
    }

    fn directory(path: &Path, made: Option<FileIdentity>) -> Result<()> {
        Directory { path: path.to_owned() }.remove(made)
    }

    #[test]
    fn what_is_gone_already_is_no_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("gone");
        file(&path, None).expect("nothing to do");
        directory(&path, None).expect("nothing to do");
    }

    #[test]
    fn a_file_is_removed_only_if_it_is_the_recorded_one() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        fs::write(&path, "ours").expect("written");
        let identity = FileIdentity::of(&path).expect("is there");
        fs::rename(&path, folder.path().join("elsewhere")).expect("moved");
        fs::write(&path, "of somebody else").expect("written");
        assert_eq!(file(&path, Some(identity)).expect_err("another file").kind(), ErrorKind::Refused);
        assert!(path.exists());
        assert!(file(&path, None).is_err(), "without an identity only an empty file can be ours");
        fs::write(&path, "").expect("emptied");
        file(&path, None).expect("removed");
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_is_removed_only_if_it_is_the_recorded_one_or_nobody_listens() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        let identity = FileIdentity::of(&path).expect("is there");
        let socket = |made| Socket { path: path.clone() }.remove(made);
        assert!(socket(None).is_err(), "somebody listens");
        drop(listener);
        socket(None).expect("removed");
        assert!(!path.exists());
        let _other = std::os::unix::net::UnixListener::bind(&path).expect("bound again");
        let other = FileIdentity::of(&path).expect("is there");
        fs::write(folder.path().join("file"), "").expect("written");
        if other != identity {
            assert!(socket(Some(identity)).is_err(), "another one");
        }
        socket(Some(other)).expect("the one that was recorded");
        fs::write(&path, "").expect("written");
        assert!(socket(None).is_err(), "a file is no socket");
    }

    #[test]
    fn a_folder_is_removed_only_when_it_is_empty_and_no_link_is_followed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("folder");
        fs::create_dir(&path).expect("created");
        let identity = FileIdentity::of(&path).expect("is there");
        fs::write(path.join("letter"), "dear").expect("written");
        assert_eq!(directory(&path, Some(identity)).expect_err("not empty").kind(), ErrorKind::Refused);
        assert!(path.join("letter").exists());
        fs::remove_file(path.join("letter")).expect("removed");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        assert!(directory(&link, None).is_err(), "a link is no folder");
        assert!(path.exists());
        directory(&path, Some(identity)).expect("removed");
        assert!(!path.exists());
    }

    #[test]
    fn a_tree_is_removed_with_all_that_is_in_it_if_it_is_the_one_that_was_made() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (path, other) = (folder.path().join("tree"), folder.path().join("other"));
        fs::create_dir_all(path.join("a/b")).expect("created");
        fs::create_dir(&other).expect("created");
        fs::write(other.join("letter"), "dear").expect("written");
        std::os::unix::fs::symlink(&other, path.join("a/link")).expect("linked");
        fs::write(path.join("a/b/file"), "x").expect("written");
        let identity = FileIdentity::of(&path).expect("is there");
        let tree = |path: &Path, made| Tree { path: path.into() }.remove(made);
        assert_eq!(tree(&other, Some(identity)).expect_err("another").kind(), ErrorKind::Refused);
        assert!(tree(&path, None).is_err(), "who filled it is not known");
        tree(&path, Some(identity)).expect("removed");
        assert!(!path.exists() && other.join("letter").exists(), "no link was followed");
    }
}
