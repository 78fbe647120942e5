//! Removing a resource by what the record says of it, without the objects that made it.
//!
//! Used by `rotproof clean`, and as the second attempt when the regular way has failed. It removes exactly what is
//! recorded: what is there now is compared with the record first, and anything else is left alone. What is gone
//! already is no error. Nothing here looks into a mounted file system, as its server may be dead.

use std::ffi::CString;
use std::fs::Metadata;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_export::{detach_path, find_by_backing_file, find_ublk, remove_ublk, unmount_path};

use super::journal::Outstanding;
use super::resource::{FileIdentity, Resource};
use crate::mounts::{Mount, is_mounted_at_or_below, mounts};
use crate::process::{Liveness, ProcessIdentity};

/// How long a busy mount or device may stay so before it is taken away under its users.
const BUSY_MAX: Duration = Duration::from_secs(2);
const BUSY_INTERVAL: Duration = Duration::from_millis(50);
/// How long a killed process may take to end: longer only if it waits for a device that never answers.
const KILL_MAX: Duration = Duration::from_secs(10);

/// Whether the resource is there now. Never hangs.
pub(super) fn exists(resource: &Resource) -> Result<bool> {
    match resource {
        Resource::Directory { path }
        | Resource::Tree { path }
        | Resource::File { path }
        | Resource::Socket { path } => {
            // Something dead may be mounted there; then it is there, and `stat` could hang.
            Ok(is_mounted_at_or_below(&mounts()?, path) || path.symlink_metadata().is_ok())
        }
        Resource::FuseMount { path } => is_mounted(path, is_fuse),
        Resource::Mount { path, filesystem } => is_mounted(path, |mount| mount.filesystem == *filesystem),
        Resource::Ublk { number, owner } => is_orphan(*number, *owner),
        Resource::Loop { backing_file } => Ok(!find_by_backing_file(backing_file).is_empty()),
        Resource::Process(process) => Ok(process.liveness() == Liveness::Alive),
    }
}

/// Removes the resource if it is there.
pub(super) fn undo(outstanding: &Outstanding) -> Result<()> {
    match &outstanding.resource {
        Resource::Directory { path } => remove_path(path, outstanding.identity, PathKind::Directory),
        Resource::Tree { path } => remove_path(path, outstanding.identity, PathKind::Tree),
        Resource::File { path } => remove_path(path, outstanding.identity, PathKind::File),
        Resource::Socket { path } => remove_path(path, outstanding.identity, PathKind::Socket),
        Resource::FuseMount { path } => unmount_all(path, is_fuse),
        Resource::Mount { path, filesystem } => unmount_all(path, |mount| mount.filesystem == *filesystem),
        Resource::Loop { backing_file } => detach_all(backing_file),
        Resource::Ublk { number, owner } if is_orphan(*number, *owner)? => remove_ublk(*number),
        Resource::Ublk { .. } => Ok(()),
        Resource::Process(process) => kill(*process),
    }
}

pub(super) fn is_fuse(mount: &Mount) -> bool {
    mount.filesystem == "fuse" || mount.filesystem.starts_with("fuse.")
}

/// Whether a mount that is `ours` is at `path`, on top or below another.
fn is_mounted(path: &Path, ours: impl Fn(&Mount) -> bool) -> Result<bool> {
    Ok(mounts()?.iter().any(|mount| mount.path == path && ours(mount)))
}

/// The mount that is on top at `path`.
fn top_mount(path: &Path) -> Result<Option<Mount>> {
    Ok(mounts()?.into_iter().rfind(|mount| mount.path == path))
}

/// Whether there is that ublk device and no other process serves it: one that was taken over is the new server's.
fn is_orphan(number: u32, owner: u64) -> Result<bool> {
    let is_ours = |pid: u32| pid == std::process::id();
    Ok(find_ublk(number)?.is_some_and(|found| found.owner == owner && found.server.is_none_or(is_ours)))
}

