//! How often each content was met, in bounded memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::compression::{FEW, is_of_sample};
use crate::duplicates::Distribution;

/// Maps that threads rarely meet at.
const SHARDS: usize = 64;

/// Hashes that a thread keeps for one shard before it takes its lock.
const BATCH: usize = 128;

/// Contents by hash. A content is followed if the `level` lowest bits of its hash are zero.
pub struct Counts {
    shards: Vec<Mutex<Shard>>,
    level: AtomicU32,
    /// Held by the thread that raises the level.
    raising: Mutex<()>,
    contents: AtomicUsize,
    contents_max: usize,
}

#[derive(Default)]
struct Shard {
    contents: HashMap<u64, Met, BuildHasherDefault<AsItIs>>,
    level: u32,
}

/// A content that was met.
#[derive(Clone, Copy)]
struct Met {
    times: u64,
    /// What it takes when compressed, if that was measured.
    compressed_bytes: Option<u16>,
}

/// A hash needs no hashing.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        // Shards and levels take the ends of it.
        self.0 = number.rotate_left(29);
    }
}

/// Whether a content is followed at a level.
fn is_followed(hash: u64, level: u32) -> bool {
    hash.trailing_zeros() >= level
}

impl Counts {
    /// Follows up to about so many contents at once.
    pub fn new(contents_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            level: AtomicU32::new(0),
            raising: Mutex::default(),
            contents: AtomicUsize::new(0),
            contents_max: contents_max.max(SHARDS),
        }
    }

    /// What one thread adds to.
    pub fn batch(&self) -> Batch<'_> {
        Batch { counts: self, pending: vec![Vec::new(); SHARDS], level: self.level.load(Ordering::Relaxed) }
    }

    fn add(&self, shard: usize, blocks: &mut Vec<(u64, Option<u16>)>) {
        {
            let mut shard = self.shards[shard].lock();
            let level = self.level.load(Ordering::Relaxed);
            self.forget(&mut shard, level);
            let before = shard.contents.len();
            for (hash, compressed_bytes) in blocks.drain(..).filter(|&(hash, _)| is_followed(hash, level)) {
                shard.contents.entry(hash).or_insert(Met { times: 0, compressed_bytes }).times += 1;
            }
            self.contents.fetch_add(shard.contents.len() - before, Ordering::Relaxed);
        }
        if self.contents.load(Ordering::Relaxed) > self.contents_max {
            self.raise();
        }
    }

    /// Follows half as many contents from now on. One thread does; the others go on.
    fn raise(&self) {
        let Some(_alone) = self.raising.try_lock() else { return };
        // Another one may have been here a moment ago.
        if self.contents.load(Ordering::Relaxed) <= self.contents_max {
            return;
        }
        let level = self.level.fetch_add(1, Ordering::Relaxed) + 1;
        for shard in &self.shards {
            self.forget(&mut shard.lock(), level);
        }
    }

    /// Forgets what is no longer followed at a level.
    fn forget(&self, shard: &mut Shard, level: u32) {
        if shard.level < level {
            let before = shard.contents.len();
            shard.contents.retain(|&hash, _| is_followed(hash, level));
            shard.level = level;
            self.contents.fetch_sub(before - shard.contents.len(), Ordering::Relaxed);
        }
    }

    /// The contents by duplicates, of how many contents one was followed, and the mean bytes of a content when compressed.
    pub fn finish(self) -> (Distribution, u64, Option<f64>) {
        let level = self.level.into_inner();
        let are_few = level == 0 && self.contents.load(Ordering::Relaxed) <= FEW;
        let sampled = 1u64 << level;
        let mut distribution = Distribution::default();
        let (mut bytes, mut measured) = (0u64, 0u64);
        for shard in self.shards {
            let contents = shard.into_inner().contents;
            for (hash, met) in contents.into_iter().filter(|&(hash, _)| is_followed(hash, level)) {
                distribution.add(met.times - 1, sampled);
                // Those of the first that are not of the sample count only if there were no others: otherwise it would
                // depend on who came first.
                if let Some(compressed_bytes) = met.compressed_bytes.filter(|_| are_few || is_of_sample(hash))
                {
                    bytes += u64::from(compressed_bytes);
                    measured += 1;
                }
            }
        }
        let mean = (measured > 0).then(|| bytes as f64 / measured as f64);
        (distribution, sampled, mean)
    }
}

