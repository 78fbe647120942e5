//! How long a disk takes: a pure state machine from (arrival, access) to the time of completion. No data, no I/O.
//!
//! Sources: for the arm and the platter Ruemmler and Wilkes, "An Introduction to Disk Drive Modeling" (IEEE Computer 27(3), 1994): seek time grows
//! with the square root of the distance, then a wait for the sector, then the transfer at the speed of its zone. For
//! flash, Agrawal et al., "Design Tradeoffs for SSD Performance" (USENIX ATC 2008): independent units behind one
//! interface.

use std::time::Duration;

use super::disk_cache::WriteCache;
use super::disk_profile::{DiskProfile, FlashProfile, RotatingProfile};
use crate::{Result, Time};

/// What a request asks of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Data from the medium.
    Read,
    /// Data to the medium, or into the disk's own memory unless durable.
    Write {
        /// Force unit access.
        durable: bool,
    },
    /// Everything before it done.
    Flush,
    /// No data moves: discard, write zeroes.
    Command,
}

/// The state of one disk.
#[derive(Clone, Debug)]
pub struct DiskModel {
    size: u64,
    mechanics: Mechanics,
    /// Its own memory, if it takes writes there.
    cache: Option<WriteCache>,
    /// When the last request taken so far will be done.
    all_done: Time,
}

/// How fast a disk with an arm takes data into its memory: SATA 3.
const ROTATING_INTERFACE_BYTES_PER_S: u64 = 550_000_000;

#[derive(Clone, Debug)]
enum Mechanics {
    Rotating { profile: RotatingProfile, free_at: Time, head: u64 },
    Flash { profile: FlashProfile, units_free_at: Vec<Time>, interface_free_at: Time },
}

impl DiskModel {
    /// An idle disk of `size` bytes, its arm at the beginning. Fails with [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) on a
    /// profile that no disk can have.
    pub fn new(profile: DiskProfile, size: u64) -> Result<Self> {
        profile.check()?;
        let mechanics = match profile {
            DiskProfile::Rotating(profile) => {
                Mechanics::Rotating { profile, free_at: Time::default(), head: 0 }
            }
            DiskProfile::Flash(profile) => Mechanics::Flash {
                units_free_at: vec![Time::default(); profile.units as usize],
                profile,
                interface_free_at: Time::default(),
            },
        };
        Ok(Self { size: size.max(1), mechanics, cache: None, all_done: Time::default() })
    }

    /// The same disk with so much memory of its own for writes (`disk_cache.rs`).
    #[must_use]
    pub fn with_write_cache(self, bytes: u64) -> Self {
        let cache = match &self.mechanics {
            Mechanics::Rotating { profile, .. } => {
                WriteCache::new(bytes, profile.command, ROTATING_INTERFACE_BYTES_PER_S, 1)
            }
            Mechanics::Flash { profile, .. } => {
                WriteCache::new(bytes, profile.command, profile.interface_bytes_per_s, profile.units)
            }
        };
        Self { cache: Some(cache), ..self }
    }

    /// Takes a request that arrives at `now`, and says when it will be done. Requests are given in the order of their
    /// arrival. `draw` is a random number for this request.
    pub fn take(&mut self, now: Time, access: Access, offset: u64, length: u64, draw: u64) -> Time {
        let Some(mut cache) = self.cache.take() else {
            return self.take_on_medium(now, access, offset, length, draw);
        };
        let medium =
            &mut |from, access, offset, length, draw| self.take_on_medium(from, access, offset, length, draw);
        let done = cache.take(now, access, (offset, length), draw, medium);
        self.cache = Some(cache);
        done
    }

