//! System calls relative to descriptors, with results as Rust has them.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// A text for the kernel.
pub fn text(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// The path by which the kernel finds again what a descriptor stands for.
pub fn path_of(descriptor: RawFd) -> CString {
    CString::new(format!("/proc/self/fd/{descriptor}")).unwrap_or_default()
}

fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn owned(answer: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: a descriptor that was just opened and belongs to nobody else.
    check(answer).map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Opens `name` in a folder.
pub fn open(folder: RawFd, name: &CStr, flags: libc::c_int, mode: u32) -> io::Result<OwnedFd> {
    // SAFETY: a text that ends with zero, numbers.
    owned(unsafe { libc::openat(folder, name.as_ptr(), flags | libc::O_CLOEXEC, mode) })
}

/// What `name` in a folder is.
pub fn stat(folder: RawFd, name: &CStr) -> io::Result<libc::stat> {
    // SAFETY: all zeros is a valid value of it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: a text that ends with zero, and a structure that lives across the call.
    check(unsafe { libc::fstatat(folder, name.as_ptr(), &raw mut stat, flags) })?;
    Ok(stat)
}

/// What a descriptor stands for.
pub fn stat_of(descriptor: RawFd) -> io::Result<libc::stat> {
    stat(descriptor, c"")
}

/// Makes a folder.
pub fn make_folder(folder: RawFd, name: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: a text that ends with zero.
    check(unsafe { libc::mkdirat(folder, name.as_ptr(), mode) }).map(drop)
}

/// Makes a file, pipe, socket or device.
pub fn make_node(folder: RawFd, name: &CStr, mode: u32, device: u64) -> io::Result<()> {
    // SAFETY: a text that ends with zero.
    check(unsafe { libc::mknodat(folder, name.as_ptr(), mode, device) }).map(drop)
}

/// Makes a symbolic link.
pub fn make_link(target: &CStr, folder: RawFd, name: &CStr) -> io::Result<()> {
    // SAFETY: two texts that end with zero.
    check(unsafe { libc::symlinkat(target.as_ptr(), folder, name.as_ptr()) }).map(drop)
}

/// Gives what a descriptor stands for another name.
pub fn link(descriptor: RawFd, folder: RawFd, name: &CStr) -> io::Result<()> {
    let from = path_of(descriptor);
    // SAFETY: two texts that end with zero.
    let answer = unsafe {
        libc::linkat(libc::AT_FDCWD, from.as_ptr(), folder, name.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    };
    check(answer).map(drop)
}

/// Removes a name; of a folder with [`libc::AT_REMOVEDIR`].
pub fn remove(folder: RawFd, name: &CStr, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: a text that ends with zero.
    check(unsafe { libc::unlinkat(folder, name.as_ptr(), flags) }).map(drop)
}

/// Renames.
pub fn rename(from: RawFd, name: &CStr, to: RawFd, new: &CStr, flags: u32) -> io::Result<()> {
    // SAFETY: two texts that end with zero.
    let answer = unsafe { libc::syscall(libc::SYS_renameat2, from, name.as_ptr(), to, new.as_ptr(), flags) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Where a symbolic link leads.
pub fn read_link(descriptor: RawFd) -> io::Result<OsString> {
    let mut buffer = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: an empty path means the descriptor; the buffer is as long as told.
    let length =
        unsafe { libc::readlinkat(descriptor, c"".as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    buffer.truncate(length);
    Ok(OsString::from_vec(buffer))
}

/// Changes permissions.
pub fn set_mode(descriptor: RawFd, mode: u32) -> io::Result<()> {
    // SAFETY: a text that ends with zero.
    check(unsafe { libc::fchmodat(libc::AT_FDCWD, path_of(descriptor).as_ptr(), mode, 0) }).map(drop)
}

/// Takes the bits away that let a program run as its owner or group, as a write by somebody else does whose group is this.
pub fn take_away_privileges(descriptor: RawFd, group: u32) -> io::Result<()> {
    let stat = stat_of(descriptor)?;
    let loses_group = stat.st_mode & libc::S_IXGRP != 0 || stat.st_gid != group;
    let kept = stat.st_mode & !(libc::S_ISUID | if loses_group { libc::S_ISGID } else { 0 });
    if kept == stat.st_mode { Ok(()) } else { set_mode(descriptor, kept & 0o7777) }
}

/// Permissions for what is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// To be asked for.
    pub asked: u32,
    /// An ACL of the folder decides what comes of it, and no umask.
    pub is_of_acl: bool,
}

/// What a program with a umask asks for in a folder.
pub fn masked(folder: RawFd, mode: u32, umask: u32) -> Mode {
    let is_of_acl = get_attribute(folder, Some(c"system.posix_acl_default"), &mut []).is_ok();
    Mode { asked: if is_of_acl { mode } else { mode & !umask }, is_of_acl }
}

/// Changes the owner and the group.
pub fn set_owner(descriptor: RawFd, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    let [user, group] = [user, group].map(|id| id.unwrap_or(u32::MAX));
    let flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: an empty path means the descriptor.
    check(unsafe { libc::fchownat(descriptor, c"".as_ptr(), user, group, flags) }).map(drop)
}

/// Changes times.
pub fn set_times(descriptor: RawFd, is_link: bool, times: [libc::timespec; 2]) -> io::Result<()> {
    // SAFETY: texts that end with zero, and two times.
    let answer = unsafe {
        match is_link {
            true => libc::utimensat(descriptor, c"".as_ptr(), times.as_ptr(), libc::AT_EMPTY_PATH),
            false => libc::utimensat(libc::AT_FDCWD, path_of(descriptor).as_ptr(), times.as_ptr(), 0),
        }
    };
    check(answer).map(drop)
}

/// What the file system has and has left.
pub fn space(descriptor: RawFd) -> io::Result<libc::statvfs> {
    // SAFETY: all zeros is a valid value of it.
    let mut space: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: an open descriptor, and a structure that lives across the call.
    check(unsafe { libc::fstatvfs(descriptor, &raw mut space) })?;
    Ok(space)
}

/// Reads an extended attribute, or all their names without a name. Without room it says how much is wanted.
pub fn get_attribute(descriptor: RawFd, name: Option<&CStr>, room: &mut [u8]) -> io::Result<usize> {
    let path = path_of(descriptor);
    let (at, length) = (room.as_mut_ptr().cast::<libc::c_void>(), room.len());
    // SAFETY: texts that end with zero; the buffer is as long as told.
    let answer = unsafe {
        match name {
            Some(name) => libc::getxattr(path.as_ptr(), name.as_ptr(), at, length),
            None => libc::listxattr(path.as_ptr(), at.cast(), length),
        }
    };
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// Sets an extended attribute.
pub fn set_attribute(descriptor: RawFd, name: &CStr, value: &[u8], flags: i32) -> io::Result<()> {
    let path = path_of(descriptor);
    // SAFETY: texts that end with zero; the value is as long as told.
    let answer =
        unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags) };
    check(answer).map(drop)
}

/// Removes an extended attribute.
pub fn remove_attribute(descriptor: RawFd, name: &CStr) -> io::Result<()> {
    let path = path_of(descriptor);
    // SAFETY: texts that end with zero.
    check(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }).map(drop)
}

/// The umask of this process, which cannot be asked for without setting it but here.
pub fn umask() -> u32 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = text.lines().find_map(|line| line.strip_prefix("Umask:"));
    umask.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok()).unwrap_or(0)
}

/// Makes durable.
pub fn sync(descriptor: &impl AsRawFd, data_only: bool) -> io::Result<()> {
    let descriptor = descriptor.as_raw_fd();
    // SAFETY: an open descriptor.
    check(unsafe { if data_only { libc::fdatasync(descriptor) } else { libc::fsync(descriptor) } }).map(drop)
}

/// This thread makes things in the name of a user, until it is dropped. Only root can; others make them as themselves.
pub struct AsUser {
    was: Option<(libc::uid_t, libc::gid_t)>,
}

impl AsUser {
    /// The user and group of a request.
    pub fn new(user: u32, group: u32) -> Self {
        // SAFETY: asks who this is.
        let me = unsafe { (libc::geteuid(), libc::getegid()) };
        if me == (user, group) || me.0 != 0 {
            return Self { was: None };
        }
        // SAFETY: both belong to this thread alone. The group first, as the user may not change it any more.
        unsafe {
            libc::setfsgid(group);
            libc::setfsuid(user);
        }
        Self { was: Some(me) }
    }
}

impl Drop for AsUser {
    fn drop(&mut self) {
        if let Some((user, group)) = self.was {
            // SAFETY: as above.
            unsafe {
                libc::setfsuid(user);
                libc::setfsgid(group);
            }
        }
    }
}

/// As many descriptors as this process may have: the kernel can know very many files.
pub fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a structure of this frame.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Where a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mounted {
    /// What whoever goes there finds.
    OnTop,
    /// Below another.
    Covered,
    /// It is not, or somewhere else only.
    Not,
}

/// The number of the file system that is on top at `path`, major and minor. Whoever serves it is not asked.
pub fn device_of(path: &Path) -> io::Result<(u32, u32)> {
    let path = text(path.as_os_str())?;
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: all zeros is a valid value of it.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: a text that ends with zero, numbers, and room for the answer; all live across the call.
    check(unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, 0, &raw mut stat) })?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}

