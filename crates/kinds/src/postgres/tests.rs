//! Clusters made by hand, of as few files as can be.

use super::catalog::tests::{Row, class_page, map};
use super::control::tests::control;
use super::page::tests::page;
use super::*;

type Files = BTreeMap<String, Vec<u8>>;

/// A page with its checksum.
fn summed(mut bytes: Vec<u8>, block: u32) -> Vec<u8> {
    let sum = checksum(&bytes, block);
    bytes[8..10].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A leaf of a B-tree.
fn leaf() -> Vec<u8> {
    let mut special = [0; 16];
    special[12] = 1;
    page(&special)
}

/// A cluster with a database, whose catalog has a table, its toast table and an index.
fn cluster() -> Files {
    let row = |number, file, method, kind, name| Row {
        made: 2,
        removed: 0,
        marks: 0x0B00,
        number,
        file,
        method,
        kind,
        name,
    };
    let class = class_page(&[
        row(CLASS, 0, 2, b'r', "pg_class"),
        row(16_384, 16_384, 2, b'r', "item"),
        row(16_387, 16_387, 2, b't', "pg_toast_16384"),
        row(16_389, 16_390, 403, b'i', "item_pkey"),
    ]);
    let mut meta = page(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0]);
    meta[24..28].copy_from_slice(&0x0005_3162_u32.to_le_bytes());
    let index = [summed(meta, 0), summed(leaf(), 1), vec![0; PAGE_BYTES]].concat();
    let heap = summed(page(&[]), 0);
    [
        ("PG_VERSION", b"15\n".to_vec()),
        ("base/5/1000", summed(class, 0)),
        ("base/5/16384", heap.clone()),
        ("base/5/16384_fsm", heap.clone()),
        ("base/5/16387", heap.clone()),
        ("base/5/16390", index),
        ("base/5/pg_filenode.map", map(CLASS, 1000)),
        (CONTROL, control(true, 1 << 20)),
        ("global/pg_filenode.map", map(1262, 1262)),
        ("pg_wal/000000010000000000000001", vec![0; 1 << 20]),
        ("pg_xact/0000", vec![0x55; PAGE_BYTES]),
        ("postgresql.conf", b"# nothing".to_vec()),
    ]
    .map(|(path, bytes)| (path.to_owned(), bytes))
    .into()
}

fn file<'a>(cluster: &'a Cluster, path: &str) -> &'a Map {
    &cluster.files.iter().find(|file| file.path == path).expect("there").map
}

fn kinds(map: &Map) -> Vec<&'static str> {
    map.extents().iter().map(|extent| extent.kind.word()).collect()
}

const ALL: ReadOptions = ReadOptions { names: true };

#[test]
fn the_catalog_says_what_files_are() {
    let cluster = read_cluster(&cluster(), ALL).expect("read");
    assert_eq!(cluster.has_checksums, Some(true));
    for (path, words) in [
        ("PG_VERSION", &["version_file"][..]),
        ("base/5/1000", &["catalog_page"]),
        ("base/5/16384", &["heap_page"]),
        ("base/5/16384_fsm", &["fsm_page"]),
        ("base/5/16387", &["toast_page"]),
        ("base/5/16390", &["btree_meta", "btree_leaf", "unused"]),
        ("base/5/pg_filenode.map", &["relation_map"]),
        (CONTROL, &["control_file"]),
        ("pg_wal/000000010000000000000001", &["wal_done"]),
        ("pg_xact/0000", &["transaction_status"]),
        ("postgresql.conf", &["other_file"]),
    ] {
        let map = file(&cluster, path);
        assert_eq!(kinds(map), words, "{path}");
        assert_eq!(
            (map.damages_count, map.file_system),
            (0, FileSystemKind::Postgres),
            "{path}: {:?}",
            map.damages
        );
    }
    let index = file(&cluster, "base/5/16390");
    assert_eq!(index.name(index.extents()[0].owner), Some("item_pkey"));
    let joined = cluster.joined();
    assert_eq!(joined.extents().iter().filter(|extent| extent.kind.word() == "btree_leaf").count(), 1);
    assert_eq!(
        joined.size,
        cluster.files.iter().map(|file| file.map.size.next_multiple_of(PAGE)).sum::<u64>()
    );
}

#[test]
fn damage_is_told_where_it_lies_and_nowhere_else() {
    for (path, offset, count, words) in [
        // A page is still told by what it says it is.
        ("base/5/16384", 4000, 1, &["heap_page"][..]),
        ("base/5/16390", 8192 + 19, 2, &["btree_meta", "unknown", "unused"]),
        ("base/5/16390", 2 * 8192 + 3000, 2, &["btree_meta", "btree_leaf", "unknown"]),
        (CONTROL, 40, 1, &["control_file"]),
        ("global/pg_filenode.map", 12, 1, &["relation_map"]),
    ] {
        let mut files = cluster();
        files.get_mut(path).expect("there")[offset] ^= 0x20;
        let cluster = read_cluster(&files, ALL).expect("read");
        for file in &cluster.files {
            let expected = if file.path == path { count } else { 0 };
            assert_eq!(file.map.damages_count, expected, "{path}, {}: {:?}", file.path, file.map.damages);
        }
        assert_eq!(kinds(file(&cluster, path)), words);
        assert_eq!(cluster.has_checksums, (path != CONTROL).then_some(true));
    }
}

#[test]
fn without_its_catalog_a_file_is_told_by_its_first_page() {
    let mut files = cluster();
    files.insert("base/5/pg_filenode.map".into(), vec![0; 512]);
    let cluster = read_cluster(&files, ALL).expect("read");
    let index = file(&cluster, "base/5/16390");
    assert_eq!(kinds(index), ["btree_meta", "btree_leaf", "unused"]);
    assert_eq!((index.damages_count, index.names.len()), (1, 0));
    assert_eq!(kinds(file(&cluster, "base/5/16387")), ["heap_page"], "nobody knows that it is for toast");
    assert_eq!(kinds(file(&cluster, "base/5/1000")), ["catalog_page"], "by its number");
}

#[test]
fn what_is_no_cluster_or_of_another_version_is_refused() {
    let kind = |files: &Files| read_cluster(files, ALL).map(|_| ()).map_err(|error| error.kind());
    let mut files = cluster();
    files.insert("PG_VERSION".into(), b"14\n".to_vec());
    assert_eq!(kind(&files), Err(ErrorKind::Unsupported));
    files.remove("PG_VERSION");
    assert_eq!(kind(&files), Err(ErrorKind::Missing));
    let one = read_cluster_file(&cluster(), "base/5/16387", ALL).expect("read");
    assert_eq!(kinds(&one), ["toast_page"]);
    assert!(read_cluster_file(&cluster(), "base/5/1", ALL).is_err());
}

#[test]
fn names_of_files_say_whose_they_are() {
    let of = |path| relation_file(path).map(|file| (file.database, file.file, file.fork, file.segment));
    assert_eq!(of("base/5/16384.2"), Some((5, 16_384, "", 2)));
    assert_eq!(of("global/1262_vm"), Some((0, 1262, "vm", 0)));
    assert_eq!(of("pg_tblspc/16500/PG_15_202209061/5/16501_fsm.1"), Some((5, 16_501, "fsm", 1)));
    assert_eq!(of("base/5/t3_16400"), Some((5, 16_400, "", 0)));
    for path in
        ["base/5/pg_filenode.map", "base/5/PG_VERSION", "global/pg_control", "16384", "base/pgsql_tmp/1.0"]
    {
        assert_eq!(of(path), None, "{path}");
    }
}
