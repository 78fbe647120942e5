//! Cells on real file systems: some whose letters are known, and ten that the seed draws.

use std::path::Path;

use rotproof_machine::Cancel;
use rotproof_machine::registry::{Registry, Run};
use rotproof_react::{
    Campaign, CampaignOptions, Database, Done, Effect, Noticed, Operation, Outcome, System, react, table,
    write_results,
};
use rotproof_record::table::TableReader;
use rotproof_subject::{FileSystem, MachineKind};

/// A run whose record is the test's own.
fn begun(folder: &Path) -> Run {
    Registry::at(&folder.join("registry")).and_then(|registry| registry.begin()).expect("begun")
}

fn options(system: impl Into<System>, folder: &Path) -> CampaignOptions {
    CampaignOptions {
        system: system.into(),
        kinds: Vec::new(),
        effects: Vec::new(),
        operations: Vec::new(),
        sample: None,
        workers: 1,
        seed: 1,
        folder: folder.join("results"),
    }
}

fn done(options: &CampaignOptions) -> Campaign {
    let folder = tempfile::tempdir().expect("a folder");
    let run = begun(folder.path());
    let campaign = react(&run, options, &Cancel::new(), &|_| {});
    let left = run.finish();
    assert!(left.is_empty(), "{left:?}");
    let campaign = campaign.unwrap_or_else(|error| panic!("{error}"));
    assert!(campaign.is_complete);
    campaign
}

fn cell<'a>(campaign: &'a Campaign, name: &str) -> &'a Done {
    let found = campaign.cells.iter().find(|done| done.cell.name() == name);
    found.unwrap_or_else(|| panic!("there is no {name}"))
}

/// ext4 has no checksums of data, and says what its device says; a bitmap that was damaged is seen by its checksum.
#[test]
fn what_is_known_of_ext4_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = CampaignOptions {
        kinds: ["data", "group_descriptors", "inode_bitmap"].map(str::to_owned).to_vec(),
        effects: vec![Effect::Flip, Effect::Noise, Effect::ReadError],
        operations: vec![Operation::Mount, Operation::Statfs, Operation::Read],
        ..options(FileSystem::Ext4, folder.path())
    };
    let campaign = done(&options);
    let flipped = cell(&campaign, "data/one/flip/read");
    assert_eq!(flipped.letters(), "B", "{flipped:?}");
    assert!(matches!(&flipped.outcome, Outcome::Reached(reaction) if reaction.noticed == Noticed::NotAtAll));
    let unreadable = cell(&campaign, "data/one/read_error/read");
    assert_eq!(unreadable.letters(), "E", "{unreadable:?}");
    assert!(
        matches!(&unreadable.outcome, Outcome::Reached(reaction) if reaction.noticed == Noticed::ErrorCode)
    );
    let refused = cell(&campaign, "group_descriptors/one/noise/mount");
    assert_eq!(refused.letters(), "E", "{refused:?}");
    assert!(matches!(&refused.outcome, Outcome::Reached(reaction) if reaction.noticed != Noticed::NotAtAll));
    // What statfs answers it has in memory.
    assert_eq!(cell(&campaign, "group_descriptors/one/noise/statfs").outcome, Outcome::NotReached);
    assert_eq!(cell(&campaign, "data/one/flip/mount").letters(), "-");
    assert_eq!(campaign.cells.len(), 3 * 3 * 3, "descriptors have copies, and so a second row");
}

/// btrfs keeps metadata twice, and one copy is enough.
#[test]
fn what_is_known_of_btrfs_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = CampaignOptions {
        kinds: vec!["fs_tree_leaf".to_owned()],
        effects: vec![Effect::Zeros],
        operations: vec![Operation::Readdir],
        ..options(FileSystem::Btrfs, folder.path())
    };
    let campaign = done(&options);
    let one = cell(&campaign, "fs_tree_leaf/one/zeros/readdir");
    assert_eq!(one.letters(), "R", "{one:?}");
    let all = cell(&campaign, "fs_tree_leaf/all/zeros/readdir");
    // Which leaf is hit differs from run to run: one that readdir reads, or one that only the look after the next mount does,
    // which is a small letter. Without a copy it is an error in any case.
    assert!(all.letters().to_ascii_uppercase().starts_with('E'), "{all:?}");
}

