//! The layer that remembers: a device whose earlier states can be captured, read, gone back to and given up.
//!
//! A map says where each block lies in a space that is larger than the device. The first write of a block after a capture goes to
//! another place, and the version keeps where it was; further ones go in place. A version is so what was written since it was
//! captured, no more: its *history* ([`history`]), which its successors complete.
//!
//! Data are durable before the map says where they are, and a history before the map forgets; so after a loss of power the
//! device is as at its last flush or later, block by block, and every version is whole.

mod catalog;
mod change;
mod history;
mod history_room;
mod larger;
mod path;
mod queue;
mod space;
mod space_block;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_loss;
mod view;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::ability::{Ability, Wanted};
use rotproof_block::turns::Turns;
use rotproof_block::{Context, Device, DeviceInfo, Error, ErrorKind, Features, Queue, Result, Runtime};
use serde::Serialize;

pub use catalog::NAME_MAX;
pub(crate) use catalog::count_in_list;
use catalog::{CATALOG_BYTES, Catalog, Listed};
pub(crate) use history::count_in_history;
use history::{EXTENT, History};
use history_room::HistoryRoom;
pub(crate) use larger::{arrange, arranged_bytes};
use path::{Epochs, Gate};
use queue::VersionsQueue;
use space::Space;
use space_block::is_place;
pub use view::VersionView;

use crate::checksum::own_runtime;
use crate::claims::Claims;
use crate::io::Io;
use crate::table::{BLOCK_BYTES, Layout, Order, Owner, Table};

/// How long a copy of metadata may take to answer, where the device below has copies.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a layer of versions is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionsOptions {
    /// Percent of the device below that are kept for what versions hold, when it is made. 1 to 90.
    pub reserve_percent: u8,
    /// How often a version is captured by itself, as long as somebody writes.
    pub every: Option<Duration>,
    /// How many automatic versions are kept; older ones go.
    pub keep: usize,
    /// Bytes of the map that stay in memory.
    pub cache_bytes: u64,
    /// Nanoseconds since 1970 at time zero of the runtime, for the times of automatic versions.
    pub epoch_ns: u64,
    /// What to do with what is on the device.
    pub found: crate::checksum::Found,
    /// Blocks of the room for data that are in use otherwise: the first, and the one behind the last.
    pub hole: (u64, u64),
}

impl Default for VersionsOptions {
    fn default() -> Self {
        Self {
            reserve_percent: 20,
            every: None,
            keep: 24,
            cache_bytes: 64 << 20,
            epoch_ns: 0,
            found: crate::checksum::Found::OpenOrMake(0),
            hole: (0, 0),
        }
    }
}

/// A version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VersionInfo {
    /// Its number, never used again.
    pub id: u64,
    /// What it was called; empty for an automatic one.
    pub name: String,
    /// When it was captured, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Captured by itself.
    pub is_automatic: bool,
    /// Bytes that were written since, up to the next version: what it holds alone, or with older ones.
    pub held_bytes: u64,
    /// Some of its history cannot be read any more: it cannot be read as a whole, nor can older ones.
    pub is_damaged: bool,
}

/// How much room there is. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RoomReport {
    /// All there is.
    pub bytes: u64,
    /// What nobody holds.
    pub free_bytes: u64,
    /// Automatic versions that went because there was no room left.
    pub given_up: u64,
}

/// A device that remembers.
pub struct VersionsDevice {
    below: Arc<dyn Device>,
    shared: Arc<Shared>,
}

struct Shared {
    options: VersionsOptions,
    table: Table,
    claims: Arc<Claims>,
    info: DeviceInfo,
    catalog_at: u64,
    kept: Arc<Kept>,
    /// A bit for each block: written since the last capture.
    fresh: Box<[AtomicU64]>,
    has_versions: AtomicBool,
    gate: Gate,
    epochs: Epochs,
    /// For captures, deletions and going back: one at a time.
    changes: Arc<Turns>,
    /// When the last version was captured, and whether one is being captured by itself.
    captured_at: AtomicU64,
    is_capturing: AtomicBool,
    given_up: AtomicU64,
    /// What is on the medium may not be what is in memory any more: nothing is written until it is opened again.
    is_stuck: AtomicBool,
    /// The version that the present has become in part; 0 for none. Until it has as a whole nothing is written, and nothing read of it.
    half_back_to: AtomicU64,
}

