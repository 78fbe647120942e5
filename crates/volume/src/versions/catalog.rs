//! The list of versions on the medium.
//!
//! All numbers little-endian. The header, 128 bytes: magic (8), version of the format (4), number of versions (4), identity of
//! the table (16), generation (8), place (8), XXH3-64 of all other bytes (8), identity of the next version (8), identity of the
//! version that is being gone back to or 0 (8), identity of the next history (8), zeros. Then 104 bytes for each version, the
//! oldest first: identity (8), time in nanoseconds since 1970 (8), identity of its history (8), first extent of that (8), pairs
//! of it that must be there (8; blocks of it in version 1), flags (8: 1 automatic, 2 damaged), bytes of the name (8), name (48).
//!
//! As the state of a table it is written to slot *generation mod 2* of two copies.

use rotproof_block::{Buffer, Context, Error, ErrorKind, Result};

use super::history::PAIRS;
use crate::io::Io;
use crate::table::sealed::{read_u32, read_u64, read_u128, seal, unseal, write_u32, write_u64};

const MAGIC: [u8; 8] = *b"rotpVERS";
const VERSION: u32 = 2;
const SUM_AT: usize = 48;
const HEADER_BYTES: usize = 128;
const RECORD_BYTES: usize = 104;
/// The longest name of a version in bytes.
pub const NAME_MAX: usize = 48;
/// Bytes of a slot.
const SLOT_BYTES: u64 = 32 << 10;
/// Bytes of all slots.
pub(super) const CATALOG_BYTES: u64 = 4 * SLOT_BYTES;
/// The most versions there can be.
pub(super) const VERSIONS_MAX: usize = (SLOT_BYTES as usize - HEADER_BYTES) / RECORD_BYTES;

/// A version in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub id: u64,
    pub time_ns: u64,
    /// Identity of its history: another each time one is written anew, so that nothing of an older one is taken for it.
    pub history: u64,
    /// First slot of its history.
    pub first: u64,
    /// Pairs of its history that were there when the list was written.
    pub pairs: u64,
    pub is_automatic: bool,
    /// Some of its history was lost, for good.
    pub is_damaged: bool,
    pub name: String,
}

/// The list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Catalog {
    pub generation: u64,
    pub next_id: u64,
    /// The version that is being gone back to; 0 for none.
    pub going_back_to: u64,
    /// The next history; those before may have left something on the medium.
    pub next_history: u64,
    pub versions: Vec<Listed>,
}

impl Catalog {
    fn encode(&self, table: u128, place: u64) -> Buffer {
        let mut bytes = Buffer::zeroed(SLOT_BYTES as usize);
        bytes[..8].copy_from_slice(&MAGIC);
        write_u32(&mut bytes, 8, VERSION);
        write_u32(&mut bytes, 12, self.versions.len() as u32);
        bytes[16..32].copy_from_slice(&table.to_le_bytes());
        write_u64(&mut bytes, 32, self.generation);
        write_u64(&mut bytes, 40, place);
        write_u64(&mut bytes, 56, self.next_id);
        write_u64(&mut bytes, 64, self.going_back_to);
        write_u64(&mut bytes, 72, self.next_history);
        for (listed, record) in self.versions.iter().zip(bytes[HEADER_BYTES..].chunks_exact_mut(RECORD_BYTES))
        {
            let name = listed.name.as_bytes();
            let flags = u64::from(listed.is_automatic) | u64::from(listed.is_damaged) << 1;
            let Listed { id, time_ns, history, first, pairs, .. } = *listed;
            let fields = [id, time_ns, history, first, pairs, flags, name.len() as u64];
            fields.iter().enumerate().for_each(|(at, field)| write_u64(record, at * 8, *field));
            record[56..56 + name.len()].copy_from_slice(name);
        }
        seal(&mut bytes, SUM_AT);
        bytes
    }

