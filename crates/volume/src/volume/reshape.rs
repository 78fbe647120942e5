//! A volume that nobody uses gets larger, or another number of copies.
//!
//! What is new is made where the records of before say that nothing is. Then the records of the next generation say that it
//! belongs to the volume: that is one step, and a loss of power leaves the volume as it was or as it is to be.

use std::sync::Arc;

use rotproof_block::{Buffer, Context, Error, ErrorKind, Request, Result, Runtime};

use super::assemble::Making;
use super::book::{Page, announce};
use super::create::{PATIENCE, clear_margins, entry, write_all};
use super::open::{Assembled, assemble};
use super::{Candidate, OpenOptions, Volume};
use crate::copies::MemberState;
use crate::member::{
    Bits, Layout, MARGIN_BYTES, MEMBERS_MAX, MapPlace, MemberEntry, MemberRecord, SEGMENTS_MAX, Segment,
    data_bytes,
};
use rotproof_block::Device;

/// Less than this on each member is not worth a segment.
const SEGMENT_BYTES_MIN: u64 = 4 << 20;

/// What growing came to. Bytes that the volume offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown {
    /// Before.
    pub before_bytes: u64,
    /// Now.
    pub after_bytes: u64,
}

fn invalid(context: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, context.into())
}

/// Opens a volume and closes it again, so that nothing is in doubt, and looks that all its members are there and have all,
/// but for those that `may_lack`. Its size.
async fn put_in_order(
    members: &[Candidate],
    runtime: &Runtime,
    may_lack: impl Fn(usize) -> bool,
) -> Result<u64> {
    let lacks = |number: usize| {
        let context = format!("member {number} is missing or behind; replace it, or rebuild it first");
        Error::new(ErrorKind::Refused, context)
    };
    let found = assemble(members.to_vec(), runtime).await?;
    // Before anything is written: who is given up with that was not said.
    let missing = found.pages.iter().enumerate().filter(|(_, page)| page.device.is_none());
    if let Some((number, _)) = missing.into_iter().find(|(number, _)| !may_lack(*number)) {
        return Err(lacks(number));
    }
    let volume = Volume::open_assembled(found, OpenOptions::with_patience(PATIENCE), runtime).await?;
    volume.close(runtime).await?;
    let behind = volume.status().members.iter().enumerate().find_map(|(number, member)| {
        (member.state != MemberState::Current && !may_lack(number)).then_some(number)
    });
    behind.map_or(Ok(volume.info().size), |number| Err(lacks(number)))
}

/// The members of a volume that was put in order. One may have gone since: nothing could be put on record on it, and what a change would
/// take away may be all that is left.
///
/// Fails with [`ErrorKind::Refused`] then, but for those that `may_lack`.
async fn assemble_all(
    members: &[Candidate],
    runtime: &Runtime,
    may_lack: impl Fn(usize) -> bool,
) -> Result<Assembled> {
    let found = assemble(members.to_vec(), runtime).await?;
    match (0..found.pages.len()).find(|number| found.pages[*number].device.is_none() && !may_lack(*number)) {
        None => Ok(found),
        Some(number) => {
            let context =
                format!("member {number} does not answer any more; replace it, or rebuild it first");
            Err(Error::new(ErrorKind::Refused, context))
        }
    }
}

/// The members that are there, then the spares, each with its number on record.
fn devices_of(found: &Assembled) -> Vec<(usize, Candidate)> {
    let mut devices = Vec::new();
    for (number, (page, name)) in found.pages.iter().zip(&found.names).enumerate() {
        if let (Some(device), Ok(name)) = (&page.device, name) {
            devices.push((number, Candidate { name: name.clone(), device: Arc::clone(device) }));
        }
    }
    for (number, spare) in found.spares.iter().enumerate() {
        devices.extend(spare.candidate.clone().map(|one| (found.pages.len() + number, one)));
    }
    devices
}

