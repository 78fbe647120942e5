//! Random operations against a slow, obvious oracle: the file as a vector of bytes.

use std::sync::Arc;

use rotproof_guard::{GuardedFile, StoreOptions};

use crate::rig::{Rig, bytes};

const SIZE_MAX: u64 = 700_000;

struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % below.max(1)
    }
}

fn operate(seed: u64, steps: usize, switch_seconds: Option<u32>) {
    let rig = Rig::with(StoreOptions { switch_seconds, ..StoreOptions::default() });
    let mut store = rig.store();
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut oracle: Vec<u8> = Vec::new();
    let mut file: Option<Arc<GuardedFile>> = None;
    for step in 0..steps {
        let open = Arc::clone(file.get_or_insert_with(|| rig.open(&store, "a")));
        let offset = dice.below(SIZE_MAX);
        let length = match dice.below(4) {
            0 => dice.below(100),
            1 => dice.below(20_000),
            2 => 4096 * dice.below(20),
            _ => dice.below(400_000),
        };
        let length = length.min(SIZE_MAX - offset);
        let aligned = if dice.below(3) == 0 { offset / 4096 * 4096 } else { offset };
        let end = (aligned + length) as usize;
        match dice.below(14) {
            0..=3 => {
                let data = bytes(dice.below(u64::MAX), length as usize);
                assert_eq!(open.write_at(&data, aligned).expect("written"), data.len());
                if !data.is_empty() {
                    oracle.resize(oracle.len().max(end), 0);
                    oracle[aligned as usize..end].copy_from_slice(&data);
                }
            }
            4 => {
                let data = bytes(dice.below(u64::MAX), dice.below(9000) as usize);
                let (at, done) = open.append(&data, None).expect("appended");
                assert_eq!((at, done), (oracle.len() as u64, data.len()));
                oracle.extend_from_slice(&data);
            }
            5 => {
                open.set_size(aligned).expect("resized");
                oracle.resize(aligned as usize, 0);
            }
            6 => {
                if length > 0 {
                    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                    open.allocate(mode, aligned, length).expect("punched");
                    let to = end.min(oracle.len());
                    oracle[(aligned as usize).min(to)..to].fill(0);
                }
            }
            7 => {
                if length > 0 {
                    let keeps = dice.below(2) == 0;
                    let keep = if keeps { libc::FALLOC_FL_KEEP_SIZE } else { 0 };
                    let kind = if dice.below(2) == 0 { 0 } else { libc::FALLOC_FL_ZERO_RANGE };
                    open.allocate(kind | keep, aligned, length).expect("allocated");
                    if !keeps {
                        oracle.resize(oracle.len().max(end), 0);
                    }
                    if kind != 0 {
                        let to = end.min(oracle.len());
                        oracle[(aligned as usize).min(to)..to].fill(0);
                    }
                }
            }
            8 => open.sync(dice.below(2) == 0).expect("durable"),
            9 => {
                drop(open);
                file = None;
                if dice.below(3) == 0 {
                    drop(store);
                    store = rig.store();
                }
                continue;
            }
            10 => open.settle().expect("settled"),
            _ => {
                let mut read = vec![0xEE; length as usize];
                let done = open.read_at(&mut read, aligned).expect("no rot");
                let wanted = oracle.get(aligned as usize..end.min(oracle.len())).unwrap_or(&[]);
                assert!(done == wanted.len() && read[..done] == *wanted, "seed {seed}, step {step}");
            }
        }
        assert_eq!(open.size(), oracle.len() as u64, "seed {seed}, step {step}");
    }
    let open = file.unwrap_or_else(|| rig.open(&store, "a"));
    let mut read = vec![0; oracle.len() + 1];
    assert_eq!(open.read_at(&mut read, 0).expect("no rot"), oracle.len());
    assert!(read[..oracle.len()] == oracle[..], "seed {seed}");
    let counts = store.counts.now();
    assert_eq!((counts.unvouched, counts.mismatches, counts.torn), (0, 0, 0), "seed {seed}: {counts:?}");
    drop(open);
    assert!(std::fs::read(rig.path("a")).expect("read") == oracle, "an ordinary file, seed {seed}");
}

#[test]
fn random_operations_do_what_the_oracle_does() {
    let times = std::env::var("ROTPROOF_GUARD_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    for seed in 1..=6 * times {
        operate(seed, 400, (seed % 2 == 0).then_some(0));
    }
}
