//! What a run may create outside its own memory: whoever creates something brings its [`Kind`].
//!
//! A kind says how one of its kind is read from the record, found and removed, and what depends on it. Here are the
//! rules that all kinds share; no kind is known here by name.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rotproof_block::Result;
use rotproof_block::error::IoContext;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plan::Plan;

/// One thing that stays behind if nobody removes it. It says enough to find that thing again and no other.
///
/// As text it is the thing in words, "the loop device over ...".
pub trait Resource: Recorded + fmt::Debug + fmt::Display + Send + Sync {
    /// What kind of thing it is.
    fn kind(&self) -> &'static Kind;

    /// Whether it is there now. Never hangs.
    fn exists(&self) -> Result<bool>;

    /// Removes it if it is there, without the objects that made it. What is there now is compared with the record
    /// first, and anything else is left alone. `made` says which file it became, where that is known.
    fn remove(&self, made: Option<FileIdentity>) -> Result<()>;

    /// Whether [`Resource::remove`] would find something on the machine as it will be then; an error if it would not be
    /// removed.
    fn plan(&self, made: Option<FileIdentity>, machine: &mut Plan) -> Result<bool> {
        let _ = (made, machine);
        self.exists()
    }

    /// What [`Resource::let_go`] ends, in words, if it is there now and can be waited for. Never hangs.
    fn waited_for(&self) -> Option<String> {
        None
    }

    /// Lets everybody go who waits for it though nobody serves it any more. Does not remove it.
    fn let_go(&self) -> Result<()> {
        Ok(())
    }
}

/// What the record says of a resource.
pub trait Recorded {
    /// As JSON, which [`Kind::read`] takes.
    fn recorded(&self) -> serde_json::Result<Value>;
}

impl<T: Serialize> Recorded for T {
    fn recorded(&self) -> serde_json::Result<Value> {
        serde_json::to_value(self)
    }
}

/// A kind of resource.
#[derive(Debug)]
pub struct Kind {
    /// What the record calls it. It never changes: older versions have left it in records.
    pub word: &'static str,
    /// Makes one of what the record says of it; see [`read_as`].
    pub read: fn(Value) -> serde_json::Result<Arc<dyn Resource>>,
    /// Who keeps it once its run is dead.
    pub kept_by: Keeper,
    /// Whether it is removed before all that is of other kinds, because it may keep that busy.
    pub goes_first: bool,
    /// The words of the kinds that are found by one of this kind: while one of those stays, this stays too.
    pub finds: &'static [&'static str],
}

impl Kind {
    /// Whether one of these kinds is found by one of this kind.
    pub(super) fn finds_any<'a>(&self, mut kinds: impl Iterator<Item = &'a Kind>) -> bool {
        kinds.any(|kind| self.finds.contains(&kind.word))
    }
}

/// Who keeps a resource once its run is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// A file system: it may be there after the machine has begun anew.
    FileSystem,
    /// The kernel, until the machine begins anew. Others may come to wait for it.
    Kernel,
    /// A process: nothing of it is there after the machine has begun anew.
    Process,
}

/// [`Kind::read`] of the type that is recorded.
pub fn read_as<T: Resource + DeserializeOwned + 'static>(
    value: Value,
) -> serde_json::Result<Arc<dyn Resource>> {
    Ok(Arc::new(serde_json::from_value::<T>(value)?))
}

/// The kind that the record calls `word`: one of the machine's own or of those that others bring.
pub(super) fn of_word(word: &str, brought: &[&'static Kind]) -> Option<&'static Kind> {
    super::KINDS.iter().chain(brought).copied().find(|kind| kind.word == word)
}

/// Which file or folder a path meant when the run had made it: another one there now is not the run's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileIdentity {
    /// `st_dev`.
    device: u64,
    /// `st_ino`.
    inode: u64,
}

impl FileIdentity {
    /// Of what is at `path` now, without following a link.
    pub fn of(path: &Path) -> Result<Self> {
        let metadata = path.symlink_metadata().doing(|| format!("looking at {}", path.display()))?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}
