//! `rotproof guard run`: a program whose reads and writes below a guarded directory pass through the guard's library.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind};
use rotproof_guard::walk::{files_below, open_to_read};
use rotproof_guard::{GuardedFile, Store};

use super::args::RunArgs;
use super::{mirror_of, volume_of};
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::signals::cancel_on_signals;

/// The library that is put in front of the C library.
const LIBRARY: &str = "librotproof_guard_preload.so";
/// Says where it is, if not beside this program.
const LIBRARY_VARIABLE: &str = "ROTPROOF_GUARD_PRELOAD";
/// Descriptors that a program may have: guarded files take some of the guard's own, above those that the program knows.
const DESCRIPTORS: libc::rlim_t = 16384;
/// How often is looked whether the program has ended or this one is to.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Runs the command, and ends as it does.
pub fn run(args: &RunArgs) -> Result<Exit, CommandError> {
    let directory = match &args.directory {
        Some(directory) => directory.clone(),
        None => guarded_around()?,
    };
    let store = Store::open(&directory, args.store.as_deref())?;
    let mirror = mirror_of(args.mirror.as_deref())?;
    let library = library()?;
    let Some((program, words)) = args.command.split_first() else {
        return Err(Error::new(ErrorKind::Invalid, "no command was given; it follows `--`").into());
    };
    refuse_static(program)?;
    let cancel = cancel_on_signals()?;
    let mut command = Command::new(program);
    command.args(words).env("LD_PRELOAD", preload(&library)).env("ROTPROOF_GUARD_ROOT", store.root());
    let folder = store.folder();
    let folder = folder.canonicalize().doing(|| format!("looking at {}", folder.display()))?;
    command.env("ROTPROOF_GUARD_STORE", folder);
    match &mirror {
        Some(mirror) => command.env("ROTPROOF_GUARD_MIRROR", mirror),
        None => command.env_remove("ROTPROOF_GUARD_MIRROR"),
    };
    match volume_of(args.volume.as_deref())? {
        Some(volume) => command.env("ROTPROOF_GUARD_VOLUME", volume),
        None => command.env_remove("ROTPROOF_GUARD_VOLUME"),
    };
    // SAFETY: a plain system call in the child.
    unsafe { command.pre_exec(raise_descriptors) };
    let mut child =
        command.spawn().map_err(|error| Error::from_io(error, format!("starting {}", program.display())))?;
    let mut told = None;
    let ended = loop {
        if let Some(ended) = child.try_wait().doing(|| "waiting for the command".to_owned())? {
            break ended;
        }
        // Of a Ctrl-C the terminal has told the command itself; whoever else signals means it too.
        if let Some(signal) = cancel.signal().filter(|signal| told != Some(*signal)) {
            // SAFETY: a child that was not waited for yet.
            unsafe { libc::kill(child.id().cast_signed(), signal) };
            told = Some(signal);
        }
        std::thread::sleep(LOOK_EVERY);
    };
    settle(&store);
    let code = ended.code().unwrap_or_else(|| 128 + ended.signal().unwrap_or(0));
    if code == 0 {
        return Ok(Exit::Pass);
    }
    drop(store);
    // The command's own code, which need not be one of ours.
    std::process::exit(code)
}

/// The guarded directory around the current one.
fn guarded_around() -> Result<PathBuf, Error> {
    let here = std::env::current_dir().doing(|| "looking at the current directory".to_owned())?;
    let found = here.ancestors().find(|folder| folder.join(rotproof_guard::store::FOLDER).is_dir());
    found.map(Path::to_owned).ok_or_else(|| {
        let what = format!("{} is not inside of a guarded directory; name it before `--`", here.display());
        Error::new(ErrorKind::Invalid, what)
    })
}

