//! Looks at a state without a file system: it is served as a file, and the oracle reads that.
//!
//! The kernel keeps nothing of the file, so each state is seen as it is. What the oracle writes goes to memory, and is gone
//! with the state.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use rotproof_attach::FuseMount;
use rotproof_block::{Device, Result};
use rotproof_crash::{Check, Contents, Crash, Finding, ImageDevice};
use rotproof_export::{FuseExport, FuseOptions};
use rotproof_machine::registry::{CleanupStack, Run, Undo};

use crate::check::Oracle;

/// Name of the file.
const FILE_NAME: &str = "disk";

/// See the head of the module. Dropped, it takes the file away again.
pub struct RawCheck {
    image: Arc<ImageDevice>,
    file: PathBuf,
    oracle: Box<dyn Oracle>,
    /// Last: the file goes when nobody looks any more.
    _stack: CleanupStack,
}

impl RawCheck {
    /// A check whose file lies in the folder `name` of the run's scratch folder. What is written to a state may take so many
    /// bytes of memory; a state that would take more is *unknown*.
    pub fn new(
        run: &Run,
        name: &str,
        contents: Arc<Contents>,
        scratch_bytes_max: u64,
        oracle: Box<dyn Oracle>,
    ) -> Result<Self> {
        let image = ImageDevice::new(contents, scratch_bytes_max);
        let mut stack = CleanupStack::new(run);
        let folder = run.scratch().join(name);
        stack.create_directory(&folder)?;
        let options = FuseOptions {
            threads: 1,
            epoch: Instant::now(),
            file_name: FILE_NAME.into(),
            ..FuseOptions::default()
        };
        let device = Arc::clone(&image) as Arc<dyn Device>;
        stack.create(FuseMount { path: folder.clone() }, || {
            let export = FuseExport::mount(device, &folder, options)?;
            let undo: Undo = Box::new(move || export.unmount());
            Ok(((), undo))
        })?;
        Ok(Self { image, file: folder.join(FILE_NAME), oracle, _stack: stack })
    }
}

impl Check for RawCheck {
    fn image(&self) -> &Arc<ImageDevice> {
        &self.image
    }

    fn check(&mut self, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        self.oracle.look(&self.file, crash)
    }
}
