//! One group over its years: a race of failures, errors, and rebuilds.

use super::random::Stream;
use super::tally::GroupFate;
use super::{DEVICES_MAX, Fleet, Sampling};

/// A fleet made ready to be simulated group by group.
#[derive(Clone, Debug)]
pub struct Model {
    fleet: Fleet,
    devices: u32,
    /// Failures per device and year while the group is whole, as drawn.
    failure_rate_drawn: f64,
    /// By how much error rates are raised.
    error_raise: f64,
    /// Least share of failures among the ends of a degraded state, as drawn.
    failure_share_min: f64,
    /// Probability that nothing at all happens to a group in all years, as drawn.
    nothing: f64,
}

/// Events of a kind to expect in a group's life once rates are raised.
const EVENTS_WANTED: f64 = 1.0;

/// A damaged place that nobody has found yet.
#[derive(Clone, Copy, Debug)]
struct Latent {
    device: u32,
    /// When a scrub finds it.
    until: f64,
}

impl Model {
    pub fn new(fleet: &Fleet, sampling: Sampling) -> Self {
        let devices = fleet.devices();
        let life = f64::from(devices) * fleet.years;
        let raise = |rate: f64| match sampling {
            Sampling::Importance if rate > 0.0 => (EVENTS_WANTED / (rate * life)).max(1.0),
            _ => 1.0,
        };
        let failure_raise = raise(fleet.failures_per_year);
        let error_raise = raise(fleet.errors_per_year);
        let failure_rate_drawn = fleet.failures_per_year * failure_raise;
        // Each degraded state adds about this share to the variance of the weights, so that many of them ask for less.
        let degraded = (failure_rate_drawn * life).max(1.0);
        let failure_share_min = match sampling {
            Sampling::Importance => 0.5 / degraded,
            Sampling::Plain => 0.0,
        };
        let drawn = life * (failure_rate_drawn + fleet.errors_per_year * error_raise);
        Self {
            fleet: *fleet,
            devices,
            failure_rate_drawn,
            error_raise,
            failure_share_min,
            nothing: (-drawn).exp(),
        }
    }

    /// What came of the group with this stream; `None` if nothing happened.
    #[inline]
    pub fn live(&self, stream: &mut Stream) -> Option<GroupFate> {
        if self.fleet.clustering.is_some() {
            return self.live_clustered(stream);
        }
        // One number decides whether anything happens at all, and if so when first.
        let first = stream.uniform();
        if first < self.nothing {
            return None;
        }
        let drawn = f64::from(self.devices)
            * (self.failure_rate_drawn + self.fleet.errors_per_year * self.error_raise);
        let rates = [self.fleet.errors_per_year; DEVICES_MAX as usize];
        Some(self.race(stream, -first.ln() / drawn, &rates))
    }

    fn live_clustered(&self, stream: &mut Stream) -> Option<GroupFate> {
        let shape = self.fleet.clustering?;
        let mut rates = [0.0; DEVICES_MAX as usize];
        for rate in rates.iter_mut().take(self.devices as usize) {
            *rate = self.fleet.errors_per_year * stream.gamma(shape);
        }
        let errors: f64 = rates.iter().sum();
        let drawn = f64::from(self.devices) * self.failure_rate_drawn + errors * self.error_raise;
        if drawn <= 0.0 {
            return None;
        }
        let first = stream.exponential() / drawn;
        (first < self.fleet.years).then(|| self.race(stream, first, &rates))
    }

