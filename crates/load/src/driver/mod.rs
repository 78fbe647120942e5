//! How a load reaches its objects. Everything goes through [`Queue`]s, so there is one engine.

mod device;
mod files;

use std::rc::Rc;

use rotproof_block::{Queue, Result, Runtime};

use crate::object::ObjectInfo;
pub use device::DeviceDriver;
pub use files::FileSet;

/// Opens the objects of a load. Shared by the threads of all workers.
pub trait Driver: Send + Sync {
    /// The objects, in a fixed order. Their names are unique.
    fn objects(&self) -> &[ObjectInfo];

    /// Opens one queue for each object, for the runtime of the calling thread. A flush of a queue makes durable what
    /// was written to its object.
    fn open(&self, runtime: &Runtime) -> Result<Vec<Rc<dyn Queue>>>;
}
