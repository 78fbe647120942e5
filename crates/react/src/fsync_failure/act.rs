//! Does one cell: a fresh file system, a file with something durable in it, a change, and a write that fails below.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rotproof_block::error::IoContext;
use rotproof_block::{Device, Error, Result};
use rotproof_crash::{ImageDevice, Snapshot};
use rotproof_crash_fs::{Blank, Scene};
use rotproof_kinds::{ReadOnlyFile, ReadOptions, read};
use rotproof_machine::registry::Run;
use rotproof_subject::FileSystem;

use super::device::{DATA, FailingDevice, Harm};
use super::{Change, FailureCell, FsyncFailure, Holds, Moment, Often};

const PAGE_BYTES: usize = 4096;
/// Blocks that the file has from the beginning.
const BLOCKS: u64 = 4;
/// The block that is written again.
const MIDDLE: u64 = 1;
const FILE: &str = "file";
/// Bytes after the beginning: which version.
const OLD: u8 = 0x11;
const NEW: u8 = 0x22;

/// A device for all cells of a file system.
pub(super) struct Bench {
    kind: FileSystem,
    scene: Scene,
    image: Arc<ImageDevice>,
    device: Arc<FailingDevice>,
    before: Snapshot,
}

impl Bench {
    pub(super) fn new(run: &Run, kind: FileSystem, folder: &Path) -> Result<Self> {
        let blank = Blank::make(kind, folder)?;
        let map = read(&ReadOnlyFile::open(&blank.image, false)?, ReadOptions::default())?;
        let lies = |is_meant: &dyn Fn(&str) -> bool| -> Arc<[Range<u64>]> {
            let meant = map.extents().iter().filter(|extent| is_meant(extent.kind.word()));
            meant.map(|extent| extent.start..extent.end).collect()
        };
        let (is_log, is_super) = (
            |word: &str| word.starts_with("journal_") || word == "log",
            |word: &str| word == "journal_super",
        );
        let journal = lies(&|word| is_log(word) && !is_super(word));
        let image = blank.device()?;
        let device = FailingDevice::new(Arc::clone(&image) as Arc<dyn Device>, journal, lies(&is_super));
        let scene =
            Scene::new(run, &format!("fsync-{}", kind.name()), Arc::clone(&device) as Arc<dyn Device>, kind)?;
        let before = image.snapshot();
        Ok(Self { kind, scene, image, device, before })
    }

    /// Takes the device away.
    pub(super) fn end(self) -> Result<()> {
        self.scene.end().into_iter().next().map_or(Ok(()), Err)
    }

    pub(super) fn act(&mut self, cell: &FailureCell) -> Result<FsyncFailure> {
        self.image.show(self.before.clone());
        self.scene.forget()?;
        let mut options: Vec<String> = match self.kind {
            FileSystem::Xfs => vec!["nouuid".to_owned()],
            _ => Vec::new(),
        };
        options.extend((!cell.mode.is_empty()).then(|| cell.mode.clone()));
        self.scene.mount(&options)?;
        let acted = self.act_mounted(cell, &options);
        // Whatever has happened, the next cell finds nothing mounted.
        self.device.heal();
        let unmounted = self.scene.unmount();
        acted.and_then(|found| unmounted.map(|()| found))
    }

