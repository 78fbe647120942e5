//! The description of a simulated disk: a profile, and what of it is different.

use std::sync::Arc;

use rotproof_block::leaf::{self, SimulatedDisk};
use rotproof_block::{Device, Result};
use rotproof_spec::{Bytes, Path, Problems, Span, number_in_range};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Kind, Stands};
use crate::open::Opening;
use crate::stack_spec::validate_size;

/// A simulated disk: a model of latency and bandwidth over RAM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskSpec {
    /// What it behaves like.
    pub profile: DiskProfile,
    /// Capacity.
    pub size: Bytes,
    /// Time in which ssd and nvme read a page of flash. Default: 80us for ssd, 70us for nvme.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_latency: Option<Span>,
    /// Time in which ssd and nvme take a written page. Default: 30us for ssd, 12us for nvme.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_latency: Option<Span>,
    /// Time of a flush of ssd and nvme once everything before it is done. Default: 900us for ssd, 500us for nvme.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_latency: Option<Span>,
    /// Seek of an hdd over the whole disk. Default: 16ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seek_max: Option<Span>,
    /// Revolutions of an hdd per minute. Default: 7200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revolutions_per_minute: Option<u32>,
    /// Bytes per second: of the interface for ssd and nvme, of the outermost tracks for hdd. Default: 550MB for ssd,
    /// 3.5GB for nvme, 260MB for hdd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bytes>,
    /// Memory of the disk for writes, from 64KiB: they are acknowledged there until it is full, and then none until half
    /// of it is on the medium. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<Bytes>,
}

/// The disks that can be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskProfile {
    /// A disk with one arm, 7200 revolutions per minute.
    Hdd,
    /// A SATA solid state disk.
    Ssd,
    /// An NVMe solid state disk.
    Nvme,
}

impl DiskProfile {
    /// The word it is written with.
    pub fn word(self) -> &'static str {
        match self {
            Self::Hdd => "hdd",
            Self::Ssd => "ssd",
            Self::Nvme => "nvme",
        }
    }
}

/// Slowest latency that can be asked for: an hour, so that sums of many stay far below what time can hold.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

impl DiskSpec {
    /// Unit of addressing in bytes.
    pub(crate) const BLOCK_SIZE: u32 = 512;

    /// A disk of that size that behaves as its profile says.
    pub fn new(profile: DiskProfile, size: Bytes) -> Self {
        Self {
            profile,
            size,
            read_latency: None,
            write_latency: None,
            flush_latency: None,
            seek_max: None,
            revolutions_per_minute: None,
            bandwidth: None,
            write_cache: None,
        }
    }

    /// The profile with what the description says otherwise.
    pub(crate) fn model(&self) -> leaf::DiskProfile {
        let mut model = match self.profile {
            DiskProfile::Hdd => leaf::DiskProfile::HDD,
            DiskProfile::Ssd => leaf::DiskProfile::SSD,
            DiskProfile::Nvme => leaf::DiskProfile::NVME,
        };
        match &mut model {
            leaf::DiskProfile::Rotating(disk) => {
                if let Some(seek_max) = self.seek_max {
                    disk.seek_max = seek_max.0;
                    disk.seek_min = disk.seek_min.min(seek_max.0);
                }
                if let Some(revolutions) = self.revolutions_per_minute {
                    disk.revolutions_per_minute = revolutions;
                }
                if let Some(bandwidth) = self.bandwidth {
                    // The inner tracks keep their share of the outer ones' speed.
                    let inner = u128::from(disk.inner_bytes_per_s) * u128::from(bandwidth.0)
                        / u128::from(disk.outer_bytes_per_s);
                    disk.inner_bytes_per_s = u64::try_from(inner).unwrap_or(bandwidth.0).max(1);
                    disk.outer_bytes_per_s = bandwidth.0;
                }
            }
            leaf::DiskProfile::Flash(disk) => {
                disk.read = self.read_latency.map_or(disk.read, |span| span.0);
                disk.write = self.write_latency.map_or(disk.write, |span| span.0);
                disk.flush = self.flush_latency.map_or(disk.flush, |span| span.0);
                disk.interface_bytes_per_s =
                    self.bandwidth.map_or(disk.interface_bytes_per_s, |bytes| bytes.0);
            }
        }
        model
    }

    fn validate_cache(&self, path: &Path, problems: &mut Problems) {
        if let Some(cache) = self.write_cache
            && !(WRITE_CACHE_MIN..=WRITE_CACHE_MAX).contains(&cache.0)
        {
            problems.add_with_help(
                &path.key("write_cache"),
                format!("a write cache of {cache} is not possible"),
                format!("give {} to {}, or leave it out", Bytes(WRITE_CACHE_MIN), Bytes(WRITE_CACHE_MAX)),
            );
        }
    }

    fn refuse(&self, key: &str, path: &Path, problems: &mut Problems) {
        problems.add_with_help(
            &path.key(key),
            format!("the profile {} has no {key}", self.profile.word()),
            if self.profile == DiskProfile::Hdd {
                "an hdd has seek_max, revolutions_per_minute and bandwidth"
            } else {
                "ssd and nvme have read_latency, write_latency, flush_latency and bandwidth"
            },
        );
    }
}

/// Bytes per second between which a disk is still one.
const BANDWIDTH_MIN: u64 = 1 << 10;
const BANDWIDTH_MAX: u64 = 1 << 40;
/// A request of a file system fits into the smallest cache.
const WRITE_CACHE_MIN: u64 = 64 << 10;
const WRITE_CACHE_MAX: u64 = 1 << 40;

