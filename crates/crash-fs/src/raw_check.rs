//! Looks at a state without a file system: it is served as a file, and the oracle reads that.
//!
//! The kernel keeps nothing of the file, so each state is seen as it is. What the oracle writes goes to memory, and is gone
//! with the state. A file that does not show the state any more makes the state *unknown*.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use rotproof_attach::FuseMount;
use rotproof_block::error::IoContext;
use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_crash::{Check, Contents, Crash, Finding, ImageDevice};
use rotproof_export::{FuseExport, FuseOptions};
use rotproof_machine::registry::{CleanupStack, Run, Undo};

use crate::check::Oracle;
use crate::image_check::ImageOracle;
use crate::mounting::signs;

/// Name of the file.
const FILE_NAME: &str = "disk";

/// See the head of the module. Dropped, it takes the file away again.
pub struct RawCheck {
    image: Arc<ImageDevice>,
    file: PathBuf,
    /// Looks first, while nobody has written to the state.
    of_bytes: Option<Box<dyn ImageOracle>>,
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
        Ok(Self { image, file: folder.join(FILE_NAME), of_bytes: None, oracle, _stack: stack })
    }

    /// Lets somebody look at the bytes of each state, too, before the oracle of its file does.
    #[must_use]
    pub fn with_bytes(mut self, oracle: Option<Box<dyn ImageOracle>>) -> Self {
        self.of_bytes = oracle;
        self
    }

    /// Fails if the file does not show the state: what was seen of it then says nothing.
    fn check_file(&self) -> Result<()> {
        let doing = || format!("reading {}, to see whether it shows the state", self.file.display());
        let file = File::open(&self.file).doing(doing)?;
        for (start, length) in signs(self.image.info().size) {
            let (mut seen, mut wanted) = (vec![0; length], vec![0; length]);
            file.read_exact_at(&mut seen, start).doing(doing)?;
            self.image.read_at(start, &mut wanted)?;
            if seen != wanted {
                let what = format!("{} does not show the state that it is to show", self.file.display());
                return Err(Error::new(ErrorKind::Gone, what));
            }
        }
        Ok(())
    }
}

impl Check for RawCheck {
    fn image(&self) -> &Arc<ImageDevice> {
        &self.image
    }

    fn check(&mut self, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        let mut findings = match &mut self.of_bytes {
            Some(oracle) => oracle.look(&self.image, crash)?,
            None => Vec::new(),
        };
        findings.extend(self.oracle.look(&self.file, crash)?);
        self.check_file()?;
        Ok(findings)
    }
}
