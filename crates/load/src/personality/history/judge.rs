//! What a file may be after a crash: what was durable, and whatever had begun since.
//!
//! A file that an fsync has made durable is there, at least as long, with its bytes. What was appended later may be there or not, sector by
//! sector: a sector of it holds what was written there, or zeros, or ends in zeros where some append ended. A file that was never made
//! durable may be missing, or of any length that it ever had. Bytes of another file, of another version or of nobody are never legal where
//! the file system promises that a new block shows only what its file had there.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, ErrorKind as IoKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rotproof_block::Result;
use rotproof_block::error::IoContext;

use super::super::data::{Whose, classify, fill, padded};
use super::{Change, DELETION_MARK, DURABLE_MARK, FileHistory, Inner};
use crate::BLOCK_BYTES;
use crate::content::SECTOR_BYTES;
use crate::failure::Classification;

/// So many findings of one state are told.
const FINDINGS_MAX: usize = 8;
const SECTOR: u64 = SECTOR_BYTES as u64;
/// What this machine says when it has no room, which says nothing of the file.
const OF_MACHINE: [i32; 4] = [libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::EAGAIN];

/// Something that a crash may not have left so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLoss {
    /// What it is, in a word.
    pub kind: &'static str,
    /// Which file, what was expected and what was found.
    pub words: String,
}

/// What the file system promises beyond POSIX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The fsync of a new file makes its name durable.
    pub names: bool,
    /// Changes of names survive in their order: what a name stood for before an fsync gave it to another file does not come back, also once
    /// that file is deleted.
    pub names_in_order: bool,
    /// A block that a file has got since it was made durable shows what the file had there, or zeros.
    pub own_data: bool,
}

/// A file as it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    version: u32,
    /// Bytes that are durable.
    durable: u64,
    /// Where appends ended, in order; the file may end anywhere up to the last.
    ends: Vec<u64>,
}

/// All that a file may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Legal {
    may_be_missing: bool,
    candidates: Vec<Candidate>,
}

/// How far the load had come, by its marks.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    durable: u64,
    deletions: u64,
}

impl Reached {
    fn of<'a>(marks: impl Iterator<Item = &'a str>) -> Self {
        let mut reached = Self::default();
        let number = |rest: &str| rest.split([',', ' ']).next().and_then(|word| word.parse::<u64>().ok());
        for mark in marks {
            if let Some(number) = mark.strip_prefix(DURABLE_MARK).and_then(number) {
                reached.durable = reached.durable.max(number);
            } else if let Some(number) = mark.strip_prefix(DELETION_MARK).and_then(number) {
                reached.deletions = reached.deletions.max(number);
            }
        }
        reached
    }
}

fn legal(changes: &[Change], reached: Reached, kept: Kept) -> Legal {
    let mut legal = Legal { may_be_missing: true, candidates: Vec::new() };
    // What the name stood for since everything was durable, before an fsync gave it to another.
    let mut older: Vec<Candidate> = Vec::new();
    for change in changes {
        match *change {
            Change::Made { version } => {
                legal.candidates.push(Candidate { version, durable: 0, ends: Vec::new() });
            }
            Change::Grown { end } => {
                legal.candidates.extend_last(end);
            }
            // The thread that changes the file comes to nothing behind it before that is marked.
            Change::Deleted { number } if number > reached.deletions => break,
            Change::Durable { number, .. } | Change::Gone { number } if number > reached.durable => break,
            Change::Deleted { .. } => {
                legal.may_be_missing = true;
                legal.candidates.splice(..0, older.drain(..));
            }
            Change::Durable { version, bytes, is_all, .. } => {
                let is_it = |candidate: &Candidate| candidate.version == version;
                let mut ends = legal
                    .candidates
                    .iter()
                    .rfind(|one| is_it(one))
                    .map_or(Vec::new(), |one| one.ends.clone());
                ends.push(bytes);
                if kept.names {
                    legal.may_be_missing = false;
                    let dropped = std::mem::take(&mut legal.candidates);
                    if is_all {
                        older.clear();
                    } else if !kept.names_in_order {
                        older.extend(dropped.into_iter().filter(|candidate| !is_it(candidate)));
                    }
                } else {
                    legal.candidates.retain(|candidate| !is_it(candidate));
                }
                legal.candidates.push(Candidate { version, durable: bytes, ends });
            }
            Change::Gone { .. } => {
                legal = Legal { may_be_missing: true, candidates: Vec::new() };
                older.clear();
            }
        }
    }
    legal
}

