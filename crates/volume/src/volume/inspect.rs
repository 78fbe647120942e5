//! What devices say of the volume that they are, without opening it: nothing is written, and nothing need be whole.

use rotproof_block::{Error, ErrorKind, Result, Runtime};

use super::open::{Assembled, Candidate, assemble};
use super::{VolumeMember, VolumeOptions, VolumeStatus, ranges};
use crate::checksum::{ChecksumDevice, ChecksumKind};
use crate::copies::MemberState;
use crate::member::EntryState;
use crate::stripe::stripe_size;

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
    let Assembled { newest, names, notes, .. } = assemble(candidates, runtime).await?;
    let layout = newest.layout.clone();
    let members = newest.members.iter().zip(names).map(|(entry, name)| {
        let missed_bytes = ranges(&entry.missed, &layout).iter().map(|range| range.end - range.start).sum();
        let state = match &name {
            Err(why) => MemberState::Failed { why: why.clone() },
            Ok(_) if entry.state == EntryState::Failed => {
                MemberState::Failed { why: "it has failed".to_owned() }
            }
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
    let mirrors = members.len() / usize::from(layout.ways);
    let whole = match mirrors {
        1 => layout.data_bytes,
        _ => stripe_size((0..mirrors).map(|_| layout.data_bytes), layout.chunk_bytes).unwrap_or(0),
    };
    let size_bytes = match checksum {
        Some(kind) => ChecksumDevice::place_on(whole, kind).map_or(0, |(_, size)| size),
        None => whole,
    };
    let options = VolumeOptions { ways: layout.ways, chunk_bytes: layout.chunk_bytes, checksum };
    let status = VolumeStatus {
        id: newest.volume,
        generation: newest.generation,
        size_bytes,
        layout,
        members,
        lost_blocks: 0,
    };
    Ok(Inspection { status, options, notes, is_open: newest.is_open })
}
