//! A folder that is held open: what is written into it arrives there, whatever its name comes to mean meanwhile.
//!
//! Paths below [`HeldFolder::inside`] begin at the descriptor, not at the root. Somebody who may rename the folder, or put a
//! link where it was, changes nothing about where they lead.

use std::ffi::{CString, OsStr};
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

/// A folder, open, with the name by which people know it.
#[derive(Debug)]
pub struct HeldFolder {
    file: File,
    inside: PathBuf,
    path: PathBuf,
}

impl HeldFolder {
    /// The one at `path`, which is made if need be, with those above it. Fails with [`ErrorKind::Refused`] if that is a link
    /// which neither this user nor root has made.
    pub fn open(path: &Path) -> Result<Self> {
        let doing = || format!("creating the results folder {}", path.display());
        fs::create_dir_all(path).doing(doing)?;
        let open = |flags| OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | flags).open(path);
        let file = match open(libc::O_NOFOLLOW) {
            Ok(file) => file,
            Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR)) => {
                let owner = path.symlink_metadata().doing(doing)?.uid();
                if owner != 0 && owner != user_id() {
                    return Err(Error::new(
                        ErrorKind::Refused,
                        format!(
                            "the results folder {} is a link made by another user (number {owner}); name the folder itself",
                            path.display()
                        ),
                    ));
                }
                open(0).doing(doing)?
            }
            Err(error) => return Err(error).doing(doing),
        };
        Ok(Self::of(file, path.to_owned()))
    }

    fn of(file: File, path: PathBuf) -> Self {
        let inside = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Self { file, inside, path }
    }

    /// A new folder in this one that no other user may enter. None if there is something of that name. Fails with
    /// [`ErrorKind::Refused`] if another user has put something else in its place before it was open.
    pub fn create(&self, name: &OsStr) -> Result<Option<Self>> {
        let doing = || format!("creating a folder for the results in {}", self.path.display());
        let c_name = c_name(name)?;
        // SAFETY: a descriptor that is open and a string that ends with zero, both alive across the call.
        if unsafe { libc::mkdirat(self.file.as_raw_fd(), c_name.as_ptr(), 0o700) } != 0 {
            let error = std::io::Error::last_os_error();
            return match error.kind() {
                std::io::ErrorKind::AlreadyExists => Ok(None),
                _ => Err(error).doing(doing),
            };
        }
        let made = self.open_new(name, &c_name);
        if made.is_err() {
            // It is empty, or it is not ours.
            // SAFETY: as above.
            unsafe { libc::unlinkat(self.file.as_raw_fd(), c_name.as_ptr(), libc::AT_REMOVEDIR) };
        }
        made.map(Some)
    }

    fn open_new(&self, name: &OsStr, c_name: &CString) -> Result<Self> {
        let doing = || format!("opening the new folder {}", self.path.join(name).display());
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: a descriptor that is open and a string that ends with zero, both alive across the call.
        let descriptor = unsafe { libc::openat(self.file.as_raw_fd(), c_name.as_ptr(), flags) };
        if descriptor < 0 {
            return Err(std::io::Error::last_os_error()).doing(doing);
        }
        // SAFETY: just opened, owned by nobody else.
        let folder = Self::of(unsafe { File::from_raw_fd(descriptor) }, self.path.join(name));
        // Some file systems say themselves whose everything on them is, so what is made there now is what to compare with.
        // It also shows that files can be made at all.
        let trial = folder.inside.join(".writable");
        let file = create_new(&trial).doing(|| format!("writing in {}", folder.path.display()))?;
        fs::remove_file(&trial).doing(doing)?;
        let owner = |file: &File| file.metadata().map(|metadata| metadata.uid());
        if owner(&file).doing(doing)? != owner(&folder.file).doing(doing)? {
            return Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "another user has replaced the new folder {}; choose a place for the results that only you can write to",
                    folder.path.display()
                ),
            ));
        }
        Ok(folder)
    }

    #[cfg(test)]
    pub(super) fn open_planted(&self, name: &str) -> Result<Self> {
        self.open_new(name.as_ref(), &c_name(name.as_ref())?)
    }

    /// Where its files are, for this process, as long as it is held.
    pub fn inside(&self) -> &Path {
        &self.inside
    }

    /// The name by which people know it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the kernel calls it now.
    pub fn real_path(&self) -> Result<PathBuf> {
        fs::canonicalize(&self.inside).doing(|| format!("looking at {}", self.path.display()))
    }

    /// Gives a folder in this one another name. Fails with `EEXIST` if that is taken.
    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> Result<()> {
        let doing = || format!("naming {}", self.path.join(to).display());
        let (c_from, c_to) = (c_name(from)?, c_name(to)?);
        let folder = self.file.as_raw_fd();
        // SAFETY: a descriptor that is open and strings that end with zero, all alive across the call.
        let renamed = unsafe {
            libc::renameat2(folder, c_from.as_ptr(), folder, c_to.as_ptr(), libc::RENAME_NOREPLACE)
        };
        if renamed == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        // Not every file system has the flag. Without it nothing that holds a file is replaced either.
        if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) {
            return Err(error).doing(doing);
        }
        // SAFETY: as above.
        match unsafe { libc::renameat(folder, c_from.as_ptr(), folder, c_to.as_ptr()) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()).doing(doing),
        }
    }

    /// Whether a name in this folder is that of `other`, and of no link or folder that somebody has put in its place.
    pub(super) fn has(&self, name: &OsStr, other: &Self) -> bool {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let named = self.inside.join(name).symlink_metadata().map(identity);
        let held = other.file.metadata().map(identity);
        matches!((named, held), (Ok(named), Ok(held)) if named == held)
    }

    /// Lets others in, as far as the user's mask does.
    pub(super) fn open_up(&self) -> Result<()> {
        // SAFETY: takes a descriptor that is open, and a number.
        match unsafe { libc::fchmod(self.file.as_raw_fd(), 0o777 & !user_mask()) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()).doing(|| format!("opening up {}", self.path.display())),
        }
    }

    /// An error that names places inside, with the names by which people know them.
    pub fn told(&self, error: Error) -> Error {
        let inside = self.inside.display().to_string();
        let text = error.to_string();
        if !text.contains(&inside) {
            return error;
        }
        Error::new(error.kind(), text.replace(&inside, &self.path.display().to_string()))
    }
}

/// A new file; never one that is there, nor what a link points to.
fn create_new(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

fn c_name(name: &OsStr) -> Result<CString> {
    CString::new(name.as_bytes())
        .map_err(|_| Error::new(ErrorKind::Invalid, "a name must not hold a zero byte"))
}

fn user_id() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// The mask for new files. To ask by umask(2) would be to change it, for all threads.
fn user_mask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}
