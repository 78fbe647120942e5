//! A guarded directory as a mount: every program that uses it reads verified data and writes summed ones.
//!
//! [`nodes`] are the files and folders that the kernel knows, [`handles`] what is open, [`at`] the system calls that are made
//! below, [`mod@guarded`] what is done with names and files, [`operations`] one after the other what the kernel asks. Names, attributes and locks are those of the file system
//! below or of the kernel; only data pass through `rotproof_guard`.

mod at;
mod attributes;
mod errors;
mod guarded;
mod handles;
mod nodes;
mod operations;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_guard::Store;

use crate::guarded::Guarded;

/// How to mount.
#[derive(Clone, Copy, Debug)]
pub struct MountOptions {
    /// Threads that serve requests.
    pub threads: usize,
    /// Let the kernel cache data that were verified. Reads are then as fast as the kernel's, and what rots in that cache is
    /// not seen; nor are writes through other doors while a file is open.
    pub is_cached: bool,
    /// Let other users than the one who mounts in.
    pub allow_other: bool,
    /// Verify and sum. Without it the mount only passes on, to be measured against.
    pub is_guarded: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self { threads: 4, is_cached: false, allow_other: false, is_guarded: true }
    }
}

/// How often marks of regions are taken away from files that nobody writes to.
const SETTLE_EVERY: Duration = Duration::from_secs(5);

/// How long files are kept attached that nobody opens.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// A mount that is served until it is undone.
pub struct GuardMount {
    session: Option<BackgroundSession>,
    settler: Option<(Sender<()>, JoinHandle<()>)>,
}

impl GuardMount {
    /// Mounts the directory of a guard at `mountpoint`.
    ///
    /// Fails with [`ErrorKind::Invalid`] if the mount would hide the directory or be inside of it.
    pub fn new(store: &Arc<Store>, mountpoint: &Path, options: MountOptions) -> Result<Self> {
        let doing = || format!("mounting {} at {}", store.root().display(), mountpoint.display());
        let place = mountpoint.canonicalize().doing(doing)?;
        if place.starts_with(store.root()) || store.root().starts_with(&place) {
            let what = format!(
                "{} is inside of {} or around it; mount it elsewhere",
                mountpoint.display(),
                store.root().display()
            );
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        at::raise_descriptor_limit();
        let system = Guarded::new(Arc::clone(store), options).doing(doing)?;
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(store.root().display().to_string()),
            MountOption::Subtype("rotproof-guard".to_owned()),
            MountOption::DefaultPermissions,
        ];
        config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(options.threads.max(1));
        config.clone_fd = options.threads > 1;
        let session = Session::new(system, &place, &config).and_then(Session::spawn).doing(doing)?;
        let (stop, stopped) = channel();
        let store = Arc::clone(store);
        let settler = std::thread::Builder::new()
            .name("guard-settler".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(SETTLE_EVERY) == Err(RecvTimeoutError::Timeout) {
                    store.let_go(KEPT_FOR);
                    for file in store.open_files() {
                        // Tried again next time.
                        let _ = file.settle_if_idle(SETTLE_EVERY);
                    }
                }
            })
            .doing(doing)?;
        Ok(Self { session: Some(session), settler: Some((stop, settler)) })
    }

    /// Whether it is still served; somebody else may have unmounted it.
    pub fn is_served(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.guard.is_finished())
    }

    /// Unmounts it.
    pub fn unmount(mut self) -> Result<()> {
        self.stop()
    }

    fn stop(&mut self) -> Result<()> {
        if let Some((stop, settler)) = self.settler.take() {
            drop(stop);
            let _ = settler.join();
        }
        match self.session.take() {
            // Unmounted by somebody else.
            Some(session) if session.guard.is_finished() => {
                session.join().doing(|| "serving the guard".to_owned())
            }
            Some(session) => session.umount_and_join().doing(|| "unmounting the guard".to_owned()),
            None => Ok(()),
        }
    }
}

impl Drop for GuardMount {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}
