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

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_guard::Store;

use crate::at::Mounted;
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

/// How long the connection of what somebody else has unmounted may take to end.
const END_MAX: Duration = Duration::from_secs(2);
const END_INTERVAL: Duration = Duration::from_millis(5);
/// How long a mount may be busy when it is to be unmounted.
const BUSY_MAX: Duration = Duration::from_secs(1);

/// How long files are kept attached that nobody opens.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// A mount that is served until it is undone.
pub struct GuardMount {
    session: Option<BackgroundSession>,
    mountpoint: PathBuf,
    /// Of its file system, as long as it is mounted.
    device: (u32, u32),
    mount: Option<u64>,
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
        let (device, mount) = (at::device_of(&place).doing(doing)?, at::mount_of(&place));
        let (stop, stopped) = channel();
        let store = Arc::clone(store);
        let settler = std::thread::Builder::new()
            .name("guard-settler".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(SETTLE_EVERY) == Err(RecvTimeoutError::Timeout) {
                    store.let_go(KEPT_FOR);
                    store.tell_counts();
                    for file in store.open_files() {
                        // Tried again next time.
                        let _ = file.settle_if_idle(SETTLE_EVERY);
                    }
                }
            })
            .doing(doing)?;
        Ok(Self { session: Some(session), mountpoint: place, device, mount, settler: Some((stop, settler)) })
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
        let Some(session) = self.session.take() else { return Ok(()) };
        let doing = || format!("unmounting the guard from {}", self.mountpoint.display());
        let look = || at::mounted(self.device, self.mount, &self.mountpoint);
        let is_unmounted = unmount_soon(&session, &self.mountpoint, &look);
        match look().doing(doing)? {
            _ if is_unmounted || session.guard.is_finished() => {
                ended(session).doing(|| "serving the guard".to_owned())
            }
            // By a helper, if this is not root; or it is busy, which this says.
            Mounted::OnTop => session.umount_and_join().doing(doing),
            // By its path the other one would be unmounted. The connection ends with this process.
            Mounted::Covered => {
                let _ = ManuallyDrop::new(session);
                let what = format!(
                    "something else is mounted over the guard at {}; unmount that first",
                    self.mountpoint.display()
                );
                Err(Error::new(ErrorKind::Refused, what))
            }
            // Just now, or lazily: whoever still uses it has his end with this process.
            Mounted::Not => {
                let deadline = Instant::now() + END_MAX;
                while !session.guard.is_finished() && Instant::now() < deadline {
                    std::thread::sleep(END_INTERVAL);
                }
                match session.guard.is_finished() {
                    true => ended(session).doing(|| "serving the guard".to_owned()),
                    false => {
                        let _ = ManuallyDrop::new(session);
                        Ok(())
                    }
                }
            }
        }
    }
}

/// Unmounts what is served, and says whether that was done. A program that is about to end may be in the mount for a moment.
fn unmount_soon(
    session: &BackgroundSession,
    mountpoint: &Path,
    look: &dyn Fn() -> std::io::Result<Mounted>,
) -> bool {
    let deadline = Instant::now() + BUSY_MAX;
    // Nothing that somebody else has mounted there meanwhile.
    while !session.guard.is_finished() && look().is_ok_and(|mounted| mounted == Mounted::OnTop) {
        match at::unmount(mountpoint) {
            Ok(()) => return true,
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline => {
                std::thread::sleep(END_INTERVAL);
            }
            Err(_) => break,
        }
    }
    false
}

/// Waits for the end of a session that somebody else has unmounted. Whatever is mounted at the place now is another's: dropped or joined in the
/// regular way, a session of fuser 0.18 unmounts that, as it takes a connection that has ended for one that is mounted (`is_mounted`
/// in its `mnt/mod.rs`). So what it would do that with is not dropped; it is a path, a connection that has ended, and goes with the process.
fn ended(session: BackgroundSession) -> std::io::Result<()> {
    let session = ManuallyDrop::new(session);
    // SAFETY: the field is read once, and the whole of it is never dropped.
    let serving = unsafe { std::ptr::read(&raw const session.guard) };
    serving.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread of the mount panicked")))
}

impl Drop for GuardMount {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}
