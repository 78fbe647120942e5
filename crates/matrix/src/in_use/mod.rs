//! The life of a volume that changes while it is served, drawn from a seed.
//!
//! Several write, read, discard and flush, each blocks of its own, while the volume grows, keeps another number of copies, gets other
//! members and spares, is captured, goes back, is scrubbed and rebuilt. Meanwhile a member may misbehave, and the power may go, of one
//! member or of all, each at its own write. In virtual time; the same seed is the same life.
//!
//! What must hold is what [`crate::life`] says, and: requests are refused only where no copy is left that has everything; a change
//! comes to its end, and fails only where a member is not well; after a loss of power the volume is as before the change or after it.

mod change;
mod model;
mod work;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rotproof_block::hash::mix;
use rotproof_block::{Buffer, Context, Device, Error, Request, Result, Runtime};
use rotproof_volume::checksum::ChecksumKind;
use rotproof_volume::copies::MemberState;
use rotproof_volume::live::LiveVolume;
use rotproof_volume::member::VersionsPolicy;
use rotproof_volume::mirror::Pace;
use rotproof_volume::volume::{Candidate, OpenOptions, Volume, VolumeMember, VolumeOptions, read_record};

use crate::oracle::BLOCK;
use crate::plug::{Plug, Trouble};
use model::Model;

/// Blocks that are used, spread over the volume as it is made; so many more in each stretch that it grows by.
const BLOCKS: usize = 24;
const GROWN: usize = 4;
/// How often the volume is opened.
const ROUNDS: u64 = 3;
/// Those that use it at the same time.
const WORKERS: usize = 3;
/// No round takes longer, in virtual time, unless somebody waits for ever.
const ROUND_MAX: Duration = Duration::from_secs(2_000_000);

/// What a life in use has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifeInUse {
    /// Requests that were done.
    pub operations: u64,
    /// Changes that were done, by their names.
    pub changes: BTreeMap<&'static str, u64>,
    /// Changes that failed as a member was not well.
    pub refused: u64,
    /// Rounds that a loss of power ended.
    pub torn: u64,
    /// Versions that were looked at as a whole.
    pub versions: u64,
}

struct World {
    seed: u64,
    runtime: Runtime,
    /// All devices that there have ever been, by their numbers, which are in their names.
    plugs: RefCell<Vec<Arc<Plug>>>,
    /// Those that were members or spares and are none any more.
    retired: RefCell<BTreeSet<usize>>,
    /// Those that are known to have everything.
    filled: RefCell<BTreeSet<usize>>,
    live: RefCell<Option<Arc<LiveVolume>>>,
    /// Where each block lies.
    offsets: RefCell<Vec<u64>>,
    size: Cell<u64>,
    model: RefCell<Model>,
    /// Nobody begins anything any more.
    is_over: Cell<bool>,
    /// All copies of something are gone.
    is_off: Cell<bool>,
    acts: Cell<u64>,
    /// What changes it just now, for people.
    changing: Cell<&'static str>,
    life: RefCell<LifeInUse>,
}

/// Lives through it. An error says what did not hold.
pub fn life_in_use(seed: u64) -> Result<LifeInUse, String> {
    let draw = |stream: u64| mix(seed, 0x6c69_7665, stream);
    let ways = [2, 2, 2, 3, 1][(draw(1) % 5) as usize];
    let mirrors = 1 + usize::from(draw(2).is_multiple_of(3));
    let checksum = [None, Some(ChecksumKind::Crc32c), Some(ChecksumKind::Crc32c)][(draw(3) % 3) as usize];
    let every_ms = if draw(5).is_multiple_of(3) { 7 } else { 0 };
    let policy = VersionsPolicy { reserve_percent: 30, every_ms, keep: 3 };
    let versions = (!draw(4).is_multiple_of(3)).then_some(policy);
    let options = VolumeOptions { ways, checksum, versions, ..VolumeOptions::default() };
    let bytes = if versions.is_some() { 24 << 20 } else { 8 << 20 };
    let world = World {
        seed,
        runtime: Runtime::simulated(seed),
        plugs: RefCell::default(),
        retired: RefCell::default(),
        filled: RefCell::default(),
        live: RefCell::default(),
        offsets: RefCell::default(),
        size: Cell::default(),
        model: RefCell::new(Model::new(BLOCKS)),
        is_over: Cell::default(),
        is_off: Cell::default(),
        acts: Cell::new(1000),
        changing: Cell::new("opening it"),
        life: RefCell::default(),
    };
    for _ in 0..usize::from(ways) * mirrors {
        world.new_plug(bytes).map_err(|error| error.to_string())?;
    }
    let world = Rc::new(world);
    let lived = world.live_through(options).map_err(|why| format!("{options:?}, {why}"));
    // Tasks hold the world, and it holds the runtime that holds them.
    world.runtime.abandon_tasks();
    world.live.take();
    lived?;
    Ok(world.life.take())
}