fn unmount_all(path: &Path, ours: impl Fn(&Mount) -> bool) -> Result<()> {
    while is_mounted(path, &ours)? {
        if let Some(foreign) = top_mount(path)?.filter(|mount| !ours(mount)) {
            return Err(covered(&foreign, path));
        }
        unmount(path)?;
    }
    Ok(())
}

/// Unmounts what is on top at `path`; lazily if it stays busy, so that the kernel finishes when its users have.
fn unmount(path: &Path) -> Result<()> {
    let deadline = Instant::now() + BUSY_MAX;
    loop {
        match unmount_path(path, false) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Os(libc::EBUSY) && Instant::now() < deadline => {
                sleep(BUSY_INTERVAL);
            }
            // Busy for too long, or in a state in which the regular way is refused.
            Err(_) => return unmount_path(path, true),
        }
    }
}

fn detach_all(backing_file: &Path) -> Result<()> {
    let deadline = Instant::now() + BUSY_MAX;
    loop {
        let devices = find_by_backing_file(backing_file);
        if devices.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Error::new(
                ErrorKind::Os(libc::EBUSY),
                format!(
                    "{} is still in use by another program; the kernel detaches it when that ends",
                    devices[0].device.display()
                ),
            ));
        }
        for entry in devices {
            detach_path(&entry.device)?;
        }
        sleep(BUSY_INTERVAL);
    }
}

/// Ends the connection of a FUSE file system whose server is dead or dying, so that everybody who waits for an answer
/// gets an error. Does not unmount. Without a mount at `path` nothing happens.
pub(super) fn abort_fuse(path: &Path) -> Result<()> {
    let Some(mount) = top_mount(path)?.filter(is_fuse) else { return Ok(()) };
    let control = format!("/sys/fs/fuse/connections/{}/abort", mount.device.1);
    if std::fs::write(&control, "1").is_ok() {
        return Ok(());
    }
    // Where the control file system is not mounted: the kernel aborts the connection at a forced unmount, also if
    // the unmount itself then fails as busy (fuse(4), `fuse_umount_begin`).
    let name = c_string(path)?;
    // SAFETY: `name` is a string that ends with zero and lives across the call.
    if unsafe { libc::umount2(name.as_ptr(), libc::MNT_FORCE | libc::UMOUNT_NOFOLLOW) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EINVAL | libc::ENOENT) => Ok(()),
        _ => Err(Error::from_io(error, format!("ending the FUSE file system {}", path.display()))),
    }
}

/// What a path is the name of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PathKind {
    Directory,
    /// A directory, whatever is in it.
    Tree,
    File,
    Socket,
}

impl PathKind {
    /// Whether that is what is there.
    fn is_kind_of(self, metadata: &Metadata) -> bool {
        let kind = metadata.file_type();
        match self {
            Self::Directory | Self::Tree => kind.is_dir(),
            Self::File => kind.is_file(),
            Self::Socket => kind.is_socket(),
        }
    }
}

fn remove_path(path: &Path, recorded: Option<FileIdentity>, kind: PathKind) -> Result<()> {
    if is_mounted_at_or_below(&mounts()?, path) {
        return Err(still_mounted(path));
    }
    let Some(metadata) = look(path)? else { return Ok(()) };
    check_kind(path, &metadata, recorded, kind)?;
    let removed = match kind {
        // The standard library follows no link, also not if one is put in the way meanwhile.
        PathKind::Tree if recorded.is_some() => std::fs::remove_dir_all(path),
        PathKind::Directory | PathKind::Tree => std::fs::remove_dir(path),
        PathKind::File | PathKind::Socket => std::fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => Err(not_empty(path)),
        other => other.doing(|| format!("removing {}", path.display())),
    }
}

/// What is there, if anything.
pub(super) fn look(path: &Path) -> Result<Option<Metadata>> {
    match path.symlink_metadata() {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).doing(|| format!("looking at {}", path.display())),
    }
}

