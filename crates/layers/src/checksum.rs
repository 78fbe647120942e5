//! The layer that keeps a checksum of every block, as a stack has it: `checksum`, or `checksum: { kind: xxh3 }`.

use std::sync::Arc;

use rotproof_block::{Device, Result};
use rotproof_spec::{Bytes, Path, Problems, Span};
use rotproof_volume::checksum::{ChecksumDevice, ChecksumKind, ChecksumOptions, ChecksumReport, Found};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Kind, Stands};
use crate::open::{LayerReport, Opening};

/// The layer that compares every read with a checksum, and mends what is wrong where the device below has another copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChecksumSpec {
    /// Which checksum. Default crc32c.
    #[serde(default)]
    pub kind: ChecksumKindSpec,
    /// How long a copy may take to answer before another is asked. Default 500ms.
    #[serde(default = "patience_default")]
    pub patience: Span,
    /// Checksums in memory; 4MiB are enough for 4GiB of data. Default 64MiB.
    #[serde(default = "cache_default")]
    pub cache: Bytes,
    /// Begin anew on a device that holds something else, which is lost. Default false.
    #[serde(default)]
    pub overwrite: bool,
}

/// What a checksum layer of a stack has found and mended.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct ChecksumLayerReport {
    /// The word of the layer.
    pub name: String,
    /// What it has done.
    #[serde(flatten)]
    pub report: ChecksumReport,
}

/// Which checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChecksumKindSpec {
    /// CRC-32C, 4 bytes a block.
    #[default]
    Crc32c,
    /// XXH3-64, 8 bytes a block.
    Xxh3,
    /// BLAKE3, 16 bytes a block.
    Blake3,
}

impl From<ChecksumKindSpec> for ChecksumKind {
    fn from(kind: ChecksumKindSpec) -> Self {
        match kind {
            ChecksumKindSpec::Crc32c => Self::Crc32c,
            ChecksumKindSpec::Xxh3 => Self::Xxh3,
            ChecksumKindSpec::Blake3 => Self::Blake3,
        }
    }
}

fn patience_default() -> Span {
    Span(ChecksumOptions::default().patience)
}

fn cache_default() -> Bytes {
    Bytes(ChecksumOptions::default().cache_bytes)
}

impl Default for ChecksumSpec {
    fn default() -> Self {
        Self {
            kind: ChecksumKindSpec::default(),
            patience: patience_default(),
            cache: cache_default(),
            overwrite: false,
        }
    }
}

impl ChecksumSpec {
    /// Where the first block lies on a device of so many bytes, and how many bytes of blocks there are.
    fn place(&self, below: u64) -> Option<(u64, u64)> {
        ChecksumDevice::place_on(below, self.kind.into()).ok()
    }
}

impl Kind for ChecksumSpec {
    const WORD: &'static str = "checksum";
    const EXAMPLE: &'static str = "{ checksum: { kind: crc32c } }";
    const SUMMARY: &'static str =
        "a checksum of every block, compared with every read; mends a wrong copy from a right one";
    const STANDS: Stands = Stands::OnOne;
    const OUTLIVES_POWER: bool = true;

    /// What lies in its tables is nowhere above, and matters there all the same.
    fn keeps_places(&self) -> bool {
        false
    }

    fn bare() -> Option<Self> {
        Some(Self::default())
    }

    fn is_bare(&self) -> bool {
        *self == Self::default()
    }

    fn size(&self, below: &[Option<u64>]) -> Option<u64> {
        self.place(below.first().copied().flatten()?).map(|(_, size)| size)
    }

    fn up(&self, _leg: usize, offset: u64, below: &[u64]) -> Option<u64> {
        let (first, size) = self.place(*below.first()?)?;
        offset.checked_sub(first).filter(|offset| *offset < size)
    }

    fn validate(&self, below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        if let Some(Some(bytes)) = below.first()
            && let Err(error) = ChecksumDevice::place_on(*bytes, self.kind.into())
        {
            problems.add_with_help(path, error.context(), "give the device below 1MiB at least");
        }
    }

    fn describe(&self) -> String {
        let kind = ChecksumKind::from(self.kind).word();
        format!("a {kind} of every block of 4 KiB, compared with every read")
    }

    fn open(&self, mut below: Vec<Arc<dyn Device>>, opening: &mut Opening) -> Result<Arc<dyn Device>> {
        let id = opening.identity();
        let options = ChecksumOptions {
            kind: self.kind.into(),
            patience: self.patience.0,
            cache_bytes: self.cache.0,
            found: if self.overwrite { Found::Make(id) } else { Found::OpenOrMake(id) },
        };
        let device = ChecksumDevice::open(opening.one(&mut below)?, options)?;
        let reporter = Arc::clone(&device);
        opening.reports(move || {
            LayerReport::Checksum(ChecksumLayerReport { name: Self::WORD.into(), report: reporter.report() })
        });
        Ok(device)
    }
}