impl World {
    fn draw(&self, stream: u64, index: u64) -> u64 {
        mix(self.seed, stream, index)
    }

    fn new_plug(&self, bytes: u64) -> Result<usize> {
        let mut plugs = self.plugs.borrow_mut();
        plugs.push(Plug::slow(bytes, bytes * 3)?);
        Ok(plugs.len() - 1)
    }

    fn candidate(&self, plug: usize) -> Candidate {
        Candidate { name: format!("m{plug}"), device: Arc::clone(&self.plugs.borrow()[plug]) as _ }
    }

    fn live(&self) -> Arc<LiveVolume> {
        self.live.borrow().clone().expect("it is open while somebody uses it")
    }

    fn live_through(self: &Rc<Self>, options: VolumeOptions) -> Result<(), String> {
        let all: Vec<Candidate> = (0..self.plugs.borrow().len()).map(|plug| self.candidate(plug)).collect();
        let made = self.runtime.block_on(Volume::create(&all, options, 7, &self.runtime));
        made.and_then(|made| made).map_err(|error| format!("is not made: {error}"))?;
        for round in 0..=ROUNDS {
            let world = Rc::clone(self);
            let lived = self.runtime.block_on(within(&self.runtime, ROUND_MAX, async move {
                match round {
                    ROUNDS => world.open(round).await.map(drop),
                    _ => world.round(round).await,
                }
            }));
            let stuck = |error: Error| format!("round {round}: {error}");
            let lived = lived.map_err(stuck)?;
            let waits = || {
                let plugs = self.plugs.borrow();
                let bad: Vec<String> = (0..)
                    .zip(&*plugs)
                    .filter(|(_, plug)| !plug.is_well())
                    .map(|(n, plug): (u32, _)| format!("m{n}: {}", plug.matter()))
                    .collect();
                Err(format!("somebody waits for ever ({}); {bad:?}", self.changing.get()))
            };
            lived.unwrap_or_else(waits).map_err(|why| format!("round {round}: {why}"))?;
            self.live.take();
            self.runtime.abandon_tasks();
            for (number, plug) in (0..).zip(&*self.plugs.borrow()) {
                plug.cycle(mix(self.seed, 3000 + round, number));
            }
            self.model.borrow_mut().power_went();
        }
        Ok(())
    }

    /// Opens the volume over what there is, and looks at all of it.
    async fn open(&self, round: u64) -> Result<Arc<LiveVolume>, String> {
        self.changing.set("opening it");
        let offers_retired = self.draw(30, round).is_multiple_of(2);
        let retired = self.retired.borrow().clone();
        let there = (0..self.plugs.borrow().len()).filter(|plug| offers_retired || !retired.contains(plug));
        let mut candidates = Vec::new();
        for plug in there.collect::<Vec<_>>() {
            let candidate = self.candidate(plug);
            // Of those that may be no members only such can be given as say that they are one.
            let record = read_record(&candidate, &self.runtime).await.map_err(|error| error.to_string())?;
            if record.is_some() || self.filled.borrow().contains(&plug) && !retired.contains(&plug) {
                candidates.push(candidate);
            }
        }
        let options = OpenOptions::with_patience(Duration::from_millis(200));
        let volume = Volume::open(candidates, options, &self.runtime).await;
        let volume = volume.map_err(|error| format!("does not open: {error}"))?;
        let live = LiveVolume::new(volume, options);
        self.measure(&live)?;
        self.look(&live).await?;
        // Where writes were under way one member alone counts, until a rebuild has copied it: before another one fails.
        self.rebuild_all(&live).await?;
        Ok(live)
    }

    /// Takes blocks into use in what the volume has grown by.
    fn measure(&self, live: &LiveVolume) -> Result<(), String> {
        let (before, size) = (self.size.get(), live.volume().info().size);
        if size < before {
            return Err(format!("it has become smaller: {size} bytes after {before}"));
        }
        let blocks = if before == 0 { BLOCKS } else { GROWN } as u64;
        if size > before {
            let step = (size - before) / 4096 / blocks * 4096;
            self.offsets.borrow_mut().extend((0..blocks).map(|block| before + block * step));
            self.model.borrow_mut().grow(self.offsets.borrow().len());
            self.size.set(size);
        }
        Ok(())
    }

