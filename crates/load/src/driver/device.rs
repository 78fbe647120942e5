//! One device as the only object of a load: a stack in process, or a block device of the kernel.

use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::{Device, Error, ErrorKind, Queue, Result, Runtime};

use super::{Driver, FileEngine};
use crate::BLOCK_BYTES;
use crate::object::ObjectInfo;

/// The name of the object.
const NAME: &str = "device";

/// Puts the load onto a device.
#[derive(Clone)]
pub struct DeviceDriver {
    device: Arc<dyn Device>,
    objects: [ObjectInfo; 1],
    holds_threads: bool,
}

impl DeviceDriver {
    /// A device in process. Fails if its block size is larger than a content block.
    pub fn new(device: Arc<dyn Device>) -> Result<Self> {
        let info = device.info();
        if info.block_size as usize > BLOCK_BYTES {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "a load needs a device with blocks of at most {BLOCK_BYTES} bytes; this one has {}",
                    info.block_size
                ),
            ));
        }
        Ok(Self { device, objects: [ObjectInfo::new(NAME, info.size)], holds_threads: false })
    }

    /// As [`DeviceDriver::new`], of what [`FileEngine::open`] gave.
    pub fn through(engine: FileEngine, device: Arc<dyn Device>) -> Result<Self> {
        Ok(Self { holds_threads: engine.holds_threads(), ..Self::new(device)? })
    }
}

impl Driver for DeviceDriver {
    fn objects(&self) -> &[ObjectInfo] {
        &self.objects
    }

    fn open(&self, runtime: &Runtime) -> Result<Vec<Rc<dyn Queue>>> {
        Ok(vec![self.device.open_queue(runtime)?])
    }

    fn shared(&self) -> Arc<dyn Driver> {
        Arc::new(self.clone())
    }

    fn holds_threads(&self) -> bool {
        self.holds_threads
    }
}
