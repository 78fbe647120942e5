//! What can be asked of a volume that is served, and how far that has come.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum VolumeTask {
    /// Brings members up to date that were away or are new.
    Rebuild {
        /// Bytes a second at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<u64>,
    },
    /// Reads every copy of everything, and puts right what can be.
    Scrub {
        /// Bytes a second at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<u64>,
    },
    /// Puts a device in the place of a member, and fills it.
    Replace {
        /// Which member.
        member: usize,
        /// The device.
        with: PathBuf,
        /// Permits destroying what it holds.
        #[serde(default)]
        overwrite: bool,
        /// Bytes a second at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<u64>,
    },
    /// Takes a device as a spare.
    AddSpare {
        /// The device.
        device: PathBuf,
        /// Permits destroying what it holds.
        #[serde(default)]
        overwrite: bool,
    },
    /// Lets a spare go.
    RemoveSpare {
        /// Its number among the spares.
        spare: usize,
    },
    /// Captures a version.
    Capture {
        /// What it is called.
        #[serde(default)]
        name: String,
    },
    /// Makes the present what a version was.
    Rollback {
        /// Its number.
        version: u64,
    },
    /// Gives a version up.
    Delete {
        /// Its number.
        version: u64,
    },
    /// Makes the volume larger: by what all members of a mirror have become larger, and by further mirrors.
    Grow {
        /// Devices for further mirrors.
        #[serde(default)]
        with: Vec<PathBuf>,
        /// Permits destroying what they hold.
        #[serde(default)]
        overwrite: bool,
    },
    /// Keeps one copy more, and fills it.
    AddCopy {
        /// A device for each mirror.
        devices: Vec<PathBuf>,
        /// Permits destroying what they hold.
        #[serde(default)]
        overwrite: bool,
        /// Bytes a second at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<u64>,
    },
    /// Keeps one copy fewer.
    RemoveCopy {
        /// A member of each mirror.
        members: Vec<usize>,
    },
    /// Offers a version beside the present.
    Beside {
        /// Its number.
        version: u64,
    },
    /// Ends the volume, if nobody uses it, and with it the server.
    Destroy {},
    /// Puts a spare in the place of a member that has failed, and fills it. Begins by itself.
    UseSpare {},
}

impl VolumeTask {
    /// Its word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Rebuild { .. } => "rebuild",
            Self::Scrub { .. } => "scrub",
            Self::Replace { .. } => "replace",
            Self::AddSpare { .. } => "add_spare",
            Self::RemoveSpare { .. } => "remove_spare",
            Self::Capture { .. } => "capture",
            Self::Rollback { .. } => "rollback",
            Self::Delete { .. } => "delete",
            Self::Grow { .. } => "grow",
            Self::AddCopy { .. } => "add_copy",
            Self::RemoveCopy { .. } => "remove_copy",
            Self::Beside { .. } => "beside",
            Self::Destroy {} => "destroy",
            Self::UseSpare {} => "use_spare",
        }
    }
}

/// How far a task has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Others are before it.
    Waiting,
    /// It is being done.
    Running,
    /// It was done.
    Done,
    /// It could not be done.
    Failed,
}

/// What there is to tell of a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskReport {
    /// Its number.
    pub task: u64,
    /// Its word.
    pub verb: &'static str,
    /// Begun by itself.
    pub is_automatic: bool,
    /// How far it has come.
    pub state: TaskState,
    /// Bytes that are done, of those that go through many.
    pub done_bytes: u64,
    /// Bytes to do.
    pub of_bytes: u64,
    /// What came of it, once it is done.
    pub result: Value,
    /// Why it could not be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
