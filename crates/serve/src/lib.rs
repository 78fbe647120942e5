//! Serving a stack to other programs, with faults that may change meanwhile.
//!
//! [`control`] is how its faults are changed, [`metrics`] what can be read of it, and of a run or a load, from outside.
//! Owns the order of the steps: the stack is opened, its exports are made, the control socket listens; on the way out
//! all of it goes again. How an export is made is known in `export`, what a command means in `control`. It
//! knows nothing of terminals.

pub mod control;
mod export;
mod exports;
mod ledger_file;
pub mod metrics;
mod name;
mod nbd;
mod user;
pub mod volume;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::{DeviceInfo, Error, Phase, Result};
use rotproof_fault::{ResolvedRule, RuleState, Sites};
use rotproof_layers::{Stack, StackEnvironment};
use serde::Serialize;

pub use export::{Address, ExportKind};
pub use name::{check_name, name_of, socket_of_name, sockets};
pub use nbd::{NbdServing, TlsServing};
pub use rotproof_export::NbdAddress;

use rotproof_machine::registry::{CleanupStack, Registry, Run};
use rotproof_machine::{Cancel, Claim, Filled, Use};
use rotproof_trial::backing::{self, Backing};
use rotproof_trial::file::TrialFile;

use crate::control::{ControlLimits, ControlServer, Handler, ServedStack};
use crate::metrics::ServedFigures;
use crate::volume::{Keeper, KeeperOptions};
use export::{Exporter, Surroundings};
use exports::Exports;
use ledger_file::LedgerFile;

/// How often the ledger file, the leaf and the wish to stop are looked at.
const INTERVAL: Duration = Duration::from_millis(50);

/// Records of the ledger that stay in memory, for `rotproof ctl injections`: a stack may be served for months.
const KEPT_RECORDS: usize = 16_384;

/// What a stack is served with.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// How commands call it ([`check_name`]).
    pub name: String,
    /// The ways in which it is offered; at least one.
    pub exports: Vec<ExportKind>,
    /// How it is offered over NBD, if it is.
    pub nbd: NbdServing,
    /// The number of a ublk device to take over from a server that has died, if it is offered as one.
    pub recover: Option<u32>,
    /// Where its control socket is; by default that of its name.
    pub socket: Option<PathBuf>,
    /// A file for the ledger, which must not exist yet.
    pub ledger: Option<PathBuf>,
    /// Permits writing to a device or file that holds anything but what was served there before.
    pub overwrite: bool,
    /// A command that is told of what happens to the volume in the stack, as a shell takes it.
    pub hook: Option<String>,
    /// Bytes a second at most of a rebuild of that volume that begins by itself.
    pub rebuild_rate: Option<u64>,
    /// Versions of that volume that are offered beside it, each as a device that can only be read.
    pub beside: Vec<u64>,
}

/// Where a stack is to be found.
#[derive(Clone, Debug, Serialize)]
pub struct Ready {
    /// How commands call it.
    pub name: String,
    /// The process that serves it.
    pub pid: u32,
    /// Size in bytes, of several devices all together.
    pub size_bytes: u64,
    /// Unit of addressing in bytes, of several devices the largest.
    pub block_size_bytes: u32,
    /// Rules that it begins with.
    pub rules: usize,
    /// The ways in which it is offered, in the order asked for; NBD once for each place it listens at.
    pub exports: Vec<Address>,
    /// The control socket.
    pub control: PathBuf,
}

/// A stack that is served. Dropped without [`Served::end`], it ends everything by force where it must.
pub struct Served {
    run: Option<Run>,
    stack: Stack,
    sites: Sites,
    phase: Arc<AtomicU8>,
    control: Option<ControlServer>,
    keeper: Option<Arc<Keeper>>,
    exports: Arc<Exports>,
    ledger: Option<LedgerFile>,
    ready: Ready,
    /// Last, so that they outlive all that stands on them.
    _backing: Backing,
    _claims: Arc<Mutex<Vec<Claim>>>,
}

