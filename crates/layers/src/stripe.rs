//! The description of a stripe, as a stack has it: `stripe: { of: [[...], [...]], chunk: 64KiB }`.

use std::sync::Arc;

use rotproof_block::{Device, Result};
use rotproof_spec::{Bytes, Path, Problems};
use rotproof_volume::stripe::{CHUNK_BYTES_DEFAULT, StripeDevice, stripe_part, stripe_place, stripe_size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Below, Kind, Stands};
use crate::open::Opening;
use crate::stack_spec::{Legs, SIZE_MAX};

/// Several devices, a chunk on each in turn (RAID-0).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StripeSpec {
    /// The stacks, in the order of their chunks.
    pub of: Legs,
    /// Bytes that lie on one device before the next has its turn: 4KiB to 64MiB, a power of two. Default 64KiB.
    #[serde(default = "chunk_default")]
    pub chunk: Bytes,
}

fn chunk_default() -> Bytes {
    Bytes(CHUNK_BYTES_DEFAULT.into())
}

/// The least and the most that a chunk may have.
const CHUNKS: std::ops::RangeInclusive<u64> = 4096..=(64 << 20);

impl StripeSpec {
    /// Validated to fit.
    fn chunk_bytes(&self) -> u32 {
        u32::try_from(self.chunk.0).unwrap_or(u32::MAX)
    }
}

impl Kind for StripeSpec {
    const WORD: &'static str = "stripe";
    const EXAMPLE: &'static str =
        "{ stripe: { of: [[memory: { size: 64MiB }], [memory: { size: 64MiB }]] } }";
    const SUMMARY: &'static str = "several devices, a chunk on each in turn (RAID-0)";
    const STANDS: Stands = Stands::OnSeveral;

    fn legs(&self) -> Option<&Legs> {
        Some(&self.of)
    }

    fn size(&self, below: &[Option<u64>]) -> Option<u64> {
        let sizes: Vec<u64> = below.iter().copied().collect::<Option<_>>()?;
        stripe_size(sizes.into_iter(), self.chunk_bytes())
    }

    fn up(&self, leg: usize, offset: u64, below: &[u64]) -> Option<u64> {
        stripe_place(leg, offset, below, self.chunk_bytes())
    }

    fn down(&self, leg: usize, offset: u64, below: &[u64]) -> Below {
        match stripe_part(offset, below.len(), self.chunk_bytes()) {
            Some((part, offset)) if part == leg => Below::At(offset),
            Some(_) => Below::Elsewhere,
            None => Below::Anywhere,
        }
    }

    fn validate(&self, below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        let Bytes(chunk) = self.chunk;
        if !chunk.is_power_of_two() || !CHUNKS.contains(&chunk) {
            problems.add_with_help(
                &path.key("chunk"),
                format!("a chunk of {chunk} bytes"),
                "write a power of two from 4KiB to 64MiB",
            );
            return;
        }
        if below.is_empty() {
            problems.add_with_help(&path.key("of"), "no device", "give at least one stack");
        } else if let Some(smallest) = below.iter().flatten().min().filter(|&&size| size < chunk) {
            let message = format!("a device of {smallest} bytes has no whole chunk of {}", self.chunk);
            problems.add(&path.key("of"), message);
        }
        let sum = below.iter().flatten().fold(0u64, |sum, size| sum.saturating_add(*size));
        if sum > SIZE_MAX {
            problems.add(path, "together they are larger than a device can be");
        }
    }

    fn describe(&self) -> String {
        format!("{} devices, striped by {}", self.of.0.len(), self.chunk)
    }

    fn open(&self, below: Vec<Arc<dyn Device>>, _opening: &mut Opening) -> Result<Arc<dyn Device>> {
        Ok(StripeDevice::new(below, self.chunk_bytes())?)
    }
}
