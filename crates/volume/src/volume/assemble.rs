//! The devices of a volume are put together: mirrors, stripes, checksums, segments, versions.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::hash::mix;
use rotproof_block::{Device, Error, ErrorKind, Result, Runtime};

use super::book::Book;
use super::intent::IntentDevice;
use super::open::Assembled;
use super::part::Part;
use super::{OpenOptions, Volume};
use crate::checksum::{ChecksumDevice, ChecksumKind, ChecksumOptions, Found};
use crate::concat::ConcatDevice;

use crate::member::{Bits, Layout, MARGIN_BYTES, MemberRecord, Segment};
use crate::mirror::{MirrorDevice, MirrorOptions, MissLog};
use crate::stripe::StripeDevice;
use crate::versions::{VersionsDevice, VersionsOptions, arrange};

/// What is made anew when a volume is put together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Making {
    /// Segments from this one on.
    pub(super) from_segment: usize,
    /// The map of versions, if it keeps some.
    pub(super) with_versions: bool,
    /// What identities are derived from.
    pub(super) id: u128,
}

impl Making {
    fn found(making: Option<Self>, is_new: impl FnOnce(&Self) -> bool, part: u64) -> Found {
        match making.filter(is_new) {
            Some(Self { id, .. }) => {
                let half = |half: u64| u128::from(mix((id >> 64) as u64, id as u64, part * 2 + half));
                Found::Make(half(0) << 64 | half(1))
            }
            None => Found::Open,
        }
    }
}

impl Volume {
    /// Puts a volume together. Nothing is put on record.
    pub(super) async fn assembled(
        found: Assembled,
        options: OpenOptions,
        making: Option<Making>,
        runtime: &Runtime,
    ) -> Result<Self> {
        let (layout, newest) = (found.newest.layout.clone(), found.newest.clone());
        let (names, mut notes) = (found.names.clone(), found.notes.clone());
        let unknown = || {
            let context = "the volume has checksums of a kind that this program does not know";
            Error::new(ErrorKind::Unsupported, context)
        };
        let kind = layout
            .checksum
            .checked_sub(1)
            .map(|number| ChecksumKind::from_number(number).ok_or_else(unknown));
        let kind = kind.transpose()?;
        let ways = usize::from(layout.ways);
        let seats: Vec<Result<Arc<dyn Device>, String>> = found
            .pages
            .iter()
            .zip(&names)
            .enumerate()
            .map(|(member, (page, name))| {
                let data = |device: &Arc<dyn Device>| -> Arc<dyn Device> {
                    Part::new(Arc::clone(device), MARGIN_BYTES, layout.data_bytes_of(member / ways))
                };
                page.device.as_ref().map(data).ok_or_else(|| name.clone().err().unwrap_or_default())
            })
            .collect();
        let book = Book::new(found, options.patience);
        let (mut parts, mut mirrors): (Vec<Arc<dyn Device>>, Vec<_>) = (Vec::new(), Vec::new());
        for (number, of) in seats.chunks(ways).enumerate() {
            if ways == 1 {
                let gone = || {
                    let context = format!("member {number} is missing, and there is no copy of it");
                    Error::new(ErrorKind::Missing, context)
                };
                parts.push(of[0].clone().map_err(|_| gone())?);
                mirrors.push(None);
                continue;
            }
            let first = number * ways;
            let mirror = assemble_mirror(of, &newest, first, options.patience)?;
            if kind.is_none() && newest.is_open {
                let written = ranges(&newest.members[first].written, &layout);
                if !written.is_empty() {
                    notes.push(format!(
                        "writes were under way in {} places of mirror {number}; rebuild makes its copies equal",
                        written.len()
                    ));
                    mirror.resync(&written);
                    book.will_record(first, &*mirror);
                }
            }
            // The records say what is made only once it is there; what was missed until then is put on record with it.
            if making.is_none() {
                mirror.set_miss_log(Arc::new(GroupLog { book: Arc::clone(&book), first }));
            }
            parts.push(match kind {
                // What is made has no marks: the records that would say so come after it.
                _ if making.is_some() => Arc::clone(&mirror) as Arc<dyn Device>,
                Some(_) => Arc::clone(&mirror) as _,
                None => IntentDevice::new(Arc::clone(&mirror) as _, &book, number),
            });
            mirrors.push(Some(mirror));
        }
        let (mut tops, mut checksums): (Vec<Arc<dyn Device>>, Vec<_>) = (Vec::new(), Vec::new());
        let mut bare = Vec::new();
        for (number, segment) in layout.segments.iter().enumerate() {
            let below = stripe_of(segment, &parts, layout.chunk_bytes)?;
            if kind.is_none() && layout.versions.is_none() && mirrors.iter().all(Option::is_some) {
                let parts: Vec<Arc<dyn Device>> =
                    mirrors.iter().flatten().map(|mirror| Arc::clone(mirror) as Arc<dyn Device>).collect();
                bare.push(stripe_of(segment, &parts, layout.chunk_bytes)?);
            }
            let Some(kind) = kind else {
                tops.push(below);
                continue;
            };
            let found = Making::found(making, |making| number >= making.from_segment, number as u64);
            let options =
                ChecksumOptions { kind, patience: options.patience, found, ..ChecksumOptions::default() };
            let device = ChecksumDevice::open_on(below, options, runtime).await?;
            checksums.push(Arc::clone(&device));
            tops.push(device);
        }
        let mut top = match tops.len() {
            1 => tops.remove(0),
            _ => ConcatDevice::new(tops)?,
        };
        let (base, mut versions) = (Arc::clone(&top), None);
        if let Some(policy) = layout.versions {
            let mut hole = 0..0;
            if let Some(map) = layout.map {
                (top, hole) = arrange(top, map, policy.reserve_percent)?;
            }
            let options = VersionsOptions {
                reserve_percent: policy.reserve_percent,
                every: (policy.every_ms > 0).then(|| Duration::from_millis(policy.every_ms)),
                keep: usize::try_from(policy.keep).unwrap_or(usize::MAX),
                epoch_ns: options.epoch_ns,
                found: Making::found(making, |making| making.with_versions, u64::MAX / 2),
                hole: (hole.start, hole.end),
                ..VersionsOptions::default()
            };
            let device = VersionsDevice::open_on(top, options, runtime).await?;
            versions = Some(Arc::clone(&device));
            top = device;
        }
        Ok(Self { top, mirrors, checksums, versions, base, bare, book, names: Mutex::new(names), notes })
    }
}

