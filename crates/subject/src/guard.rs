//! The subject `guard`: files of a file system, or of a machine, through a guard's mount.
//!
//! The mount is served by a process of its own, since it maps files that lie on the device that this process serves
//! (`docs/decisions/029-mappings-apart.md`).

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_attach::FuseMount;
use rotproof_block::error::IoContext;
use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_export::unmount_when_free;
use rotproof_guard::{Algorithm, Pair, Store, StoreOptions};
use rotproof_machine::registry::{CleanupStack, Resource, Undo};

use crate::{
    Attached, Destination, GuestMemory, Prepared, SubjectDescription, SubjectEnvironment, joined, prepare,
};
use crate::{GuardMode, GuardSpec};

/// How long the mount may take to be there.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// How long it may be busy when it is unmounted, and its process may take to write its tables.
const END_PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const HUNG: &str = "the guard's process did not end after its unmount, and was killed";

/// A guard over another subject's folder.
pub(crate) struct GuardSubject {
    // Before what is below: it is undone first.
    stack: CleanupStack,
    below: Box<dyn Prepared>,
    spec: GuardSpec,
    mountpoint: PathBuf,
    mark: usize,
    /// The tables are there.
    is_init: bool,
    /// The process that serves the mount. Whoever ends it takes it out.
    server: Arc<Mutex<Option<Child>>>,
    /// It was ended by force, because it did not end by itself.
    hung: Arc<AtomicBool>,
}

impl GuardSubject {
    pub(crate) fn prepare(
        spec: &GuardSpec,
        devices: Vec<Arc<dyn Device>>,
        environment: &SubjectEnvironment,
    ) -> Result<Self> {
        let below = prepare(&spec.over, devices, environment)?;
        let mut stack = CleanupStack::new(&environment.run);
        let mountpoint = environment.run.scratch().join("guard");
        stack.create_directory(&mountpoint)?;
        let mark = stack.height();
        let (server, hung) = (Arc::default(), Arc::default());
        Ok(Self { stack, below, spec: spec.clone(), mountpoint, mark, is_init: false, server, hung })
    }

    /// What is guarded.
    fn folder(&self) -> Result<PathBuf> {
        match self.below.place() {
            Destination::Folder(folder) => Ok(folder),
            _ => Err(Error::new(ErrorKind::Invalid, "a guard is over files of a kernel's file system")),
        }
    }

    fn mount(&mut self) -> Result<()> {
        let folder = self.folder()?;
        if !self.is_init {
            drop(Store::init(&folder, None, options(&self.spec))?);
            self.is_init = true;
        }
        let (mountpoint, mode) = (self.mountpoint.clone(), self.spec.mode);
        let (server, hung) = (Arc::clone(&self.server), Arc::clone(&self.hung));
        self.stack.create(FuseMount { path: mountpoint.clone() }, || {
            *server.lock() = Some(serve(&folder, &mountpoint, mode)?);
            let undo: Undo = Box::new(move || end(&server, &hung, &mountpoint));
            Ok(((), undo))
        })
    }
}

/// The sums that are compared. End to end there is one only: it is the light and the strong one.
fn options(spec: &GuardSpec) -> StoreOptions {
    let default = StoreOptions::default();
    let pair = match spec.mode {
        GuardMode::EndToEnd => Pair { light: Algorithm::Xxh3, strong: Algorithm::Xxh3 },
        GuardMode::Plain | GuardMode::Z2 => default.pair,
    };
    let switch_seconds = spec.switch.map(|span| u32::try_from(span.0.as_secs()).unwrap_or(u32::MAX));
    StoreOptions { pair, switch_seconds }
}

/// Starts this program once more, and waits until the mount is there.
fn serve(folder: &Path, mountpoint: &Path, mode: GuardMode) -> Result<Child> {
    let doing = || format!("serving the guard of {}", folder.display());
    // By this name it is found also where the file has been replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("rotproof").args(["guard", "mount", "--allow-other", "--mode", mode.word()]);
    command.arg(folder).arg(mountpoint).stdin(Stdio::null()).stdout(Stdio::null());
    // Ctrl-C in the terminal is for the run, which ends it in order.
    let mut server = command.stderr(Stdio::null()).process_group(0).spawn().doing(doing)?;
    let began = Instant::now();
    let resource = FuseMount { path: mountpoint.to_owned() };
    let why = loop {
        match (resource.exists(), server.try_wait()) {
            (Ok(true), _) => return Ok(server),
            (Err(error), _) => break error.to_string(),
            (_, Ok(Some(ended))) => break format!("it ended with {ended}"),
            _ if began.elapsed() > START_PATIENCE => break "it did not mount in time".to_owned(),
            _ => std::thread::sleep(LOOK_EVERY),
        }
    };
    let _ = server.kill();
    let _ = server.wait();
    Err(Error::new(ErrorKind::Gone, format!("{}: {why}", doing())))
}

/// Unmounts, and waits until the tables are on what is below. A process that does not end is killed, and `hung` says so.
fn end(server: &Mutex<Option<Child>>, hung: &AtomicBool, mountpoint: &Path) -> Result<()> {
    let unmounted = unmount_when_free(mountpoint, END_PATIENCE);
    let Some(mut server) = server.lock().take() else { return unmounted };
    let began = Instant::now();
    loop {
        match server.try_wait() {
            Ok(Some(_)) => return unmounted,
            Ok(None) if began.elapsed() < END_PATIENCE => std::thread::sleep(LOOK_EVERY),
            _ => break,
        }
    }
    let _ = server.kill();
    let _ = server.wait();
    hung.store(true, Ordering::Relaxed);
    unmounted
}

impl Prepared for GuardSubject {
    fn place(&self) -> Destination {
        Destination::Folder(self.mountpoint.clone())
    }

    fn attach(&mut self) -> Result<Attached> {
        Ok(match self.below.attach()? {
            Attached::Up => self.mount().map_or_else(Attached::Refused, |()| Attached::Up),
            refused => refused,
        })
    }

    fn detach(&mut self) -> Result<Vec<Error>> {
        joined(self.stack.undo_to(self.mark)).map_or(Ok(()), Err)?;
        let hung = self.hung.swap(false, Ordering::Relaxed);
        let hung = hung.then(|| Error::new(ErrorKind::TimedOut, HUNG));
        let below = self.below.detach()?;
        Ok(hung.into_iter().chain(below).collect())
    }

    fn kill(&mut self) -> Result<()> {
        self.abort();
        let failures = self.stack.undo_to(self.mark);
        let below = self.below.kill();
        joined(failures).map_or(below, Err)
    }

    fn describe(&self) -> SubjectDescription {
        let below = self.below.describe();
        SubjectDescription { name: format!("guard over {}", below.name), ..below }
    }

    fn disks(&self) -> Vec<String> {
        self.below.disks()
    }

    fn kernel_messages(&mut self) -> Vec<String> {
        self.below.kernel_messages()
    }

    fn console(&self) -> Option<String> {
        self.below.console()
    }

    fn memory(&self) -> Option<GuestMemory> {
        self.below.memory()
    }

    fn guard(&self) -> Option<u32> {
        self.server.lock().as_ref().map(Child::id)
    }

    fn abort(&self) {
        // Before what is below: it shall not take that for a device that fails.
        if let Some(mut server) = self.server.lock().take() {
            let _ = server.kill();
            let _ = server.wait();
        }
        self.below.abort();
    }

    fn teardown(mut self: Box<Self>) -> Vec<Error> {
        let mut failures = self.stack.undo_all();
        failures.extend(self.below.teardown());
        failures
    }
}