/// Where the library is: named, beside this program, or in the folder of libraries beside that.
fn library() -> Result<PathBuf, Error> {
    if let Some(named) = std::env::var_os(LIBRARY_VARIABLE) {
        let named = PathBuf::from(named);
        let what = || format!("{LIBRARY_VARIABLE} names {}", named.display());
        return named.canonicalize().map_err(|error| Error::from_io(error, what()));
    }
    let here = std::env::current_exe().doing(|| "looking where this program is".to_owned())?;
    let folder = here.parent().unwrap_or(Path::new("/"));
    let places = [
        folder.join(LIBRARY),
        folder.join("../lib/rotproof").join(LIBRARY),
        folder.join("../lib").join(LIBRARY),
    ];
    let found = places.iter().find(|place| place.is_file());
    found.and_then(|place| place.canonicalize().ok()).ok_or_else(|| {
        let what = format!(
            "{LIBRARY} is not beside {}; build it with `cargo build --release -p rotproof-guard-preload`, or name it in {LIBRARY_VARIABLE}",
            here.display()
        );
        Error::new(ErrorKind::Missing, what)
    })
}

/// In front of what others want to be loaded.
fn preload(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// A program without a dynamic linker would run past the guard.
fn refuse_static(program: &OsStr) -> Result<(), Error> {
    let Some(path) = find(program) else { return Ok(()) };
    let mut head = Vec::new();
    let read = std::fs::File::open(&path).and_then(|file| file.take(1 << 16).read_to_end(&mut head));
    if read.is_ok() && is_static(&head) {
        let what = format!(
            "{} is statically linked, so the guard cannot stand in front of its calls; use `rotproof guard mount`",
            path.display()
        );
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    Ok(())
}

/// The file that a shell would run.
fn find(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Some(path.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(path)).find(|file| file.is_file())
}

/// Whether the beginning of a file is that of an ELF program of 64 bits that names no dynamic linker.
fn is_static(head: &[u8]) -> bool {
    const INTERPRETER: u32 = 3;
    let half =
        |at: usize| head.get(at..at + 2).map(|bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])));
    let word = |at: usize| {
        head.get(at..at + 4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return false;
    }
    let (Some(start), Some(size), Some(count)) = (word(32), half(54), half(56)) else { return false };
    let mut kinds = (0..count).map(|at| word(start as usize + at * size));
    // What is behind the part that was read is not judged.
    !kinds.any(|kind| kind.is_none_or(|kind| kind == INTERPRETER))
}

fn raise_descriptors() -> std::io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a structure of this frame. Without more descriptors fewer files can be open at once.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_cur.max(limit.rlim_max.min(DESCRIPTORS));
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
    Ok(())
}

/// What programs that were killed have left in memory goes to the tables.
fn settle(store: &Arc<Store>) {
    let left: HashSet<u64> = store.live_inodes().into_iter().collect();
    if left.is_empty() {
        return;
    }
    let (files, _) = files_below(store, store.root());
    for found in files.iter().filter(|found| left.contains(&found.inode)) {
        let opened = open_to_read(&found.path)
            .and_then(|file| GuardedFile::open(store, file.as_raw_fd(), false, &found.path));
        // Whoever opens it next tries again; a process in the background may have it open too.
        drop(opened);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(kinds: &[u32]) -> Vec<u8> {
        let mut head = vec![0; 64 + kinds.len() * 56];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[32] = 64;
        head[54] = 56;
        head[56] = kinds.len() as u8;
        for (at, kind) in kinds.iter().enumerate() {
            head[64 + at * 56..68 + at * 56].copy_from_slice(&kind.to_le_bytes());
        }
        head
    }

    #[test]
    fn only_a_program_that_names_no_dynamic_linker_is_static() {
        assert!(is_static(&program(&[1, 1, 4])));
        assert!(!is_static(&program(&[6, 3, 1])));
        assert!(!is_static(&program(&[1, 1])[..100]), "what was cut off is not judged");
        assert!(!is_static(b"#!/bin/sh\n"));
        assert!(!is_static(&[]));
    }
}
