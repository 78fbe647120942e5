//! How the files of a cell are looked at: through system calls of this machine, or by what a guest said of all of them at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rotproof_guest::{Answer, Question, sum_of};

/// Bytes of a block of a file.
pub(crate) const BLOCK: usize = 4096;
pub(crate) const ATTRIBUTE: &std::ffi::CStr = c"user.rotproof";
/// After so many blocks of a file that could not be read, no more of it is.
const FAILURES_MAX: usize = 10;

/// What a file holds: its length, and of each block a sum or the error with which it could not be read; 0 if there was none, and
/// fewer bytes came than the length says.
pub(crate) struct Content {
    pub(crate) length: u64,
    pub(crate) blocks: Vec<Result<u64, i32>>,
}

/// See the head of the module. Paths are those within the file system.
pub(crate) trait Files {
    /// The names in a folder.
    fn names(&self, folder: &str) -> io::Result<BTreeSet<String>>;
    fn is_folder(&self, path: &str) -> io::Result<bool>;
    fn link(&self, path: &str) -> io::Result<String>;
    /// Of a file that is not as long as that only its length need be known.
    fn content(&self, path: &str, length: u64) -> io::Result<Content>;
    /// Length and sum of the attribute; `None` if it is said not to be there.
    fn attribute(&self, path: &str) -> io::Result<Option<(u64, u64)>>;
}

/// A file system that is mounted here.
pub(crate) struct Here<'a>(pub(crate) &'a Path);

impl Here<'_> {
    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }
}

impl Files for Here<'_> {
    fn names(&self, folder: &str) -> io::Result<BTreeSet<String>> {
        let entries = fs::read_dir(self.at(folder))?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn is_folder(&self, path: &str) -> io::Result<bool> {
        fs::metadata(self.at(path)).map(|about| about.is_dir())
    }

    fn link(&self, path: &str) -> io::Result<String> {
        fs::read_link(self.at(path)).map(|target| target.to_string_lossy().into_owned())
    }

    fn content(&self, path: &str, length: u64) -> io::Result<Content> {
        let file = File::open(self.at(path))?;
        let mut found = Content { length: file.metadata()?.len(), blocks: Vec::new() };
        if found.length != length {
            return Ok(found);
        }
        let (mut bytes, mut failures) = (vec![0; BLOCK], 0);
        for block in 0..length / BLOCK as u64 {
            found.blocks.push(match file.read_exact_at(&mut bytes, block * BLOCK as u64) {
                Ok(()) => Ok(sum_of(&bytes)),
                Err(error) => {
                    failures += 1;
                    Err(error.raw_os_error().unwrap_or(0))
                }
            });
            if failures == FAILURES_MAX {
                break;
            }
        }
        Ok(found)
    }

    fn attribute(&self, path: &str) -> io::Result<Option<(u64, u64)>> {
        let path = c_path(&self.at(path))?;
        let mut value = vec![0_u8; 1 << 16];
        // SAFETY: both texts end with zero, the kernel writes no more than there is room for, and all live across the call.
        let length = unsafe {
            libc::getxattr(path.as_ptr(), ATTRIBUTE.as_ptr(), value.as_mut_ptr().cast(), value.len())
        };
        match usize::try_from(length) {
            Ok(length) => Ok(Some((length as u64, sum_of(&value[..length])))),
            Err(_) => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ENODATA) => Ok(None),
                error => Err(error),
            },
        }
    }
}

/// A path as system calls take it.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

/// What a guest has said.
pub(crate) struct Said(BTreeMap<Question, io::Result<Answer>>);

impl Said {
    /// Of these questions, which were all that were asked.
    pub(crate) fn new(questions: Vec<Question>, answers: Vec<io::Result<Answer>>) -> Self {
        Self(questions.into_iter().zip(answers).collect())
    }

    fn answer(&self, question: &Question) -> io::Result<&Answer> {
        match self.0.get(question) {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => Err(error
                .raw_os_error()
                .map_or_else(|| io::Error::from(error.kind()), io::Error::from_raw_os_error)),
            None => Err(io::Error::other(format!("nobody asked for {question:?}"))),
        }
    }
}

/// An answer of another kind than its question; the guest's answers are held to theirs when they are taken.
fn unfit() -> io::Error {
    io::Error::other("the answer fits another question")
}

impl Files for Said {
    fn names(&self, folder: &str) -> io::Result<BTreeSet<String>> {
        match self.answer(&Question::Names(folder.to_owned()))? {
            Answer::Names(names) => Ok(names.clone()),
            _ => Err(unfit()),
        }
    }

    fn is_folder(&self, path: &str) -> io::Result<bool> {
        match self.answer(&Question::Folder(path.to_owned()))? {
            Answer::Folder(is_folder) => Ok(*is_folder),
            _ => Err(unfit()),
        }
    }

    fn link(&self, path: &str) -> io::Result<String> {
        match self.answer(&Question::Link(path.to_owned()))? {
            Answer::Link(target) => Ok(target.clone()),
            _ => Err(unfit()),
        }
    }

    fn content(&self, path: &str, _: u64) -> io::Result<Content> {
        match self.answer(&Question::Content(path.to_owned()))? {
            Answer::Content(length, blocks) => Ok(Content { length: *length, blocks: blocks.clone() }),
            _ => Err(unfit()),
        }
    }

    fn attribute(&self, path: &str) -> io::Result<Option<(u64, u64)>> {
        match self.answer(&Question::Attribute(path.to_owned())) {
            Ok(Answer::Attribute(length, sum)) => Ok(Some((*length, *sum))),
            Ok(_) => Err(unfit()),
            Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
