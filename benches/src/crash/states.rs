//! States looked at for each second by one worker, against a plain loop that copies an image, attaches it, mounts it, looks at
//! its files and unmounts it. Both with and without the file system's own checker, and on the same images.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_crash::recording::Reader;
use rotproof_crash::{Check, Crash, StateOptions, States, Way, marks};
use rotproof_crash_fs::operations::{Operation, Persist, Step};
use rotproof_crash_fs::{Blank, MountCheck, Promise, SequenceOptions, TreeOracle, run_sequence};
use rotproof_export::{LoopDevice, LoopOptions};
use rotproof_machine::registry::{Registry, Run};
use rotproof_machine::{Cancel, Program};
use rotproof_subject::{FileSystem, mount, unmount};
use tempfile::TempDir;

use crate::figure::{Bar, Figure, in_turns};
use crate::{Effort, machine};

/// Bar: so many times the plain loop.
const TIMES_MIN: f64 = 5.0;
/// States of one round.
const STATES: usize = 60;

/// Measures each file system that has its programs here.
pub(super) fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    for kind in [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs] {
        let folder = TempDir::new_in("/dev/shm").map_err(machine::no_folder)?;
        let state = folder.path().join("registry");
        std::fs::create_dir(&state).map_err(machine::no_folder)?;
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).map_err(machine::no_folder)?;
        let run = Registry::at(&state)?.begin()?;
        let measured = measure(kind, folder.path(), &run, effort, found);
        let left = run.finish();
        measured?;
        left.into_iter().next().map_or(Ok(()), Err)?;
    }
    Ok(())
}

fn measure(
    kind: FileSystem,
    folder: &Path,
    run: &Run,
    effort: Effort,
    found: &mut dyn FnMut(Figure),
) -> Result<()> {
    let blank = Blank::make(kind, folder)?;
    let steps = [
        Step { operation: Operation::Append("A/foo"), persist: Persist::Fsync("A/foo") },
        Step { operation: Operation::Rename("A/foo", "A/bar"), persist: Persist::Sync },
    ];
    let options = SequenceOptions { folder, name: "sequence", id: 1, mount: &[] };
    let done = run_sequence(run, &blank, &steps, options)?;
    let states = StateOptions {
        base: Some(blank.image.clone()),
        begin: done.begin,
        ways: vec![Way::PrefixAtBarrier, Way::PersistencePoints, Way::SingleWrites, Way::Subsets],
        states_max: STATES as u64,
        ..StateOptions::new(&done.recording, 1)
    };
    let marks = marks(Reader::open(&done.recording)?)?;
    for (name, runs_checker, bar) in
        [("", false, Some(Bar::AtLeast(TIMES_MIN))), (", with its checker", true, None)]
    {
        let mut scenes = 0;
        let mut rounds = Vec::new();
        // The images, once: what the plain loop copies.
        let mut images = States::new(states.clone())?;
        let mut files: Vec<PathBuf> = Vec::new();
        while let Some((_, state)) = images.next_state()? {
            let path = folder.join(format!("{}-{}.img", name.len(), files.len()));
            images.contents().write_image(&state.image.snapshot, &path)?;
            files.push(path);
        }
        for round in 0..effort.rounds {
            scenes += 1;
            let scene = format!("{}-{}-{scenes}", kind.name(), name.len());
            let ours = || -> Result<f64> {
                let mut list = States::new(states.clone())?;
                let oracle = Box::new(TreeOracle::new(&steps, Promise::of(kind, &[])));
                let contents = Arc::clone(list.contents());
                let mut check = MountCheck::new(run, &scene, contents, kind, runs_checker, oracle)?;
                let began = Instant::now();
                let mut looked = 0;
                while let Some((_, state)) = list.next_state()? {
                    check.image().show(state.image.snapshot.clone());
                    let position = state.description.position;
                    let before = marks.partition_point(|mark| mark.position < position);
                    let crash = Crash { state: &state.description, marks: &marks[..before] };
                    let findings = check.check(&crash)?;
                    if !findings.is_empty() {
                        let what = format!("a state fails: {}", findings[0].words);
                        return Err(Error::new(ErrorKind::Internal, what));
                    }
                    looked += 1;
                }
                Ok(f64::from(looked) / began.elapsed().as_secs_f64())
            };
            let plain = || plain(kind, &files, folder, runs_checker);
            rounds.push(in_turns(round, ours, plain)?);
        }
        for file in &files {
            std::fs::remove_file(file).map_err(machine::no_folder)?;
        }
        let name = format!("states of {} by one worker{name}", kind.name());
        found(Figure::from_rounds(name, "1/s", &rounds, bar));
    }
    Ok(())
}

/// Copies each image, attaches it, mounts it, looks at its files, unmounts it; states for each second.
fn plain(kind: FileSystem, images: &[PathBuf], folder: &Path, runs_checker: bool) -> Result<f64> {
    let mountpoint = folder.join("plain");
    std::fs::create_dir_all(&mountpoint).map_err(machine::no_folder)?;
    let copy = folder.join("copy.img");
    let checker = match kind {
        FileSystem::Ext4 => (Program::find("e2fsck", "e2fsprogs")?, &["-f", "-n"][..]),
        FileSystem::Xfs => (Program::find("xfs_repair", "xfsprogs")?, &["-n"][..]),
        FileSystem::Btrfs => (Program::find("btrfs", "btrfs-progs")?, &["check", "--readonly"][..]),
        FileSystem::Jfs | FileSystem::F2fs => {
            let message = format!("states of {} are not looked at: its kernel is a guest's", kind.name());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    };
    let options = match kind {
        FileSystem::Xfs => vec!["nouuid".to_owned()],
        FileSystem::Ext4 | FileSystem::Btrfs | FileSystem::Jfs | FileSystem::F2fs => Vec::new(),
    };
    let began = Instant::now();
    for image in images {
        // As cp does: holes become zeros where the file system cannot share them.
        std::fs::copy(image, &copy).map_err(machine::no_folder)?;
        let options_of_loop = LoopOptions { direct_io: false, read_only: false, block_size: Some(512) };
        let device = LoopDevice::attach(&copy, options_of_loop)?;
        mount(kind.name(), device.path(), &mountpoint, &options)?;
        let looked = look(&mountpoint);
        unmount(kind, &[device.path().to_owned()], &mountpoint)?;
        if runs_checker {
            let path = device.path().to_string_lossy().into_owned();
            let words: Vec<&str> = checker.1.iter().copied().chain([path.as_str()]).collect();
            checker.0.start(&words)?.wait(&Cancel::new())?;
        }
        device.detach()?;
        looked?;
        std::fs::remove_file(&copy).map_err(machine::no_folder)?;
    }
    Ok(images.len() as f64 / began.elapsed().as_secs_f64())
}

/// Reads everything.
fn look(folder: &Path) -> Result<()> {
    let doing = |error: std::io::Error| Error::from_io(error, format!("looking at {}", folder.display()));
    for entry in std::fs::read_dir(folder).map_err(doing)? {
        let path = entry.map_err(doing)?.path();
        match path.symlink_metadata().map_err(doing)? {
            about if about.is_dir() => look(&path)?,
            about if about.is_file() => drop(std::fs::read(&path).map_err(doing)?),
            _ => {}
        }
    }
    Ok(())
}
