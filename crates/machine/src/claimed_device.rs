//! A device that is used under a [`Claim`].

use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::{Device, DeviceInfo, Queue, Result, Runtime};

use crate::Claim;

/// A device and the right to use it, which lasts as long.
pub struct ClaimedDevice {
    // Dropped in this order.
    device: Arc<dyn Device>,
    _claim: Claim,
}

impl ClaimedDevice {
    /// `device` was opened under `claim`.
    pub fn new(device: Arc<dyn Device>, claim: Claim) -> Arc<Self> {
        Arc::new(Self { device, _claim: claim })
    }
}

impl Device for ClaimedDevice {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        self.device.open_queue(runtime)
    }
}