    /// Looks at everything after it was opened, and makes whole what was torn.
    async fn look(&self, live: &Arc<LiveVolume>) -> Result<(), String> {
        let queue = live.present().open_queue(&self.runtime).map_err(|error| error.to_string())?;
        let offsets = self.offsets.borrow().clone();
        for (block, offset) in offsets.into_iter().enumerate() {
            let read = queue.submit(Request::read(offset, Buffer::stale(BLOCK), Context::default())).await;
            read.result.map_err(|error| format!("block {block} is not read: {error}"))?;
            let is = read.buffer;
            for sector in is.chunks(512) {
                let byte = sector[0];
                let is_allowed = self.model.borrow().allows(block, byte);
                if !is_allowed || sector.iter().any(|other| *other != byte) {
                    let allowed = self.model.borrow().allowed(block);
                    return Err(format!("block {block} holds {byte} after it was opened, not {allowed}"));
                }
            }
            let write = Request::write(offset, Buffer::copy_of(&[is[0]; BLOCK]), Context::default());
            let done = queue.submit(write).await.result;
            done.map_err(|error| format!("block {block} is not written after it was opened: {error}"))?;
            self.model.borrow_mut().is_now(block, is[0]);
        }
        let flushed = queue.submit(Request::flush(Context::default())).await.result;
        flushed.map_err(|error| format!("is not flushed after it was opened: {error}"))?;
        self.look_at_versions(live).await
    }

    async fn look_at_versions(&self, live: &Arc<LiveVolume>) -> Result<(), String> {
        let volume = live.volume();
        let Ok(versions) = volume.versions() else { return Ok(()) };
        let there: BTreeSet<u64> = versions.names().into_iter().map(|(id, _, _)| id).collect();
        let known: Vec<u64> = {
            let model = &mut *self.model.borrow_mut();
            let doubtful = std::mem::take(&mut model.doubtful);
            model.versions.retain(|id, _| there.contains(id) || !doubtful.contains(id));
            model.versions.keys().copied().collect()
        };
        for id in known {
            let blocks = self.model.borrow().versions[&id].len();
            for block in 0..blocks {
                self.look_at_version(live, id, block).await?;
            }
            self.life.borrow_mut().versions += 1;
        }
        Ok(())
    }

    async fn look_at_version(&self, live: &Arc<LiveVolume>, id: u64, block: usize) -> Result<(), String> {
        let view = live.version(id).map_err(|error| format!("version {id}: {error}"))?;
        let queue = view.open_queue(&self.runtime).map_err(|error| format!("version {id}: {error}"))?;
        let read = Request::read(self.offsets.borrow()[block], Buffer::stale(BLOCK), Context::default());
        let read = queue.submit(read).await;
        read.result.map_err(|error| format!("version {id}, block {block}: {error}"))?;
        let (is, model) = (read.buffer, self.model.borrow());
        // It may have been given up while it was read.
        let Some(held) = model.versions.get(&id) else { return Ok(()) };
        let wanted = &held[block];
        if !wanted.contains(&is[0]) || is.iter().any(|byte| *byte != is[0]) {
            return Err(format!("version {id} holds {} in block {block}, not one of {wanted:?}", is[0]));
        }
        Ok(())
    }

    /// Has all members brought up to date, none of which fails.
    async fn rebuild_all(&self, live: &Arc<LiveVolume>) -> Result<(), String> {
        let volume = live.volume();
        let rebuilt = volume.rebuild(&self.runtime, Pace::default(), |_, _| {}).await;
        let rebuilt = rebuilt.map_err(|error| format!("is not rebuilt: {error}"))?;
        let members = volume.status().members;
        let is_current = members.iter().all(|member| member.state == MemberState::Current);
        // A member that was taken in as the power went may have nothing to be known by: then it is replaced.
        if rebuilt.left_bytes > 0 || !is_current {
            return Err(format!(
                "is not whole after a rebuild: {rebuilt:?}, {members:?}, {:?}",
                volume.notes()
            ));
        }
        *self.filled.borrow_mut() =
            members.iter().filter_map(|member| number_of(member.name.as_ref())).collect();
        Ok(())
    }