/// What a record says, with these members.
fn with_members(found: Assembled, layout: Layout, of: Vec<(MemberEntry, Option<Candidate>)>) -> Assembled {
    let members: Vec<MemberEntry> = of.iter().map(|(entry, _)| entry.clone()).collect();
    let missing = || Err("it is missing".to_owned());
    Assembled {
        names: of
            .iter()
            .map(|(_, one)| one.as_ref().map_or_else(missing, |one| Ok(one.name.clone())))
            .collect(),
        pages: of.into_iter().map(|(entry, one)| Page { device: one.map(|one| one.device), entry }).collect(),
        newest: MemberRecord { layout, members, ..found.newest },
        ..found
    }
}

/// Each member on record, with its device; what it has missed is in regions of `layout`, and nothing.
fn kept(found: &Assembled, layout: &Layout) -> Vec<(MemberEntry, Option<Candidate>)> {
    let of = found.pages.iter().zip(&found.names);
    of.map(|(page, name)| {
        let fresh = || Bits::new(layout.regions());
        let entry = MemberEntry { missed: fresh(), written: fresh(), ..page.entry.clone() };
        let device = page.device.clone().zip(name.clone().ok());
        (entry, device.map(|(device, name)| Candidate { name, device }))
    })
    .collect()
}

/// The same, with what its members have missed while it was made, which is on no record yet.
pub(super) fn with_missed(mut found: Assembled, volume: &Volume) -> Assembled {
    for (member, missed) in volume.all_missed().into_iter().enumerate() {
        for bit in missed.iter().flat_map(|range| volume.book.regions_of(range)) {
            found.pages[member].entry.missed.set(bit);
            found.newest.members[member].missed.set(bit);
        }
    }
    found
}

/// Puts it on record. The members in `new` say first who they will be, in a record older than all: until one of the others says
/// so too the volume is as it was, and they are no part of it.
async fn put_on_record(found: &Assembled, new: &[u128], runtime: &Runtime) -> Result<()> {
    let devices = devices_of(found);
    let devices: Vec<(usize, &Candidate)> = devices.iter().map(|(number, one)| (*number, one)).collect();
    let is_new = |number: usize| found.pages.get(number).is_some_and(|page| new.contains(&page.entry.id));
    let (new, old): (Vec<_>, Vec<_>) = devices.into_iter().partition(|(number, _)| is_new(*number));
    for (index, candidate) in &new {
        let record = MemberRecord { generation: 0, index: *index, ..found.newest.clone() };
        announce(&candidate.device, &record, runtime).await?;
    }
    write_all(&[old, new].concat(), &found.newest, runtime).await
}

/// Puts on record what was on record before a change that could not be put there on all members: some may have it. Whoever does not take
/// this is gone.
async fn take_back(before: &Assembled, runtime: &Runtime) {
    // The change has written two generations.
    let newest = MemberRecord { generation: before.newest.generation + 2, ..before.newest.clone() };
    for (index, candidate) in devices_of(before) {
        let _ = write_all(&[(index, &candidate)], &newest, runtime).await;
    }
}

/// Where a member that has become larger ended before, its records lie in what is data now, and are others on each member. Nobody looks
/// for them there any more.
async fn clear_former_end(device: &Arc<dyn Device>, segment: &Segment, runtime: &Runtime) -> Result<()> {
    let queue = device.open_queue(runtime)?;
    // Behind the data was less than a mebibyte that did not fill one, then the margin.
    let bytes = segment.bytes.min(2 * MARGIN_BYTES);
    let zeros = Buffer::zeroed(bytes as usize);
    let clear = Request::write(MARGIN_BYTES + segment.start, zeros, Context::default());
    queue.submit(clear).await.result?;
    queue.submit(Request::flush(Context::default())).await.result
}

