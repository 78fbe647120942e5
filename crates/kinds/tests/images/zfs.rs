//! ZFS against the traversal of its own debugger, zdb.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use rotproof_kinds::{Kind, Map, ReadOnlyFile, ReadOptions, read};
use rotproof_machine::Cancel;
use rotproof_machine::registry::{Registry, Run};
use rotproof_zfs::{Daemon, DaemonOptions, POOL, Pool, PoolOptions};
use tempfile::TempDir;

use crate::image::fill;

const SIZE: u64 = 256 << 20;
/// Offsets of block pointers are counted from here.
const FIRST_BLOCK: u64 = 4 << 20;

/// A pool on image files, and its daemon.
struct Rig {
    folder: TempDir,
    images: Vec<PathBuf>,
    run: Run,
    pool: Pool,
}

impl Rig {
    fn new(count: usize, properties: &[&str]) -> (Self, Daemon) {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().canonicalize().expect("there");
        for name in ["links", "mount"] {
            fs::create_dir(place.join(name)).expect("made");
        }
        let images: Vec<PathBuf> = (0..count).map(|number| place.join(format!("image-{number}"))).collect();
        for image in &images {
            File::create(image).and_then(|file| file.set_len(SIZE)).expect("an image");
        }
        let registry = Registry::at(&place.join("registry")).expect("a registry");
        let pool = Pool::on(&images, &place.join("links"), &place.join("mount")).expect("linked");
        let rig = Self { folder, images, run: registry.begin().expect("begun"), pool };
        let daemon = rig.start();
        let file_system = properties.iter().map(|&property| property.to_owned()).collect();
        let options = PoolOptions { pool: vec!["ashift=12".into()], file_system };
        rig.pool.create(&daemon, &options).expect("made");
        (rig, daemon)
    }

    fn start(&self) -> Daemon {
        let folder = self.folder.path().canonicalize().expect("there");
        let options = DaemonOptions { folder: &folder, cache_mib: 64, reads_ahead: false, xattrs: true };
        Daemon::start(&options, &self.run, &Cancel::new()).expect("started")
    }

    fn map(&self) -> Map {
        read(&ReadOnlyFile::open(&self.images[0], false).expect("opened"), ReadOptions { names: true })
            .expect("read")
    }

    /// What zdb says; it wants a daemon, though it asks it nothing.
    fn traversal(&self) -> Vec<Seen> {
        let links = self.folder.path().canonicalize().expect("there").join("links");
        let arguments = ["-e", "-p", links.to_str().expect("UTF-8"), "-Lbbbbbb", POOL];
        let said = self.start().command("zdb", &arguments).expect("zdb");
        said.lines().filter_map(Seen::read).collect()
    }
}

/// A line of zdb.
#[derive(Debug)]
struct Seen {
    /// Set of objects and object; nothing of what is to be given back.
    of: Option<(u64, u64)>,
    level: u8,
    kind: String,
    /// Where it lies: offset and bytes of each copy.
    copies: Vec<(u64, u64)>,
}

impl Seen {
    fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let of = match words[..] {
            ["objset", set, "object", object, ..] => Some((set.parse().ok()?, object.parse().ok()?)),
            ["[deferred", "free]", ..] => None,
            _ => return None,
        };
        let copies = words.iter().filter_map(|word| {
            let parts: Vec<&str> = word.split_once("=<")?.1.strip_suffix('>')?.split(':').collect();
            let hex = |text: &str| u64::from_str_radix(text, 16).expect("hexadecimal");
            Some((hex(parts[1]) + FIRST_BLOCK, hex(parts[2])))
        });
        let copies = copies.collect();
        let (level, kind) = line.split_once("[L")?.1.split_once(']')?.0.split_once(' ')?;
        Some(Self { of, level: level.parse().ok()?, kind: kind.to_owned(), copies })
    }

    /// The word of ours for it.
    fn word(&self) -> &'static str {
        let Some((set, _)) = self.of else { return "free" };
        match (set, &*self.kind, self.level) {
            (0, "DMU objset", _) => "mos_object_set",
            (0, _, 1..) => "mos_indirect",
            (0, "DMU dnode", 0) => "mos_dnodes",
            (0, "SPA space map" | "object array", 0) => "space_map",
            (0, ..) => "mos_object",
            (_, "ZIL intent log", _) => "intent_log",
            (_, "DMU objset", _) => "object_set",
            (_, "DMU dnode", 0) => "dnodes",
            (_, "DMU dnode", _) => "dnodes_indirect",
            (_, _, 1..) => "indirect",
            (_, "ZFS plain file", 0) => "data",
            (_, "ZFS directory", 0) => "directory",
            _ => "file_system_object",
        }
    }
}

