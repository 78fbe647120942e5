//! `ARCHITECTURE.md` against the workspace: its table lists every crate, and dependencies point down it.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The crates of the table, the highest first.
fn listed() -> Vec<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("a page");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    rows.map(|(name, _)| name.to_owned()).collect()
}

/// The crates of ours that the one called `name` stands on; its tests may look further.
fn stands_on(name: &str) -> Vec<String> {
    let path = root().join("crates").join(name).join("Cargo.toml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let from = text.find("\n[dependencies]").map_or("", |at| &text[at + 1..]);
    let own = from.split("\n[").next().unwrap_or("");
    let is_of_name = |letter: &char| letter.is_ascii_lowercase() || *letter == '-';
    let crates = own.split("rotproof-").skip(1);
    crates.map(|rest| rest.chars().take_while(is_of_name).collect()).collect()
}

#[test]
fn the_table_lists_every_crate() {
    let entries = fs::read_dir(root().join("crates")).expect("the crates").flatten();
    let mut there: Vec<String> =
        entries.map(|entry| entry.file_name().into_string().expect("UTF-8")).collect();
    let mut listed = listed();
    there.sort();
    listed.sort();
    assert_eq!(listed, there);
}

#[test]
fn dependencies_point_down_the_table() {
    let listed = listed();
    let floor = |name: &str| listed.iter().position(|other| other == name);
    let (mut walls, mut broken) = (0, Vec::new());
    for name in &listed {
        for other in stands_on(name) {
            walls += 1;
            if floor(&other) <= floor(name) {
                broken.push(format!("{name} on {other}"));
            }
        }
    }
    assert!(walls > 50, "only {walls} dependencies were found");
    assert!(broken.is_empty(), "{broken:?}");
}
