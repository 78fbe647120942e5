//! The volume: several devices that remember together what they are.
//!
//! Members are mirrored in groups, the mirrors striped, and over it lies a checksum of every block if it was made so. What binds
//! them is a record on every member (`member`): who belongs to it, who has missed what, where writes were under way. Owns the
//! order in which these layers stand, and what is on record when; how each works is its own.

mod book;
mod inspect;
mod intent;
mod open;
mod part;

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::ability::{Ability, Wanted};
use rotproof_block::{
    Buffer, Context, Device, DeviceInfo, Error, ErrorKind, Queue, Request, Result, Runtime,
};

use book::{Book, Page, write_record};
pub use inspect::{Inspection, inspect};
use intent::IntentDevice;
use open::{Assembled, assemble};
pub use open::{Candidate, read_record};
use part::Part;

use crate::checksum::{ChecksumDevice, ChecksumKind, ChecksumOptions, ChecksumReport, Found, ScrubOptions};
use crate::copies::{MemberState, Members};
use crate::member::{Bits, EntryState, Layout, MARGIN_BYTES, MEMBERS_MAX, MemberEntry, Record, data_bytes};
use crate::mirror::{MemberReport, MirrorDevice, MirrorOptions, MissLog, Pace};
use crate::stripe::{CHUNK_BYTES_DEFAULT, StripeDevice};

/// How a volume is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Copies of everything: 1 to 3. So many members in a row keep the same.
    pub ways: u8,
    /// Bytes of a chunk, where there is more than one mirror.
    pub chunk_bytes: u32,
    /// The checksum over it all.
    pub checksum: Option<ChecksumKind>,
}

impl Default for VolumeOptions {
    /// Two copies, chunks of 64 KiB, CRC-32C.
    fn default() -> Self {
        Self { ways: 2, chunk_bytes: CHUNK_BYTES_DEFAULT, checksum: Some(ChecksumKind::default()) }
    }
}

/// A volume that is open; the device that it is.
pub struct Volume {
    top: Arc<dyn Device>,
    mirrors: Vec<Option<Arc<MirrorDevice>>>,
    checksum: Option<Arc<ChecksumDevice>>,
    book: Arc<Book>,
    names: Mutex<Vec<Result<String, String>>>,
    notes: Vec<String>,
}

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