/// What a segment is before anything is known of its blocks, over the mirrors or single members in `parts`.
fn stripe_of(segment: &Segment, parts: &[Arc<dyn Device>], chunk_bytes: u32) -> Result<Arc<dyn Device>> {
    let range = usize::from(segment.mirrors.start)..usize::from(segment.mirrors.end);
    let of = parts.get(range).ok_or_else(|| Error::new(ErrorKind::Internal, "a segment has its mirrors"))?;
    let stretch = |part: &Arc<dyn Device>| -> Arc<dyn Device> {
        match segment.start == 0 && part.info().size == segment.bytes {
            true => Arc::clone(part),
            false => Part::new(Arc::clone(part), segment.start, segment.bytes),
        }
    };
    let mut of: Vec<Arc<dyn Device>> = of.iter().map(stretch).collect();
    match of.len() {
        1 => Ok(of.remove(0)),
        _ => Ok(StripeDevice::new(of, chunk_bytes)?),
    }
}

/// A mirror of which some members may be missing.
fn assemble_mirror(
    of: &[Result<Arc<dyn Device>, String>],
    newest: &MemberRecord,
    first: usize,
    patience: Duration,
) -> Result<Arc<MirrorDevice>> {
    let mirror = MirrorDevice::with_failed(of, MirrorOptions { patience })?;
    let missed: Vec<Vec<Range<u64>>> =
        (0..of.len()).map(|number| ranges(&newest.members[first + number].missed, &newest.layout)).collect();
    // Somebody must have all: regions are coarse, so that two members may both have missed the same on record.
    for (number, missed) in missed.iter().enumerate().filter(|(number, _)| of[*number].is_ok()) {
        let others = |range: &Range<u64>| {
            (0..of.len())
                .any(|other| other != number && of[other].is_ok() && !mirror.has_missed(other, range))
        };
        if let Some(range) = missed.iter().find(|range| !others(range)) {
            let context = format!(
                "no member that is there has what was written last at {} of mirror {}; add the one that is missing",
                range.start,
                first / of.len()
            );
            return Err(Error::new(ErrorKind::Missing, context));
        }
        mirror.note_missed(number, missed);
    }
    for (number, missed) in missed.iter().enumerate().filter(|(number, _)| of[*number].is_err()) {
        mirror.note_missed(number, missed);
    }
    Ok(mirror)
}

/// The bytes of a member that regions stand for.
pub(super) fn ranges(bits: &Bits, layout: &Layout) -> Vec<Range<u64>> {
    let region = layout.region_bytes();
    bits.ones()
        .map(|bit| bit * region..((bit + 1) * region).min(layout.data_bytes()))
        .filter(|range| !range.is_empty())
        .collect()
}

/// Has what a mirror's members miss put on record.
struct GroupLog {
    book: Arc<Book>,
    /// The number of the mirror's first member.
    first: usize,
}

impl MissLog for GroupLog {
    fn missed(
        &self,
        runtime: &Runtime,
        member: usize,
        range: Range<u64>,
    ) -> Option<Pin<Box<dyn Future<Output = Result<()>>>>> {
        let (member, regions) = (self.first + member, self.book.regions_of(&range));
        if self.book.is_recorded(member, regions.clone()) {
            return None;
        }
        let (book, runtime) = (Arc::clone(&self.book), runtime.clone());
        Some(Box::pin(async move { book.miss(&runtime, member, regions).await }))
    }
}
