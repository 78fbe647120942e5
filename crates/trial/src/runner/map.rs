//! What every block is of what a trial works on: its file system is made and its load's files with it, no fault is injected, and
//! what lies on the device then is read.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Instant;

use rotproof_block::{Error, ErrorKind, Phase, Result};
use rotproof_fault::Plan;
use rotproof_kinds::Map;
use rotproof_layers::StackEnvironment;
use rotproof_machine::registry::{Registry, Run};
use rotproof_subject::SubjectEnvironment;

use super::kinds::map_of_device;
use super::memory::MemoryFaults;
use super::steps::Step;
use super::{Backing, Conductor, RunOptions, backing, leaf_watch, not_removed, use_of};
use crate::file::{Stop, TrialFile};

/// Makes the subject of a trial that has been checked, with all that its load makes before its run, takes it down, and reads what every
/// block of its device is. Nothing is injected, and nothing is left but what the stack keeps in files that it names. With the map
/// comes what the subject noticed by itself, such as an error of its unmount.
///
/// Fails with [`ErrorKind::Invalid`] where there is nothing whose blocks have kinds.
pub fn map(trial: &TrialFile, options: &RunOptions) -> Result<(Map, Vec<String>)> {
    if !trial.subject.has_files() && trial.subject.file_system().is_none() {
        let what = format!("the blocks of the subject {} have no kinds", trial.subject.name());
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    if trial.stack.is_recorded() || !trial.stack.is_one_chain() {
        let what = "the kinds of blocks are read from one device: leave `record` and several devices out of the stack";
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let quiet = TrialFile { faults: Vec::new(), crash: None, stop: Stop::Unmount, ..trial.clone() };
    quiet.export.check_chosen().map_err(|error| error.while_doing("`export: ublk`"))?;
    let backing = backing::claim(&quiet.stack, use_of(&quiet, options))?;
    let run = Registry::of_user()?.begin()?;
    let mapped = mapped(&quiet, options, (&run, &backing));
    let left = run.finish();
    match (mapped, left.is_empty()) {
        (mapped, true) => mapped,
        (Ok(_), false) => Err(not_removed(&left)),
        (Err(error), false) => Err(error.while_doing(not_removed(&left))),
    }
}

fn mapped(
    trial: &TrialFile,
    options: &RunOptions,
    (run, backing): (&Run, &Backing),
) -> Result<(Map, Vec<String>)> {
    let plan = Plan::default();
    let environment = SubjectEnvironment {
        run: run.clone(),
        seed: trial.seed,
        epoch: Instant::now(),
        phase: Arc::new(AtomicU8::new(Phase::Setup as u8)),
        export: trial.export,
        export_threads: 1,
        cancel: options.cancel.clone(),
        is_recorded: false,
    };
    options.monitor.begin("setup", None);
    let stack = rotproof_layers::open(
        &trial.whole_stack(),
        &StackEnvironment {
            seed: trial.seed,
            needs_faults: false,
            read_only: backing.is_read_only,
            epoch_ns: 0,
            recordings: None,
        },
    )?;
    let devices = stack.devices.iter().map(|named| Arc::clone(&named.device)).collect();
    let mut subject = rotproof_subject::prepare(&trial.subject, devices, &environment)
        .map_err(|error| leaf_watch::blame(&stack, error))?;
    let memory = Arc::new(MemoryFaults::new(trial.seed, environment.epoch, 0));
    let mut conductor = Conductor {
        memory: &memory,
        trial,
        options,
        results: run.scratch(),
        plan: &plan,
        replay: None,
        stack: &stack,
        environment: &environment,
        probes: None,
        device_watch: None,
        noticed: Vec::new(),
        marks: Arc::default(),
        history: None,
    };
    let steps = [Step::Attach, Step::Make, Step::Prefill, Step::Stop(Stop::Unmount)];
    let made = conductor.carry_out_all(&steps, subject.as_mut());
    let noticed = std::mem::take(&mut conductor.noticed);
    let torn_down = subject.teardown();
    made.map_err(|error| leaf_watch::blame(&stack, error))?;
    if let Some(error) = torn_down.into_iter().next() {
        return Err(error.while_doing("taking the subject down"));
    }
    options.monitor.begin("map", None);
    let named = stack.devices.first();
    let named = named.ok_or_else(|| Error::new(ErrorKind::Internal, "a stack without a device"))?;
    map_of_device(&*named.device).map(|map| (map, noticed))
}
