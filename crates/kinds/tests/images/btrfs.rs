//! btrfs against the dump of its own tool.

use std::collections::{BTreeMap, BTreeSet};

use rotproof_kinds::{Kind, Map, Plain, ReadOnlyFile, ReadOptions, Tree, read};

use crate::image::{Image, output_of};

const NODE: u64 = 16384;

fn map_of(path: &std::path::Path) -> Map {
    let file = ReadOnlyFile::open(path, false).expect("opened");
    read(&file, ReadOptions { names: true }).expect("read")
}

/// What `btrfs inspect-internal dump-tree` tells.
#[derive(Default)]
struct Dump {
    /// Address of each chunk: its length, and where its copies begin.
    chunks: BTreeMap<u64, (u64, Vec<u64>)>,
    /// Address of each node: whether it is a leaf, and the tree.
    nodes: BTreeMap<u64, (bool, String)>,
    /// Address of each stretch of data: length, and inode.
    data: BTreeMap<u64, (u64, Option<u64>)>,
}

impl Dump {
    fn of(path: &std::path::Path) -> Self {
        let told = output_of("btrfs", &["inspect-internal".as_ref(), "dump-tree".as_ref(), path.as_ref()]);
        let mut dump = Dump::default();
        let (mut chunk, mut extent) = (None, None);
        for line in told.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |word: &str| {
                words.iter().position(|&w| w == word).and_then(|at| words.get(at + 1)?.parse().ok())
            };
            if let ["leaf" | "node", address, ..] = words[..]
                && let (Ok(address), Some(owner)) =
                    (address.parse(), words.iter().position(|&w| w == "owner"))
            {
                dump.nodes.insert(address, (words[0] == "leaf", words[owner + 1].to_owned()));
            } else if line.contains(" CHUNK_ITEM ") {
                // `item 1 key (FIRST_CHUNK_TREE CHUNK_ITEM 13631488) itemoff ...`
                chunk = words[5].trim_end_matches(')').parse().ok();
                extent = None;
            } else if line.contains(" EXTENT_ITEM ") {
                let address = words[3].trim_start_matches('(').parse().ok();
                extent = address.zip(words[5].trim_end_matches(')').parse().ok());
                chunk = None;
            } else if words.first() == Some(&"item") {
                (chunk, extent) = (None, None);
            } else if let Some(address) = chunk {
                if let Some(length) = number("length") {
                    dump.chunks.insert(address, (length, Vec::new()));
                } else if let (["stripe", ..], Some(offset)) = (&words[..], number("offset")) {
                    dump.chunks.get_mut(&address).expect("a chunk").1.push(offset);
                }
            } else if let Some((address, length)) = extent {
                if line.contains("flags DATA") {
                    dump.data.insert(address, (length, None));
                } else if line.contains("data backref")
                    && let Some(data) = dump.data.get_mut(&address)
                {
                    data.1 = data.1.or(number("objectid"));
                }
            }
        }
        dump
    }

    fn places(&self, address: u64) -> Vec<u64> {
        let (first, (length, stripes)) = self.chunks.range(..=address).next_back().expect("a chunk");
        assert!(address < first + length);
        stripes.iter().map(|stripe| stripe + (address - first)).collect()
    }
}

fn word_of(tree: Tree) -> &'static str {
    match tree {
        Tree::Root => "ROOT_TREE",
        Tree::Extent => "EXTENT_TREE",
        Tree::Chunk => "CHUNK_TREE",
        Tree::Device => "DEV_TREE",
        Tree::Fs => "FS_TREE",
        Tree::Checksum => "CSUM_TREE",
        Tree::Uuid => "UUID_TREE",
        Tree::FreeSpace => "FREE_SPACE_TREE",
        Tree::DataRelocation => "DATA_RELOC_TREE",
        Tree::BlockGroup => "BLOCK_GROUP_TREE",
        Tree::Log => "TREE_LOG",
        _ => "another",
    }
}

