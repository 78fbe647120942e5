//! A ZFS pool of one mirror on two files, by a daemon `zfs-fuse` of the cell's own.
//!
//! The daemon lives in a mount namespace of its own, so that it does not meet another one of the machine, neither its socket nor
//! its pools. Its file system is mounted there alone, and goes with it; from here it is reached through the process.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_machine::Cancel;
use rotproof_machine::registry::Run;
use rotproof_matrix::{Place, block_of};
use rotproof_zfs::{Daemon, DaemonOptions, Killer, POOL, Pool, PoolOptions};

use crate::aim::What;
use crate::members::{MEMBER_BYTES, Members};
use crate::peer::System;

/// A vdev begins with two labels of 256 KiB and room for boot code; blocks are counted from behind these.
const FIRST_BLOCK: u64 = 4 << 20;
const LABELS_BYTES: u64 = 512 << 10;

/// What a block is: of data by its content. Of metadata, which are compressed, nothing can be seen.
pub(crate) fn recognise(seed: u64, bytes: &[u8]) -> Option<What> {
    block_of(seed, bytes).map(What::Data)
}

/// See the head of the module.
pub(crate) struct Zfs {
    run: Run,
    /// The folder of the cell.
    folder: PathBuf,
    links: PathBuf,
    pool: Pool,
    daemon: Option<Daemon>,
    /// What ends the daemon that there is.
    killer: Arc<Mutex<Option<Killer>>>,
    commits: u64,
    /// The object that the file is.
    object: Option<u64>,
    /// The path of the file in its folder.
    file: &'static str,
}

impl Zfs {
    pub(crate) fn make(run: &Run, members: &mut Members, file: &'static str) -> Result<Self> {
        let (links, mountpoint) = (members.folder.join("links"), members.folder.join("mount"));
        members.stack.create_tree(&links)?;
        members.stack.create_directory(&mountpoint)?;
        let pool = Pool::on(&members.files, &links, &mountpoint)?;
        let (run, folder) = (run.clone(), members.folder.clone());
        let (daemon, killer) = (None, Arc::default());
        let mut zfs = Self { run, folder, links, pool, daemon, killer, commits: 0, object: None, file };
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let options = PoolOptions {
            pool: words(&["ashift=12", "failmode=continue"]),
            file_system: words(&["atime=off", "recordsize=4K", "compression=off", "primarycache=metadata"]),
        };
        zfs.start()?;
        zfs.pool.create(zfs.daemon()?, &options)?;
        zfs.unmount()?;
        Ok(zfs)
    }

    /// Starts the daemon.
    fn start(&mut self) -> Result<()> {
        self.end();
        let options =
            DaemonOptions { folder: &self.folder, cache_mib: 16, reads_ahead: false, xattrs: false };
        let daemon = Daemon::start(&options, &self.run, &Cancel::new())?;
        *self.killer.lock() = Some(daemon.killer());
        self.daemon = Some(daemon);
        Ok(())
    }

    fn daemon(&self) -> Result<&Daemon> {
        self.daemon.as_ref().ok_or_else(|| Error::new(ErrorKind::Internal, "zfs-fuse is not running"))
    }

    /// Ends the daemon as it is.
    fn end(&mut self) {
        *self.killer.lock() = None;
        self.daemon = None;
    }

    fn object(&self) -> Option<u64> {
        self.folder().join(self.file).metadata().ok().map(|about| about.ino()).or(self.object)
    }
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
        self.pool.import(self.daemon()?)?;
        self.object = self.object();
        Ok(())
    }

    fn folder(&self) -> PathBuf {
        let mountpoint = self.pool.mountpoint();
        self.daemon.as_ref().map_or_else(|| mountpoint.to_owned(), |daemon| daemon.seen(mountpoint))
    }

    /// The pool keeps no data in memory, and the kernel none of it.
    fn open_to_read(&self, path: &Path) -> std::io::Result<File> {
        File::open(path)
    }

    fn commit(&mut self) -> Result<()> {
        self.commits += 1;
        self.object = self.object();
        self.pool.commit(self.daemon()?, self.commits)
    }

    fn unmount(&mut self) -> Result<()> {
        let exported = self.daemon.as_ref().map_or(Ok(()), |daemon| self.pool.export(daemon));
        self.end();
        exported
    }

    fn scrub(&mut self) -> Result<u64> {
        self.pool.scrub(self.daemon()?).map(|status| status.errors())
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
                let said = self.daemon()?.command("zdb", &["-e", "-p", &links, "-dddddd", POOL, &object]);
                self.end();
                Ok(indirect_blocks(&said?))
            }
            _ => Ok(Vec::new()),
        }
    }

    fn kill(&mut self) -> Box<dyn Fn() + Send> {
        let killer = Arc::clone(&self.killer);
        Box::new(move || {
            if let Some(killer) = &*killer.lock() {
                killer.kill();
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indirect_blocks_are_found() {
        let said = "Indirect blocks:\n               0 L1  0:4c000:1000 0:90000:1000 4000L/1000P F=64 B=7/7\n\
                    \x20              0  L0 0:c000:1000 1000L/1000P F=1 B=7/7\n";
        assert_eq!(indirect_blocks(said), [FIRST_BLOCK + 0x4c000, FIRST_BLOCK + 0x90000]);
    }
}
