//! Looks through the device of a trial for contents, once all is over.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Buffer, ContentHash, Context, Device, Phase, Request, Result, Runtime};
use rotproof_fault::BLOCK_BYTES;

use crate::file::RuntimeKind;
use crate::verdict::Medium;

/// A larger device is not looked through: that would take longer than most trials.
const DEVICE_BYTES_MAX: u64 = 64 << 30;
const READ_BYTES: u64 = 1 << 20;

/// The devices of a stack, which nobody else uses any more.
pub(super) struct Leftover {
    pub(super) devices: Vec<Arc<dyn Device>>,
    pub(super) runtime: RuntimeKind,
}

impl Medium for Leftover {
    fn count(&self, contents: &HashSet<ContentHash>) -> Option<HashMap<ContentHash, u64>> {
        self.look(contents).ok()
    }
}

impl Leftover {
    /// Reads everything, with the faults disabled: what was stored wrong reads wrong. What cannot be read is not there.
    fn look(&self, contents: &HashSet<ContentHash>) -> Result<HashMap<ContentHash, u64>> {
        if self.devices.iter().map(|device| device.info().size).sum::<u64>() > DEVICE_BYTES_MAX {
            return Ok(HashMap::new());
        }
        let runtime = match self.runtime {
            RuntimeKind::Simulated => Runtime::simulated(0),
            RuntimeKind::IoUring => Runtime::uring(RuntimeOptions::new(0))?,
        };
        let mut found = HashMap::new();
        let mut look_at = |bytes: &[u8]| {
            for block in bytes.chunks_exact(BLOCK_BYTES as usize) {
                // Most of a device is zeros, which hash as slowly as anything.
                if block[..8] == [0; 8] && block.iter().all(|&byte| byte == 0) {
                    continue;
                }
                let hash = ContentHash::of(block);
                if contents.contains(&hash) {
                    *found.entry(hash).or_default() += 1;
                }
            }
        };
        for device in &self.devices {
            let queue = device.open_queue(&runtime)?;
            let size = device.info().size;
            let read = |offset: u64, length: u64| -> Result<Option<Buffer>> {
                let context = Context { phase: Phase::Setup, submitted: runtime.now(), ..Context::default() };
                let request = Request::read(offset, Buffer::zeroed(length as usize), context);
                let completion = runtime.block_on(queue.submit(request))?;
                Ok(completion.result.is_ok().then_some(completion.buffer))
            };
            for start in (0..size).step_by(READ_BYTES as usize) {
                let end = (start + READ_BYTES).min(size);
                if let Some(bytes) = read(start, end - start)? {
                    look_at(&bytes);
                    continue;
                }
                for block in (start..end).step_by(BLOCK_BYTES as usize) {
                    let end = (block + BLOCK_BYTES).min(end);
                    read(block, end - block)?.iter().for_each(|bytes| look_at(bytes));
                }
            }
        }
        runtime.abandon_tasks();
        Ok(found)
    }
}
