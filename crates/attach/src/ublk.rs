//! A ublk device.

use std::fmt;
use std::sync::Arc;

use rotproof_block::{Device, ErrorKind, Result};
use rotproof_export::{UblkDevice, UblkOptions, find_ublk, free_ublk_number, remove_ublk};
use rotproof_machine::registry::{CleanupStack, FileIdentity, Keeper, Kind, Resource, Undo, read_as};
use serde::{Deserialize, Serialize};

/// A ublk device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ublk {
    /// The number in the names of its files.
    pub number: u32,
    /// The number that its maker gave it; another's may get the same number of the kernel later.
    pub owner: u64,
}

pub(crate) static UBLK: Kind =
    Kind { word: "ublk", read: read_as::<Ublk>, kept_by: Keeper::Kernel, goes_first: false, finds: &[] };

impl Ublk {
    /// Serves `device` as a new one, under the first number that is free; its undo stops it. Fails as [`UblkDevice::add`].
    pub fn create(
        cleanup: &mut CleanupStack,
        device: &Arc<dyn Device>,
        options: &UblkOptions,
    ) -> Result<Arc<UblkDevice>> {
        let mut from = 0;
        loop {
            let number = free_ublk_number(from);
            from = number.saturating_add(1);
            let made = cleanup.create(Self { number, owner: options.owner }, || {
                let served = Arc::new(UblkDevice::add(device, number, options)?);
                let stopped = Arc::clone(&served);
                let undo: Undo = Box::new(move || stopped.stop());
                Ok((served, undo))
            });
            match made {
                // Somebody was faster.
                Err(error) if error.kind() == ErrorKind::Os(libc::EEXIST) => {}
                made => return made,
            }
        }
    }
}

impl fmt::Display for Ublk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ublk device {}", self.number)
    }
}

impl Resource for Ublk {
    fn kind(&self) -> &'static Kind {
        &UBLK
    }

    /// Whether there is that device and no other process serves it: one that was taken over is the new server's.
    fn exists(&self) -> Result<bool> {
        let is_ours = |pid: u32| pid == std::process::id();
        let found = find_ublk(self.number)?;
        Ok(found.is_some_and(|found| found.owner == self.owner && found.server.is_none_or(is_ours)))
    }

    fn remove(&self, _made: Option<FileIdentity>) -> Result<()> {
        if self.exists()? { remove_ublk(self.number) } else { Ok(()) }
    }
}