/// What zdb does not tell apart from the content of a file or directory.
fn is_same(ours: &str, theirs: &str) -> bool {
    ours == theirs
        || theirs == "data" && ["symlink", "xattr"].contains(&ours)
        || theirs == "directory" && ours == "xattr"
}

/// Holds every block of the traversal against the map, and every block of the map against the traversal.
fn compare(map: &Map, seen: &[Seen]) {
    assert_eq!(map.damages_count, 0, "{:?}", map.damages);
    let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
    for block in seen {
        for (copy, &(offset, length)) in (0..).zip(&block.copies) {
            let extent = map.at(offset).expect("on the device");
            assert!(is_same(extent.kind.word(), block.word()), "{block:?} at {offset}: {extent:?}");
            let Some((_, object)) = block.of else { continue };
            assert_eq!(extent.copy, copy, "{block:?}: {extent:?}");
            let copies: Vec<u64> = block.copies.iter().map(|copy| copy.0).collect();
            let mut ours = map.copies_of(offset, length);
            ours.retain(|copy| copies.contains(copy));
            assert_eq!(ours.len(), copies.len(), "{block:?}: {extent:?}");
            // Accounts of who uses how much have numbers of no object.
            if (1..1 << 48).contains(&object) {
                assert_eq!(extent.owner.inode, Some(object), "{block:?}: {extent:?}");
            }
            *bytes.entry(extent.kind.word()).or_default() += length;
        }
    }
    let layout = ["label", "uberblock", "uberblock_old", "unused", "free"];
    for (kind, total) in map.totals() {
        if !layout.contains(&kind.word()) {
            assert_eq!(bytes.get(kind.word()), Some(&total.bytes), "{kind}");
        }
    }
}

fn bytes_of(map: &Map, word: &str) -> u64 {
    map.totals().iter().filter(|(kind, _)| kind.word() == word).map(|(_, total)| total.bytes).sum()
}

#[test]
fn every_block_of_a_pool_is_what_zdb_says_it_is() {
    let (rig, daemon) = Rig::new(1, &["recordsize=4K"]);
    let root = daemon.seen(rig.pool.mountpoint());
    fill(&root);
    daemon.command("zfs", &["snapshot", "pool@before"]).expect("a snapshot");
    fs::remove_file(root.join("large")).expect("removed");
    daemon.command("zfs", &["create", "pool/second"]).expect("a second file system");
    fs::write(root.join("second/inner"), "inner").expect("written");
    rig.pool.export(&daemon).expect("let go");
    let map = rig.map();
    compare(&map, &rig.traversal());
    for word in [
        "mos_object_set",
        "mos_dnodes",
        "mos_object",
        "space_map",
        "object_set",
        "dnodes",
        "dnodes_indirect",
        "indirect",
        "directory",
        "file_system_object",
        "data",
        "symlink",
        "xattr",
        "free",
    ] {
        assert!(bytes_of(&map, word) > 0, "no {word}: {:?}", map.totals());
    }
    // Four labels of 112 KiB, and 128 KiB of uberblocks in slots of a sector: by the specification.
    assert_eq!(
        (bytes_of(&map, "label"), bytes_of(&map, "uberblock"), bytes_of(&map, "uberblock_old")),
        (448 << 10, 16 << 10, 496 << 10)
    );
    assert_eq!(map.copies_of(16 << 10, 4096), [16 << 10, 272 << 10, SIZE - (496 << 10), SIZE - (240 << 10)]);
    // What only the snapshot has belongs to the object that it was, whose path is no more.
    let path = |name: &str| map.names.iter().find(|(_, path)| path.as_str() == name).map(|(owner, _)| *owner);
    let pieces = path("/pieces").expect("it has a path");
    let data = map.extents().iter().filter(|extent| extent.kind.word() == "data" && extent.owner == pieces);
    assert_eq!(data.map(rotproof_kinds::Extent::length).sum::<u64>(), 1500 * 4096);
    assert!(
        path("/folder/a-rather-long-name-for-a-file-so-that-the-folder-grows-00001").is_some(),
        "from a leaf"
    );
    assert!(path("/inner").is_some_and(|owner| owner.tree.is_some()));
}

