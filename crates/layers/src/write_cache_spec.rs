//! The description of a volatile write cache, as a stack has it: `write_cache`, or `write_cache: { size: 4MiB }`.

use std::sync::Arc;

use rotproof_block::{Device, Result};
use rotproof_spec::{Bytes, Path, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Kind, Stands};
use crate::open::Opening;
use crate::write_cache::{Lies, WriteBack, WriteCacheDevice, WriteCacheOptions};

/// The layer that acknowledges writes which a power cut may lose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteCacheSpec {
    /// Data that it holds at the most. Default 64MiB.
    #[serde(default = "size_default")]
    pub size: Bytes,
    /// Which writes leave when it is full. Default: the oldest.
    #[serde(default)]
    pub write_back: WriteBackSpec,
    /// A power cut tears writes at multiples of this only: 512 to 1MiB, a power of two. Default 4KiB.
    #[serde(default = "atomic_default")]
    pub atomic: Bytes,
    /// What it acknowledges without doing it. Default: nothing.
    #[serde(default)]
    pub ignores: Ignores,
}

/// Which writes leave a full cache first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteBackSpec {
    /// Those that came first.
    #[default]
    Oldest,
    /// Any.
    Random,
}

/// What a cache that lies does not do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ignores {
    /// It is honest.
    #[default]
    Nothing,
    /// Flushes.
    Flush,
    /// Force unit access.
    Fua,
    /// Both.
    Both,
}

fn size_default() -> Bytes {
    Bytes(64 << 20)
}

fn atomic_default() -> Bytes {
    Bytes(4096)
}

impl Default for WriteCacheSpec {
    fn default() -> Self {
        Self {
            size: size_default(),
            write_back: WriteBackSpec::default(),
            atomic: atomic_default(),
            ignores: Ignores::default(),
        }
    }
}

/// The largest unit that is written whole.
const ATOMIC_MAX: u64 = 1 << 20;

impl Kind for WriteCacheSpec {
    const WORD: &'static str = "write_cache";
    const EXAMPLE: &'static str = "{ write_cache: { size: 4MiB } }";
    const SUMMARY: &'static str = "a volatile write cache, which a power cut empties";
    const STANDS: Stands = Stands::OnOne;

    /// What fails below may be a write that was acknowledged long ago, and the request that is told of it another.
    fn keeps_places(&self) -> bool {
        false
    }

    fn bare() -> Option<Self> {
        Some(Self::default())
    }

    fn up(&self, _leg: usize, _offset: u64, _below: &[u64]) -> Option<u64> {
        None
    }

    fn validate(&self, _below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        let Bytes(atomic) = self.atomic;
        if !atomic.is_power_of_two() || !(512..=ATOMIC_MAX).contains(&atomic) {
            problems.add(
                &path.key("atomic"),
                format!("writes are torn at multiples of a power of two, 512 to 1MiB, not of {atomic} bytes"),
            );
        }
        if self.size.0 < 4096 {
            problems.add_with_help(
                &path.key("size"),
                format!("a cache of {} bytes holds no block", self.size.0),
                "give it at least 4KiB",
            );
        }
    }

    fn describe(&self) -> String {
        let ignores = match self.ignores {
            Ignores::Nothing => "",
            Ignores::Flush => ", ignores flushes",
            Ignores::Fua => ", ignores FUA",
            Ignores::Both => ", ignores flushes and FUA",
        };
        format!("volatile, {}, torn at {}{ignores}", self.size, self.atomic)
    }

    fn open(&self, mut below: Vec<Arc<dyn Device>>, opening: &mut Opening) -> Result<Arc<dyn Device>> {
        let options = WriteCacheOptions {
            bytes: self.size.0,
            write_back: match self.write_back {
                WriteBackSpec::Oldest => WriteBack::Oldest,
                WriteBackSpec::Random => WriteBack::Random,
            },
            // Validated to be a mebibyte at the most.
            atomic_unit_bytes: u32::try_from(self.atomic.0).unwrap_or(u32::MAX),
            lies: Lies {
                flush: matches!(self.ignores, Ignores::Flush | Ignores::Both),
                fua: matches!(self.ignores, Ignores::Fua | Ignores::Both),
            },
        };
        Ok(WriteCacheDevice::new(opening.one(&mut below)?, options)?)
    }
}