/// Unmounts what is on top of a place.
pub fn unmount(path: &Path) -> io::Result<()> {
    let path = text(path.as_os_str())?;
    // SAFETY: a text that ends with zero.
    check(unsafe { libc::umount2(path.as_ptr(), libc::UMOUNT_NOFOLLOW) }).map(drop)
}

/// The mount that is on top at `path`, by a number that no other one ever gets; `None` from a kernel before 6.8. Whoever serves it is not
/// asked.
pub fn mount_of(path: &Path) -> Option<u64> {
    /// `STATX_MNT_ID_UNIQUE`.
    const UNIQUE: u32 = 0x4000;
    let path = text(path.as_os_str()).ok()?;
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: all zeros is a valid value of it.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: a text that ends with zero, numbers, and room for the answer; all live across the call.
    check(unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, UNIQUE, &raw mut stat) }).ok()?;
    (stat.stx_mask & UNIQUE != 0).then_some(stat.stx_mnt_id)
}

/// Where the file system of that number is, at `path`, which was that `mount`. Numbers of file systems that are gone are given to
/// others, those of mounts are not.
pub fn mounted(device: (u32, u32), mount: Option<u64>, path: &Path) -> io::Result<Mounted> {
    let number = format!("{}:{}", device.0, device.1);
    // Of proc_pid_mountinfo(5) the third field; the fifth is the path, with blanks and the like in octal.
    let point: Vec<u8> = path
        .as_os_str()
        .as_bytes()
        .iter()
        .flat_map(|&byte| match byte {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
            _ => vec![byte],
        })
        .collect();
    let mut found = Mounted::Not;
    for line in std::fs::read("/proc/self/mountinfo")?.split(|&byte| byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        if fields.get(4).is_some_and(|at| *at == point) {
            // Of two at one place the later is on top.
            found = match fields.get(2) == Some(&number.as_bytes()) {
                true => Mounted::OnTop,
                false if found == Mounted::Not => Mounted::Not,
                false => Mounted::Covered,
            };
        }
    }
    let is_another = mount.is_some() && mount_of(path) != mount;
    Ok(if found == Mounted::OnTop && is_another { Mounted::Not } else { found })
}
