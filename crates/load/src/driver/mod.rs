//! How a load reaches its objects. Everything goes through [`Queue`]s, so there is one engine.

mod blocking;
mod blocking_file;
mod device;
mod fat;
mod file_engine;
mod files;
mod mapped_file;
mod mapping;

use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::{Error, ErrorKind, Phase, Queue, Request, Result, Runtime, Submission};

use crate::engine::RunOn;
use crate::object::ObjectInfo;
pub use blocking_file::BlockingFile;
pub use device::DeviceDriver;
pub use fat::{FAT_DEVICE_BYTES_MIN, FAT_FILE_BYTES_MAX, FAT_LIBRARY, FatSet};
pub use file_engine::{FileAccess, FileEngine};
pub use files::FileSet;
pub use mapped_file::MappedFile;
pub use mapping::{VERB as HOLD_MAPPINGS, hold_mappings};

/// Opens the objects of a load. Shared by the threads of all workers.
pub trait Driver: Send + Sync {
    /// The objects, in a fixed order. Their names are unique.
    fn objects(&self) -> &[ObjectInfo];

    /// Opens one queue for each object, for the runtime of the calling thread. A flush of a queue makes durable what
    /// was written to its object.
    fn open(&self, runtime: &Runtime) -> Result<Vec<Rc<dyn Queue>>>;

    /// The same objects, for threads that may have to be left behind.
    fn shared(&self) -> Arc<dyn Driver>;

    /// Whether a request holds the thread that submits it until it is done.
    fn holds_threads(&self) -> bool {
        false
    }

    /// Ok as long as what carries out the requests is itself there. An error is one of this machine, never a finding about
    /// the objects.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Ends the use of the objects after the last queue is gone, and writes what is still kept back, as requests of
    /// `phase`. An error is one that users of the objects would see too. Nothing may be opened any more.
    fn close(&self, _phase: Phase, _on: RunOn<'_>) -> Result<()> {
        Ok(())
    }
}

/// Fails everything: an object that cannot be opened.
struct Lost(ErrorKind);

impl Queue for Lost {
    fn submit(&self, request: Request) -> Submission {
        request.fail(Error::new(self.0, "the file cannot be opened")).into()
    }
}
