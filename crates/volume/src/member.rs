//! What a member of a volume says of the volume, of itself and of the others: the format of `docs/format-volume.md`.
//!
//! Every member has four copies of it, two at each end, of which each change writes one at each end. A copy knows its place, so
//! that one that landed elsewhere is none. This module reads and writes bytes, and asks no device.

use rotproof_block::{Error, ErrorKind, Result};

/// How a copy begins.
const MAGIC: [u8; 8] = *b"rotpvol\n";
/// What this program reads and writes.
pub const VERSION: u32 = 1;
/// Bytes of a copy on the device.
pub const COPY_BYTES: u64 = 64 << 10;
/// Bytes at each end of a member that are not data.
pub const MARGIN_BYTES: u64 = 1 << 20;
/// The most members of a volume.
pub const MEMBERS_MAX: usize = 48;
/// The most regions of a member; a region is what one bit stands for.
const REGIONS_MAX: u64 = 4096;
/// The least bytes of a region.
const REGION_BYTES_MIN: u64 = 4 << 20;

const HEADER_BYTES: usize = 128;
const MEMBER_BYTES: usize = 32;
const SUM_BYTES: usize = 8;

/// How a volume is put together. The same on all members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Copies of everything: 1 to 3.
    pub ways: u8,
    /// Bytes of a chunk of the stripe over the mirrors.
    pub chunk_bytes: u32,
    /// Bytes of data of each member.
    pub data_bytes: u64,
    /// Number of the checksum over it all, as `ChecksumKind::number` has it, plus 1; 0 for none.
    pub checksum: u8,
}

/// What is known of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberEntry {
    /// Its number of its own, new for each device that takes the place.
    pub id: u128,
    /// What it is like.
    pub state: EntryState,
    /// The regions of it that may be old, a bit each.
    pub missed: Bits,
    /// The regions that were being written, of the mirror that it begins: a bit each. Of the others nothing.
    pub written: Bits,
}

/// What a member is like, as far as the others have put on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryState {
    /// It takes part. What it has missed says [`MemberEntry::missed`].
    InUse = 0,
    /// It takes no part any more.
    Failed = 1,
}

/// What a member says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of the volume.
    pub volume: u128,
    /// Counts the changes; of two records the one with the higher says more.
    pub generation: u64,
    /// Which of the members says it.
    pub index: usize,
    /// How it is put together.
    pub layout: Layout,
    /// All members, mirror by mirror.
    pub members: Vec<MemberEntry>,
    /// Whether it was not closed in order.
    pub is_open: bool,
}

/// So many bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits(Vec<u8>);

impl Bits {
    /// `count` bits that are not set.
    pub fn new(count: u64) -> Self {
        Self(vec![0; count.div_ceil(8) as usize])
    }

    /// Sets a bit.
    pub fn set(&mut self, bit: u64) {
        if let Some(byte) = self.0.get_mut((bit / 8) as usize) {
            *byte |= 1 << (bit % 8);
        }
    }

    /// Whether a bit is set.
    pub fn has(&self, bit: u64) -> bool {
        self.0.get((bit / 8) as usize).is_some_and(|byte| byte & 1 << (bit % 8) != 0)
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    /// Sets every bit that is set in `other`.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own |= other);
    }

    /// The numbers of those that are set.
    pub fn ones(&self) -> impl Iterator<Item = u64> {
        (0..self.0.len() as u64 * 8).filter(|&bit| self.has(bit))
    }
}

impl Layout {
    /// Bytes of a region: what a bit of a member stands for.
    pub fn region_bytes(&self) -> u64 {
        self.data_bytes.div_ceil(REGIONS_MAX).next_power_of_two().max(REGION_BYTES_MIN)
    }

    /// How many regions a member has.
    pub fn regions(&self) -> u64 {
        self.data_bytes.div_ceil(self.region_bytes())
    }

    fn validate(&self, members: usize) -> Result<(), &'static str> {
        if !(1..=3).contains(&self.ways) || members == 0 || !members.is_multiple_of(self.ways.into()) {
            return Err("its copies and its members do not fit each other");
        }
        if !self.chunk_bytes.is_power_of_two() || !(4096..=64 << 20).contains(&self.chunk_bytes) {
            return Err("its chunk has no size that there is");
        }
        if self.data_bytes == 0 || self.data_bytes > 1 << 60 || !self.data_bytes.is_multiple_of(MARGIN_BYTES)
        {
            return Err("its members have no size that there is");
        }
        Ok(())
    }
}

