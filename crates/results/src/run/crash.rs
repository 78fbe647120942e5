//! `run.json` of a recording that was explored (`rotproof crash --recording`).

use std::borrow::Cow;

use rotproof_crash::CrashReport;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The content of `run.json` of a recording that was explored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrashRun {
    /// Version of this form.
    pub format: u32,
    /// Version of the program.
    pub rotproof: Cow<'static, str>,
    /// The recording.
    pub explored: String,
    /// The file system that its states were mounted as.
    pub subject: String,
    /// Root of what was drawn.
    pub seed: u64,
    /// The command line that does it again.
    pub command: String,
    /// What was found.
    pub crash: CrashReport,
}
