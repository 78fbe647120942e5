//! Mounting, unmounting and aborting: by system call as root, through `fusermount3` otherwise.
//!
//! Nothing here asks the mounted file system itself (no `stat` of the mount point), because its server may be this
//! process, or dead.

use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use super::channel::Channel;
use crate::system::{c_path, check, is_root, user};

/// Names the mounts in `/proc/mounts`.
const SOURCE: &str = "rotproof";
const KIND: &str = "fuse.rotproof";
const HELPER: &str = "fusermount3";
/// Between two tries to unmount what is in use.
const BUSY_INTERVAL: Duration = Duration::from_millis(20);

/// A file system that is mounted.
#[derive(Debug)]
pub(super) struct Mount {
    point: PathBuf,
    /// Number of the connection under `/sys/fs/fuse/connections`.
    connection: Option<u32>,
}

/// How to mount.
pub(super) struct MountOptions {
    pub read_only: bool,
    pub allow_other: bool,
    /// The most that one read may ask for, in bytes.
    pub read_bytes_max: usize,
}

impl Mount {
    /// Mounts on a directory and returns the channel on which the connection begins.
    pub(super) fn new(point: &Path, options: &MountOptions) -> Result<(Self, Channel)> {
        let point = checked_point(point)?;
        let channel =
            if is_root() { mount_as_root(&point, options) } else { mount_by_helper(&point, options) }
                .map_err(|error| error.while_doing(format_args!("mounting {}", point.display())))?;
        let connection = connection_at(&point);
        Ok((Self { point, connection }, channel))
    }

    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    /// Unmounts, whatever is open: the file system goes when its last file is closed.
    pub(super) fn detach(&self) -> Result<()> {
        unmount_path(&self.point, true)
    }

    /// Unmounts; fails with `EBUSY` if a file is open for longer than `patience`.
    pub(super) fn unmount(&self, patience: Duration) -> Result<()> {
        unmount_when_free(&self.point, patience)
    }

    /// Ends the connection whatever is open or under way: all requests, those to come too, fail.
    pub(super) fn abort(&self) -> Result<()> {
        abort(&self.point, self.connection)
    }
}

fn checked_point(point: &Path) -> Result<PathBuf> {
    let real = fs::canonicalize(point).map_err(|error| {
        let advice = match error.raw_os_error() {
            Some(libc::ENOTCONN) => "has a dead mount of a killed program; remove it with `umount -l`",
            Some(libc::ENOENT) => "does not exist; create the directory first",
            _ => "cannot be used as a mount point",
        };
        Error::from_io(error, format!("{} {advice}", point.display()))
    })?;
    if real.is_dir() {
        return Ok(real);
    }
    Err(Error::new(
        ErrorKind::Invalid,
        format!("{} is no directory, so nothing can be mounted there", point.display()),
    ))
}

fn mount_as_root(point: &Path, options: &MountOptions) -> Result<Channel> {
    let channel = Channel::open()?;
    let (uid, gid) = user();
    let other = if options.allow_other { ",allow_other" } else { "" };
    let data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},default_permissions,max_read={}{other}",
        channel.fd().as_raw_fd(),
        options.read_bytes_max
    );
    let text = |text: &str| CString::new(text).expect("made here without a zero byte");
    let (source, kind, data, target) = (text(SOURCE), text(KIND), text(&data), c_path(point)?);
    let read_only = if options.read_only { libc::MS_RDONLY } else { 0 };
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOATIME | read_only;
    // SAFETY: all strings have their zero byte and live across the call.
    check(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast())
    })
    .map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => {
            Error::new(ErrorKind::Missing, "the right to mount (CAP_SYS_ADMIN) is missing").caused_by(error)
        }
        Some(libc::ENODEV) => {
            Error::new(ErrorKind::Missing, "the kernel has no FUSE (CONFIG_FUSE_FS)").caused_by(error)
        }
        _ => Error::from_io(error, "mount"),
    })?;
    Ok(channel)
}

