//! A page of a relation: its header, its checksum, and what its special space says it is (`bufpage.h`, `checksum_impl.h`, `nbtree.h`,
//! `hash.h`, `gist.h`, `ginblock.h`, `spgist_private.h`, `brin_page.h` of PostgreSQL 15).

use crate::bytes::{le16, le32};
use crate::kind::Plain;

/// Bytes of a page; others can be chosen when PostgreSQL is built, and are not read.
pub(super) const PAGE_BYTES: usize = 8192;
const HEADER_BYTES: usize = 24;
/// Size and layout version in one number.
const SIZE_AND_VERSION: u16 = PAGE_BYTES as u16 | 4;
/// Flags that a page may have.
const FLAGS: u16 = 7;

/// How an index, or what is no index, lays out its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Rows, without a special space.
    Heap,
    Sequence,
    Btree,
    Hash,
    Gist,
    Gin,
    Spgist,
    Brin,
    /// Of an extension.
    Other,
}

impl Method {
    /// By the number of the access method.
    pub(super) fn of(number: u32) -> Self {
        match number {
            2 => Self::Heap,
            403 => Self::Btree,
            405 => Self::Hash,
            783 => Self::Gist,
            2742 => Self::Gin,
            4000 => Self::Spgist,
            3580 => Self::Brin,
            _ => Self::Other,
        }
    }

    pub(super) fn is_index(self) -> bool {
        !matches!(self, Self::Heap | Self::Sequence)
    }

    /// Bytes of the special space of its pages.
    fn special_bytes(self) -> Option<usize> {
        match self {
            Self::Heap => Some(0),
            Self::Btree | Self::Hash | Self::Gist => Some(16),
            Self::Gin | Self::Spgist | Self::Brin | Self::Sequence => Some(8),
            Self::Other => None,
        }
    }

    /// By the first page of a file, where no catalog says it.
    pub(super) fn guessed(page: &Page<'_>) -> Self {
        let special = page.special;
        let last = le16(special, special.len().saturating_sub(2)).unwrap_or(0);
        match (special.len(), last) {
            (0, _) => Self::Heap,
            (16, HASH) => Self::Hash,
            (16, GIST) => Self::Gist,
            (16, _) => Self::Btree,
            (8, SPGIST) => Self::Spgist,
            (8, BRIN_META..=BRIN_REGULAR) => Self::Brin,
            (8, 0) if le32(special, 0) == Some(SEQUENCE) => Self::Sequence,
            (8, flags) if flags & GIN_META != 0 => Self::Gin,
            _ => Self::Other,
        }
    }
}

const HASH: u16 = 0xFF80;
const GIST: u16 = 0xFF81;
const SPGIST: u16 = 0xFF82;
const BRIN_META: u16 = 0xF091;
const BRIN_REVMAP: u16 = 0xF092;
const BRIN_REGULAR: u16 = 0xF093;
const SEQUENCE: u32 = 0x1717;
const GIN_META: u16 = 8;

/// A page whose header can be one.
pub(super) struct Page<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) lower: usize,
    pub(super) special: &'a [u8],
}

