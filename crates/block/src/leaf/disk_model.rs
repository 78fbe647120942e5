//! How long a disk takes: a pure state machine from (arrival, access) to the time of completion. No data, no I/O.
//!
//! The figures are typical of their kind, not of one product, and all can be changed. Sources: for the arm and the
//! platter Ruemmler and Wilkes, "An Introduction to Disk Drive Modeling" (IEEE Computer 27(3), 1994): seek time grows
//! with the square root of the distance, then a wait for the sector, then the transfer at the speed of its zone. For
//! flash, Agrawal et al., "Design Tradeoffs for SSD Performance" (USENIX ATC 2008): independent units behind one
//! interface.

use std::time::Duration;

use crate::Time;

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
    /// Time of a flush once everything before it is done.
    pub flush: Duration,
    /// Unit times vary by this share of themselves, up or down.
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

/// What a request asks of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Data from the medium.
    Read,
    /// Data to the medium.
    Write,
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
    /// When the last request taken so far will be done.
    all_done: Time,
}

#[derive(Clone, Debug)]
enum Mechanics {
    Rotating { profile: RotatingProfile, free_at: Time, head: u64 },
    Flash { profile: FlashProfile, units_free_at: Vec<Time>, interface_free_at: Time },
}

impl DiskModel {
    /// An idle disk of `size` bytes, its arm at the beginning.
    pub fn new(profile: DiskProfile, size: u64) -> Self {
        let mechanics = match profile {
            DiskProfile::Rotating(profile) => {
                Mechanics::Rotating { profile, free_at: Time::default(), head: 0 }
            }
            DiskProfile::Flash(profile) => Mechanics::Flash {
                units_free_at: vec![Time::default(); profile.units.max(1) as usize],
                profile,
                interface_free_at: Time::default(),
            },
        };
        Self { size, mechanics, all_done: Time::default() }
    }

    /// Takes a request that arrives at `now`, and says when it will be done. Requests are given in the order of their
    /// arrival. `draw` is a random number for this request.
    pub fn take(&mut self, now: Time, access: Access, offset: u64, length: u64, draw: u64) -> Time {
        let size = self.size;
        let done = match (&mut self.mechanics, access) {
            (Mechanics::Rotating { .. }, Access::Flush) => self.all_done.max(now),
            (Mechanics::Flash { profile, .. }, Access::Flush) => self.all_done.max(now).after(profile.flush),
            (Mechanics::Rotating { profile, .. }, Access::Command) => now.after(profile.command),
            (Mechanics::Flash { profile, .. }, Access::Command) => now.after(profile.command),
            (Mechanics::Rotating { profile, free_at, head }, Access::Read | Access::Write) => {
                let start = now.max(*free_at).after(profile.command);
                let positioned =
                    if offset == *head { start } else { profile.position(start, *head, offset, size) };
                *head = offset + length;
                *free_at = positioned.after(profile.transfer(offset, length, size));
                *free_at
            }
            (
                Mechanics::Flash { profile, units_free_at, interface_free_at },
                Access::Read | Access::Write,
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
                units_done.max(*interface_free_at)
            }
        };
        self.all_done = self.all_done.max(done);
        done
    }
}

impl RotatingProfile {
    fn revolution_ns(&self) -> u64 {
        60_000_000_000 / u64::from(self.revolutions_per_minute.max(1))
    }

    /// When the head stands over `offset`, having left `head` at `start`.
    fn position(&self, start: Time, head: u64, offset: u64, size: u64) -> Time {
        let distance = head.abs_diff(offset) as f64 / size.max(1) as f64;
        let seek =
            self.seek_min + (self.seek_max.saturating_sub(self.seek_min)).mul_f64(distance.sqrt().min(1.0));
        let arrived = start.after(seek);
        let revolution = self.revolution_ns();
        let track_bytes = (self.bytes_per_s(offset, size) * revolution as f64 / 1e9).max(1.0);
        // Where on its track the sector is, as the time at which it passes the head in each revolution.
        let passes = ((offset as f64 % track_bytes) / track_bytes * revolution as f64) as u64;
        let wait = (passes + revolution - arrived.0 % revolution) % revolution;
        arrived.after(Duration::from_nanos(wait))
    }

    fn bytes_per_s(&self, offset: u64, size: u64) -> f64 {
        let inward = offset as f64 / size.max(1) as f64;
        self.outer_bytes_per_s as f64 * (1.0 - inward) + self.inner_bytes_per_s as f64 * inward
    }

    fn transfer(&self, offset: u64, length: u64, size: u64) -> Duration {
        per_second(length, self.bytes_per_s(offset, size) as u64)
    }
}

fn per_second(bytes: u64, bytes_per_s: u64) -> Duration {
    let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// `time`, more or less by at most the share `jitter`, as `draw` decides.
fn vary(time: Duration, jitter: f64, draw: u64) -> Duration {
    let unit = (crate::hash::mix(draw, 0, 0) >> 11) as f64 / (1u64 << 53) as f64;
    time.mul_f64((1.0 + jitter * (2.0 * unit - 1.0)).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    const SIZE: u64 = 100 << 30;

    /// Requests per second of a closed loop at `depth`.
    fn requests_per_s(profile: DiskProfile, access: Access, depth: usize, length: u64, random: bool) -> f64 {
        let mut model = DiskModel::new(profile, SIZE);
        let mut lanes = vec![Time::default(); depth];
        let requests = 4000;
        for index in 0..requests {
            let lane = (0..depth).min_by_key(|&lane| lanes[lane]).expect("a lane");
            let place = if random { mix(1, 2, index) % (SIZE / length) } else { index };
            lanes[lane] = model.take(lanes[lane], access, place * length, length, index);
        }
        let end = lanes.iter().max().expect("a lane").0;
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
            let mut model = DiskModel::new(profile, SIZE);
            let written = model.take(Time(0), Access::Write, 1 << 30, 1 << 20, 1);
            assert!(model.take(Time(1), Access::Flush, 0, 0, 2) >= written, "{profile:?}");
        }
    }

    #[test]
    fn the_same_requests_take_the_same_time() {
        let run = || {
            let mut model = DiskModel::new(DiskProfile::SSD, SIZE);
            (0..100)
                .map(|index| model.take(Time(index * 50_000), Access::Write, index * 4096, 4096, index))
                .collect()
        };
        let first: Vec<Time> = run();
        assert_eq!(first, run());
    }
}
