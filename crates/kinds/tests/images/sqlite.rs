//! Databases of SQLite against what its own table `dbstat`, its own pointer maps and its own recovery say of them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rotproof_kinds::{FileSystemKind, Map, Owner, ReadOnlyFile, ReadOptions, read};
use tempfile::TempDir;

/// What the program answers to `script`, which is on its standard input.
fn sqlite(path: &Path, script: &str) -> String {
    let mut child = Command::new("sqlite3")
        .args(["-batch", "-bail", "-init", "/dev/null"])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sqlite3 starts");
    child.stdin.take().expect("piped").write_all(script.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("ended");
    assert!(output.status.success(), "{script}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn map(path: &Path) -> Map {
    let source = ReadOnlyFile::open(path, false).expect("opened");
    let map = read(&source, ReadOptions { names: true }).expect("read");
    assert_eq!(map.damages, [], "{}", path.display());
    map
}

/// A database with every kind of page but that of the locks.
fn database(page_bytes: u32, auto_vacuum: u32) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("some.db");
    sqlite(
        &path,
        &format!(
            "PRAGMA page_size = {page_bytes}; PRAGMA auto_vacuum = {auto_vacuum};
            CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, body TEXT);
            CREATE INDEX item_name ON item(name);
            CREATE TABLE pair(a TEXT, b TEXT, PRIMARY KEY(a, b)) WITHOUT ROWID;
            CREATE VIEW names AS SELECT name FROM item;
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
            INSERT INTO item SELECT i, printf('name-%060d', i * 7919 % 2003),
                hex(zeroblob(CASE WHEN i % 40 = 0 THEN 9000 ELSE 30 END)) FROM n;
            INSERT INTO pair SELECT name, hex(zeroblob(id % 7 * 900)) FROM item WHERE id < 300;
            DELETE FROM item WHERE id BETWEEN 400 AND 1200;\n"
        ),
    );
    (folder, path)
}

#[test]
fn every_page_is_what_dbstat_says() {
    for (page_bytes, auto_vacuum) in [(4096, 2), (4096, 0), (512, 2), (1024, 0), (65536, 2)] {
        let (_folder, path) = database(page_bytes, auto_vacuum);
        let map = map(&path);
        assert_eq!((map.file_system, map.block_bytes), (FileSystemKind::Sqlite, u64::from(page_bytes)));
        let said = sqlite(&path, "SELECT pageno, pagetype, name FROM dbstat;");
        let mut seen = BTreeMap::new();
        for line in said.lines() {
            let [page, kind, name] = line.split('|').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let page: u64 = page.parse().expect("a number");
            let extent = map.at((page - 1) * map.block_bytes).expect("there");
            let is_index = matches!(name, "item_name" | "pair");
            let word = match (page, kind, is_index) {
                (1, ..) => "database_header",
                (_, "internal", false) => "table_interior",
                (_, "leaf", false) => "table_leaf",
                (_, "internal", true) => "index_interior",
                (_, "leaf", true) => "index_leaf",
                (_, "overflow", _) => "overflow",
                _ => panic!("{line}"),
            };
            assert_eq!(extent.kind.word(), word, "{line}");
            assert_eq!(map.name(extent.owner), Some(name), "{line}");
            *seen.entry(word).or_insert(0) += 1;
        }
        let totals = map.totals();
        let pages = |word: &str| -> u64 {
            let of = totals.iter().filter(|(kind, _)| kind.word() == word);
            of.map(|(_, total)| total.bytes / map.block_bytes).sum()
        };
        for (word, count) in &seen {
            assert_eq!(pages(word), *count, "{word}");
        }
        let number = |pragma: &str| -> u64 {
            sqlite(&path, &format!("PRAGMA {pragma};")).trim().parse().expect("a number")
        };
        assert_eq!(pages("freelist_trunk") + pages("freelist_leaf"), number("freelist_count"));
        assert!(pages("freelist_trunk") > 0);
        assert_eq!(pages("pointer_map") > 0, auto_vacuum > 0);
        assert_eq!(pages("unknown") + pages("unused"), 0);
        assert_eq!(map.size / map.block_bytes, number("page_count"));
    }
}

