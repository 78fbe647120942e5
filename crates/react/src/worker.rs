//! Does cells on a device of its own, each on a thread that may be given up: a file system that hangs takes nobody with it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_export::abort_path;
use rotproof_machine::registry::Run;

use crate::act::{Acted, Sets, act};
use crate::cell::{Cell, Done, Outcome};
use crate::guest_stage::GuestStage;
use crate::judge::{is_met, judge};
use crate::medium::{Harm, Medium};
use crate::operation::Operation;
use crate::scout::Scout;
use crate::stage::{Helper, HostStage, Stage};
use crate::system::{System, machine};
use crate::zfs_stage::ZfsStage;

/// How long it then may take to end, once it is helped to.
const END_MAX: Duration = Duration::from_secs(15);
/// After so many that could not be ended a worker does no more: the kernel is in no good state.
const HUNG_MAX: u32 = 2;

/// See the head of the module.
pub(crate) struct Worker {
    run: Run,
    system: System,
    name: String,
    scenes: u32,
    stage: Option<Staged>,
    size: u64,
    hung: u32,
}

/// Where cells are done, and the device below it.
pub(crate) type Staged = (Box<dyn Stage>, Arc<Medium>);

/// How a thread ended that does one operation.
enum Ended {
    Acted(Result<Box<Acted>>),
    Hung(String),
}

impl Worker {
    pub(crate) fn new(run: &Run, system: System, number: usize, size: u64) -> Self {
        let name = format!("react-{}-{number}", system.name());
        Self { run: run.clone(), system, name, scenes: 0, stage: None, size, hung: 0 }
    }

    fn folder(&self) -> String {
        format!("{}-{}", self.name, self.scenes)
    }

    /// Its device, made if there is none.
    pub(crate) fn stage(&mut self) -> Result<Staged> {
        if let Some(stage) = self.stage.take() {
            return Ok(stage);
        }
        self.scenes += 1;
        let medium = Medium::new(self.size);
        let device = Arc::clone(&medium) as Arc<dyn Device>;
        let (run, folder) = (&self.run, self.folder());
        let stage: Box<dyn Stage> = match self.system {
            System::Kernel(kind) => Box::new(HostStage::new(run, &folder, device, kind)?),
            System::Guest(kind, file_system) => {
                Box::new(GuestStage::new(run, &folder, device, &machine(kind, file_system))?)
            }
            System::Zfs => Box::new(ZfsStage::new(run, &folder, device)?),
            System::Database(_) => {
                return Err(Error::new(ErrorKind::Internal, "a database has no device"));
            }
        };
        Ok((stage, medium))
    }

    /// Gives it back.
    pub(crate) fn keep(&mut self, stage: Staged) {
        self.stage = Some(stage);
    }

    /// Does a cell with the first way that is met.
    pub(crate) fn do_cell(
        &mut self,
        cell: &Cell,
        sets: &Arc<Sets>,
        scout: &Scout,
        seed: u64,
    ) -> Result<Done> {
        let began = Instant::now();
        let mut done =
            Done { cell: cell.clone(), harm: String::new(), outcome: Outcome::NotReached, milliseconds: 0 };
        for aim in scout.aims(cell, sets, seed) {
            if self.hung >= HUNG_MAX {
                done.outcome = Outcome::Unknown(format!("{HUNG_MAX} cells hung before; no more were tried"));
                break;
            }
            match self.act(sets, (cell.operation, aim.harm))? {
                Ended::Hung(why) => {
                    (done.harm, done.outcome) = (aim.words, Outcome::Hung(why));
                    break;
                }
                Ended::Acted(Err(error)) => {
                    (done.harm, done.outcome) = (aim.words, Outcome::Unknown(error.to_string()));
                    break;
                }
                Ended::Acted(Ok(acted)) if is_met(cell.effect, &acted.touches, &aim.targets) => {
                    let about = (cell.effect, cell.operation);
                    let reaction = judge(about, &acted, &scout.acted, &aim.targets, &aim.copies);
                    (done.harm, done.outcome) = (aim.words, Outcome::Reached(reaction));
                    break;
                }
                Ended::Acted(Ok(_)) => {}
            }
        }
        done.milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(done)
    }

    fn act(&mut self, sets: &Arc<Sets>, (operation, harm): (Operation, Harm)) -> Result<Ended> {
        let (mut stage, medium) = self.stage()?;
        let helper = stage.helper();
        let (sets, (send, receive)) = (Arc::clone(sets), channel());
        let thread = std::thread::Builder::new().name("cell".into()).spawn(move || {
            let acted = act(&mut *stage, &medium, &sets, (operation, Some(harm)));
            // Nobody waits any more if it took too long; then this takes it down.
            if let Err(unsent) = send.send((acted, stage, medium)) {
                drop(unsent);
            }
        });
        thread.map_err(|error| Error::from_io(error, "starting a thread for a cell"))?;
        match receive.recv_timeout(self.system.cell_max()) {
            Ok((acted, stage, medium)) => {
                if acted.is_err() {
                    // Something may still be mounted. It ends with this, and the next cell has a device of its own.
                    let left = stage.end();
                    if let Some(error) = left.into_iter().next() {
                        return Ok(Ended::Acted(Err(error.while_doing("taking a cell down"))));
                    }
                } else {
                    self.keep((stage, medium));
                }
                Ok(Ended::Acted(acted.map(Box::new)))
            }
            Err(why) => {
                let words = match why {
                    RecvTimeoutError::Timeout => {
                        format!("it did not come back within {} s", self.system.cell_max().as_secs())
                    }
                    RecvTimeoutError::Disconnected => "the kernel ended the thread that did it".to_owned(),
                };
                let how = self
                    .help_to_end(&helper, || receive.recv_timeout(END_MAX).ok().map(|(_, stage, _)| stage));
                Ok(Ended::Hung(format!("{words}; {how}")))
            }
        }
    }

    /// Ends what hangs, the mildest way first. `wait` gives the stage back once it has ended.
    fn help_to_end(&mut self, helper: &Helper, wait: impl Fn() -> Option<Box<dyn Stage>>) -> String {
        if let Some(words) = helper()
            && let Some(stage) = wait()
        {
            self.taken_down(stage);
            return words.to_owned();
        }
        // Every request fails from now on, so whoever waits for one can go on to his end.
        let served: PathBuf = self.run.scratch().join(self.folder()).join("served");
        let aborted = abort_path(&served);
        if let Some(stage) = wait() {
            self.taken_down(stage);
            return "it ended once its device was taken away".to_owned();
        }
        self.hung += 1;
        match aborted {
            Ok(_) => "it did not end even without its device".to_owned(),
            Err(error) => format!("its device could not be taken away: {error}"),
        }
    }

    /// What cannot be removed stays on the record of the run, which tells of it in the end.
    fn taken_down(&mut self, stage: Box<dyn Stage>) {
        if !stage.end().is_empty() {
            self.hung += 1;
        }
    }

    /// Takes its device away.
    pub(crate) fn end(mut self) -> Result<()> {
        let left = self.stage.take().map_or_else(Vec::new, |(stage, _)| stage.end());
        match left.into_iter().next() {
            Some(error) => Err(error.while_doing("taking the device of the cells down")),
            None => Ok(()),
        }
    }
}

/// Nothing is asked for that there is.
pub(crate) fn too_many(system: System) -> Error {
    let name = system.name();
    Error::new(ErrorKind::Invalid, format!("no cell of {name} is of these kinds, effects and operations"))
}
