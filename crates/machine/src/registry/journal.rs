//! The file that records one run: JSON, a line each, durable before what it announces is done.
//!
//! The first line says who the run is; then `create` announces a resource before it is made, `created` says which
//! file it became, and `gone` that it has been removed. A last line without its end was cut off by a kill, before
//! what it announces could happen, and is passed over. While the run lives it holds a lock (`flock`) on the file, so
//! that the kernel itself says whether somebody still owns what is in it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kind::{FileIdentity, Kind, Resource, of_word};
use crate::process::ProcessIdentity;

/// Version of the format; a `clean` of another version leaves the file alone.
const FORMAT: u32 = 1;

/// How the name of a journal ends.
pub(super) const EXTENSION: &str = "jsonl";

/// Who a run is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    format: u32,
    /// The run's id.
    pub(super) run: String,
    /// The process that owns the run.
    pub(super) process: ProcessIdentity,
    /// The boot of the machine it lives in.
    pub(super) boot_id: String,
}

impl Header {
    pub(super) fn new(run: String, process: ProcessIdentity, boot_id: String) -> Self {
        Self { format: FORMAT, run, process, boot_id }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line {
    Run(Header),
    /// About to be made.
    Create {
        id: u64,
        /// The word of its kind, and what that says of it.
        resource: BTreeMap<String, Value>,
    },
    /// Made; for files and folders, which one it is.
    Created {
        id: u64,
        identity: FileIdentity,
    },
    /// Removed, or never made after all.
    Gone {
        id: u64,
    },
    /// The owner has let go in an orderly way and left the rest to `clean`.
    Ended,
}

impl Line {
    /// That `resource` is about to be made.
    pub(super) fn create(id: u64, resource: &dyn Resource) -> Result<Self> {
        let said = resource.recorded().map_err(|error| {
            Error::new(ErrorKind::Invalid, "a path that is no valid UTF-8 cannot be recorded")
                .caused_by(error)
        })?;
        Ok(Self::Create { id, resource: BTreeMap::from([(resource.kind().word.to_owned(), said)]) })
    }
}

/// A resource that may be there, and which file it is if that is known.
#[derive(Clone, Debug)]
pub(super) struct Outstanding {
    pub(super) resource: Arc<dyn Resource>,
    pub(super) identity: Option<FileIdentity>,
}

/// What a journal says.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) header: Header,
    /// Not yet gone, by number, which is the order of creation.
    pub(super) outstanding: BTreeMap<u64, Outstanding>,
    pub(super) ended: bool,
}

/// An open, locked journal.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// A new one for the run that `header` names, locked. The caller holds the folder's lock, so that no `clean` can
    /// see the file before it is locked.
    pub(super) fn create(folder: &Path, header: Header) -> Result<Self> {
        let path = folder.join(format!("{}.{EXTENSION}", header.run));
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .doing(|| format!("creating {}", path.display()))?;
        let journal = Self { file, path };
        let begun = journal.file.lock().doing(|| format!("locking {}", journal.path.display()));
        match begun.and_then(|()| journal.append(&Line::Run(header))).and_then(|()| sync_folder(folder)) {
            Ok(()) => Ok(journal),
            Err(error) => {
                // There is nothing on record yet. If even that fails, `clean` removes it.
                let _ = journal.remove();
                Err(error)
            }
        }
    }

    /// The journal at `path` if nobody holds it; `None` if somebody does, or if it has gone meanwhile.
    pub(super) fn try_open(path: &Path) -> Result<Option<Self>> {
        let doing = || format!("opening {}", path.display());
        let file = match OpenOptions::new().read(true).append(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).doing(doing),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error).doing(doing),
        }
        // Whoever held the lock before us may have removed the name in the meantime.
        let links = file.metadata().doing(doing)?.nlink();
        Ok((links > 0).then(|| Self { file, path: path.to_owned() }))
    }

    /// Adds a line and makes it durable.
    pub(super) fn append(&self, line: &Line) -> Result<()> {
        let doing = || format!("writing {}", self.path.display());
        let mut text = serde_json::to_vec(line).map_err(|error| {
            Error::new(ErrorKind::Internal, "writing a line of the record").caused_by(error)
        })?;
        text.push(b'\n');
        // One write, so that a kill leaves all of the line or a line without its end.
        (&self.file).write_all(&text).doing(doing)?;
        self.file.sync_data().doing(doing)
    }

    /// Removes the file; the lock is held until the journal is dropped.
    pub(super) fn remove(&self) -> Result<()> {
        match std::fs::remove_file(&self.path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error).doing(|| format!("removing {}", self.path.display())),
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A program that is just being started has our descriptors until it is itself; closing ours would leave it
        // the lock for that moment. Nothing can be done if this fails, and closing is next.
        let _ = self.file.unlock();
    }
}

