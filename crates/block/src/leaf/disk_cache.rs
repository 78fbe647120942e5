//! A disk's own memory for writes: when a write is acknowledged, and when it reaches the medium. A pure state machine over
//! the medium's, like that; no data, no I/O.
//!
//! A write is taken as long as it fits, at the speed of the interface. One that does not fit closes the cache: nothing is
//! taken until half of it is free again. So a load that is faster than the medium has two speeds in turn, and none of
//! them is the one that lasts. What waits goes to the medium in the order of its arrival, whenever that is idle; reads
//! go first.

use std::collections::VecDeque;
use std::time::Duration;

use super::disk_model::Access;
use crate::Time;

/// What the cache asks of the medium: from when on, access, offset, length, draw. It says when that is done.
pub(super) type Medium<'a> = &'a mut dyn FnMut(Time, Access, u64, u64, u64) -> Time;

/// The state of one cache.
#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    bytes_max: u64,
    bytes: u64,
    /// What a write costs beside the transfer.
    command: Duration,
    interface_bytes_per_s: u64,
    interface_free_at: Time,
    /// Closed until then.
    opens_at: Time,
    /// Acknowledged, and not begun on.
    waiting: VecDeque<Write>,
    /// On their way to the medium: when that is done, and how much it is.
    leaving: Vec<(Time, u64)>,
    /// When each of the places is free from which writes go to the medium side by side.
    places_free_at: Vec<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    arrived: Time,
    offset: u64,
    length: u64,
    draw: u64,
}

