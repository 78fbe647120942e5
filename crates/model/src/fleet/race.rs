//! The life of one group: a race of failures, errors and rebuilds, with what is decided already waiting for its time.

use super::DEVICES_MAX;
use super::group::Model;
use super::random::Stream;
use super::tally::GroupFate;

/// A device of the group.
#[derive(Clone, Copy, Debug)]
struct Device {
    /// When it was new, in years; before the beginning if it is older.
    born: f64,
    /// Its error rate, in units of the mean.
    error_factor: f64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    /// It works, and its failure is decided.
    Dying,
    Failed,
}

/// Sectors of a device that are damaged.
#[derive(Clone, Copy, Debug)]
struct Damage {
    device: u32,
    sectors: f64,
    is_front: bool,
    /// Fraction of them that passes unnoticed.
    undetected: f64,
    is_transient: bool,
    /// Whether a scrub can repair it.
    is_repaired: bool,
}

/// What is decided, and waits for its time.
#[derive(Clone, Copy, Debug)]
struct Pending {
    at: f64,
    /// The damage; a failure of the device if there is none.
    damage: Option<Damage>,
    device: u32,
}

/// A damaged place that nobody has found yet.
#[derive(Clone, Copy, Debug)]
struct Latent {
    damage: Damage,
    /// When a scrub finds it.
    until: f64,
}

/// A group that lives.
pub(super) struct Race<'a> {
    model: &'a Model,
    stream: &'a mut Stream,
    devices: [Device; DEVICES_MAX as usize],
    failed_count: u32,
    dying_count: u32,
    latents: Vec<Latent>,
    pending: Vec<Pending>,
    now: f64,
    ln_weight: f64,
    fate: GroupFate,
}

impl<'a> Race<'a> {
    /// A whole group at the beginning; with the error rates of its devices in units of the mean, unless they are alike.
    pub fn new(
        model: &'a Model,
        stream: &'a mut Stream,
        factors: Option<[f64; DEVICES_MAX as usize]>,
    ) -> Self {
        let new = Device { born: -model.fleet.age_years, error_factor: 1.0, state: State::Up };
        let mut devices = [new; DEVICES_MAX as usize];
        for (device, factor) in devices.iter_mut().zip(factors.iter().flatten()) {
            device.error_factor = *factor;
        }
        Self {
            model,
            stream,
            devices,
            failed_count: 0,
            dying_count: 0,
            latents: Vec::new(),
            pending: Vec::new(),
            now: 0.0,
            ln_weight: 0.0,
            fate: GroupFate::default(),
        }
    }

    /// Lives to the end; the first event comes after `wait` years.
    #[cold]
    pub fn run(mut self, wait: f64) -> GroupFate {
        let end = self.model.fleet.years;
        let mut waited = Some(wait);
        loop {
            let errors = self.error_weight();
            let rebuilds = f64::from(self.failed_count) / self.model.fleet.rebuild_years;
            let wait = match waited.take() {
                Some(wait) => wait,
                None => self.wait(errors * self.model.errors[1] + rebuilds),
            };
            let decided = self.pending.iter().map(|pending| pending.at).fold(f64::INFINITY, f64::min);
            let next = (self.now + wait).min(decided).min(end);
            self.weigh_waiting(errors, next);
            let is_decided = decided <= self.now + wait;
            self.now = next;
            if next >= end {
                break;
            }
            let is_over = if is_decided { self.meet_decided() } else { self.happen(errors, rebuilds) };
            if is_over {
                break;
            }
        }
        self.fate.weight = self.ln_weight.exp();
        self.fate
    }

    fn devices(&self) -> &[Device] {
        &self.devices[..self.model.devices as usize]
    }

    /// Devices that can have errors, each by its rate in units of the mean.
    fn error_weight(&self) -> f64 {
        if self.model.fleet.clustering.is_none() {
            return f64::from(self.model.devices - self.failed_count);
        }
        let is_there = |device: &&Device| device.state != State::Failed;
        self.devices().iter().filter(is_there).map(|device| device.error_factor).sum()
    }

    /// By how much failures are raised now.
    fn raise(&self) -> f64 {
        if self.failed_count == 0 { self.model.failure_raise } else { 1.0 }
    }

    /// Devices whose failure is not decided.
    fn sound(&self) -> f64 {
        f64::from(self.model.devices - self.failed_count - self.dying_count)
    }

