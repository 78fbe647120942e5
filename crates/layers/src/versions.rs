//! The layer that remembers, as a stack has it: `versions`, or `versions: { every: 60s, keep: 24 }`.

use std::sync::Arc;

use rotproof_block::{Device, Result};
use rotproof_spec::{Bytes, Path, Problems, Span};
use rotproof_volume::checksum::Found;
use rotproof_volume::versions::{VersionsDevice, VersionsOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Kind, Stands};
use crate::open::Opening;

/// The layer that keeps earlier states of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VersionsSpec {
    /// How often a version is captured by itself, as long as somebody writes. Default: never.
    #[serde(default)]
    pub every: Option<Span>,
    /// How many automatic versions are kept. Default 24.
    #[serde(default = "keep_default")]
    pub keep: usize,
    /// Percent of the device below that are kept for versions, 1 to 90, when it is made. Default 20.
    #[serde(default = "reserve_default")]
    pub reserve: u8,
    /// The map in memory; 4MiB are enough for 4GiB of data. Default 64MiB.
    #[serde(default = "cache_default")]
    pub cache: Bytes,
    /// Begin anew on a device that holds something else, which is lost. Default false.
    #[serde(default)]
    pub overwrite: bool,
}

fn keep_default() -> usize {
    VersionsOptions::default().keep
}

fn reserve_default() -> u8 {
    VersionsOptions::default().reserve_percent
}

fn cache_default() -> Bytes {
    Bytes(VersionsOptions::default().cache_bytes)
}

impl Default for VersionsSpec {
    fn default() -> Self {
        Self {
            every: None,
            keep: keep_default(),
            reserve: reserve_default(),
            cache: cache_default(),
            overwrite: false,
        }
    }
}

impl Kind for VersionsSpec {
    const WORD: &'static str = "versions";
    const EXAMPLE: &'static str = "{ versions: { every: 60s, keep: 24 } }";
    const SUMMARY: &'static str = "keeps earlier states, captured by itself or by command";
    const STANDS: Stands = Stands::OnOne;
    const OUTLIVES_POWER: bool = true;

    /// Where a block is changes with time.
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
        let bytes = below.first().copied().flatten()?;
        VersionsDevice::place_on(bytes, self.reserve).ok().map(|(_, size)| size)
    }

    fn up(&self, _leg: usize, _offset: u64, _below: &[u64]) -> Option<u64> {
        None
    }

    fn validate(&self, below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        if self.keep == 0 {
            problems.add_with_help(
                &path.key("keep"),
                "no version is kept",
                "keep 1 at least, or leave `every` out",
            );
        }
        if self.every.is_some_and(|every| every.0.is_zero()) {
            problems.add_with_help(&path.key("every"), "a version each 0 s", "give a time such as 60s");
        }
        // A size that is not known yet is large enough for a look at the reserve.
        let bytes = below.first().copied().flatten().unwrap_or(1 << 30);
        if let Err(error) = VersionsDevice::place_on(bytes, self.reserve) {
            problems.add_with_help(
                path,
                error.context(),
                "give the device below 8MiB at least, and `reserve` 1 to 90",
            );
        }
    }

    fn describe(&self) -> String {
        let reserve = self.reserve;
        match self.every {
            Some(every) => format!("a version each {every}, {} of them kept, {reserve}% reserved", self.keep),
            None => format!("versions by command, {reserve}% reserved"),
        }
    }

    fn open(&self, mut below: Vec<Arc<dyn Device>>, opening: &mut Opening) -> Result<Arc<dyn Device>> {
        let id = opening.identity();
        let options = VersionsOptions {
            reserve_percent: self.reserve,
            every: self.every.map(|every| every.0),
            keep: self.keep,
            cache_bytes: self.cache.0,
            epoch_ns: opening.epoch_ns(),
            found: if self.overwrite { Found::Make(id) } else { Found::OpenOrMake(id) },
            ..VersionsOptions::default()
        };
        Ok(VersionsDevice::open(opening.one(&mut below)?, options)?)
    }
}
