//! The stage of ZFS: a pool on the cell's device, by a zfs-fuse of the cell's own, which is another after each mount.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rotproof_attach::FuseMount;
use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_export::{FuseExport, FuseOptions};
use rotproof_machine::Cancel;
use rotproof_machine::process::Liveness;
use rotproof_machine::registry::{CleanupStack, Run, Undo};
use rotproof_zfs::{Daemon, DaemonOptions, Killer, Pool, PoolOptions};

use crate::files::Here;
use crate::operation::{Operation, SYNCED};
use crate::stage::{Answer, Helper, Stage, perform_in};
use crate::tree::{Change, Look, Tree};

/// MiB of the cache.
const CACHE_MIB: u32 = 64;

/// See the head of the module.
pub(crate) struct ZfsStage {
    stack: CleanupStack,
    run: Run,
    folder: PathBuf,
    pool: Pool,
    daemon: Option<Daemon>,
    /// What ends the daemon that there is.
    killer: Arc<Mutex<Option<Killer>>>,
    /// Nobody waits for the cell any more, so no other daemon is started.
    is_over: Arc<AtomicBool>,
    /// The file that is fsynced, open from before it is written: of what was written by somebody who has closed the file since, zfs-fuse
    /// acknowledges an fsync and does nothing.
    synced: Option<File>,
    commits: u64,
    /// What the pool has said since it was asked last.
    words: Vec<String>,
    /// What it said last: it goes on saying so.
    told: Vec<String>,
}

impl ZfsStage {
    /// Serves `device` in the folder `name` of the run's scratch folder.
    pub(crate) fn new(run: &Run, name: &str, device: Arc<dyn Device>) -> Result<Self> {
        let mut stack = CleanupStack::new(run);
        let folder = run.scratch().join(name);
        let (served, mountpoint, links) = (folder.join("served"), folder.join("mount"), folder.join("links"));
        for path in [&folder, &served, &mountpoint] {
            stack.create_directory(path)?;
        }
        stack.create_tree(&links)?;
        let options = FuseOptions { threads: 1, epoch: Instant::now(), ..FuseOptions::default() };
        let file = served.join(&options.file_name);
        stack.create(FuseMount { path: served.clone() }, || {
            let export = Arc::new(FuseExport::mount(device, &served, options)?);
            let undo: Undo = Box::new(move || {
                let ended = export.unmount();
                if ended.is_err() {
                    export.abort();
                }
                ended
            });
            Ok(((), undo))
        })?;
        let pool = Pool::on(&[file], &links, &mountpoint)?;
        let (run, killer, is_over) = (run.clone(), Arc::default(), Arc::default());
        let (daemon, synced, commits, words, told) = (None, None, 0, Vec::new(), Vec::new());
        Ok(Self { stack, run, folder, pool, daemon, killer, is_over, synced, commits, words, told })
    }