    fn act_mounted(&mut self, cell: &FailureCell, options: &[String]) -> Result<FsyncFailure> {
        let path = self.scene.mountpoint().join(FILE);
        let doing = || format!("making {}", path.display());
        let old = page(OLD);
        let file = File::create_new(&path).doing(doing)?;
        (0..BLOCKS).try_for_each(|block| file.write_all_at(&old, block * PAGE_BYTES as u64)).doing(doing)?;
        file.sync_all().doing(doing)?;
        drop(file);
        // Nothing of this is left to be written when the fault comes.
        self.scene.unmount()?;
        self.scene.forget()?;
        self.scene.mount(options)?;
        self.scene.kernel_words();
        let block = match cell.change {
            Change::Overwrite => MIDDLE,
            Change::Append => BLOCKS,
        };
        let file = OpenOptions::new().read(true).write(true).open(&path).doing(doing)?;
        self.device.arm(Harm { block: cell.block, is_once: cell.often == Often::Once });
        let mut met = Met { device: &self.device, failed_at: None };
        let write =
            met.after(Moment::Write, || named(file.write_all_at(&page(NEW), block * PAGE_BYTES as u64)));
        let fsync = met.after(Moment::Fsync, || named(file.sync_all()));
        let in_memory = met.after(Moment::Later, || holds(&file, block));
        let second_fsync = met.after(Moment::SecondFsync, || named(file.sync_all()));
        let close = met.after(Moment::Close, || {
            let descriptor = file.into_raw_fd();
            // SAFETY: the descriptor was ours, and is nobody's any more.
            named(match unsafe { libc::close(descriptor) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        });
        let evicted = met.after(Moment::Later, || after_eviction(&path, block));
        let still_writes =
            met.after(Moment::Later, || named(File::create_new(self.scene.mountpoint().join("other"))));
        let mut words = self.scene.kernel_words();
        let unmounted = met.after(Moment::Unmount, || self.scene.unmount());
        let failed_at = met.failed_at;
        unmounted?;
        words.extend(self.scene.kernel_words());
        self.device.heal();
        self.scene.forget()?;
        let on_disk = match self.scene.mount(options) {
            Ok(()) => match File::open(&path) {
                Ok(file) => holds(&file, block),
                Err(error) => Holds::Error(name_of(&error)),
            },
            Err(error) => Holds::Error(format!("mount: {}", short(&error))),
        };
        Ok(FsyncFailure {
            cell: cell.clone(),
            failed_at,
            write,
            fsync,
            second_fsync,
            close,
            in_memory,
            evicted,
            on_disk,
            still_writes,
            is_logged: failed_at.is_some() && !words.is_empty(),
        })
    }
}

/// Notes between which calls the first write failed.
struct Met<'a> {
    device: &'a FailingDevice,
    failed_at: Option<Moment>,
}

impl Met<'_> {
    fn after<T>(&mut self, moment: Moment, does: impl FnOnce() -> T) -> T {
        let answer = does();
        if self.failed_at.is_none() && self.device.failed() > 0 {
            self.failed_at = Some(moment);
        }
        answer
    }
}

fn page(version: u8) -> [u8; PAGE_BYTES] {
    let mut page = [version; PAGE_BYTES];
    page[..DATA.len()].copy_from_slice(&DATA);
    page
}

/// What a block of the file holds, as a reader sees it.
fn holds(file: &File, block: u64) -> Holds {
    let mut bytes = [0; PAGE_BYTES];
    match file.read_at(&mut bytes, block * PAGE_BYTES as u64) {
        Err(error) => Holds::Error(name_of(&error)),
        Ok(0) => Holds::Old,
        Ok(PAGE_BYTES) if bytes == page(NEW) => Holds::New,
        Ok(PAGE_BYTES) if bytes == page(OLD) => Holds::Old,
        Ok(PAGE_BYTES) if bytes == [0; PAGE_BYTES] => Holds::Zeros,
        Ok(_) => Holds::Other,
    }
}

/// The same once the page cache was told to let go of what is clean.
fn after_eviction(path: &Path, block: u64) -> Holds {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return Holds::Error(name_of(&error)),
    };
    // SAFETY: takes an open descriptor and numbers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    holds(&file, block)
}

fn named<T>(answer: std::io::Result<T>) -> String {
    answer.err().map_or_else(|| "ok".to_owned(), |error| name_of(&error))
}

fn name_of(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EIO) => "EIO".to_owned(),
        Some(libc::EROFS) => "EROFS".to_owned(),
        Some(libc::ENOSPC) => "ENOSPC".to_owned(),
        Some(libc::EUCLEAN) => "EUCLEAN".to_owned(),
        Some(libc::ENOENT) => "ENOENT".to_owned(),
        _ => error.to_string(),
    }
}

fn short(error: &Error) -> String {
    error.to_string().lines().next().unwrap_or_default().chars().take(80).collect()
}
