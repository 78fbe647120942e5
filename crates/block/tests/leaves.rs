//! Every leaf keeps the contract, on every runtime that it can run on.

use std::sync::Arc;

use rotproof_block::Device;
use rotproof_block::conformance::{On, check};
use rotproof_block::leaf::{DiskProfile, FileDevice, FileOptions, MemoryDevice, SimulatedDisk};

const SIZE: u64 = 4 << 20;

#[track_caller]
fn passes(on: On, make: impl Fn() -> rotproof_block::Result<Arc<dyn Device>>) {
    if let Err(breach) = check(on, &make) {
        panic!("{on:?}: {breach}");
    }
}

#[test]
fn the_memory_leaf_keeps_the_contract() {
    for on in [On::Uring, On::Simulated] {
        for block_size in [512, 4096] {
            passes(on, || Ok(MemoryDevice::new(SIZE, block_size)?));
        }
    }
}

#[test]
fn the_file_leaf_keeps_the_contract_direct_and_through_the_page_cache() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    for on in [On::Uring, On::Simulated] {
        for direct in [true, false] {
            passes(on, || {
                let path = folder.path().join("disk.img");
                let _ = std::fs::remove_file(&path);
                let options =
                    FileOptions { size_bytes: Some(SIZE), direct, create: true, ..FileOptions::default() };
                Ok(FileDevice::open(&path, options)?)
            });
        }
    }
}

#[test]
fn a_read_only_file_leaf_keeps_the_contract() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let path = folder.path().join("disk.img");
    std::fs::File::create(&path).and_then(|file| file.set_len(SIZE)).expect("a sparse file");
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    passes(On::Uring, || Ok(FileDevice::open(&path, options)?));
}

#[test]
fn the_simulated_disk_keeps_the_contract_with_every_profile() {
    for profile in [DiskProfile::HDD, DiskProfile::SSD, DiskProfile::NVME] {
        passes(On::Simulated, || Ok(SimulatedDisk::new(SIZE, 512, profile)?));
    }
    passes(On::Uring, || Ok(SimulatedDisk::new(SIZE, 4096, DiskProfile::NVME)?));
}
