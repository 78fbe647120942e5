//! Files on a FAT volume as the objects of a load, without any kernel: a file system library that knows nothing of tags,
//! faults or queues, run in this process over the stack (`docs/decisions/008-fat-subject.md`).
//!
//! `volume` is the library, `session` its thread, `turns` the order in which tasks use it: one at a time, as it can do
//! no other. Under virtual time too.

mod session;
#[cfg(test)]
mod tests;
mod turns;
mod volume;

use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{
    Buffer, Completion, Context, Device, DeviceInfo, Error, ErrorKind, Phase, Queue, Request, Result,
    Runtime, Submission,
};

use super::{Driver, FileSet, Lost};
use crate::BLOCK_BYTES;
use crate::engine::RunOn;
use crate::object::ObjectInfo;
use crate::spec::{FilesSpec, LoadSpec};
use session::{Session, ended};
use volume::{Answer, Job};
pub use volume::{FAT_DEVICE_BYTES_MIN, FAT_FILE_BYTES_MAX};

/// What the library is called in results.
pub const FAT_LIBRARY: &str = "fatfs 0.3 (library in process)";

/// Files a, b, c, ... of equal size on a FAT volume.
#[derive(Clone)]
pub struct FatSet {
    device: Arc<dyn Device>,
    seed: u64,
    objects: Vec<ObjectInfo>,
    /// Or why there is none: then every request fails with an error of this kind.
    session: Result<Arc<Session>, ErrorKind>,
}

impl FatSet {
    /// Makes a FAT volume on `device`, whatever is on it, and the files that `load` describes, full of zeros, in the
    /// phase *setup*. `seed` is that of the run. Says which files it made.
    ///
    /// Fails with [`ErrorKind::NoSpace`] if there is no room, with [`ErrorKind::Invalid`] if no volume can be made on
    /// such a device, and as the device does.
    pub fn create(
        device: Arc<dyn Device>,
        load: &LoadSpec,
        seed: u64,
        on: RunOn<'_>,
    ) -> Result<(Self, FilesSpec)> {
        require_fitting(&device.info())?;
        let session = Arc::new(Session::start(device.info())?);
        let job = Job::Create(Box::new(load.clone()));
        let spec = match perform(&session, &device, seed, on, job)? {
            Answer::Begun(begun) => begun?,
            Answer::Ended(error) | Answer::Closed(Err(error)) => return Err(error),
            Answer::Transferred(_) | Answer::Closed(Ok(())) => return Err(ended()),
        };
        Ok((Self { device, seed, objects: FileSet::objects_of(spec), session: Ok(session) }, spec))
    }

    /// Mounts the volume that is on `device`, in the phase *setup*, and opens the files that [`FatSet::create`] made.
    /// One that is gone fails every request; if the volume cannot be mounted, which is a finding, all do, and the
    /// reason is given too. An `Err` is a failure of the machine.
    pub fn open(
        device: Arc<dyn Device>,
        spec: FilesSpec,
        seed: u64,
        on: RunOn<'_>,
    ) -> Result<(Self, Option<Error>)> {
        let session = Arc::new(Session::start(device.info())?);
        let objects = FileSet::objects_of(spec);
        let error = match perform(&session, &device, seed, on, Job::Open(spec))? {
            Answer::Begun(Ok(_)) => None,
            Answer::Begun(Err(error)) | Answer::Ended(error) | Answer::Closed(Err(error)) => Some(error),
            Answer::Transferred(_) | Answer::Closed(Ok(())) => Some(ended()),
        };
        let session = error.as_ref().map_or(Ok(session), |error| Err(error.kind()));
        Ok((Self { device, seed, objects, session }, error))
    }
}

fn require_fitting(info: &DeviceInfo) -> Result<()> {
    if info.block_size as usize > BLOCK_BYTES {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "a FAT volume of ours needs a device with blocks of at most {BLOCK_BYTES} bytes; this one has {}",
                info.block_size
            ),
        ));
    }
    Ok(())
}

/// Has a job done outside of any load.
fn perform(
    session: &Session,
    device: &Arc<dyn Device>,
    seed: u64,
    on: RunOn<'_>,
    job: Job,
) -> Result<Answer> {
    let perform = |runtime: &Runtime| -> Result<Answer> {
        let queue = device.open_queue(runtime)?;
        let answer = runtime.block_on(session.perform(&*queue, job))?;
        answer.map_err(|_| ended())
    };
    match on {
        RunOn::Simulated(runtime) => perform(runtime),
        RunOn::Uring { epoch } => {
            let runtime =
                Runtime::uring(RuntimeOptions { epoch, ring_entries: 64, ..RuntimeOptions::new(seed) })?;
            let answer = perform(&runtime);
            // Tasks of layers below may still be pending.
            runtime.abandon_tasks();
            answer
        }
    }
}

impl Driver for FatSet {
    fn objects(&self) -> &[ObjectInfo] {
        &self.objects
    }

    fn open(&self, runtime: &Runtime) -> Result<Vec<Rc<dyn Queue>>> {
        let below = self.device.open_queue(runtime)?;
        let queue = |file: u32| -> Rc<dyn Queue> {
            match &self.session {
                Ok(session) => {
                    Rc::new(FatQueue { session: Arc::clone(session), below: Rc::clone(&below), file })
                }
                Err(kind) => Rc::new(Lost(*kind)),
            }
        };
        Ok((0..self.objects.len() as u32).map(queue).collect())
    }

    fn shared(&self) -> Arc<dyn Driver> {
        Arc::new(self.clone())
    }

    /// Unmounts. An error says what could not be written.
    fn close(&self, phase: Phase, on: RunOn<'_>) -> Result<()> {
        let Ok(session) = &self.session else { return Ok(()) };
        let context = Context { phase, ..Context::default() };
        match perform(session, &self.device, self.seed, on, Job::Close(context))? {
            Answer::Closed(closed) => closed,
            Answer::Ended(error) => Err(error),
            Answer::Begun(_) | Answer::Transferred(_) => Err(ended()),
        }
    }
}

/// One file, from one thread.
struct FatQueue {
    session: Arc<Session>,
    below: Rc<dyn Queue>,
    file: u32,
}

impl Queue for FatQueue {
    fn submit(&self, request: Request) -> Submission {
        let (session, below, file) = (Arc::clone(&self.session), Rc::clone(&self.below), self.file);
        let (context, length) = (request.context, request.buffer.len());
        Submission::pending(async move {
            let error = match session.perform(&*below, Job::Transfer(file, request)).await {
                Ok(Answer::Transferred(completion)) => return completion,
                Err(Job::Transfer(_, request)) => return request.fail(ended()),
                Ok(Answer::Ended(error)) => error,
                Ok(Answer::Begun(_) | Answer::Closed(_))
                | Err(Job::Create(_) | Job::Open(_) | Job::Close(_)) => ended(),
            };
            // The library has taken the request's own with it.
            Completion { result: Err(error), buffer: Buffer::stale(length), context }
        })
    }
}
