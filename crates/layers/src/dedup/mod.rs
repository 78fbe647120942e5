//! The layer that stores equal blocks once: a content-addressed store of 4 KiB blocks, as a deduplicating device is one.
//!
//! Logical blocks are mapped to physical blocks of the device below by their content. A fault there that hits one
//! physical block is seen by every logical block mapped to it, which is what this layer is for: to find out how far one
//! bad block reaches.
//!
//! - **Content** is told by its XXH3-128. Among 2^31 blocks, 8 TiB, two different ones share a hash with a probability
//!   of 2^-67, far below that of the machine failing meanwhile; so by default equal hashes are taken for equal blocks,
//!   which costs no read. Against blocks made to collide, and to try a store that looks before it shares,
//!   [`DedupOptions::verify`] reads the block that is there and compares. Such a store also notices that a block has
//!   gone bad before it shares it, and writes another.
//! - **References** keep a physical block from being given away: one for each logical block mapped to it, and one for
//!   each request under way that needs it. A free block is taken lowest first, so a sequential load lies in order.
//! - **The map lives in memory.** It ends with the process, like the memory leaf; what the device below held before is
//!   never seen. Flush passes through and makes data durable, not the map. It takes about 60 bytes for each physical
//!   block in use and 4 for each logical one.
//! - **Space**: a new content needs a free block before the old one is given up, so overwriting a store that is full of
//!   different contents fails with [`ErrorKind::NoSpace`]; a `size` below that of the device leaves room. Blocks that
//!   become free are not discarded below.
//! - **Smaller or unaligned requests** read the rest of their first and last block, and are written whole.
//!
//! One file for each part: `blocks` and `logical_map` are the tables, `store` what happens to both in one step, `read`,
//! `write` and `clear` the ways of the requests, `queue_state` what one queue keeps.

mod blocks;
mod clear;
mod logical_map;
mod queue_state;
mod read;
mod store;
mod write;

use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::{
    Device, DeviceInfo, Error, ErrorKind, Features, Operation, Queue, Request, Result, Runtime, Submission,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use queue_state::QueueState;
use store::Store;

/// Bytes of a block, as an offset and as a length.
const BLOCK_BYTES: u64 = 4096;
const BLOCK: usize = BLOCK_BYTES as usize;

/// What a dedup layer is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DedupOptions {
    /// Size of the device that it is, in bytes, a multiple of 4096. Default: that of the device below, as far as it
    /// holds whole blocks. More is possible where there are duplicates enough.
    pub size_bytes: Option<u64>,
    /// Compares the bytes before it takes equal hashes for equal blocks.
    pub verify: bool,
}

/// A device that stores equal blocks once.
pub struct DedupDevice {
    below: Arc<dyn Device>,
    info: DeviceInfo,
    store: Arc<Store>,
}

/// How much a dedup layer has saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DedupReport {
    /// Name of the layer.
    pub name: String,
    /// Blocks of 4 KiB that hold something.
    pub logical_blocks: u64,
    /// Blocks of the device below that they take.
    pub physical_blocks: u64,
    /// Logical blocks for each physical one; 1 as long as there are none.
    pub ratio: f64,
}

impl DedupDevice {
    /// What a report calls the layer: a stack has one at the most.
    pub const NAME: &str = "dedup";

    /// Bytes of what is stored once.
    pub const BLOCK_BYTES: u64 = BLOCK_BYTES;

    /// The largest size, logical or physical: blocks are numbered in 32 bits, and with room to spare.
    pub const SIZE_MAX: u64 = 8 << 40;

    /// Deduplicates over `below`, beginning empty. Fails with [`ErrorKind::Invalid`] on sizes that do not fit.
    pub fn new(below: Arc<dyn Device>, options: DedupOptions) -> Result<Arc<Self>> {
        let info = below.info();
        let invalid = |message: String| Error::new(ErrorKind::Invalid, message);
        if u64::from(info.block_size) > BLOCK_BYTES {
            return Err(invalid(format!(
                "blocks of {} bytes are larger than those of a dedup layer, {BLOCK_BYTES} bytes",
                info.block_size
            )));
        }
        let physical_bytes = Self::whole_blocks(info.size);
        let size = options.size_bytes.unwrap_or(physical_bytes);
        for bytes in [physical_bytes, size] {
            if bytes == 0 || bytes > Self::SIZE_MAX || !bytes.is_multiple_of(BLOCK_BYTES) {
                return Err(invalid(format!(
                    "{bytes} bytes; a dedup layer has, and needs below, a multiple of {BLOCK_BYTES} bytes up to {}",
                    Self::SIZE_MAX
                )));
            }
        }
        let count = |bytes: u64| u32::try_from(bytes / BLOCK_BYTES).expect("at most SIZE_MAX");
        let store = Arc::new(Store::new(count(size), count(physical_bytes), options.verify));
        let info = DeviceInfo {
            size,
            // A block is mapped in one step, whatever is torn below.
            atomic_write_bytes: BLOCK_BYTES as u32,
            features: Features { discard: true, write_zeroes: true, ..info.features },
            ..info
        };
        Ok(Arc::new(Self { below, info, store }))
    }

    /// What `bytes` hold of whole blocks, in bytes.
    pub(crate) fn whole_blocks(bytes: u64) -> u64 {
        bytes / BLOCK_BYTES * BLOCK_BYTES
    }

    /// How much is saved at this moment.
    pub fn report(&self) -> DedupReport {
        let (logical_blocks, physical_blocks) = self.store.usage();
        let ratio = if physical_blocks == 0 { 1.0 } else { logical_blocks as f64 / physical_blocks as f64 };
        DedupReport { name: Self::NAME.to_owned(), logical_blocks, physical_blocks, ratio }
    }
}

impl Device for DedupDevice {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let below = self.below.open_queue(runtime)?;
        let queue = QueueState::new(below, self.info, Arc::clone(&self.store), runtime.clone());
        Ok(Rc::new(DedupQueue(Rc::new(queue))))
    }
}

impl fmt::Debug for DedupDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DedupDevice({:?})", self.info)
    }
}

struct DedupQueue(Rc<QueueState>);

impl Queue for DedupQueue {
    fn submit(&self, request: Request) -> Submission {
        let queue = &self.0;
        if let Err(error) = queue.info.check(&request) {
            return request.fail(error).into();
        }
        match request.operation {
            Operation::Flush => queue.below.submit(request),
            _ if request.length == 0 => request.succeed().into(),
            Operation::Read => read::read(queue, request),
            Operation::Write { .. } => write::write(queue, request),
            Operation::Discard | Operation::WriteZeroes => clear::clear(queue, request),
        }
    }
}

/// The logical blocks that a request touches.
fn blocks_of(request: &Request) -> Range<u64> {
    request.offset / BLOCK_BYTES..request.end().div_ceil(BLOCK_BYTES)
}
