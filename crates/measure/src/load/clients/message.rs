//! What the controller of a load and its clients say to each other: a line of JSON for each message. The forms belong to
//! one version of Rotproof; both sides must be of the same.

use rotproof_load::engine::{PortableReport, ProgressKind};
use rotproof_load::{FileEngine, LoadSpec};
use rotproof_record::{IntervalLength, RemoteInterval};
use rotproof_spec::Bytes;
use serde::{Deserialize, Serialize};

use crate::load::Found;

/// The version that both sides must have.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// From the controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// What to do; sent once.
    Begin(Box<Assignment>),
    /// Everybody is ready for the phase.
    Go,
    /// Somebody wants it to end. The end of the input says the same.
    Stop,
}

/// One client's share of a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Assignment {
    /// As people write it; as the client sees it.
    pub(super) target: String,
    /// The whole load.
    pub(super) load: LoadSpec,
    pub(super) seed: u64,
    pub(super) overwrite: bool,
    pub(super) direct: bool,
    pub(super) engine: FileEngine,
    pub(super) size: Option<Bytes>,
    pub(super) verify: bool,
    pub(super) verify_only: bool,
    /// How long the intervals are that it tells of.
    pub(super) interval: IntervalLength,
    /// The workers that are its own: the first, and the one after the last.
    pub(super) workers: (u16, u16),
}

/// From a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Told {
    /// It is there.
    Hello {
        /// Its version.
        rotproof: String,
        /// What its machine calls itself.
        host: String,
    },
    /// It could begin this phase.
    Ready {
        /// Its name.
        phase: String,
    },
    /// What a worker did in an interval of the phase.
    Interval(RemoteInterval),
    /// What has been done since this was last said: requests, bytes and errors of each kind of operation, in the order of
    /// [`ProgressKind::ALL`], and failures.
    Progress([(u64, u64, u64); ProgressKind::ALL.len()], u64),
    /// What it did in the phase.
    Phase(Box<PortableReport>),
    /// All that there is to say.
    End(Box<Found>),
    /// It could not do what it was to do.
    Failed {
        /// The word for the kind of error.
        kind: String,
        /// What is wrong, and what to do.
        message: String,
    },
}
