//! Two members of RAM with faults below each, as files that the kernel sees.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Instant;

use rotproof_attach::{FuseMount, Loop};
use rotproof_block::Result;
use rotproof_block::leaf::MemoryDevice;
use rotproof_export::{FuseExport, FuseOptions, LoopDevice, LoopOptions};
use rotproof_fault::{Engine, EngineOptions, ResolvedRule, RuleState};
use rotproof_layers::FaultDevice;
use rotproof_machine::registry::{CleanupStack, Run, Undo};

use crate::aim::{Aim, AimedDevice, Recognise};

/// Bytes of a member: more than mkfs.btrfs wants at least, and than where its second super block lies.
pub(crate) const MEMBER_BYTES: u64 = 160 << 20;

/// The members of a cell. Dropped, they are taken away.
pub(crate) struct Members {
    pub(crate) stack: CleanupStack,
    pub(crate) aims: Vec<Arc<Aim>>,
    /// The folder of the cell.
    pub(crate) folder: PathBuf,
    /// The members as files.
    pub(crate) files: Vec<PathBuf>,
    exports: Vec<Weak<FuseExport>>,
}

impl Members {
    /// Serves two blank members below the folder `name` of the run's scratch folder.
    pub(crate) fn new(run: &Run, name: &str, seed: u64, recognise: Recognise) -> Result<Self> {
        let folder = run.scratch().join(name);
        let mut stack = CleanupStack::new(run);
        stack.create_directory(&folder)?;
        let (mut aims, mut files, mut exports) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..2u64 {
            let medium = MemoryDevice::new(MEMBER_BYTES, 4096)?;
            let options = EngineOptions { seed: seed ^ number << 32, device_size: MEMBER_BYTES };
            let engine = Engine::new(Vec::new(), options);
            let aim = Aim::new(Arc::clone(&engine), seed, recognise);
            let device = AimedDevice::new(FaultDevice::new(medium, engine), Arc::clone(&aim));
            let served = folder.join(format!("member-{number}"));
            stack.create_directory(&served)?;
            let options = FuseOptions { threads: 1, epoch: Instant::now(), ..FuseOptions::default() };
            files.push(served.join(&options.file_name));
            let export = stack.create(FuseMount { path: served.clone() }, || {
                let export = Arc::new(FuseExport::mount(device, &served, options)?);
                let weak = Arc::downgrade(&export);
                let undo: Undo = Box::new(move || {
                    let done = export.unmount();
                    if done.is_err() {
                        export.abort();
                    }
                    done
                });
                Ok((weak, undo))
            })?;
            exports.push(export);
            aims.push(aim);
        }
        Ok(Self { stack, aims, folder, files, exports })
    }

    /// The members as loop devices.
    pub(crate) fn attach(&mut self) -> Result<Vec<PathBuf>> {
        let options = LoopOptions { direct_io: true, read_only: false, block_size: Some(4096) };
        let mut attached = Vec::new();
        for file in &self.files {
            attached.push(self.stack.create(Loop { backing_file: file.clone() }, || {
                let device = LoopDevice::attach(file, options)?;
                let path = device.path().to_owned();
                let undo: Undo = Box::new(move || device.detach());
                Ok((path, undo))
            })?);
        }
        Ok(attached)
    }

    /// What ends the members at once: every request to them fails.
    pub(crate) fn abort(&self) -> impl Fn() + Send + use<> {
        let exports = self.exports.clone();
        move || exports.iter().filter_map(Weak::upgrade).for_each(|export| export.abort())
    }

    /// Faults act from now on, or no more.
    pub(crate) fn wake(&self, is_awake: bool) {
        self.aims.iter().for_each(|aim| aim.wake(is_awake));
    }

    /// A rule at these members.
    pub(crate) fn add(&self, member: usize, rule: ResolvedRule) -> Result<()> {
        self.aims[member].engine.add_rules(vec![rule]).map(drop)
    }

    /// Rules act no more; what they have stored wrong stays wrong until it is overwritten. How often they had acted, and whether
    /// what was aimed at was ever written.
    pub(crate) fn end_rules(&self) -> Result<(u64, bool)> {
        let (mut hits, mut is_seen) = (0, false);
        for aim in &self.aims {
            is_seen |= aim.disarm();
            let reports = aim.engine.report();
            hits += reports.iter().map(|report| report.hits).sum::<u64>();
            let names: Vec<String> = reports
                .into_iter()
                .filter(|report| report.state != RuleState::Removed)
                .map(|report| report.name)
                .collect();
            aim.engine.set_states(&names, RuleState::Removed)?;
        }
        Ok((hits, is_seen))
    }
}