    fn start(&mut self) -> Result<&Daemon> {
        self.stop();
        if self.is_over.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::TimedOut, "the cell took too long"));
        }
        let options =
            DaemonOptions { folder: &self.folder, cache_mib: CACHE_MIB, reads_ahead: false, xattrs: true };
        let daemon = Daemon::start(&options, &self.run, &Cancel::new())?;
        *self.killer.lock() = Some(daemon.killer());
        Ok(self.daemon.insert(daemon))
    }

    /// Ends the daemon as it is.
    fn stop(&mut self) {
        self.synced = None;
        *self.killer.lock() = None;
        self.daemon = None;
        self.told.clear();
    }

    fn root(&self) -> PathBuf {
        let mountpoint = self.pool.mountpoint();
        self.daemon.as_ref().map_or_else(|| mountpoint.to_owned(), |daemon| daemon.seen(mountpoint))
    }

    /// What the pool says to be wrong, if it can be asked.
    fn ask(&mut self) {
        if let Some(status) = self.daemon.as_ref().and_then(|daemon| self.pool.status(daemon).ok()) {
            self.hear(status.words());
        }
    }

    fn hear(&mut self, words: Vec<String>) {
        self.words.extend(words.iter().filter(|word| !self.told.contains(word)).cloned());
        self.told = words;
    }

    /// What a command answers, without where things lie.
    fn failed(&self, error: &Error) -> Look {
        let folder = self.folder.display().to_string();
        let words = error.to_string().replace(&folder, "");
        Look::Failed(words.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl Stage for ZfsStage {
    fn make(&mut self) -> Result<()> {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let options = PoolOptions {
            pool: words(&["ashift=12", "failmode=continue"]),
            file_system: words(&["atime=off", "recordsize=4K"]),
        };
        self.start()?;
        let made = self.daemon.as_ref().map_or(Ok(()), |daemon| {
            self.pool.create(daemon, &options)?;
            self.pool.export(daemon)
        });
        self.stop();
        made
    }

    fn helper(&self) -> Helper {
        let (killer, is_over) = (Arc::clone(&self.killer), Arc::clone(&self.is_over));
        Box::new(move || {
            is_over.store(true, Ordering::SeqCst);
            let killer = killer.lock().clone()?;
            killer.kill();
            Some("it ended once zfs-fuse was killed")
        })
    }

    fn end(mut self: Box<Self>) -> Vec<Error> {
        self.stop();
        self.stack.undo_all()
    }

    fn is_crashed(&mut self) -> bool {
        self.daemon.as_ref().is_some_and(|daemon| daemon.process().liveness() != Liveness::Alive)
    }

    fn forget(&mut self) -> Result<()> {
        // What was read of the device is with the daemon alone.
        self.stop();
        Ok(())
    }

    fn mount(&mut self) -> Result<Look> {
        self.start()?;
        let imported = self.daemon.as_ref().map_or(Ok(()), |daemon| self.pool.import(daemon));
        Ok(match imported {
            Ok(()) => Look::Right,
            Err(error) => self.failed(&error),
        })
    }

    /// A daemon that has crashed stays to be seen.
    fn unmount(&mut self) -> Result<Look> {
        self.synced = None;
        self.ask();
        let Some(daemon) = &self.daemon else { return Ok(Look::Right) };
        let look = match self.pool.export(daemon) {
            Ok(()) => Look::Right,
            Err(error) if error.to_string().contains("no such pool") => Look::Right,
            Err(error) => self.failed(&error),
        };
        if !self.is_crashed() {
            self.stop();
        }
        Ok(look)
    }

    fn change(&mut self, change: &Change) -> Result<Look> {
        if matches!(change, Change::Write(path, ..) if path == SYNCED) && self.synced.is_none() {
            self.synced = File::options().write(true).open(self.root().join(SYNCED)).ok();
        }
        Ok(match change.perform(&self.root()) {
            Ok(()) => Look::Right,
            Err(error) => Look::of(&change.paths().join(" to "), &error),
        })
    }

    /// syncfs of a FUSE file system asks nobody; a transaction that is waited for does.
    fn sync(&mut self) -> Look {
        self.commits += 1;
        match self.daemon.as_ref().map_or(Ok(()), |daemon| self.pool.commit(daemon, self.commits)) {
            Ok(()) => Look::Right,
            Err(error) => self.failed(&error),
        }
    }

    fn perform(&mut self, operation: Operation, tree: &Tree) -> Result<Answer> {
        Ok(match operation {
            // How much is free differs by what the pool writes for itself meanwhile.
            Operation::Statfs => Answer::from(perform_in(&self.root(), operation, tree)?.look),
            Operation::Fsync => match self.synced.as_ref().map_or(Ok(()), File::sync_all) {
                Ok(()) => Look::Right.into(),
                Err(error) => Look::Failed(format!("fsync: {error}")).into(),
            },
            _ => perform_in(&self.root(), operation, tree)?,
        })
    }

    fn look(&mut self, tree: &Tree) -> Look {
        tree.look(&Here(&self.root()))
    }

    /// A scrub, which repairs what it can.
    fn check(&mut self) -> Result<Answer> {
        let look = self.mount()?;
        if look != Look::Right {
            return Ok(look.into());
        }
        let Some(daemon) = &self.daemon else { return Ok(Look::Right.into()) };
        let scrubbed = self.pool.scrub(daemon);
        let look = match &scrubbed {
            Ok(status) if status.lost.is_empty() && status.scrub_errors.unwrap_or(0) == 0 => Look::Right,
            Ok(status) => Look::Failed(format!("zpool scrub: {}", status.words().join("; "))),
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                return Err(Error::new(ErrorKind::TimedOut, "the scrub does not end"));
            }
            Err(error) => self.failed(error),
        };
        if let Ok(status) = scrubbed {
            self.hear(status.words());
        }
        Ok(look.into())
    }

    fn is_read_only(&mut self) -> Result<bool> {
        let status = self.daemon.as_ref().and_then(|daemon| self.pool.status(daemon).ok());
        Ok(status.is_some_and(|status| status.is_stopped))
    }

    fn words(&mut self) -> Vec<String> {
        self.ask();
        std::mem::take(&mut self.words)
    }
}

#[cfg(test)]
mod tests {
    use rotproof_machine::registry::Registry;

    use super::*;
    use crate::medium::Medium;

    #[test]
    fn what_a_command_says_is_told_without_where_it_lies() {
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Registry::at(&folder.path().join("registry")).expect("a registry");
        let run = registry.begin().expect("begun");
        let device = Medium::new(64 << 20) as Arc<dyn Device>;
        let stage = Box::new(ZfsStage::new(&run, "cell", device).expect("served"));
        let place = run.scratch().join("cell/mount");
        let error = Error::new(ErrorKind::Missing, format!("cannot mount '{}': busy\n", place.display()));
        assert_eq!(stage.failed(&error), Look::Failed("cannot mount '/mount': busy".into()));
        assert!(stage.end().is_empty());
        assert!(run.finish().is_empty());
    }
}
