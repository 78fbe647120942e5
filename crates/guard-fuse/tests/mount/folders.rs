//! Folders that many make, fill, empty and remove at once, again and again: their inodes are used anew at once.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::rig::Rig;

const WORKERS: usize = 5;
const ROUNDS: usize = 12;
const ENTRIES: usize = 24;

/// Goes into a folder: this thread alone.
fn go_into(folder: &str) {
    std::env::set_current_dir(folder).unwrap_or_else(|error| panic!("into {folder}: {error}"));
}

/// What a worker does in a folder of its own: files, folders and links, renamed over each other, and all removed.
fn fill_and_empty(round: usize) {
    let name = |entry: usize| format!("entry-{entry}");
    for entry in 0..ENTRIES {
        let name = name(entry);
        match entry % 3 {
            0 => drop(File::create_new(&name).unwrap_or_else(|error| panic!("{name}: {error}"))),
            1 => fs::create_dir(&name).unwrap_or_else(|error| panic!("{name}: {error}")),
            _ => symlink(&name, &name).unwrap_or_else(|error| panic!("{name}: {error}")),
        }
    }
    for entry in 0..ENTRIES {
        // Some of these are refused: a folder over a file, or the other way round.
        let _ = fs::rename(name(entry), name((entry * 7 + round) % ENTRIES));
    }
    for name in (0..ENTRIES).map(name) {
        let Ok(found) = fs::symlink_metadata(&name) else { continue };
        let removed = if found.is_dir() { fs::remove_dir(&name) } else { fs::remove_file(&name) };
        removed.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// What the workers have in common.
struct Team {
    meeting: Barrier,
    /// How often the shared folder was made.
    made: AtomicUsize,
    has_failed: AtomicBool,
}

/// One worker's part of a round: makes the shared folder, or finds it, and has one of its own in it for a while.
fn visit(folder: &Path, worker: usize, round: usize, team: &Team) {
    go_into(&folder.to_string_lossy());
    match fs::create_dir("shared") {
        Ok(()) => drop(team.made.fetch_add(1, Ordering::SeqCst)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => panic!("shared, round {round}: {error}"),
    }
    go_into("shared");
    let own = format!("own-{worker}");
    fs::create_dir(&own).unwrap_or_else(|error| panic!("{own} in shared, round {round}: {error}"));
    go_into(&own);
    fill_and_empty(round);
    go_into("..");
    fs::remove_dir(&own).unwrap_or_else(|error| panic!("{own}, round {round}: {error}"));
    go_into("..");
}

fn work(folder: &Path, worker: usize, team: &Team) {
    // SAFETY: takes a number. From here on this thread has a working directory of its own.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_FS) }, 0, "as root");
    for round in 0..ROUNDS {
        let visited = catch_unwind(AssertUnwindSafe(|| visit(folder, worker, round, team)));
        if visited.is_err() {
            team.has_failed.store(true, Ordering::SeqCst);
        }
        // Nobody comes late into a folder that the last one has removed, and nobody waits for one who has failed.
        team.meeting.wait();
        let _ = fs::remove_dir(folder.join("shared"));
        team.meeting.wait();
        if let Err(panic) = visited {
            resume_unwind(panic);
        }
        if team.has_failed.load(Ordering::SeqCst) {
            return;
        }
    }
}

#[test]
fn a_folder_that_was_removed_and_made_anew_is_as_good_as_any() {
    let rig = Rig::new();
    let folder = rig.path("");
    let team = Team {
        meeting: Barrier::new(WORKERS),
        made: AtomicUsize::new(0),
        has_failed: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (folder, team) = (&folder, &team);
            scope.spawn(move || work(folder, worker, team));
        }
    });
    assert_eq!(team.made.into_inner(), ROUNDS, "by one worker in each round");
    assert_eq!(fs::read_dir(&folder).expect("read").count(), 0);
    rig.assert_all_verified();
}
