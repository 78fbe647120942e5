//! A device of ours as the kernel of a guest sees it. One guest mounts state after state: with the last user of its disk it forgets
//! what it has read of it. A guest that a state brings down is a finding, and the next state gets another.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rotproof_attach::FuseMount;
use rotproof_block::error::IoContext;
use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_crash::ImageDevice;
use rotproof_export::{FuseExport, FuseOptions};
use rotproof_guest::{End, Guest, GuestDisk, GuestFolder, GuestOptions};
use rotproof_machine::Cancel;
use rotproof_machine::registry::{CleanupStack, Process, Run, Undo};
use rotproof_subject::MachineSpec;

use crate::mounting::{Mounting, signs};

/// See the head of the module. Dropped, it takes all of it away again.
pub struct GuestScene {
    stack: CleanupStack,
    /// How high the clean-up stack is without a guest.
    guest_mark: usize,
    spec: MachineSpec,
    cancel: Cancel,
    scratch: PathBuf,
    block_bytes: u32,
    file: PathBuf,
    mountpoint: PathBuf,
    console: PathBuf,
    /// How much of the console was told.
    told: u64,
    guest: Option<Arc<Guest>>,
    /// Whether its files have extended attributes here.
    has_attributes: bool,
    /// How the last guest ended that came to its end by itself.
    ended: Option<End>,
    /// Why nobody knows what the state last mounted has done to the guest, if it is so.
    vanished: Mutex<Option<String>>,
    /// The files of the guest, while they are shown.
    folder: Arc<Mutex<Option<GuestFolder>>>,
}

impl GuestScene {
    /// Serves `device` in the folder `name` of the run's scratch folder, which must not exist yet, for guests as `spec` has them.
    pub fn new(
        run: &Run,
        name: &str,
        device: Arc<dyn Device>,
        (spec, cancel): (&MachineSpec, &Cancel),
    ) -> Result<Self> {
        let mut stack = CleanupStack::new(run);
        let scratch = run.scratch().join(name);
        let (served, mountpoint) = (scratch.join("served"), scratch.join("mount"));
        for path in [&scratch, &served, &mountpoint] {
            stack.create_directory(path)?;
        }
        let console = scratch.join("console");
        drop(stack.create_file(&console)?);
        let block_bytes = device.info().block_size;
        let options =
            FuseOptions { threads: 1, epoch: Instant::now(), allow_other: true, ..FuseOptions::default() };
        let file = served.join(&options.file_name);
        stack.create(FuseMount { path: served.clone() }, || {
            let export = FuseExport::mount(device, &served, options)?;
            let undo: Undo = Box::new(move || export.unmount());
            Ok(((), undo))
        })?;
        // Recorded once, for all the mounts that will be made here.
        let folder = Arc::new(Mutex::new(None::<GuestFolder>));
        stack.create(FuseMount { path: mountpoint.clone() }, || {
            let shown = Arc::clone(&folder);
            let undo: Undo = Box::new(move || shown.lock().take().map_or(Ok(()), |folder| folder.unmount()));
            Ok(((), undo))
        })?;
        Ok(Self {
            guest_mark: stack.height(),
            stack,
            spec: spec.clone(),
            cancel: cancel.clone(),
            scratch,
            block_bytes,
            file,
            mountpoint,
            console,
            told: 0,
            guest: None,
            has_attributes: false,
            ended: None,
            vanished: Mutex::default(),
            folder,
        })
    }

    /// The same, whose files have extended attributes here: each write to one takes two messages to the guest.
    #[must_use]
    pub fn with_attributes(mut self) -> Self {
        self.has_attributes = true;
        self
    }

    /// How a guest has come to its end by itself since this was asked last, if one has.
    pub fn take_end(&mut self) -> Option<End> {
        self.ended.take()
    }

    /// The guest that mounts states, if one does at the moment.
    pub fn current(&self) -> Option<&Arc<Guest>> {
        self.guest.as_ref()
    }

    /// Starts a guest, if there is none. Fails as one that does not come up.
    pub fn start(&mut self) -> Result<()> {
        self.guest().map(drop)
    }

    /// Takes all of it away, and says what could not be.
    pub fn end(mut self) -> Vec<Error> {
        if let Some(guest) = self.guest.take() {
            guest.kill();
        }
        self.stack.undo_all()
    }

    /// The guest; started if there is none.
    fn guest(&mut self) -> Result<Arc<Guest>> {
        if let Some(guest) = &self.guest {
            return Ok(Arc::clone(guest));
        }
        let guest = Arc::new(Guest::start(&GuestOptions {
            kind: self.spec.guest_kind()?,
            disk: GuestDisk::File { path: &self.file, block_bytes: self.block_bytes },
            memory_bytes: self.spec.memory.0,
            console: &self.console,
            scratch: &self.scratch,
            holds_dirty: false,
            writes_through: false,
            snapshots: self.spec.snapshot_folder().as_deref(),
            cancel: &self.cancel,
        })?);
        let ends = Arc::clone(&guest);
        self.stack.create(Process(guest.identity()), || {
            let undo: Undo = Box::new(move || {
                ends.kill();
                Ok(())
            });
            Ok(((), undo))
        })?;
        if self.has_attributes {
            guest.serve_attributes()?;
        }
        self.guest = Some(Arc::clone(&guest));
        // What it has said while it started is not about a state.
        self.told = std::fs::metadata(&self.console).map_or(0, |about| about.len());
        Ok(guest)
    }

