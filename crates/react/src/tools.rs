//! The file systems' own programs, which make and check what is on a device of a cell.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::FromRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_subject::FileSystem;

use crate::image::BLOCK_BYTES;
use crate::stage::Answer;
use crate::tree::Look;

/// How long a checker may take.
const CHECKER_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);

/// Makes a new file system on `device`, which may be a file: with what is asked for in blocks of the cell's own device.
pub(crate) fn make(kind: FileSystem, device: &Path) -> Result<()> {
    let sector = format!("size={BLOCK_BYTES}");
    let (program, options): (_, &[&str]) = match kind {
        // Groups as small as can be, so that there are several, with copies of what each has.
        FileSystem::Ext4 => (
            "mkfs.ext4",
            &[
                "-q",
                "-F",
                "-b",
                "4096",
                "-g",
                "4096",
                "-E",
                "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
            ],
        ),
        FileSystem::Xfs => {
            ("mkfs.xfs", &["-q", "-f", "-K", "-s", &sector, "-m", "rmapbt=1,reflink=1,finobt=1"])
        }
        FileSystem::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K", "-m", "dup", "-d", "single"]),
        FileSystem::Jfs | FileSystem::F2fs => return Err(unread(kind)),
    };
    let (code, said) = run(program, options, device)?;
    match code {
        Some(0) => Ok(()),
        _ => Err(Error::new(ErrorKind::Missing, format!("no {kind} could be made: {said}"))),
    }
}

/// Runs the checker on `device`, which may be a file; what it answers.
pub(crate) fn check(kind: FileSystem, device: &Path) -> Result<Answer> {
    let (program, options): (_, &[&str]) = match kind {
        FileSystem::Ext4 => ("e2fsck", &["-f", "-y"]),
        FileSystem::Xfs if device.is_file() => ("xfs_repair", &["-f"]),
        FileSystem::Xfs => ("xfs_repair", &[]),
        FileSystem::Btrfs => ("btrfs", &["check", "--readonly"]),
        FileSystem::Jfs | FileSystem::F2fs => return Err(unread(kind)),
    };
    let (code, said) = run(program, options, device)?;
    let is_done = match kind {
        // 1: errors were corrected; 2: the same, and the machine should be rebooted (e2fsck(8)).
        FileSystem::Ext4 => matches!(code, Some(0..=2)),
        _ => code == Some(0),
    };
    let look = match code {
        _ if is_done => Look::Right,
        Some(code) => Look::Failed(format!("{program}: exit code {code}")),
        None => Look::Failed(format!("{program}: it crashed")),
    };
    Ok(Answer { look, said })
}

/// Nobody here knows what the blocks of such a file system are.
fn unread(kind: FileSystem) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("the kinds of {kind}'s blocks are not read, so there are no cells of it"),
    )
}

/// Exit code (`None` if a signal ended it) and what it said.
fn run(program: &str, options: &[&str], device: &Path) -> Result<(Option<i32>, String)> {
    let doing = || format!("running {program}");
    // In a file, so that a long answer cannot block it.
    let mut told = tempfile()?;
    let output = told.try_clone().doing(doing)?;
    let mut child = Command::new(program)
        .args(options)
        .arg(device)
        .env("LC_ALL", "C")
        .env("BLKID_FILE", "/dev/null")
        .stdin(Stdio::null())
        .stdout(output.try_clone().doing(doing)?)
        .stderr(output)
        .spawn()
        .doing(doing)?;
    let deadline = Instant::now() + CHECKER_MAX;
    let status = loop {
        match child.try_wait().doing(doing)? {
            Some(status) => break status,
            None if Instant::now() >= deadline => {
                child.kill().doing(doing)?;
                child.wait().doing(doing)?;
                return Err(Error::new(ErrorKind::TimedOut, format!("{program} did not end")));
            }
            None => std::thread::sleep(POLL),
        }
    };
    let mut bytes = Vec::new();
    told.rewind().and_then(|()| told.read_to_end(&mut bytes)).doing(doing)?;
    Ok((status.code(), String::from_utf8_lossy(&bytes).into_owned()))
}

/// A file in memory without a name.
pub(crate) fn tempfile() -> Result<File> {
    // SAFETY: the name ends with zero and lives across the call.
    let descriptor = unsafe { libc::memfd_create(c"rotproof-react".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(std::io::Error::last_os_error()).doing(|| "making a file in memory".into());
    }
    // SAFETY: a new descriptor that nobody else has.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}
