//! Changing memory, byte by byte, and saying what was changed.

use rotproof_block::{ContentHash, Error, ErrorKind, Result};

use crate::memory::Memory;
use crate::needle::PAGE_BYTES;

/// How often a byte is tried that its owner keeps changing.
const TRIES: usize = 16;

/// What was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where the block of 4096 bytes begins that was changed.
    pub address: u64,
    /// XXH3-128 of it before.
    pub before: ContentHash,
    /// XXH3-128 of it as it was made.
    pub after: ContentHash,
    /// What was changed in it: offset in the block, the byte before, the byte after.
    pub bytes: Vec<(u16, u8, u8)>,
}

/// Makes the block at `address`, which holds `before`, hold `after`; writes only the bytes that differ, each of them at once.
///
/// Fails with [`ErrorKind::Gone`] if the owner of the memory has changed one of those bytes meanwhile. What had been written
/// by then is put back, as far as nobody has written over it.
pub fn apply(memory: &dyn Memory, address: u64, before: &[u8], after: &[u8]) -> Result<Change> {
    let differing = |&at: &usize| before[at] != after[at];
    let mut bytes = Vec::new();
    for at in (0..before.len().min(after.len())).filter(differing) {
        if !memory.replace(address + at as u64, before[at], after[at])? {
            for &(at, old, new) in &bytes {
                memory.replace(address + u64::from(at), new, old)?;
            }
            let context = "the block in memory has changed since it was found";
            return Err(Error::new(ErrorKind::Gone, context));
        }
        bytes.push((at as u16, before[at], after[at]));
    }
    Ok(Change { address, before: ContentHash::of(before), after: ContentHash::of(after), bytes })
}

/// Makes one bit have that value, whatever else its byte holds: for a bit that is stuck. Gives what was changed; nothing if it
/// has that value already.
pub fn set_bit(memory: &dyn Memory, address: u64, bit: u8, value: bool) -> Result<Option<Change>> {
    let start = address / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    let mask = 1u8 << (bit & 7);
    for _ in 0..TRIES {
        let mut before = vec![0; PAGE_BYTES];
        memory.read(start, &mut before)?;
        let at = (address - start) as usize;
        if (before[at] & mask != 0) == value {
            return Ok(None);
        }
        let mut after = before.clone();
        after[at] ^= mask;
        match apply(memory, start, &before, &after) {
            Err(error) if error.kind() == ErrorKind::Gone => {}
            done => return done.map(Some),
        }
    }
    let context = format!("the byte at {address:#x} changes faster than it can be written");
    Err(Error::new(ErrorKind::Gone, context))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use parking::Bytes;

    use super::*;

    /// Plain bytes as a memory.
    mod parking {
        use std::sync::Mutex;

        use super::*;
        use crate::{Needles, Region};

        #[derive(Debug)]
        pub struct Bytes(pub Mutex<Vec<u8>>);

        impl Memory for Bytes {
            fn regions(&self) -> Result<Vec<Region>> {
                let end = self.0.lock().expect("no panic").len() as u64;
                Ok(vec![Region { range: 0..end, kind: None }])
            }

            fn find(
                &self,
                _: &Range<u64>,
                needles: &Needles,
                found: &mut dyn FnMut(usize, u64),
            ) -> Result<()> {
                needles.find(&self.0.lock().expect("no panic"), &mut |number, at| found(number, at as u64));
                Ok(())
            }

            fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
                bytes.copy_from_slice(&self.0.lock().expect("no panic")[address as usize..][..bytes.len()]);
                Ok(())
            }

            fn replace(&self, address: u64, before: u8, after: u8) -> Result<bool> {
                let byte = &mut self.0.lock().expect("no panic")[address as usize];
                let is_it = *byte == before;
                if is_it {
                    *byte = after;
                }
                Ok(is_it)
            }
        }
    }

    fn memory() -> Bytes {
        Bytes(std::sync::Mutex::new((0..8192).map(|at| (at % 251) as u8).collect()))
    }

    fn page(memory: &Bytes, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_BYTES];
        memory.read(number * 4096, &mut bytes).expect("it is there");
        bytes
    }

    #[test]
    fn only_what_differs_is_written_and_both_hashes_are_told() {
        let memory = memory();
        let before = page(&memory, 1);
        let mut after = before.clone();
        after[7] ^= 4;
        after[4095] = 0xFF;
        let change = apply(&memory, 4096, &before, &after).expect("nobody else writes");
        assert_eq!(page(&memory, 1), after);
        assert_eq!((change.before, change.after), (ContentHash::of(&before), ContentHash::of(&after)));
        assert_eq!(change.bytes, [(7, before[7], after[7]), (4095, before[4095], 0xFF)]);
    }

    #[test]
    fn what_has_changed_meanwhile_is_left_as_it_was() {
        let memory = memory();
        let before = page(&memory, 0);
        let mut after = before.clone();
        (after[3], after[9]) = (200, 201);
        assert!(memory.replace(9, before[9], 77).expect("there"), "the owner writes");
        let error = apply(&memory, 0, &before, &after).expect_err("it is another block now");
        assert_eq!(error.kind(), ErrorKind::Gone);
        let now = page(&memory, 0);
        assert_eq!((now[3], now[9]), (before[3], 77), "nothing of ours is left");
    }

    #[test]
    fn a_stuck_bit_is_set_once_and_again_when_it_was_cleared() {
        let memory = memory();
        let old = page(&memory, 0)[5];
        let value = old & 2 == 0;
        assert!(set_bit(&memory, 5, 1, value).expect("set").is_some());
        assert!(set_bit(&memory, 5, 1, value).expect("there already").is_none());
        assert!(memory.replace(5, old ^ 2, old).expect("there"), "the owner writes");
        let again = set_bit(&memory, 5, 1, value).expect("set again").expect("a change");
        assert_eq!(again.bytes, [(5, old, old ^ 2)]);
    }
}
