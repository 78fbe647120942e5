//! What rules on memory act on: the memory of a machine, of the process that is the file system, or of the processes of a command.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path};

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_inject::{MappingKind, Memory, Needles, PAGE_BYTES, PageKind, Region};
use rotproof_subject::GuestMemory;

use super::processes::{Process, Processes};

/// Whose memory it is.
#[derive(Clone, Debug)]
pub(in crate::runner) enum Owner {
    /// A machine's.
    Machine(GuestMemory),
    /// That of whatever a command has started, or of the process that is the file system.
    Processes(Processes),
}

impl Owner {
    /// What can be looked at now: one machine, or some processes.
    pub(super) fn views(&self) -> Result<Vec<View<'_>>> {
        match self {
            Self::Machine(memory) => Ok(vec![View::Machine(memory)]),
            Self::Processes(processes) => Ok(processes.now()?.into_iter().map(View::Process).collect()),
        }
    }
}

/// One memory, at one look.
#[derive(Debug)]
pub(super) enum View<'a> {
    Machine(&'a GuestMemory),
    Process(Process<'a>),
}

impl View<'_> {
    pub(super) fn bytes(&self) -> &dyn Memory {
        match self {
            Self::Machine(memory) => &**memory.bytes(),
            Self::Process(process) => &process.memory,
        }
    }

    /// The parts that hold something.
    pub(super) fn regions(&self) -> Result<Vec<Region>> {
        match self {
            Self::Machine(memory) => memory.bytes().regions(),
            Self::Process(process) => Ok(process.regions.clone()),
        }
    }

    /// The number of the process, 0 for a machine.
    pub(super) fn pid(&self) -> u32 {
        match self {
            Self::Machine(_) => 0,
            Self::Process(process) => process.pid,
        }
    }

    /// The name of the process, if it is one.
    pub(super) fn process(&self) -> Option<&str> {
        match self {
            Self::Machine(_) => None,
            Self::Process(process) => Some(&process.name),
        }
    }

    /// The word for what the page at `address` is used for; `None` where nobody says.
    pub(super) fn kind(&self, address: u64) -> Result<Option<&'static str>> {
        match self {
            Self::Machine(memory) => {
                let kinds = memory.kinds(address / PAGE_BYTES as u64, 1)?;
                Ok(kinds.first().copied().flatten().map(PageKind::word))
            }
            Self::Process(process) => {
                let region = process.regions.iter().find(|region| region.range.contains(&address));
                Ok(region.and_then(|region| region.kind).map(MappingKind::word))
            }
        }
    }

    /// Whether something of that kind is in use, where the kind says it.
    pub(super) fn is_living(&self, kind: &str) -> Option<bool> {
        match (self, kind) {
            (Self::Machine(_), "page_cache" | "dirty") => Some(true),
            (Self::Machine(_), "free") => Some(false),
            _ => None,
        }
    }

    /// Whether it is the process that is the file system of the load.
    pub(super) fn is_file_system(&self) -> bool {
        matches!(self, Self::Process(process) if process.is_file_system)
    }

    /// What block `block` of a file reads as now, through a process that is its file system; `None` where it is none, or cannot be read.
    pub(super) fn block_now(&self, file: &str, block: u64) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Process(process) if process.is_file_system => block_of(process.folder, file, block),
            _ => Ok(None),
        }
    }

    /// Addresses of what a process holds of block `block` of a file, as that reads now; at any alignment. None of a machine,
    /// whose kernel is asked instead.
    pub(super) fn copies_of_block(&self, file: &str, block: u64) -> Result<Vec<u64>> {
        let Self::Process(process) = self else { return Ok(Vec::new()) };
        let Some(bytes) = block_of(process.folder, file, block)? else { return Ok(Vec::new()) };
        let needles = match Needles::new(&[&bytes]) {
            Ok(needles) => needles,
            // One byte throughout: memory is full of those.
            Err(error) if error.kind() == ErrorKind::Invalid => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for region in &process.regions {
            process.memory.find(&region.range, &needles, &mut |_, address| found.push(address))?;
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// A block of 4096 bytes of a file below `folder`; `None` if there is no such block, or it cannot be read.
fn block_of(folder: &Path, file: &str, block: u64) -> Result<Option<Vec<u8>>> {
    if !Path::new(file).components().all(|part| matches!(part, Component::Normal(_))) {
        let context = format!("{file:?} names no file in the folder of the load");
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    let mut bytes = vec![0; PAGE_BYTES];
    let read = File::open(folder.join(file))
        .and_then(|file| file.read_exact_at(&mut bytes, block.saturating_mul(PAGE_BYTES as u64)));
    Ok(read.ok().map(|()| bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_that_of_a_file_in_the_folder_and_of_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a"), [vec![1; 4096], vec![2; 4096], vec![3; 10]].concat())
            .expect("written");
        let of = |file: &str, block| block_of(folder.path(), file, block);
        assert_eq!(of("a", 1).expect("read"), Some(vec![2; 4096]));
        assert_eq!(of("a", 2).expect("read"), None, "not whole");
        assert_eq!(of("b", 0).expect("read"), None);
        for outside in ["../a", "/etc/passwd", "x/../../a"] {
            assert_eq!(of(outside, 0).expect_err(outside).kind(), ErrorKind::Invalid);
        }
    }
}
