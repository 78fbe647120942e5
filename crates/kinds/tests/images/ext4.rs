//! ext4 against dumpe2fs and debugfs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use rotproof_kinds::{Kind, Map, Plain, ReadOnlyFile, ReadOptions, read};

use crate::image::{Image, fiemap, output_of};

const BLOCK: u64 = 4096;

fn map_of(path: &std::path::Path) -> Map {
    let file = ReadOnlyFile::open(path, false).expect("opened");
    read(&file, ReadOptions { names: true }).expect("read")
}

/// `12`, `12-15` and lists of them, with words around.
fn numbers(text: &str) -> Vec<(u64, u64)> {
    let parts = text.split([',', ' ']).filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
    });
    parts.collect()
}

/// What dumpe2fs says of the layout: kind of each block.
fn layout(image: &Image) -> BTreeMap<u64, Plain> {
    let mut kinds = BTreeMap::new();
    let mut put = |blocks: &[(u64, u64)], kind: Plain| {
        for &(first, last) in blocks {
            kinds.extend((first..=last).map(|block| (block, kind)));
        }
    };
    let signs = [
        ("superblock at ", Plain::SuperBlock),
        ("Group descriptors at ", Plain::GroupDescriptors),
        ("Group descriptor at ", Plain::GroupDescriptors),
        ("Reserved GDT blocks at ", Plain::ReservedGdt),
        ("Block bitmap at ", Plain::BlockBitmap),
        ("Inode bitmap at ", Plain::InodeBitmap),
        ("Inode table at ", Plain::InodeTable),
        ("Free blocks: ", Plain::Free),
    ];
    for line in output_of("dumpe2fs", &[image.path.as_ref()]).lines() {
        for (sign, kind) in signs {
            // Of all but the free blocks one number or range, before further words.
            if let Some((_, rest)) = line.split_once(sign) {
                let rest =
                    if kind == Plain::Free { rest } else { rest.split([',', ' ']).next().unwrap_or("") };
                put(&numbers(rest), kind);
            }
        }
    }
    kinds
}

/// What debugfs says of the blocks of every inode in use.
fn of_inodes(image: &Image, count: u32) -> BTreeMap<u64, (u32, bool)> {
    let script = image.folder.path().join("script");
    let commands: Vec<String> = (1..=count).map(|inode| format!("stat <{inode}>")).collect();
    fs::write(&script, commands.join("\n")).expect("written");
    let told = output_of("debugfs", &["-f".as_ref(), script.as_ref(), image.path.as_ref()]);
    let mut blocks = BTreeMap::new();
    for part in told.split("debugfs: stat <").skip(1) {
        let inode: u32 = part.split('>').next().and_then(|number| number.parse().ok()).expect("a number");
        let Some((_, extents)) = part.split_once("EXTENTS:\n").or_else(|| part.split_once("BLOCKS:\n"))
        else {
            continue;
        };
        let lines = extents.lines().take_while(|line| line.starts_with('('));
        for item in lines.flat_map(|line| line.split(", ").flat_map(|item| item.split(','))) {
            let Some((logical, place)) = item.trim().split_once("):") else { continue };
            let is_index = logical.contains("ETB") || logical.contains("IND");
            for (first, last) in numbers(place) {
                blocks.extend((first..=last).map(|block| (block, (inode, is_index))));
            }
        }
    }
    blocks
}

fn agree(block_bytes: u64, options: &[&str]) {
    let image = Image::filled("ext4", 96 << 20, options);
    let map = map_of(&image.path);
    assert_eq!(map.damages, []);
    let (layout, inodes) = (layout(&image), of_inodes(&image, 3500));
    assert!(layout.len() > 5000 && inodes.len() > 2000, "{} {}", layout.len(), inodes.len());
    let mut seen = 0;
    for block in map.at(0).map_or(0, |first| u64::from(first.kind == Kind::Plain(Plain::Unused)))
        ..(96 << 20) / block_bytes
    {
        let found = map.at(block * block_bytes).expect("covered");
        if let Some(&kind) = layout.get(&block) {
            assert_eq!(found.kind, Kind::Plain(kind), "block {block}");
            seen += 1;
        } else if let Some(&(inode, is_index)) = inodes.get(&block) {
            // Those kept for descriptors belong to inode 7 too, and are in the layout.
            assert_eq!(found.owner.inode, Some(u64::from(inode)), "block {block}: {found:?}");
            let is_shown_as_index = matches!(found.kind, Kind::Plain(Plain::ExtentTree | Plain::Indirect));
            assert_eq!(is_shown_as_index, is_index, "block {block}: {found:?}");
            seen += 1;
        } else {
            assert_eq!(found.kind, Kind::Plain(Plain::Xattr), "block {block}: {found:?}");
        }
    }
    assert!(seen > 20_000, "{seen}");
    let totals = map.totals();
    let mut wanted =
        vec![Plain::Htree, Plain::Directory, Plain::Symlink, Plain::Xattr, Plain::JournalSuper, Plain::Data];
    wanted.push(if options.contains(&"^extents,^64bit") { Plain::Indirect } else { Plain::ExtentTree });
    for kind in wanted {
        assert!(totals.contains_key(&Kind::Plain(kind)), "{kind:?}: {totals:?}");
    }
    assert!(!totals.contains_key(&Kind::Plain(Plain::Unknown)), "{totals:?}");
    is_named(&map, Plain::Xattr, "/marked");
    is_named(&map, Plain::Symlink, "/long-link");
}

