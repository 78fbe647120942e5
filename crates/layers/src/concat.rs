//! The description of several devices, one behind the other: `concat: { of: [[...], [...]] }`.

use std::sync::Arc;

use rotproof_block::{Device, Result};
use rotproof_spec::{Path, Problems};
use rotproof_volume::concat::ConcatDevice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Below, Kind, Stands};
use crate::open::Opening;
use crate::stack_spec::{Legs, SIZE_MAX};

/// Several devices, one behind the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConcatSpec {
    /// The stacks, in the order of their bytes.
    pub of: Legs,
}

impl Kind for ConcatSpec {
    const WORD: &'static str = "concat";
    const EXAMPLE: &'static str =
        "{ concat: { of: [[memory: { size: 64MiB }], [memory: { size: 64MiB }]] } }";
    const SUMMARY: &'static str = "several devices, one behind the other";
    const STANDS: Stands = Stands::OnSeveral;

    fn legs(&self) -> Option<&Legs> {
        Some(&self.of)
    }

    fn size(&self, below: &[Option<u64>]) -> Option<u64> {
        below.iter().copied().sum()
    }

    fn up(&self, leg: usize, offset: u64, below: &[u64]) -> Option<u64> {
        Some(below.get(..leg)?.iter().sum::<u64>() + offset)
    }

    fn down(&self, leg: usize, offset: u64, below: &[u64]) -> Below {
        let (Some(before), Some(size)) = (below.get(..leg), below.get(leg)) else { return Below::Anywhere };
        let first: u64 = before.iter().sum();
        offset.checked_sub(first).filter(|offset| offset < size).map_or(Below::Elsewhere, Below::At)
    }

    fn validate(&self, below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        if below.is_empty() {
            problems.add_with_help(&path.key("of"), "no device", "give at least one stack");
        }
        let known = below.iter().flatten().fold(0u64, |sum, size| sum.saturating_add(*size));
        if known > SIZE_MAX {
            problems.add(path, "together they are larger than a device can be");
        }
    }

    fn describe(&self) -> String {
        format!("{} devices, one behind the other", self.of.0.len())
    }

    fn open(&self, below: Vec<Arc<dyn Device>>, _opening: &mut Opening) -> Result<Arc<dyn Device>> {
        Ok(ConcatDevice::new(below)?)
    }
}