    /// The life of a group whose first event is at `now`.
    #[cold]
    fn race(&self, stream: &mut Stream, first: f64, error_rates: &[f64; DEVICES_MAX as usize]) -> GroupFate {
        let fleet = &self.fleet;
        let parity = fleet.redundancy.parity;
        let mut fate = GroupFate::default();
        let mut ln_weight = 0.0;
        let mut failed = 0u64;
        let mut failed_count = 0u32;
        let mut latents: Vec<Latent> = Vec::new();
        let (mut now, mut waited) = (0.0, Some(first));
        loop {
            let up = f64::from(self.devices - failed_count);
            let is_up = |device: u32| failed >> device & 1 == 0;
            let errors_true: f64 = if fleet.clustering.is_none() {
                up * fleet.errors_per_year
            } else {
                (0..self.devices)
                    .filter(|&device| is_up(device))
                    .map(|device| error_rates[device as usize])
                    .sum()
            };
            let errors = errors_true * self.error_raise;
            let failures_true = up * fleet.failures_per_year;
            let failures = if failed_count == 0 { up * self.failure_rate_drawn } else { failures_true };
            let rebuilds = f64::from(failed_count) / fleet.rebuild_years;
            let all = errors + failures + rebuilds;
            let wait = match waited.take() {
                Some(wait) => wait,
                None if all > 0.0 => stream.exponential() / all,
                None => f64::INFINITY,
            };
            let elapsed = wait.min(fleet.years - now);
            // The weight of having waited: e^-true / e^-drawn.
            ln_weight += (errors + failures - errors_true - failures_true) * elapsed;
            now += wait;
            if now >= fleet.years {
                break;
            }
            if stream.uniform() * all < errors {
                ln_weight -= self.error_raise.ln();
                fate.errors += 1.0;
                let device = self.pick(stream, failed, error_rates);
                self.damage(stream, &mut fate, device, now, failed_count, &mut latents);
                continue;
            }
            // A failure or the end of a rebuild: while degraded, failures are drawn more often than they come.
            let share_true = failures / (failures + rebuilds);
            let share = if failed_count == 0 { 1.0 } else { share_true.max(self.failure_share_min) };
            if stream.uniform() < share {
                ln_weight += if failed_count == 0 {
                    (failures_true / failures).ln()
                } else {
                    (share_true / share).ln()
                };
                fate.failures += 1.0;
                let device = self.pick_up(stream, failed);
                failed |= 1 << device;
                failed_count += 1;
                latents.retain(|latent| latent.device != device);
                if failed_count > parity {
                    fate.lost_devices = true;
                    break;
                }
                if failed_count == parity {
                    fate.lost_sectors |= latents.iter().any(|latent| latent.until > now);
                }
            } else {
                ln_weight += ((1.0 - share_true) / (1.0 - share)).ln();
                // Which one is rebuilt first makes no difference: they are alike.
                failed &= failed - 1;
                failed_count -= 1;
            }
        }
        fate.weight = ln_weight.exp();
        fate
    }

    /// An event damages sectors of a device.
    fn damage(
        &self,
        stream: &mut Stream,
        fate: &mut GroupFate,
        device: u32,
        now: f64,
        failed_count: u32,
        latents: &mut Vec<Latent>,
    ) {
        let fleet = &self.fleet;
        let sectors = stream.geometric(fleet.continuation);
        fate.silent += sectors * fleet.undetected;
        // If all of them pass their checksums, nothing is ever found that could be lost.
        let is_noticed = fleet.undetected <= 0.0 || stream.uniform() >= fleet.undetected.powf(sectors);
        if !is_noticed {
            return;
        }
        if failed_count == fleet.redundancy.parity {
            fate.lost_sectors = true;
        } else {
            latents.retain(|latent| latent.until > now);
            latents.push(Latent { device, until: now + stream.uniform() * fleet.scrub_years });
        }
    }

    /// A device that is up, each with its error rate as its chance.
    fn pick(&self, stream: &mut Stream, failed: u64, error_rates: &[f64; DEVICES_MAX as usize]) -> u32 {
        if self.fleet.clustering.is_none() {
            return self.pick_up(stream, failed);
        }
        let up = || (0..self.devices).filter(|&device| failed >> device & 1 == 0);
        let all: f64 = up().map(|device| error_rates[device as usize]).sum();
        let mut left = stream.uniform() * all;
        up().find(|&device| {
            left -= error_rates[device as usize];
            left < 0.0
        })
        .or_else(|| up().next_back())
        .unwrap_or(0)
    }

    /// A device that is up, each with the same chance.
    fn pick_up(&self, stream: &mut Stream, failed: u64) -> u32 {
        let up = self.devices - failed.count_ones();
        let number = (stream.uniform() * f64::from(up)) as usize;
        (0..self.devices).filter(|&device| failed >> device & 1 == 0).nth(number).unwrap_or(0)
    }
}
