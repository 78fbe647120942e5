//! The layer that knows every block: a checksum for each 4 KiB, kept on the device, verified with every read.
//!
//! Over a device with copies ([`Copies`](crate::copies::Copies)) a block that does not have its checksum is taken from the
//! copy that has, and written anew where it was wrong, before the reader has its answer. Otherwise it is an error for exactly
//! that block. A block that was never written reads as zeros.
//!
//! Data stay in place. Until a flush a block may be old or new, and so may its checksum: what is being changed is marked
//! before, and after a crash both are right there; what is neither was torn, and counts as what it is. Outside marked
//! places nothing is ever believed without its checksum (decision 037).

mod kind;
#[cfg(test)]
mod mirrored;
mod queue;
mod rebuild;
mod repair;
mod scrub;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_states;

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rotproof_block::ability::{Ability, Wanted};
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Context, Device, DeviceInfo, Error, ErrorKind, Features, Queue, Result, Runtime};

use serde::Serialize;

use crate::claims::Claims;
use crate::io::Io;
use crate::table::{BLOCK_BYTES, Layout, Order, Owner, Table};
pub use kind::ChecksumKind;
use queue::ChecksumQueue;
pub use scrub::{Scrub, ScrubOptions, ScrubReport};

/// What a checksum layer is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumOptions {
    /// Which checksum. One that is there already must have been made with the same.
    pub kind: ChecksumKind,
    /// How long a copy may take to answer before another is asked.
    pub patience: Duration,
    /// Bytes of checksums that stay in memory beside those that are new; 4 MiB of checksums are for 4 GiB of data.
    pub cache_bytes: u64,
    /// What is on the device already: see [`Found`].
    pub found: Found,
}

/// What to do with what is on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Open the checksums that are there; make some with this identity if the device begins with zeros; refuse it otherwise.
    OpenOrMake(u128),
    /// Open the checksums that are there; refuse a device without.
    Open,
    /// Begin anew with this identity: what was on the device is lost.
    Make(u128),
}

impl Default for ChecksumOptions {
    fn default() -> Self {
        Self {
            kind: ChecksumKind::default(),
            patience: Duration::from_millis(500),
            cache_bytes: 64 << 20,
            found: Found::OpenOrMake(0),
        }
    }
}

/// What a checksum layer has done. Blocks of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct ChecksumReport {
    /// Blocks whose checksum was looked at when they were read.
    pub verified: u64,
    /// Copies of blocks that did not have their checksum, or could not be read, when a right one was at hand.
    pub wrong_copies: u64,
    /// Those of them that were written anew.
    pub repaired: u64,
    /// Blocks whose checksum was lost, and made anew as all copies are the same.
    pub sums_made: u64,
    /// Blocks that a crash had left torn, and that count as what they are.
    pub torn: u64,
    /// Blocks that were found between two flushes after a crash: their checksum is that of what they hold.
    pub resolved: u64,
    /// Reads of blocks that failed as no copy is right.
    pub unrecoverable: u64,
    /// Blocks that are known to be lost now.
    pub lost: u64,
    /// Pages of checksums of which no copy was whole.
    pub pages_lost: u64,
    /// Pages of checksums that were mended from their copy.
    pub pages_mended: u64,
    /// Blocks of the log that could not be read any more.
    pub log_lost: u64,
    /// Requests for checksums, marks and log.
    pub metadata_requests: u64,
}

#[derive(Debug, Default)]
struct Counts {
    verified: AtomicU64,
    wrong_copies: AtomicU64,
    repaired: AtomicU64,
    sums_made: AtomicU64,
    torn: AtomicU64,
    resolved: AtomicU64,
    unrecoverable: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// A device every block of which has a checksum.
pub struct ChecksumDevice {
    below: Arc<dyn Device>,
    shared: Arc<Shared>,
}

/// What all queues share.
struct Shared {
    kind: ChecksumKind,
    patience: Duration,
    table: Table,
    claims: Arc<Claims>,
    info: DeviceInfo,
    /// Where the first block lies below.
    data_at: u64,
    counts: Counts,
}

impl ChecksumDevice {
    /// Where the first block would lie on a device of so many bytes, and how many bytes of blocks there would be.
    ///
    /// Fails with [`ErrorKind::NoSpace`] if there is room for none.
    pub fn place_on(bytes: u64, kind: ChecksumKind) -> Result<(u64, u64)> {
        let layout = Layout::fit(bytes, kind.words())?;
        Ok((layout.bytes(), layout.entries * BLOCK_BYTES))
    }

    /// Opens the layer over `below`, on a runtime of its own.
    ///
    /// Fails with [`ErrorKind::Refused`] if there is something else on the device, [`ErrorKind::Invalid`] if it holds none where
    /// some are wanted or others than these, [`ErrorKind::NoSpace`] if it is too small.
    pub fn open(below: Arc<dyn Device>, options: ChecksumOptions) -> Result<Arc<Self>> {
        let runtime = own_runtime()?;
        runtime.block_on(Self::open_on(below, options, &runtime))?
    }