/// Fails unless that is what the run had made there.
pub(super) fn check_kind(
    path: &Path,
    metadata: &Metadata,
    recorded: Option<FileIdentity>,
    kind: PathKind,
) -> Result<()> {
    let is_ours = match recorded {
        Some(identity) => FileIdentity::of(path)? == identity,
        // Killed between creation and its record: only what is still as it was created can be it.
        None => match kind {
            // It is removed only if it is empty.
            PathKind::Directory | PathKind::Tree => true,
            PathKind::File => metadata.len() == 0,
            // Somebody else may have been there first, and lives.
            PathKind::Socket => {
                let refused = std::io::ErrorKind::ConnectionRefused;
                UnixStream::connect(path).is_err_and(|error| error.kind() == refused)
            }
        },
    };
    if !is_ours || !kind.is_kind_of(metadata) {
        return Err(Error::new(
            ErrorKind::Refused,
            format!("left alone: {} is not what the run created there", path.display()),
        ));
    }
    Ok(())
}

pub(super) fn still_mounted(path: &Path) -> Error {
    Error::new(
        ErrorKind::Refused,
        format!("left alone: something is still mounted at or below {}", path.display()),
    )
}

pub(super) fn not_empty(path: &Path) -> Error {
    Error::new(
        ErrorKind::Refused,
        format!("left alone: the folder {} holds files that the run did not record", path.display()),
    )
}

pub(super) fn covered(foreign: &Mount, path: &Path) -> Error {
    Error::new(
        ErrorKind::Refused,
        format!(
            "left alone: somebody has mounted {} over it on {}; unmount that first",
            foreign.filesystem,
            path.display()
        ),
    )
}

/// Kills exactly this process and waits for its end.
fn kill(process: ProcessIdentity) -> Result<()> {
    let doing = || format!("ending process {}", process.pid);
    let pid = libc::pid_t::try_from(process.pid)
        .map_err(|_| Error::new(ErrorKind::Invalid, format!("{} is no process id", process.pid)))?;
    // SAFETY: takes numbers only.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let Ok(descriptor) = libc::c_int::try_from(descriptor).and_then(|fd| u32::try_from(fd).map(|_| fd))
    else {
        let error = std::io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error).doing(doing) };
    };
    // SAFETY: just opened, owned by nobody else.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // The descriptor pins the process; if that is another one than recorded, it is not ours.
    if process.liveness() == Liveness::Gone {
        return Ok(());
    }
    // SAFETY: takes numbers and a null pointer, which stands for no further information.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            descriptor.as_raw_fd(),
            libc::SIGKILL,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    if sent != 0 {
        let error = std::io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error).doing(doing) };
    }
    let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let timeout_ms = libc::c_int::try_from(KILL_MAX.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: one valid entry.
    match unsafe { libc::poll(&raw mut poll, 1, timeout_ms) } {
        0 => Err(Error::new(
            ErrorKind::TimedOut,
            format!("process {} was killed, but still waits for a device that does not answer", process.pid),
        )),
        ready if ready > 0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).doing(doing),
    }
}

