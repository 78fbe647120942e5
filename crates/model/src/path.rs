//! The path of a block from its writer to its reader, and what may become of it on the way.

use crate::checksum::undetected_by_all;
use crate::switching::is_switched;
use crate::{BitErrors, Bound, Checksum, Device, Disk, Goal, Memory, Probability, Rot, Switch, Uncertain};

/// A design: what a block passes between its writer and its reader.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// How tables call it.
    pub name: String,
    /// In the order in which the block passes them.
    pub stages: Vec<Stage>,
    /// When the protection that a stage has `after` the switch replaces the one `before`; without it, never.
    pub switch: Option<Switch>,
}

/// One place where a block is for a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// How tables call it.
    pub name: String,
    /// What it is.
    pub device: Device,
    /// Whether its error rate is that of the machine, so that contours and configurations replace it.
    pub follows_configuration: bool,
    /// How long the block is there.
    pub time: Time,
    /// Which checksums cover it.
    pub protection: Protection,
    /// What can be done about an error that was detected.
    pub repair: Repair,
}

/// How long a block is in a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Time {
    /// So many seconds.
    Seconds(f64),
    /// The time between reading it from the disk and using it: the variable of every question.
    Residency,
}

/// Which checksums cover a stage. Several: an error passes only if it passes each.
#[derive(Clone, Debug, PartialEq)]
pub enum Protection {
    /// These, always; an empty list is no protection.
    Fixed(Vec<Checksum>),
    /// Depends on whether the block has been in memory for longer than the switch of the path.
    Switched {
        /// Up to the switch.
        before: Vec<Checksum>,
        /// From then on.
        after: Vec<Checksum>,
    },
}

/// What can be done about an error that was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing: it is found too late, or there is no other copy. The data is lost, though nobody is deceived.
    None,
    /// The block is fetched again from where it came: the writer still has it, or the disk.
    Upstream,
    /// Other devices have it too.
    Redundancy(Redundancy),
}

/// Copies or parity: of `data + parity` devices any `data` suffice. A mirror of m copies is 1 + (m - 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redundancy {
    /// Devices that hold data, at least 1.
    pub data: u32,
    /// Devices that may be lost.
    pub parity: u32,
}

/// What may become of one block, as probabilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fate {
    /// It is read wrong and nobody notices: P_sys.
    pub undetected: Probability,
    /// It is noticed, but there is nothing to repair it from.
    pub lost: Probability,
    /// Anything at all goes wrong, noticed or repaired or not.
    pub corrupted: Probability,
}

/// A stage's part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageFate<'a> {
    /// The stage.
    pub stage: &'a Stage,
    /// Its part in each probability.
    pub fate: Fate,
}

/// A path judged at one residency: the best estimate, and the range that the error bars of all rates and fractions
/// leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// With every number at its lower end.
    pub low: Fate,
    /// The best estimate.
    pub value: Fate,
    /// With every number at its upper end.
    pub high: Fate,
    /// Whether the block has been in memory for longer than the switch.
    pub is_switched: bool,
}

impl Path {
    /// What may become of a block that is used `residency` seconds after it was read from the disk.
    ///
    /// The parts of the stages are added, as the framework does: at most one of them corrupts a block.
    pub fn outcome(&self, residency: f64) -> Outcome {
        let is_switched = is_switched(self, residency);
        let at = |bound| self.fate(residency, is_switched, bound);
        Outcome { low: at(Bound::Low), value: at(Bound::Value), high: at(Bound::High), is_switched }
    }

    /// P_sys at this residency: the best estimate.
    pub fn undetected(&self, residency: f64) -> Probability {
        self.undetected_as(residency, is_switched(self, residency), Bound::Value)
    }

    /// P_sys as if the switch were over, or not yet.
    pub(crate) fn undetected_as(&self, residency: f64, is_switched: bool, bound: Bound) -> Probability {
        self.stages.iter().map(|stage| stage.undetected(residency, is_switched, bound)).sum()
    }

    /// The parts of the stages, in order, best estimates.
    pub fn by_stage(&self, residency: f64) -> Vec<StageFate<'_>> {
        let is_switched = is_switched(self, residency);
        let part =
            |stage| StageFate { stage, fate: Stage::fate(stage, residency, is_switched, Bound::Value) };
        self.stages.iter().map(part).collect()
    }

    /// Whether this design reaches a goal at this residency.
    pub fn meets(&self, goal: Goal, residency: f64) -> bool {
        goal.is_met_by(self.undetected(residency))
    }

    /// The same design on a machine with other error rates; stages that bring their own keep them.
    #[must_use]
    pub fn on(mut self, memory: Uncertain, disk: Uncertain) -> Self {
        for stage in self.stages.iter_mut().filter(|stage| stage.follows_configuration) {
            match &mut stage.device {
                Device::Memory(device) => device.rate = memory,
                Device::Disk(device) => device.bit_error_rate = disk,
            }
        }
        self
    }

    fn fate(&self, residency: f64, is_switched: bool, bound: Bound) -> Fate {
        let parts: Vec<Fate> =
            self.stages.iter().map(|stage| stage.fate(residency, is_switched, bound)).collect();
        Fate {
            undetected: parts.iter().map(|part| part.undetected).sum(),
            lost: parts.iter().map(|part| part.lost).sum(),
            corrupted: parts.iter().map(|part| part.corrupted).sum(),
        }
    }
}