/// Where the copies lie on a device of so many bytes, first those that records of an even generation go to.
pub fn places(device_bytes: u64) -> [[u64; 2]; 2] {
    let tail = (device_bytes / COPY_BYTES * COPY_BYTES).saturating_sub(2 * COPY_BYTES);
    [[0, tail], [COPY_BYTES, tail + COPY_BYTES]]
}

/// Bytes of data that a device of so many has; `None` if it is too small to be a member.
pub fn data_bytes(device_bytes: u64) -> Option<u64> {
    let data = device_bytes.checked_sub(2 * MARGIN_BYTES)? / MARGIN_BYTES * MARGIN_BYTES;
    (data > 0).then_some(data)
}

impl Record {
    /// The copy that belongs at `place`, of [`COPY_BYTES`].
    pub fn encode(&self, place: u64) -> Vec<u8> {
        let regions = self.layout.regions().div_ceil(8) as usize;
        let mut bytes = Vec::with_capacity(COPY_BYTES as usize);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        let length = HEADER_BYTES + self.members.len() * (MEMBER_BYTES + 2 * regions) + SUM_BYTES;
        bytes.extend((length as u32).to_le_bytes());
        bytes.extend(self.volume.to_le_bytes());
        bytes.extend(self.generation.to_le_bytes());
        bytes.extend(place.to_le_bytes());
        bytes.extend((self.index as u16).to_le_bytes());
        bytes.extend((self.members.len() as u16).to_le_bytes());
        bytes.extend([self.layout.ways, self.layout.checksum, u8::from(self.is_open), 0]);
        bytes.extend(self.layout.chunk_bytes.to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(self.layout.data_bytes.to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        for member in &self.members {
            bytes.extend(member.id.to_le_bytes());
            bytes.push(member.state as u8);
            bytes.extend([0; 15]);
            bytes.extend(&member.missed.0);
            bytes.extend(&member.written.0);
        }
        bytes.resize(length, 0);
        seal(&mut bytes);
        bytes.resize(COPY_BYTES as usize, 0);
        bytes
    }

    /// Reads the copy that was found at `place`. `None` if there is none, or none that is whole and belongs there.
    ///
    /// Fails with [`ErrorKind::Unsupported`] for one of a later version, and with [`ErrorKind::Invalid`] for one that is whole
    /// and makes no sense.
    pub fn decode(bytes: &[u8], place: u64) -> Result<Option<Self>> {
        let Some(own) = Fields::of(bytes) else { return Ok(None) };
        if own.u64(40) != place {
            return Ok(None);
        }
        let version = own.u32(8);
        if version != VERSION {
            let context = format!(
                "the volume is of version {version}, and this program knows version {VERSION}; use a newer one"
            );
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let senseless =
            |why: &str| Error::new(ErrorKind::Invalid, format!("a record of a volume makes no sense: {why}"));
        let (index, count) = (usize::from(own.u16(48)), usize::from(own.u16(50)));
        let [ways, checksum, is_open, _]: [u8; 4] = own.take(52);
        let layout = Layout { ways, chunk_bytes: own.u32(56), data_bytes: own.u64(64), checksum };
        layout.validate(count).map_err(senseless)?;
        let regions = layout.regions().div_ceil(8) as usize;
        let stride = MEMBER_BYTES + 2 * regions;
        if count > MEMBERS_MAX || index >= count || own.0.len() != HEADER_BYTES + count * stride + SUM_BYTES {
            return Err(senseless("it does not have the members that it says"));
        }
        let mut members = Vec::with_capacity(count);
        for start in (HEADER_BYTES..).step_by(stride).take(count) {
            let state = match own.0[start + 16] {
                0 => EntryState::InUse,
                1 => EntryState::Failed,
                _ => return Err(senseless("a member is in no state that there is")),
            };
            let bits = |from: usize| Bits(own.0[from..from + regions].to_vec());
            let (missed, written) = (bits(start + MEMBER_BYTES), bits(start + MEMBER_BYTES + regions));
            members.push(MemberEntry { id: own.u128(start), state, missed, written });
        }
        Ok(Some(Self {
            volume: own.u128(16),
            generation: own.u64(32),
            index,
            layout,
            members,
            is_open: is_open != 0,
        }))
    }
}

/// Makes the sum at the end of a record right.
pub fn seal(record: &mut [u8]) {
    let Some(content) = record.len().checked_sub(SUM_BYTES) else { return };
    let (content, sum) = record.split_at_mut(content);
    sum.copy_from_slice(&xxhash_rust::xxh3::xxh3_64(content).to_le_bytes());
}

/// The bytes of a record that is whole.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        if bytes.get(..8)? != MAGIC {
            return None;
        }
        let length = Fields(bytes.get(..HEADER_BYTES)?).u32(12) as usize;
        let own = bytes.get(..length).filter(|own| own.len() >= HEADER_BYTES + SUM_BYTES)?;
        let (content, sum) = own.split_at(length - SUM_BYTES);
        (xxhash_rust::xxh3::xxh3_64(content).to_le_bytes() == *sum).then_some(Self(own))
    }