fn c_string(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::new(ErrorKind::Invalid, "a path must not hold a zero byte"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::{Command, Stdio};

    fn file(path: &Path, identity: Option<FileIdentity>) -> Outstanding {
        Outstanding { resource: Resource::File { path: path.to_owned() }, identity }
    }

    fn directory(path: &Path, identity: Option<FileIdentity>) -> Outstanding {
        Outstanding { resource: Resource::Directory { path: path.to_owned() }, identity }
    }

    #[test]
    fn what_is_gone_already_is_no_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("gone");
        undo(&file(&path, None)).expect("nothing to do");
        undo(&directory(&path, None)).expect("nothing to do");
        for resource in [
            Resource::FuseMount { path: path.clone() },
            Resource::Mount { path: path.clone(), filesystem: "ext4".into() },
            Resource::Loop { backing_file: path.clone() },
        ] {
            assert!(!exists(&resource).expect("asked"), "{resource}");
            undo(&Outstanding { resource, identity: None }).expect("nothing to do");
        }
    }

    #[test]
    fn a_file_is_removed_only_if_it_is_the_recorded_one() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        fs::write(&path, "ours").expect("written");
        let identity = FileIdentity::of(&path).expect("is there");
        fs::rename(&path, folder.path().join("elsewhere")).expect("moved");
        fs::write(&path, "of somebody else").expect("written");
        assert_eq!(undo(&file(&path, Some(identity))).expect_err("another file").kind(), ErrorKind::Refused);
        assert!(path.exists());
        assert!(undo(&file(&path, None)).is_err(), "without an identity only an empty file can be ours");
        fs::write(&path, "").expect("emptied");
        undo(&file(&path, None)).expect("removed");
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_is_removed_only_if_it_is_the_recorded_one_or_nobody_listens() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        let identity = FileIdentity::of(&path).expect("is there");
        let socket = |identity| Outstanding { resource: Resource::Socket { path: path.clone() }, identity };
        assert!(undo(&socket(None)).is_err(), "somebody listens");
        drop(listener);
        undo(&socket(None)).expect("removed");
        assert!(!path.exists());
        let _other = std::os::unix::net::UnixListener::bind(&path).expect("bound again");
        let other = FileIdentity::of(&path).expect("is there");
        fs::write(folder.path().join("file"), "").expect("written");
        if other != identity {
            assert!(undo(&socket(Some(identity))).is_err(), "another one");
        }
        undo(&socket(Some(other))).expect("the one that was recorded");
        fs::write(&path, "").expect("written");
        assert!(undo(&socket(None)).is_err(), "a file is no socket");
    }

    #[test]
    fn a_folder_is_removed_only_when_it_is_empty_and_no_link_is_followed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("folder");
        fs::create_dir(&path).expect("created");
        let identity = FileIdentity::of(&path).expect("is there");
        fs::write(path.join("letter"), "dear").expect("written");
        assert_eq!(
            undo(&directory(&path, Some(identity))).expect_err("not empty").kind(),
            ErrorKind::Refused
        );
        assert!(path.join("letter").exists());
        fs::remove_file(path.join("letter")).expect("removed");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        assert!(undo(&directory(&link, None)).is_err(), "a link is no folder");
        assert!(path.exists());
        undo(&directory(&path, Some(identity))).expect("removed");
        assert!(!path.exists());
    }

    #[test]
    fn a_tree_is_removed_with_all_that_is_in_it_if_it_is_the_one_that_was_made() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (path, other) = (folder.path().join("tree"), folder.path().join("other"));
        fs::create_dir_all(path.join("a/b")).expect("created");
        fs::create_dir(&other).expect("created");
        fs::write(other.join("letter"), "dear").expect("written");
        std::os::unix::fs::symlink(&other, path.join("a/link")).expect("linked");
        fs::write(path.join("a/b/file"), "x").expect("written");
        let identity = FileIdentity::of(&path).expect("is there");
        let tree =
            |path: &Path, identity| Outstanding { resource: Resource::Tree { path: path.into() }, identity };
        assert_eq!(undo(&tree(&other, Some(identity))).expect_err("another").kind(), ErrorKind::Refused);
        assert!(undo(&tree(&path, None)).is_err(), "who filled it is not known");
        undo(&tree(&path, Some(identity))).expect("removed");
        assert!(!path.exists() && other.join("letter").exists(), "no link was followed");
    }

    #[test]
    fn a_recorded_process_is_killed_and_one_that_took_its_number_is_not() {
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep exists");
        let identity = ProcessIdentity::of(child.id()).expect("it runs");
        let other = ProcessIdentity { started_ticks: identity.started_ticks + 1, ..identity };
        undo(&Outstanding { resource: Resource::Process(other), identity: None }).expect("not ours");
        assert_eq!(identity.liveness(), Liveness::Alive);
        undo(&Outstanding { resource: Resource::Process(identity), identity: None }).expect("killed");
        assert!(!child.wait().expect("our child").success());
    }
}
