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

pub(crate) fn flush(device: &dyn Device, runtime: &Runtime) {
    ask(device, runtime, Request::flush(Context::default())).result.expect("flushed");
}
