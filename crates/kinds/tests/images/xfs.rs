//! XFS against xfs_db.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rotproof_kinds::{Extent, Kind, Map, Plain, ReadOnlyFile, ReadOptions, read};

use crate::image::{Image, fiemap, output_of};

const BLOCK: u64 = 4096;

fn map_of(image: &Image) -> Map {
    let file = ReadOnlyFile::open(&image.path, false).expect("opened");
    read(&file, ReadOptions { names: true }).expect("read")
}

/// What xfs_db calls a block that we call so.
fn words_of(kind: Kind) -> &'static [&'static str] {
    let Kind::Plain(kind) = kind else { return &[] };
    match kind {
        // Its four headers are in one block.
        Plain::SuperBlock | Plain::Agf | Plain::Agi | Plain::Agfl | Plain::Unused => &["sb"],
        Plain::AgflBlock => &["freelist"],
        Plain::Bnobt => &["btbno"],
        Plain::Cntbt => &["btcnt"],
        Plain::Inobt => &["btino"],
        Plain::Finobt => &["btfino"],
        Plain::Rmapbt => &["btrmap"],
        Plain::Refcountbt => &["btrefcnt"],
        Plain::InodeChunk => &["inode"],
        Plain::Directory | Plain::DirectoryLeaf | Plain::DirectoryFree => &["dir"],
        // It has no word of its own for them; the test looks at their magic numbers.
        Plain::Bmbt => &["data", "dir"],
        Plain::Xattr => &["attr"],
        Plain::Symlink => &["symlink"],
        Plain::Log => &["log"],
        Plain::Data => &["data"],
        Plain::Free => &["free1", "free2"],
        Plain::RealtimeBitmap => &["rtbitmap", "rtsummary"],
        _ => &[],
    }
}

/// Asks xfs_db for each of these blocks of the device.
fn asked(image: &Image, offsets: &[u64]) -> Vec<(String, Option<u64>)> {
    let script = image.folder.path().join("script");
    let mut commands = vec!["blockget -n".to_owned()];
    for offset in offsets {
        commands.push(format!("daddr {}", offset / 512));
        commands.push("blockuse".to_owned());
    }
    fs::write(&script, commands.join("\n") + "\n").expect("written");
    let told = output_of(
        "sh",
        &[
            "-c".as_ref(),
            "xfs_db -r \"$1\" < \"$2\"".as_ref(),
            "sh".as_ref(),
            image.path.as_ref(),
            script.as_ref(),
        ],
    );
    // `block 12 (0/12) type inode inode 131`
    let rows = told.lines().filter_map(|line| {
        let (_, rest) = line.split_once(") type ")?;
        let mut words = rest.split(' ');
        let kind = words.next()?.to_owned();
        let inode = words.nth(1).and_then(|number| number.parse().ok());
        Some((kind, inode))
    });
    rows.collect()
}

/// On a file system with every kind of block.
fn agree(options: &[&str]) -> Map {
    let map = agree_on(&Image::filled("xfs", 320 << 20, options));
    let totals = map.totals();
    for kind in [
        Plain::AgflBlock,
        Plain::Bnobt,
        Plain::Inobt,
        Plain::InodeChunk,
        Plain::Directory,
        Plain::DirectoryLeaf,
        Plain::DirectoryFree,
        Plain::Bmbt,
        Plain::Xattr,
        Plain::Symlink,
        Plain::Data,
    ] {
        assert!(totals.contains_key(&Kind::Plain(kind)), "{kind:?}: {totals:?}");
    }
    let marked = map.extents().iter().find(|extent| extent.kind == Kind::Plain(Plain::Xattr)).expect("one");
    assert_eq!(map.name(marked.owner), Some("/marked"));
    assert!(map.names.values().any(|name| name.ends_with("that-the-folder-grows-02998")));
    map
}

fn agree_on(image: &Image) -> Map {
    let map = map_of(image);
    assert_eq!(map.damages, []);
    // The first and last block of every stretch.
    let extents: Vec<&Extent> = map
        .extents()
        .iter()
        .filter(|extent| extent.kind != Kind::Plain(Plain::Unused) || extent.start % BLOCK > 0)
        .collect();
    let offsets: Vec<u64> =
        extents.iter().flat_map(|extent| [extent.start, (extent.end - 1) / 512 * 512]).collect();
    let told = asked(image, &offsets);
    let bytes = fs::read(&image.path).expect("readable");
    assert_eq!(told.len(), offsets.len());
    let pairs = extents.iter().flat_map(|extent| [extent, extent]);
    for ((extent, offset), (word, inode)) in pairs.zip(&offsets).zip(&told) {
        assert!(words_of(extent.kind).contains(&word.as_str()), "{extent:?} at {offset}: {word}");
        if extent.kind == Kind::Plain(Plain::Bmbt) {
            assert!(&bytes[extent.start as usize..][..3] == b"BMA", "{extent:?}");
        } else if extent.kind == Kind::Plain(Plain::Data) {
            assert_eq!(extent.owner.inode, *inode, "{extent:?}");
        }
    }
    let totals = map.totals();
    for kind in [Plain::SuperBlock, Plain::Agf, Plain::Agi, Plain::Agfl, Plain::Log, Plain::Free] {
        assert!(totals.contains_key(&Kind::Plain(kind)), "{kind:?}: {totals:?}");
    }
    assert!(!totals.contains_key(&Kind::Plain(Plain::Unknown)), "{totals:?}");
    map
}

#[test]
fn every_stretch_is_what_xfs_db_says() {
    agree(&[]);
}

#[test]
fn every_stretch_is_what_xfs_db_says_with_and_without_the_newer_trees() {
    let map = agree(&["-m", "rmapbt=1,reflink=1,finobt=1"]);
    for kind in [Plain::Rmapbt, Plain::Refcountbt, Plain::Finobt] {
        assert!(map.totals().contains_key(&Kind::Plain(kind)), "{kind:?}");
    }
}

/// Many kernels mount version 4 no more, so there are no files on it.
#[test]
fn every_stretch_of_version_4_is_what_xfs_db_says() {
    agree_on(&Image::make("xfs", 320 << 20, &["-m", "crc=0,finobt=0"]));
}

#[test]
fn the_kernel_says_of_mounted_files_what_the_map_says() {
    let image = Image::filled("xfs", 320 << 20, &[]);
    let map = map_of(&image);
    let mounted = image.mount();
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