    fn take_on_medium(&mut self, now: Time, access: Access, offset: u64, length: u64, draw: u64) -> Time {
        let size = self.size;
        let done = match (&mut self.mechanics, access) {
            (Mechanics::Rotating { .. }, Access::Flush) => self.all_done.max(now),
            (Mechanics::Flash { profile, .. }, Access::Flush) => self.all_done.max(now).after(profile.flush),
            (Mechanics::Rotating { profile, .. }, Access::Command) => now.after(profile.command),
            (Mechanics::Flash { profile, .. }, Access::Command) => now.after(profile.command),
            (Mechanics::Rotating { profile, free_at, head }, Access::Read | Access::Write { .. }) => {
                let start = now.max(*free_at).after(profile.command);
                let positioned =
                    if offset == *head { start } else { profile.position(start, *head, offset, size) };
                *head = offset + length;
                *free_at = positioned.after(profile.transfer(offset, length, size));
                *free_at
            }
            (
                Mechanics::Flash { profile, units_free_at, interface_free_at },
                Access::Read | Access::Write { .. },
            ) => {
                let start = now.after(profile.command);
                let unit_time = if access == Access::Read { profile.read } else { profile.write };
                let mut units_done = start;
                for page in offset / profile.page_bytes..(offset + length).div_ceil(profile.page_bytes) {
                    let unit = &mut units_free_at[(page % u64::from(profile.units)) as usize];
                    *unit = start.max(*unit).after(vary(unit_time, profile.jitter, draw.wrapping_add(page)));
                    units_done = units_done.max(*unit);
                }
                // Data pass the interface while the units work, so the slower of the two counts.
                *interface_free_at =
                    start.max(*interface_free_at).after(per_second(length, profile.interface_bytes_per_s));
                let done = units_done.max(*interface_free_at);
                if access == (Access::Write { durable: true }) { done.after(profile.flush) } else { done }
            }
        };
        self.all_done = self.all_done.max(done);
        done
    }
}

impl RotatingProfile {
    fn revolution_ns(&self) -> u64 {
        60_000_000_000 / u64::from(self.revolutions_per_minute)
    }

    /// When the head stands over `offset`, having left `head` at `start`.
    fn position(&self, start: Time, head: u64, offset: u64, size: u64) -> Time {
        let distance = head.abs_diff(offset) as f64 / size as f64;
        let seek = self.seek_min + (self.seek_max - self.seek_min).mul_f64(distance.sqrt().min(1.0));
        let arrived = start.after(seek);
        let revolution = self.revolution_ns();
        let track_bytes = (self.bytes_per_s(offset, size) * revolution as f64 / 1e9).max(1.0);
        // Where on its track the sector is, as the time at which it passes the head in each revolution.
        let passes = ((offset as f64 % track_bytes) / track_bytes * revolution as f64) as u64;
        let wait = (passes + revolution - arrived.0 % revolution) % revolution;
        arrived.after(Duration::from_nanos(wait))
    }

    fn bytes_per_s(&self, offset: u64, size: u64) -> f64 {
        let inward = offset as f64 / size as f64;
        self.outer_bytes_per_s as f64 * (1.0 - inward) + self.inner_bytes_per_s as f64 * inward
    }

    fn transfer(&self, offset: u64, length: u64, size: u64) -> Duration {
        per_second(length, self.bytes_per_s(offset, size) as u64)
    }
}

