//! Chunks: where logical addresses lie on the device. `struct btrfs_chunk`.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::bytes::{le16, le64};

const STRIPE_BYTES: usize = 32;
const STRIPES_AT: usize = 48;
/// Address and length lie on the device in one piece: no profile, dup, raid1, raid1c3, raid1c4.
const PROFILES: u64 = 0x7f8;
const PROFILES_IN_ONE_PIECE: u64 = 1 << 4 | 1 << 5 | 1 << 9 | 1 << 10;

/// A chunk, as far as it is on this device.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) length: u64,
    /// Number of the copy, and where it begins on this device.
    pub(super) stripes: Vec<(u8, u64)>,
}

/// The chunks that are known.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    by_address: BTreeMap<u64, Chunk>,
}

/// What a chunk item means.
pub(super) enum Found {
    Chunk(Chunk),
    /// It is spread over devices in pieces, which is not read.
    Striped,
    /// It says what cannot be.
    Damaged,
}

impl Chunk {
    /// As `device` sees it.
    pub(super) fn parse(item: &[u8], device: u64) -> Found {
        let parsed = (|| Some((le64(item, 0)?, le64(item, 24)?, usize::from(le16(item, 44)?))))();
        let Some((length, kind, count)) = parsed else { return Found::Damaged };
        if kind & PROFILES & !PROFILES_IN_ONE_PIECE != 0 {
            return Found::Striped;
        }
        let all = item.get(STRIPES_AT..).unwrap_or_default().chunks_exact(STRIPE_BYTES).take(count);
        let stripes = all.zip(0_u8..).filter_map(|(stripe, copy)| {
            let is_here = le64(stripe, 0)? == device;
            is_here.then_some((copy, le64(stripe, 8)?))
        });
        let stripes: Vec<(u8, u64)> = stripes.collect();
        let fits = |&(_, start): &(u8, u64)| start.checked_add(length).is_some();
        if length == 0 || !stripes.iter().all(fits) {
            return Found::Damaged;
        }
        Found::Chunk(Self { length, stripes })
    }
}

impl Chunks {
    pub(super) fn insert(&mut self, address: u64, chunk: Chunk) {
        self.by_address.insert(address, chunk);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Chunk)> {
        self.by_address.iter().map(|(&address, chunk)| (address, chunk))
    }

    /// Where these addresses lie on this device, each copy with its number; nothing if no chunk holds all of them.
    pub(super) fn places(&self, addresses: &Range<u64>) -> Vec<(u8, Range<u64>)> {
        let Some((&first, chunk)) = self.by_address.range(..=addresses.start).next_back() else {
            return Vec::new();
        };
        if addresses.end > first.saturating_add(chunk.length) || addresses.start >= addresses.end {
            return Vec::new();
        }
        let (within, length) = (addresses.start - first, addresses.end - addresses.start);
        let place = |&(copy, start): &(u8, u64)| (copy, start + within..start + within + length);
        chunk.stripes.iter().map(place).collect()
    }
}
