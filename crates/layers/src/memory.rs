//! The leaf in RAM, as a stack has it: `memory: { size: 256MiB }`.

use std::sync::Arc;

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{Device, Result};
use rotproof_spec::{Bytes, Path, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Kind, Stands};
use crate::open::Opening;
use crate::stack_spec::validate_size;

/// A leaf in RAM; its content is gone afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySpec {
    /// Capacity.
    pub size: Bytes,
    /// Unit of addressing: 512 to 4096, a power of two. Default 512.
    #[serde(default = "block_size_default")]
    pub block_size: Bytes,
}

fn block_size_default() -> Bytes {
    Bytes(512)
}

impl Kind for MemorySpec {
    const WORD: &'static str = "memory";
    const EXAMPLE: &'static str = "{ memory: { size: 256MiB } }";
    const SUMMARY: &'static str = "RAM of this process";
    const STANDS: Stands = Stands::Alone;

    fn size(&self, _below: &[Option<u64>]) -> Option<u64> {
        Some(self.size.0)
    }

    fn validate(&self, _below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        let Bytes(block_size) = self.block_size;
        if !block_size.is_power_of_two() || !(512..=4096).contains(&block_size) {
            problems.add(
                &path.key("block_size"),
                format!("a block of {block_size} bytes; it must be 512, 1024, 2048 or 4096"),
            );
            return;
        }
        validate_size(self.size, block_size, path, problems);
    }

    fn describe(&self) -> String {
        format!("{} of RAM, blocks of {}", self.size, self.block_size)
    }

    fn open(&self, _below: Vec<Arc<dyn Device>>, _opening: &mut Opening) -> Result<Arc<dyn Device>> {
        // Validated to be 4096 at the most.
        Ok(MemoryDevice::new(self.size.0, u32::try_from(self.block_size.0).unwrap_or(u32::MAX))?)
    }
}