/// SQLite writes down what every page is and who refers to it, for when it makes the file smaller.
#[test]
fn every_page_is_what_sqlites_own_pointer_maps_say() {
    let (_folder, path) = database(512, 2);
    let (map, bytes) = (map(&path), fs::read(&path).expect("readable"));
    let maps = map.extents().iter().filter(|extent| extent.kind.word() == "pointer_map");
    let mut checked = 0;
    for at in maps.map(|extent| extent.start) {
        for (index, entry) in bytes[at as usize..at as usize + 510].chunks_exact(5).enumerate() {
            let offset = at + (index as u64 + 1) * 512;
            let Some(extent) = map.at(offset) else { break };
            let root = extent.owner.tree.map(|root| (root - 1) * 512);
            let is_right = match entry[0] {
                1 => root == Some(offset),
                2 => extent.kind.word().starts_with("freelist_"),
                3 | 4 => extent.kind.word() == "overflow",
                5 => root.is_some_and(|root| root != offset) && extent.kind.word() != "overflow",
                _ => false,
            };
            assert!(is_right, "{offset}: {entry:?} {extent:?}");
            checked += 1;
        }
    }
    assert!(checked > 500, "{checked}");
}

#[test]
fn a_log_has_the_frames_that_sqlite_takes_from_it() {
    let (folder, path) = database(4096, 2);
    sqlite(
        &path,
        ".dbconfig no_ckpt_on_close on\nPRAGMA journal_mode = wal;
        UPDATE item SET name = name || 'x' WHERE id < 60; DELETE FROM pair WHERE b = '';\n",
    );
    let log = folder.path().join("some.db-wal");
    let map = map(&log);
    assert_eq!(map.file_system, FileSystemKind::SqliteWal);
    let totals = map.totals();
    let frames = |word: &str| -> u64 {
        let of = totals.iter().filter(|(kind, _)| kind.word() == word);
        of.map(|(_, total)| total.bytes / (4096 + 24)).sum()
    };
    assert_eq!(frames("wal_commit"), 2, "the change of the mode is in the database itself");
    let all = frames("wal_commit") + frames("wal_frame");
    let said = sqlite(&path, ".dbconfig no_ckpt_on_close on\nPRAGMA wal_checkpoint;\n");
    assert!(said.ends_with(&format!("0|{all}|{all}\n")), "{all}: {said}");
}

/// The second reader is SQLite's rollback: it must bring back what the records hold, page by page.
#[test]
fn a_journal_has_the_records_that_sqlite_rolls_back() {
    let (folder, path) = database(1024, 0);
    let before = fs::read(&path).expect("readable");
    // The program is killed within a transaction whose first half is written already.
    let mut child = Command::new("sqlite3")
        .args(["-batch", "-init", "/dev/null"])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sqlite3 starts");
    let mut input = child.stdin.take().expect("piped");
    input
        .write_all(b"PRAGMA cache_size = 5; BEGIN; UPDATE item SET body = body || 'y'; SELECT 'there';\n")
        .expect("written");
    input.flush().expect("flushed");
    let mut answer = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut answer).expect("answered");
    child.kill().expect("killed");
    child.wait().expect("ended");
    let mut database = fs::read(&path).expect("readable");
    assert_ne!(database, before);
    let journal = folder.path().join("some.db-journal");
    let (map, bytes) = (map(&journal), fs::read(&journal).expect("readable"));
    assert_eq!(map.file_system, FileSystemKind::SqliteJournal);
    let count = |word: &str| map.extents().iter().filter(|extent| extent.kind.word() == word).count();
    assert!(count("rollback_header") > 1 && count("rollback_record") > 0);
    for extent in map.extents().iter().filter(|extent| extent.kind.word() == "rollback_record") {
        for record in bytes[extent.start as usize..extent.end as usize].chunks_exact(1024 + 8) {
            let page = u32::from_be_bytes(record[..4].try_into().expect("four")) as usize;
            database[(page - 1) * 1024..page * 1024].copy_from_slice(&record[4..1028]);
        }
    }
    database.truncate(before.len());
    sqlite(&path, "SELECT count(*) FROM item;");
    // Pages that were free are not written down before they are used, so `before` differs in those.
    assert!(fs::read(&path).expect("readable") == database, "SQLite's rollback comes to the same");
}

#[test]
fn what_is_damaged_is_told_or_unknown_and_never_a_panic() {
    let (_folder, path) = database(1024, 2);
    let good = fs::read(&path).expect("readable");
    let whole = map(&path);
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut told = 0;
    for _ in 0..300 {
        let mut bytes = good.clone();
        for _ in 0..3 {
            let page = random(bytes.len() / 1024) * 1024;
            bytes[page + random(40)] = random(256) as u8;
        }
        if let Ok(map) = read(&bytes, ReadOptions { names: true }) {
            assert_eq!(
                map.extents().iter().map(rotproof_kinds::Extent::length).sum::<u64>(),
                bytes.len() as u64
            );
            told += usize::from(map.damages_count > 0);
        }
    }
    assert!(told > 50, "{told}");
    let owner = Owner { inode: None, tree: Some(1) };
    assert_eq!(whole.name(owner), Some("sqlite_schema"));
}
