//! Who looks at a state and says what is wrong with it.

use std::sync::Arc;

use rotproof_block::Result;
use serde::{Deserialize, Serialize};

use crate::image::ImageDevice;
use crate::recording::{Reader, What};
use crate::state::StateDescription;

/// Something wrong with a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// What it is, in a word: failures with the same are counted together.
    pub kind: String,
    /// What was expected and what was found.
    pub words: String,
}

impl Finding {
    /// A finding of a kind, in words.
    pub fn new(kind: impl Into<String>, words: impl Into<String>) -> Self {
        Self { kind: kind.into(), words: words.into() }
    }
}

/// What the load said before the crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Position of its event.
    pub position: u64,
    /// When it was said, in nanoseconds.
    pub time_ns: u64,
    /// What.
    pub text: String,
}

/// One crash, as a check sees it.
#[derive(Debug)]
pub struct Crash<'a> {
    /// Which state.
    pub state: &'a StateDescription,
    /// What the load had said, in order.
    pub marks: &'a [Mark],
}

/// Looks at states. Each worker has its own.
pub trait Check: Send {
    /// The device that it looks at; the states are put into it.
    fn image(&self) -> &Arc<ImageDevice>;

    /// Looks at the state that the device shows now. No finding says that all is as it must be; an error says that
    /// nobody knows, because the check itself could not be made.
    fn check(&mut self, crash: &Crash<'_>) -> Result<Vec<Finding>>;
}

/// All marks of a recording, in order.
pub fn marks(mut reader: Reader) -> Result<Vec<Mark>> {
    reader.rewind()?;
    let mut marks = Vec::new();
    while let Some(event) = reader.next_event()? {
        if let What::Mark(text) = event.what {
            marks.push(Mark { position: event.position, time_ns: event.time_ns, text });
        }
    }
    Ok(marks)
}

/// Those of all marks that had been set before the crash.
pub(crate) fn marks_before(marks: &[Mark], position: u64) -> &[Mark] {
    &marks[..marks.partition_point(|mark| mark.position < position)]
}
