//! Guests of User Mode Linux: a kernel that is a program, with its memory in a file of `/dev/shm`.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_machine::Program;

use crate::agent;
use crate::guest::Guest;
use crate::kernel::{modules_in, modules_of_uml};
use crate::start::{GuestDisk, GuestOptions, Launch, archive_file, launch};
use crate::xstate;

/// Bytes that may be under way on the line: its line discipline holds 4096, and stops for good when it is full.
const WINDOW_BYTES: usize = 3072;

/// The programs that it takes, with their packages.
const PROGRAMS: [(&str, &str); 2] = [("linux.uml", "user-mode-linux"), ("setarch", "util-linux")];

/// Ok if this machine has them. Fails with [`ErrorKind::Missing`] and what to do.
pub(crate) fn check_requirements() -> Result<()> {
    PROGRAMS.iter().try_for_each(|(name, package)| Program::find(name, package).map(drop))?;
    xstate::library().map(drop)
}

/// Ok if its kernel has the file system, as far as the modules that are installed for it say. Fails with
/// [`ErrorKind::Missing`] if it has not.
pub(crate) fn check_file_system(file_system: &str) -> Result<()> {
    modules_of(file_system).map(drop)
}

fn modules_of(file_system: &str) -> Result<Option<PathBuf>> {
    let kernel = Program::find("linux.uml", "user-mode-linux")?;
    modules_of_uml(kernel.version("--version").as_deref(), file_system)
}

/// Starts one, whose disk has this file system. Fails as [`Guest::start`].
pub(crate) fn start(file_system: &str, options: &GuestOptions<'_>) -> Result<Guest> {
    let kernel = Program::find("linux.uml", "user-mode-linux")?;
    let GuestDisk::File { path, .. } = options.disk else {
        let context = "User Mode Linux takes a file as its disk; QEMU takes NBD and vhost-user";
        return Err(Error::new(ErrorKind::Unsupported, context));
    };
    let disk = opened(path)?;
    let modules = modules_of(file_system)?;
    let modules = modules.map_or_else(|| Ok(Vec::new()), |folder| modules_in(&folder, file_system))?;
    let archive = archive_file(options.scratch, &agent::archive(&modules)?)?;
    let library = xstate::library()?;
    let (line, theirs) = UnixStream::pair().doing(|| "making the line to a guest".into())?;
    let mut environment = Vec::new();
    if let Some(library) = &library {
        environment.push(("LD_PRELOAD", format!("/proc/self/fd/{}", library.as_raw_fd())));
    }
    let mut command = vec!["setarch".into(), "-R".into(), kernel.path().into()];
    command.extend(
        [
            format!("mem={}K", options.memory_bytes >> 10),
            format!("initrd=/proc/self/fd/{}", archive.as_raw_fd()),
            "rdinit=/init".to_owned(),
            "con=null".to_owned(),
            "con0=null,fd:1".to_owned(),
            "ssl=null".to_owned(),
            format!("ssl0=fd:{}", theirs.as_raw_fd()),
            format!(
                "ubda{}=/proc/self/fd/{}",
                if options.writes_through { "s" } else { "" },
                disk.as_raw_fd()
            ),
            "umid=guest".to_owned(),
            "uml_dir=/dev/shm/".to_owned(),
        ]
        .map(Into::into),
    );
    let mut inherited: Vec<OwnedFd> = vec![theirs.into(), disk.into(), archive.into()];
    inherited.extend(library.map(OwnedFd::from));
    let launched = launch(Launch {
        command,
        inherited,
        environment,
        line,
        window_bytes: WINDOW_BYTES,
        disk: "/dev/ubda",
        restored_from: None,
        memory_bytes: options.memory_bytes,
        console: options.console,
        holds_dirty: options.holds_dirty,
        cancel: options.cancel,
    });
    launched.map(|(guest, _)| guest)
}

/// A file as the disk of a guest.
pub(crate) fn opened(path: &std::path::Path) -> Result<File> {
    let doing = || format!("opening {}, the disk of a guest", path.display());
    OpenOptions::new().read(true).write(true).open(path).doing(doing)
}
