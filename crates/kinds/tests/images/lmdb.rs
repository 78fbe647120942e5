//! Environments of LMDB against what its own tools say of them: `mdb_stat` counts pages of each tree and free ones, `mdb_dump` has
//! every key and value.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rotproof_kinds::{FileSystemKind, Map, ReadOnlyFile, ReadOptions, read};
use tempfile::TempDir;

fn run(program: &str, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} (lmdb-utils): {error}"));
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("ended");
    assert!(output.status.success(), "{program} {arguments:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn path_of(folder: &TempDir) -> &str {
    folder.path().to_str().expect("UTF-8")
}

/// Rows as `mdb_load` takes them, of these numbers. Every tenth value takes several pages.
fn rows(head: &str, numbers: impl Iterator<Item = u32>, version: u32) -> String {
    let mut text =
        format!("VERSION=3\nformat=print\ntype=btree\nmapsize=67108864\nmaxreaders=126\n{head}HEADER=END\n");
    for number in numbers {
        let key = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let length = if number.is_multiple_of(10) { 9000 } else { 50 + number as usize % 200 };
        let value = format!("{version}-{number:06}-").repeat(length / 9 + 1);
        let _ = write!(text, " {key:016x}-{number:06}\n {}\n", &value[..length]);
    }
    text + "DATA=END\n"
}

/// An environment with every kind of page: two databases with names, one with many values of one key, and free pages.
fn environment() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = path_of(&folder).to_owned();
    run("mdb_load", &["-s", "items", &path], &rows("", 0..3000, 1));
    run("mdb_load", &["-s", "items", &path], &rows("", (0..3000).step_by(3), 2));
    let mut many =
        "VERSION=3\nformat=print\ntype=btree\nmapsize=67108864\ndupsort=1\nHEADER=END\n".to_owned();
    for number in 0..4000 {
        let _ = write!(many, " key-{}\n value-{number:08}-of-many\n", number % 3);
    }
    run("mdb_load", &["-s", "many", &path], &(many + "DATA=END\n"));
    let data = folder.path().join("data.mdb");
    (folder, data)
}

fn map(path: &Path) -> Map {
    let source = ReadOnlyFile::open(path, false).expect("opened");
    let map = read(&source, ReadOptions { names: true }).expect("read");
    assert_eq!(map.file_system, FileSystemKind::Lmdb);
    assert_eq!(map.damages, [], "{}", path.display());
    map
}

/// Pages by kind and tree. The values of one key lie in a tree of their own, which is part of its database.
fn pages(map: &Map) -> BTreeMap<(&str, &str), u64> {
    let mut pages = BTreeMap::new();
    for extent in map.extents() {
        let name = map.name(extent.owner).unwrap_or_default();
        *pages.entry((name, extent.kind.word())).or_insert(0) += extent.length() / map.block_bytes;
    }
    pages
}

/// What `mdb_stat` says of one thing, by the words before the colon.
fn said(text: &str, of: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().skip_while(|line| *line != of).skip(1);
    let lines = lines.take_while(|line| line.starts_with(' '));
    lines
        .filter_map(|line| {
            let (words, number) = line.split_once(':')?;
            Some((words.trim().to_owned(), number.trim().parse().ok()?))
        })
        .collect()
}

#[test]
fn pages_are_as_many_of_each_kind_as_mdb_stat_says() {
    let (folder, data) = environment();
    let map = map(&data);
    let pages = pages(&map);
    let count = |name: &str, word: &str| pages.get(&(name, word)).copied().unwrap_or(0);
    let text = run("mdb_stat", &["-e", "-f", "-a", path_of(&folder)], "");
    for (of, name, words) in [
        ("Freelist Status", "free pages", ["free_tree_branch", "free_tree_leaf", "free_tree_pages"]),
        ("Status of Main DB", "main", ["branch_page", "leaf_page", "value_pages"]),
        ("Status of items", "items", ["branch_page", "leaf_page", "value_pages"]),
    ] {
        let said = said(&text, of);
        for (told, word) in ["Branch pages", "Leaf pages", "Overflow pages"].iter().zip(words) {
            assert_eq!(count(name, word), said[*told], "{of}, {told}: {text}");
        }
    }
    assert!(count("items", "branch_page") > 0 && count("items", "value_pages") > 300, "{pages:?}");
    assert!(count("many", "leaf_page") > 3, "three trees of values beside the keys: {pages:?}");
    let free = said(&text, "Freelist Status")["Free pages"];
    assert_eq!(count("", "free"), free);
    assert!(free > 100, "{pages:?}");
    assert_eq!(count("", "meta_page"), 2);
    assert_eq!(count("", "unknown"), 0, "{pages:?}");
    let used = said(&text, "Environment Info")["Number of pages used"];
    assert_eq!((map.size / map.block_bytes).min(used), used - count("", "unused"), "{text}");
}

#[test]
fn keys_and_values_lie_in_the_pages_that_are_said_to_hold_them() {
    let (folder, data) = environment();
    let (map, bytes) = (&map(&data), fs::read(&data).expect("readable"));
    let of = |word: &'static str| -> Vec<&[u8]> {
        let extents = map
            .extents()
            .iter()
            .filter(move |extent| extent.kind.word() == word && map.name(extent.owner) == Some("items"));
        extents.map(|extent| &bytes[extent.start as usize..extent.end as usize]).collect()
    };
    let (leaves, values) = (of("leaf_page").concat(), of("value_pages").concat());
    let has =
        |bytes: &[u8], text: &str| bytes.windows(text.len()).filter(|at| *at == text.as_bytes()).count();
    let dump = run("mdb_dump", &["-p", "-s", "items", path_of(&folder)], "");
    let lines: Vec<&str> = dump.lines().filter_map(|line| line.strip_prefix(' ')).collect();
    assert_eq!(lines.len(), 6000);
    for row in lines.chunks_exact(2).step_by(37) {
        assert!(has(&leaves, row[0]) >= 1, "{}", row[0]);
        let place = if row[1].len() > 2000 { &values } else { &leaves };
        assert!(has(place, row[1]) >= 1, "the value of {}", row[0]);
    }
}

#[test]
fn a_page_that_is_damaged_is_told_and_the_rest_is_read() {
    let (_folder, data) = environment();
    let whole = fs::read(&data).expect("readable");
    let map = map(&data);
    for word in ["meta_page", "branch_page", "leaf_page", "value_pages", "free_tree_leaf"] {
        let extent = map.extents().iter().find(|extent| extent.kind.word() == word).expect(word);
        let mut bytes = whole.clone();
        let at = extent.start as usize;
        bytes[at..at + 32].fill(0xA5);
        let damaged = read(&bytes, ReadOptions::default()).expect("the other meta is there");
        assert!(damaged.damages_count > 0, "{word}");
        assert_eq!(damaged.extents().last().map(|extent| extent.end), Some(map.size), "{word}");
    }
}
