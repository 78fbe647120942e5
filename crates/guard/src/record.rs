//! The sums of a small file on the disk, as bytes: a *slot*, which has two copies of one *record*.
//!
//! Pure functions of bytes, as [`crate::format`]. A record is written as a whole, over the copy that is not needed, and bears its
//! inode, the copy that it is, and two checks of its own: of its header, and of all of it. A sector (512 bytes) is never torn. So
//! a header that does not have its check has rotted, and a record whose header is right and whose rest is not was torn or has
//! rotted.

use crate::format::{Damage, Entry, Header, Moment, Pair, REGIONS, VERSION};
use crate::sum::Algorithm;

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
/// The check of the header stands behind the header.
const HEADER_SUM_AT: usize = 96;
const ENTRIES_AT: usize = 104;
/// The check of all stands at the end.
const SUM_BYTES: usize = 8;

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

    /// Blocks of the longest file whose sums it takes.
    pub fn blocks(self, pair: Pair) -> u64 {
        ((self.copy_bytes() - ENTRIES_AT - SUM_BYTES) / pair.entry_bytes()) as u64
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

fn check(bytes: &[u8]) -> [u8; 8] {
    Algorithm::Xxh3.of(bytes).word().to_le_bytes()
}

/// The bytes of a copy. There are no more entries than [`Class::blocks`].
pub fn to_copy(class: Class, pair: Pair, copy: usize, header: &Header, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = vec![0; class.copy_bytes()];
    let mut at = 0;
    let mut put = |part: &[u8]| {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    };
    put(&MAGIC);
    put(&[VERSION as u8, copy as u8]);
    put(&[
        u8::from(header.is_unsynced)
            | u8::from(header.is_complete) << 1
            | u8::from(header.is_foreign) << 2
            | u8::from(header.reuse.is_some()) << 3
            | u8::from(header.is_marked(0)) << 4,
        header.region_shift,
    ]);
    put(&header.generation.to_le_bytes());
    put(&header.inode.to_le_bytes());
    put(&header.guard);
    put(&header.birth.seconds.to_le_bytes());
    put(&header.birth.nanoseconds.to_le_bytes());
    put(&header.modified.nanoseconds.to_le_bytes());
    put(&header.modified.seconds.to_le_bytes());
    put(&header.session);
    put(&header.size.to_le_bytes());
    put(&header.reuse.unwrap_or(0).to_le_bytes());
    put(&(entries.len() as u16).to_le_bytes());
    debug_assert!(at <= HEADER_SUM_AT, "the header has {at} bytes");
    let sum = check(&bytes[..HEADER_SUM_AT]);
    bytes[HEADER_SUM_AT..ENTRIES_AT].copy_from_slice(&sum);
    let end = class.copy_bytes() - SUM_BYTES;
    for (into, entry) in bytes[ENTRIES_AT..end].chunks_exact_mut(pair.entry_bytes()).zip(entries) {
        entry.write(into);
    }
    let sum = check(&bytes[..end]);
    bytes[end..].copy_from_slice(&sum);
    bytes
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_first_chunk().expect("fields lie inside the copy");
        self.0 = rest;
        *taken
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

/// Reads a copy, which has the bytes of one, and whether it is the one that belongs there.
pub fn of_copy(class: Class, pair: Pair, inode: u64, copy: usize, bytes: &[u8]) -> Copy {
    if bytes[..ENTRIES_AT].iter().all(|byte| *byte == 0) {
        return Copy::Empty;
    }
    let end = class.copy_bytes() - SUM_BYTES;
    let read = |count: usize| -> Vec<Entry> {
        bytes[ENTRIES_AT..end].chunks_exact(pair.entry_bytes()).take(count).map(Entry::read).collect()
    };
    let damaged = |damage| Copy::Damaged(damage, read(usize::MAX));
    let mut fields = Fields(bytes);
    if fields.take::<4>() != MAGIC {
        return damaged(Damage::Magic);
    }
    if check(&bytes[..HEADER_SUM_AT]) != bytes[HEADER_SUM_AT..ENTRIES_AT] {
        return damaged(Damage::Sum);
    }
    let [version, number] = fields.take();
    if u32::from(version) > VERSION {
        return Copy::Damaged(Damage::Version(version.into()), Vec::new());
    }
    if usize::from(number) != copy {
        return damaged(Damage::Value("the number of the copy"));
    }
    let [flags, region_shift] = fields.take();
    let generation = fields.u64();
    if fields.u64() != inode {
        return damaged(Damage::Value("the number of the inode"));
    }
    let guard = fields.take();
    let birth_seconds = fields.u64().cast_signed();
    let birth = Moment { seconds: birth_seconds, nanoseconds: fields.u32() };
    let nanoseconds = fields.u32();
    let modified = Moment { seconds: fields.u64().cast_signed(), nanoseconds };
    let session = fields.take();
    let size = fields.u64();
    let reuse = fields.u32();
    let count = usize::from(u16::from_le_bytes(fields.take()));
    if count as u64 > class.blocks(pair) || !(12..=48).contains(&region_shift) {
        return damaged(Damage::Value("the number of entries or the size of regions"));
    }
    let mut regions = Box::new([0; REGIONS / 64]);
    regions[0] = u64::from(flags & 16 != 0);
    let header = Header {
        generation,
        guard,
        inode,
        birth,
        reuse: (flags & 8 != 0).then_some(reuse),
        session,
        size,
        modified,
        is_unsynced: flags & 1 != 0,
        is_complete: flags & 2 != 0,
        is_foreign: flags & 4 != 0,
        region_shift,
        regions,
        name: Vec::new(),
    };
    let is_whole = check(&bytes[..end]) == bytes[end..];
    Copy::Record { header: Box::new(header), entries: read(count), is_whole }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::Sums;
    use crate::sum::Sum;

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
                    let sum = check(&bytes[..HEADER_SUM_AT]);
                    bytes[HEADER_SUM_AT..ENTRIES_AT].copy_from_slice(&sum);
                }
                let _ = of_copy(class, PAIR, 12, 0, &bytes);
            }
        }
    }
}