    fn decode(bytes: &[u8], table: u128, place: u64) -> Result<Option<Self>> {
        let is_it = bytes.len() == SLOT_BYTES as usize
            && bytes[..8] == MAGIC
            && unseal(bytes, SUM_AT)
            && read_u128(bytes, 16) == table
            && read_u64(bytes, 40) == place;
        if !is_it {
            return Ok(None);
        }
        let version = read_u32(bytes, 8);
        if version > VERSION {
            let context = format!(
                "its list of versions is of format {version}, newer than {VERSION}: use a newer rotproof"
            );
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let count = (read_u32(bytes, 12) as usize).min(VERSIONS_MAX);
        let records = bytes[HEADER_BYTES..].chunks_exact(RECORD_BYTES).take(count);
        // Version 1 counts blocks, of which the last one has a pair at least.
        let pairs = |count: u64| match version {
            1 => count.saturating_sub(1).saturating_mul(PAIRS as u64).saturating_add(count.min(1)),
            _ => count,
        };
        let listed = |record: &[u8]| Listed {
            id: read_u64(record, 0),
            time_ns: read_u64(record, 8),
            history: read_u64(record, 16),
            first: read_u64(record, 24),
            pairs: pairs(read_u64(record, 32)),
            is_automatic: read_u64(record, 40) & 1 != 0,
            is_damaged: read_u64(record, 40) & 2 != 0,
            name: String::from_utf8_lossy(&record[56..56 + (read_u64(record, 48) as usize).min(NAME_MAX)])
                .into(),
        };
        Ok(Some(Self {
            generation: read_u64(bytes, 32),
            next_id: read_u64(bytes, 56),
            going_back_to: read_u64(bytes, 64),
            next_history: read_u64(bytes, 72),
            versions: records.map(listed).collect(),
        }))
    }

    /// The newest list that is whole, from the four slots that begin at `at`. `None` if there is none.
    pub(super) async fn read(io: &Io, at: u64, table: u128) -> Result<Option<Self>> {
        let mut newest: Option<Self> = None;
        for place in 0..4 {
            let offset = at + place * SLOT_BYTES;
            for copy in io.current_copies(offset, SLOT_BYTES as usize) {
                let read = io.read_copy_again(copy, offset, SLOT_BYTES as usize, Context::default()).await;
                let Ok(bytes) = read else { continue };
                if let Some(catalog) = Self::decode(&bytes, table, place)?
                    && newest.as_ref().is_none_or(|newest| newest.generation < catalog.generation)
                {
                    newest = Some(catalog);
                }
            }
        }
        Ok(newest)
    }

    /// Writes the list as its next generation, durably.
    pub(super) async fn write(&mut self, io: &Io, at: u64, table: u128, context: Context) -> Result<()> {
        self.generation += 1;
        for copy in 0..2 {
            let place = 2 * copy + self.generation % 2;
            io.write(at + place * SLOT_BYTES, self.encode(table, place), context).await?;
        }
        io.flush(context).await
    }
}

/// How many versions a list has, wherever it lies.
pub(crate) fn count_in_list(bytes: &[u8]) -> Option<usize> {
    let header = bytes.get(..HEADER_BYTES)?;
    let list = Catalog::decode(bytes, read_u128(header, 16), read_u64(header, 40));
    list.ok().flatten().map(|list| list.versions.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was() {
        let listed = |id| Listed {
            id,
            time_ns: id << 40,
            history: id + 3,
            first: 7 * id,
            pairs: id,
            is_automatic: id % 2 == 0,
            is_damaged: id % 3 == 0,
            name: "ü".repeat(24 - id as usize % 3),
        };
        let catalog = Catalog {
            generation: 4,
            next_id: 400,
            going_back_to: 3,
            next_history: 900,
            versions: (1..=VERSIONS_MAX as u64).map(listed).collect(),
        };
        let bytes = catalog.encode(9, 2);
        assert_eq!(Catalog::decode(&bytes, 9, 2).expect("known"), Some(catalog));
        assert_eq!(Catalog::decode(&bytes, 9, 3).expect("known"), None);
        assert_eq!(Catalog::decode(&bytes, 8, 2).expect("known"), None);
        let mut newer = bytes.to_vec();
        write_u32(&mut newer, 8, VERSION + 1);
        seal(&mut newer, SUM_AT);
        assert!(Catalog::decode(&newer, 9, 2).is_err());
    }
}
