//! A loop device over a file of the run.

use std::fmt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Instant;

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_export::{detach_path, find_by_backing_file};
use rotproof_machine::registry::{FileIdentity, Keeper, Kind, Resource, read_as};
use serde::{Deserialize, Serialize};

use crate::mount::{BUSY_INTERVAL, BUSY_MAX};

/// The loop device, whatever its number, over a file that belongs to the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loop {
    /// The file below it, absolute.
    pub backing_file: PathBuf,
}

/// What the record calls it.
pub(crate) const WORD: &str = "loop";

pub(crate) static LOOP: Kind =
    Kind { word: WORD, read: read_as::<Loop>, kept_by: Keeper::Kernel, goes_first: false, finds: &[] };

impl fmt::Display for Loop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the loop device over {}", self.backing_file.display())
    }
}

impl Resource for Loop {
    fn kind(&self) -> &'static Kind {
        &LOOP
    }

    fn exists(&self) -> Result<bool> {
        Ok(!find_by_backing_file(&self.backing_file).is_empty())
    }

    fn remove(&self, _made: Option<FileIdentity>) -> Result<()> {
        detach_all(&self.backing_file)
    }
}

fn detach_all(backing_file: &Path) -> Result<()> {
    let deadline = Instant::now() + BUSY_MAX;
    loop {
        let devices = find_by_backing_file(backing_file);
        if devices.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Error::new(
                ErrorKind::Os(libc::EBUSY),
                format!(
                    "{} is still in use by another program; the kernel detaches it when that ends",
                    devices[0].device.display()
                ),
            ));
        }
        for entry in devices {
            detach_path(&entry.device)?;
        }
        sleep(BUSY_INTERVAL);
    }
}