    fn ages(&self) -> impl Iterator<Item = f64> {
        let is_up = |device: &&Device| device.state == State::Up;
        self.devices().iter().filter(is_up).map(|device| self.now - device.born)
    }

    /// Years until the next event by chance, as drawn: `constant` is the rate of all but failures.
    fn wait(&mut self, constant: f64) -> f64 {
        let (hazard, raise) = (self.model.fleet.hazard, self.raise());
        if hazard.is_constant() {
            let all = constant + raise * self.sound() * hazard.first_year;
            return if all > 0.0 { self.stream.exponential() / all } else { f64::INFINITY };
        }
        let mut wait = if constant > 0.0 { self.stream.exponential() / constant } else { f64::INFINITY };
        for number in 0..self.model.devices as usize {
            let device = self.devices[number];
            if device.state == State::Up {
                let needed = self.stream.exponential() / raise;
                wait = wait.min(hazard.until(self.now - device.born, needed));
            }
        }
        wait
    }

    /// The weight of having waited until `next`: e^-true / e^-drawn.
    fn weigh_waiting(&mut self, errors: f64, next: f64) {
        let (model, elapsed) = (self.model, next - self.now);
        let [errors_true, errors_drawn] = model.errors;
        self.ln_weight += errors * (errors_drawn - errors_true) * elapsed;
        let raise = self.raise();
        if raise > 1.0 {
            let hazard = model.fleet.hazard;
            let suffered = if hazard.is_constant() {
                self.sound() * hazard.first_year * elapsed
            } else {
                self.ages().map(|age| hazard.between(age, age + elapsed)).sum()
            };
            self.ln_weight += (raise - 1.0) * suffered;
        }
    }

    /// An event by chance. Whether the group is lost.
    fn happen(&mut self, errors: f64, rebuilds: f64) -> bool {
        let (hazard, raise) = (self.model.fleet.hazard, self.raise());
        let failures = if hazard.is_constant() {
            self.sound() * hazard.first_year
        } else {
            self.ages().map(|age| hazard.at(age)).sum()
        } * raise;
        let errors = errors * self.model.errors[1];
        if self.stream.uniform() * (errors + failures + rebuilds) < errors {
            self.err();
            return false;
        }
        // A failure or the end of a rebuild: while degraded, failures are drawn more often than they come.
        let share_true = failures / (failures + rebuilds);
        let is_whole = self.failed_count == 0;
        let share = if is_whole || failures <= 0.0 {
            share_true
        } else {
            share_true.max(self.model.failure_share_min)
        };
        if self.stream.uniform() < share {
            self.ln_weight += if is_whole { -raise.ln() } else { (share_true / share).ln() };
            return self.decide_failure();
        }
        self.ln_weight += ((1.0 - share_true) / (1.0 - share)).ln();
        // Which one is rebuilt first makes no difference: they are alike.
        if let Some(device) = self.devices.iter_mut().find(|device| device.state == State::Failed) {
            device.state = State::Up;
            device.born = self.now;
            self.failed_count -= 1;
        }
        false
    }

    /// A cluster of errors begins.
    fn err(&mut self) {
        let model = self.model;
        let mut left = self.stream.uniform() * model.errors[1];
        let found = model.sources.iter().find(|drawn| {
            left -= drawn.source.per_year * drawn.raise;
            left < 0.0
        });
        let Some(drawn) = found.or(model.sources.last()) else { return };
        let source = &drawn.source;
        self.ln_weight -= drawn.raise.ln();
        self.fate.errors += 1.0;
        let device =
            self.pick(|device| if device.state == State::Failed { 0.0 } else { device.error_factor });
        let is_front = model.parts.is_some() && source.draw_front(self.stream);
        let mut at = self.now;
        for number in 0..source.draw_errors(self.stream) {
            let damage = Damage {
                device,
                sectors: source.draw_sectors(self.stream),
                is_front,
                undetected: source.undetected,
                is_transient: source.is_transient,
                is_repaired: true,
            };
            if number > 0 && source.spread_years > 0.0 {
                at += source.spread_years * self.stream.exponential();
            }
            if at > self.now {
                self.pending.push(Pending { at, damage: Some(damage), device });
            } else {
                self.damage(damage);
            }
        }
    }

