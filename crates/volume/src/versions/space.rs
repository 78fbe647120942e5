//! Which blocks of the space are free: a bit for each, and a place where the search goes on.

use parking_lot::Mutex;
use std::ops::Range;

/// The blocks of a space.
#[derive(Debug)]
pub(super) struct Space(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    taken: Vec<u64>,
    blocks: u64,
    free: u64,
    next: u64,
}

impl Space {
    /// So many blocks, all free.
    pub(super) fn new(blocks: u64) -> Self {
        let words = blocks.div_ceil(64) as usize;
        Self(Mutex::new(Inner { taken: vec![0; words], blocks, free: blocks, next: 0 }))
    }

    pub(super) fn free(&self) -> u64 {
        self.0.lock().free
    }

    pub(super) fn blocks(&self) -> u64 {
        self.0.lock().blocks
    }

    /// Marks a block as taken. Whether it was free.
    pub(super) fn take(&self, block: u64) -> bool {
        let mut inner = self.0.lock();
        if block >= inner.blocks || inner.is_taken(block) {
            return false;
        }
        inner.set(block, true);
        true
    }

    /// Takes `count` blocks in as few runs as the search finds, those behind each other first. `None`, and none taken, if there
    /// are not so many.
    pub(super) fn allocate(&self, count: u64) -> Option<Vec<Range<u64>>> {
        let mut inner = self.0.lock();
        if inner.free < count {
            return None;
        }
        let (mut runs, mut left): (Vec<Range<u64>>, u64) = (Vec::new(), count);
        while left > 0 {
            let start = inner.first_free()?;
            let mut end = start;
            while end < inner.blocks && end - start < left && !inner.is_taken(end) {
                inner.set(end, true);
                end += 1;
            }
            left -= end - start;
            inner.next = end;
            runs.push(start..end);
        }
        Some(runs)
    }

    /// Takes `count` blocks behind each other.
    pub(super) fn allocate_run(&self, count: u64) -> Option<u64> {
        let mut inner = self.0.lock();
        let (mut start, mut at, mut looked) = (inner.next, inner.next, 0);
        while looked < 2 * inner.blocks {
            if at >= inner.blocks {
                (start, at) = (0, 0);
                continue;
            }
            looked += 1;
            at += 1;
            if inner.is_taken(at - 1) {
                start = at;
            } else if at - start == count {
                (start..at).for_each(|block| inner.set(block, true));
                inner.next = at;
                return Some(start);
            }
        }
        None
    }

    pub(super) fn give_back(&self, blocks: Range<u64>) {
        let mut inner = self.0.lock();
        for block in blocks {
            debug_assert!(inner.is_taken(block), "block {block} is given back twice");
            inner.set(block, false);
        }
    }
}

impl Inner {
    fn is_taken(&self, block: u64) -> bool {
        self.taken[(block / 64) as usize] & 1 << (block % 64) != 0
    }

    fn set(&mut self, block: u64, is_taken: bool) {
        let word = &mut self.taken[(block / 64) as usize];
        let before = *word;
        *word = before & !(1 << (block % 64)) | u64::from(is_taken) << (block % 64);
        match (before != *word, is_taken) {
            (true, true) => self.free -= 1,
            (true, false) => self.free += 1,
            (false, _) => {}
        }
    }

    /// The next free block from where the search stands, around the end.
    fn first_free(&self) -> Option<u64> {
        let words = self.taken.len() as u64;
        let first = self.next % self.blocks.max(1);
        for step in 0..=words {
            let word = (first / 64 + step) % words;
            let mut free = !self.taken[word as usize];
            if step == 0 {
                free &= u64::MAX << (first % 64);
            }
            let block = word * 64 + u64::from(free.trailing_zeros());
            if free != 0 && block < self.blocks {
                return Some(block);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_block::hash::mix;

    #[test]
    fn no_block_is_had_twice_and_all_can_be_had() {
        let space = Space::new(1000);
        assert!(space.take(999) && !space.take(999) && !space.take(1000));
        let mut held: Vec<Range<u64>> = Vec::new();
        let mut taken = [false; 1000];
        taken[999] = true;
        for round in 0..3000 {
            if mix(1, 0, round).is_multiple_of(2) && !held.is_empty() {
                let run = held.swap_remove((mix(1, 1, round) % held.len() as u64) as usize);
                run.clone().for_each(|block| taken[block as usize] = false);
                space.give_back(run);
                continue;
            }
            let count = 1 + mix(1, 2, round) % 60;
            let runs = match round % 3 {
                0 => space.allocate_run(16).map(|start| vec![start..start + 16]),
                _ => space.allocate(count),
            };
            let free = taken.iter().filter(|taken| !**taken).count() as u64;
            let Some(runs) = runs else {
                assert!(round % 3 == 0 || free < count);
                continue;
            };
            for block in runs.iter().cloned().flatten() {
                assert!(!std::mem::replace(&mut taken[block as usize], true));
            }
            held.extend(runs);
            assert_eq!(space.free(), taken.iter().filter(|taken| !**taken).count() as u64);
        }
        let rest = space.free();
        assert_eq!(
            space.allocate(rest).expect("all").iter().map(|run| run.end - run.start).sum::<u64>(),
            rest
        );
        assert!(space.allocate(1).is_none());
    }
}
