//! Taking in, checking, repairing, accepting, telling.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rotproof_guard::Store;
use rotproof_guard::check::{BlockPlace, CheckOptions, CheckProgress, CheckReport, check};
use rotproof_guard::status::{export, status};
use rotproof_guard::take::{TakeIn, TakeProgress, TakeReport, take_in};

use crate::rig::{Rig, bytes};

fn take(store: &Arc<Store>, what: TakeIn) -> TakeReport {
    let from = [store.root().to_owned()];
    take_in(store, &from, what, 2, &TakeProgress::default(), &AtomicBool::new(false)).expect("taken in")
}

fn look(store: &Arc<Store>) -> CheckReport {
    let options = CheckOptions { rate_max: None, threads: 2 };
    let from = [store.root().to_owned()];
    check(store, &from, options, &CheckProgress::default(), &AtomicBool::new(false)).expect("checked")
}

fn place(file: &str, block: u64) -> BlockPlace {
    BlockPlace { file: file.to_owned(), block }
}

/// Some files, one of them twice, one with a hole.
fn fill(rig: &Rig) {
    std::fs::create_dir_all(rig.path("d/e")).expect("folders");
    for (number, (name, length)) in
        [("a", 0), ("b", 1), ("d/c", 4096), ("d/e/f", 1_300_000), ("g", 12_345)].into_iter().enumerate()
    {
        std::fs::write(rig.path(name), bytes(number as u64, length)).expect("written");
    }
    std::fs::hard_link(rig.path("g"), rig.path("d/g")).expect("a link");
    std::os::unix::fs::symlink("g", rig.path("s")).expect("a link");
    let sparse = std::fs::File::create(rig.path("hole")).expect("made");
    sparse.set_len(3 << 20).expect("sparse");
}

#[test]
fn of_a_large_file_every_block_is_vouched_for() {
    let rig = Rig::new();
    let large = std::fs::File::create(rig.path("large")).expect("made");
    large.set_len(600 << 20).expect("sparse");
    for block in [0, 65_530, 65_536, 131_071, 150_000] {
        large.write_all_at(&bytes(block, 4096), block * 4096).expect("written");
    }
    let store = rig.store();
    assert_eq!(take(&store, TakeIn::Unknown).taken_in, 1);
    let report = look(&store);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.blocks, 600 << 8);
}

#[test]
fn existing_files_are_taken_in_once_and_then_every_block_is_vouched_for() {
    let rig = Rig::new();
    fill(&rig);
    let store = rig.store();
    let report = look(&store);
    assert_eq!(report.unguarded.len(), 5, "{report:?}");
    let taken = take(&store, TakeIn::Unknown);
    assert_eq!((taken.files, taken.taken_in, taken.busy.len(), taken.failed.len()), (6, 5, 0, 0));
    assert_eq!(take(&store, TakeIn::Unknown).taken_in, 0, "goes on where it was");
    let report = look(&store);
    assert!(report.is_clean() && report.is_complete, "{report:?}");
    assert_eq!((report.files, report.blocks), (6, 1 + 1 + 318 + 4 + 768));
    // All in a new session, as after a restart.
    rig.lose_power(store, Vec::new());
    let store = rig.store();
    let report = look(&store);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(store.counts.now().torn, 0);
}

#[test]
fn taking_in_stops_when_asked_and_goes_on_later() {
    let rig = Rig::new();
    fill(&rig);
    let store = rig.store();
    let from = [store.root().to_owned()];
    let stopped =
        take_in(&store, &from, TakeIn::Unknown, 1, &TakeProgress::default(), &AtomicBool::new(true));
    assert!(!stopped.expect("stopped").is_complete);
    assert_eq!(take(&store, TakeIn::Unknown).taken_in, 5);
}

#[test]
fn a_check_finds_rot_on_the_disk_below_a_right_cache_and_mends_it() {
    let rig = Rig::new();
    fill(&rig);
    let store = rig.store();
    take(&store, TakeIn::Unknown);
    rig.flip_on_disk("d/e/f", 70 * 4096 * 8 + 9);
    let report = look(&store);
    assert_eq!((report.rotten, report.rotten_count), (vec![place("d/e/f", 70)], 1));
    let mirror = tempfile::tempdir().expect("a mirror");
    std::fs::create_dir_all(mirror.path().join("d/e")).expect("folders");
    std::fs::write(mirror.path().join("d/e/f"), bytes(3, 1_300_000)).expect("a copy");
    store.set_mirror(Some(mirror.path().to_owned()));
    let report = look(&store);
    assert_eq!((report.repaired, report.rotten_count), (vec![place("d/e/f", 70)], 0));
    assert!(std::fs::read(rig.path("d/e/f")).expect("read") == bytes(3, 1_300_000));
    store.set_mirror(None);
    assert!(look(&store).is_clean());
}