#[test]
fn a_member_of_a_mirror_is_read_and_what_fsync_promised_is_in_the_intent_log() {
    let (rig, daemon) = Rig::new(2, &[]);
    let root = daemon.seen(rig.pool.mountpoint());
    fs::write(root.join("old"), vec![1; 100_000]).expect("written");
    rig.pool.commit(&daemon, 1).expect("written down");
    for name in ["one", "two", "three"] {
        let mut file = File::create(root.join(name)).expect("a file");
        // Once it is closed, zfs-fuse acknowledges an fsync of it and does nothing.
        file.write_all(&[2; 3000]).and_then(|()| file.sync_all()).expect("synced");
    }
    drop(daemon);
    let map = rig.map();
    compare(&map, &rig.traversal());
    assert!(bytes_of(&map, "intent_log") > 0, "{:?}", map.totals());
    let other = read(&ReadOnlyFile::open(&rig.images[1], false).expect("opened"), ReadOptions::default())
        .expect("read");
    assert_eq!(map.extents(), other.extents(), "both hold the same");
}

/// Damages a copy after the other, and asks the map again.
#[test]
fn a_bad_copy_is_passed_over_and_what_lies_behind_bad_copies_is_unknown() {
    let (rig, daemon) = Rig::new(1, &[]);
    fs::write(daemon.seen(rig.pool.mountpoint()).join("file"), vec![7; 200_000]).expect("written");
    rig.pool.export(&daemon).expect("let go");
    let whole = rig.map();
    let dnodes = whole.extents().iter().find(|extent| extent.kind.word() == "dnodes").expect("dnodes");
    let copies = whole.copies_of(dnodes.start, 4096);
    assert_eq!(copies.len(), 2);
    let mut bytes = fs::read(&rig.images[0]).expect("read");
    bytes[copies[0] as usize + 100] ^= 1;
    let again = read(&bytes, ReadOptions::default()).expect("read");
    assert_eq!(again.extents(), whole.extents(), "the other copy says the same");
    bytes[copies[1] as usize + 100] ^= 1;
    let less = read(&bytes, ReadOptions::default()).expect("read");
    assert!(less.damages_count > 0);
    assert!(
        less.totals().get(&Kind::from(rotproof_kinds::Plain::Unknown)).is_some_and(|total| total.bytes > 0)
    );
}

#[test]
fn what_no_reader_has_learnt_is_refused() {
    let (rig, daemon) = Rig::new(1, &[]);
    rig.pool.export(&daemon).expect("let go");
    let whole = fs::read(&rig.images[0]).expect("read");
    let at = |needle: &[u8]| whole.windows(needle.len()).position(|window| window == needle).expect("there");
    let mut bytes = whole.clone();
    // All labels say it alike; without the others the first is the one that is read.
    let version = at(b"version\0") + 8 + 8;
    bytes[version..version + 8].copy_from_slice(&5000_u64.to_be_bytes());
    let error = read(&bytes, ReadOptions::default()).map(|_| ()).expect_err("feature flags");
    assert!(error.to_string().contains("feature flags"), "{error}");
    assert!(Path::new(&rig.images[0]).exists());
}
