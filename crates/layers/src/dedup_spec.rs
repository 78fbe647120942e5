//! The description of a dedup layer, as a stack has it: `dedup`, or `dedup: { size: 8GiB }`.

use std::sync::Arc;

use rotproof_block::{Device, Result};
use rotproof_spec::{Bytes, Path, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dedup::{DedupDevice, DedupOptions};
use crate::kind::{Kind, Stands};
use crate::open::{LayerReport, Opening};
use crate::stack_spec::validate_size;

/// The layer that stores equal blocks of 4 KiB once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DedupSpec {
    /// Size of the device that it is; more than there is below holds duplicates, less leaves room to overwrite.
    /// Default: the size of the device below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// Compares the bytes before it takes equal hashes for equal blocks. Default false.
    #[serde(default)]
    pub verify: bool,
}

impl DedupSpec {
    pub(crate) fn options(&self) -> DedupOptions {
        DedupOptions { size_bytes: self.size.map(|size| size.0), verify: self.verify }
    }
}

impl Kind for DedupSpec {
    const WORD: &'static str = "dedup";
    const EXAMPLE: &'static str = "dedup";
    const SUMMARY: &'static str = "stores equal blocks of 4 KiB once";
    const STANDS: Stands = Stands::OnOne;
    const ONCE: Option<&'static str> = Some("what has been deduplicated has no duplicates left");
    const SHARES_BLOCKS: bool = true;
    const OUTLIVES_POWER: bool = true;

    fn keeps_places(&self) -> bool {
        false
    }

    fn bare() -> Option<Self> {
        Some(Self::default())
    }

    fn size(&self, below: &[Option<u64>]) -> Option<u64> {
        let below = below.first().copied().flatten();
        self.size.map(|size| size.0).or(below.map(DedupDevice::whole_blocks))
    }

    fn up(&self, _leg: usize, _offset: u64, _below: &[u64]) -> Option<u64> {
        None
    }

    fn validate(&self, below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        let below = below.first().copied().flatten();
        let too_large = |size: u64| {
            format!("{} is more than a dedup layer can map ({})", Bytes(size), Bytes(DedupDevice::SIZE_MAX))
        };
        if let Some(below) = below {
            if DedupDevice::whole_blocks(below) == 0 {
                let message = format!("the device below has {below} bytes, and a dedup layer needs 4096");
                problems.add(path, message);
            } else if below > DedupDevice::SIZE_MAX {
                problems.add(path, too_large(below));
            }
        }
        if let Some(size) = self.size {
            if size.0 > DedupDevice::SIZE_MAX {
                problems.add(&path.key("size"), too_large(size.0));
            } else {
                validate_size(size, DedupDevice::BLOCK_BYTES, path, problems);
            }
        }
    }

    fn describe(&self) -> String {
        let size = self.size.map_or(String::new(), |size| format!(", {size}"));
        let verify = if self.verify { ", compared before they are shared" } else { "" };
        format!("equal blocks of 4KiB stored once{size}{verify}")
    }

    fn open(&self, mut below: Vec<Arc<dyn Device>>, opening: &mut Opening) -> Result<Arc<dyn Device>> {
        let layer = DedupDevice::new(opening.one(&mut below)?, self.options())?;
        let reporter = Arc::clone(&layer);
        opening.reports(move || LayerReport::Dedup(reporter.report()));
        Ok(layer)
    }
}