    /// How the guest has ended, if it has. It is let go, and the next state gets another. A panic is its kernel's word on the state;
    /// of a guest that hangs, or whose process is gone, nobody can say whether the state is to blame.
    fn lost(&mut self) -> Option<End> {
        let end = self.guest.as_ref()?.end()?;
        if !matches!(end, End::Panic(_)) {
            *self.vanished.lock() = Some(end.to_string());
        }
        let _ = self.let_go();
        self.ended = Some(end.clone());
        Some(end)
    }

    /// Ends the guest, and what is shown of its files.
    fn let_go(&mut self) -> Result<()> {
        if let Some(guest) = self.guest.take() {
            // Whoever waits for it gets an error, and lets go of its folder.
            guest.kill();
        }
        let folder = self.folder.lock().take();
        let unmounted = folder.map_or(Ok(()), |folder| folder.unmount());
        let failures = self.stack.undo_to(self.guest_mark);
        failures.into_iter().next().map_or(unmounted, Err)
    }
}

impl Mounting for GuestScene {
    /// The guest forgets what it has read with the last user of its disk, and this machine keeps nothing of it.
    fn changed(&self, _: &[Range<u64>], _: &ImageDevice) -> Result<()> {
        Ok(())
    }

    fn needs_no_flushes(&self) {}

    fn keep_reads(&mut self, _: bool) -> Result<()> {
        Ok(())
    }

    fn check(&self, image: &ImageDevice) -> Result<()> {
        if let Some(why) = self.vanished.lock().take() {
            let context = format!("the guest that had mounted the state is gone: {why}");
            return Err(Error::new(ErrorKind::Gone, context));
        }
        let doing = || format!("reading {}, to see whether it shows the state", self.file.display());
        let file = File::open(&self.file).doing(doing)?;
        for (start, length) in signs(image.info().size) {
            let (mut seen, mut wanted) = (vec![0; length], vec![0; length]);
            file.read_exact_at(&mut seen, start).doing(doing)?;
            image.read_at(start, &mut wanted)?;
            if seen != wanted {
                let what = format!("{} does not show the state that it is to show", self.file.display());
                return Err(Error::new(ErrorKind::Gone, what));
            }
        }
        Ok(())
    }

    fn device(&self) -> &Path {
        &self.file
    }

    fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    fn mount(&mut self, options: &[String]) -> Result<()> {
        // A guest that does not come up says nothing of the state, which nobody has touched.
        let guest = self.guest().map_err(|error| {
            Error::new(ErrorKind::TimedOut, "no guest comes up to mount the state").caused_by(error)
        })?;
        if let Err(error) = guest.mount(self.spec.file_system.kind.name(), &options.join(",")) {
            return Err(match self.lost() {
                Some(end @ End::Panic(_)) => {
                    Error::new(ErrorKind::Gone, format!("the guest's kernel: {end}"))
                }
                Some(end) => Error::new(ErrorKind::TimedOut, format!("the guest is gone: {end}")),
                None => error,
            });
        }
        let shown = guest.show(&self.mountpoint)?;
        *self.folder.lock() = Some(shown);
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        let folder = self.folder.lock().take();
        let Some(folder) = folder else { return Ok(()) };
        let unmounted = folder.unmount();
        let unmounted = match &self.guest {
            Some(guest) => unmounted.and_then(|()| guest.unmount()),
            None => unmounted,
        };
        match unmounted {
            Ok(()) => Ok(()),
            // Its words are on the console. Nothing of it is left that could use the disk.
            Err(_) if self.lost().is_some() => Ok(()),
            Err(error) => {
                // It is this machine that ends the guest, so nobody knows how it would have left the state.
                *self.vanished.lock() =
                    Some(format!("it was ended, as it did not unmount the state: {error}"));
                self.let_go()
            }
        }
    }

    fn wait_until_free(&self) -> Result<()> {
        Ok(())
    }

    fn forget(&self) -> Result<()> {
        Ok(())
    }

    fn kernel_words(&mut self) -> Vec<String> {
        let bytes = std::fs::read(&self.console).unwrap_or_default();
        let start = usize::try_from(self.told).unwrap_or_default().min(bytes.len());
        self.told = bytes.len() as u64;
        String::from_utf8_lossy(&bytes[start..]).lines().map(str::to_owned).collect()
    }
}
