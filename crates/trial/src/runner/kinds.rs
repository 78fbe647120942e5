//! Places the rules that go by what a block is: reads the file system of the subject before a phase, and tells the engine
//! where blocks of these kinds lie. It relies on offsets of the file system being offsets where the faults act, which the
//! check of the trial has made sure of.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use rotproof_block::error::IoContext;
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Buffer, Context, Device, Error, ErrorKind, Phase, Queue, Request, Result, Runtime};
use rotproof_fault::{KindCopies, Rule, Sites, Target};
use rotproof_kinds::{Kind, Map, Plain, ReadOptions, Source, beyond, read};
use rotproof_subject::Prepared;

/// `_IOWR('X', 119, int)` and `_IOWR('X', 120, int)`: a file system that is frozen has everything on its device.
const FIFREEZE: libc::Ioctl = 0xc004_5877_u32 as libc::Ioctl;
const FITHAW: libc::Ioctl = 0xc004_5878_u32 as libc::Ioctl;
/// The number of the tree of files of a btrfs without subvolumes. That of the first file system of ZFS goes without saying.
const FILES_OF_BTRFS: u64 = 5;

/// Tells `sites` where the blocks lie that `rules`, as far as they are enabled in `phase`, mean by their kind. `device` is
/// what the file system in `folder` lies on. A rule that knows its places already keeps them. Gives what could not be
/// recognised, if anything, for the notes of the run.
pub(super) fn place_kinds(
    sites: &Sites,
    rules: &[Rule],
    phase: Phase,
    (device, folder): (&dyn Device, &Path),
    subject: &dyn Prepared,
) -> Result<Option<String>> {
    let is_enabled = |rule: &Rule| rule.during.iter().any(|enabled| Phase::from(*enabled) == phase);
    let by_kind: Vec<(usize, &Rule)> = rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| matches!(rule.matching.target, Some(Target::Type { .. })) && is_enabled(rule))
        .collect();
    if by_kind.is_empty() {
        return Ok(None);
    }
    let map = match map_of(device, folder, subject) {
        Ok(map) => map,
        // The check finds out for itself what is lost; the faults then meet nothing.
        Err(_) if phase == Phase::Check => {
            return Ok(Some(
                "the kinds of blocks could not be read before the check; faults by kind met nothing in it"
                    .to_owned(),
            ));
        }
        Err(error) => return Err(error.while_doing("looking for the blocks that faults mean by their kind")),
    };
    for (index, rule) in by_kind {
        let Some(Target::Type { kind, copies, file }) = &rule.matching.target else { continue };
        let name = rule.name_or_default(index);
        let inode = match file {
            Some(file) => match std::fs::metadata(folder.join(file)) {
                Ok(about) => Some(about.ino()),
                Err(_) if phase == Phase::Check => continue,
                Err(error) => return Err(Error::from_io(error, format!("placing the fault `{name}`"))),
            },
            None => None,
        };
        let ranges = ranges(&map, kind, *copies, inode);
        if ranges.is_empty() {
            let whose = file.as_ref().map_or_else(String::new, |file| format!(" of the file {file}"));
            let what = format!(
                "the fault `{name}` means {kind}{whose}, and {} has none when it begins to act; `rotproof map` shows \
                 the kinds of a file system",
                map.file_system.name()
            );
            return Err(Error::new(ErrorKind::Missing, what));
        }
        sites.set_places(&name, &ranges)?;
    }
    let unknown = map.totals().get(&Kind::Plain(Plain::Unknown)).map_or(0, |total| total.bytes);
    Ok((unknown > 0 || map.damages_count > 0).then(|| {
        format!(
            "{unknown} bytes of the device are in use by what could not be recognised, and {} places are damaged; no fault \
             goes there by kind",
            map.damages_count
        )
    }))
}

/// The stretches of the device that a rule means.
fn ranges(map: &Map, word: &str, copies: KindCopies, inode: Option<u64>) -> Vec<Range<u64>> {
    let is_meant = |extent: &&rotproof_kinds::Extent| {
        extent.kind.is_meant_by(word)
            && (copies == KindCopies::All || extent.copy == 0)
            && inode.is_none_or(|inode| {
                extent.owner.inode == Some(inode)
                    && extent.owner.tree.is_none_or(|tree| tree == FILES_OF_BTRFS)
            })
    };
    map.extents().iter().filter(is_meant).map(|extent| extent.start..extent.end).collect()
}

fn map_of(device: &dyn Device, folder: &Path, subject: &dyn Prepared) -> Result<Map> {
    // A program cannot be frozen. With everything written it has nothing to write, as long as nobody uses it.
    let frozen = match subject.process() {
        Some(_) => subject.sync().map(|()| None)?,
        None => Some(Frozen::new(folder)?),
    };
    let map = read_map(device, ReadOptions::default());
    drop(frozen);
    map
}

/// What every block of a device is that nobody uses, with the paths of files.
pub(super) fn map_of_device(device: &dyn Device) -> Result<Map> {
    read_map(device, ReadOptions { names: true })
}

fn read_map(device: &dyn Device, options: ReadOptions) -> Result<Map> {
    let runtime = Runtime::uring(RuntimeOptions::new(0))?;
    let source = StackSource { queue: device.open_queue(&runtime)?, runtime, size: device.info().size };
    let map = read(&source, options);
    source.runtime.abandon_tasks();
    map
}

/// A file system that writes nothing for as long as this lives.
struct Frozen(File);

impl Frozen {
    fn new(folder: &Path) -> Result<Self> {
        let doing = || format!("freezing the file system in {}", folder.display());
        let root = File::open(folder).doing(doing)?;
        // SAFETY: takes an open descriptor; the argument is ignored.
        match unsafe { libc::ioctl(root.as_raw_fd(), FIFREEZE, 0) } {
            0 => Ok(Self(root)),
            _ => Err(std::io::Error::last_os_error()).doing(doing),
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::ioctl(self.0.as_raw_fd(), FITHAW, 0) };
    }
}

/// The device of a trial, read past every cache of the kernel and with the faults disabled.
struct StackSource {
    queue: Rc<dyn Queue>,
    runtime: Runtime,
    size: u64,
}

/// What every device takes.
const ALIGNMENT: u64 = 4096;

impl Source for StackSource {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(into.len() as u64).filter(|&end| end <= self.size);
        let end = end.ok_or_else(|| beyond(offset, into.len(), self.size))?;
        let start = offset - offset % ALIGNMENT;
        let length = end.next_multiple_of(ALIGNMENT).min(self.size) - start;
        let context = Context { phase: Phase::Setup, submitted: self.runtime.now(), ..Context::default() };
        let request = Request::read(start, Buffer::zeroed(length as usize), context);
        let completion = self.runtime.block_on(self.queue.submit(request))?;
        completion.result?;
        let from = (offset - start) as usize;
        into.copy_from_slice(&completion.buffer[from..from + into.len()]);
        Ok(())
    }
}
