//! Keeps the records of all members: the one place from which they are written.
//!
//! Whoever wants something on record waits for his turn, changes what is to be said, and has it written to every member that
//! can be reached. It counts once every mirror has a member, other than the one that it is about, that took it: then whoever
//! opens the volume sees it, whichever single member is gone.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::hash::mix;
use rotproof_block::{Buffer, Context, Device, Error, ErrorKind, Request, Result, Runtime};

use super::open::{Assembled, Candidate};
use crate::copies::Members;
use crate::member::{Bits, Known, Layout, MemberEntry, MemberRecord, SPARES_MAX, places};
use crate::mirror::Gate;

/// A region is being written, and that is on record.
pub(super) const MARKED: u32 = 1 << 31;
/// A write of it has ended since somebody looked.
pub(super) const TOUCHED: u32 = 1 << 30;

/// How a write to a member has ended, if it has.
type Ended = Option<Result<()>>;

/// What is known of a member's device.
#[derive(Clone)]
pub(super) struct Page {
    /// None if it is not there.
    pub(super) device: Option<Arc<dyn Device>>,
    pub(super) entry: MemberEntry,
}

/// A device that waits to take the place of a member.
#[derive(Clone)]
pub(super) struct Spare {
    pub(super) id: u128,
    /// None if it is not there.
    pub(super) candidate: Option<Candidate>,
}

pub(super) struct Book {
    pub(super) volume: u128,
    pub(super) layout: Layout,
    pub(super) patience: Duration,
    generation: AtomicU64,
    session: u64,
    is_open: AtomicBool,
    pub(super) pages: Mutex<Vec<Page>>,
    pub(super) spares: Mutex<Vec<Spare>>,
    /// Of each member a bit for each region: it is on record that it may be old.
    recorded: Vec<Box<[AtomicU64]>>,
    /// Of each mirror its regions: [`MARKED`], [`TOUCHED`], and how many writes are under way.
    pub(super) regions: Vec<Arc<[AtomicU32]>>,
    turn: Gate,
}

