//! The sums of blocks: one by one as entries, and by the page as in the table of a large file.

use super::{Moment, PAGE, PAGE_HEAD, VERSION, VERSION_MIN};
use crate::sum::{Algorithm, Sum};

const MAGIC: [u8; 4] = *b"RPGP";
/// Where the check of a page stands, which is of the page with zeros there.
const SUM_AT: usize = 24;

/// The two checksums of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The light one, verified on every read.
    pub light: Algorithm,
    /// The strong one, verified when a block comes from the disk.
    pub strong: Algorithm,
}

impl Pair {
    /// Bytes of an entry.
    pub fn entry_bytes(self) -> usize {
        8 + 8 * self.strong.words()
    }

    /// Entries of a page.
    pub fn entries(self) -> u64 {
        ((PAGE - PAGE_HEAD) / self.entry_bytes()) as u64
    }

    /// Both sums of a block.
    pub fn of(self, data: &[u8]) -> Sums {
        Sums { light: self.light.of(data).word(), strong: self.strong.of(data) }
    }

    /// Both sums of a block of zeros.
    pub fn of_zeros(self) -> Sums {
        Sums { light: self.light.of_zeros().word(), strong: self.strong.of_zeros() }
    }

    /// The sums that an entry stands for; `None` if it vouches for nothing.
    pub fn sums_of(self, entry: Entry) -> Option<Sums> {
        match entry {
            Entry::Unknown => None,
            Entry::Zeros => Some(self.of_zeros()),
            Entry::Sums(sums) => Some(sums),
        }
    }

    /// The entry of these sums.
    pub fn entry_of(self, sums: Sums) -> Entry {
        if sums == self.of_zeros() { Entry::Zeros } else { Entry::Sums(sums) }
    }
}

/// Both sums of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The light one.
    pub light: u64,
    /// The strong one.
    pub strong: Sum,
}

/// What a table says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing: it was never taken in.
    Unknown,
    /// It is all zeros: a hole, or as good as one. All bits of the entry are zero.
    Zeros,
    /// Its sums.
    Sums(Sums),
}

/// All bits one: vouches for nothing.
const UNKNOWN_WORD: u64 = u64::MAX;

impl Entry {
    /// Writes it. Sums of 128 zeros or ones would look like one of the other two: of a block that is not zeros, one in 2^127.
    pub(crate) fn write(self, into: &mut [u8]) {
        let (light, strong) = match self {
            Self::Unknown => (UNKNOWN_WORD, [UNKNOWN_WORD; 4]),
            Self::Zeros => (0, [0; 4]),
            Self::Sums(sums) => (sums.light, sums.strong.0),
        };
        into[..8].copy_from_slice(&light.to_le_bytes());
        for (bytes, word) in into[8..].as_chunks_mut::<8>().0.iter_mut().zip(strong) {
            *bytes = word.to_le_bytes();
        }
    }

    pub(crate) fn read(from: &[u8]) -> Self {
        let words = from.as_chunks::<8>().0;
        if words.iter().all(|word| *word == [0; 8]) {
            return Self::Zeros;
        }
        if words.iter().all(|word| *word == [0xff; 8]) {
            return Self::Unknown;
        }
        let mut strong = [0; 4];
        for (word, bytes) in strong.iter_mut().zip(&words[1..]) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self::Sums(Sums { light: u64::from_le_bytes(words[0]), strong: Sum(strong) })
    }
}

/// A page of entries as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryPage {
    /// It was never written: the file has a hole there, or was never taken in.
    Absent,
    /// As it was written.
    Whole(Vec<Entry>),
    /// Its checksum does not hold: torn by a crash, or rotten. An entry whose two sums both fit the data is still right.
    Damaged(Vec<Entry>),
}

/// What a page of entries says of the file, if it was written over without a new header: all is as the header says, but for the time
/// of modification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Generation of that header. The stamp means nothing beside another one.
    pub follows: u64,
    /// Counts up from 1 with every stamp: of two that follow one header, the later holds.
    pub number: u64,
    /// The file's time of modification.
    pub modified: Moment,
}

