//! Tasks are done: on a volume that is served by its [`Keeper`](super::Keeper), on any other by whoever has opened it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rotproof_block::{Error, ErrorKind, Result, Runtime};
use rotproof_machine::Claim;
use rotproof_volume::mirror::Pace;
use rotproof_volume::volume::{Upkeep, Volume};
use serde_json::{Value, json};

use super::member::{identity, member_to_fill};
use super::task::VolumeTask;

/// Does tasks.
pub struct Doer<'a> {
    /// On what.
    pub volume: &'a Volume,
    /// The runtime of the calling thread.
    pub runtime: &'a Runtime,
    /// Is told how many bytes are done, and of how many.
    pub progress: &'a dyn Fn(u64, u64),
    /// Once it is set a rebuild or scrub is left where it is.
    pub stops: &'a AtomicBool,
    /// Get the right to use devices that become part of the volume.
    pub claims: &'a Mutex<Vec<Claim>>,
    /// Bytes a second at most of a rebuild for which nobody says so.
    pub rebuild_rate: Option<u64>,
}

impl std::fmt::Debug for Doer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Doer({:?})", self.volume)
    }
}

impl Doer<'_> {
    /// Does a task. What came of it is an object: `copied_bytes`, `repaired_bytes`, `left_bytes` and `differing_bytes` of what
    /// goes through much, `version` and `undo`, `member` and `path`, `spare`.
    pub async fn perform(&self, task: VolumeTask) -> Result<Value> {
        let (volume, runtime) = (self.volume, self.runtime);
        match task {
            VolumeTask::Rebuild { rate } => self.rebuild(rate.or(self.rebuild_rate)).await,
            VolumeTask::Scrub { rate } => {
                let pace = Pace { bytes_per_second: rate };
                let scrub = volume.scrub(runtime, pace, |done, of| (self.progress)(done, of));
                self.unless_stopped(scrub).await.map(upkeep_json)
            }
            VolumeTask::Replace { member, with, overwrite, rate } => {
                let (candidate, claim) = member_to_fill(&with, overwrite, runtime).await?;
                self.claims.lock().push(claim);
                volume.replace(member, &candidate, identity()?, runtime).await?;
                self.rebuild(rate.or(self.rebuild_rate)).await
            }
            VolumeTask::AddSpare { device, overwrite } => {
                let (candidate, claim) = member_to_fill(&device, overwrite, runtime).await?;
                self.claims.lock().push(claim);
                volume.add_spare(&candidate, identity()?, runtime).await?;
                Ok(json!({ "spare": volume.status().spares.len() - 1 }))
            }
            VolumeTask::RemoveSpare { spare } => {
                volume.remove_spare(spare, runtime).await?;
                Ok(json!({ "spare": spare }))
            }
            VolumeTask::Capture { name } => {
                let version = volume.capture(runtime, &name, time_ns()).await?;
                Ok(json!({ "version": version }))
            }
            VolumeTask::Rollback { version } => {
                let undo = volume.roll_back(runtime, version, time_ns()).await?;
                Ok(json!({ "version": version, "undo": undo }))
            }
            VolumeTask::Delete { version } => {
                volume.delete_version(runtime, version).await?;
                Ok(json!({ "version": version }))
            }
            // They need a volume that nobody uses, or its server: see `reshape`.
            VolumeTask::Grow { .. }
            | VolumeTask::AddCopy { .. }
            | VolumeTask::RemoveCopy { .. }
            | VolumeTask::Beside { .. }
            | VolumeTask::Destroy {} => {
                let context = format!("{} is no task for one who has the volume open", task.word());
                Err(Error::new(ErrorKind::Unsupported, context))
            }
            VolumeTask::UseSpare {} => match volume.use_spare(identity()?, runtime).await? {
                Some((member, path)) => {
                    let mut result = self.rebuild(self.rebuild_rate).await?;
                    (result["member"], result["path"]) = (json!(member), json!(path));
                    Ok(result)
                }
                None => Ok(json!({})),
            },
        }
    }

    async fn rebuild(&self, rate: Option<u64>) -> Result<Value> {
        let pace = Pace { bytes_per_second: rate };
        let rebuild = self.volume.rebuild(self.runtime, pace, |done, of| (self.progress)(done, of));
        self.unless_stopped(rebuild).await.map(upkeep_json)
    }

    async fn unless_stopped<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let mut tick = self.runtime.sleep(Duration::from_millis(50));
            let done = std::future::poll_fn(|context| {
                if let Poll::Ready(done) = work.as_mut().poll(context) {
                    return Poll::Ready(Some(done));
                }
                std::pin::Pin::new(&mut tick).poll(context).map(|()| None)
            });
            if let Some(done) = done.await {
                return done;
            }
            if self.stops.load(Ordering::SeqCst) {
                return Err(Error::new(ErrorKind::Gone, "the volume was closed before it was done"));
            }
        }
    }
}

/// Nanoseconds since 1970.
pub fn time_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn upkeep_json(upkeep: Upkeep) -> Value {
    json!({
        "copied_bytes": upkeep.copied_bytes,
        "repaired_bytes": upkeep.repaired_bytes,
        "left_bytes": upkeep.left_bytes,
        "differing_bytes": upkeep.differing_bytes,
    })
}