    /// As [`ChecksumDevice::open`], on the runtime of the calling thread.
    pub async fn open_on(
        below: Arc<dyn Device>,
        options: ChecksumOptions,
        runtime: &Runtime,
    ) -> Result<Arc<Self>> {
        let (io, info) = (Io::open(&below, runtime, options.patience)?, below.info());
        let kind = options.kind;
        let layout = Layout::fit(info.size, kind.words())?;
        let id = match options.found {
            Found::Make(id) => Some(id),
            Found::Open => None,
            Found::OpenOrMake(id) => is_empty(&io, &layout).await?.then_some(id),
        };
        if let Some(id) = id {
            let mut owner: Owner = [0; 64];
            owner[..8].copy_from_slice(b"checksum");
            owner[8] = kind.number();
            Table::create(&io, &layout, id, owner).await?;
        }
        let cache_pages = usize::try_from(options.cache_bytes / BLOCK_BYTES).unwrap_or(usize::MAX);
        let table = Table::open(&io, layout, Order::Beside, cache_pages).await;
        let table = table.map_err(|error| match options.found {
            Found::OpenOrMake(_) if error.kind() == ErrorKind::Invalid => Error::new(
                ErrorKind::Refused,
                "there is something else than checksums on this device: say that it may be lost, or take another",
            )
            .caused_by(error),
            _ => error,
        })?;
        let owner = table.owner();
        if owner[..8] != *b"checksum" || ChecksumKind::from_number(owner[8]) != Some(kind) {
            let made_with = ChecksumKind::from_number(owner[8]).map_or("something else", ChecksumKind::word);
            let context = format!("the checksums on this device are {made_with}, not {}", kind.word());
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let atomic = info.atomic_write_bytes.min(BLOCK_BYTES as u32);
        let info = DeviceInfo {
            size: layout.entries * BLOCK_BYTES,
            block_size: info.block_size,
            atomic_write_bytes: atomic.max(info.block_size),
            read_only: info.read_only,
            features: Features { flush: true, fua: true, discard: true, write_zeroes: true },
        };
        let shared = Shared {
            kind,
            patience: options.patience,
            claims: Claims::new(layout.entries),
            table,
            info,
            data_at: layout.bytes(),
            counts: Counts::default(),
        };
        Ok(Arc::new(Self { below, shared: Arc::new(shared) }))
    }

    /// What the layer has done so far.
    pub fn report(&self) -> ChecksumReport {
        let Shared { counts, table, .. } = &*self.shared;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ChecksumReport {
            verified: get(&counts.verified),
            wrong_copies: get(&counts.wrong_copies),
            repaired: get(&counts.repaired),
            sums_made: get(&counts.sums_made),
            torn: get(&counts.torn),
            resolved: get(&counts.resolved),
            unrecoverable: get(&counts.unrecoverable),
            lost: self.lost().len() as u64,
            pages_lost: get(&table.counts.pages_lost),
            pages_mended: get(&table.counts.pages_mended),
            log_lost: get(&table.counts.log_lost),
            metadata_requests: get(&table.counts.requests),
        }
    }

    /// The blocks of 4 KiB, by number, that no copy has right.
    pub fn lost(&self) -> BTreeSet<u64> {
        self.shared.table.lost()
    }

    /// Blocks of 4 KiB, by number, that a crash has left in doubt until they were looked at.
    pub fn in_doubt(&self) -> Vec<std::ops::Range<u64>> {
        let clip =
            |blocks: std::ops::Range<u64>| blocks.start..blocks.end.min(self.shared.info.size / BLOCK_BYTES);
        self.shared.table.in_doubt().into_iter().map(clip).filter(|blocks| !blocks.is_empty()).collect()
    }

    /// Where the first byte of this device lies on the one below.
    pub fn data_at(&self) -> u64 {
        self.shared.data_at
    }

    /// Bytes on the device below that hold something of the checksum of the byte at `offset`: the two copies of its page.
    pub fn pages_of(&self, offset: u64) -> [u64; 2] {
        let layout = self.shared.table.layout();
        let (page, _) = layout.place(offset / BLOCK_BYTES);
        [layout.page_at(0, page), layout.page_at(1, page)]
    }

    /// Writes back all that is new, and takes all marks back: after that a loss of power leaves nothing in doubt. To be
    /// awaited when nothing else is under way, before the device is given up; without it nothing is lost either.
    pub async fn settle(&self, runtime: &Runtime) -> Result<()> {
        let io = Io::open(&self.below, runtime, self.shared.patience)?;
        self.shared.table.flush(&io, Context::default()).await?;
        self.shared.table.checkpoint(&io, true, Context::default()).await
    }

    /// Writes checksums back to their pages, so that the log can begin anew. It happens by itself when the log is full.
    pub async fn checkpoint(&self, runtime: &Runtime) -> Result<()> {
        let io = Io::open(&self.below, runtime, self.shared.patience)?;
        self.shared.table.checkpoint(&io, false, Context::default()).await
    }

    fn queue(&self, runtime: &Runtime) -> Result<ChecksumQueue> {
        Ok(ChecksumQueue::new(
            Io::open(&self.below, runtime, self.shared.patience)?,
            Arc::clone(&self.shared),
        ))
    }
}

/// A runtime for a while, io_uring where there is one.
pub(crate) fn own_runtime() -> Result<Runtime> {
    Runtime::uring(RuntimeOptions::new(0)).or_else(|_| Ok(Runtime::simulated(0)))
}

/// Whether the places where the state of a table would be hold zeros alone.
async fn is_empty(io: &Io, layout: &Layout) -> Result<bool> {
    for copy in 0..2 {
        for slot in 0..2 {
            let state =
                io.read(layout.state_at(copy, slot), BLOCK_BYTES as usize, Context::default()).await?;
            if state.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

impl Device for ChecksumDevice {
    fn info(&self) -> DeviceInfo {
        self.shared.info
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(self.queue(runtime)?))
    }

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        // Copies would be of what is below; whoever writes to one alone would leave the checksum behind.
        if wanted.is::<dyn crate::copies::Copies>() { None } else { self.below.ability(wanted) }
    }
}

impl fmt::Debug for ChecksumDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChecksumDevice({})", self.shared.kind.word())
    }
}