/// The kernel of a guest is one of its own, and damage reaches nobody else.
#[test]
fn what_is_known_of_ext4_is_found_in_a_guest() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = CampaignOptions {
        kinds: ["data", "group_descriptors", "directory"].map(str::to_owned).to_vec(),
        effects: vec![Effect::Noise, Effect::ReadError],
        operations: vec![Operation::Mount, Operation::Readdir, Operation::Read],
        ..options(System::Guest(MachineKind::Uml, FileSystem::Ext4), folder.path())
    };
    let campaign = done(&options);
    assert!(campaign.head.kernel.ends_with("in User Mode Linux"), "{}", campaign.head.kernel);
    for (name, letters, noticed) in [
        ("data/one/noise/read", "B", Noticed::NotAtAll),
        ("data/one/read_error/read", "E", Noticed::ErrorCode),
        ("group_descriptors/one/noise/mount", "E", Noticed::Checksum),
        ("directory/one/noise/readdir", "E", Noticed::Checksum),
    ] {
        let done = cell(&campaign, name);
        match &done.outcome {
            Outcome::Reached(reaction) if name.contains("group") => {
                assert_eq!(reaction.letters, letters, "{done:?}");
                assert_ne!(reaction.noticed, Noticed::NotAtAll, "{done:?}");
            }
            Outcome::Reached(reaction) => {
                assert_eq!((&*reaction.letters, reaction.noticed), (letters, noticed), "{done:?}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    assert_eq!(cell(&campaign, "data/one/noise/mount").letters(), "-");
}

/// ZFS keeps metadata twice, and more often for itself; data once, and says so.
#[test]
fn what_is_known_of_zfs_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = CampaignOptions {
        kinds: ["data", "directory", "mos_object_set"].map(str::to_owned).to_vec(),
        effects: vec![Effect::Flip],
        operations: vec![Operation::Mount, Operation::Readdir, Operation::Read],
        ..options(System::Zfs, folder.path())
    };
    let campaign = done(&options);
    let noticed = |name: &str| match &cell(&campaign, name).outcome {
        Outcome::Reached(reaction) => (reaction.letters.clone(), reaction.noticed),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(noticed("data/one/flip/read"), ("E".to_owned(), Noticed::Checksum));
    assert_eq!(noticed("directory/one/flip/readdir").0, "R");
    assert_eq!(noticed("directory/all/flip/readdir").0, "E");
    assert_eq!(noticed("mos_object_set/one/flip/mount").0, "R");
    assert_eq!(cell(&campaign, "data/one/flip/mount").letters(), "-");
}

/// SQLite has no checksums of its pages, and one of every frame of its log, by which it takes what is rotten for the log's end.
#[test]
fn what_is_known_of_sqlite_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = CampaignOptions {
        kinds: ["table_leaf", "index_interior", "rollback_header"].map(str::to_owned).to_vec(),
        effects: vec![Effect::Flip, Effect::Zeros, Effect::WriteError, Effect::LostWrite],
        ..options(System::Database(Database::Sqlite), folder.path())
    };
    let campaign = done(&options);
    let letters = |campaign: &Campaign, name: &str| cell(campaign, name).letters().to_owned();
    for (name, expected) in [
        ("table_leaf/one/flip/select", "B"),
        ("table_leaf/one/zeros/select", "E"),
        ("table_leaf/one/write_error/insert", "E"),
        ("table_leaf/one/lost_write/insert", "b"),
        ("table_leaf/one/flip/open", "-"),
        ("index_interior/one/zeros/index_lookup", "E"),
        // Without its header there is no journal, and half a transaction stays.
        ("rollback_header/one/zeros/recover", "b"),
    ] {
        assert_eq!(letters(&campaign, name), expected, "{:?}", cell(&campaign, name));
    }
    assert_eq!(campaign.cells.len(), 3 * 4 * 9);
    for done in &campaign.cells {
        assert!(!matches!(done.outcome, Outcome::Unknown(_) | Outcome::Hung(_)), "{done:?}");
    }
    let text = table(&campaign);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn what_is_known_of_sqlites_write_ahead_log_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = CampaignOptions {
        kinds: ["wal_header", "wal_commit", "table_leaf"].map(str::to_owned).to_vec(),
        effects: vec![Effect::Noise, Effect::ReadError],
        ..options(System::Database(Database::SqliteWal), folder.path())
    };
    let campaign = done(&options);
    let letters = |name: &str| cell(&campaign, name).letters().to_owned();
    // What was committed is gone without a word.
    assert_eq!(
        (letters("wal_header/one/noise/select"), letters("wal_commit/one/noise/select")),
        ("B".into(), "B".into())
    );
    assert_eq!(
        (letters("wal_header/one/read_error/open"), letters("table_leaf/one/noise/select")),
        ("E".into(), "E".into())
    );
    assert!(campaign.cells.iter().any(|done| done.cell.operation == Operation::Checkpoint));
}

/// LMDB has no checksums, and reads through a mapping: what cannot be read ends the program.
#[test]
fn what_is_known_of_lmdb_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = CampaignOptions {
        kinds: ["meta_page", "value_pages", "leaf_page"].map(str::to_owned).to_vec(),
        effects: vec![Effect::Flip, Effect::Noise, Effect::ReadError, Effect::WriteError],
        operations: vec![Operation::Open, Operation::Select, Operation::Update, Operation::Copy],
        ..options(System::Database(Database::Lmdb), folder.path())
    };
    let campaign = done(&options);
    for (name, expected) in [
        ("value_pages/one/flip/select", "B"),
        ("value_pages/one/flip/copy", "B"),
        ("value_pages/one/flip/open", "-"),
        ("value_pages/one/read_error/select", "C"),
        ("value_pages/one/read_error/copy", "E"),
        ("meta_page/one/noise/open", "E"),
        ("meta_page/one/read_error/open", "E"),
        ("leaf_page/one/write_error/update", "E"),
    ] {
        let done = cell(&campaign, name);
        assert_eq!(done.letters(), expected, "{done:?}");
    }
    assert_eq!(campaign.cells.len(), 3 * 4 * 4);
    let text = table(&campaign);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// With checksums PostgreSQL notices what has rotted in a page, and without them it hands it out; a page of zeros is a new one to both.
#[test]
fn what_is_known_of_postgresql_is_found() {
    for (database, flipped) in [(Database::Postgres, "B"), (Database::PostgresChecksums, "E")] {
        let folder = tempfile::tempdir().expect("a folder");
        let options = CampaignOptions {
            kinds: ["heap_page", "control_file"].map(str::to_owned).to_vec(),
            effects: vec![Effect::Flip, Effect::Zeros],
            operations: vec![Operation::Open, Operation::Select],
            ..options(System::Database(database), folder.path())
        };
        let campaign = done(&options);
        for (name, expected) in [
            ("heap_page/one/flip/select", flipped),
            ("heap_page/one/zeros/select", "B"),
            ("heap_page/one/flip/open", "-"),
            ("control_file/one/flip/open", "E"),
        ] {
            let done = cell(&campaign, name);
            assert_eq!(done.letters(), expected, "{done:?}");
        }
    }
}

#[test]
fn ten_cells_of_the_seed_are_seen_written_down_and_not_done_twice() {
    for (kind, count) in [(FileSystem::Ext4, 4), (FileSystem::Xfs, 3), (FileSystem::Btrfs, 3)] {
        let folder = tempfile::tempdir().expect("a folder");
        let options = CampaignOptions { sample: Some(count), ..options(kind, folder.path()) };
        let campaign = done(&options);
        assert_eq!(campaign.cells.len(), count);
        for done in &campaign.cells {
            assert!(!matches!(done.outcome, Outcome::Unknown(_) | Outcome::Hung(_)), "{done:?}");
        }
        write_results(&campaign, &options.folder).expect("written");
        let text = table(&campaign);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let read = TableReader::open(&options.folder.join("reactions.parquet"), "reactions")
            .and_then(|reader| reader.read());
        assert_eq!(read.expect("a table").rows(), count);
        // A last line that was cut off is a cell that was not done; all others stay as they are.
        let cells = options.folder.join("cells.jsonl");
        let written = std::fs::read_to_string(&cells).expect("written");
        std::fs::write(&cells, &written[..written.len() - 20]).expect("cut off");
        let kept: Vec<&str> = written.lines().take(count - 1).collect();
        let file_system_again = react_again(&options, &kept);
        assert_eq!(file_system_again, count);
        // Another seed is another campaign.
        let other = CampaignOptions { seed: 2, ..options.clone() };
        let elsewhere = tempfile::tempdir().expect("a folder");
        let run = begun(elsewhere.path());
        let error = react(&run, &other, &Cancel::new(), &|_| {}).expect_err("not the same");
        assert!(error.to_string().contains("with seed 1"), "{error}");
        assert!(run.finish().is_empty());
    }
}

/// Goes on in a folder; how many cells it has then. What was there is there still, byte for byte.
fn react_again(options: &CampaignOptions, kept: &[&str]) -> usize {
    done(options);
    let written = std::fs::read_to_string(options.folder.join("cells.jsonl")).expect("written");
    let lines: Vec<&str> = written.lines().collect();
    assert_eq!(&lines[..kept.len()], kept);
    lines.len()
}
