//! A FUSE file system that a run serves at a place which a user has named: others mount there too, before, beside and after it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use rotproof_block::Result;
use rotproof_machine::registry::{FileIdentity, Keeper, Kind, Resource, covered, read_as};
use rotproof_machine::start_thread;
use serde::{Deserialize, Serialize};

use crate::fuse_mount::is_fuse;
use crate::mount::{is_mounted, top_mount, unmount};

/// How long a file system may take to answer, before it counts as one that somebody serves.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// See the head of the module. By path and type nobody can tell it from what somebody else has mounted there since. So it is removed
/// only as long as this process serves it; and of a process that is gone, if it is a mount that nobody serves any more.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedFuseMount {
    /// Where it is mounted, absolute.
    pub path: PathBuf,
    #[serde(skip)]
    serving: Serving,
}

/// Whether this process serves a [`NamedFuseMount`], as told by whoever does.
#[derive(Clone, Debug, Default)]
pub struct Serving(Arc<AtomicU8>);

/// What is at the place is none of this process's: not mounted yet, or no more. Without a word (0) it is on the record of another process.
const NOT: u8 = 1;
const HERE: u8 = 2;

impl Serving {
    /// It is mounted now, on top of what was there.
    pub fn begin(&self) {
        self.0.store(HERE, Ordering::SeqCst);
    }

    /// It is not mounted any more.
    pub fn end(&self) {
        self.0.store(NOT, Ordering::SeqCst);
    }
}

impl NamedFuseMount {
    /// One that this process is about to mount, and by what it tells that it has.
    pub fn new(path: PathBuf) -> (Self, Serving) {
        let serving = Serving::default();
        serving.end();
        (Self { path, serving: serving.clone() }, serving)
    }

    /// Whether what is on top there is it. Fails if it may be below what somebody else has mounted over it.
    fn is_it(&self) -> Result<bool> {
        let serving = self.serving.0.load(Ordering::SeqCst);
        if serving == NOT || !is_mounted(&self.path, is_fuse)? {
            return Ok(false);
        }
        match top_mount(&self.path)?.filter(|mount| !is_fuse(mount)) {
            Some(foreign) => Err(covered(&foreign, &self.path)),
            None => Ok(serving == HERE || is_dead(&self.path)),
        }
    }
}

pub(crate) static NAMED_FUSE_MOUNT: Kind = Kind {
    word: "named_fuse_mount",
    read: read_as::<NamedFuseMount>,
    kept_by: Keeper::Kernel,
    goes_first: false,
    finds: &[],
};

impl fmt::Display for NamedFuseMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the FUSE mount {}", self.path.display())
    }
}

impl Resource for NamedFuseMount {
    fn kind(&self) -> &'static Kind {
        &NAMED_FUSE_MOUNT
    }

    fn exists(&self) -> Result<bool> {
        self.is_it()
    }

    fn remove(&self, _made: Option<FileIdentity>) -> Result<()> {
        if self.is_it()? {
            unmount(&self.path)?;
            self.serving.end();
        }
        Ok(())
    }
}

/// Whether nobody serves the FUSE file system at `path`: the kernel then answers for it at once.
fn is_dead(path: &Path) -> bool {
    let (answer, answered) = channel();
    let path = path.to_owned();
    // What waits for a server that hangs ends with this process.
    let asked = start_thread("dead-mount", move || {
        let error = std::fs::read_dir(&path).err().and_then(|error| error.raw_os_error());
        let _ = answer.send(error == Some(libc::ENOTCONN));
    });
    asked.is_ok() && answered.recv_timeout(ANSWER_MAX).unwrap_or(false)
}
