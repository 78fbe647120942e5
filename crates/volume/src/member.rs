//! What a member of a volume says of the volume, of itself and of the others: the format of `docs/format-volume.md`.
//!
//! Every member has four copies of it, two at each end, of which each change writes one at each end. A copy knows its place, so
//! that one that landed elsewhere is none. This module reads and writes bytes, and asks no device.

use std::ops::Range;

use rotproof_block::{Error, ErrorKind, Result};

/// How a copy begins.
const MAGIC: [u8; 8] = *b"rotpvol\n";
/// The newest format that this program reads and writes. A record is written in the oldest one that can say what it has to.
pub const VERSION: u32 = 4;
/// Bytes of a copy on the device.
pub const COPY_BYTES: u64 = 64 << 10;
/// Bytes at each end of a member that are not data.
pub const MARGIN_BYTES: u64 = 1 << 20;
/// The most members of a volume.
pub const MEMBERS_MAX: usize = 48;
/// The most segments of a volume.
pub const SEGMENTS_MAX: usize = 16;
/// The most spares of a volume.
pub const SPARES_MAX: usize = 8;
/// The most regions of a member; a region is what one bit stands for.
const REGIONS_MAX: u64 = 4096;
/// The least bytes of a region.
const REGION_BYTES_MIN: u64 = 4 << 20;

const HEADER_BYTES: usize = 128;
const SESSION_AT: usize = 104;
const MEMBER_BYTES: usize = 32;
const SEGMENT_BYTES: usize = 24;
const SPARE_BYTES: usize = 16;
const SUM_BYTES: usize = 8;

/// How a volume is put together. The same on all members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Copies of everything: 1 to 3.
    pub ways: u8,
    /// Bytes of a chunk of the stripe over the mirrors.
    pub chunk_bytes: u32,
    /// Number of the checksum over it all, as `ChecksumKind::number` has it, plus 1; 0 for none.
    pub checksum: u8,
    /// What the volume is made of, one behind the other: one when it is made, another each time that it grows.
    pub segments: Vec<Segment>,
    /// The versions over it all, if it keeps some.
    pub versions: Option<VersionsPolicy>,
    /// Where the map of the versions lies, if the volume has grown since it kept some.
    pub map: Option<MapPlace>,
}

/// Where a map of versions lies among the segments, in bytes of them all, one behind the other. It begins with them if nothing else is
/// said, and the room for data right behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapPlace {
    /// Where it begins: where a segment does.
    pub at: u64,
    /// Where the room for data begins, from which places are counted. The map lies within it.
    pub space_from: u64,
}

/// A stretch of some mirrors, over which lies a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The mirrors, by their numbers.
    pub mirrors: Range<u16>,
    /// Where it begins in the data of each of their members.
    pub start: u64,
    /// Its bytes on each member.
    pub bytes: u64,
}

impl Segment {
    /// Its bytes in the data of a member.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(self.bytes)
    }
}

/// How a volume keeps versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionsPolicy {
    /// Percent of the room that are kept for what versions hold: 1 to 90.
    pub reserve_percent: u8,
    /// Milliseconds after which a version is captured by itself, as long as somebody writes; 0 for never.
    pub every_ms: u64,
    /// How many of those are kept.
    pub keep: u32,
}

impl Default for VersionsPolicy {
    /// A fifth of the room, none by itself, 24 kept.
    fn default() -> Self {
        Self { reserve_percent: 20, every_ms: 0, keep: 24 }
    }
}

/// What is known of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberEntry {
    /// Its number of its own, new for each device that takes the place.
    pub id: u128,
    /// The regions of it that may be old, a bit each.
    pub missed: Bits,
    /// The regions that were being written, of the mirror that it begins: a bit each. Of the others nothing.
    pub written: Bits,
    /// The newest record that it can have which whoever says this knows of.
    pub known: Known,
}

/// A record among those of a volume that may have gone on apart: a session is one opening, whose records follow one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The session; 0 if nothing is known.
    pub session: u64,
    /// The last generation of it.
    pub generation: u64,
}