/// `fusermount3` mounts with its own rights and sends the descriptor back over the socket named in its environment.
fn mount_by_helper(point: &Path, options: &MountOptions) -> Result<Channel> {
    let (ours, theirs) = UnixStream::pair().doing(|| format!("making a socket for {HELPER}"))?;
    let read_only = if options.read_only { "ro" } else { "rw" };
    let other = if options.allow_other { ",allow_other" } else { "" };
    let arguments = format!(
        "{read_only},nosuid,nodev,default_permissions,max_read={},fsname={SOURCE},subtype={SOURCE}{other}",
        options.read_bytes_max
    );
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(arguments).arg("--").arg(point).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::piped()).env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    let inherited = theirs.as_raw_fd();
    let keep_open = move || {
        // SAFETY: plain numbers, and a system call that is allowed between fork and exec.
        check(unsafe { libc::fcntl(inherited, libc::F_SETFD, 0) }).map(|_| ())
    };
    // SAFETY: the closure makes one system call and touches no memory of others.
    unsafe { command.pre_exec(keep_open) };
    let child = command.spawn().map_err(helper_missing)?;
    drop(theirs);
    let received = receive_descriptor(&ours);
    let output = child.wait_with_output().doing(|| format!("waiting for {HELPER}"))?;
    match received {
        Ok(fd) if output.status.success() => Ok(Channel::from_fd(fd)),
        _ => Err(helper_failed(&output.stderr)),
    }
}

fn helper_missing(error: io::Error) -> Error {
    let message = format!("without root, {HELPER} is needed; install it (Debian: apt-get install fuse3)");
    Error::new(ErrorKind::Missing, message).caused_by(error)
}

fn helper_failed(stderr: &[u8]) -> Error {
    Error::new(ErrorKind::Missing, format!("{HELPER} failed: {}", String::from_utf8_lossy(stderr).trim()))
}

/// Room for the control message of one descriptor, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 64]);

fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = 0u8;
    let mut data = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = Control([0; 64]);
    // SAFETY: all zeros is a valid message header: no address, no parts.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control.0).cast();
    message.msg_controllen = control.0.len();
    loop {
        // SAFETY: the header names memory of this function with its true lengths.
        let answer = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match answer {
            1.. => break,
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return Err(io::Error::last_os_error()),
        }
    }
    // SAFETY: the kernel has filled the header and the control memory it names; a control message of this kind
    // carries at least one descriptor, which is now ours.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const message);
        if first.is_null()
            || (*first).cmsg_level != libc::SOL_SOCKET
            || (*first).cmsg_type != libc::SCM_RIGHTS
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(first).cast::<libc::c_int>().read_unaligned()))
    }
}

/// Removes a mount: of a FUSE file system, dead or alive, or of any other. With `lazy` the place is free at once and
/// the file system goes when its last file is closed. Waits for no FUSE server.
pub fn unmount_path(point: &Path, lazy: bool) -> Result<()> {
    let doing = || format!("unmounting {}", point.display());
    if is_root() {
        let name = c_path(point)?;
        let flags = libc::UMOUNT_NOFOLLOW | if lazy { libc::MNT_DETACH } else { 0 };
        // SAFETY: the path is a string with its zero byte that lives across the call.
        return check(unsafe { libc::umount2(name.as_ptr(), flags) }).map(|_| ()).map_err(|error| {
            let context = match error.raw_os_error() {
                Some(libc::EBUSY) => format!("{}: something on it is still in use", doing()),
                Some(libc::EINVAL) => format!("{}: nothing is mounted there", doing()),
                _ => doing(),
            };
            Error::from_io(error, context)
        });
    }
    let mut command = Command::new(HELPER);
    command.args(["-u", "-q"]).args(lazy.then_some("-z")).arg("--").arg(point);
    let output = command.stdin(Stdio::null()).output().map_err(helper_missing)?;
    if output.status.success() {
        return Ok(());
    }
    Err(match mounts_at(point)?.last() {
        Some(_) => Error::from_errno(libc::EBUSY, format!("{}: something on it is still in use", doing())),
        None => Error::from_errno(libc::EINVAL, format!("{}: nothing is mounted there", doing())),
    })
}

/// [`unmount_path`], tried again for as long as `patience` while something on it is in use. Whoever closes a file and
/// unmounts then is not always the last user: a process that was being started by another thread at that moment holds
/// copies of all descriptors until it runs its program.
pub fn unmount_when_free(point: &Path, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        match unmount_path(point, false) {
            Err(error) if error.kind() == ErrorKind::Os(libc::EBUSY) && Instant::now() < deadline => {
                std::thread::sleep(BUSY_INTERVAL);
            }
            other => return other,
        }
    }
}

