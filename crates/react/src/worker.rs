//! Does cells on a device of its own, each on a thread that may be given up: a file system that hangs takes nobody with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_export::abort_path;
use rotproof_machine::registry::Run;
use rotproof_subject::FileSystem;

use crate::act::{Acted, Sets, act};
use crate::cell::{Cell, Done, Outcome};
use crate::judge::{is_met, judge};
use crate::medium::{Harm, Medium};
use crate::operation::Operation;
use crate::scout::Scout;
use crate::stage::HostStage;

/// How long a cell may take, with the mount and the look at all files afterwards.
/// The longest that was seen to end took 12 seconds. Whoever syncs this machine waits as long for one that hangs.
const CELL_MAX: Duration = Duration::from_secs(25);
/// How long it then may take to end, once it is helped to.
const END_MAX: Duration = Duration::from_secs(15);
/// After so many that could not be ended a worker does no more: the kernel is in no good state.
const HUNG_MAX: u32 = 2;

/// See the head of the module.
pub(crate) struct Worker {
    run: Run,
    kind: FileSystem,
    name: String,
    scenes: u32,
    stage: Option<(HostStage, Arc<Medium>)>,
    size: u64,
    hung: u32,
}

/// How a thread ended that does one operation.
enum Ended {
    Acted(Result<Box<Acted>>),
    Hung(String),
}

impl Worker {
    pub(crate) fn new(run: &Run, kind: FileSystem, number: usize, size: u64) -> Self {
        let name = format!("react-{}-{number}", kind.name());
        Self { run: run.clone(), kind, name, scenes: 0, stage: None, size, hung: 0 }
    }

    fn folder(&self) -> String {
        format!("{}-{}", self.name, self.scenes)
    }

    /// Its device, made if there is none.
    pub(crate) fn stage(&mut self) -> Result<(HostStage, Arc<Medium>)> {
        if let Some(stage) = self.stage.take() {
            return Ok(stage);
        }
        self.scenes += 1;
        let medium = Medium::new(self.size);
        let device = Arc::clone(&medium) as Arc<dyn Device>;
        Ok((HostStage::new(&self.run, &self.folder(), device, self.kind)?, medium))
    }

    /// Gives it back.
    pub(crate) fn keep(&mut self, stage: (HostStage, Arc<Medium>)) {
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
        let device = stage.device().to_owned();
        let (sets, (send, receive)) = (Arc::clone(sets), channel());
        let thread = std::thread::Builder::new().name("cell".into()).spawn(move || {
            let acted = act(&mut stage, &medium, &sets, (operation, Some(harm)));
            // Nobody waits any more if it took too long; then this takes it down.
            if let Err(unsent) = send.send((acted, stage, medium)) {
                drop(unsent);
            }
        });
        thread.map_err(|error| Error::from_io(error, "starting a thread for a cell"))?;
        match receive.recv_timeout(CELL_MAX) {
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
                        format!("it did not come back within {} s", CELL_MAX.as_secs())
                    }
                    RecvTimeoutError::Disconnected => "the kernel ended the thread that did it".to_owned(),
                };
                let how = self
                    .help_to_end(&device, || receive.recv_timeout(END_MAX).ok().map(|(_, stage, _)| stage));
                Ok(Ended::Hung(format!("{words}; {how}")))
            }
        }
    }

    /// Ends what hangs, the mildest way first. `wait` gives the stage back once it has ended.
    fn help_to_end(&mut self, device: &Path, wait: impl Fn() -> Option<HostStage>) -> String {
        if self.kind == FileSystem::Xfs
            && give_up_retrying(device)
            && let Some(stage) = wait()
        {
            self.taken_down(stage);
            return "it ended once XFS was told not to retry for ever".to_owned();
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
    fn taken_down(&mut self, stage: HostStage) {
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

/// XFS retries a write of metadata for ever, and while it is mounted there is nobody to tell it otherwise but this
/// (`Documentation/admin-guide/xfs.rst`, error handling). Whether it could be told.
fn give_up_retrying(device: &Path) -> bool {
    let Some(name) = device.file_name() else { return false };
    let folder = Path::new("/sys/fs/xfs").join(name).join("error/metadata");
    let Ok(errors) = std::fs::read_dir(folder) else { return false };
    let told = errors.flatten().map(|error| std::fs::write(error.path().join("max_retries"), "0").is_ok());
    told.fold(false, |any, told| any | told)
}

/// Nothing is asked for that there is.
pub(crate) fn too_many(kind: FileSystem) -> Error {
    Error::new(ErrorKind::Invalid, format!("no cell of {kind} is of these kinds, effects and operations"))
}
