//! What a version has that the present has not: for each block that was written since, where it was before.
//!
//! On the medium a history is a chain of extents of 4 slots. A block has two slots, and as long as it is not full, what comes
//! is written with all that it has to the slot that is not the newest. All numbers of a block are little-endian: magic (8),
//! identity of the table (16), identity of the history (4), number of pairs (4), number of the block in the history (4),
//! revision (4), XXH3-64 of all other bytes (8), first slot of the next extent (8), zeros to byte 64, pairs of block and place
//! (4 + 4 each; place 0 for a block without content).

use std::collections::HashMap;

use rotproof_block::{Buffer, Context, Result};

use super::history_room::HistoryRoom;
use crate::io::Io;
use crate::table::BLOCK_BYTES;
use crate::table::sealed::{read_u32, read_u64, read_u128, seal, unseal, write_u32, write_u64};

const MAGIC: [u8; 8] = *b"rotpHIST";
const SUM_AT: usize = 40;
const HEADER_BYTES: usize = 64;
/// Pairs in a block.
pub(super) const PAIRS: usize = (BLOCK_BYTES as usize - HEADER_BYTES) / 8;
/// Slots of an extent.
pub(super) const EXTENT: u64 = 4;

/// The history of one version.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Where blocks were: places as in the map, 0 for none.
    pub pairs: HashMap<u32, u32>,
    /// Pairs that are not on the medium yet.
    pub pending: Vec<(u32, u32)>,
    /// First slots of its extents; the last one is not used yet.
    pub extents: Vec<u64>,
    /// What is on the medium.
    pub written: Written,
    /// Some of it cannot be read any more.
    pub is_damaged: bool,
}

/// How much of a history is on the medium.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// Full blocks.
    full: u64,
    /// The pairs of the block that is not full.
    rest: Vec<(u32, u32)>,
    /// How often that one was written.
    revision: u32,
}

impl Written {
    /// Pairs that are there.
    pub(super) fn pairs(&self) -> u64 {
        self.full * PAIRS as u64 + self.rest.len() as u64
    }
}

/// What identifies a history on a medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub table: u128,
    pub history: u64,
}

impl History {
    /// An empty one, with room for its first block. Fails with [`ErrorKind::NoSpace`].
    pub(super) fn new(room: &HistoryRoom) -> Result<Self> {
        Ok(Self { extents: vec![room.extent()?], ..Self::default() })
    }

    /// Notes where a block was, if that is not known.
    pub(super) fn note(&mut self, block: u32, place: u32) -> bool {
        let is_new = !self.pairs.contains_key(&block);
        if is_new {
            self.pairs.insert(block, place);
            self.pending.push((block, place));
        }
        is_new
    }