/// What a rebuild or a scrub of a volume came to. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Copied to members that had missed it.
    pub copied_bytes: u64,
    /// Written again because a copy was wrong or could not be read.
    pub repaired_bytes: u64,
    /// Still missed by a member, or unreadable.
    pub left_bytes: u64,
    /// In which copies differ, and nobody knows which is right, as there are no checksums.
    pub differing_bytes: u64,
}

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
        let layout = Layout {
            ways: options.ways,
            chunk_bytes: options.chunk_bytes,
            data_bytes: smallest,
            checksum: options.checksum.map_or(0, |kind| kind.number() + 1),
        };
        let members: Vec<MemberEntry> = (0..count as u64).map(|index| entry(id, index, &layout)).collect();
        for candidate in candidates {
            clear_margins(candidate, runtime).await?;
        }
        for (index, candidate) in candidates.iter().enumerate() {
            for generation in [1, 2] {
                let record = Record {
                    volume: id,
                    generation,
                    index,
                    layout: layout.clone(),
                    members: members.clone(),
                    is_open: false,
                };
                write_record(&candidate.device, &record, runtime)
                    .await
                    .map_err(|error| error.while_doing(&candidate.name))?;
            }
        }
        if let Some(kind) = options.checksum {
            let volume = Self::assembled(
                candidates.to_vec(),
                Found::Make(id),
                kind.into(),
                Duration::from_secs(1),
                runtime,
            )
            .await?;
            volume.close(runtime).await?;
        }
        Ok(())
    }

    /// Opens the volume that these devices are, in any order. `patience` is how long a member may take to answer.
    ///
    /// After an end that was not clean copies are made equal where writes were under way, or, with checksums, believed only
    /// with their checksum.
    ///
    /// Fails with [`ErrorKind::Invalid`] if one is no member of it, [`ErrorKind::Missing`] if a mirror has no member left, and
    /// [`ErrorKind::Refused`] if two members have gone on apart.
    pub async fn open(
        candidates: Vec<Candidate>,
        patience: Duration,
        runtime: &Runtime,
    ) -> Result<Arc<Self>> {
        let volume = Self::assembled(candidates, Found::Open, None, patience, runtime).await?;
        volume.book.set_open(runtime, true).await?;
        Ok(Arc::new(volume))
    }

    async fn assembled(
        candidates: Vec<Candidate>,
        found: Found,
        makes: Option<ChecksumKind>,
        patience: Duration,
        runtime: &Runtime,
    ) -> Result<Self> {
        let Assembled { newest, pages, names, mut notes } = assemble(candidates, runtime).await?;
        let layout = newest.layout.clone();
        let kind = match layout.checksum {
            0 => None,
            number => Some(ChecksumKind::from_number(number - 1).ok_or_else(|| {
                Error::new(
                    ErrorKind::Unsupported,
                    "the volume has checksums of a kind that this program does not know",
                )
            })?),
        };
        let kind = makes.or(kind);
        let ways = usize::from(layout.ways);
        let data = |device: &Arc<dyn Device>| -> Arc<dyn Device> {
            Part::new(Arc::clone(device), MARGIN_BYTES, layout.data_bytes)
        };
        let seats: Vec<Result<Arc<dyn Device>, String>> = pages
            .iter()
            .zip(&names)
            .map(|(page, name)| {
                page.device.as_ref().map(data).ok_or_else(|| name.clone().err().unwrap_or_default())
            })
            .collect();
        let book = Book::new(newest.volume, layout.clone(), newest.generation, pages, patience);
        let (mut parts, mut mirrors): (Vec<Arc<dyn Device>>, Vec<_>) = (Vec::new(), Vec::new());
        for (number, of) in seats.chunks(ways).enumerate() {
            if ways == 1 {
                let gone = || {
                    Error::new(
                        ErrorKind::Missing,
                        format!("member {number} is missing, and there is no copy of it"),
                    )
                };
                parts.push(of[0].clone().map_err(|_| gone())?);
                mirrors.push(None);
                continue;
            }
            let first = number * ways;
            let mirror = assemble_mirror(of, &newest, first, patience)?;
            if kind.is_none() && newest.is_open {
                let written = ranges(&newest.members[first].written, &layout);
                if !written.is_empty() {
                    notes.push(format!("writes were under way in {} places of mirror {number}; rebuild makes its copies equal", written.len()));
                    mirror.resync(&written);
                }
            }
            mirror.set_miss_log(Arc::new(GroupLog { book: Arc::clone(&book), first }));
            parts.push(match kind {
                Some(_) => Arc::clone(&mirror) as Arc<dyn Device>,
                None => IntentDevice::new(Arc::clone(&mirror) as _, &book, number),
            });
            mirrors.push(Some(mirror));
        }
        let mut top = match parts.len() {
            1 => parts.remove(0),
            _ => StripeDevice::new(parts, layout.chunk_bytes)?,
        };
        let mut checksum = None;
        if let Some(kind) = kind {
            let options = ChecksumOptions { kind, patience, found, ..ChecksumOptions::default() };
            let device = ChecksumDevice::open_on(top, options, runtime).await?;
            checksum = Some(Arc::clone(&device));
            top = device;
        }
        let volume = Self { top, mirrors, checksum, book, names: Mutex::new(names), notes };
        // What is to be made equal must not be forgotten with the marks.
        volume.record_missed(runtime).await?;
        Ok(volume)
    }

    /// How it was made.
    pub fn options(&self) -> VolumeOptions {
        let layout = &self.book.layout;
        let checksum = layout.checksum.checked_sub(1).and_then(ChecksumKind::from_number);
        VolumeOptions { ways: layout.ways, chunk_bytes: layout.chunk_bytes, checksum }
    }

    /// What each member is like and has done since it was opened, mirror by mirror; none where one copy is kept.
    pub fn reports(&self) -> Vec<MemberReport> {
        self.mirrors.iter().flatten().flat_map(|mirror| mirror.report()).collect()
    }

    /// What its checksums have found and mended since it was opened, if it has some.
    pub fn checksum_report(&self) -> Option<ChecksumReport> {
        self.checksum.as_ref().map(|checksum| checksum.report())
    }

    /// What people should know of how it was opened.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What it is like.
    pub fn status(&self) -> VolumeStatus {
        let states = self.mirrors.iter().flat_map(|mirror| match mirror {
            Some(mirror) => mirror.states(),
            None => vec![MemberState::Current],
        });
        let names = self.names.lock().clone();
        let members = states.zip(names).map(|(state, name)| VolumeMember { name: name.ok(), state });
        VolumeStatus {
            id: self.book.volume,
            generation: self.book.generation(),
            size_bytes: self.top.info().size,
            layout: self.book.layout.clone(),
            members: members.collect(),
            lost_blocks: self.checksum.as_ref().map_or(0, |checksum| checksum.lost().len() as u64),
        }
    }

    fn states(&self) -> Vec<(usize, usize)> {
        let ways = usize::from(self.book.layout.ways);
        (0..self.names.lock().len()).map(|member| (member / ways, member % ways)).collect()
    }

    /// What a member has missed, in bytes of its data.
    fn missed(&self, member: usize) -> Vec<Range<u64>> {
        let (mirror, number) = self.states()[member];
        self.mirrors[mirror].as_ref().map_or_else(Vec::new, |mirror| mirror.missed(number))
    }

    async fn record_missed(&self, runtime: &Runtime) -> Result<()> {
        self.book.set_missed(runtime, &|member| self.missed(member)).await
    }

    /// Brings members up to date with what they have missed, while the volume is in use. `progress` is told how many bytes
    /// are done, and of how many. What is done stays done if it is given up.
    pub async fn rebuild(
        &self,
        runtime: &Runtime,
        pace: Pace,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Upkeep> {
        let mut upkeep = Upkeep::default();
        if let Some(checksum) = self.checksum.as_ref().filter(|_| self.book.layout.ways > 1) {
            let told = |scrub: crate::checksum::Scrub| {
                progress(scrub.done, scrub.of);
                true
            };
            let report = checksum.rebuild(runtime, pace.bytes_per_second, told).await?;
            (upkeep.copied_bytes, upkeep.left_bytes) = (report.written, report.lost + report.remaining);
        } else {
            for mirror in self.mirrors.iter().flatten() {
                let report =
                    mirror.rebuild(runtime, pace, |told| progress(told.done_bytes, told.total_bytes)).await?;
                upkeep.copied_bytes += report.copied_bytes;
                upkeep.left_bytes +=
                    report.left.iter().map(|left| left.range.end - left.range.start).sum::<u64>();
            }
        }
        // Only what is durable is no longer missed.
        self.flush(runtime).await?;
        self.record_missed(runtime).await?;
        Ok(upkeep)
    }

    /// Reads every copy of everything, puts right what can be, and tells of the rest, while the volume is in use.
    pub async fn scrub(
        &self,
        runtime: &Runtime,
        pace: Pace,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Upkeep> {
        let mut upkeep = Upkeep::default();
        if let Some(checksum) = &self.checksum {
            let options = ScrubOptions { bytes_per_second: pace.bytes_per_second, ..ScrubOptions::default() };
            let told = |scrub: crate::checksum::Scrub| {
                progress(scrub.done, scrub.of);
                true
            };
            let report = checksum.scrub(runtime, &options, told).await?;
            upkeep.repaired_bytes = report.found.repaired * 4096;
            upkeep.left_bytes = report.found.lost * 4096;
            return Ok(upkeep);
        }
        for mirror in self.mirrors.iter().flatten() {
            let report =
                mirror.compare(runtime, 0, pace, |told| progress(told.done_bytes, told.total_bytes)).await?;
            upkeep.repaired_bytes += report.repaired_bytes;
            upkeep.left_bytes += report.unreadable_bytes;
            upkeep.differing_bytes += report.differing_blocks * 4096;
        }
        Ok(upkeep)
    }

    /// Puts a device in the place of a member, by its number; a rebuild then fills it. What the device holds is lost.
    ///
    /// Fails with [`ErrorKind::Refused`] if the member alone has something, and with [`ErrorKind::Invalid`] if there is no such
    /// member, no copy of it, or the device is too small.
    pub async fn replace(
        &self,
        member: usize,
        candidate: &Candidate,
        id: u128,
        runtime: &Runtime,
    ) -> Result<()> {
        let Some(&(mirror, number)) = self.states().get(member) else {
            let context = format!(
                "there is no member {member}; they are numbered from 0 to {}",
                self.states().len() - 1
            );
            return Err(Error::new(ErrorKind::Invalid, context));
        };
        let Some(mirror) = &self.mirrors[mirror] else {
            return Err(Error::new(
                ErrorKind::Invalid,
                "the volume keeps one copy, so no member can be replaced",
            ));
        };
        let bytes = self.book.layout.data_bytes;
        if data_bytes(candidate.device.info().size).is_none_or(|own| own < bytes) {
            let needed = bytes + 2 * MARGIN_BYTES;
            let context =
                format!("{} is too small: the volume needs {needed} bytes of a member", candidate.name);
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        if matches!(mirror.states()[number], MemberState::Current | MemberState::Behind { .. }) {
            mirror.fail(number, "it is being replaced")?;
        }
        clear_margins(candidate, runtime).await?;
        let data: Arc<dyn Device> = Part::new(Arc::clone(&candidate.device), MARGIN_BYTES, bytes);
        let everything = 0..bytes;
        // On record first: from then on the one that was there is no member.
        let fresh = entry(id, member as u64, &self.book.layout);
        let mut missed = Bits::new(self.book.layout.regions());
        self.book.regions_of(&everything).for_each(|bit| missed.set(bit));
        let page =
            Page { device: Some(Arc::clone(&candidate.device)), entry: MemberEntry { missed, ..fresh } };
        self.book.change(runtime, member, |old| *old = page).await?;
        mirror.replace(number, data, std::slice::from_ref(&everything))?;
        self.names.lock()[member] = Ok(candidate.name.clone());
        Ok(())
    }

    async fn flush(&self, runtime: &Runtime) -> Result<()> {
        let queue = self.top.open_queue(runtime)?;
        queue.submit(Request::flush(Context::default())).await.result
    }

    /// Ends its use in order: all is flushed, and no mark left. Nothing may be under way.
    pub async fn close(&self, runtime: &Runtime) -> Result<()> {
        self.flush(runtime).await?;
        if let Some(checksum) = &self.checksum {
            checksum.settle(runtime).await?;
            self.flush(runtime).await?;
        }
        self.book.set_open(runtime, false).await
    }
}

/// A mirror of which some members may be missing.
fn assemble_mirror(
    of: &[Result<Arc<dyn Device>, String>],
    newest: &Record,
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
fn ranges(bits: &Bits, layout: &Layout) -> Vec<Range<u64>> {
    let region = layout.region_bytes();
    bits.ones()
        .map(|bit| bit * region..((bit + 1) * region).min(layout.data_bytes))
        .filter(|range| !range.is_empty())
        .collect()
}

fn entry(id: u128, index: u64, layout: &Layout) -> MemberEntry {
    let part = |half: u64| u128::from(rotproof_block::hash::mix((id >> 64) as u64, id as u64 ^ half, index));
    MemberEntry {
        id: part(0) << 64 | part(1),
        state: EntryState::InUse,
        missed: Bits::new(layout.regions()),
        written: Bits::new(layout.regions()),
    }
}

/// Takes away what a device says at its ends.
async fn clear_margins(candidate: &Candidate, runtime: &Runtime) -> Result<()> {
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

impl Device for Volume {
    fn info(&self) -> DeviceInfo {
        self.top.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        self.top.open_queue(runtime)
    }

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        self.top.ability(wanted)
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Volume({:032x}, {:?})", self.book.volume, self.names.lock())
    }
}

#[cfg(test)]
mod tests;
