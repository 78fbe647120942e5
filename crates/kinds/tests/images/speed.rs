//! How long it takes; to be looked at, as times differ from machine to machine.

use std::fs;
use std::hint::black_box;
use std::time::Instant;

use rotproof_kinds::{ReadOnlyFile, ReadOptions, read};

use crate::image::Image;

#[test]
#[expect(clippy::print_stderr, reason = "what it is for")]
#[ignore = "a measurement: 4 GiB and 100,000 files for each file system"]
fn four_gibibytes_and_a_hundred_thousand_files() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let image = Image::make(kind, 4 << 30, &[]);
        let mounted = image.mount();
        for folder in 0..100 {
            let folder = mounted.0.join(format!("folder-{folder}"));
            fs::create_dir(&folder).expect("a folder");
            for file in 0..1000 {
                fs::write(folder.join(format!("file-{file}")), vec![1; 5000 + file * 20]).expect("a file");
            }
        }
        drop(mounted);
        let file = ReadOnlyFile::open(&image.path, false).expect("opened");
        for names in [false, true, false] {
            let started = Instant::now();
            let map = read(&file, ReadOptions { names }).expect("read");
            let took = started.elapsed();
            let started = Instant::now();
            for block in 0..1_000_000_u64 {
                black_box(map.at(block.wrapping_mul(0x9e37_79b9_7f4a_7c15) % map.size));
            }
            let one = started.elapsed() / 1_000_000;
            eprintln!(
                "{kind}, names {names}: {took:?}, {} stretches; one block {one:?}",
                map.extents().len()
            );
        }
    }
}