/// What one thread has met and not yet counted.
pub struct Batch<'a> {
    counts: &'a Counts,
    pending: Vec<Vec<(u64, Option<u16>)>>,
    level: u32,
}

impl Batch<'_> {
    /// Counts a block; `compressed_bytes` is asked only if its content is followed and to be measured.
    #[inline]
    pub fn add(&mut self, hash: u64, compressed_bytes: impl FnOnce() -> u16) {
        if !is_followed(hash, self.level) {
            return;
        }
        let shard = (hash >> 58) as usize % SHARDS;
        let pending = &mut self.pending[shard];
        let is_measured = is_of_sample(hash) || self.counts.contents.load(Ordering::Relaxed) <= FEW;
        pending.push((hash, is_measured.then(compressed_bytes)));
        if pending.len() >= BATCH {
            self.counts.add(shard, pending);
            self.level = self.counts.level.load(Ordering::Relaxed);
        }
    }

    /// Counts everything that is left.
    pub fn flush(mut self) {
        for (shard, pending) in self.pending.iter_mut().enumerate().filter(|(_, pending)| !pending.is_empty())
        {
            self.counts.add(shard, pending);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_block::hash::mix;

    fn count(contents_max: usize, contents: u64, times: impl Fn(u64) -> u64) -> (Distribution, u64) {
        let counts = Counts::new(contents_max);
        for round in 0..(0..contents).map(&times).max().unwrap_or(0) {
            let mut batch = counts.batch();
            for content in (0..contents).filter(|&content| times(content) > round) {
                batch.add(mix(1, 2, content), || content as u16 % 100);
            }
            batch.flush();
        }
        let (distribution, sampled, mean) = counts.finish();
        assert!(
            mean.is_some_and(|mean| (40.0..60.0).contains(&mean)),
            "of contents, not of blocks: {mean:?}"
        );
        (distribution, sampled)
    }

    #[test]
    fn few_contents_are_counted_exactly() {
        let (distribution, sampled) = count(10_000, 3000, |content| 1 + content % 3);
        assert_eq!((distribution, sampled), (Distribution::from_pairs([(0, 1000), (1, 1000), (2, 1000)]), 1));
    }

    #[test]
    fn many_contents_are_a_fair_sample_of_which_each_is_exact() {
        let (distribution, sampled) = count(2000, 100_000, |content| if content % 10 == 0 { 5 } else { 1 });
        assert!(sampled >= 64, "{sampled}");
        let lines: Vec<(u64, u64)> = distribution.lines().collect();
        let [(0, unique), (4, repeated)] = lines[..] else { panic!("{lines:?}") };
        assert!((unique as f64 / 90_000.0 - 1.0).abs() < 0.15, "{unique}");
        assert!((repeated as f64 / 10_000.0 - 1.0).abs() < 0.35, "{repeated}");
    }

    #[test]
    fn threads_that_meet_count_every_block_once() {
        let counts = Counts::new(5000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut batch = counts.batch();
                    (0..50_000).for_each(|content| {
                        batch.add(mix(3, 4, content), || 7);
                    });
                    batch.flush();
                });
            }
        });
        let (distribution, sampled, _) = counts.finish();
        // Whatever was followed to the end was met by all four.
        assert_eq!(distribution.lines().map(|(duplicates, _)| duplicates).collect::<Vec<_>>(), [3]);
        assert!(sampled > 1 && (distribution.contents() as f64 / 50_000.0 - 1.0).abs() < 0.2);
    }
}