impl Book {
    pub(super) fn new(found: Assembled, patience: Duration) -> Arc<Self> {
        let Assembled { newest, pages, spares, .. } = found;
        // Two that go on apart from the same record are not of the same members.
        let there = pages.iter().filter(|page| page.device.is_some());
        let session = there.fold(mix(newest.session, newest.generation, 1), |session, page| {
            mix(session, (page.entry.id >> 64) as u64, page.entry.id as u64)
        });
        let MemberRecord { volume, generation, layout, .. } = newest;
        let count = layout.regions();
        let recorded = pages.iter().map(|page| {
            let words = (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect::<Box<[AtomicU64]>>();
            page.entry.missed.ones().for_each(|bit| set(&words, bit));
            words
        });
        let recorded = recorded.collect();
        let mirrors = pages.len() / usize::from(layout.ways);
        let regions = (0..mirrors).map(|_| (0..count).map(|_| AtomicU32::new(0)).collect()).collect();
        Arc::new(Self {
            volume,
            layout,
            patience,
            generation: AtomicU64::new(generation),
            session: session | 1,
            is_open: AtomicBool::new(false),
            pages: Mutex::new(pages),
            spares: Mutex::new(spares),
            recorded,
            regions,
            turn: Gate::new(),
        })
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The members that keep the same.
    fn mirrors(&self) -> impl Iterator<Item = Range<usize>> {
        let ways = usize::from(self.layout.ways);
        (0..self.recorded.len() / ways).map(move |mirror| mirror * ways..(mirror + 1) * ways)
    }

    /// The regions that a range of a member's data touches.
    pub(super) fn regions_of(&self, range: &Range<u64>) -> Range<u64> {
        let bytes = self.layout.region_bytes();
        range.start / bytes..range.end.div_ceil(bytes).min(self.layout.regions())
    }

    /// Whether it is on record that a member may have old data in these regions.
    pub(super) fn is_recorded(&self, member: usize, regions: Range<u64>) -> bool {
        regions.into_iter().all(|bit| {
            self.recorded[member][(bit / 64) as usize].load(Ordering::Acquire) & 1 << (bit % 64) != 0
        })
    }

    /// Puts on record that a member may have old data in these regions.
    pub(super) async fn miss(&self, runtime: &Runtime, member: usize, regions: Range<u64>) -> Result<()> {
        let _turn = self.turn.close(0..1).await;
        if self.is_recorded(member, regions.clone()) {
            return Ok(());
        }
        {
            let mut pages = self.pages.lock();
            let others = self.mirrors().find(|mirror| mirror.contains(&member)).unwrap_or(0..0);
            let is_lost = |bit: u64| {
                let has = |other: usize| pages[other].device.is_some() && !pages[other].entry.missed.has(bit);
                !others.clone().any(|other| other != member && has(other))
            };
            if regions.clone().any(is_lost) {
                // A rebuild is under way that is not on record: whoever opened the volume would find nobody with the whole of a region.
                let context = "a member fails that alone has all that another one is being filled with";
                return Err(Error::new(ErrorKind::Medium, context));
            }
            regions.clone().for_each(|bit| pages[member].entry.missed.set(bit));
        }
        self.write(runtime, Some(member), None).await?;
        regions.for_each(|bit| set(&self.recorded[member], bit));
        Ok(())
    }

    /// Puts on record that these regions of a mirror are being written, and marks them.
    pub(super) async fn intend(&self, runtime: &Runtime, mirror: usize, regions: Range<u64>) -> Result<()> {
        let _turn = self.turn.close(0..1).await;
        // A mark counts in a volume that is open; and layers above write before it is said to be.
        self.is_open.store(true, Ordering::Release);
        let is_marked = |bit: u64| self.regions[mirror][bit as usize].load(Ordering::Acquire) & MARKED != 0;
        if !regions.clone().all(is_marked) {
            self.write(runtime, None, Some((mirror, regions.clone()))).await?;
            for bit in regions {
                self.regions[mirror][bit as usize].fetch_or(MARKED, Ordering::AcqRel);
            }
        }
        Ok(())
    }

    /// Whatever is put on record from now on says what the members of this mirror have missed, from the one of number `first` on:
    /// what a loss of power has left in doubt would be forgotten with the marks.
    pub(super) fn will_record(&self, first: usize, mirror: &dyn Members) {
        let mut pages = self.pages.lock();
        for number in 0..usize::from(self.layout.ways) {
            for range in mirror.missed(number) {
                self.regions_of(&range).for_each(|bit| pages[first + number].entry.missed.set(bit));
            }
        }
    }

    /// Puts on record what members have missed now, which `now` tells by its number: after a rebuild.
    pub(super) async fn set_missed(
        &self,
        runtime: &Runtime,
        now: &dyn Fn(usize) -> Vec<Range<u64>>,
    ) -> Result<()> {
        let _turn = self.turn.close(0..1).await;
        // From here on whatever is missed waits for its turn, and what was missed before is told by `now`.
        for words in &self.recorded {
            words.iter().for_each(|word| word.store(0, Ordering::Release));
        }
        let mut missed = Vec::new();
        for member in 0..self.recorded.len() {
            let mut bits = Bits::new(self.layout.regions());
            for range in now(member) {
                self.regions_of(&range).for_each(|bit| bits.set(bit));
            }
            missed.push(bits.clone());
            self.pages.lock()[member].entry.missed = bits;
        }
        self.write(runtime, None, None).await?;
        for (words, bits) in self.recorded.iter().zip(missed) {
            bits.ones().for_each(|bit| set(words, bit));
        }
        Ok(())
    }

    /// Puts on record whether the volume is in use.
    pub(super) async fn set_open(&self, runtime: &Runtime, is_open: bool) -> Result<()> {
        let _turn = self.turn.close(0..1).await;
        self.is_open.store(is_open, Ordering::Release);
        if !is_open {
            // Nothing is under way, and all was flushed.
            for region in self.regions.iter().flat_map(|regions| regions.iter()) {
                region.fetch_and(!(MARKED | TOUCHED), Ordering::AcqRel);
            }
        }
        self.write(runtime, None, None).await
    }

    /// Changes what is said of a member, and puts that on record.
    pub(super) async fn change(
        &self,
        runtime: &Runtime,
        member: usize,
        change: impl FnOnce(&mut Page),
    ) -> Result<()> {
        let _turn = self.turn.close(0..1).await;
        change(&mut self.pages.lock()[member]);
        let missed: Vec<u64> = self.pages.lock()[member].entry.missed.ones().collect();
        self.write(runtime, None, None).await?;
        missed.into_iter().for_each(|bit| set(&self.recorded[member], bit));
        Ok(())
    }

    /// Writes to a device that is to become a member or a spare who it will be, in a record older than all: until the others
    /// say so too it is none, and from then on it is known.
    pub(super) async fn announce(
        &self,
        runtime: &Runtime,
        device: &Arc<dyn Device>,
        index: usize,
        id: u128,
    ) -> Result<()> {
        let mut members: Vec<MemberEntry> = self.pages.lock().iter().map(|page| page.entry.clone()).collect();
        let mut spares: Vec<u128> = self.spares.lock().iter().map(|spare| spare.id).collect();
        match members.get_mut(index) {
            Some(entry) => entry.id = id,
            None => spares.push(id),
        }
        let (volume, layout) = (self.volume, self.layout.clone());
        let index = index.min(members.len() + spares.len() - 1);
        let (is_open, session) = (false, self.session);
        let record = MemberRecord { volume, generation: 0, index, layout, members, spares, is_open, session };
        announce(device, &record, runtime).await
    }

    /// Changes which devices wait to take the place of a member, and puts that on record.
    ///
    /// Fails with [`ErrorKind::Invalid`] if there would be more than there can be.
    pub(super) async fn change_spares(
        &self,
        runtime: &Runtime,
        change: impl FnOnce(&mut Vec<Spare>),
    ) -> Result<()> {
        let _turn = self.turn.close(0..1).await;
        let mut spares = self.spares.lock().clone();
        change(&mut spares);
        if spares.len() > SPARES_MAX {
            let context = format!("a volume has {SPARES_MAX} spares at the most");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        *self.spares.lock() = spares;
        self.write(runtime, None, None).await
    }

    /// Writes a record of a new generation to every member and every spare. `about` is the member that it is about, whose word does not
    /// count; `marks` regions that are to be marked beside those that are.
    async fn write(
        &self,
        runtime: &Runtime,
        about: Option<usize>,
        marks: Option<(usize, Range<u64>)>,
    ) -> Result<()> {
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        let known = Known { session: self.session, generation };
        let (devices, mut members): (Vec<_>, Vec<MemberEntry>) = self
            .pages
            .lock()
            .iter_mut()
            .map(|page| {
                // One that is not there has nothing newer than when it was seen last.
                page.entry.known = if page.device.is_some() { known } else { page.entry.known };
                (page.device.clone(), page.entry.clone())
            })
            .unzip();
        for (mirror, of) in self.mirrors().enumerate() {
            let written = &mut members[of.start].written;
            *written = Bits::new(self.layout.regions());
            for (bit, region) in self.regions[mirror].iter().enumerate() {
                if region.load(Ordering::Acquire) & MARKED != 0 {
                    written.set(bit as u64);
                }
            }
            if let Some((marked, regions)) = &marks
                && *marked == mirror
            {
                regions.clone().for_each(|bit| written.set(bit));
            }
        }
        let is_open = self.is_open.load(Ordering::Acquire);
        let spares = self.spares.lock().clone();
        let of_spares =
            spares.iter().map(|spare| spare.candidate.as_ref().map(|one| Arc::clone(&one.device)));
        let devices = devices.into_iter().chain(of_spares);
        let spares: Vec<u128> = spares.iter().map(|spare| spare.id).collect();
        let mut writes: Vec<Pin<Box<dyn Future<Output = Result<()>>>>> = Vec::new();
        for (index, device) in devices.enumerate() {
            let record = MemberRecord {
                volume: self.volume,
                generation,
                index,
                layout: self.layout.clone(),
                members: members.clone(),
                spares: spares.clone(),
                is_open,
                session: self.session,
            };
            let runtime = runtime.clone();
            writes.push(Box::pin(async move {
                match device {
                    Some(device) => write_record(&device, &record, &runtime).await,
                    None => Err(Error::new(ErrorKind::Gone, "the member is not there")),
                }
            }));
        }
        let took = |results: &[Ended], mirror: Range<usize>| {
            mirror.into_iter().any(|member| about != Some(member) && matches!(results[member], Some(Ok(()))))
        };
        let is_enough = |results: &[Ended]| self.mirrors().all(|mirror| took(results, mirror));
        let results = all_within(runtime, self.patience, writes, &is_enough).await;
        for mirror in self.mirrors() {
            if !took(&results, mirror.clone()) {
                let late = || "a member does not answer".to_owned();
                let why = mirror.map(|member| match &results[member] {
                    Some(Err(error)) => error.to_string(),
                    _ => late(),
                });
                let context = format!(
                    "what has become of the volume could not be put on record: {}",
                    why.collect::<Vec<_>>().join("; ")
                );
                return Err(Error::new(ErrorKind::Medium, context));
            }
        }
        Ok(())
    }
}

fn set(words: &[AtomicU64], bit: u64) {
    words[(bit / 64) as usize].fetch_or(1 << (bit % 64), Ordering::AcqRel);
}

/// Writes to a device that is to become a member who it will be, in a record older than all. All its copies: whichever of them the first
/// record of the others is written over, and if that is torn, there is one that says who it is.
pub(super) async fn announce(
    device: &Arc<dyn Device>,
    record: &MemberRecord,
    runtime: &Runtime,
) -> Result<()> {
    let queue = device.open_queue(runtime)?;
    for place in places(device.info().size).into_iter().flatten() {
        let copy = Buffer::copy_of(&record.encode(place));
        queue.submit(Request::write(place, copy, Context::default())).await.result?;
    }
    queue.submit(Request::flush(Context::default())).await.result
}

/// Writes a record to a member, durably: the copies at both ends that it is the turn of.
pub(super) async fn write_record(
    device: &Arc<dyn Device>,
    record: &MemberRecord,
    runtime: &Runtime,
) -> Result<()> {
    let queue = device.open_queue(runtime)?;
    for place in places(device.info().size)[(record.generation % 2) as usize] {
        let copy = Buffer::copy_of(&record.encode(place));
        queue.submit(Request::write(place, copy, Context::default())).await.result?;
    }
    queue.submit(Request::flush(Context::default())).await.result
}

/// Waits for all, so long at the most where it `is_enough`, and 20 times as long otherwise. Who has not ended by then has none.
async fn all_within(
    runtime: &Runtime,
    patience: Duration,
    mut futures: Vec<Pin<Box<dyn Future<Output = Result<()>>>>>,
    is_enough: &dyn Fn(&[Ended]) -> bool,
) -> Vec<Ended> {
    let mut results: Vec<Ended> = futures.iter().map(|_| None).collect();
    let (mut soon, mut end) = (runtime.sleep(patience), runtime.sleep(patience * 20));
    std::future::poll_fn(|context| {
        for (result, future) in results.iter_mut().zip(&mut futures) {
            if result.is_none()
                && let Poll::Ready(found) = future.as_mut().poll(context)
            {
                *result = Some(found);
            }
        }
        let is_soon = Pin::new(&mut soon).poll(context).is_ready();
        let is_over = results.iter().all(Option::is_some)
            || is_soon && is_enough(&results)
            || Pin::new(&mut end).poll(context).is_ready();
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results
}