/// Ends the FUSE connection mounted at `point`, whoever serves it: every request to it fails, those under way too.
///
/// After a program that served was killed this comes first, before anything on top is unmounted or detached: a thread
/// of that program may have been waiting for its own export, uninterruptibly, and then keeps the program, its
/// descriptors and with them the connection alive for ever. Fails with [`ErrorKind::Missing`] without root where the
/// control file system (`/sys/fs/fuse/connections`) is not mounted.
pub fn abort_path(point: &Path) -> Result<()> {
    abort(point, connection_at(point))
}

fn abort(point: &Path, connection: Option<u32>) -> Result<()> {
    let control = connection.map(|number| format!("/sys/fs/fuse/connections/{number}/abort"));
    let write = |control| fs::OpenOptions::new().write(true).open(control)?.write_all(b"1");
    if control.is_some_and(|control| write(control).is_ok()) {
        return Ok(());
    }
    let name = c_path(point)?;
    // A forced unmount aborts first; that it then finds the mount busy does not matter.
    // SAFETY: the path is a string with its zero byte that lives across the call.
    match check(unsafe { libc::umount2(name.as_ptr(), libc::MNT_FORCE | libc::UMOUNT_NOFOLLOW) }) {
        Err(error) if error.raw_os_error() != Some(libc::EBUSY) => {
            Err(Error::from_io(error, format!("aborting the FUSE connection at {}", point.display())))
        }
        _ => Ok(()),
    }
}

/// The number of the FUSE connection mounted last at `point`: the minor number of its device.
fn connection_at(point: &Path) -> Option<u32> {
    mounts_at(point).ok()?.into_iter().next_back()
}

/// The minor device numbers of what is mounted at `point`, the topmost last.
fn mounts_at(point: &Path) -> Result<Vec<u32>> {
    let table = fs::read("/proc/thread-self/mountinfo").doing(|| "reading the table of mounts".into())?;
    Ok(table.split(|&byte| byte == b'\n').filter_map(|line| mount_line(line, point)).collect())
}

/// The minor device number in a line of that table (`36 35 0:98 / /mnt ...`), if it is of `point`.
fn mount_line(line: &[u8], point: &Path) -> Option<u32> {
    let mut words = line.split(|&byte| byte == b' ');
    let device = words.nth(2)?;
    let place = words.nth(1)?;
    if unescape(place) != point.as_os_str().as_encoded_bytes() {
        return None;
    }
    std::str::from_utf8(device).ok()?.split_once(':')?.1.parse().ok()
}

/// The table writes blanks and backslashes as `\` and three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after
            .first_chunk::<3>()
            .filter(|digits| byte == b'\\' && digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        match octal {
            Some(digits) => {
                plain.push(
                    digits
                        .iter()
                        .fold(0, |value: u8, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')),
                );
                rest = &after[3..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_of_mounts_gives_the_connection() {
        let line = br"40 29 0:98 / /tmp/a\040b rw,nosuid - fuse.rotproof rotproof rw,user_id=0";
        assert_eq!(mount_line(line, Path::new("/tmp/a b")), Some(98));
        assert_eq!(mount_line(line, Path::new("/tmp/a")), None);
        assert_eq!(mount_line(b"", Path::new("/")), None);
        assert_eq!(mount_line(b"1 2 x y /", Path::new("/")), None);
    }

    #[test]
    fn escapes_are_undone_and_anything_else_is_kept() {
        assert_eq!(unescape(br"a\134b\011c"), b"a\\b\tc");
        assert_eq!(unescape(br"\9z\1"), br"\9z\1");
    }

    #[test]
    fn a_mount_point_that_cannot_be_one_is_explained() {
        let missing = checked_point(Path::new("/nonexistent/point")).expect_err("is not there");
        assert_eq!(missing.kind(), ErrorKind::Missing);
        assert!(missing.to_string().contains("create the directory"), "{missing}");
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let error = checked_point(file.path()).expect_err("is a file");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}
