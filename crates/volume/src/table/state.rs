//! The state of a table: which of its parts were ever used, which are being changed, where its log begins, which blocks
//! are known to be lost.
//!
//! Three blocks, all numbers little-endian. The first: magic (8), version (4), words of an entry (4), identity of the table
//! (16), generation (8), place (8), XXH3-64 of all other bytes of the three (8), entries (8), first block of the log that
//! counts (8), number of lost blocks (8), what the owner keeps (64), what the owner had written before (number 4, how much 4, which
//! time its list 4), zeros to byte 256, the lost blocks (480 of 8 bytes).
//! The second: a bit for each granule that is being changed. The third: a bit for each that was ever used.
//!
//! A change is written to slot *generation mod 2* of both copies, so that the state before stays whole until then. Which of them counts
//! is for [`super::slots`].

use std::collections::BTreeSet;

use rotproof_block::{Buffer, Error, ErrorKind, Result};

use super::Witness;
use super::layout::{BLOCK_BYTES, Layout, STATE_BYTES};
use super::sealed::{read_u32, read_u64, read_u128, seal, unseal, write_u32, write_u64};

const MAGIC: [u8; 8] = *b"rotpTABL";
/// What this code writes and the newest that it reads. In version 2 the log does not say which state was durable when it was written,
/// in version 1 nothing is said of what the owner had written before.
pub(crate) const VERSION: u32 = 3;
const SUM_AT: usize = 48;
const WITNESS_AT: usize = 144;
const LOST_AT: usize = 256;
/// How many lost blocks are remembered by name.
pub(crate) const LOST_MAX: usize = (BLOCK_BYTES as usize - LOST_AT) / 8;
/// What the owner of a table keeps in its state.
pub(crate) type Owner = [u8; 64];

/// A bit for each granule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Granules(Box<[u8]>);

impl Default for Granules {
    fn default() -> Self {
        Self(vec![0; BLOCK_BYTES as usize].into())
    }
}

impl Granules {
    pub(crate) fn has(&self, granule: u64) -> bool {
        self.0[(granule / 8) as usize] & 1 << (granule % 8) != 0
    }

    pub(crate) fn set(&mut self, granule: u64, value: bool) {
        let byte = &mut self.0[(granule / 8) as usize];
        *byte = *byte & !(1 << (granule % 8)) | u8::from(value) << (granule % 8);
    }

    /// Those that are set, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.0.len() as u64 * 8).filter(|granule| self.has(*granule))
    }
}

/// The state, as it is in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// The version that it was read in.
    pub version: u32,
    pub id: u128,
    pub generation: u64,
    pub entries: u64,
    pub words: usize,
    /// Number of the first block of the log whose records are not in the pages.
    pub log_tail: u64,
    pub lost: BTreeSet<u64>,
    pub marks: Granules,
    pub used: Granules,
    pub owner: Owner,
    /// What the owner had written before.
    pub witness: Witness,
}

impl State {
    /// The state of a table of which nothing was ever used.
    pub(crate) fn new(id: u128, layout: &Layout, owner: Owner) -> Self {
        Self {
            version: VERSION,
            id,
            generation: 0,
            entries: layout.entries,
            words: layout.words,
            log_tail: 1,
            lost: BTreeSet::new(),
            marks: Granules::default(),
            used: Granules::default(),
            owner,
            witness: Witness::default(),
        }
    }

