//! A ublk device.

use std::fmt;

use rotproof_block::Result;
use rotproof_export::{find_ublk, remove_ublk};
use rotproof_machine::registry::{FileIdentity, Keeper, Kind, Resource, read_as};
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
