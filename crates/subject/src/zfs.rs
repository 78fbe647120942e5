//! The subject `zfs`: a pool on the exported stack, by a `zfs-fuse` of the trial's own. The load works on a folder that is seen through
//! that process, whose memory faults can act on.

use std::sync::Arc;

use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_machine::Program;
use rotproof_machine::registry::CleanupStack;
use rotproof_zfs::{Daemon, DaemonOptions, Pool, PoolOptions, Status};

use crate::exported::Exported;
use crate::zfs_spec::{FILE_SYSTEM_DEFAULTS, POOL_DEFAULTS, with_defaults};
use crate::{Attached, Destination, Prepared, SubjectDescription, SubjectEnvironment, ZfsSpec};

/// MiB of the cache of the daemon.
const CACHE_MIB: u32 = 64;

/// A pool over the stack.
pub(crate) struct ZfsSubject {
    exported: Exported,
    environment: SubjectEnvironment,
    pool: Pool,
    /// The command that made it.
    made: String,
    daemon: Option<Daemon>,
    commits: std::sync::atomic::AtomicU64,
    /// What the pool has said to be wrong, as long as it was asked.
    messages: Vec<String>,
}

impl ZfsSubject {
    pub(crate) fn prepare(
        spec: &ZfsSpec,
        devices: Vec<Arc<dyn Device>>,
        environment: &SubjectEnvironment,
    ) -> Result<Self> {
        let mut stack = CleanupStack::new(&environment.run);
        let scratch = environment.run.scratch();
        let (links, mountpoint) = (scratch.join("links"), scratch.join("mount"));
        stack.create_tree(&links)?;
        stack.create_directory(&mountpoint)?;
        let exported = Exported::as_files(stack, devices, environment)?;
        let pool = Pool::on(&exported.files(), &links, &mountpoint)?;
        let options = PoolOptions {
            pool: with_defaults(&POOL_DEFAULTS, &spec.pool),
            file_system: with_defaults(&FILE_SYSTEM_DEFAULTS, &spec.properties),
        };
        let made = shown(&pool.arguments(&options), &mountpoint, &links);
        let mut subject = Self {
            exported,
            environment: environment.clone(),
            pool,
            made,
            daemon: None,
            commits: 0.into(),
            messages: Vec::new(),
        };
        let created = subject.start().and_then(|daemon| {
            subject.pool.create(&daemon, &options)?;
            subject.pool.export(&daemon)
        });
        created.map_err(|error| match error.kind() {
            ErrorKind::Cancelled => error,
            _ => {
                let what =
                    format!("no pool could be made (`{}`); check its properties and the size", subject.made);
                Error::new(ErrorKind::Missing, what).caused_by(error)
            }
        })?;
        subject.daemon = None;
        Ok(subject)
    }

    fn start(&self) -> Result<Daemon> {
        let folder = self.environment.run.scratch();
        let options = DaemonOptions { folder, cache_mib: CACHE_MIB, reads_ahead: true, xattrs: true };
        Daemon::start(&options, &self.environment.run, &self.environment.cancel)
    }

    /// Asks the pool what it says to be wrong, and keeps that; nothing where it does not answer.
    fn ask(&mut self) -> Option<Status> {
        let status = self.daemon.as_ref().and_then(|daemon| self.pool.status(daemon).ok())?;
        self.keep(status.words());
        Some(status)
    }

    fn keep(&mut self, words: Vec<String>) {
        for word in words.into_iter().map(|word| format!("zpool status: {word}")) {
            if !self.messages.contains(&word) {
                self.messages.push(word);
            }
        }
    }
}

/// A command with words for what differs from run to run.
fn shown(arguments: &[String], mountpoint: &std::path::Path, links: &std::path::Path) -> String {
    let links = format!("{}/", links.display());
    let words = arguments.iter().map(|argument| match argument.strip_prefix(&links) {
        Some(_) => "DEVICE".to_owned(),
        None => argument.replace(&mountpoint.display().to_string(), "FOLDER"),
    });
    format!("zpool {}", words.collect::<Vec<_>>().join(" "))
}