impl Kind for DiskSpec {
    const WORD: &'static str = "disk";
    const EXAMPLE: &'static str = "{ disk: { profile: nvme, size: 1GiB } }";
    const SUMMARY: &'static str = "a simulated disk over RAM";
    const STANDS: Stands = Stands::Alone;

    fn size(&self, _below: &[Option<u64>]) -> Option<u64> {
        Some(self.size.0)
    }

    fn validate(&self, _below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        validate_size(self.size, u64::from(Self::BLOCK_SIZE), path, problems);
        let is_flash = self.profile != DiskProfile::Hdd;
        let spans = [
            ("read_latency", self.read_latency, true),
            ("write_latency", self.write_latency, true),
            ("flush_latency", self.flush_latency, true),
            ("seek_max", self.seek_max, false),
        ];
        for (key, span, of_flash) in spans {
            let Some(span) = span else { continue };
            if is_flash != of_flash {
                self.refuse(key, path, problems);
            } else if span.0.as_nanos() > u128::from(LATENCY_MAX_NS) {
                problems.add(&path.key(key), format!("{span} is more than an hour"));
            }
        }
        if let Some(revolutions) = self.revolutions_per_minute {
            let key = path.key("revolutions_per_minute");
            if is_flash {
                self.refuse("revolutions_per_minute", path, problems);
            } else {
                number_in_range(
                    problems,
                    &key,
                    "the number of revolutions",
                    u64::from(revolutions),
                    60..=60_000,
                );
            }
        }
        self.validate_cache(path, problems);
        if let Some(bandwidth) = self.bandwidth
            && !(BANDWIDTH_MIN..=BANDWIDTH_MAX).contains(&bandwidth.0)
        {
            problems.add(
                &path.key("bandwidth"),
                format!(
                    "{bandwidth} per second; it must be from {} to {}",
                    Bytes(BANDWIDTH_MIN),
                    Bytes(BANDWIDTH_MAX)
                ),
            );
        }
    }

    fn describe(&self) -> String {
        format!("simulated {}, {}", self.profile.word(), self.size)
    }

    fn open(&self, _below: Vec<Arc<dyn Device>>, _opening: &mut Opening) -> Result<Arc<dyn Device>> {
        let (size, model) = (self.size.0, self.model());
        Ok(match self.write_cache {
            None => SimulatedDisk::new(size, Self::BLOCK_SIZE, model)?,
            Some(cache) => SimulatedDisk::with_write_cache(size, Self::BLOCK_SIZE, model, cache.0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(json: &str) -> DiskSpec {
        serde_json::from_str(json).expect(json)
    }

    fn problems(json: &str) -> Vec<String> {
        let mut problems = Problems::default();
        disk(json).validate(&[], &Path::root(), &mut problems);
        problems.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
    }

    #[test]
    fn what_the_description_says_replaces_what_the_profile_says() {
        let leaf::DiskProfile::Flash(flash) =
            disk(r#"{"profile": "nvme", "size": "1GiB", "read_latency": "1ms", "bandwidth": "1MiB"}"#)
                .model()
        else {
            panic!("nvme is flash")
        };
        assert_eq!((flash.read.as_micros(), flash.interface_bytes_per_s), (1000, 1 << 20));
        assert_eq!(flash.write.as_micros(), 12);
        let leaf::DiskProfile::Rotating(arm) =
            disk(r#"{"profile": "hdd", "size": "1GiB", "bandwidth": "26MB", "seek_max": "100us"}"#).model()
        else {
            panic!("an hdd rotates")
        };
        assert_eq!((arm.outer_bytes_per_s, arm.inner_bytes_per_s), (26_000_000, 12_000_000));
        assert_eq!((arm.seek_min.as_micros(), arm.seek_max.as_micros()), (100, 100));
    }

    #[test]
    fn what_a_profile_does_not_have_is_refused() {
        for (json, part) in [
            (r#"{"profile": "hdd", "size": "1GiB", "read_latency": "1ms"}"#, "hdd has no read_latency"),
            (r#"{"profile": "ssd", "size": "1GiB", "seek_max": "1ms"}"#, "ssd has no seek_max"),
            (
                r#"{"profile": "ssd", "size": "1GiB", "revolutions_per_minute": 7200}"#,
                "ssd has no revolutions",
            ),
            (r#"{"profile": "hdd", "size": "1GiB", "revolutions_per_minute": 0}"#, "from 60"),
            (r#"{"profile": "ssd", "size": "1GiB", "bandwidth": 0}"#, "per second"),
            (r#"{"profile": "ssd", "size": "1GiB", "flush_latency": "2h"}"#, "more than an hour"),
            (r#"{"profile": "ssd", "size": 100}"#, "less than one block"),
            (r#"{"profile": "ssd", "size": 5000}"#, "no multiple"),
            (r#"{"profile": "hdd", "size": "1GiB", "write_cache": "4KiB"}"#, "a write cache of 4KiB"),
        ] {
            let found = problems(json);
            assert_eq!(found.len(), 1, "{json}: {found:?}");
            assert!(found[0].contains(part), "{json}: {found:?}");
        }
        assert!(problems(r#"{"profile": "hdd", "size": "1GiB", "seek_max": "1ms"}"#).is_empty());
    }
}