#[test]
fn what_was_changed_behind_the_guards_back_is_named_and_accepted() {
    let rig = Rig::new();
    fill(&rig);
    let store = rig.store();
    take(&store, TakeIn::Unknown);
    std::fs::write(rig.path("d/c"), b"new").expect("changed");
    std::fs::write(rig.path("new"), b"new").expect("made");
    let report = look(&store);
    assert_eq!((report.foreign.clone(), report.unguarded.clone()), (vec!["d/c".into()], vec!["new".into()]));
    // It stays so until somebody says that it is right.
    assert_eq!(look(&store).foreign, report.foreign);
    assert_eq!(take(&store, TakeIn::Changed).taken_in, 2);
    let report = look(&store);
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn a_rotten_block_that_is_accepted_is_right_from_then_on() {
    let rig = Rig::new();
    fill(&rig);
    let store = rig.store();
    take(&store, TakeIn::Unknown);
    rig.flip_on_disk("g", 77);
    assert_eq!(look(&store).rotten_count, 1);
    assert_eq!(take(&store, TakeIn::Changed).taken_in, 0, "rot is not accepted by the way");
    let named: Vec<PathBuf> = vec![rig.path("g")];
    take_in(&store, &named, TakeIn::All, 1, &TakeProgress::default(), &AtomicBool::new(false))
        .expect("accepted");
    assert!(look(&store).is_clean());
}

#[test]
fn tables_of_files_that_are_gone_are_removed() {
    let rig = Rig::new();
    fill(&rig);
    let store = rig.store();
    take(&store, TakeIn::Unknown);
    std::fs::remove_file(rig.path("d/e/f")).expect("deleted");
    assert_eq!(look(&store).tables_removed, 1);
    assert_eq!(look(&store).tables_removed, 0);
}

#[test]
fn status_and_export_tell_what_there_is() {
    let rig = Rig::new();
    fill(&rig);
    let store = rig.store();
    std::fs::write(rig.path("late"), b"late").expect("made");
    let told = status(&store).expect("status");
    assert_eq!((told.files, told.guarded, told.unguarded.len()), (7, 1, 6), "only the empty file: {told:?}");
    take(&store, TakeIn::Unknown);
    let told = status(&store).expect("status");
    assert_eq!((told.guarded, told.unguarded.len(), told.light, told.switch_seconds), (7, 0, "xor-64", None));
    let mut files = Vec::new();
    export(&store, &mut |file| {
        files.push(file);
        Ok(true)
    })
    .expect("exported");
    let small = files.iter().find(|file| file.file == "d/c").expect("exported");
    let sum = rotproof_guard::Algorithm::Xxh3.of(&bytes(2, 4096));
    assert_eq!(small.strong, [Some(sum.to_string())]);
    assert_eq!(files.iter().map(|file| file.strong.len()).sum::<usize>(), 1 + 1 + 318 + 4 + 768 + 1);
}

#[test]
fn what_was_verified_is_counted_for_all_processes_and_sessions() {
    let rig = Rig::new();
    let data = bytes(9, 40_960);
    let read = |times: usize| {
        let store = rig.store();
        let file = rig.open(&store, "a");
        let mut data = vec![0; data.len()];
        for _ in 0..times {
            assert_eq!(file.read_at(&mut data, 0).expect("read"), 40_960);
        }
        store.counts_of_all()
    };
    {
        let store = rig.store();
        let file = rig.open(&store, "a");
        file.write_at(&data, 0).expect("written");
        file.sync(false).expect("durable");
    }
    let first = read(1);
    // By the strong sum, since the file was opened anew; on their way, when they were made durable.
    assert_eq!((first.strong, first.light), (10, 0));
    assert!(first.boundary >= 10, "{first:?}");
    let second = read(3);
    assert_eq!((second.strong, second.light, second.boundary), (20, 20, first.boundary));
    // A session that has not ended counts too, and nothing twice.
    let store = rig.store();
    let file = rig.open(&store, "a");
    let mut once = [0; 4096];
    file.read_at(&mut once, 0).expect("read");
    let other = rig.store();
    store.tell_counts();
    store.tell_counts();
    assert_eq!(other.counts_of_all().strong, 21);
    assert_eq!(status(&other).expect("told").verified.light, 20);
    // Nothing hangs on the file.
    std::fs::write(store.folder().join("counts"), b"{").expect("damaged");
    assert_eq!(other.counts_of_all().light, 0);
}
