//! A ZFS pool of one mirror on two files, by a daemon `zfs-fuse` of the cell's own.
//!
//! The daemon lives in a mount namespace of its own, so that it does not meet another one of the machine, neither its socket nor
//! its pools. Its file system is mounted there alone, and goes with it; from here it is reached through the process.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_machine::{Cancel, Program, RunningProgram};
use rotproof_matrix::{Place, block_of};

use crate::aim::What;
use crate::members::{MEMBER_BYTES, Members};
use crate::peer::System;

/// What runs in the namespace. Nothing of the machine's own `/run` and `/etc/zfs` is seen but the folder of the cell, which is given,
/// and nothing of it changed.
const DAEMON: &str = "exec 9< \"$1\" && mount -t tmpfs none /run && mkdir -p /run/zfs /run/lock \"$1\" && \
     mount --no-canonicalize --rbind /proc/self/fd/9 \"$1\" && exec 9<&- && \
     { [ ! -d /etc/zfs ] || mount -t tmpfs none /etc/zfs; } && \
     exec zfs-fuse --no-daemon --no-kstat-mount --disable-page-cache --zfs-prefetch-disable -m 16";
/// The pool. Its name is seen in its own namespace alone.
const POOL: &str = "pool";
/// Seconds that a command may take.
const COMMAND_MAX: &str = "30";
const READY_MAX: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(40);
/// A vdev begins with two labels of 256 KiB and room for boot code; blocks are counted from behind these.
const FIRST_BLOCK: u64 = 4 << 20;
const LABELS_BYTES: u64 = 512 << 10;

/// What a block is: of data by its content. Of metadata, which are compressed, nothing can be seen.
pub(crate) fn recognise(seed: u64, bytes: &[u8]) -> Option<What> {
    block_of(seed, bytes).map(What::Data)
}

/// See the head of the module.
pub(crate) struct Zfs {
    unshare: Program,
    timeout: Program,
    /// A folder with both members.
    links: PathBuf,
    mountpoint: PathBuf,
    daemon: Option<RunningProgram>,
    pid: Arc<AtomicU32>,
    commits: u64,
    /// The object that the file is.
    object: Option<u64>,
    /// The path of the file in its folder.
    file: &'static str,
}

impl Zfs {
    pub(crate) fn make(members: &mut Members, file: &'static str) -> Result<Self> {
        Program::find("zfs-fuse", "zfs-fuse")?;
        let links = members.links()?;
        let mountpoint = members.folder.join("mount");
        members.stack.create_directory(&mountpoint)?;
        let mut zfs = Self {
            unshare: Program::find("unshare", "util-linux")?,
            timeout: Program::find("timeout", "coreutils")?,
            links,
            mountpoint,
            daemon: None,
            pid: Arc::default(),
            commits: 0,
            object: None,
            file,
        };
        zfs.start()?;
        let mount = format!("mountpoint={}", zfs.mountpoint.display());
        let mut arguments = vec!["create", "-f", "-o", "cachefile=none", "-o", "ashift=12"];
        arguments.extend(["-o", "failmode=continue", "-O", "atime=off", "-O", "recordsize=4K"]);
        arguments.extend(["-O", "compression=off", "-O", "primarycache=metadata", "-O", &mount]);
        arguments.extend([POOL, "mirror"]);
        let files = members.files.clone();
        arguments.extend(files.iter().filter_map(|file| file.to_str()));
        zfs.command("zpool", &arguments)?;
        zfs.stop(true)?;
        Ok(zfs)
    }