/// What a member says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// Number of the volume.
    pub volume: u128,
    /// Counts the changes; of two records the one with the higher says more.
    pub generation: u64,
    /// Which of the members says it; those behind the members are the spares.
    pub index: usize,
    /// How it is put together.
    pub layout: Layout,
    /// All members, mirror by mirror.
    pub members: Vec<MemberEntry>,
    /// The numbers of devices that wait to take the place of a member.
    pub spares: Vec<u128>,
    /// Whether it was not closed in order.
    pub is_open: bool,
    /// The opening of the volume that it was written in, which no other has that went on apart; 0 in older formats.
    pub session: u64,
}

/// So many bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Of one segment over so many mirrors, each member with so many bytes of data, without checksums and versions.
    pub fn plain(ways: u8, chunk_bytes: u32, mirrors: u16, data_bytes: u64) -> Self {
        let segments = vec![Segment { mirrors: 0..mirrors, start: 0, bytes: data_bytes }];
        Self { ways, chunk_bytes, checksum: 0, segments, versions: None, map: None }
    }

    /// Bytes of data of the members that have the most.
    pub fn data_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.range().end).max().unwrap_or(0)
    }

    /// Bytes of data of each member of a mirror.
    pub fn data_bytes_of(&self, mirror: usize) -> u64 {
        let of_it = self.segments.iter().filter(|segment| {
            (usize::from(segment.mirrors.start)..usize::from(segment.mirrors.end)).contains(&mirror)
        });
        of_it.map(|segment| segment.range().end).max().unwrap_or(0)
    }

    /// Bytes of a region: what a bit of a member stands for.
    pub fn region_bytes(&self) -> u64 {
        self.data_bytes().div_ceil(REGIONS_MAX).next_power_of_two().max(REGION_BYTES_MIN)
    }

    /// How many regions a member has.
    pub fn regions(&self) -> u64 {
        self.data_bytes().div_ceil(self.region_bytes())
    }

    /// The oldest format that can say it.
    fn version(&self) -> u32 {
        match self.map {
            Some(_) => 3,
            None if self.segments.len() == 1 && self.versions.is_none() => 1,
            None => 2,
        }
    }

    fn validate(&self, members: usize) -> Result<(), &'static str> {
        if !(1..=3).contains(&self.ways) || members == 0 || !members.is_multiple_of(self.ways.into()) {
            return Err("its copies and its members do not fit each other");
        }
        if !self.chunk_bytes.is_power_of_two() || !(4096..=64 << 20).contains(&self.chunk_bytes) {
            return Err("its chunk has no size that there is");
        }
        if self.segments.is_empty() || self.segments.len() > SEGMENTS_MAX {
            return Err("it has no segments, or more than there can be");
        }
        let mirrors = members / usize::from(self.ways);
        for (number, segment) in self.segments.iter().enumerate() {
            let is_aligned = |bytes: u64| bytes <= 1 << 60 && bytes.is_multiple_of(MARGIN_BYTES);
            if segment.bytes == 0 || !is_aligned(segment.bytes) || !is_aligned(segment.start) {
                return Err("its members have no size that there is");
            }
            if segment.mirrors.is_empty() || usize::from(segment.mirrors.end) > mirrors {
                return Err("a segment is of mirrors that there are not");
            }
            let overlaps = |other: &Segment| {
                let (one, other_range) = (segment.range(), other.range());
                segment.mirrors.start < other.mirrors.end
                    && other.mirrors.start < segment.mirrors.end
                    && one.start < other_range.end
                    && other_range.start < one.end
            };
            if self.segments[..number].iter().any(overlaps) {
                return Err("two of its segments are at one place");
            }
        }
        if (0..mirrors).any(|mirror| self.data_bytes_of(mirror) == 0) {
            return Err("a mirror is in no segment");
        }
        if self.versions.is_some_and(|versions| !(1..=90).contains(&versions.reserve_percent)) {
            return Err("it keeps an amount of room for versions that cannot be");
        }
        if let Some(map) = self.map
            && (self.versions.is_none()
                || map.at <= map.space_from
                || !(map.at | map.space_from).is_multiple_of(4096))
        {
            return Err("its map lies where it cannot");
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

impl MemberRecord {
    /// The copy that belongs at `place`, of [`COPY_BYTES`].
    pub fn encode(&self, place: u64) -> Vec<u8> {
        let regions = self.layout.regions().div_ceil(8) as usize;
        let mut bytes = Vec::with_capacity(COPY_BYTES as usize);
        bytes.extend(MAGIC);
        let has_sessions = self.session != 0 || self.members.iter().any(|one| one.known != Known::default());
        let least = if self.spares.is_empty() { 1 } else { 2 };
        let version = self.layout.version().max(if has_sessions { VERSION } else { least });
        bytes.extend(version.to_le_bytes());
        let segments: &[Segment] = if version == 1 { &[] } else { &self.layout.segments };
        let length = HEADER_BYTES
            + self.members.len() * (MEMBER_BYTES + 2 * regions)
            + segments.len() * SEGMENT_BYTES
            + self.spares.len() * SPARE_BYTES
            + SUM_BYTES;
        bytes.extend((length as u32).to_le_bytes());
        bytes.extend(self.volume.to_le_bytes());
        bytes.extend(self.generation.to_le_bytes());
        bytes.extend(place.to_le_bytes());
        bytes.extend((self.index as u16).to_le_bytes());
        bytes.extend((self.members.len() as u16).to_le_bytes());
        bytes.extend([self.layout.ways, self.layout.checksum, u8::from(self.is_open), 0]);
        bytes.extend(self.layout.chunk_bytes.to_le_bytes());
        bytes.extend((segments.len() as u16).to_le_bytes());
        bytes.extend((self.spares.len() as u16).to_le_bytes());
        bytes.extend(self.layout.data_bytes().to_le_bytes());
        if let Some(policy) = self.layout.versions {
            bytes.extend([policy.reserve_percent, 0, 0, 0]);
            bytes.extend(policy.keep.to_le_bytes());
            bytes.extend(policy.every_ms.to_le_bytes());
        }
        if let Some(MapPlace { at, space_from }) = self.layout.map {
            bytes.extend(at.to_le_bytes());
            bytes.extend(space_from.to_le_bytes());
        }
        bytes.resize(SESSION_AT, 0);
        bytes.extend(self.session.to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        for member in &self.members {
            bytes.extend(member.id.to_le_bytes());
            bytes.extend(member.known.session.to_le_bytes());
            bytes.extend(member.known.generation.to_le_bytes());
            bytes.extend(&member.missed.0);
            bytes.extend(&member.written.0);
        }
        for segment in segments {
            bytes.extend(segment.mirrors.start.to_le_bytes());
            bytes.extend((segment.mirrors.end - segment.mirrors.start).to_le_bytes());
            bytes.extend(0u32.to_le_bytes());
            bytes.extend(segment.start.to_le_bytes());
            bytes.extend(segment.bytes.to_le_bytes());
        }
        self.spares.iter().for_each(|spare| bytes.extend(spare.to_le_bytes()));
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
        if version > VERSION {
            let context = format!(
                "the volume is of version {version}, and this program knows version {VERSION}; use a newer one"
            );
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let senseless =
            |why: &str| Error::new(ErrorKind::Invalid, format!("a record of a volume makes no sense: {why}"));
        let (index, count) = (usize::from(own.u16(48)), usize::from(own.u16(50)));
        let [ways, checksum, is_open, _]: [u8; 4] = own.take(52);
        let (is_first, has_sessions) = (version < 2, version > 3);
        let (segment_count, spare_count) =
            if is_first { (0, 0) } else { (usize::from(own.u16(60)), usize::from(own.u16(62))) };
        if count == 0 || count > MEMBERS_MAX || index >= count + spare_count {
            return Err(senseless("it does not have the members that it says"));
        }
        if segment_count > SEGMENTS_MAX || spare_count > SPARES_MAX || !(1..=3).contains(&ways) {
            return Err(senseless("it has more parts than there can be"));
        }
        // Behind the members, whose size these decide.
        let tail = segment_count * SEGMENT_BYTES + spare_count * SPARE_BYTES + SUM_BYTES;
        let Some(segments_at) = own.0.len().checked_sub(tail).filter(|at| *at >= HEADER_BYTES) else {
            return Err(senseless("it is shorter than it says"));
        };
        let segments = match is_first {
            true => Layout::plain(ways, 0, (count / usize::from(ways)) as u16, own.u64(64)).segments,
            false => {
                (0..segment_count).map(|number| own.segment(segments_at + number * SEGMENT_BYTES)).collect()
            }
        };
        let versions = (!is_first && own.0[72] != 0).then(|| VersionsPolicy {
            reserve_percent: own.0[72],
            keep: own.u32(76),
            every_ms: own.u64(80),
        });
        let map =
            (version > 2 && own.u64(88) != 0).then(|| MapPlace { at: own.u64(88), space_from: own.u64(96) });
        let layout = Layout { ways, chunk_bytes: own.u32(56), checksum, segments, versions, map };
        layout.validate(count).map_err(senseless)?;
        let regions = layout.regions().div_ceil(8) as usize;
        let stride = MEMBER_BYTES + 2 * regions;
        if segments_at != HEADER_BYTES + count * stride {
            return Err(senseless("it does not have the members that it says"));
        }
        let mut members = Vec::with_capacity(count);
        for start in (HEADER_BYTES..).step_by(stride).take(count) {
            let bits = |from: usize| Bits(own.0[from..from + regions].to_vec());
            let (missed, written) = (bits(start + MEMBER_BYTES), bits(start + MEMBER_BYTES + regions));
            let known = match has_sessions {
                true => Known { session: own.u64(start + 16), generation: own.u64(start + 24) },
                false => Known::default(),
            };
            members.push(MemberEntry { id: own.u128(start), missed, written, known });
        }
        let spares_at = segments_at + segment_count * SEGMENT_BYTES;
        let spares = (0..spare_count).map(|number| own.u128(spares_at + number * SPARE_BYTES)).collect();
        Ok(Some(Self {
            volume: own.u128(16),
            generation: own.u64(32),
            index,
            layout,
            members,
            spares,
            is_open: is_open != 0,
            session: if has_sessions { own.u64(SESSION_AT) } else { 0 },
        }))
    }

    /// Whether whoever says this went on from that record, or from a later one of the same opening: then all that one says of others is
    /// known here.
    pub fn comes_after(&self, one: &Self) -> bool {
        if one.session == 0 {
            return false;
        }
        if one.session == self.session {
            return one.generation <= self.generation;
        }
        let entry = self.members.iter().find(|entry| Some(entry.id) == one.own_id());
        entry.is_some_and(|entry| {
            entry.known.session == one.session && one.generation <= entry.known.generation
        })
    }

    /// The number of the device that says it.
    pub fn own_id(&self) -> Option<u128> {
        match self.members.get(self.index) {
            Some(entry) => Some(entry.id),
            None => self.spares.get(self.index - self.members.len()).copied(),
        }
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

    fn segment(&self, at: usize) -> Segment {
        let first = self.u16(at);
        Segment {
            mirrors: first..first.saturating_add(self.u16(at + 2)),
            start: self.u64(at + 8),
            bytes: self.u64(at + 16),
        }
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

    fn record() -> impl Strategy<Value = MemberRecord> {
        (
            1u8..4,
            1u16..8,
            1u64..20_000,
            any::<(u128, u64, bool)>(),
            proptest::collection::vec(any::<(u128, u16)>(), 24),
            (0u64..3, any::<Option<(u64, u32)>>(), proptest::collection::vec(any::<u128>(), 0..3)),
        )
            .prop_map(|(ways, mirrors, mebibytes, (volume, generation, is_open), entries, more)| {
                let (grown, versions, spares) = more;
                let mut layout = Layout::plain(ways, 65_536, mirrors, mebibytes << 20);
                layout.checksum = ways - 1;
                for step in 0..grown {
                    let start = (mebibytes + step * 7) << 20;
                    layout.segments.push(Segment { mirrors: 0..mirrors, start, bytes: 7 << 20 });
                }
                layout.versions = versions.map(|(every_ms, keep)| VersionsPolicy {
                    reserve_percent: 1 + (keep % 90) as u8,
                    every_ms,
                    keep,
                });
                layout.map = layout.versions.filter(|versions| versions.keep % 3 == 0).map(|versions| {
                    let space_from = u64::from(versions.keep) * 4096;
                    MapPlace { at: space_from + (1 << 20), space_from }
                });
                let members: Vec<MemberEntry> = entries
                    .into_iter()
                    .take(usize::from(mirrors) * usize::from(ways))
                    .map(|(id, bit)| {
                        let (mut missed, written) =
                            (Bits::new(layout.regions()), Bits::new(layout.regions()));
                        missed.set(u64::from(bit) % layout.regions());
                        let known = Known { session: u64::from(bit % 3), generation: u64::from(bit) };
                        MemberEntry { id, missed, written, known }
                    })
                    .collect();
                let index = members.len() + spares.len() - 1;
                let session = generation % 3;
                MemberRecord { volume, generation, index, layout, members, spares, is_open, session }
            })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_at_its_place_and_nowhere_else(record in record(), byte in 0usize..2000, bit in 0u8..8) {
            let mut bytes = record.encode(COPY_BYTES);
            prop_assert_eq!(bytes.len() as u64, COPY_BYTES);
            prop_assert_eq!(MemberRecord::decode(&bytes, COPY_BYTES).expect("makes sense"), Some(record.clone()));
            prop_assert_eq!(MemberRecord::decode(&bytes, 0).expect("is another's"), None);
            let length = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
            bytes[byte % length] ^= 1 << bit;
            prop_assert_eq!(MemberRecord::decode(&bytes, COPY_BYTES).expect("is none"), None);
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
            if let Ok(Some(record)) = MemberRecord::decode(&bytes, 0) {
                prop_assert_eq!(MemberRecord::decode(&record.encode(0), 0).expect("makes sense"), Some(record));
            }
        }
    }

    #[test]
    fn a_later_version_is_refused_by_its_number() {
        let layout = Layout::plain(1, 65_536, 1, 1 << 20);
        let entry =
            MemberEntry { id: 1, missed: Bits::new(1), written: Bits::new(1), known: Known::default() };
        let (members, spares) = (vec![entry], Vec::new());
        let record = MemberRecord {
            volume: 7,
            generation: 1,
            index: 0,
            layout,
            members,
            spares,
            is_open: false,
            session: 0,
        };
        let mut bytes = record.encode(0);
        assert_eq!(bytes[8], 1, "what the first format can say is in the first format");
        bytes[8] = VERSION as u8 + 1;
        let length = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
        seal(&mut bytes[..length]);
        let error = MemberRecord::decode(&bytes, 0).expect_err("is later");
        assert!(error.to_string().contains("version 5") && error.kind() == ErrorKind::Unsupported);
    }

    #[test]
    fn the_largest_volume_fits_a_copy() {
        let layout = Layout::plain(3, 65_536, 16, 1 << 50);
        assert!(layout.regions() <= REGIONS_MAX);
        let tail = SEGMENTS_MAX * SEGMENT_BYTES + SPARES_MAX * SPARE_BYTES + SUM_BYTES;
        let bytes = HEADER_BYTES + MEMBERS_MAX * (MEMBER_BYTES + 2 * 512) + tail;
        assert!(bytes as u64 <= COPY_BYTES, "{bytes}");
        assert_eq!(places(10 << 20), [[0, (10 << 20) - 131_072], [65_536, (10 << 20) - 65_536]]);
        assert_eq!(
            (data_bytes(10 << 20), data_bytes(3 << 20), data_bytes((3 << 20) - 1)),
            (Some(8 << 20), Some(1 << 20), None)
        );
    }
}
