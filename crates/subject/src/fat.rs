//! The subject `fat`: a FAT file system in this process, by a library that runs over the stack, without the kernel.

use std::sync::Arc;

use rotproof_block::{Device, Error, Result};
use rotproof_load::FAT_LIBRARY;

use crate::{Attached, Destination, Prepared, SubjectDescription};

/// The library needs the runtime of the load, under virtual time too, so the load's driver makes the volume, mounts,
/// unmounts and mounts it again; here is nothing to take down.
pub(crate) struct Fat(Arc<dyn Device>);

impl Fat {
    pub(crate) fn new(device: Arc<dyn Device>) -> Self {
        Self(device)
    }
}

impl Prepared for Fat {
    fn place(&self) -> Destination {
        Destination::Fat(Arc::clone(&self.0))
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
        SubjectDescription {
            name: "fat".into(),
            tool: Some(FAT_LIBRARY.into()),
            ..SubjectDescription::default()
        }
    }

    fn kernel_messages(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn abort(&self) {}

    fn teardown(self: Box<Self>) -> Vec<Error> {
        Vec::new()
    }
}