/// What is held by versions, and which room is left.
struct Kept {
    table: u128,
    history_at: u64,
    space_at: u64,
    histories: HistoryRoom,
    /// For data, and for histories that have no room elsewhere.
    space: Arc<Space>,
    state: Mutex<State>,
    has_extra: AtomicBool,
}

#[derive(Default)]
struct State {
    catalog: Catalog,
    /// The oldest first.
    versions: Vec<Version>,
    /// Places that are held more than once: how many times more.
    extra: HashMap<u32, u32>,
    /// Places that nobody holds as soon as the map that says so is durable.
    limbo: Vec<u64>,
    /// Extents of histories that nobody needs as soon as the same is so.
    limbo_extents: Vec<u64>,
    /// Places that are free as soon as reads that began before this epoch have ended.
    grace: Vec<(u64, Vec<u64>)>,
    /// Runs of places that nobody reads any more: they are free once they were handed down.
    to_hand_down: Vec<Range<u64>>,
}

struct Version {
    listed: Listed,
    history: History,
}

impl VersionsDevice {
    /// Opens the layer over `below`, on a runtime of its own.
    ///
    /// Fails as [`crate::checksum::ChecksumDevice::open`] does.
    pub fn open(below: Arc<dyn Device>, options: VersionsOptions) -> Result<Arc<Self>> {
        let runtime = own_runtime()?;
        runtime.block_on(Self::open_on(below, options, &runtime))?
    }

