//! What is mounted where, read from `/proc/self/mountinfo`.
//!
//! Reading that table never touches a mounted file system, so it cannot hang on a FUSE file system whose server is
//! dead. Everything that must know about mounts asks here, and calls `stat` on nothing. Knows nothing of runs.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rotproof_block::Result;
use rotproof_block::error::IoContext;

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Device number of the file system (`st_dev` of its files), major and minor. Not that of the block device
    /// where the file system has numbers of its own, as btrfs and FUSE have.
    pub device: (u32, u32),
    /// The part of the file system that is mounted; `/` is all of it.
    pub root: PathBuf,
    /// Where it is mounted.
    pub path: PathBuf,
    /// `ext4`, `fuse.rotproof` ...
    pub filesystem: String,
    /// A block device, a file, or a word; the file system decides.
    pub source: PathBuf,
    /// Options of the mount and then of the file system, separated by commas.
    pub options: String,
}

/// All mounts of this mount namespace, in the order in which they were made; of two on one path the later is on top.
pub fn mounts() -> Result<Vec<Mount>> {
    let table = std::fs::read("/proc/self/mountinfo").doing(|| "reading /proc/self/mountinfo".into())?;
    Ok(parse(&table))
}

/// Whether something is mounted at `path` itself or anywhere below it.
pub fn is_mounted_at_or_below(mounts: &[Mount], path: &Path) -> bool {
    mounts.iter().any(|mount| mount.path.starts_with(path))
}

fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 /root /path rw,noatime master:1 - ext3 /dev/root rw,errors=continue` (proc(5)).
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let root = unescape(fields.next()?);
    let path = unescape(fields.next()?);
    let of_mount = String::from_utf8_lossy(fields.next()?);
    fields.find(|field| *field == b"-")?;
    let filesystem = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    let options = format!("{of_mount},{}", String::from_utf8_lossy(fields.next()?));
    let device = (major.parse().ok()?, minor.parse().ok()?);
    Some(Mount { device, root, path, filesystem, source, options })
}

/// Undoes the kernel's octal escapes of space, tab, newline and backslash.
pub fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_device_path_type_and_source() {
        let table = b"36 35 98:0 /sub /mnt/a\\040b rw,noatime master:1 shared:2 - ext4 /dev/loop7 rw\n\
                      37 35 0:50 / /mnt/f rw - fuse.rotproof rotproof rw,user_id=0\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].device, (98, 0));
        assert_eq!(mounts[0].path, Path::new("/mnt/a b"));
        assert_eq!(mounts[0].root, Path::new("/sub"));
        assert_eq!(mounts[0].options, "rw,noatime,rw");
        assert_eq!(
            (mounts[0].filesystem.as_str(), mounts[0].source.as_path()),
            ("ext4", Path::new("/dev/loop7"))
        );
        assert_eq!(mounts[1].filesystem, "fuse.rotproof");
    }

    #[test]
    fn broken_lines_are_passed_over() {
        assert!(parse(b"\n1 2\n1 2 x:y / /a rw - ext4 s rw\n1 2 3:4 / /a rw no separator\n").is_empty());
    }

    #[test]
    fn this_machine_has_a_root_and_proc() {
        let mounts = mounts().expect("proc is mounted");
        assert!(mounts.iter().any(|mount| mount.path == Path::new("/")));
        assert!(mounts.iter().any(|mount| mount.filesystem == "proc"));
        assert!(is_mounted_at_or_below(&mounts, Path::new("/proc")));
        assert!(!is_mounted_at_or_below(&mounts, Path::new("/pro")), "a path is compared by whole names");
    }

    #[test]
    fn a_backslash_that_is_no_escape_stays() {
        assert_eq!(unescape(br"/a\134b\x"), Path::new(r"/a\b\x"));
    }
}