    async fn round(self: &Rc<Self>, round: u64) -> Result<(), String> {
        let live = self.open(round).await?;
        *self.live.borrow_mut() = Some(Arc::clone(&live));
        self.is_over.set(false);
        self.is_off.set(false);
        let draw = |stream: u64| self.draw(2000 + stream, round);
        let members: Vec<usize> = self.filled.borrow().iter().copied().collect();
        let one = members[(draw(1) % members.len() as u64) as usize];
        let plugs = self.plugs.borrow().clone();
        let kind = draw(0) % 5;
        match kind {
            // The power of all goes, of each at its own write.
            0 | 1 => {
                for (number, plug) in (0..).zip(&plugs) {
                    plug.cut_after(draw(10) % 500 + mix(draw(11), number, 0) % 12, draw(20 + number));
                }
            }
            // That of one alone, first.
            2 => plugs[one].cut_after(draw(10) % 300, draw(20)),
            3 => {
                let trouble = Trouble::ALL[1 + (draw(3) % (Trouble::ALL.len() as u64 - 1)) as usize];
                plugs[one].set_trouble(trouble, draw(4));
            }
            _ => {}
        }
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let world = Rc::clone(self);
                self.runtime.spawn(async move { world.work(worker, round * 100_000).await })
            })
            .collect();
        let changed = self.change_it(round).await;
        self.changing.set("nothing");
        self.is_over.set(true);
        for worker in workers {
            worker.await?;
        }
        changed?;
        self.life.borrow_mut().torn += u64::from(self.is_off.get());
        if !self.is_off.get() && kind >= 3 && draw(6).is_multiple_of(2) {
            match live.close(&self.runtime).await {
                Ok(()) => {
                    let floors = self.model.borrow().floors();
                    self.model.borrow_mut().flushed(&floors);
                }
                Err(error) => self.excuse("closing it", &error).await?,
            }
        }
        Ok(())
    }

    /// Fine if all copies of something are gone, or only such are left that cannot be counted on; then it is over.
    async fn excuse(&self, what: &str, error: &Error) -> Result<(), String> {
        let volume = self.live().volume();
        let status = volume.status();
        if self.live().failure().is_some() && self.is_lost_on_record().await {
            self.is_off.set(true);
            self.is_over.set(true);
            return Ok(());
        }
        let (plugs, filled) = (self.plugs.borrow(), self.filled.borrow());
        // One that is being replaced is gone, however well it is.
        let is_good = |one: &VolumeMember| {
            number_of(one.name.as_ref()).is_some_and(|plug| filled.contains(&plug) && plugs[plug].is_well())
                && !matches!(&one.state, MemberState::Failed { why } if why.contains("being replaced"))
        };
        let ways = usize::from(status.layout.ways);
        let is_lost = status.members.chunks(ways).any(|mirror| !mirror.iter().any(is_good));
        if !is_lost {
            return Err(format!("{what} failed: {error}; {:?}", status.members));
        }
        self.is_off.set(true);
        self.is_over.set(true);
        Ok(())
    }

    /// Whether a change of the members that is on record, on all that are well, has left something without a member that has it and can be
    /// counted on: the one that was let go had it too.
    async fn is_lost_on_record(&self) -> bool {
        let mut records = Vec::new();
        let count = self.plugs.borrow().len();
        for plug in 0..count {
            let is_off = self.plugs.borrow()[plug].is_off();
            let record = match is_off {
                true => None,
                false => read_record(&self.candidate(plug), &self.runtime).await.ok().flatten(),
            };
            records.extend(record.map(|record| (plug, record)));
        }
        let newest = records.iter().map(|(_, record)| record).max_by_key(|record| record.generation);
        let Some(newest) = newest else { return true };
        let (plugs, filled) = (self.plugs.borrow(), self.filled.borrow());
        let is_well = |plug: &usize| filled.contains(plug) && plugs[*plug].is_well();
        let has = |id: u128| records.iter().find(|(plug, one)| one.own_id() == Some(id) && is_well(plug));
        let is_everywhere = newest
            .members
            .iter()
            .filter_map(|entry| has(entry.id))
            .all(|(_, record)| record.layout == newest.layout);
        let mut mirrors = newest.members.chunks(newest.layout.ways.into());
        is_everywhere && mirrors.any(|mirror| !mirror.iter().any(|entry| has(entry.id).is_some()))
    }

    /// Whether every device that there is can be counted on.
    fn is_well(&self) -> bool {
        self.plugs.borrow().iter().all(|plug| plug.is_well())
    }
}

/// The number of the device of this name.
fn number_of(name: Option<&String>) -> Option<usize> {
    name?.strip_prefix('m')?.parse().ok()
}

/// What a future comes to, if that does not take too long.
async fn within<T>(runtime: &Runtime, time: Duration, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut end) = (pin!(future), runtime.sleep(time));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Pin::new(&mut end).poll(context).map(|()| None),
    })
    .await
}
