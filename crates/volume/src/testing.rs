//! Requests awaited one by one, for the tests of this crate.

use std::sync::Arc;

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{Buffer, Completion, Context, Device, Request, Result, Runtime};

pub(crate) fn memory(bytes: u64) -> Arc<dyn Device> {
    MemoryDevice::new(bytes, 512).expect("sizes that fit")
}

pub(crate) fn ask(device: &dyn Device, runtime: &Runtime, request: Request) -> Completion {
    let queue = device.open_queue(runtime).expect("opens");
    runtime.block_on(queue.submit(request)).expect("completes")
}

pub(crate) fn write(device: &dyn Device, runtime: &Runtime, offset: u64, bytes: &[u8]) -> Result<()> {
    ask(device, runtime, Request::write(offset, Buffer::copy_of(bytes), Context::default())).result
}

pub(crate) fn read(device: &dyn Device, runtime: &Runtime, offset: u64, length: usize) -> Result<Vec<u8>> {
    let completion = ask(device, runtime, Request::read(offset, Buffer::zeroed(length), Context::default()));
    completion.result.map(|()| completion.buffer.to_vec())
}

/// Where blocks lie that begin like this.
pub(crate) fn find(below: &dyn Device, runtime: &Runtime, magic: &[u8; 8]) -> Vec<(u64, Vec<u8>)> {
    let all = read(below, runtime, 0, below.info().size as usize).expect("read");
    let blocks = (0..).step_by(4096).zip(all.chunks_exact(4096));
    blocks.filter(|(_, block)| block.starts_with(magic)).map(|(at, block)| (at, block.to_vec())).collect()
}

/// The states of the table on a device: all there are, or those alone that were written last.
pub(crate) fn states(below: &dyn Device, runtime: &Runtime, is_newest: bool) -> Vec<(u64, Vec<u8>)> {
    let generation = |block: &[u8]| u64::from_le_bytes(block[32..40].try_into().expect("eight bytes"));
    let mut states = find(below, runtime, b"rotpTABL");
    let newest = states.iter().map(|(_, block)| generation(block)).max().expect("a state");
    states.retain(|(_, block)| !is_newest || generation(block) == newest);
    states
}

/// Makes the newest state of the table on a device bad on both of its copies.
pub(crate) fn lose_newest_state(below: &dyn Device, runtime: &Runtime) {
    let newest = states(below, runtime, true);
    assert_eq!(newest.len(), 2, "two copies");
    for (at, _) in newest {
        write(below, runtime, at, &[0xee; 4096]).expect("written");
    }
}

pub(crate) fn flush(device: &dyn Device, runtime: &Runtime) {
    ask(device, runtime, Request::flush(Context::default())).result.expect("flushed");
}