impl Prepared for ZfsSubject {
    fn place(&self) -> Destination {
        let mountpoint = self.pool.mountpoint();
        Destination::Folder(
            self.daemon.as_ref().map_or_else(|| mountpoint.to_owned(), |daemon| daemon.seen(mountpoint)),
        )
    }

    fn attach(&mut self) -> Result<Attached> {
        // A new daemon: nothing of the memory of the one before answers, be it right or wrong.
        let phase = self.exported.enter_setup();
        let attached = self.exported.serve().and_then(|()| self.start()).map(|daemon| {
            let imported = self.pool.import(&daemon);
            self.daemon = Some(daemon);
            imported
        });
        self.exported.leave_setup(phase);
        Ok(match attached? {
            Ok(()) => Attached::Up,
            Err(error) => Attached::Refused(error),
        })
    }

    fn detach(&mut self) -> Result<Vec<Error>> {
        let mut reported = Vec::new();
        if let Err(error) = self.sync() {
            reported.push(error);
        }
        if let Some(status) = self.ask() {
            let words = status.words();
            let what = || format!("the pool tells: {}", words.join("; "));
            reported.extend((!words.is_empty()).then(|| Error::new(ErrorKind::Medium, what())));
        }
        let Some(daemon) = self.daemon.take() else { return Ok(reported) };
        if let Err(error) = self.pool.export(&daemon) {
            reported.push(error);
        }
        Ok(reported)
    }

    fn kill(&mut self) -> Result<()> {
        self.daemon = None;
        self.exported.kill()
    }

    fn sync(&self) -> Result<()> {
        let number = self.commits.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.daemon.as_ref().map_or(Ok(()), |daemon| self.pool.commit(daemon, number))
    }

    fn describe(&self) -> SubjectDescription {
        SubjectDescription {
            name: "zfs".to_owned(),
            export: None,
            tool: version(),
            mkfs: Some(self.made.clone()),
            mount_options: None,
            mount_options_in_force: None,
        }
    }

    /// What the pool says to be wrong, so far and after a scrub now.
    fn kernel_messages(&mut self) -> Vec<String> {
        self.ask();
        let scrubbed = self.daemon.as_ref().and_then(|daemon| self.pool.scrub(daemon).ok());
        if let Some(status) = scrubbed {
            self.keep(status.words());
            self.messages.push(format!("zpool scrub: {} errors", status.scrub_errors.unwrap_or(0)));
        }
        self.messages.clone()
    }

    fn process(&self) -> Option<u32> {
        self.daemon.as_ref().map(|daemon| daemon.process().pid)
    }

    fn abort(&self) {
        self.exported.abort();
        if let Some(daemon) = &self.daemon {
            daemon.killer().kill();
        }
    }

    fn axe(&self) -> Option<crate::Axe> {
        let (killer, exported) = (self.daemon.as_ref()?.killer(), self.exported.axe());
        Some(Box::new(move || {
            exported();
            killer.kill();
        }))
    }

    fn teardown(mut self: Box<Self>) -> Vec<Error> {
        if self.environment.cancel.is_cancelled() {
            self.abort();
        }
        let exported =
            self.daemon.take().map_or(Ok(()), |daemon| match self.environment.cancel.is_cancelled() {
                true => Ok(()),
                // One that was refused has nothing to let go.
                false => self.pool.export(&daemon).or_else(|error| {
                    match error.to_string().contains("no such pool") {
                        true => Ok(()),
                        false => Err(error),
                    }
                }),
            });
        exported.err().into_iter().chain(self.exported.teardown()).collect()
    }
}

/// `zfs-fuse` does not say which it is; its package does, where there is one.
fn version() -> Option<String> {
    let query = Program::find("dpkg-query", "dpkg").ok()?;
    let arguments = ["--show", "--showformat=zfs-fuse ${Version}", "zfs-fuse"];
    query.start(arguments).ok()?.wait(&rotproof_machine::Cancel::new()).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_command_is_shown_without_what_differs() {
        let arguments =
            ["create", "-O", "mountpoint=/run/x/mount", "pool", "/run/x/links/m0"].map(str::to_owned);
        let command = shown(&arguments, Path::new("/run/x/mount"), Path::new("/run/x/links"));
        assert_eq!(command, "zpool create -O mountpoint=FOLDER pool DEVICE");
    }
}
