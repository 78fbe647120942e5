//! What devices say of the volume that they are, without opening it: nothing is written, and nothing need be whole.

use rotproof_block::{Error, ErrorKind, Result, Runtime};

use super::assemble::ranges;
use super::open::{Assembled, Candidate, assemble};
use super::{VolumeMember, VolumeOptions, VolumeStatus};
use crate::checksum::{ChecksumDevice, ChecksumKind};
use crate::copies::MemberState;
use crate::member::Segment;
use crate::stripe::stripe_size;
use crate::versions::{VersionsDevice, arranged_bytes};

/// What is on record.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// As [`super::Volume::status`] would have it. Blocks that are lost nobody counts here.
    pub status: VolumeStatus,
    /// How it was made.
    pub options: VolumeOptions,
    /// What people should know.
    pub notes: Vec<String>,
    /// Whether it is open, or was not closed in order.
    pub is_open: bool,
}

/// Reads the records of these devices. Fails as [`super::Volume::open`] does.
pub async fn inspect(candidates: Vec<Candidate>, runtime: &Runtime) -> Result<Inspection> {
    let Assembled { newest, spares, names, notes, .. } = assemble(candidates, runtime).await?;
    let layout = newest.layout.clone();
    let members = newest.members.iter().zip(names).map(|(entry, name)| {
        let missed_bytes = ranges(&entry.missed, &layout).iter().map(|range| range.end - range.start).sum();
        let state = match &name {
            Err(why) => MemberState::Failed { why: why.clone() },
            Ok(_) if missed_bytes > 0 => MemberState::Behind { missed_bytes },
            Ok(_) => MemberState::Current,
        };
        VolumeMember { name: name.ok(), state }
    });
    let members: Vec<VolumeMember> = members.collect();
    let checksum = layout.checksum.checked_sub(1).map(|number| {
        ChecksumKind::from_number(number).ok_or_else(|| {
            let context = "the volume has checksums of a kind that this program does not know";
            Error::new(ErrorKind::Unsupported, context)
        })
    });
    let checksum = checksum.transpose()?;
    let mut size_bytes = 0;
    for segment in &layout.segments {
        size_bytes += size_of(segment, layout.chunk_bytes, checksum);
    }
    if let Some(policy) = layout.versions {
        let below = match layout.map {
            Some(map) => arranged_bytes(size_bytes, map, policy.reserve_percent).unwrap_or(0),
            None => size_bytes,
        };
        size_bytes = VersionsDevice::place_on(below, policy.reserve_percent).map_or(0, |(_, size)| size);
    }
    let options = VolumeOptions {
        ways: layout.ways,
        chunk_bytes: layout.chunk_bytes,
        checksum,
        versions: layout.versions,
    };
    let status = VolumeStatus {
        id: newest.volume,
        generation: newest.generation,
        size_bytes,
        layout,
        members,
        spares: spares.into_iter().map(|spare| spare.candidate.map(|one| one.name)).collect(),
        lost_blocks: 0,
    };
    Ok(Inspection { status, options, notes, is_open: newest.is_open })
}

/// Bytes that a segment offers; 0 if it is too small for what belongs on it.
pub(super) fn size_of(segment: &Segment, chunk_bytes: u32, checksum: Option<ChecksumKind>) -> u64 {
    let whole = match segment.mirrors.len() {
        1 => segment.bytes,
        mirrors => stripe_size((0..mirrors).map(|_| segment.bytes), chunk_bytes).unwrap_or(0),
    };
    match checksum {
        Some(kind) => ChecksumDevice::place_on(whole, kind).map_or(0, |(_, size)| size),
        None => whole,
    }
}
