//! The scanner against contents that the load makes, and against folders with everything in them.

use std::fs;

use super::*;
use crate::content::{Content, Stage};
use crate::duplicates::{Duplicates, Profile};
use crate::{LoadSpec, ObjectInfo, Workload};
use rotproof_spec::Percent;

fn scan_all(paths: &[PathBuf], threads: usize, contents_max: usize) -> Scanned {
    let bytes = AtomicU64::new(0);
    let options = ScanOptions { threads, contents_max, bytes: &bytes, is_cancelled: &|| false };
    scan(paths, &options).expect("it can be read").expect("it is not cancelled")
}

/// The bytes that a sequential load writes to a device of so many blocks.
fn written(spec: &LoadSpec, blocks: u64) -> Vec<u8> {
    let objects = [ObjectInfo::new("device", blocks * BLOCK_BYTES as u64)];
    let workload = Workload::new(spec, 5, &objects).expect("makes sense");
    let mut data = vec![0; blocks as usize * BLOCK_BYTES];
    for (written, block) in workload.stream(Stage::Run, 0).written().zip(data.chunks_exact_mut(BLOCK_BYTES)) {
        workload.content().fill(written.content, block);
    }
    data
}

#[test]
fn what_a_load_writes_is_found_again_and_can_be_written_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = LoadSpec {
        duplicates: Duplicates::Profile(Profile::Kernels),
        compressible: Percent(0.4),
        ..LoadSpec::default()
    };
    let blocks = 1u64 << 13;
    let file = folder.path().join("data");
    fs::write(&file, written(&spec, blocks)).expect("written");
    let found = scan_all(std::slice::from_ref(&file), 2, 1 << 20);
    assert_eq!((found.blocks, found.files, found.sampled), (blocks, 1, 1));
    assert_eq!(found.distribution.blocks(), u128::from(blocks));
    assert!((found.distribution.savable() - 0.609).abs() < 0.01, "{}", found.distribution.savable());
    assert!((found.compressible - 0.4).abs() < 0.02, "{}", found.compressible);
    assert_eq!(found, scan_all(std::slice::from_ref(&file), 1, 1 << 20), "whatever the threads");
    let again = LoadSpec { duplicates: Duplicates::Distribution(found.distribution.clone()), ..spec.clone() };
    fs::write(&file, written(&again, blocks)).expect("written");
    let twice = scan_all(std::slice::from_ref(&file), 2, 1 << 20);
    assert!((twice.distribution.savable() - found.distribution.savable()).abs() < 0.01);
    assert!((twice.distribution.unique() - found.distribution.unique()).abs() < 0.02);
    // In a sixteenth of the memory it is a sample.
    let sampled = scan_all(&[file], 2, 400);
    assert!(sampled.sampled >= 8, "{}", sampled.sampled);
    assert!((sampled.distribution.savable() - 0.609).abs() < 0.1, "{}", sampled.distribution.savable());
}

#[test]
fn folders_are_read_whole_links_are_not_followed_and_ends_of_files_are_filled_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let below = folder.path().join("a/b");
    fs::create_dir_all(&below).expect("folders");
    let content = Content::new(1);
    let mut block = vec![0; BLOCK_BYTES];
    content.fill(crate::ContentId::new(Stage::Run, 0, 1), &mut block);
    fs::write(folder.path().join("one"), &block).expect("written");
    fs::write(below.join("two"), [&block[..], &[7; 10]].concat()).expect("written");
    fs::write(below.join("seven"), [7; 10]).expect("written");
    fs::write(below.join("empty"), []).expect("written");
    std::os::unix::fs::symlink("/", below.join("root")).expect("a link");
    let found = scan_all(&[folder.path().to_owned()], 3, 1 << 16);
    // The block twice; the tail of ten sevens twice.
    assert_eq!(found.distribution, Distribution::from_pairs([(1, 2)]));
    assert_eq!((found.blocks, found.files, found.unreadable.len()), (4, 4, 0));
}

#[test]
fn what_is_not_there_is_refused_and_a_cancelled_scan_has_no_result() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = AtomicU64::new(0);
    let options = ScanOptions { threads: 1, contents_max: 100, bytes: &bytes, is_cancelled: &|| true };
    assert!(scan(&[folder.path().join("nothing")], &options).is_err());
    assert!(
        scan(&["/dev/null".into()], &options).expect_err("no file").to_string().contains("no file, folder")
    );
    fs::write(folder.path().join("x"), [1; 100]).expect("written");
    assert_eq!(scan(&[folder.path().to_owned()], &options).expect("readable"), None);
}

#[test]
fn few_contents_are_all_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("zeros");
    fs::write(&file, vec![0; 100 * BLOCK_BYTES]).expect("written");
    let found = scan_all(&[file], 2, 1 << 20);
    assert_eq!(found.distribution.contents(), 1);
    assert!(found.compressible > 0.98, "{}", found.compressible);
}