impl<'a> Page<'a> {
    /// As PostgreSQL itself checks it when it reads a page.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let number = |at| le16(bytes, at).map(usize::from);
        let (lower, upper, special) = (number(12)?, number(14)?, number(16)?);
        let is_right = bytes.len() == PAGE_BYTES
            && le16(bytes, 10)? & !FLAGS == 0
            && le16(bytes, 18)? == SIZE_AND_VERSION
            && HEADER_BYTES <= lower
            && lower <= upper
            && upper <= special
            && special <= PAGE_BYTES
            && special.is_multiple_of(8);
        is_right.then(|| Self { bytes, lower, special: &bytes[special..] })
    }

    /// What a page of an index or a heap is; `Err` says why it cannot be one. Catalogs are told from others elsewhere.
    pub(super) fn kind(&self, method: Method, block: u64) -> Result<Plain, String> {
        let special = self.special;
        if method.special_bytes().is_some_and(|bytes| bytes != special.len()) {
            return Err(format!("it has {} bytes of special space, unlike {method:?}", special.len()));
        }
        let word = |at: usize| le16(special, at).unwrap_or(0);
        let long = |at: usize| le32(special, at).unwrap_or(0);
        let wrong = |what: u32| Err(format!("a page of {method:?} cannot have {what:#x}"));
        let flags = match method {
            Method::Btree | Method::Hash | Method::Gist => word(12),
            Method::Spgist => word(0),
            _ => word(6),
        };
        let has = |flag: u16| flags & flag != 0;
        Ok(match method {
            Method::Heap => Plain::PgHeap,
            Method::Sequence if long(0) == SEQUENCE => Plain::PgSequence,
            Method::Sequence => return wrong(long(0)),
            Method::Btree if has(8) != (block == 0) || flags >= 512 => return wrong(flags.into()),
            Method::Btree if has(8) && le32(self.bytes, HEADER_BYTES) != Some(0x0005_3162) => {
                return Err("the meta page of a B-tree has not its number".into());
            }
            Method::Btree if has(8) => Plain::BtreeMeta,
            Method::Btree if has(4) => Plain::Free,
            Method::Btree if has(1) => Plain::BtreeLeaf,
            Method::Btree if has(2) => Plain::BtreeRoot,
            Method::Btree => Plain::BtreeInternal,
            Method::Hash if word(14) != HASH => return wrong(word(14).into()),
            Method::Hash => match flags & 15 {
                0 => Plain::Free,
                1 => Plain::HashOverflow,
                2 => Plain::HashBucket,
                4 => Plain::HashBitmap,
                8 => Plain::HashMeta,
                _ => return wrong(flags.into()),
            },
            Method::Gist if word(14) != GIST => return wrong(word(14).into()),
            Method::Gist if has(2) => Plain::Free,
            Method::Gist if has(1) => Plain::GistLeaf,
            Method::Gist => Plain::GistInternal,
            Method::Gin if has(GIN_META) != (block == 0) || flags >= 256 => return wrong(flags.into()),
            Method::Gin if has(GIN_META) => Plain::GinMeta,
            Method::Gin if has(4) => Plain::Free,
            Method::Gin if has(16) => Plain::GinPending,
            Method::Gin => match (has(1), has(2)) {
                (false, false) => Plain::GinInternal,
                (false, true) => Plain::GinLeaf,
                (true, false) => Plain::GinPostingInternal,
                (true, true) => Plain::GinPostingLeaf,
            },
            Method::Spgist if word(6) != SPGIST => return wrong(word(6).into()),
            Method::Spgist if has(1) != (block == 0) => return wrong(flags.into()),
            Method::Spgist if has(1) => Plain::SpgistMeta,
            Method::Spgist if has(2) => Plain::Free,
            Method::Spgist if has(4) => Plain::SpgistLeaf,
            Method::Spgist => Plain::SpgistInner,
            Method::Brin => match flags {
                BRIN_META => Plain::BrinMeta,
                BRIN_REVMAP => Plain::BrinRevmap,
                BRIN_REGULAR => Plain::BrinRegular,
                _ => return wrong(flags.into()),
            },
            Method::Other => Plain::OtherIndex,
        })
    }

    /// Items that are not marked as dead or moved.
    pub(super) fn items(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        let count = (self.lower - HEADER_BYTES) / 4;
        (0..count).filter_map(|index| {
            let pointer = le32(self.bytes, HEADER_BYTES + 4 * index)?;
            let (at, state, length) = (pointer & 0x7FFF, pointer >> 15 & 3, pointer >> 17);
            let item = self.bytes.get(at as usize..at as usize + length as usize)?;
            (state == 1).then_some(item)
        })
    }
}

/// The checksum that a page has.
pub(super) fn stored_checksum(page: &[u8]) -> u16 {
    le16(page, 8).unwrap_or(0)
}

