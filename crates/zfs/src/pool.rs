//! The one pool of a daemon: made, let go, taken up again, written down, scrubbed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::{Daemon, Status};

/// Its name, which is seen in its daemon's namespace alone.
pub const POOL: &str = "pool";
const POLL: Duration = Duration::from_millis(20);
/// How long a scrub may take.
const SCRUB_MAX: Duration = Duration::from_secs(120);
/// How long a pool may be busy when it is let go: who has just closed a file may still be there.
const BUSY_MAX: Duration = Duration::from_secs(5);

/// How a pool is made.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    /// Properties of the pool, such as `failmode=continue`.
    pub pool: Vec<String>,
    /// Properties of its file system, such as `recordsize=4K`.
    pub file_system: Vec<String>,
}

/// A pool on some files, which need not exist yet; used through a [`Daemon`].
#[derive(Clone, Debug)]
pub struct Pool {
    /// A folder with a name for each of the files, and nothing else.
    links: PathBuf,
    members: Vec<PathBuf>,
    mountpoint: PathBuf,
}

impl Pool {
    /// Of `members`, as a mirror if they are several, to be mounted in `mountpoint`. `links` is an empty folder, which gets a link to each;
    /// the folder of the daemon must have them all.
    pub fn on(members: &[PathBuf], links: &Path, mountpoint: &Path) -> Result<Self> {
        let mut named = Vec::new();
        for (number, member) in members.iter().enumerate() {
            let link = links.join(format!("m{number}"));
            std::os::unix::fs::symlink(member, &link).doing(|| format!("making {}", link.display()))?;
            named.push(link);
        }
        Ok(Self { links: links.to_owned(), members: named, mountpoint: mountpoint.to_owned() })
    }

    /// Where it is mounted, in the namespace of its daemon.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// The command that makes it, after `zpool`. Where it is mounted is no part of what it stores.
    pub fn arguments(&self, options: &PoolOptions) -> Vec<String> {
        let mut arguments: Vec<String> = ["create", "-f", "-R"].map(str::to_owned).to_vec();
        arguments.extend([
            self.mountpoint.display().to_string(),
            "-o".to_owned(),
            "cachefile=none".to_owned(),
        ]);
        arguments.extend(options.pool.iter().flat_map(|option| ["-o".to_owned(), option.clone()]));
        arguments.extend(options.file_system.iter().flat_map(|option| ["-O".to_owned(), option.clone()]));
        arguments.extend(["-O", "mountpoint=/", POOL].map(str::to_owned));
        arguments.extend((self.members.len() > 1).then(|| "mirror".to_owned()));
        arguments.extend(self.members.iter().map(|member| member.to_string_lossy().into_owned()));
        arguments
    }

