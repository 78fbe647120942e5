//! Tasks that change a volume as a whole while it is served, or the ways in which it is offered.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rotproof_block::{Result, Runtime};
use rotproof_layers::NamedDevice;
use rotproof_machine::Claim;
use rotproof_volume::live::LiveVolume;
use rotproof_volume::volume::Candidate;
use serde_json::{Value, json};

use super::member::{identity, member_to_fill};
use super::task::VolumeTask;
use crate::exports::Exports;

/// What is to be changed.
pub(super) struct Reshaper<'a> {
    pub(super) volume: &'a Arc<LiveVolume>,
    pub(super) exports: &'a Exports,
    pub(super) runtime: &'a Runtime,
    /// Get the right to use devices that become part of the volume.
    pub(super) claims: &'a Mutex<Vec<Claim>>,
}

/// What became of a task.
pub(super) enum Step {
    /// It is done, and this came of it.
    Done(Value),
    /// This is left to do to the volume as it is now.
    Then(VolumeTask),
}

impl Reshaper<'_> {
    /// Does a task that changes the whole; any other is left to do.
    pub(super) async fn perform(&self, task: VolumeTask) -> Result<Step> {
        match task {
            VolumeTask::Grow { with, overwrite } => {
                let new = self.to_fill(&with, overwrite).await?;
                let grown =
                    self.with(new, async |new| self.volume.grow(new, identity()?, self.runtime).await);
                let grown = grown.await?;
                // It is larger now, whether or not all can be told.
                let note = self.exports.resized().err().map(|error| error.to_string());
                Ok(Step::Done(json!({
                    "before_bytes": grown.before_bytes,
                    "after_bytes": grown.after_bytes,
                    "note": note,
                })))
            }
            VolumeTask::AddCopy { devices, overwrite, rate } => {
                let new = self.to_fill(&devices, overwrite).await?;
                self.with(new, async |new| self.volume.add_copy(new, identity()?, self.runtime).await)
                    .await?;
                // From here on it is a rebuild like any other.
                Ok(Step::Then(VolumeTask::Rebuild { rate }))
            }
            VolumeTask::RemoveCopy { members } => {
                self.volume.remove_copy(&members, self.runtime).await?;
                Ok(Step::Done(json!({ "members": members })))
            }
            VolumeTask::Beside { version } => {
                let name = Some(format!("version-{version}"));
                let device = self.volume.version(version)?;
                let exports = self.exports.add(NamedDevice { name, device })?;
                Ok(Step::Done(json!({ "version": version, "exports": exports })))
            }
            VolumeTask::Destroy {} => {
                self.volume.destroy(self.runtime, || self.exports.refuse_used()).await?;
                Ok(Step::Done(json!({})))
            }
            task => Ok(Step::Then(task)),
        }
    }

    async fn to_fill(&self, paths: &[PathBuf], overwrite: bool) -> Result<Vec<(Candidate, Claim)>> {
        let mut devices = Vec::new();
        for path in paths {
            devices.push(member_to_fill(path, overwrite, self.runtime).await?);
        }
        Ok(devices)
    }

    /// Has a change made with new devices. Those that are part of the volume then, even if it failed, stay ours.
    async fn with<T>(
        &self,
        new: Vec<(Candidate, Claim)>,
        change: impl AsyncFnOnce(&[Candidate]) -> Result<T>,
    ) -> Result<T> {
        let (candidates, claims): (Vec<Candidate>, Vec<Claim>) = new.into_iter().unzip();
        let done = change(&candidates).await;
        let status = self.volume.volume().status();
        let is_member = |one: &Candidate| {
            status.members.iter().any(|member| member.name.as_deref() == Some(one.name.as_str()))
        };
        let kept = candidates.iter().zip(claims).filter(|(one, _)| is_member(one)).map(|(_, claim)| claim);
        self.claims.lock().extend(kept);
        done
    }
}
