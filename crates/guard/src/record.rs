//! The sums of a small file on the disk, as bytes: a *slot*, which has two copies of one *record*.
//!
//! Pure functions of bytes, as [`crate::format`]. A record is written as a whole, over the copy that is not needed, and bears its
//! inode, the copy that it is, and two seals: of its header, and of all of it. A sector (512 bytes) is never torn. So
//! a header that does not have its seal has rotted, and a record whose header is right and whose rest is not was torn or has
//! rotted.

use crate::format::fields::{Reader, SEAL_BYTES, Writer, is_sealed, seal};
use crate::format::header::{REGION_SHIFTS, bit};
use crate::format::{Damage, Entry, Header, Moment, Pair, REGIONS, VERSION};

/// How large a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Two copies of a sector.
    Small,
    /// Two copies of a page.
    Medium,
}

/// Copies of a record in a slot.
pub const COPIES: usize = 2;

const MAGIC: [u8; 4] = *b"RPGS";
/// The seal of the header stands behind the header.
const HEADER_SEAL_AT: usize = 96;
const ENTRIES_AT: usize = HEADER_SEAL_AT + SEAL_BYTES;
/// Beside the bits that tables have too: blocks may have been changed since the record was durable.
const IS_MARKED: u8 = 16;

impl Class {
    /// All, the smaller one first.
    pub const ALL: [Self; 2] = [Self::Small, Self::Medium];

    /// Bytes of a copy.
    pub const fn copy_bytes(self) -> usize {
        match self {
            Self::Small => 512,
            Self::Medium => 4096,
        }
    }

    /// Bytes of a slot.
    pub const fn slot_bytes(self) -> usize {
        COPIES * self.copy_bytes()
    }

    /// The seal of all of a copy stands at its end.
    const fn seal_at(self) -> usize {
        self.copy_bytes() - SEAL_BYTES
    }

    /// Blocks of the longest file whose sums it takes.
    pub fn blocks(self, pair: Pair) -> u64 {
        ((self.seal_at() - ENTRIES_AT) / pair.entry_bytes()) as u64
    }
}

/// What a copy has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copy {
    /// It was never written.
    Empty,
    /// A record.
    Record {
        /// Its header; of its regions only the first is kept.
        header: Box<Header>,
        /// An entry for each block of the file; those of an inexact record are right where both sums fit.
        entries: Vec<Entry>,
        /// All of it is as it was written.
        is_whole: bool,
    },
    /// The header is not as it was written. Entries are right where both sums fit.
    Damaged(Damage, Vec<Entry>),
}

/// The bytes of a copy. There are no more entries than [`Class::blocks`].
pub fn to_copy(class: Class, pair: Pair, copy: usize, header: &Header, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = vec![0; class.copy_bytes()];
    let mut fields = Writer::new(&mut bytes);
    fields.bytes(&MAGIC);
    fields.u8(VERSION as u8);
    fields.u8(copy as u8);
    fields.u8(header.bits() | if header.is_marked(0) { IS_MARKED } else { 0 });
    fields.u8(header.region_shift);
    fields.u64(header.generation);
    fields.u64(header.inode);
    fields.bytes(&header.guard);
    fields.u64(header.birth.seconds.cast_unsigned());
    fields.u32(header.birth.nanoseconds);
    fields.u32(header.modified.nanoseconds);
    fields.u64(header.modified.seconds.cast_unsigned());
    fields.bytes(&header.session);
    fields.u64(header.size);
    fields.u32(header.reuse.unwrap_or(0));
    fields.u16(entries.len() as u16);
    fields.skip_to(HEADER_SEAL_AT);
    seal(&mut bytes, HEADER_SEAL_AT);
    let end = class.seal_at();
    for (into, entry) in bytes[ENTRIES_AT..end].chunks_exact_mut(pair.entry_bytes()).zip(entries) {
        entry.write(into);
    }
    seal(&mut bytes, end);
    bytes
}

