//! What a volume and its members are like.

use std::collections::BTreeSet;

use super::Volume;
use crate::checksum::ChecksumReport;
use crate::copies::{MemberState, Members};
use crate::member::{Layout, MARGIN_BYTES};
use crate::mirror::MemberReport;
use crate::versions::{RoomReport, VersionInfo};
use rotproof_block::Device;

/// What a volume is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStatus {
    /// Its number.
    pub id: u128,
    /// Counts the changes on record.
    pub generation: u64,
    /// Bytes that it offers.
    pub size_bytes: u64,
    /// How it is put together.
    pub layout: Layout,
    /// Its members, mirror by mirror.
    pub members: Vec<VolumeMember>,
    /// Devices that wait to take the place of a member; nothing for one that is not there.
    pub spares: Vec<Option<String>>,
    /// Blocks of 4 KiB of which no right copy is left, as far as is known.
    pub lost_blocks: u64,
}

/// A member of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMember {
    /// What people call it; nothing if it is not there.
    pub name: Option<String>,
    /// What it is like.
    pub state: MemberState,
}

/// A segment of a volume, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentStatus {
    /// Its members, by their numbers.
    pub members: std::ops::Range<usize>,
    /// Bytes of each of them.
    pub bytes: u64,
}

impl VolumeStatus {
    /// The segments, in their order.
    pub fn segments(&self) -> Vec<SegmentStatus> {
        let ways = usize::from(self.layout.ways);
        let segments = self.layout.segments.iter().map(|segment| SegmentStatus {
            members: usize::from(segment.mirrors.start) * ways..usize::from(segment.mirrors.end) * ways,
            bytes: segment.bytes,
        });
        segments.collect()
    }
}

impl Volume {
    /// What each member is like and has done since it was opened, mirror by mirror; none where one copy is kept.
    pub fn reports(&self) -> Vec<MemberReport> {
        self.mirrors.iter().flatten().flat_map(|mirror| mirror.report()).collect()
    }

    /// What its checksums have found and mended since it was opened, if it has some.
    pub fn checksum_report(&self) -> Option<ChecksumReport> {
        let reports = self.checksums.iter().map(|checksum| checksum.report());
        reports.reduce(ChecksumReport::and)
    }

    /// Where on each member of the first mirror the checksum of a block lies, whose data are at `offset` of the member: its page,
    /// twice. Empty if there are no checksums, or the volume is more than one mirror. For whoever puts it on trial.
    pub fn places_of_sums(&self, offset: u64) -> Vec<u64> {
        let ([checksum], 1) = (&self.checksums[..], self.mirrors.len()) else { return Vec::new() };
        let Some(block) = offset.checked_sub(MARGIN_BYTES + checksum.data_at()) else { return Vec::new() };
        checksum.pages_of(block).into_iter().map(|page| MARGIN_BYTES + page).collect()
    }

    /// Where on each member of the first mirror the map says where the byte at `offset` of the volume lies: its page, twice. Empty
    /// if there is no map, or the volume is more than one mirror. For whoever puts it on trial.
    pub fn places_of_map(&self, offset: u64) -> Vec<u64> {
        let (Some(versions), 1) = (&self.versions, self.mirrors.len()) else { return Vec::new() };
        let first = MARGIN_BYTES + self.checksums.first().map_or(0, |checksum| checksum.data_at());
        versions.pages_of(offset).into_iter().map(|page| first + page).collect()
    }

    /// The blocks of 4 KiB that no copy has right, by number, before versions place them.
    pub fn lost(&self) -> BTreeSet<u64> {
        let (mut all, mut first) = (BTreeSet::new(), 0);
        for checksum in &self.checksums {
            all.extend(checksum.lost().into_iter().map(|block| first + block));
            first += checksum.info().size / 4096;
        }
        all
    }

    /// Its versions, the oldest first, and the room that there is, if it keeps some.
    pub fn versions_report(&self) -> Option<(Vec<VersionInfo>, RoomReport)> {
        self.versions.as_ref().map(|versions| (versions.versions(), versions.room()))
    }

    /// What it is like.
    pub fn status(&self) -> VolumeStatus {
        let states = self.mirrors.iter().flat_map(|mirror| match mirror {
            Some(mirror) => mirror.states(),
            None => vec![MemberState::Current],
        });
        let names = self.names.lock().clone();
        let members = states.zip(names).map(|(state, name)| VolumeMember { name: name.ok(), state });
        let spares = self.book.spares.lock().clone();
        VolumeStatus {
            id: self.book.volume,
            generation: self.book.generation(),
            size_bytes: self.top.info().size,
            layout: self.book.layout.clone(),
            members: members.collect(),
            spares: spares.into_iter().map(|spare| spare.candidate.map(|one| one.name)).collect(),
            lost_blocks: self.lost().len() as u64,
        }
    }
}
