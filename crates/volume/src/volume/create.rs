//! A volume is made, and ended.

use std::sync::Arc;
use std::time::Duration;

use rotproof_block::hash::mix;
use rotproof_block::{Buffer, Context, Error, ErrorKind, Request, Result, Runtime};

use super::assemble::Making;
use super::book::{Page, write_record};
use super::open::Assembled;
use super::reshape::with_missed;
use super::{Candidate, OpenOptions, Volume, VolumeOptions};
use crate::member::{Bits, Known, Layout, MARGIN_BYTES, MEMBERS_MAX, MemberEntry, MemberRecord, data_bytes};

/// How long a member may take to answer when nobody uses the volume yet.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

impl Volume {
    /// Makes a volume of these devices, in this order. What they hold is lost. `id` is its number, which no other may have.
    ///
    /// Fails with [`ErrorKind::Invalid`] if the devices do not make up whole mirrors, or if one is too small.
    pub async fn create(
        candidates: &[Candidate],
        options: VolumeOptions,
        id: u128,
        runtime: &Runtime,
    ) -> Result<()> {
        let (count, ways) = (candidates.len(), usize::from(options.ways));
        if !(1..=3).contains(&ways) || count == 0 || !count.is_multiple_of(ways) || count > MEMBERS_MAX {
            let context = format!(
                "{count} devices do not make up mirrors of {ways}; give 1 to {MEMBERS_MAX}, a multiple of {ways}, which is 1 to 3"
            );
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let mut smallest = u64::MAX;
        for candidate in candidates {
            let Some(bytes) = data_bytes(candidate.device.info().size) else {
                let context = format!("{} is too small for a member: at least 3MiB", candidate.name);
                return Err(Error::new(ErrorKind::Invalid, context));
            };
            smallest = smallest.min(bytes);
        }
        let mut layout = Layout::plain(options.ways, options.chunk_bytes, (count / ways) as u16, smallest);
        layout.checksum = options.checksum.map_or(0, |kind| kind.number() + 1);
        layout.versions = options.versions;
        let members: Vec<MemberEntry> = (0..count as u64).map(|index| entry(id, index, &layout)).collect();
        for candidate in candidates {
            clear_margins(candidate, runtime).await?;
        }
        let newest = MemberRecord {
            volume: id,
            generation: 0,
            index: 0,
            layout,
            members,
            spares: Vec::new(),
            is_open: false,
            session: mix((id >> 64) as u64, id as u64, 0x6d61_6465) | 1,
        };
        let found = Assembled {
            pages: newest
                .members
                .iter()
                .zip(candidates)
                .map(|(entry, one)| Page { device: Some(Arc::clone(&one.device)), entry: entry.clone() })
                .collect(),
            spares: Vec::new(),
            names: candidates.iter().map(|one| Ok(one.name.clone())).collect(),
            notes: Vec::new(),
            newest,
        };
        // All that the records will promise is there before them.
        let making = Making { from_segment: 0, with_versions: true, id };
        let options = OpenOptions::with_patience(PATIENCE);
        let volume = Self::assembled(found.clone(), options, Some(making), runtime).await?;
        volume.settle(runtime).await?;
        let newest = with_missed(found, &volume).newest;
        let all: Vec<(usize, &Candidate)> = candidates.iter().enumerate().collect();
        write_all(&all, &newest, runtime).await
    }
}

/// Writes two generations of a record to each of these devices, which are its members and spares of these numbers. The first
/// that is written makes it so: until then, and whatever becomes of the others, the volume is as one of the two says.
pub(super) async fn write_all(
    devices: &[(usize, &Candidate)],
    newest: &MemberRecord,
    runtime: &Runtime,
) -> Result<()> {
    for step in [1, 2] {
        for &(index, candidate) in devices {
            let mut record = MemberRecord { generation: newest.generation + step, index, ..newest.clone() };
            let known = Known { session: record.session, generation: record.generation };
            record.members.iter_mut().for_each(|member| member.known = known);
            write_record(&candidate.device, &record, runtime)
                .await
                .map_err(|error| error.while_doing(&candidate.name))?;
        }
    }
    Ok(())
}

/// What is on record of a new member. `id` is of the act that makes it one.
pub(super) fn entry(id: u128, index: u64, layout: &Layout) -> MemberEntry {
    let part = |half: u64| u128::from(mix((id >> 64) as u64, id as u64 ^ half, index));
    MemberEntry {
        id: part(0) << 64 | part(1),
        missed: Bits::new(layout.regions()),
        written: Bits::new(layout.regions()),
        known: Known::default(),
    }
}

/// Takes away what a device says at its ends.
pub(super) async fn clear_margins(candidate: &Candidate, runtime: &Runtime) -> Result<()> {
    let queue = candidate.device.open_queue(runtime)?;
    let size = candidate.device.info().size / 4096 * 4096;
    for at in [0, size - MARGIN_BYTES] {
        let zeros = Request::write(at, Buffer::zeroed(MARGIN_BYTES as usize), Context::default());
        queue.submit(zeros).await.result.map_err(|error| error.while_doing(&candidate.name))?;
    }
    queue.submit(Request::flush(Context::default())).await.result
}

/// Ends what a device says of a volume: whoever opens it then finds none. Data stay as they are.
pub async fn forget(candidate: &Candidate, runtime: &Runtime) -> Result<()> {
    clear_margins(candidate, runtime).await
}
