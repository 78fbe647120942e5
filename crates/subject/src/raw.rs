//! The subject `raw`: the stack itself, driven in this process, without the kernel.

use std::sync::Arc;

use rotproof_block::{Device, Error, Result};

use crate::{Attached, Destination, Prepared, SubjectDescription};

/// Nothing lies between the load and the stack, so there is nothing to mount and no cache to empty.
pub(crate) struct Raw(Arc<dyn Device>);

impl Raw {
    pub(crate) fn new(device: Arc<dyn Device>) -> Self {
        Self(device)
    }
}

impl Prepared for Raw {
    fn place(&self) -> Destination {
        Destination::Device(Arc::clone(&self.0))
    }

    fn attach(&mut self) -> Result<Attached> {
        Ok(Attached::Up)
    }

    fn detach(&mut self) -> Result<Vec<Error>> {
        Ok(Vec::new())
    }

    fn kill(&mut self) -> Result<()> {
        Ok(())
    }

    fn describe(&self) -> SubjectDescription {
        SubjectDescription { name: "raw".into(), ..SubjectDescription::default() }
    }

    fn kernel_messages(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn abort(&self) {}

    fn teardown(self: Box<Self>) -> Vec<Error> {
        Vec::new()
    }
}