    /// As [`VersionsDevice::open`], on the runtime of the calling thread.
    pub async fn open_on(
        below: Arc<dyn Device>,
        options: VersionsOptions,
        runtime: &Runtime,
    ) -> Result<Arc<Self>> {
        use crate::checksum::Found;
        let (io, info) = (Io::open(&below, runtime, PATIENCE)?, below.info());
        let id = match options.found {
            Found::Make(id) => Some(id),
            Found::Open => None,
            Found::OpenOrMake(id) => {
                let begin = io.read(0, BLOCK_BYTES as usize, Context::default()).await?;
                begin.iter().all(|byte| *byte == 0).then_some(id)
            }
        };
        if let Some(id) = id {
            let layout = layout_of(info.size, options.reserve_percent)?;
            let mut owner: Owner = [0; 64];
            owner[..8].copy_from_slice(b"versions");
            owner[8] = options.reserve_percent;
            Table::create(&io, &layout, id, owner).await?;
            let mut catalog = Catalog { next_id: 1, next_history: 1, ..Catalog::default() };
            for _ in 0..2 {
                catalog.write(&io, layout.bytes(), id, Context::default()).await?;
            }
        }
        let guess = layout_of(info.size, options.reserve_percent)?;
        let owner = Table::owner_of(&io, &guess).await?.filter(|owner| owner[..8] == *b"versions");
        let Some(owner) = owner else {
            let kind = if options.found == Found::Open { ErrorKind::Invalid } else { ErrorKind::Refused };
            let context = "there is something else than a map of versions on this device";
            return Err(Error::new(kind, context));
        };
        let layout = layout_of(info.size, owner[8])?;
        let cache_pages = usize::try_from(options.cache_bytes / BLOCK_BYTES).unwrap_or(usize::MAX);
        let mut table = Table::open(&io, layout, Order::After, cache_pages).await?;
        let catalog_at = layout.bytes();
        let Some(catalog) = Catalog::read(&io, catalog_at, table.id()).await? else {
            return Err(Error::new(ErrorKind::Invalid, "the list of versions cannot be read"));
        };
        if (catalog.generation as u32) < table.witnessed_list() {
            let context = "the newest list of versions is lost on all copies, and the one before it names what is others' by now";
            return Err(Error::new(ErrorKind::Medium, context));
        }
        let history_at = catalog_at + CATALOG_BYTES;
        let history_blocks = history_blocks(info.size);
        let space_at = history_at + history_blocks * BLOCK_BYTES;
        let space = Arc::new(Space::new((info.size - space_at) / BLOCK_BYTES));
        let kept = Kept {
            table: table.id(),
            history_at,
            space_at,
            histories: HistoryRoom::new(history_blocks, &space),
            space,
            state: Mutex::new(State { catalog, ..State::default() }),
            has_extra: false.into(),
        };
        let kept = Arc::new(kept);
        table.set_before(Box::new(space_block::Histories(Arc::clone(&kept))));
        let shared = Shared {
            options,
            claims: Claims::new(layout.entries),
            info: DeviceInfo {
                size: layout.entries * BLOCK_BYTES,
                block_size: info.block_size,
                atomic_write_bytes: info.atomic_write_bytes.min(BLOCK_BYTES as u32).max(info.block_size),
                read_only: info.read_only,
                features: Features { flush: true, fua: true, discard: true, write_zeroes: true },
            },
            catalog_at,
            kept,
            fresh: (0..layout.entries.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            has_versions: false.into(),
            gate: Gate::default(),
            epochs: Epochs::default(),
            changes: Arc::new(Turns::default()),
            captured_at: runtime.now().0.into(),
            is_capturing: false.into(),
            given_up: 0.into(),
            is_stuck: false.into(),
            half_back_to: 0.into(),
            table,
        };
        let device = Arc::new(Self { below, shared: Arc::new(shared) });
        device.shared.load(&io).await?;
        if !io.is_read_only {
            device.shared.keep_lost(&io).await?;
        }
        let going_back_to = device.shared.kept.state.lock().catalog.going_back_to;
        if going_back_to != 0 {
            // The power went in the middle: it is done again, and comes to the same.
            device.shared.go_back(&io, going_back_to, Context::default()).await?;
        }
        Ok(device)
    }

    /// Where the space begins on a device of so many bytes, and how many bytes the device has that it makes.
    ///
    /// Fails with [`ErrorKind::NoSpace`] if it is too small.
    pub fn place_on(bytes: u64, reserve_percent: u8) -> Result<(u64, u64)> {
        let layout = layout_of(bytes, reserve_percent)?;
        let first = layout.bytes() + CATALOG_BYTES + history_blocks(bytes) * BLOCK_BYTES;
        Ok((first, layout.entries * BLOCK_BYTES))
    }

    /// Bytes of a device of so many that are kept for histories alone: what versions say of where blocks were.
    pub fn histories_on(bytes: u64) -> u64 {
        history_blocks(bytes) * BLOCK_BYTES
    }

    /// All versions, the oldest first.
    pub fn versions(&self) -> Vec<VersionInfo> {
        let state = self.shared.kept.state.lock();
        let info = |version: &Version| VersionInfo {
            id: version.listed.id,
            name: version.listed.name.clone(),
            time_ns: version.listed.time_ns,
            is_automatic: version.listed.is_automatic,
            held_bytes: version.history.pairs.values().filter(|place| is_place(**place)).count() as u64
                * BLOCK_BYTES,
            is_damaged: version.history.is_damaged,
        };
        state.versions.iter().map(info).collect()
    }

    /// Bytes on the device below that say where the byte at `offset` lies: the two copies of its page.
    pub fn pages_of(&self, offset: u64) -> [u64; 2] {
        let layout = self.shared.table.layout();
        let (page, _) = layout.place(offset / BLOCK_BYTES);
        [layout.page_at(0, page), layout.page_at(1, page)]
    }

    /// The number and the name of each version, and whether it was captured by itself, the oldest first. Takes no longer the more
    /// they hold.
    pub fn names(&self) -> Vec<(u64, String, bool)> {
        let state = self.shared.kept.state.lock();
        let name = |version: &Version| {
            let Listed { id, name, is_automatic, .. } = &version.listed;
            (*id, name.clone(), *is_automatic)
        };
        state.versions.iter().map(name).collect()
    }

    /// How much room there is.
    pub fn room(&self) -> RoomReport {
        let space = &self.shared.kept.space;
        RoomReport {
            bytes: (space.blocks() - (self.shared.options.hole.1 - self.shared.options.hole.0)) * BLOCK_BYTES,
            free_bytes: space.free() * BLOCK_BYTES,
            given_up: self.shared.given_up.load(Ordering::Relaxed),
        }
    }

    /// Whether a version is being captured by itself, or one of those that are too many given up.
    pub(crate) fn is_capturing(&self) -> bool {
        self.shared.is_capturing.load(Ordering::SeqCst)
    }

    /// Captures the present as a version; its number. What is being written at the time is in it or not, block by block, as
    /// after a loss of power.
    ///
    /// Fails with [`ErrorKind::Invalid`] for a name that is too long, [`ErrorKind::NoSpace`] if there is no room.
    pub async fn capture(&self, runtime: &Runtime, name: &str, time_ns: u64) -> Result<u64> {
        let io = Io::open(&self.below, runtime, PATIENCE)?;
        self.shared.capture(&io, name, time_ns, false, Context::default()).await
    }

    /// Gives a version up; what it alone holds is free, also on the device below. Fails with [`ErrorKind::Missing`] if there is none of this number.
    pub async fn delete(&self, runtime: &Runtime, id: u64) -> Result<()> {
        let io = Io::open(&self.below, runtime, PATIENCE)?;
        let _turn = Arc::clone(&self.shared.changes).next().await;
        self.shared.delete(&io, id, Context::default()).await?;
        self.shared.reclaim(&io, Context::default()).await
    }

    /// Makes the present what a version was. The present of before is captured first; its number, to undo it with.
    ///
    /// Fails with [`ErrorKind::Missing`] if there is none of this number, [`ErrorKind::Medium`] if it is damaged.
    pub async fn roll_back(&self, runtime: &Runtime, id: u64, time_ns: u64) -> Result<u64> {
        let io = Io::open(&self.below, runtime, PATIENCE)?;
        self.shared.roll_back(&io, id, time_ns, Context::default()).await
    }

    /// A version as a device that can only be read, as long as it exists.
    ///
    /// Fails with [`ErrorKind::Missing`] if there is none of this number.
    pub fn view(&self, id: u64) -> Result<Arc<VersionView>> {
        self.shared.kept.state.lock().find(id)?;
        Ok(Arc::new(VersionView::new(Arc::clone(&self.below), Arc::clone(&self.shared), id)))
    }

    /// Whether the newest part of the map's log is one that no later part says was durable: if it rots on all copies, nobody knows.
    pub fn is_unvouched(&self) -> bool {
        self.shared.table.is_unvouched()
    }

    /// Has the map's log say that all of it is durable, so that a loss of its newest part is an error and not an older present.
    pub async fn vouch(&self, runtime: &Runtime) -> Result<()> {
        let io = Io::open(&self.below, runtime, PATIENCE)?;
        self.shared.table.vouch(&io, Context::default()).await
    }

    /// Writes back all that is new.
    pub async fn settle(&self, runtime: &Runtime) -> Result<()> {
        let io = Io::open(&self.below, runtime, PATIENCE)?;
        self.shared.flush(&io, Context::default()).await?;
        self.shared.table.checkpoint(&io, true, Context::default()).await
    }
}

/// The table for a device of so many bytes of which a part is kept for versions.
fn layout_of(bytes: u64, reserve_percent: u8) -> Result<Layout> {
    if !(1..=90).contains(&reserve_percent) {
        let context = format!("{reserve_percent}% cannot be kept for versions: 1 to 90");
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    let taken = CATALOG_BYTES + history_blocks(bytes) * BLOCK_BYTES;
    let room = bytes.saturating_sub(taken) / 100 * u64::from(100 - reserve_percent);
    let layout = Layout::fit(room, 1)?;
    if layout.entries > u64::from(u32::MAX) - 2 {
        return Err(Error::new(ErrorKind::Invalid, "a device with versions can have 16 TiB at the most"));
    }
    Ok(layout)
}

/// Blocks for histories alone on a device of so many bytes. Two of them are for some 500 of data; when they are used up, histories take
/// room among the data.
fn history_blocks(bytes: u64) -> u64 {
    (bytes / BLOCK_BYTES / 4000).max(32 * EXTENT) / EXTENT * EXTENT
}

impl State {
    fn find(&self, id: u64) -> Result<usize> {
        let none = || Error::new(ErrorKind::Missing, format!("there is no version {id}"));
        self.versions.iter().position(|version| version.listed.id == id).ok_or_else(none)
    }
}

impl Device for VersionsDevice {
    fn info(&self) -> DeviceInfo {
        self.shared.info
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(VersionsQueue::new(Io::open(&self.below, runtime, PATIENCE)?, Arc::clone(&self.shared))))
    }

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        if wanted.is::<dyn crate::copies::Copies>() { None } else { self.below.ability(wanted) }
    }
}

impl fmt::Debug for VersionsDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VersionsDevice({} bytes)", self.shared.info.size)
    }
}