pub(super) fn per_second(bytes: u64, bytes_per_s: u64) -> Duration {
    let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// `time`, more or less by at most the share `jitter`, as `draw` decides.
fn vary(time: Duration, jitter: f64, draw: u64) -> Duration {
    let unit = (crate::hash::mix(draw, 0, 0) >> 11) as f64 / (1u64 << 53) as f64;
    time.mul_f64(1.0 + jitter * (2.0 * unit - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    const SIZE: u64 = 100 << 30;
    const WRITE: Access = Access::Write { durable: false };

    /// Requests per second of a closed loop at `depth`.
    fn requests_per_s(profile: DiskProfile, access: Access, depth: usize, length: u64, random: bool) -> f64 {
        let mut model = DiskModel::new(profile, SIZE).expect("a disk");
        let mut slots = vec![Time::default(); depth];
        let requests = 4000;
        for index in 0..requests {
            let slot = (0..depth).min_by_key(|&slot| slots[slot]).expect("a slot");
            let place = if random { mix(1, 2, index) % (SIZE / length) } else { index };
            slots[slot] = model.take(slots[slot], access, place * length, length, index);
        }
        let end = slots.iter().max().expect("a slot").0;
        requests as f64 / (end as f64 / 1e9)
    }

    #[test]
    fn a_rotating_disk_streams_at_its_zone_and_seeks_about_seventy_five_times_a_second() {
        let streamed = requests_per_s(DiskProfile::HDD, Access::Read, 1, 1 << 20, false) * (1 << 20) as f64;
        assert!((240e6..262e6).contains(&streamed), "{streamed}");
        let random = requests_per_s(DiskProfile::HDD, Access::Read, 1, 4096, true);
        assert!((65.0..95.0).contains(&random), "{random}");
    }

    #[test]
    fn the_inner_zone_is_slower() {
        let DiskProfile::Rotating(hdd) = DiskProfile::HDD else { unreachable!("a constant") };
        assert!(hdd.transfer(SIZE - (1 << 20), 1 << 20, SIZE) > hdd.transfer(0, 1 << 20, SIZE) * 2);
    }

    #[test]
    fn flash_scales_with_depth_until_its_units_or_its_interface_are_busy() {
        let reads = |depth| requests_per_s(DiskProfile::NVME, Access::Read, depth, 4096, true);
        let (one, eight, many) = (reads(1), reads(8), reads(1024));
        assert!((11_000.0..15_000.0).contains(&one), "{one}");
        assert!((6.0..8.1).contains(&(eight / one)), "{eight}");
        assert!(many < 3.5e9 / 4096.0, "the interface is a limit: {many}");
        let sata =
            requests_per_s(DiskProfile::SSD, Access::Read, 32, 128 << 10, false) * f64::from(128 << 10);
        assert!((450e6..=550e6).contains(&sata), "{sata}");
    }

    #[test]
    fn a_flush_waits_for_what_came_before() {
        for profile in [DiskProfile::HDD, DiskProfile::SSD, DiskProfile::NVME] {
            let mut model = DiskModel::new(profile, SIZE).expect("a disk");
            let written = model.take(Time(0), WRITE, 1 << 30, 1 << 20, 1);
            assert!(model.take(Time(1), Access::Flush, 0, 0, 2) >= written, "{profile:?}");
        }
    }

    #[test]
    fn the_same_requests_take_the_same_time() {
        let run = || {
            let mut model = DiskModel::new(DiskProfile::SSD, SIZE).expect("a disk");
            (0..100).map(|index| model.take(Time(index * 50_000), WRITE, index * 4096, 4096, index)).collect()
        };
        let first: Vec<Time> = run();
        assert_eq!(first, run());
    }

    #[test]
    fn a_durable_write_costs_a_flush_more_on_flash_and_nothing_on_a_platter() {
        let cost = |profile, durable| {
            let mut model = DiskModel::new(profile, SIZE).expect("a disk");
            model.take(Time(0), Access::Write { durable }, 0, 4096, 1).since(Time(0))
        };
        for profile in [DiskProfile::SSD, DiskProfile::NVME] {
            let DiskProfile::Flash(flash) = profile else { unreachable!("a constant") };
            assert_eq!(cost(profile, true), cost(profile, false) + flash.flush);
        }
        assert_eq!(cost(DiskProfile::HDD, true), cost(DiskProfile::HDD, false));
    }

    #[test]
    fn a_request_waits_for_the_arm_and_the_sector_never_longer_than_seek_and_turn() {
        let DiskProfile::Rotating(hdd) = DiskProfile::HDD else { unreachable!("a constant") };
        let mut model = DiskModel::new(DiskProfile::HDD, SIZE).expect("a disk");
        let mut now = Time(0);
        for index in 0..1000 {
            let offset = mix(3, 4, index) % (SIZE / 4096) * 4096;
            let done = model.take(now, Access::Read, offset, 4096, index);
            let turn = Duration::from_nanos(hdd.revolution_ns());
            let longest = hdd.command + hdd.seek_max + turn + hdd.transfer(SIZE, 4096, SIZE);
            assert!(done.since(now) >= hdd.command && done.since(now) <= longest, "{:?}", done.since(now));
            // Some think time, so that the platter is met in every position.
            now = done.after(Duration::from_nanos(mix(5, 6, index) % 9_000_000));
        }
    }

    #[test]
    fn requests_at_the_end_of_time_do_not_overflow() {
        for profile in [DiskProfile::HDD, DiskProfile::SSD, DiskProfile::NVME] {
            let mut model = DiskModel::new(profile, SIZE).expect("a disk");
            let mut cached = model.clone().with_write_cache(1 << 20);
            for access in
                [Access::Read, WRITE, Access::Write { durable: true }, Access::Flush, Access::Command]
            {
                for _ in 0..3 {
                    assert_eq!(model.take(Time(u64::MAX), access, 0, 1 << 20, 7), Time(u64::MAX));
                    assert_eq!(cached.take(Time(u64::MAX), access, 0, 1 << 20, 7), Time(u64::MAX));
                }
            }
        }
    }
}
