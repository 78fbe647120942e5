//! Attributes of files, from what the file system below says to what the kernel is told, and back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};

fn kind_of(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// A moment as file systems have it.
fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let part = Duration::from_nanos(nanoseconds.unsigned_abs());
    match u64::try_from(seconds) {
        Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds) + part,
        Err(_) => UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()) + part,
    }
}

/// A time to be set, as system calls take it.
pub fn timespec(time: Option<TimeOrNow>) -> libc::timespec {
    match time {
        None => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
        Some(TimeOrNow::Now) => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(UNIX_EPOCH) {
            Ok(since) => {
                libc::timespec { tv_sec: since.as_secs().cast_signed(), tv_nsec: since.subsec_nanos().into() }
            }
            Err(before) => {
                let before = before.duration();
                let nanoseconds = i64::from(before.subsec_nanos());
                libc::timespec {
                    tv_sec: -before.as_secs().cast_signed() - i64::from(nanoseconds > 0),
                    tv_nsec: (1_000_000_000 - nanoseconds) % 1_000_000_000,
                }
            }
        },
    }
}

/// What `stat` says, for the kernel.
pub fn attributes(stat: &libc::stat, number: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: stat.st_size.cast_unsigned(),
        blocks: stat.st_blocks.cast_unsigned(),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind_of(stat.st_mode),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}
