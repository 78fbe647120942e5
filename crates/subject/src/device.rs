//! The subject `device`: the stack as a block device of the kernel.

use std::sync::Arc;

use rotproof_block::{Device, Error, Result};
use rotproof_machine::registry::CleanupStack;

use crate::exported::Exported;
use crate::{Attached, Destination, Prepared, SubjectDescription, SubjectEnvironment};

/// A block device of the exported stack.
pub(crate) struct DeviceSubject(Exported);

impl DeviceSubject {
    pub(crate) fn prepare(device: Arc<dyn Device>, environment: &SubjectEnvironment) -> Result<Self> {
        Exported::new(CleanupStack::new(&environment.run), vec![device], environment).map(Self)
    }
}

impl Prepared for DeviceSubject {
    fn place(&self) -> Destination {
        Destination::BlockDevice(
            self.0.devices().first().map_or_else(Default::default, |&device| device.to_owned()),
        )
    }

    fn attach(&mut self) -> Result<Attached> {
        // The kernel looks for partitions at once; that is no part of the load.
        let phase = self.0.enter_setup();
        let attached = self.0.attach();
        self.0.leave_setup(phase);
        attached.map(|()| Attached::Up)
    }

    fn detach(&mut self) -> Result<Vec<Error>> {
        let reported = self.0.flush().err().into_iter().collect();
        self.0.detach().map(|()| reported)
    }

    fn kill(&mut self) -> Result<()> {
        self.0.kill()
    }

    fn describe(&self) -> SubjectDescription {
        SubjectDescription { name: "device".into(), export: self.0.chosen(), ..SubjectDescription::default() }
    }

    fn disks(&self) -> Vec<String> {
        self.0.disks()
    }

    fn kernel_messages(&mut self) -> Vec<String> {
        self.0.kernel_messages()
    }

    fn abort(&self) {
        self.0.abort();
    }

    fn axe(&self) -> Option<crate::Axe> {
        Some(self.0.axe())
    }

    fn teardown(self: Box<Self>) -> Vec<Error> {
        self.0.teardown()
    }
}