    fn take<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[at..at + N]);
        bytes
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.take(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.take(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.take(at))
    }

    fn u128(&self, at: usize) -> u128 {
        u128::from_le_bytes(self.take(at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> impl Strategy<Value = Record> {
        (
            1u8..4,
            1usize..8,
            1u64..20_000,
            any::<(u128, u64, bool)>(),
            proptest::collection::vec(any::<(u128, bool, u16)>(), 24),
        )
            .prop_map(|(ways, mirrors, mebibytes, (volume, generation, is_open), entries)| {
                let layout =
                    Layout { ways, chunk_bytes: 65_536, data_bytes: mebibytes << 20, checksum: ways - 1 };
                let members: Vec<MemberEntry> = entries
                    .into_iter()
                    .take(mirrors * usize::from(ways))
                    .map(|(id, is_failed, bit)| {
                        let (mut missed, written) =
                            (Bits::new(layout.regions()), Bits::new(layout.regions()));
                        missed.set(u64::from(bit) % layout.regions());
                        let state = if is_failed { EntryState::Failed } else { EntryState::InUse };
                        MemberEntry { id, state, missed, written }
                    })
                    .collect();
                Record { volume, generation, index: members.len() - 1, layout, members, is_open }
            })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_at_its_place_and_nowhere_else(record in record(), byte in 0usize..2000, bit in 0u8..8) {
            let mut bytes = record.encode(COPY_BYTES);
            prop_assert_eq!(bytes.len() as u64, COPY_BYTES);
            prop_assert_eq!(Record::decode(&bytes, COPY_BYTES).expect("makes sense"), Some(record.clone()));
            prop_assert_eq!(Record::decode(&bytes, 0).expect("is another's"), None);
            let length = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
            bytes[byte % length] ^= 1 << bit;
            prop_assert_eq!(Record::decode(&bytes, COPY_BYTES).expect("is none"), None);
        }

        #[test]
        fn no_bytes_bring_it_down(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), mend: bool) {
            if mend && bytes.len() > 140 {
                bytes[..8].copy_from_slice(&MAGIC);
                bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
                let length = bytes.len();
                bytes[12..16].copy_from_slice(&(length as u32).to_le_bytes());
                bytes[40..48].copy_from_slice(&0u64.to_le_bytes());
                seal(&mut bytes);
            }
            if let Ok(Some(record)) = Record::decode(&bytes, 0) {
                prop_assert_eq!(Record::decode(&record.encode(0), 0).expect("makes sense"), Some(record));
            }
        }
    }

    #[test]
    fn a_later_version_is_refused_by_its_number() {
        let layout = Layout { ways: 1, chunk_bytes: 65_536, data_bytes: 1 << 20, checksum: 0 };
        let entry =
            MemberEntry { id: 1, state: EntryState::InUse, missed: Bits::new(1), written: Bits::new(1) };
        let record =
            Record { volume: 7, generation: 1, index: 0, layout, members: vec![entry], is_open: false };
        let mut bytes = record.encode(0);
        bytes[8] = 2;
        let length = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
        seal(&mut bytes[..length]);
        let error = Record::decode(&bytes, 0).expect_err("is later");
        assert!(error.to_string().contains("version 2") && error.kind() == ErrorKind::Unsupported);
    }

    #[test]
    fn the_largest_volume_fits_a_copy() {
        let layout = Layout { ways: 3, chunk_bytes: 65_536, data_bytes: 1 << 50, checksum: 0 };
        assert!(layout.regions() <= REGIONS_MAX);
        let bytes = HEADER_BYTES + MEMBERS_MAX * (MEMBER_BYTES + 2 * 512) + SUM_BYTES;
        assert!(bytes as u64 <= COPY_BYTES, "{bytes}");
        assert_eq!(places(10 << 20), [[0, (10 << 20) - 131_072], [65_536, (10 << 20) - 65_536]]);
        assert_eq!(
            (data_bytes(10 << 20), data_bytes(3 << 20), data_bytes((3 << 20) - 1)),
            (Some(8 << 20), Some(1 << 20), None)
        );
    }
}