impl Served {
    /// Opens and offers the stack of `file`, which was read by [`TrialFile::open_to_serve`]. On an error nothing that
    /// it created is left.
    pub fn begin(file: &TrialFile, options: &ServeOptions) -> Result<Self> {
        check_name(&options.name)?;
        for kind in &options.exports {
            kind.check_requirements()?;
        }
        // Whoever takes over goes on with what the other one has left.
        let overwrite = options.overwrite || options.recover.is_some();
        let backing = backing::claim(&file.stack, Use::fill(Filled::ByClients, overwrite))?;
        let registry = Registry::of_user()?;
        let socket = match &options.socket {
            Some(path) => std::path::absolute(path)
                .map_err(|error| Error::from_io(error, format!("the path {}", path.display())))?,
            None => socket_of_name(registry.folder(), &options.name),
        };
        let run = registry.begin()?;
        let mut cleanup = CleanupStack::new(&run);
        // First of all: it tells whether the name is free.
        let listener = name::listen(&mut cleanup, &options.name, &socket)?;
        let ledger = options.ledger.as_deref().map(LedgerFile::create).transpose()?;
        let (epoch, epoch_ns) = (Instant::now(), volume::time_ns());
        let environment = StackEnvironment {
            seed: file.seed,
            needs_faults: true,
            read_only: false,
            epoch_ns,
            recordings: None,
        };
        let stack = rotproof_layers::open(&file.whole_stack(), &environment)?;
        let sites = stack.sites.clone();
        let rules: Vec<ResolvedRule> = file.plan()?.rules.into_iter().map(ResolvedRule::from).collect();
        let rule_count = rules.len();
        sites.add_rules(rules)?;
        // Faults sleep until all is ready: the kernel looks for partitions on a new device.
        let phase = Arc::new(AtomicU8::new(Phase::Setup as u8));
        let surroundings = Surroundings {
            folder: run.scratch().to_owned(),
            seed: file.seed,
            epoch,
            phase: Arc::clone(&phase),
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(2),
            nbd: options.nbd.clone(),
            recover: options.recover,
        };
        let devices = volume::with_versions(&stack, &options.beside)?;
        let infos: Vec<DeviceInfo> = devices.iter().map(|named| named.device.info()).collect();
        let exporter = Exporter::new(devices, surroundings);
        let exports = Arc::new(Exports::open(exporter, &options.exports, cleanup)?);
        let ready = Ready {
            name: options.name.clone(),
            pid: std::process::id(),
            size_bytes: infos.iter().map(|info| info.size).sum(),
            block_size_bytes: infos.iter().map(|info| info.block_size).max().unwrap_or_default(),
            rules: rule_count,
            exports: exports.addresses(),
            control: socket,
        };
        let served = ServedStack { ready: ready.clone(), began: Instant::now() };
        let claims: Arc<Mutex<Vec<Claim>>> = Arc::default();
        let keeper = match stack.volumes() {
            [one] => {
                let options = KeeperOptions {
                    name: options.name.clone(),
                    hook: options.hook.clone(),
                    rebuild_rate: options.rebuild_rate,
                    epoch,
                };
                Some(Keeper::start(Arc::clone(one), options, Arc::clone(&claims), Arc::clone(&exports))?)
            }
            _ => None,
        };
        let handler = Handler::new(sites.clone(), served)
            .with_volume(keeper.clone())
            .with_exports(Arc::clone(&exports));
        let control = ControlServer::start(listener, handler, ControlLimits::default())?;
        phase.store(Phase::Run as u8, Ordering::SeqCst);
        Ok(Self {
            run: Some(run),
            stack,
            sites,
            phase,
            control: Some(control),
            keeper,
            exports,
            ledger,
            ready,
            _backing: backing,
            _claims: claims,
        })
    }

    /// What there is to tell of it while it is served.
    pub fn figures(&self) -> ServedFigures {
        ServedFigures {
            name: self.ready.name.clone(),
            sites: self.sites.clone(),
            keeper: self.keeper.clone(),
        }
    }

    /// Where it is to be found.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Whether there is nothing to serve any more: the volume in it was destroyed, and whoever wanted that knows.
    pub fn is_over(&self) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.is_over())
    }

    /// Serves until somebody wants it to stop, or there is nothing to serve any more. Tells `notice` once of the leaf's own failure, which is none of ours,
    /// and goes on. Fails if the ledger cannot be written.
    pub fn until_cancelled(&mut self, cancel: &Cancel, mut notice: impl FnMut(&str)) -> Result<()> {
        let mut has_told = false;
        while !cancel.is_cancelled() && !self.is_over() {
            std::thread::sleep(INTERVAL);
            if let Some(ledger) = &mut self.ledger {
                ledger.append_new(self.sites.ledger())?;
            }
            self.sites.ledger().keep_last(KEPT_RECORDS);
            if !has_told && let Err(error) = self.stack.check_leaves() {
                has_told = true;
                notice(&format!(
                    "what the stack stands on has failed by itself, which is no fault of a rule: {error}"
                ));
            }
        }
        Ok(())
    }

    /// Takes everything down, the last made first, with the faults disabled and nothing hanging. Gives all that went
    /// wrong; what could not be removed stays in the run's record, for `rotproof clean`.
    pub fn end(mut self) -> Vec<Error> {
        self.put_to_rest();
        let mut failures = self.exports.end();
        if let Some(ledger) = self.ledger.take() {
            failures.extend(ledger.finish(self.sites.ledger()).err());
        }
        if let Some(run) = self.run.take() {
            failures.extend(run.finish());
        }
        failures
    }

    fn put_to_rest(&mut self) {
        drop(self.control.take());
        if let Some(keeper) = &self.keeper {
            keeper.stop();
        }
        self.phase.store(Phase::Setup as u8, Ordering::SeqCst);
        // One that has been decided on may begin to hang any moment; those of a paused rule do not.
        let acting: Vec<String> = self
            .sites
            .report()
            .into_iter()
            .filter_map(|report| (report.state == RuleState::Active).then_some(report.name))
            .collect();
        // Nobody else changes rules any more, so none of the names is wrong.
        let _ = self.sites.set_states(&acting, RuleState::Paused);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.put_to_rest();
        if self.run.is_some() {
            // An error or a panic: nobody waits for the data any more. What then could not be undone stays in the run's record.
            self.exports.abort();
            self.exports.give_up();
        }
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Served({})", self.ready.name)
    }
}