impl Protection {
    /// No checksum.
    pub const NONE: Self = Self::Fixed(Vec::new());

    /// What covers the stage.
    pub fn checksums(&self, is_switched: bool) -> &[Checksum] {
        match self {
            Protection::Fixed(checksums) => checksums,
            Protection::Switched { after, .. } if is_switched => after,
            Protection::Switched { before, .. } => before,
        }
    }
}

impl Stage {
    fn seconds(&self, residency: f64) -> f64 {
        match self.time {
            Time::Seconds(seconds) => seconds,
            Time::Residency => residency,
        }
    }

    fn undetected(&self, residency: f64, is_switched: bool, bound: Bound) -> Probability {
        let checksums = self.protection.checksums(is_switched);
        let pass = |errors| undetected_by_all(checksums, errors, bound);
        let seconds = self.seconds(residency);
        match &self.device {
            Device::Memory(memory) => pass(memory.after(seconds, bound)),
            Device::Disk(disk) => {
                let ageless = pass(disk.on_read(bound));
                let Some(rot) = disk.rot else { return ageless };
                // A scrub mends what a checksum sees; without one, it has nothing to go by.
                let is_scrubbed = !checksums.is_empty();
                ageless.plus(rot.over_windows(seconds, is_scrubbed, |window| pass(rot.after(window, bound))))
            }
        }
    }

    fn fate(&self, residency: f64, is_switched: bool, bound: Bound) -> Fate {
        let undetected = self.undetected(residency, is_switched, bound);
        let seconds = self.seconds(residency);
        let checksums = self.protection.checksums(is_switched);
        // Of each kind of error, what is noticed and cannot be repaired.
        let lost = |errors: BitErrors| {
            let passed = undetected_by_all(checksums, errors, bound);
            let noticed = passed.ln() - errors.any().ln();
            let noticed = errors.any().and(Probability::from_ln(noticed).complement());
            if checksums.is_empty() { Probability::NEVER } else { noticed.and(self.repair.fails(errors)) }
        };
        match &self.device {
            Device::Memory(memory) => {
                let errors = memory.after(seconds, bound);
                Fate { undetected, lost: lost(errors), corrupted: errors.any() }
            }
            Device::Disk(disk) => {
                let errors = disk.on_read(bound);
                let (rot_lost, rot_any) = match disk.rot {
                    None => (Probability::NEVER, Probability::NEVER),
                    Some(rot) => {
                        let is_scrubbed = !checksums.is_empty();
                        let lost_in = |window| lost(rot.after(window, bound));
                        (rot.over_windows(seconds, is_scrubbed, lost_in), rot.after(seconds, bound).any())
                    }
                };
                Fate { undetected, lost: lost(errors).plus(rot_lost), corrupted: errors.any().plus(rot_any) }
            }
        }
    }
}

impl Repair {
    /// The probability that a noticed error cannot be repaired: for redundancy, that at least as many of the other devices
    /// as there is parity have an error in the same stripe, before any of them was repaired.
    fn fails(self, errors: BitErrors) -> Probability {
        match self {
            Repair::None => Probability::CERTAIN,
            Repair::Upstream => Probability::NEVER,
            Repair::Redundancy(Redundancy { data, parity }) => {
                at_least(data + parity - 1, parity, errors.any())
            }
        }
    }
}

/// The probability that of `all` independent things at least `least` happen.
fn at_least(all: u32, least: u32, each: Probability) -> Probability {
    (least..=all)
        .map(|count| {
            let happen = each.ln() * f64::from(count);
            let rest = each.complement().ln() * f64::from(all - count);
            // 0 times the logarithm of 0 is 0 here.
            let number = |ln: f64| if ln.is_nan() { 0.0 } else { ln };
            Probability::from_ln(crate::bit_errors::ln_choose(all, count) + number(happen) + number(rest))
        })
        .sum()
}

impl Rot {
    fn after(&self, seconds: f64, bound: Bound) -> BitErrors {
        Memory { rate: self.rate, arrival: self.arrival }.after(seconds, bound)
    }

    /// The probability that in any of the windows between two scrubs, or in the last one that the read ends, happens what
    /// `within` gives for a window of so many seconds. Each scrub starts anew, as it repairs what it notices.
    fn over_windows(
        &self,
        seconds: f64,
        is_scrubbed: bool,
        within: impl Fn(f64) -> Probability,
    ) -> Probability {
        match self.scrub_interval.filter(|interval| is_scrubbed && *interval < seconds) {
            None => within(seconds),
            Some(interval) => {
                let whole = (seconds / interval).floor();
                let rest = seconds - whole * interval;
                within(interval).at_least_once(whole).plus(within(rest))
            }
        }
    }
}