    /// Makes it, and mounts it. What the members hold is lost.
    pub fn create(&self, daemon: &Daemon, options: &PoolOptions) -> Result<()> {
        let arguments = self.arguments(options);
        daemon.command("zpool", &arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
        self.require_mounted(daemon)
    }

    /// Takes up the pool that the members hold, and mounts it. Whether it was let go in order or not makes no difference.
    pub fn import(&self, daemon: &Daemon) -> Result<()> {
        let (links, root) = (self.links.display().to_string(), self.mountpoint.display().to_string());
        daemon
            .command("zpool", &["import", "-f", "-R", &root, "-o", "cachefile=none", "-d", &links, POOL])?;
        self.require_mounted(daemon)
    }

    /// What is written to a folder where nothing is mounted would be the machine's.
    fn require_mounted(&self, daemon: &Daemon) -> Result<()> {
        let mounted = daemon.seen(&self.mountpoint);
        let doing = || "looking at the root of the pool's file system".into();
        let device = |path: &Path| path.metadata().map(|about| about.dev()).doing(doing);
        match device(&mounted)? == device(&mounted.join(".."))? {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::Missing, "the file system of the pool is not mounted")),
        }
    }

    /// Has everything written, unmounts it, and lets it go.
    pub fn export(&self, daemon: &Daemon) -> Result<()> {
        let deadline = Instant::now() + BUSY_MAX;
        loop {
            match daemon.command("zpool", &["export", POOL]) {
                Ok(_) => return Ok(()),
                Err(error) if error.to_string().contains("busy") && Instant::now() < deadline => {
                    std::thread::sleep(POLL);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Has all that was written brought to its place on the members: a property is set to `number` in a transaction, and that is waited
    /// for.
    pub fn commit(&self, daemon: &Daemon, number: u64) -> Result<()> {
        daemon.command("zfs", &["set", &format!("rotproof:commit={number}"), POOL]).map(drop)
    }

    /// What it says of itself.
    pub fn status(&self, daemon: &Daemon) -> Result<Status> {
        let mut status = Status::read(&daemon.command("zpool", &["status", "-v", POOL])?);
        let place = self.mountpoint.display().to_string();
        for lost in &mut status.lost {
            // As it is called within the file system.
            if let Some(inside) = lost.strip_prefix(&place).filter(|inside| inside.starts_with('/')) {
                *lost = inside.to_owned();
            }
        }
        Ok(status)
    }

    /// Reads all and repairs what can be, and gives what it says then. What it said before counts no more.
    pub fn scrub(&self, daemon: &Daemon) -> Result<Status> {
        daemon.command("zpool", &["clear", POOL])?;
        self.at_rest(daemon)?;
        daemon.command("zpool", &["scrub", POOL])?;
        self.at_rest(daemon)
    }

    fn at_rest(&self, daemon: &Daemon) -> Result<Status> {
        let deadline = Instant::now() + SCRUB_MAX;
        loop {
            let status = self.status(daemon)?;
            if !status.in_progress {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(Error::new(ErrorKind::TimedOut, "the scrub does not end"));
            }
            std::thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use rotproof_machine::Cancel;
    use rotproof_machine::process::Liveness;
    use rotproof_machine::registry::Registry;

    use super::*;
    use crate::DaemonOptions;

    #[test]
    fn several_members_are_a_mirror() {
        let folder = tempfile::tempdir().expect("a folder");
        let members = ["/a".into(), "/b".into()];
        let pool = Pool::on(&members, folder.path(), Path::new("/mount")).expect("linked");
        let options = PoolOptions { pool: vec!["ashift=12".into()], file_system: vec!["copies=2".into()] };
        let said = pool.arguments(&options).join(" ");
        let links = folder.path().display();
        assert_eq!(
            said,
            format!(
                "create -f -R /mount -o cachefile=none -o ashift=12 -O copies=2 -O mountpoint=/ pool mirror {links}/m0 {links}/m1"
            )
        );
    }

    /// Needs root, as everything that mounts does.
    #[test]
    fn a_pool_of_its_own_is_made_killed_taken_up_and_scrubbed() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("there");
        for name in ["links", "mount"] {
            std::fs::create_dir(folder.join(name)).expect("made");
        }
        let member = folder.join("member");
        std::fs::File::create(&member).and_then(|file| file.set_len(64 << 20)).expect("a sparse file");
        let options = DaemonOptions { folder: &folder, cache_mib: 16, reads_ahead: false, xattrs: false };
        let run =
            Registry::at(&folder.join("registry")).and_then(|registry| registry.begin()).expect("begun");
        let start = || Daemon::start(&options, &run, &Cancel::new()).expect("started");
        let daemon = start();
        let pool = Pool::on(&[member], &folder.join("links"), &folder.join("mount")).expect("linked");
        pool.create(&daemon, &PoolOptions::default()).expect("made");
        std::fs::write(daemon.seen(pool.mountpoint()).join("file"), b"content").expect("written");
        assert!(!folder.join("mount/file").exists(), "it is mounted where nobody else sees it");
        pool.commit(&daemon, 1).expect("written down");
        let process = daemon.process();
        drop(daemon);
        assert_eq!(process.liveness(), Liveness::Gone);
        let daemon = start();
        pool.import(&daemon).expect("taken up");
        assert_eq!(std::fs::read(daemon.seen(pool.mountpoint()).join("file")).expect("read"), b"content");
        let status = pool.scrub(&daemon).expect("scrubbed");
        assert_eq!((status.errors(), status.scrub_errors), (0, Some(0)), "{status:?}");
        pool.export(&daemon).expect("let go");
        drop(daemon);
        assert!(run.finish().is_empty(), "nothing is left on record");
    }
}
