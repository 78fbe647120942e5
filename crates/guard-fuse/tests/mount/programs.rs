//! Programs that know nothing of the guard, unchanged; and what they are told when a bit flips below them.

use std::path::Path;

use rotproof_guard_fuse::MountOptions;

use crate::rig::{Rig, bytes};
use crate::scripts::{COMPILER, COPIES, GIT, Postgres, database, need, postgres, run};

fn good(folder: &Path, script: &str) -> String {
    let (is_good, text) = run(folder, &[], script);
    assert!(is_good, "{script}: {text}");
    text
}

#[test]
fn git_works_and_a_flip_in_its_pack_is_an_error() {
    need("git", "git");
    let rig = Rig::new();
    std::fs::write(rig.path("large"), bytes(1, 300_000)).expect("written");
    good(&rig.path(""), GIT);
    rig.assert_all_verified();
    let pack = good(&rig.path(""), "ls .git/objects/pack/*.pack");
    good(&rig.path(""), "sync -f .");
    rig.flip_on_disk(pack.trim(), 10 * 4096 * 8);
    let (is_good, text) = run(&rig.path(""), &[], "git fsck --full");
    assert!(!is_good && rig.store.counts.now().refused > 0, "{text}");
}

#[test]
fn a_database_works_in_both_of_its_modes_and_a_flip_is_an_error() {
    need("sqlite3", "sqlite3");
    let rig = Rig::new();
    for mode in ["delete", "wal"] {
        let text = good(&rig.path(""), &database(mode));
        assert!(text.contains("ok\n2000"), "{text}");
    }
    rig.assert_all_verified();
    good(&rig.path(""), "sync -f .");
    rig.flip_on_disk("delete.db", 20 * 4096 * 8 + 99);
    let (is_good, text) = run(&rig.path(""), &[], "sqlite3 delete.db 'select sum(length(b)) from t;'");
    // SQLite calls EIO of a read a malformed database.
    assert!(!is_good && rig.store.counts.now().refused > 0, "{text}");
}

#[test]
fn postgresql_works_and_a_flip_in_its_table_is_an_error() {
    need("pg_ctlcluster", "postgresql");
    let rig = Rig::with(MountOptions { allow_other: true, ..MountOptions::default() });
    let script = |step| postgres(&rig.path(""), "", None, step);
    let text = good(&rig.path(""), &script(Postgres::Make));
    rig.assert_all_verified();
    let table = format!("pg/{}", text.lines().last().expect("where the table is"));
    rig.flip_on_disk(&table, 16 * 4096 * 8 + 12_345);
    let (is_good, text) = run(&rig.path(""), &[], &script(Postgres::Read));
    assert!(!is_good && text.contains("Input/output error"), "{text}");
    assert!(rig.store.counts.now().refused > 0, "{text}");
}

#[test]
fn archives_and_copies_come_back() {
    need("rsync", "rsync");
    let rig = Rig::new();
    good(&rig.path(""), COPIES);
    rig.assert_all_verified();
}

#[test]
fn a_compiler_works() {
    need("cc", "gcc");
    let rig = Rig::new();
    assert_eq!(good(&rig.path(""), COMPILER), "built\n");
    rig.assert_all_verified();
}