/// Lets a volume grow: by what its members have become larger, and by further mirrors of the devices in `new`, whose contents
/// are lost. What there is stays where it is. `id` is of this act alone.
///
/// Where it keeps versions, their map is made anew in what it grows by.
///
/// Fails with [`ErrorKind::Refused`] if a member is missing or behind, or a version is damaged, with [`ErrorKind::Invalid`] if
/// there is nothing that it could grow by, and with [`ErrorKind::NoSpace`] if that is too small for a map of all.
pub async fn grow(members: &[Candidate], new: &[Candidate], id: u128, runtime: &Runtime) -> Result<Grown> {
    let before_bytes = put_in_order(members, runtime, |_| false).await?;
    let found = assemble_all(members, runtime, |_| false).await?;
    let mut layout = found.newest.layout.clone();
    let ways = usize::from(layout.ways);
    let least = SEGMENT_BYTES_MIN.max(u64::from(layout.chunk_bytes));
    let segments_before = layout.segments.len();
    let mut sets: Vec<std::ops::Range<u16>> = Vec::new();
    for segment in &layout.segments {
        if !sets.contains(&segment.mirrors) {
            sets.push(segment.mirrors.clone());
        }
    }
    for mirrors in sets {
        let of = usize::from(mirrors.start) * ways..usize::from(mirrors.end) * ways;
        let room = found.pages[of]
            .iter()
            .filter_map(|page| data_bytes(page.device.as_ref()?.info().size))
            .min()
            .unwrap_or(0);
        let start = layout.data_bytes_of(mirrors.start.into());
        if room >= start + least {
            layout.segments.push(Segment { mirrors, start, bytes: room - start });
        }
    }
    let mirrors = found.pages.len() / ways;
    if !new.len().is_multiple_of(ways) || found.pages.len() + new.len() > MEMBERS_MAX {
        return Err(invalid(format!(
            "{} devices do not make up mirrors of {ways}; give a multiple of {ways}, for {MEMBERS_MAX} members in all",
            new.len()
        )));
    }
    if !new.is_empty() {
        let smallest = new.iter().map(|one| data_bytes(one.device.info().size).unwrap_or(0)).min();
        let bytes = smallest.unwrap_or(0);
        if bytes < least {
            let needed = least + 2 * MARGIN_BYTES;
            return Err(invalid(format!(
                "a device is too small to grow by: it takes {needed} bytes at least"
            )));
        }
        let first = mirrors as u16;
        let mirrors = first..first + (new.len() / ways) as u16;
        layout.segments.push(Segment { mirrors, start: 0, bytes });
    }
    if layout.segments.len() == segments_before {
        return Err(invalid(
            "there is nothing to grow by: make all members of a mirror larger, or give further devices by --with",
        ));
    }
    if layout.segments.len() > SEGMENTS_MAX {
        return Err(invalid(format!("a volume can grow to {SEGMENTS_MAX} segments, and has that many")));
    }
    for segment in layout.segments[segments_before..].iter().filter(|segment| segment.start > 0) {
        let of = usize::from(segment.mirrors.start) * ways..usize::from(segment.mirrors.end) * ways;
        for device in found.pages[of].iter().filter_map(|page| page.device.as_ref()) {
            clear_former_end(device, segment, runtime).await?;
        }
    }
    let mut of = kept(&found, &layout);
    let mut ids = Vec::new();
    for (number, one) in new.iter().enumerate() {
        clear_margins(one, runtime).await?;
        let fresh = entry(id, number as u64, &layout);
        ids.push(fresh.id);
        of.push((fresh, Some(one.clone())));
    }
    let options = OpenOptions::with_patience(PATIENCE);
    let mut before = None;
    if layout.versions.is_some() {
        let volume = Volume::assembled(found.clone(), options, None, runtime).await?;
        let space_from = match layout.map {
            Some(map) => map.space_from,
            None => volume.versions()?.space_at(),
        };
        layout.map = Some(MapPlace { at: volume.base.info().size, space_from });
        before = Some(volume);
    }
    let mut found = with_members(found, layout, of);
    let making = Making { from_segment: segments_before, with_versions: before.is_some(), id };
    let volume = Volume::assembled(found.clone(), options, Some(making), runtime).await?;
    if let Some(before) = before {
        volume.versions()?.take_over(before.versions()?, runtime).await?;
        // It may have had to say that a member has missed something.
        found.newest.generation = found.newest.generation.max(before.book.generation());
        found = with_missed(found, &before);
    }
    volume.settle(runtime).await?;
    put_on_record(&with_missed(found, &volume), &ids, runtime).await?;
    Ok(Grown { before_bytes, after_bytes: volume.info().size })
}

