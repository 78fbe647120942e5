//! The description of a recorder, as a stack has it: `record`, or `record: { path: my.recording }`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_crash::recording::{Recorder, RecorderOptions};
use rotproof_spec::{Path, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Kind, Stands};
use crate::open::Opening;
use crate::record::{RecordDevice, header_of};

/// The layer that records what passes, for states that a power loss may leave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordDeviceSpec {
    /// The new file of the recording. Default: `recording` in the folder of the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

/// A recorder of an open stack.
#[derive(Clone)]
pub struct StackRecording {
    /// The file.
    pub path: PathBuf,
    /// Where marks are set, and the recording ended.
    pub recorder: Arc<Recorder>,
    /// The device that is recorded, below the recorder.
    pub device: Arc<dyn Device>,
}

impl fmt::Debug for StackRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StackRecording({}, {:?})", self.path.display(), self.recorder)
    }
}

/// What recordings without a path are called; further ones have a number behind it.
const NAME: &str = "recording";

impl Kind for RecordDeviceSpec {
    const WORD: &'static str = "record";
    const EXAMPLE: &'static str = "record";
    const SUMMARY: &'static str = "records what passes, for the states that a power loss may leave";
    const STANDS: Stands = Stands::OnOne;

    fn bare() -> Option<Self> {
        Some(Self::default())
    }

    fn is_bare(&self) -> bool {
        self.path.is_none()
    }

    fn validate(&self, _below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        let Some(file) = &self.path else { return };
        if file.as_os_str().is_empty() {
            problems.add(&path.key("path"), "the path is empty");
        } else if file.exists() {
            problems.add_with_help(
                &path.key("path"),
                format!("{} is there already, and a recording is a new file", file.display()),
                "remove it, name another, or leave `path` out: it then lies in the folder of the results",
            );
        }
    }

    fn describe(&self) -> String {
        match &self.path {
            Some(path) => format!("to {}", path.display()),
            None => "to the folder of the results".into(),
        }
    }

    fn open(&self, mut below: Vec<Arc<dyn Device>>, opening: &mut Opening) -> Result<Arc<dyn Device>> {
        let device = opening.one(&mut below)?;
        let path = match (&self.path, opening.recordings_folder()) {
            (Some(path), _) => path.clone(),
            (None, Some(folder)) => {
                let number = opening.count_recordings() + 1;
                let name = if number == 1 { NAME.to_owned() } else { format!("{NAME}-{number}") };
                folder.join(name)
            }
            (None, None) => {
                let what = "nobody says where the recording goes: give `record: { path: FILE }`";
                return Err(Error::new(ErrorKind::Invalid, what));
            }
        };
        let header = header_of(device.info(), opening.identity());
        let recorder = Recorder::create(&path, header, RecorderOptions::default())?;
        opening.has_recording(StackRecording {
            path,
            recorder: Arc::clone(&recorder),
            device: Arc::clone(&device),
        });
        Ok(RecordDevice::new(device, recorder))
    }
}