    /// Whether another one says the same, but for which time it was written.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        let Self { generation, version, .. } = *self;
        *self == Self { generation, version, ..other.clone() }
    }

    /// The three blocks, for a place.
    pub(crate) fn encode(&self, place: u64) -> Buffer {
        let mut bytes = Buffer::zeroed(STATE_BYTES as usize);
        bytes[..8].copy_from_slice(&MAGIC);
        write_u32(&mut bytes, 8, VERSION);
        write_u32(&mut bytes, 12, self.words as u32);
        bytes[16..32].copy_from_slice(&self.id.to_le_bytes());
        write_u64(&mut bytes, 32, self.generation);
        write_u64(&mut bytes, 40, place);
        write_u64(&mut bytes, 56, self.entries);
        write_u64(&mut bytes, 64, self.log_tail);
        write_u64(&mut bytes, 72, self.lost.len().min(LOST_MAX) as u64);
        bytes[80..144].copy_from_slice(&self.owner);
        write_u32(&mut bytes, WITNESS_AT, self.witness.of);
        write_u32(&mut bytes, WITNESS_AT + 4, self.witness.count);
        write_u32(&mut bytes, WITNESS_AT + 8, self.witness.list);
        for (at, lost) in self.lost.iter().take(LOST_MAX).enumerate() {
            write_u64(&mut bytes, LOST_AT + at * 8, *lost);
        }
        let block = BLOCK_BYTES as usize;
        bytes[block..2 * block].copy_from_slice(&self.marks.0);
        bytes[2 * block..].copy_from_slice(&self.used.0);
        seal(&mut bytes, SUM_AT);
        bytes
    }

    /// The state that lies in a place. `Ok(None)` if there is none that is whole.
    ///
    /// Fails with [`ErrorKind::Unsupported`] if it is of a newer version.
    pub(crate) fn decode(bytes: &[u8], place: u64) -> Result<Option<Self>> {
        if bytes.len() != STATE_BYTES as usize || bytes[..8] != MAGIC || !unseal(bytes, SUM_AT) {
            return Ok(None);
        }
        let version = read_u32(bytes, 8);
        if version > VERSION {
            let context = format!(
                "the checksums or maps on this device are of version {version}, newer than {VERSION}: use a newer rotproof"
            );
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let words = read_u32(bytes, 12) as usize;
        let count = read_u64(bytes, 72).min(LOST_MAX as u64) as usize;
        if read_u64(bytes, 40) != place || ![1, 2, 4].contains(&words) {
            return Ok(None);
        }
        let block = BLOCK_BYTES as usize;
        Ok(Some(Self {
            version,
            id: read_u128(bytes, 16),
            generation: read_u64(bytes, 32),
            entries: read_u64(bytes, 56),
            words,
            log_tail: read_u64(bytes, 64),
            lost: (0..count).map(|at| read_u64(bytes, LOST_AT + at * 8)).collect(),
            marks: Granules(bytes[block..2 * block].into()),
            used: Granules(bytes[2 * block..].into()),
            owner: bytes[80..144].try_into().expect("64 bytes"),
            witness: Witness {
                of: read_u32(bytes, WITNESS_AT),
                count: read_u32(bytes, WITNESS_AT + 4),
                list: read_u32(bytes, WITNESS_AT + 8),
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let mut state = State::new(77, &Layout::new(100_000, 2), [3; 64]);
        state.generation = 12;
        state.log_tail = 99;
        state.witness = Witness { of: 8, count: 1 << 30, list: 5 };
        state.lost = [5, 1 << 40].into();
        state.marks.set(3, true);
        state.used.set(3, true);
        state.used.set(32_767, true);
        state
    }

    #[test]
    fn it_comes_back_as_it_was_from_its_place_alone() {
        let bytes = state().encode(2);
        assert_eq!(State::decode(&bytes, 2).expect("known"), Some(state()));
        assert_eq!(State::decode(&bytes, 1).expect("known"), None);
        for bit in (0..bytes.len() * 8).step_by(101) {
            let mut broken = bytes.to_vec();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(State::decode(&broken, 2).expect("known"), None, "bit {bit}");
        }
        assert_eq!(state().used.iter().collect::<Vec<_>>(), [3, 32_767]);
    }

    #[test]
    fn a_newer_version_is_refused() {
        let mut bytes = state().encode(0).to_vec();
        write_u32(&mut bytes, 8, VERSION + 1);
        seal(&mut bytes, SUM_AT);
        assert_eq!(State::decode(&bytes, 0).expect_err("newer").kind(), ErrorKind::Unsupported);
    }
}