/// Has a volume keep one copy more, on one device for each mirror, in their order. What the devices hold is lost; a rebuild
/// then fills them. `id` is of this act alone.
///
/// Fails with [`ErrorKind::Refused`] if a member is missing or behind, and with [`ErrorKind::Invalid`] if the devices are too
/// few, too many or too small, or there are three copies.
pub async fn add_copy(members: &[Candidate], new: &[Candidate], id: u128, runtime: &Runtime) -> Result<()> {
    put_in_order(members, runtime, |_| false).await?;
    let found = assemble_all(members, runtime, |_| false).await?;
    let mut layout = found.newest.layout.clone();
    let ways = usize::from(layout.ways);
    let mirrors = found.pages.len() / ways;
    if ways == 3 {
        return Err(invalid("the volume keeps three copies, and more it cannot keep"));
    }
    if new.len() != mirrors || found.pages.len() + new.len() > MEMBERS_MAX {
        return Err(invalid(format!(
            "{} devices for one copy more; give one for each of the {mirrors} mirrors, for {MEMBERS_MAX} members in all",
            new.len()
        )));
    }
    for (mirror, one) in new.iter().enumerate() {
        let needed = layout.data_bytes_of(mirror);
        if data_bytes(one.device.info().size).is_none_or(|own| own < needed) {
            let needed = needed + 2 * MARGIN_BYTES;
            return Err(invalid(format!("{} is too small: it takes {needed} bytes", one.name)));
        }
    }
    layout.ways += 1;
    let mut before = kept(&found, &layout).into_iter();
    let (mut of, mut ids) = (Vec::new(), Vec::new());
    for (mirror, one) in new.iter().enumerate() {
        clear_margins(one, runtime).await?;
        of.extend(before.by_ref().take(ways));
        let mut fresh = entry(id, mirror as u64, &layout);
        let regions = layout.data_bytes_of(mirror).div_ceil(layout.region_bytes());
        (0..regions).for_each(|bit| fresh.missed.set(bit));
        ids.push(fresh.id);
        of.push((fresh, Some(one.clone())));
    }
    put_on_record(&with_members(found, layout, of), &ids, runtime).await
}

/// Has a volume keep one copy fewer: without these members, one of each mirror. They are no part of any volume then.
///
/// Fails with [`ErrorKind::Refused`] if another member is missing or behind, and with [`ErrorKind::Invalid`] if they are not
/// one of each mirror, or one copy is kept.
pub async fn remove_copy(members: &[Candidate], gone: &[usize], runtime: &Runtime) -> Result<()> {
    let found = assemble(members.to_vec(), runtime).await?;
    let mut layout = found.newest.layout.clone();
    let ways = usize::from(layout.ways);
    let mirrors = found.pages.len() / ways;
    if ways == 1 {
        return Err(invalid("the volume keeps one copy, so none of its members can go"));
    }
    let is_one_of_each =
        (0..mirrors).all(|mirror| gone.iter().filter(|member| **member / ways == mirror).count() == 1);
    if gone.len() != mirrors || !is_one_of_each {
        return Err(invalid(format!(
            "the members to go must be one of each mirror, {mirrors} in all, so that one copy of everything goes; to exchange a \
             single one there is `replace`"
        )));
    }
    put_in_order(members, runtime, |member| gone.contains(&member)).await?;
    let found = assemble_all(members, runtime, |member| gone.contains(&member)).await?;
    layout.ways -= 1;
    let (out, of): (Vec<_>, Vec<_>) =
        kept(&found, &layout).into_iter().enumerate().partition(|(number, _)| gone.contains(number));
    let of = of.into_iter().map(|(_, member)| member).collect();
    if let Err(error) = put_on_record(&with_members(found.clone(), layout, of), &[], runtime).await {
        // A member that was to stay may have gone meanwhile, and the one that was to go has all that it had.
        take_back(&found, runtime).await;
        return Err(error);
    }
    for candidate in out.into_iter().filter_map(|(_, (_, candidate))| candidate) {
        // It is gone already. One that goes because it fails may say for ever that it was a member once.
        let _ = clear_margins(&candidate, runtime).await;
    }
    Ok(())
}