impl Disk {
    /// The same disk with errors that time brings.
    #[must_use]
    pub fn with_rot(mut self, rot: Rot) -> Self {
        self.rot = Some(rot);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrival, SECONDS_PER_YEAR};

    fn disk(rate: f64, scrub_interval: Option<f64>, protection: Protection, repair: Repair) -> Path {
        let rot = Rot { rate: Uncertain::exact(rate), arrival: Arrival::Independent, scrub_interval };
        let stage = Stage {
            name: "disk".into(),
            device: Device::Disk(Disk::ageless(Uncertain::exact(0.0)).with_rot(rot)),
            follows_configuration: false,
            time: Time::Seconds(SECONDS_PER_YEAR),
            protection,
            repair,
        };
        Path { name: "disk".into(), stages: vec![stage], switch: None }
    }

    fn fletcher() -> Protection {
        Protection::Fixed(vec![Checksum::fletcher_256()])
    }

    #[test]
    fn a_scrub_makes_the_third_error_in_one_window_what_matters() {
        let rate = 1e-20;
        let never = disk(rate, None, fletcher(), Repair::None).undetected(0.0);
        let monthly = disk(rate, Some(SECONDS_PER_YEAR / 12.0), fletcher(), Repair::None).undetected(0.0);
        // Twelve windows of a twelfth: 12 (1/12)^3.
        let gained = (never.ln() - monthly.ln()).exp();
        assert!((gained / 144.0 - 1.0).abs() < 1e-6, "{gained}");
    }

    #[test]
    fn a_scrub_without_a_checksum_has_nothing_to_go_by() {
        let never = disk(1e-20, None, Protection::NONE, Repair::None).outcome(0.0);
        let daily = disk(1e-20, Some(86_400.0), Protection::NONE, Repair::None).outcome(0.0);
        assert_eq!(never, daily);
        assert_eq!(never.value.undetected, never.value.corrupted);
        assert_eq!(never.value.lost, Probability::NEVER);
    }

    #[test]
    fn a_mirror_loses_a_block_only_to_a_second_error_before_the_repair() {
        let rate = 1e-20;
        let any = f64::from(crate::BLOCK_BITS) * rate * SECONDS_PER_YEAR;
        let lost = |redundancy, scrub| disk(rate, scrub, fletcher(), redundancy).outcome(0.0).value.lost;
        assert!((lost(Repair::None, None).value() / any - 1.0).abs() < 1e-6);
        assert_eq!(lost(Repair::Upstream, None), Probability::NEVER);
        let mirror = Repair::Redundancy(Redundancy { data: 1, parity: 1 });
        assert!((lost(mirror, None).value() / any.powi(2) - 1.0).abs() < 1e-6);
        // Scrubbed n times a year: n windows, each any/n squared.
        let scrubbed = lost(mirror, Some(SECONDS_PER_YEAR / 12.0)).value();
        assert!((scrubbed / (any.powi(2) / 12.0) - 1.0).abs() < 1e-6, "{scrubbed}");
        // 8 + 2: this block, and two of nine others.
        let parity = Repair::Redundancy(Redundancy { data: 8, parity: 2 });
        assert!((lost(parity, None).value() / (36.0 * any.powi(3)) - 1.0).abs() < 1e-5);
    }

    #[test]
    fn certain_errors_defeat_any_redundancy() {
        assert_eq!(at_least(9, 2, Probability::CERTAIN), Probability::CERTAIN);
        assert_eq!(at_least(9, 2, Probability::NEVER), Probability::NEVER);
        assert_eq!(at_least(9, 0, Probability::NEVER), Probability::CERTAIN);
        let half = Probability::new(0.5).expect("a probability");
        assert!((at_least(2, 1, half).value() - 0.75).abs() < 1e-15);
    }

    #[test]
    fn error_bars_go_from_the_rates_to_the_score() {
        let rate = Uncertain::new(1e-20, 2e-20, 4e-20).expect("in order");
        let mut path = disk(0.0, None, Protection::NONE, Repair::None);
        let rot = Rot { rate, arrival: Arrival::Independent, scrub_interval: None };
        path.stages[0].device = Device::Disk(Disk::ageless(Uncertain::exact(0.0)).with_rot(rot));
        let outcome = path.outcome(0.0);
        let ratio = |a: Fate, b: Fate| a.undetected.value() / b.undetected.value();
        assert!((ratio(outcome.high, outcome.value) - 2.0).abs() < 1e-6);
        assert!((ratio(outcome.value, outcome.low) - 2.0).abs() < 1e-6);
    }
}