fn agree(path: &std::path::Path, map: &Map) {
    let dump = Dump::of(path);
    assert_eq!(map.damages, []);
    assert!(dump.nodes.len() > 10, "{}", dump.nodes.len());
    let mut covered = BTreeSet::new();
    for (&address, (is_leaf, owner)) in &dump.nodes {
        let places = dump.places(address);
        for (copy, &place) in places.iter().enumerate() {
            for at in (place..place + NODE).step_by(4096) {
                let found = map.at(at).expect("covered");
                let Kind::Tree { tree, is_leaf: shown } = found.kind else { panic!("{address}: {found:?}") };
                let is_tree = word_of(tree) == owner
                    || tree == Tree::Log
                    || (tree == Tree::Fs && owner.parse::<u64>().is_ok());
                assert!(is_tree && shown == *is_leaf, "{address} of {owner}: {found:?}");
                assert_eq!(usize::from(found.copy), copy, "{found:?}");
                covered.insert(at);
            }
            let mut copies = map.copies_of(place, NODE);
            copies.sort_unstable();
            let mut wanted = places.clone();
            wanted.sort_unstable();
            assert_eq!(copies, wanted);
        }
    }
    for (&address, &(length, inode)) in &dump.data {
        for place in dump.places(address) {
            for at in (place..place + length).step_by(4096) {
                let found = map.at(at).expect("covered");
                // A super block may lie in the middle of nothing else.
                assert!(
                    matches!(found.kind, Kind::Plain(Plain::Data | Plain::SpaceCache)),
                    "{at}: {found:?}"
                );
                if inode.is_some() {
                    assert_eq!(found.owner.inode, inode, "{found:?}");
                }
                covered.insert(at);
            }
        }
    }
    // And nothing else is called so.
    for extent in map.extents() {
        let is_used = matches!(extent.kind, Kind::Tree { .. } | Kind::Plain(Plain::Data | Plain::SpaceCache));
        if is_used {
            assert!((extent.start..extent.end).step_by(4096).all(|at| covered.contains(&at)), "{extent:?}");
        }
        assert_ne!(extent.kind, Kind::Plain(Plain::Unknown), "{extent:?}");
    }
}

#[test]
fn every_node_and_all_data_are_what_dump_tree_says() {
    for options in [&["-m", "dup"][..], &["-m", "single", "-d", "dup", "--mixed"][..]] {
        let options = if options.contains(&"--mixed") {
            &["-m", "dup", "-d", "dup", "--mixed", "-n", "16384"][..]
        } else {
            options
        };
        let image = Image::filled(
            "btrfs",
            256 << 20,
            if options.contains(&"--mixed") { &["-m", "single"] } else { options },
        );
        let map = map_of(&image.path);
        agree(&image.path, &map);
        let supers = map.totals()[&Kind::Plain(Plain::SuperBlock)];
        assert_eq!((supers.bytes, supers.copies_bytes), (8192, 4096));
        let large = map.extents().iter().find(|extent| map.name(extent.owner) == Some("/large"));
        assert!(large.is_some_and(|extent| extent.kind == Kind::Plain(Plain::Data)));
    }
}

#[test]
fn subvolumes_snapshots_and_log_trees_are_told_apart() {
    let image = Image::make("btrfs", 256 << 20, &[]);
    let mounted = image.mount();
    let folder = |name: &str| mounted.0.join(name);
    let subvolume = |words: &[&std::ffi::OsStr]| {
        let mut arguments: Vec<&std::ffi::OsStr> = vec!["subvolume".as_ref()];
        arguments.extend(words);
        output_of("btrfs", &arguments)
    };
    subvolume(&["create".as_ref(), folder("sub").as_ref()]);
    for index in 0..300 {
        std::fs::write(folder("sub").join(format!("file-{index}")), vec![3; 6000]).expect("written");
    }
    subvolume(&["snapshot".as_ref(), folder("sub").as_ref(), folder("snapshot").as_ref()]);
    output_of("sync", &["-f".as_ref(), mounted.0.as_ref()]);
    std::fs::write(folder("sub/logged"), vec![5; 9000]).expect("written");
    std::fs::File::open(folder("sub/logged")).and_then(|file| file.sync_all()).expect("synced");
    let copy = image.copy("crashed");
    drop(mounted);
    let map = map_of(&copy);
    agree(&copy, &map);
    let trees: BTreeSet<Tree> = map
        .extents()
        .iter()
        .filter_map(|extent| match extent.kind {
            Kind::Tree { tree, .. } => Some(tree),
            Kind::Plain(_) => None,
        })
        .collect();
    assert!(trees.contains(&Tree::Log) && trees.contains(&Tree::Fs), "{trees:?}");
    let subvolumes: BTreeSet<u64> = map
        .extents()
        .iter()
        .filter(|extent| matches!(extent.kind, Kind::Tree { tree: Tree::Fs, .. }))
        .filter_map(|extent| extent.owner.tree)
        .collect();
    assert!(subvolumes.contains(&5) && subvolumes.iter().any(|&tree| tree >= 256), "{subvolumes:?}");
}