    /// The failure of a device is decided. Whether the group is lost.
    fn decide_failure(&mut self) -> bool {
        let (hazard, now) = (self.model.fleet.hazard, self.now);
        let device =
            self.pick(|device| if device.state == State::Up { hazard.at(now - device.born) } else { 0.0 });
        let Some(death) = self.model.fleet.death.filter(|death| death.years > 0.0) else {
            return self.fail(device);
        };
        self.devices[device as usize].state = State::Dying;
        self.dying_count += 1;
        for (number, share) in death.draw(self.stream).into_iter().enumerate() {
            let damage = Damage {
                device,
                sectors: 1.0,
                is_front: self.stream.uniform() < super::FRONT,
                undetected: 0.0,
                is_transient: false,
                is_repaired: (number as u64) < death.spares,
            };
            self.pending.push(Pending { at: now + share * death.years, damage: Some(damage), device });
        }
        self.pending.push(Pending { at: now + death.years, damage: None, device });
        false
    }

    /// The first of what is decided comes. Whether the group is lost.
    fn meet_decided(&mut self) -> bool {
        let first =
            (0..self.pending.len()).min_by(|&a, &b| self.pending[a].at.total_cmp(&self.pending[b].at));
        let Some(first) = first else { return false };
        let Pending { damage, device, .. } = self.pending.swap_remove(first);
        match damage {
            Some(damage) => {
                self.fate.errors += f64::from(u8::from(self.devices[device as usize].state == State::Dying));
                self.damage(damage);
                false
            }
            None => {
                self.dying_count -= 1;
                self.fail(device)
            }
        }
    }

    /// A device is gone. Whether the group is lost.
    fn fail(&mut self, device: u32) -> bool {
        let (parity, now) = (self.model.fleet.redundancy.parity, self.now);
        self.fate.failures += 1.0;
        self.devices[device as usize].state = State::Failed;
        self.failed_count += 1;
        self.latents.retain(|latent| latent.damage.device != device && latent.until > now);
        self.pending.retain(|pending| pending.device != device);
        if self.failed_count > parity {
            self.fate.lost_devices_at = Some(now);
            return true;
        }
        if self.failed_count == parity {
            if !self.latents.is_empty() {
                self.fate.lose_sectors(now, 1.0);
            }
        } else if let Some(parts) = self.model.parts.filter(|_| !self.latents.is_empty()) {
            let needed = parity - self.failed_count + 1;
            let stripes = parts.met(&self.damaged(), needed);
            self.fate.lose_sectors(now, stripes);
        }
        false
    }

    /// Sectors of a device are damaged.
    fn damage(&mut self, damage: Damage) {
        let Damage { device, sectors, is_front, undetected, is_transient, is_repaired } = damage;
        let (fleet, now) = (&self.model.fleet, self.now);
        self.fate.silent += sectors * undetected;
        // What passes is never found; and what is right with the next read is not lost.
        let is_noticed = undetected <= 0.0 || self.stream.uniform() >= undetected.powf(sectors);
        if is_transient || !is_noticed {
            return;
        }
        let left = fleet.redundancy.parity - self.failed_count;
        if left == 0 {
            self.fate.lose_sectors(now, 1.0);
            return;
        }
        self.latents.retain(|latent| latent.until > now);
        if let Some(parts) = self.model.parts.filter(|_| self.latents.len() >= left as usize) {
            let part = usize::from(!is_front);
            let mut damaged = self.damaged();
            damaged[device as usize] = [0.0; 2];
            let others: Vec<f64> = damaged.iter().map(|device| device[part]).collect();
            self.fate.lose_sectors(now, parts.met_by(is_front, sectors, &others, left));
        }
        let until = if is_repaired { now + self.stream.uniform() * fleet.scrub_years } else { f64::INFINITY };
        self.latents.push(Latent { damage, until });
    }

    /// Damaged sectors of each device, in its first tenth and in the rest.
    fn damaged(&self) -> Vec<[f64; 2]> {
        let mut damaged = vec![[0.0; 2]; self.model.devices as usize];
        for Latent { damage, .. } in &self.latents {
            damaged[damage.device as usize][usize::from(!damage.is_front)] += damage.sectors;
        }
        damaged
    }

    /// A device, each by its chance.
    fn pick(&mut self, chance: impl Fn(&Device) -> f64) -> u32 {
        let all: f64 = self.devices().iter().map(&chance).sum();
        let mut left = self.stream.uniform() * all;
        let mut last = 0;
        for (number, device) in (0..).zip(self.devices()) {
            let its = chance(device);
            if its > 0.0 {
                left -= its;
                last = number;
                if left < 0.0 {
                    break;
                }
            }
        }
        last
    }
}