/// The checksum that it should have as block `block` of its relation: 32 sums after FNV-1a side by side, over the page with zeros in the
/// place of the sum.
pub(super) fn checksum(page: &[u8], block: u32) -> u16 {
    const PRIME: u32 = 16_777_619;
    #[rustfmt::skip]
    const BASES: [u32; 32] = [
        0x5B1F_36E9, 0xB852_5960, 0x02AB_50AA, 0x1DE6_6D2A, 0x79FF_467A, 0x9BB9_F8A3, 0x217E_7CD2, 0x83E1_3D2C,
        0xF8D4_474F, 0xE39E_B970, 0x42C6_AE16, 0x9932_16FA, 0x7B09_3B5D, 0x98DA_FF3C, 0xF718_902A, 0x0B1C_9CDB,
        0xE58F_764B, 0x1876_36BC, 0x5D7B_3BB1, 0xE73D_E7DE, 0x92BE_C979, 0xCCA6_C0B2, 0x304A_0979, 0x85AA_43D4,
        0x7831_25BB, 0x6CA8_EAA2, 0xE407_EAC6, 0x4B5C_FC3E, 0x9FBF_8C76, 0x15CA_20BE, 0xF2CA_9FD3, 0x959B_D756,
    ];
    let round = |sum: &mut u32, value: u32| {
        let mixed = *sum ^ value;
        *sum = mixed.wrapping_mul(PRIME) ^ mixed >> 17;
    };
    let mut sums = BASES;
    for (number, row) in page.chunks_exact(128).enumerate() {
        for (column, (sum, word)) in sums.iter_mut().zip(row.chunks_exact(4)).enumerate() {
            let value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            // The sum's own place is in the lower half of the third word.
            round(sum, if (number, column) == (0, 2) { value & 0xFFFF_0000 } else { value });
        }
    }
    for sum in &mut sums {
        round(sum, 0);
        round(sum, 0);
    }
    let folded = sums.iter().fold(0, |all, sum| all ^ sum) ^ block;
    (folded % 65535 + 1) as u16
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A page with this special space, which ends its rows.
    pub(in super::super) fn page(special: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_BYTES];
        let at = PAGE_BYTES - special.len();
        bytes[at..].copy_from_slice(special);
        for (place, value) in [(12, HEADER_BYTES), (14, at), (16, at), (18, usize::from(SIZE_AND_VERSION))] {
            bytes[place..place + 2].copy_from_slice(&(value as u16).to_le_bytes());
        }
        bytes
    }

    fn special(length: usize, words: &[(usize, u16)]) -> Vec<u8> {
        let mut bytes = vec![0; length];
        words.iter().for_each(|&(at, word)| bytes[at..at + 2].copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    #[test]
    fn the_special_space_says_what_a_page_is() {
        for (special, method, block, kind) in [
            (vec![], Method::Heap, 0, Plain::PgHeap),
            (special(8, &[(0, 0x1717)]), Method::Sequence, 0, Plain::PgSequence),
            (special(16, &[(12, 1)]), Method::Btree, 1, Plain::BtreeLeaf),
            (special(16, &[(12, 3)]), Method::Btree, 1, Plain::BtreeLeaf),
            (special(16, &[(12, 2)]), Method::Btree, 3, Plain::BtreeRoot),
            (special(16, &[(12, 0)]), Method::Btree, 3, Plain::BtreeInternal),
            (special(16, &[(12, 0x104)]), Method::Btree, 3, Plain::Free),
            (special(16, &[(12, 8), (14, HASH)]), Method::Hash, 0, Plain::HashMeta),
            (special(16, &[(12, 1), (14, HASH)]), Method::Hash, 5, Plain::HashOverflow),
            (special(16, &[(12, 1), (14, GIST)]), Method::Gist, 0, Plain::GistLeaf),
            (special(8, &[(6, 8)]), Method::Gin, 0, Plain::GinMeta),
            (special(8, &[(6, 131)]), Method::Gin, 2, Plain::GinPostingLeaf),
            (special(8, &[(0, 4), (6, SPGIST)]), Method::Spgist, 1, Plain::SpgistLeaf),
            (special(8, &[(6, BRIN_REVMAP)]), Method::Brin, 1, Plain::BrinRevmap),
        ] {
            let bytes = page(&special);
            let page = Page::parse(&bytes).expect("a page");
            assert_eq!(page.kind(method, block), Ok(kind), "{method:?} {special:?}");
            if block == 0 {
                assert_eq!(Method::guessed(&page), method);
            }
        }
        let bytes = page(&special(16, &[(12, 1)]));
        let leaf = Page::parse(&bytes).expect("a page");
        for method in [Method::Heap, Method::Hash, Method::Gin] {
            assert!(leaf.kind(method, 1).is_err(), "{method:?}");
        }
        assert!(leaf.kind(Method::Btree, 0).is_err(), "the first page must be the meta page");
    }

    #[test]
    fn a_header_that_cannot_be_one_is_none() {
        let good = page(&[]);
        assert!(Page::parse(&good).is_some());
        for (at, byte) in [(10, 8), (12, 23), (15, 0x21), (16, 0xFF), (18, 3), (19, 0)] {
            let mut bytes = good.clone();
            bytes[at] = byte;
            assert!(Page::parse(&bytes).is_none(), "{at}");
        }
        assert!(Page::parse(&good[..8000]).is_none() && Page::parse(&[]).is_none());
    }

    #[test]
    fn a_checksum_is_of_the_page_and_its_place_but_not_of_itself() {
        let mut bytes = page(b"somethin");
        let sum = checksum(&bytes, 7);
        assert_ne!(sum, checksum(&bytes, 8));
        bytes[8..10].copy_from_slice(&sum.to_le_bytes());
        assert_eq!((checksum(&bytes, 7), stored_checksum(&bytes)), (sum, sum));
        bytes[5000] ^= 1;
        assert_ne!(checksum(&bytes, 7), sum);
    }
}