/// A page of entries. `index` counts pages from the beginning of the file.
pub fn page_of(pair: Pair, inode: u64, index: u64, entries: &[Entry], stamp: Option<Stamp>) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    page[..4].copy_from_slice(&MAGIC);
    page[4..8].copy_from_slice(&VERSION.to_le_bytes());
    page[8..16].copy_from_slice(&inode.to_le_bytes());
    page[16..24].copy_from_slice(&index.to_le_bytes());
    if let Some(stamp) = stamp {
        page[32..40].copy_from_slice(&stamp.follows.to_le_bytes());
        page[40..48].copy_from_slice(&stamp.number.to_le_bytes());
        page[48..56].copy_from_slice(&stamp.modified.seconds.to_le_bytes());
        page[56..60].copy_from_slice(&stamp.modified.nanoseconds.to_le_bytes());
    }
    let size = pair.entry_bytes();
    for (bytes, entry) in page[PAGE_HEAD..].chunks_exact_mut(size).zip(entries) {
        entry.write(bytes);
    }
    let sum = Algorithm::Xxh3.of(&page).word();
    page[SUM_AT..SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
    page
}

/// Reads a page of entries, and whether it is the one that belongs there.
pub fn entries_of(pair: Pair, inode: u64, index: u64, page: &[u8; PAGE]) -> EntryPage {
    if page.iter().all(|byte| *byte == 0) {
        return EntryPage::Absent;
    }
    let entries: Vec<Entry> = page[PAGE_HEAD..]
        .chunks_exact(pair.entry_bytes())
        .take(pair.entries() as usize)
        .map(Entry::read)
        .collect();
    let mut unsealed = *page;
    unsealed[SUM_AT..SUM_AT + 8].fill(0);
    let is_sealed = Algorithm::Xxh3.of(&unsealed).word().to_le_bytes() == page[SUM_AT..SUM_AT + 8];
    let is_this = page[..4] == MAGIC
        && (VERSION_MIN..=VERSION).any(|version| page[4..8] == version.to_le_bytes())
        && page[8..16] == inode.to_le_bytes()
        && page[16..24] == index.to_le_bytes();
    if is_sealed && is_this { EntryPage::Whole(entries) } else { EntryPage::Damaged(entries) }
}

/// The stamp of a page that was read and is [`EntryPage::Whole`].
pub fn stamp_of(page: &[u8; PAGE]) -> Option<Stamp> {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&page[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    let modified =
        Moment { seconds: word(48).cast_signed(), nanoseconds: (word(56) & u64::from(u32::MAX)) as u32 };
    let stamp = Stamp { follows: word(32), number: word(40), modified };
    (stamp.number != 0).then_some(stamp)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAIR: Pair = Pair { light: Algorithm::Xor64, strong: Algorithm::Xxh3 };

    #[test]
    fn two_sums_of_64_bits_take_less_than_four_thousandths_of_the_data() {
        assert_eq!(PAIR.entries(), 252);
        assert!(PAGE as f64 / (252.0 * 4096.0) < 0.004);
        assert_eq!(Pair { strong: Algorithm::Blake3, ..PAIR }.entries(), 100);
    }

    #[test]
    fn a_flip_anywhere_in_a_page_is_damage() {
        let entries: Vec<Entry> =
            (0..252).map(|light| Entry::Sums(Sums { light, strong: Sum::of_word(light ^ 77) })).collect();
        let stamp = Stamp { follows: 7, number: 8, modified: Moment { seconds: -9, nanoseconds: 10 } };
        let page = page_of(PAIR, 5, 6, &entries, Some(stamp));
        assert_eq!(stamp_of(&page), Some(stamp));
        assert_eq!(stamp_of(&page_of(PAIR, 5, 6, &entries, None)), None);
        assert_eq!(entries_of(PAIR, 5, 6, &page), EntryPage::Whole(entries));
        assert!(matches!(entries_of(PAIR, 5, 7, &page), EntryPage::Damaged(_)), "another page's place");
        assert!(matches!(entries_of(PAIR, 4, 6, &page), EntryPage::Damaged(_)), "another file's");
        for bit in (0..PAGE * 8).step_by(11) {
            let mut flipped = page;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(entries_of(PAIR, 5, 6, &flipped), EntryPage::Damaged(_)), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn entries_come_back(words in prop::collection::vec((any::<u64>(), any::<u64>(), 0..3u8), 0..252)) {
            let entries: Vec<Entry> = words.iter().map(|(light, strong, kind)| match kind {
                0 => Entry::Unknown,
                1 => Entry::Zeros,
                _ => Entry::Sums(Sums { light: *light, strong: Sum::of_word(*strong) }),
            }).collect();
            let EntryPage::Whole(read) = entries_of(PAIR, 1, 2, &page_of(PAIR, 1, 2, &entries, None)) else {
                return Err(TestCaseError::fail("damaged"));
            };
            prop_assert_eq!(&read[..entries.len()], &entries[..]);
            prop_assert!(read[entries.len()..].iter().all(|entry| *entry == Entry::Zeros));
        }
    }
}