trait ExtendLast {
    fn extend_last(&mut self, end: u64);
}

impl ExtendLast for Vec<Candidate> {
    fn extend_last(&mut self, end: u64) {
        if let Some(last) = self.last_mut() {
            last.ends.push(end);
        }
    }
}

impl FileHistory {
    /// What is wrong with the files in `folder` after a crash before which these marks had been set. Fails where this machine cannot
    /// look, which says nothing of the files.
    pub fn look<'a>(
        &self,
        folder: &Path,
        marks: impl Iterator<Item = &'a str>,
        kept: Kept,
    ) -> Result<Vec<FileLoss>> {
        let reached = Reached::of(marks);
        let inner = self.inner.lock();
        let mut losses = Vec::new();
        for file in 0..self.plan.figures().files {
            let changes = inner.changes.get(&file).map_or(&[][..], Vec::as_slice);
            losses.extend(self.look_at(folder, file, &legal(changes, reached, kept), kept)?);
        }
        self.look_around(folder, &inner, reached, &mut losses)?;
        let more = losses.len().saturating_sub(FINDINGS_MAX);
        losses.truncate(FINDINGS_MAX);
        if more > 0 {
            losses.push(FileLoss { kind: losses[0].kind, words: format!("and {more} more") });
        }
        Ok(losses)
    }

    fn look_at(&self, folder: &Path, file: u32, legal: &Legal, kept: Kept) -> Result<Option<FileLoss>> {
        let name = self.plan.path(file);
        let loss = |kind, words: String| Ok(Some(FileLoss { kind, words: format!("{name} {words}") }));
        let bytes = match File::open(folder.join(&name)).and_then(|file| read(&file)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == IoKind::NotFound && legal.may_be_missing => return Ok(None),
            Err(error) if error.kind() == IoKind::NotFound => {
                return loss("lost file", "is not there, and an fsync of it had returned".to_owned());
            }
            Err(error) if is_of_machine(&error) => return Err(error).doing(|| format!("reading {name}")),
            Err(error) => return loss("unreadable", format!("cannot be read: {error}")),
        };
        if legal.candidates.is_empty() {
            return loss("undeleted", format!("is there with {} bytes, and may not be", bytes.len()));
        }
        if self.plan.kind.slot_bytes().is_some() {
            return Ok(None);
        }
        let mut reasons = Vec::new();
        for candidate in legal.candidates.iter().rev() {
            match self.unlike(file, candidate, &bytes, kept) {
                None => return Ok(None),
                Some(why) => reasons.push((candidate.version, why)),
            }
        }
        let (_, (kind, _)) = reasons[0];
        let why: Vec<String> =
            reasons.into_iter().map(|(version, (_, why))| format!("as version {version} {why}")).collect();
        loss(kind, why.join("; "))
    }

    /// Why these bytes cannot be this version of a file, if so.
    fn unlike(
        &self,
        file: u32,
        candidate: &Candidate,
        bytes: &[u8],
        kept: Kept,
    ) -> Option<(&'static str, String)> {
        let Candidate { version, durable, ends } = candidate;
        let (size, end) = (bytes.len() as u64, ends.iter().copied().max().unwrap_or(0));
        if size < *durable {
            return Some(("lost", format!("it ends at {size}, and {durable} bytes of it were durable")));
        }
        if size > end {
            return Some(("content", format!("it ends at {size}, and was never longer than {end}")));
        }
        let mut truth = vec![0; bytes.len()];
        fill(&self.plan.content, file, *version, 0, &mut truth);
        let sectors =
            (0..).step_by(SECTOR_BYTES).zip(bytes.chunks(SECTOR_BYTES).zip(truth.chunks(SECTOR_BYTES)));
        for (start, (found, wanted)) in sectors {
            let start: u64 = start;
            if found == wanted {
                continue;
            }
            // So much of it is durable.
            let sure = (durable.saturating_sub(start)).min(found.len() as u64) as usize;
            if found[..sure] == wanted[..sure]
                && (!kept.own_data || is_shorter(found, wanted, start, sure, ends))
            {
                continue;
            }
            let what = self.named((file, *version), start, (&truth, bytes));
            let kind = if found[..sure] == wanted[..sure] { "content" } else { "lost" };
            let durability = if sure > 0 { "durable" } else { "not durable yet" };
            return Some((kind, format!("it holds at {start} ({durability}) {what}")));
        }
        None
    }

    /// What lies around `start`, in words.
    fn named(&self, (file, version): (u32, u32), start: u64, (truth, bytes): (&[u8], &[u8])) -> String {
        let block = start / BLOCK_BYTES as u64;
        let from = (block as usize) * BLOCK_BYTES;
        let to = (from + BLOCK_BYTES).min(bytes.len());
        let whose = Whose { file, block, version };
        let covered = 0..to - from;
        let truths = [padded(0, &truth[from..to])];
        match classify(&self.plan, whose, &truths, &padded(0, &bytes[from..to]), covered) {
            Classification::Misdirected(what) => match what.places.first() {
                Some(place) => format!("what belongs to {} block {}", place.object, place.block),
                None => "what belongs to no file".to_owned(),
            },
            Classification::Stale(stale) => format!("what version {} of it had there", stale.write),
            other => other.kind().replace('_', " "),
        }
    }

    /// Directories that must be there, and names that nobody made.
    fn look_around(
        &self,
        folder: &Path,
        inner: &Inner,
        reached: Reached,
        losses: &mut Vec<FileLoss>,
    ) -> Result<()> {
        let directories = self.plan.directories();
        let is_durable = inner.first_sync.is_some_and(|first| first <= reached.durable);
        for directory in directories.iter().filter(|_| is_durable) {
            match folder.join(directory).symlink_metadata() {
                Ok(metadata) if metadata.is_dir() => {}
                Err(error) if is_of_machine(&error) => {
                    return Err(error).doing(|| format!("looking at {directory}"));
                }
                _ => losses.push(FileLoss {
                    kind: "lost name",
                    words: format!("the directory {directory} is not there"),
                }),
            }
        }
        let log = folder.join(self.plan.path(self.plan.log()));
        if is_durable && self.plan.kind.has_log() && log.symlink_metadata().is_err() {
            losses.push(FileLoss { kind: "lost file", words: "the log is not there".to_owned() });
        }
        let mut known: HashSet<String> = directories.into_iter().collect();
        known.extend((0..self.plan.names()).map(|file| self.plan.path(file)));
        known.extend((0..self.plan.figures().files).map(|file| self.plan.directory_path(file)));
        let mut folders = vec![String::new()];
        while let Some(below) = folders.pop() {
            let entries = match std::fs::read_dir(folder.join(&below))
                .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            {
                Ok(entries) => entries,
                // Before the first directory was durable.
                Err(error) if error.kind() == IoKind::NotFound && !is_durable && !below.is_empty() => {
                    continue;
                }
                Err(error) if is_of_machine(&error) => {
                    return Err(error).doing(|| format!("listing {}", folder.display()));
                }
                Err(error) => {
                    losses.push(FileLoss {
                        kind: "unreadable",
                        words: format!("the directory {below:?} cannot be listed: {error}"),
                    });
                    continue;
                }
            };
            for entry in entries {
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = if below.is_empty() { name } else { format!("{below}/{name}") };
                if !known.contains(&path) {
                    let words = format!("{path} is there, and was not at any time");
                    losses.push(FileLoss { kind: "stray name", words });
                } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(path);
                }
            }
        }
        Ok(())
    }
}

/// Whether a sector beyond what is durable is one that the file had there once: what was written up to the end of some append, and zeros.
fn is_shorter(found: &[u8], wanted: &[u8], start: u64, sure: usize, ends: &[u64]) -> bool {
    let zeros_from = |at: usize| found[at..].iter().all(|&byte| byte == 0);
    let same = found.iter().zip(wanted).take_while(|(found, wanted)| found == wanted).count();
    // Nothing of it has come, unless some of it is durable.
    if sure == 0 && zeros_from(0) {
        return true;
    }
    let is_in = |end: &&u64| **end > start && **end < start + SECTOR;
    ends.iter().filter(is_in).any(|end| {
        let cut = (end - start) as usize;
        sure <= cut && cut <= same && zeros_from(cut)
    })
}

/// The whole file, at once.
fn read(file: &File) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    if size > super::super::FILE_BYTES_MAX {
        let what = format!("it claims to have {size} bytes, and no file of the load can");
        return Err(io::Error::new(IoKind::InvalidData, what));
    }
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn is_of_machine(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|errno| OF_MACHINE.contains(&errno))
}