    /// Starts the daemon.
    fn start(&mut self) -> Result<()> {
        self.end();
        let folder = self.mountpoint.parent().unwrap_or(&self.mountpoint).as_os_str();
        let shell = ["--mount", "--propagation", "private", "sh", "-c", DAEMON, "sh"].map(OsStr::new);
        let daemon = self.unshare.start(shell.into_iter().chain([folder]))?;
        self.pid.store(daemon.identity()?.pid, Ordering::SeqCst);
        self.daemon = Some(daemon);
        let deadline = Instant::now() + READY_MAX;
        while let Err(error) = self.command("zpool", &["list"]) {
            if Instant::now() >= deadline {
                return Err(Error::new(ErrorKind::Missing, "zfs-fuse does not start").caused_by(error));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Ends the daemon as it is.
    fn end(&mut self) {
        self.pid.store(0, Ordering::SeqCst);
        self.daemon = None;
    }

    /// Lets go of the pool, and ends the daemon.
    fn stop(&mut self, is_quiet: bool) -> Result<()> {
        if self.daemon.is_none() {
            return Ok(());
        }
        let mut exported = self.command("zpool", &["export", POOL]);
        if exported.is_err() && is_quiet {
            // Who has just closed a file may still be there.
            std::thread::sleep(POLL);
            exported = self.command("zpool", &["export", POOL]);
        }
        self.end();
        exported.map(drop)
    }

    /// Has a program of ZFS do something in the namespace of the daemon; what it says.
    fn command(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let pid = self.pid.load(Ordering::SeqCst).to_string();
        let all = ["-s", "KILL", COMMAND_MAX, "nsenter", "-t", &pid, "-m", program];
        let done = self.timeout.start(all.iter().chain(arguments))?.wait(&Cancel::new());
        done.map_err(|error| error.while_doing(format!("{program} {}", arguments.join(" "))))
    }

    /// Errors that the pool tells of, once nothing is under way.
    fn errors(&self) -> Result<u64> {
        loop {
            let status = self.command("zpool", &["status", POOL])?;
            if !status.contains("in progress") {
                return Ok(errors_in(&status));
            }
            std::thread::sleep(POLL);
        }
    }
}

/// What `zpool status` counts: a device that is not online is one, and so is each number that is not zero.
fn errors_in(status: &str) -> u64 {
    let mut errors = 0;
    for line in status.lines().skip_while(|line| !line.trim_start().starts_with("NAME")).skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, state, counts @ ..] = &words[..] else { break };
        if counts.len() < 3 {
            break;
        }
        errors += u64::from(*state != "ONLINE");
        errors += counts[..3].iter().filter(|count| **count != "0").count() as u64;
    }
    let scrub = status.lines().find_map(|line| line.split_once(" with ")?.1.split_once(" errors"));
    errors + scrub.map_or(0, |(count, _)| u64::from(count != "0"))
}

/// Offsets on a member of the indirect blocks that `zdb` lists.
fn indirect_blocks(said: &str) -> Vec<u64> {
    let lines = said.lines().filter(|line| line.split_whitespace().nth(1) == Some("L1"));
    let of_line = |line: &str| -> Vec<u64> {
        let words = line.split_whitespace().map(|word| word.split(':').collect::<Vec<_>>());
        words
            .filter_map(|parts| match parts[..] {
                // Device, offset, bytes.
                ["0", offset, _] => u64::from_str_radix(offset, 16).ok(),
                _ => None,
            })
            .collect()
    };
    lines.flat_map(of_line).map(|offset| FIRST_BLOCK + offset).collect()
}

impl System for Zfs {
    fn mount(&mut self, _reports: &mut Vec<String>) -> Result<()> {
        self.start()?;
        let links = self.links.display().to_string();
        self.command("zpool", &["import", "-f", "-o", "cachefile=none", "-d", &links, POOL])?;
        let file = self.folder().join(self.file);
        use std::os::unix::fs::MetadataExt;
        self.object = file.metadata().ok().map(|about| about.ino()).or(self.object);
        Ok(())
    }

    fn folder(&self) -> PathBuf {
        let inside = self.mountpoint.strip_prefix("/").unwrap_or(&self.mountpoint);
        PathBuf::from(format!("/proc/{}/root", self.pid.load(Ordering::SeqCst))).join(inside)
    }

    /// The pool keeps no data in memory, and the kernel none of it.
    fn open_to_read(&self, path: &Path) -> std::io::Result<File> {
        File::open(path)
    }

    /// A property is set in a transaction, and that is waited for.
    fn commit(&mut self) -> Result<()> {
        self.commits += 1;
        use std::os::unix::fs::MetadataExt;
        self.object = self.folder().join(self.file).metadata().ok().map(|about| about.ino()).or(self.object);
        self.command("zfs", &["set", &format!("rotproof:commit={}", self.commits), POOL]).map(drop)
    }

    fn unmount(&mut self) -> Result<()> {
        self.stop(true)
    }

    fn scrub(&mut self) -> Result<u64> {
        self.command("zpool", &["clear", POOL])?;
        self.errors()?;
        self.command("zpool", &["scrub", POOL])?;
        self.errors()
    }

    fn places(&mut self, place: Place) -> Result<Vec<u64>> {
        match place {
            Place::RecordA | Place::Record => {
                let ends = [0, MEMBER_BYTES - LABELS_BYTES];
                let blocks = |end: u64| (end..end + LABELS_BYTES).step_by(4096);
                Ok(ends.into_iter().flat_map(blocks).collect())
            }
            Place::MapA | Place::Map => {
                let Some(object) = self.object else { return Ok(Vec::new()) };
                self.start()?;
                let (links, object) = (self.links.display().to_string(), object.to_string());
                let said = self.command("zdb", &["-e", "-p", &links, "-dddddd", POOL, &object]);
                self.end();
                Ok(indirect_blocks(&said?))
            }
            _ => Ok(Vec::new()),
        }
    }

    fn kill(&mut self) -> Box<dyn Fn() + Send> {
        let pid = Arc::clone(&self.pid);
        Box::new(move || {
            let pid = pid.swap(0, Ordering::SeqCst);
            if let Some(pid) = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0) {
                // SAFETY: takes numbers; the process is a child that is not waited for before its number is taken back.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_pool_are_counted() {
        let status = |state: &str, sums: &str, errors: &str| {
            format!(
                "  pool: pool\n state: ONLINE\n scrub: scrub completed after 0h0m with {errors} errors on Mon\nconfig:\n\n\
                 \tNAME        STATE     READ WRITE CKSUM\n\tpool        ONLINE       0     0     0\n\
                 \t  mirror-0  ONLINE       0     0     0\n\t    /m0     {state}   0     0     {sums}\n\nerrors: No known data errors\n"
            )
        };
        assert_eq!(errors_in(&status("ONLINE", "0", "0")), 0);
        assert_eq!(errors_in(&status("ONLINE", "1.2K", "0")), 1);
        assert_eq!(errors_in(&status("UNAVAIL", "0", "3")), 2);
    }

    #[test]
    fn indirect_blocks_are_found() {
        let said = "Indirect blocks:\n               0 L1  0:4c000:1000 0:90000:1000 4000L/1000P F=64 B=7/7\n\
                    \x20              0  L0 0:c000:1000 1000L/1000P F=1 B=7/7\n";
        assert_eq!(indirect_blocks(said), [FIRST_BLOCK + 0x4c000, FIRST_BLOCK + 0x90000]);
    }
}