/// What the journal at `path` says of resources of these kinds and the machine's own; `None` if it was cut off before its first line was whole, when nothing had been
/// created yet. Reading needs no lock.
pub(super) fn read(path: &Path, kinds: &[&'static Kind]) -> Result<Option<Content>> {
    let bytes = std::fs::read(path).doing(|| format!("reading {}", path.display()))?;
    parse(&bytes, kinds).map_err(|error| error.while_doing(path.display()))
}

fn parse(bytes: &[u8], kinds: &[&'static Kind]) -> Result<Option<Content>> {
    let Some(end) = bytes.iter().rposition(|&byte| byte == b'\n') else { return Ok(None) };
    let mut content: Option<Content> = None;
    for (index, text) in bytes[..end].split(|&byte| byte == b'\n').enumerate() {
        let wrong = || {
            Error::new(
                ErrorKind::Invalid,
                format!(
                    "line {} is not what this version of Rotproof writes; nothing of this run is touched",
                    index + 1
                ),
            )
        };
        let line: Line = serde_json::from_slice(text).map_err(|error| wrong().caused_by(error))?;
        match (line, &mut content) {
            (Line::Run(header), None) if header.format == FORMAT => {
                content = Some(Content { header, outstanding: BTreeMap::new(), ended: false });
            }
            (Line::Create { id, resource }, Some(content)) => {
                let mut said = resource.into_iter();
                let (Some((word, said)), None) = (said.next(), said.next()) else { return Err(wrong()) };
                let kind = of_word(&word, kinds).ok_or_else(|| unknown(index + 1, &word))?;
                let resource = (kind.read)(said).map_err(|error| wrong().caused_by(error))?;
                content.outstanding.insert(id, Outstanding { resource, identity: None });
            }
            (Line::Created { id, identity }, Some(content)) => {
                content.outstanding.get_mut(&id).ok_or_else(wrong)?.identity = Some(identity);
            }
            (Line::Gone { id }, Some(content)) => {
                content.outstanding.remove(&id).ok_or_else(wrong)?;
            }
            (Line::Ended, Some(content)) => content.ended = true,
            _ => return Err(wrong()),
        }
    }
    Ok(content)
}

fn unknown(line: usize, word: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "line {line} is of a `{word}`, which this version of Rotproof does not know; clean with the version that left \
             it; nothing of this run is touched"
        ),
    )
}

fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).doing(|| format!("syncing {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Directory;

    fn header() -> Header {
        Header::new("run-1".into(), ProcessIdentity::current().expect("proc is mounted"), "boot".into())
    }

    fn create(id: u64, path: &str) -> Line {
        Line::create(id, &Directory { path: path.into() }).expect("UTF-8")
    }

    #[test]
    fn what_was_announced_and_is_not_gone_is_outstanding() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let journal = Journal::create(folder.path(), header()).expect("created");
        journal.append(&create(1, "/a")).expect("written");
        journal.append(&create(2, "/b")).expect("written");
        journal.append(&Line::Gone { id: 1 }).expect("written");
        let content = read(&folder.path().join("run-1.jsonl"), &[]).expect("readable").expect("has a header");
        assert_eq!(content.header, header());
        assert_eq!(content.outstanding.keys().collect::<Vec<_>>(), [&2]);
        assert!(!content.ended);
    }

    #[test]
    fn a_journal_is_held_until_it_is_dropped_and_readable_meanwhile() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("run-1.jsonl");
        let journal = Journal::create(folder.path(), header()).expect("created");
        assert!(Journal::try_open(&path).expect("asked").is_none(), "held");
        assert!(read(&path, &[]).expect("readable").is_some());
        drop(journal);
        let reopened = Journal::try_open(&path).expect("asked").expect("free");
        reopened.remove().expect("removed");
        reopened.remove().expect("removing twice is no error");
        assert!(Journal::try_open(&path).expect("asked").is_none(), "gone");
    }

    #[test]
    fn a_line_without_its_end_is_passed_over_at_every_length() {
        let mut whole = Vec::new();
        for line in [Line::Run(header()), create(1, "/a")] {
            whole.extend(serde_json::to_vec(&line).expect("serialises"));
            whole.push(b'\n');
        }
        let first_line = whole.iter().position(|&byte| byte == b'\n').expect("has lines") + 1;
        for length in 0..=whole.len() {
            let content = parse(&whole[..length], &[]).expect("a cut is no error");
            assert_eq!(content.is_some(), length >= first_line, "{length}");
            let outstanding = content.map_or(0, |content| content.outstanding.len());
            assert_eq!(outstanding, usize::from(length == whole.len()), "{length}");
        }
    }

    #[test]
    fn what_another_version_wrote_is_an_error_and_not_a_guess() {
        let newer =
            serde_json::to_string(&Line::Run(Header { format: FORMAT + 1, ..header() })).expect("serialises");
        assert!(parse(format!("{newer}\n").as_bytes(), &[]).is_err());
        assert!(parse(b"{\"ended\":null}\n", &[]).is_err());
        assert!(parse(b"not JSON\n", &[]).is_err());
        let header = serde_json::to_string(&Line::Run(header())).expect("serialises");
        assert!(parse(format!("{header}\n{{\"gone\":{{\"id\":7}}}}\n").as_bytes(), &[]).is_err());
    }

    #[test]
    fn a_kind_that_nobody_brings_is_named_and_what_older_versions_left_is_read() {
        let header = serde_json::to_string(&Line::Run(header())).expect("serialises");
        let old = "{\"create\":{\"id\":1,\"resource\":{\"tree\":{\"path\":\"/t\"}}}}\n\
                   {\"create\":{\"id\":2,\"resource\":{\"process\":{\"pid\":7,\"started_ticks\":9}}}}\n";
        let content = parse(format!("{header}\n{old}").as_bytes(), &[]).expect("readable").expect("a header");
        let words: Vec<_> = content.outstanding.values().map(|found| found.resource.kind().word).collect();
        assert_eq!(words, ["tree", "process"]);
        let strange = "{\"create\":{\"id\":1,\"resource\":{\"teapot\":{}}}}\n";
        let error = parse(format!("{header}\n{strange}").as_bytes(), &[]).expect_err("nobody knows it");
        assert!(error.to_string().contains("line 2 is of a `teapot`"), "{error}");
    }
}
