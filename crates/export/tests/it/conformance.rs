//! The exports keep the contract of a device, as seen by the file leaf that opens them.

use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::conformance::{On, check};
use rotproof_block::leaf::{FileDevice, FileOptions, MemoryDevice};
use rotproof_block::{Device, DeviceInfo, Queue, Result, Runtime};
use rotproof_export::{FuseOptions, LoopDevice, LoopOptions};

use crate::places::Served;

/// A stack reached through its export. Closed from the top down, in the order of the fields.
struct Reached {
    file: Arc<FileDevice>,
    _loop_device: Option<LoopDevice>,
    _served: Served,
}

impl Device for Reached {
    fn info(&self) -> DeviceInfo {
        self.file.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        self.file.open_queue(runtime)
    }
}

fn reached(block_size: u32, by_loop_device: bool) -> Result<Arc<dyn Device>> {
    let served = Served::with(MemoryDevice::new(4 << 20, block_size)?, FuseOptions::default());
    let options = LoopOptions { block_size: Some(block_size), ..LoopOptions::default() };
    let loop_device = by_loop_device.then(|| LoopDevice::attach(served.path(), options)).transpose()?;
    let path = loop_device.as_ref().map_or(served.path(), LoopDevice::path);
    let file = FileDevice::open(path, FileOptions::default())?;
    Ok(Arc::new(Reached { file, _loop_device: loop_device, _served: served }))
}

#[test]
fn the_fuse_file_keeps_the_contract() {
    for block_size in [512, 4096] {
        check(On::Uring, &|| reached(block_size, false)).expect("every clause holds");
    }
}

#[test]
fn the_loop_device_keeps_the_contract() {
    for block_size in [512, 4096] {
        check(On::Uring, &|| reached(block_size, true)).expect("every clause holds");
    }
}