/// Reads a copy, which has the bytes of one, and whether it is the one that belongs there.
pub fn of_copy(class: Class, pair: Pair, inode: u64, copy: usize, bytes: &[u8]) -> Copy {
    if bytes[..ENTRIES_AT].iter().all(|byte| *byte == 0) {
        return Copy::Empty;
    }
    let end = class.seal_at();
    let read = |count: usize| -> Vec<Entry> {
        bytes[ENTRIES_AT..end].chunks_exact(pair.entry_bytes()).take(count).map(Entry::read).collect()
    };
    let damaged = |damage| Copy::Damaged(damage, read(usize::MAX));
    let mut fields = Reader::new(bytes);
    if fields.array::<4>() != MAGIC {
        return damaged(Damage::Magic);
    }
    if !is_sealed(bytes, HEADER_SEAL_AT) {
        return damaged(Damage::Sum);
    }
    let (version, number) = (fields.u8(), fields.u8());
    if u32::from(version) > VERSION {
        return Copy::Damaged(Damage::Version(version.into()), Vec::new());
    }
    if usize::from(number) != copy {
        return damaged(Damage::Value("the number of the copy"));
    }
    let (bits, region_shift) = (fields.u8(), fields.u8());
    let generation = fields.u64();
    if fields.u64() != inode {
        return damaged(Damage::Value("the number of the inode"));
    }
    let guard = fields.array();
    let birth_seconds = fields.u64().cast_signed();
    let birth = Moment { seconds: birth_seconds, nanoseconds: fields.u32() };
    let nanoseconds = fields.u32();
    let modified = Moment { seconds: fields.u64().cast_signed(), nanoseconds };
    let session = fields.array();
    let size = fields.u64();
    let reuse = fields.u32();
    let count = usize::from(fields.u16());
    if count as u64 > class.blocks(pair) || !REGION_SHIFTS.contains(&region_shift) {
        return damaged(Damage::Value("the number of entries or the size of regions"));
    }
    let mut regions = Box::new([0; REGIONS / 64]);
    regions[0] = u64::from(bits & IS_MARKED != 0);
    let header = Header {
        generation,
        guard,
        inode,
        birth,
        reuse: (bits & bit::HAS_REUSE != 0).then_some(reuse),
        session,
        size,
        modified,
        is_unsynced: bits & bit::UNSYNCED != 0,
        is_complete: bits & bit::COMPLETE != 0,
        is_foreign: bits & bit::FOREIGN != 0,
        region_shift,
        regions,
        name: Vec::new(),
    };
    Copy::Record { header: Box::new(header), entries: read(count), is_whole: is_sealed(bytes, end) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::Sums;
    use crate::sum::{Algorithm, Sum};

    const PAIR: Pair = Pair { light: Algorithm::Xor64, strong: Algorithm::Xxh3 };

    fn header() -> Header {
        let mut regions = Box::new([0; REGIONS / 64]);
        regions[0] = 1;
        Header {
            generation: 7,
            guard: [1; 16],
            inode: 12,
            birth: Moment { seconds: 5, nanoseconds: 6 },
            reuse: Some(99),
            session: [2; 16],
            size: 70_000,
            modified: Moment { seconds: -1, nanoseconds: 9 },
            is_unsynced: true,
            is_complete: true,
            is_foreign: false,
            region_shift: 20,
            regions,
            name: Vec::new(),
        }
    }

    fn entries(count: u64) -> Vec<Entry> {
        (0..count).map(|light| Entry::Sums(Sums { light, strong: Sum::of_word(light ^ 77) })).collect()
    }

    #[test]
    fn records_come_back_and_a_slot_takes_files_of_100_and_996_kib() {
        assert_eq!(Class::ALL.map(|class| class.blocks(PAIR) * 4), [100, 996]);
        let wide = Pair { strong: Algorithm::Blake3, ..PAIR };
        assert_eq!(Class::ALL.map(|class| class.blocks(wide) * 4), [40, 396]);
        for class in Class::ALL {
            for (copy, count) in [(0, 0), (1, 18), (0, class.blocks(PAIR))] {
                let entries = entries(count);
                let bytes = to_copy(class, PAIR, copy, &header(), &entries);
                let read = of_copy(class, PAIR, 12, copy, &bytes);
                assert_eq!(read, Copy::Record { header: Box::new(header()), entries, is_whole: true });
                assert!(matches!(of_copy(class, PAIR, 13, copy, &bytes), Copy::Damaged(..)), "another inode");
                assert!(
                    matches!(of_copy(class, PAIR, 12, 1 - copy, &bytes), Copy::Damaged(..)),
                    "its other copy"
                );
            }
            assert_eq!(of_copy(class, PAIR, 12, 0, &vec![0; class.copy_bytes()]), Copy::Empty);
        }
    }

    #[test]
    fn a_flip_anywhere_is_seen_and_a_torn_record_keeps_its_header() {
        for class in Class::ALL {
            let bytes = to_copy(class, PAIR, 0, &header(), &entries(18));
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                match of_copy(class, PAIR, 12, 0, &flipped) {
                    Copy::Damaged(..) => assert!(bit / 8 < ENTRIES_AT, "{bit}"),
                    Copy::Record { is_whole, .. } => assert!(!is_whole && bit / 8 >= ENTRIES_AT, "{bit}"),
                    Copy::Empty => panic!("bit {bit}"),
                }
            }
        }
        let mut torn = to_copy(Class::Medium, PAIR, 0, &header(), &entries(200));
        torn[1024..].fill(0);
        let Copy::Record { entries: read, is_whole: false, .. } = of_copy(Class::Medium, PAIR, 12, 0, &torn)
        else {
            panic!("torn")
        };
        assert_eq!(read[..57], entries(57));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(seed in any::<u64>(), is_sealed in any::<bool>()) {
            for class in Class::ALL {
                let mut bytes: Vec<u8> = (0..class.copy_bytes() as u64)
                    .map(|index| (seed.wrapping_mul(index + 3) >> 17) as u8)
                    .collect();
                if is_sealed {
                    bytes[..6].copy_from_slice(b"RPGS\x02\x00");
                    bytes[16..24].copy_from_slice(&12u64.to_le_bytes());
                    seal(&mut bytes, HEADER_SEAL_AT);
                }
                let _ = of_copy(class, PAIR, 12, 0, &bytes);
            }
        }
    }
}
