//! Random operations through the mount and through the library in turns, against a slow, obvious oracle: files as vectors of
//! bytes.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rotproof_guard::GuardedFile;
use rotproof_guard_fuse::MountOptions;

use crate::rig::{Rig, bytes};

const SIZE_MAX: u64 = 300_000;

struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % below.max(1)
    }
}

fn operate(seed: u64, steps: usize, options: MountOptions) {
    let rig = Rig::with(options);
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut oracle: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut open: BTreeMap<String, File> = BTreeMap::new();
    for step in 0..steps {
        let name = format!("f{}", dice.below(4));
        let at = || format!("seed {seed}, step {step}, {name}");
        if !oracle.contains_key(&name) {
            let made = OpenOptions::new().read(true).write(true).create_new(true).open(rig.path(&name));
            open.insert(name.clone(), made.unwrap_or_else(|error| panic!("{}: {error}", at())));
            oracle.insert(name.clone(), Vec::new());
        }
        let file = open.entry(name.clone()).or_insert_with(|| {
            OpenOptions::new().read(true).write(true).open(rig.path(&name)).expect("open")
        });
        let content = oracle.get_mut(&name).expect("there");
        let offset = dice.below(SIZE_MAX);
        let length = if dice.below(2) == 0 { dice.below(200) } else { dice.below(60_000) };
        let end = (offset + length) as usize;
        match dice.below(12) {
            0..=2 if length > 0 => {
                let data = bytes(dice.below(u64::MAX), length as usize);
                file.write_all_at(&data, offset).expect("written");
                content.resize(content.len().max(end), 0);
                content[offset as usize..end].copy_from_slice(&data);
            }
            3 if length > 0 && !options.is_cached => {
                // The other door.
                let below = OpenOptions::new().read(true).write(true).open(rig.below(&name)).expect("open");
                let library = GuardedFile::open(&rig.store, below.as_raw_fd(), true, &rig.below(&name))
                    .expect("guarded");
                let data = bytes(dice.below(u64::MAX), length as usize);
                library.write_at(&data, offset).expect("written");
                content.resize(content.len().max(end), 0);
                content[offset as usize..end].copy_from_slice(&data);
            }
            4 => {
                file.set_len(offset).expect("resized");
                content.resize(offset as usize, 0);
            }
            5 if length > 0 => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                // SAFETY: an open descriptor and numbers.
                let done = unsafe {
                    libc::fallocate(file.as_raw_fd(), mode, offset.cast_signed(), length.cast_signed())
                };
                assert_eq!(done, 0, "{}", at());
                let to = end.min(content.len());
                content[(offset as usize).min(to)..to].fill(0);
            }
            6 => file.sync_data().expect("durable"),
            7 => {
                open.remove(&name);
            }
            8 => {
                open.remove(&name);
                fs::remove_file(rig.path(&name)).expect("removed");
                oracle.remove(&name);
            }
            9 => {
                let other = format!("f{}", dice.below(4));
                if other != name {
                    fs::rename(rig.path(&name), rig.path(&other)).expect("renamed");
                    let content = oracle.remove(&name).expect("there");
                    oracle.insert(other.clone(), content);
                    let file = open.remove(&name).expect("open");
                    open.insert(other, file);
                }
            }
            _ => {
                let mut read = vec![0xEE; length as usize];
                let done =
                    file.read_at(&mut read, offset).unwrap_or_else(|error| panic!("{}: {error}", at()));
                let wanted = content.get(offset as usize..end.min(content.len())).unwrap_or(&[]);
                // A read may be short; at the end of the file only.
                assert!(done == wanted.len() && read[..done] == *wanted, "{}", at());
            }
        }
    }
    drop(open);
    for (name, content) in &oracle {
        assert!(fs::read(rig.path(name)).expect("read") == *content, "seed {seed}, {name}");
        assert!(fs::read(rig.below(name)).expect("read") == *content, "below, seed {seed}, {name}");
    }
    rig.assert_all_verified();
}

/// `ROTPROOF_GUARD_TIMES=50` does 100,000 operations, `ROTPROOF_GUARD_FOLDER` says on which file system.
#[test]
fn random_operations_do_what_the_oracle_does() {
    let times = std::env::var("ROTPROOF_GUARD_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    for seed in 1..=4 * times {
        operate(seed, 500, MountOptions { is_cached: seed % 4 == 0, ..MountOptions::default() });
    }
}