    /// The blocks that pending pairs take, with the slots that they belong in, and what is written when they are. Room for the
    /// next extent is taken first.
    pub(super) fn encode_pending(
        &mut self,
        room: &HistoryRoom,
        identity: Identity,
    ) -> Result<(Vec<(u64, Buffer)>, Written)> {
        let mut written = self.written.clone();
        let mut pairs = std::mem::take(&mut written.rest);
        pairs.extend(&self.pending);
        let mut encoded = Vec::new();
        for part in pairs.chunks(PAIRS) {
            let (number, revision) = (written.full, written.revision + 1);
            let slot = 2 * number + u64::from(revision % 2);
            let extent_number = (slot / EXTENT) as usize;
            while self.extents.len() < extent_number + 2 {
                self.extents.push(room.extent()?);
            }
            let mut bytes = Buffer::zeroed(BLOCK_BYTES as usize);
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..24].copy_from_slice(&identity.table.to_le_bytes());
            write_u32(&mut bytes, 24, identity.history as u32);
            write_u32(&mut bytes, 28, part.len() as u32);
            write_u32(&mut bytes, 32, number as u32);
            write_u32(&mut bytes, 36, revision);
            write_u64(&mut bytes, 48, self.extents[extent_number + 1]);
            for (at, (block, place)) in part.iter().enumerate() {
                write_u32(&mut bytes, HEADER_BYTES + at * 8, *block);
                write_u32(&mut bytes, HEADER_BYTES + at * 8 + 4, *place);
            }
            seal(&mut bytes, SUM_AT);
            encoded.push((self.extents[extent_number] + slot % EXTENT, bytes));
            if part.len() == PAIRS {
                (written.full, written.revision) = (number + 1, 0);
            } else {
                (written.rest, written.revision) = (part.to_vec(), revision);
            }
        }
        Ok((encoded, written))
    }

    /// Reads a history that begins at block `first` of the room for histories, which lies at `at` on the device. `known` pairs of it
    /// must be there: of a block whose newest slot cannot be read the other one has fewer. It ends where no block is whole any more.
    pub(super) async fn read(
        io: &Io,
        at: u64,
        blocks: u64,
        first: u64,
        known: u64,
        identity: Identity,
    ) -> Result<Self> {
        let mut history = Self { extents: vec![first], ..Self::default() };
        let mut extent = first;
        'all: while extent + EXTENT <= blocks {
            let mut next = None;
            for pair in 0..EXTENT / 2 {
                let number = history.written.full;
                let mut newest: Option<Decoded> = None;
                for slot in 0..2 {
                    let accepts = |bytes: &[u8]| decode(bytes, identity, number);
                    let offset = at + (extent + 2 * pair + slot) * BLOCK_BYTES;
                    let read = io
                        .read_valid(offset, BLOCK_BYTES as usize, identity.table, accepts, Context::default())
                        .await?;
                    newest = read
                        .map(|(_, decoded)| decoded)
                        .into_iter()
                        .chain(newest)
                        .max_by_key(|one| one.revision);
                }
                let Some(decoded) = newest else { break };
                next = Some(decoded.next);
                for (block, place) in &decoded.pairs {
                    history.pairs.entry(*block).or_insert(*place);
                }
                if decoded.pairs.len() < PAIRS {
                    (history.written.rest, history.written.revision) = (decoded.pairs, decoded.revision);
                    history.extents.push(decoded.next);
                    break 'all;
                }
                history.written.full += 1;
            }
            // The extent after one in use was taken together with it.
            let Some(next) = next else { break };
            history.extents.push(next);
            if !(2 * history.written.full).is_multiple_of(EXTENT) {
                break;
            }
            extent = next;
        }
        history.is_damaged = history.written.pairs() < known;
        Ok(history)
    }
}

/// A block of a history.
struct Decoded {
    revision: u32,
    /// The first slot of the next extent.
    next: u64,
    pairs: Vec<(u32, u32)>,
}

fn decode(bytes: &[u8], identity: Identity, number: u64) -> Option<Decoded> {
    let is_it = bytes.len() == BLOCK_BYTES as usize
        && bytes[..8] == MAGIC
        && unseal(bytes, SUM_AT)
        && read_u128(bytes, 8) == identity.table
        && u64::from(read_u32(bytes, 24)) == identity.history & u64::from(u32::MAX)
        && u64::from(read_u32(bytes, 32)) == number;
    let count = (read_u32(bytes, 28) as usize).min(PAIRS);
    let pair =
        |at: usize| (read_u32(bytes, HEADER_BYTES + at * 8), read_u32(bytes, HEADER_BYTES + at * 8 + 4));
    is_it.then(|| Decoded {
        revision: read_u32(bytes, 36),
        next: read_u64(bytes, 48),
        pairs: (0..count).map(pair).collect(),
    })
}

/// How many pairs a block of a history has, wherever it lies.
pub(crate) fn count_in_history(bytes: &[u8]) -> Option<usize> {
    let header = bytes.get(..HEADER_BYTES)?;
    let identity = Identity { table: read_u128(header, 8), history: read_u32(header, 24).into() };
    decode(bytes, identity, read_u32(header, 32).into()).map(|block| block.pairs.len())
}