impl WriteCache {
    pub(super) fn new(
        bytes_max: u64,
        command: Duration,
        interface_bytes_per_s: u64,
        side_by_side: u32,
    ) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            command,
            interface_bytes_per_s,
            interface_free_at: Time::default(),
            opens_at: Time::default(),
            waiting: VecDeque::new(),
            leaving: Vec::new(),
            places_free_at: vec![Time::default(); side_by_side.max(1) as usize],
        }
    }

    /// Takes a request that arrives at `now`, and says when it will be done.
    pub(super) fn take(
        &mut self,
        now: Time,
        access: Access,
        (offset, length): (u64, u64),
        draw: u64,
        medium: Medium<'_>,
    ) -> Time {
        self.settle(now, medium);
        match access {
            Access::Write { durable: false } if length <= self.bytes_max => {
                let mut taken = now.max(self.opens_at);
                if self.bytes + length > self.bytes_max {
                    taken = self.drain(self.bytes_max / 2, taken, medium);
                    // A write of more than half of it needs more room than that.
                    taken = self.drain(self.bytes_max - length, taken, medium);
                    self.opens_at = taken;
                }
                self.bytes += length;
                self.waiting.push_back(Write { arrived: taken, offset, length, draw });
                let transfer = super::disk_model::per_second(length, self.interface_bytes_per_s);
                self.interface_free_at =
                    taken.after(self.command).max(self.interface_free_at).after(transfer);
                self.interface_free_at
            }
            Access::Flush | Access::Write { .. } => {
                let empty = self.drain(0, now, medium);
                medium(empty, access, offset, length, draw)
            }
            Access::Read | Access::Command => medium(now, access, offset, length, draw),
        }
    }

    /// Lets everything happen that happens by `until`.
    fn settle(&mut self, until: Time, medium: Medium<'_>) {
        while let Some(&write) = self.waiting.front() {
            let place = self.places_free_at.iter_mut().min().expect("there is one at least");
            let begins = write.arrived.max(*place);
            if begins > until {
                break;
            }
            self.waiting.pop_front();
            *place = medium(begins, Access::Write { durable: false }, write.offset, write.length, write.draw);
            self.leaving.push((*place, write.length));
        }
        let bytes = &mut self.bytes;
        self.leaving.retain(|&(done, length)| {
            let is_there = done > until;
            *bytes -= if is_there { 0 } else { length };
            is_there
        });
    }

    /// Waits, from `from` on, until no more than `left` bytes are in the cache; says when that is.
    fn drain(&mut self, left: u64, from: Time, medium: Medium<'_>) -> Time {
        let mut at = from;
        loop {
            self.settle(at, medium);
            if self.bytes <= left {
                return at;
            }
            let next_done = self.leaving.iter().map(|&(done, _)| done).min();
            let next_begun = self.waiting.front().map(|write| write.arrived);
            at = next_done.or(next_begun).unwrap_or(at).max(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBI: u64 = 1 << 20;
    const WRITE: Access = Access::Write { durable: false };

    /// A medium that does one thing after the other, a millisecond each.
    fn one_by_one() -> impl FnMut(Time, Access, u64, u64, u64) -> Time {
        let mut free_at = Time::default();
        move |from, _, _, _, _| {
            free_at = from.max(free_at).after(Duration::from_millis(1));
            free_at
        }
    }

    fn cache() -> WriteCache {
        WriteCache::new(MEBI, Duration::from_micros(10), 1 << 40, 1)
    }

    #[test]
    fn writes_are_taken_at_once_until_it_is_full_and_then_wait_for_half_of_it() {
        let (mut cache, mut medium) = (cache(), one_by_one());
        let mut now = Time::default();
        let took: Vec<u128> = (0..64)
            .map(|index| {
                let done = cache.take(now, WRITE, (index * 65536, 65536), index, &mut medium);
                let took = done.since(now).as_micros();
                now = done;
                took
            })
            .collect();
        // Sixteen fit; the first begins to leave at once.
        assert!(took[..16].iter().all(|&took| took < 20), "{took:?}");
        let stalls: Vec<usize> = (0..64).filter(|&index| took[index] > 1000).collect();
        assert_eq!(stalls.len(), 6, "{took:?}");
        assert!(stalls.windows(2).all(|pair| pair[1] - pair[0] == 8 || pair[1] - pair[0] == 9), "{stalls:?}");
        assert!(stalls.iter().all(|&stall| (7000..9000).contains(&took[stall])), "{took:?}");
    }

    #[test]
    fn it_is_as_fast_as_its_medium_in_the_long_run() {
        let (mut cache, mut medium) = (cache(), one_by_one());
        let mut now = Time::default();
        for index in 0..5000 {
            now = cache.take(now, WRITE, (0, 16384), index, &mut medium);
        }
        let flushed = cache.take(now, Access::Flush, (0, 0), 0, &mut medium);
        assert!((5000..5010).contains(&flushed.since(Time::default()).as_millis()), "{flushed:?}");
    }

    #[test]
    fn a_flush_and_a_durable_write_wait_for_all_of_it_and_a_read_for_none() {
        for access in [Access::Flush, Access::Write { durable: true }, Access::Read] {
            let (mut cache, mut medium) = (cache(), one_by_one());
            for index in 0..10 {
                cache.take(Time(0), WRITE, (0, 4096), index, &mut medium);
            }
            let done = cache.take(Time(0), access, (0, 4096), 0, &mut medium).since(Time(0)).as_millis();
            assert_eq!(done, if access == Access::Read { 2 } else { 11 }, "{access:?}");
        }
    }

    #[test]
    fn a_pause_is_enough_for_it_to_empty() {
        let (mut cache, mut medium) = (cache(), one_by_one());
        for index in 0..16 {
            cache.take(Time(0), WRITE, (0, 65536), index, &mut medium);
        }
        let later = Time(1_000_000_000);
        for index in 0..16 {
            let done = cache.take(later, WRITE, (0, 65536), index, &mut medium);
            assert!(done.since(later) < Duration::from_millis(1), "{index}");
        }
    }

    #[test]
    fn more_than_half_of_it_in_one_write_waits_until_that_fits_and_more_than_all_of_it_passes_by() {
        let (mut cache, mut medium) = (cache(), one_by_one());
        cache.take(Time(0), WRITE, (0, MEBI / 2), 0, &mut medium);
        let large = cache.take(Time(0), WRITE, (0, MEBI / 4 * 3), 1, &mut medium);
        assert!(large >= Time(1_000_000), "the first has to leave");
        let larger = cache.take(large, WRITE, (0, 2 * MEBI), 2, &mut medium);
        assert!(larger.since(large) >= Duration::from_millis(1));
    }
}
