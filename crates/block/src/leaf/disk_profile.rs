//! What a simulated disk is made of: the parameters of the model, and the three kinds of disk.
//!
//! The figures are typical of their kind, not of one product, and all can be changed.

use std::time::Duration;

use crate::{Error, ErrorKind, Result};

/// Far above any real disk; keeps the model's state small.
const UNITS_MAX: u32 = 65536;
/// Far above any real disk; keeps sums of times in range.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// What a disk is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DiskProfile {
    /// One arm over rotating platters.
    Rotating(RotatingProfile),
    /// Many flash units behind one interface.
    Flash(FlashProfile),
}

/// A disk with one arm. It serves one request after the other, in the order of their arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotatingProfile {
    /// Revolutions per minute.
    pub revolutions_per_minute: u32,
    /// Seek to the next track.
    pub seek_min: Duration,
    /// Seek over the whole disk; between them it grows with the square root of the distance.
    pub seek_max: Duration,
    /// Bytes per second of the outermost zone, where the disk begins.
    pub outer_bytes_per_s: u64,
    /// Bytes per second of the innermost zone.
    pub inner_bytes_per_s: u64,
    /// Time to take a command.
    pub command: Duration,
}

/// A flash disk. Units work side by side, each on one page at a time; all data pass one interface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlashProfile {
    /// Units that work side by side.
    pub units: u32,
    /// Consecutive bytes that lie in one unit.
    pub page_bytes: u64,
    /// Time of a unit to read a page.
    pub read: Duration,
    /// Time until a written page is taken: programming itself is hidden by the disk's own memory.
    pub write: Duration,
    /// Bytes per second of the interface.
    pub interface_bytes_per_s: u64,
    /// Time to take a command.
    pub command: Duration,
    /// Time of a flush once everything before it is done; a write with force unit access takes this much longer.
    pub flush: Duration,
    /// Unit times vary by this share of themselves, up or down; from 0 to 1.
    pub jitter: f64,
}

impl DiskProfile {
    /// A 7200 rpm disk: 8.9 ms mean seek, 4.2 ms mean rotational wait, 260 to 120 MB/s.
    pub const HDD: Self = Self::Rotating(RotatingProfile {
        revolutions_per_minute: 7200,
        seek_min: Duration::from_micros(800),
        seek_max: Duration::from_millis(16),
        outer_bytes_per_s: 260_000_000,
        inner_bytes_per_s: 120_000_000,
        command: Duration::from_micros(100),
    });

    /// A SATA flash disk: about 10,000 reads per second one by one, 550 MB/s.
    pub const SSD: Self = Self::Flash(FlashProfile {
        units: 32,
        page_bytes: 4096,
        read: Duration::from_micros(80),
        write: Duration::from_micros(30),
        interface_bytes_per_s: 550_000_000,
        command: Duration::from_micros(15),
        flush: Duration::from_micros(900),
        jitter: 0.1,
    });

    /// An NVMe flash disk: about 13,000 reads per second one by one, 3.5 GB/s.
    pub const NVME: Self = Self::Flash(FlashProfile {
        units: 128,
        page_bytes: 4096,
        read: Duration::from_micros(70),
        write: Duration::from_micros(12),
        interface_bytes_per_s: 3_500_000_000,
        command: Duration::from_micros(5),
        flush: Duration::from_micros(500),
        jitter: 0.1,
    });
}

impl DiskProfile {
    /// Refuses what no disk can be.
    pub(super) fn check(&self) -> Result<()> {
        let demands: &[(bool, &str)] = match self {
            Self::Rotating(profile) => &[
                (profile.revolutions_per_minute > 0, "a rotating disk turns: revolutions per minute above 0"),
                (profile.seek_min <= profile.seek_max, "the shortest seek is no longer than the longest"),
                (
                    profile.outer_bytes_per_s > 0 && profile.inner_bytes_per_s > 0,
                    "every zone moves data: bytes per second above 0",
                ),
            ],
            Self::Flash(profile) => &[
                (
                    (1..=UNITS_MAX).contains(&profile.units),
                    "a flash disk has from 1 to 65536 units that work side by side",
                ),
                (profile.page_bytes > 0, "a page has bytes"),
                (profile.interface_bytes_per_s > 0, "the interface moves data: bytes per second above 0"),
                ((0.0..=1.0).contains(&profile.jitter), "jitter is a share from 0 to 1"),
            ],
        };
        let times = match self {
            Self::Rotating(profile) => [profile.seek_max, profile.command, Duration::ZERO, Duration::ZERO],
            Self::Flash(profile) => [profile.read, profile.write, profile.flush, profile.command],
        };
        if times.iter().any(|&time| time > TIME_MAX) {
            return Err(Error::new(ErrorKind::Invalid, "no such disk can be: nothing takes above an hour"));
        }
        match demands.iter().find(|(met, _)| !met) {
            None => Ok(()),
            Some((_, demand)) => {
                Err(Error::new(ErrorKind::Invalid, format!("no such disk can be: {demand}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profiles_given_here_can_be() {
        for profile in [DiskProfile::HDD, DiskProfile::SSD, DiskProfile::NVME] {
            profile.check().expect("a disk");
        }
    }

    #[test]
    fn senseless_profiles_are_refused() {
        let DiskProfile::Rotating(hdd) = DiskProfile::HDD else { unreachable!("a constant") };
        let DiskProfile::Flash(ssd) = DiskProfile::SSD else { unreachable!("a constant") };
        for profile in [
            DiskProfile::Rotating(RotatingProfile { revolutions_per_minute: 0, ..hdd }),
            DiskProfile::Rotating(RotatingProfile { seek_min: Duration::from_secs(1), ..hdd }),
            DiskProfile::Rotating(RotatingProfile { inner_bytes_per_s: 0, ..hdd }),
            DiskProfile::Rotating(RotatingProfile { command: Duration::MAX, ..hdd }),
            DiskProfile::Flash(FlashProfile { units: 0, ..ssd }),
            DiskProfile::Flash(FlashProfile { units: u32::MAX, ..ssd }),
            DiskProfile::Flash(FlashProfile { page_bytes: 0, ..ssd }),
            DiskProfile::Flash(FlashProfile { interface_bytes_per_s: 0, ..ssd }),
            DiskProfile::Flash(FlashProfile { jitter: f64::NAN, ..ssd }),
            DiskProfile::Flash(FlashProfile { jitter: 1.5, ..ssd }),
            DiskProfile::Flash(FlashProfile { read: Duration::MAX, ..ssd }),
        ] {
            let error = profile.check().expect_err("must be refused");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{profile:?}");
        }
    }
}
