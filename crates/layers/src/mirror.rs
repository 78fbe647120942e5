//! The description of a mirror, as a stack has it: `mirror: { of: [[...], [...]], patience: 500ms }`.

use std::sync::Arc;

use rotproof_block::{Device, Result};
use rotproof_spec::{Path, Problems, Span};
use rotproof_volume::copies::MemberState;
use rotproof_volume::mirror::{MemberReport, MirrorDevice, MirrorOptions, WAYS_MAX};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Below, Kind, Stands};
use crate::open::{LayerReport, Opening};
use crate::stack_spec::Legs;

/// The same on two or three devices (RAID-1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MirrorSpec {
    /// The stacks, two or three.
    pub of: Legs,
    /// How long one may take to answer before another is asked. Default 500ms.
    #[serde(default = "patience_default")]
    pub patience: Span,
}

fn patience_default() -> Span {
    Span(MirrorOptions::default().patience)
}

impl Kind for MirrorSpec {
    const WORD: &'static str = "mirror";
    const EXAMPLE: &'static str =
        "{ mirror: { of: [[memory: { size: 64MiB }], [memory: { size: 64MiB }]] } }";
    const SUMMARY: &'static str = "the same on two or three devices (RAID-1)";
    const STANDS: Stands = Stands::OnSeveral;
    const KEEPS_COPIES: bool = true;

    fn legs(&self) -> Option<&Legs> {
        Some(&self.of)
    }

    fn size(&self, below: &[Option<u64>]) -> Option<u64> {
        let sizes: Vec<u64> = below.iter().copied().collect::<Option<_>>()?;
        sizes.into_iter().min()
    }

    fn up(&self, _leg: usize, offset: u64, below: &[u64]) -> Option<u64> {
        below.iter().min().filter(|&&size| offset < size).map(|_| offset)
    }

    fn down(&self, _leg: usize, offset: u64, _below: &[u64]) -> Below {
        Below::At(offset)
    }

    fn validate(&self, below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        if !(2..=WAYS_MAX).contains(&below.len()) {
            problems.add_with_help(
                &path.key("of"),
                format!("a mirror of {} devices", below.len()),
                format!("give it 2 or {WAYS_MAX}; a stripe over mirrors takes more"),
            );
        }
        if self.patience.0.is_zero() {
            let help = "500ms is far above what a disk that is well takes";
            problems.add_with_help(&path.key("patience"), "no time at all to answer", help);
        }
    }

    fn describe(&self) -> String {
        format!("the same on {} devices, each with {} to answer", self.of.0.len(), self.patience)
    }

    fn open(&self, below: Vec<Arc<dyn Device>>, opening: &mut Opening) -> Result<Arc<dyn Device>> {
        let mirror = MirrorDevice::new(below, MirrorOptions { patience: self.patience.0 })?;
        let name = opening.count_mirror();
        let reporter = Arc::clone(&mirror);
        opening.reports(move || {
            let members = reporter.report().into_iter().map(MirrorMember::from).collect();
            LayerReport::Mirror(MirrorReport { name: name.clone(), members })
        });
        Ok(mirror)
    }
}

/// What a mirror has done, and what its members are like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MirrorReport {
    /// Name of the layer: mirror, mirror-2 and so on.
    pub name: String,
    /// Its members, in the order of the description.
    pub members: Vec<MirrorMember>,
}

/// One member of a mirror.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MirrorMember {
    /// current, behind or failed.
    pub state: String,
    /// Why it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Bytes that it may have missed.
    pub missed_bytes: u64,
    /// Reads that it answered with an error.
    pub failed_reads: u64,
    /// Writes and flushes that it answered with an error.
    pub failed_writes: u64,
    /// Requests that it did not answer in time.
    pub late: u64,
    /// Bytes that were written again because it could not read them.
    pub repaired_bytes: u64,
}

impl From<MemberReport> for MirrorMember {
    fn from(report: MemberReport) -> Self {
        let MemberReport { state, failed_reads, failed_writes, late, repaired_bytes } = report;
        let (word, why, missed_bytes) = match state {
            MemberState::Current => ("current", None, 0),
            MemberState::Behind { missed_bytes } => ("behind", None, missed_bytes),
            MemberState::Failed { why } => ("failed", Some(why), 0),
        };
        Self { state: word.to_owned(), why, missed_bytes, failed_reads, failed_writes, late, repaired_bytes }
    }
}