/// A kind that is one file's has that file's name.
fn is_named(map: &Map, kind: Plain, path: &str) {
    let found = map.extents().iter().find(|extent| extent.kind == Kind::Plain(kind)).expect("there is one");
    assert_eq!(map.name(found.owner), Some(path));
}

#[test]
fn every_block_is_what_dumpe2fs_and_debugfs_say() {
    agree(4096, &["-b", "4096"]);
}

#[test]
fn every_block_is_what_they_say_without_extents_and_with_meta_groups() {
    agree(4096, &["-b", "4096", "-O", "^extents,^64bit"]);
    agree(4096, &["-b", "4096", "-O", "meta_bg,^resize_inode", "-g", "4096"]);
}

#[test]
fn every_block_is_what_they_say_where_blocks_are_small() {
    agree(1024, &["-b", "1024"]);
}

#[test]
fn the_kernel_says_of_mounted_files_what_the_map_says() {
    let image = Image::filled("ext4", 96 << 20, &[]);
    let mounted = image.mount();
    let map = map_of(&image.path);
    for name in ["large", "pieces"] {
        let path = mounted.0.join(name);
        let inode = fs::metadata(&path).expect("there").ino();
        let extents = fiemap(&path);
        assert!(!extents.is_empty());
        for (start, end) in extents {
            for found in map.within(start..end) {
                assert_eq!((found.kind, found.owner.inode), (Kind::Plain(Plain::Data), Some(inode)));
            }
        }
    }
}

/// Between an fsync and the end of the mount the journal has what a replay would take.
#[test]
fn the_parts_of_a_live_journal_are_those_that_logdump_lists() {
    let image = Image::make("ext4", 64 << 20, &["-b", "4096"]);
    let mounted = image.mount();
    for index in 0..40 {
        let path = mounted.0.join(format!("file-{index}"));
        fs::write(&path, vec![7; 5000]).expect("written");
        fs::File::open(&path).and_then(|file| file.sync_all()).expect("synced");
        if index % 4 == 3 {
            // Frees a block of a directory, which a later transaction must not bring back.
            let folder = mounted.0.join(format!("folder-{index}"));
            fs::create_dir(&folder).expect("a folder");
            fs::File::open(&folder).and_then(|file| file.sync_all()).expect("synced");
            fs::remove_dir(&folder).expect("removed");
        }
    }
    fs::File::open(mounted.0.join("file-0")).and_then(|file| file.sync_all()).expect("synced");
    let copy = image.copy("crashed");
    drop(mounted);
    let map = map_of(&copy);
    let told = output_of("debugfs", &["-R".as_ref(), "logdump".as_ref(), copy.as_ref()]);
    let listed = told.lines().filter_map(|line| {
        // `Found expected sequence 2, type 1 (descriptor block) at block 1`
        let (_, rest) = line.split_once("Found expected sequence ")?;
        let kind = rest.split("type ").nth(1)?.split(' ').next()?.parse::<u32>().ok()?;
        Some((rest.rsplit(' ').next()?.parse::<u64>().ok()?, kind))
    });
    let told: Vec<(u64, u32)> = listed.collect();
    let journal: Vec<&rotproof_kinds::Extent> =
        map.extents().iter().filter(|extent| extent.kind.is_meant_by("journal")).collect();
    // Its blocks are in their order on the device, but not all beside each other.
    let blocks: Vec<u64> =
        journal.iter().flat_map(|extent| (extent.start..extent.end).step_by(BLOCK as usize)).collect();
    let mut count = 0;
    for (block, kind) in told {
        let found = map.at(blocks[block as usize]).expect("covered").kind;
        let wanted = match kind {
            1 => Plain::JournalDescriptor,
            2 => Plain::JournalCommit,
            5 => Plain::JournalRevoke,
            other => panic!("type {other}"),
        };
        assert_eq!(found, Kind::Plain(wanted), "block {block} of the journal");
        count += 1;
    }
    assert!(count > 20, "{count}");
    let totals = map.totals();
    for kind in [Plain::JournalData, Plain::JournalRevoke, Plain::JournalFree] {
        assert!(totals.contains_key(&Kind::Plain(kind)), "{kind:?} {totals:?}");
    }
}
