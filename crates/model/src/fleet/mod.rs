//! A fleet over years: groups of devices that fail, grow latent errors, are scrubbed and rebuilt, simulated one by one.
//!
//! The simulation is Monte Carlo over groups, each with a random stream of its own that depends on the seed and its
//! number only, so the result is the same for any number of threads. What is rare is made frequent and weighed down
//! again (importance sampling; [`Sampling`]). Where a closed form exists, [`closed_form`] has it.

pub mod closed_form;

mod group;
mod random;
mod run;
mod tally;

use crate::{Redundancy, SECONDS_PER_YEAR};

pub use run::{Options, simulate};
pub use tally::{Estimate, Outcome};

/// Devices that a group may have.
pub const DEVICES_MAX: u32 = 64;

/// Groups that a fleet may have.
pub const GROUPS_MAX: u64 = 100_000_000_000;

/// Events that a group may expect in its life; more are no longer a question for a simulation of events.
pub const EVENTS_MAX: f64 = 10_000.0;

/// What is simulated. Rates are per device and year.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fleet {
    /// Groups of devices; a group survives the loss of its parity.
    pub groups: u64,
    /// Devices of a group: a lone one is 1 + 0.
    pub redundancy: Redundancy,
    /// How long each group is watched.
    pub years: f64,
    /// Whole devices that fail, each a Poisson process.
    pub failures_per_year: f64,
    /// Mean years until a failed device is replaced and rebuilt, exponentially distributed.
    pub rebuild_years: f64,
    /// Events that damage sectors of a device and stay latent until the next scrub.
    pub errors_per_year: f64,
    /// After each damaged sector, the probability that the next one belongs to the same event.
    pub continuation: f64,
    /// Shape of the gamma distribution of the error rate over devices; `None`: the same rate for each.
    pub clustering: Option<f64>,
    /// Years between two scrubs of a device.
    pub scrub_years: f64,
    /// Fraction of damaged sectors that their checksum does not see.
    pub undetected: f64,
}

/// How events are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// As often as they happen.
    Plain,
    /// Rare ones more often, with weights that undo it: rates are raised until about one event per group is to be
    /// expected, and a group that lacks a device sees its next failure more often before the rebuild (failure
    /// biasing; Nicola, Shahabuddin, Nakayama, *IEEE Trans. Reliability* 50(3), 2001).
    #[default]
    Importance,
}

impl Fleet {
    /// Devices of a group.
    pub fn devices(&self) -> u32 {
        self.redundancy.data + self.redundancy.parity
    }

    /// Devices times years.
    pub fn device_years(&self) -> f64 {
        self.groups as f64 * f64::from(self.devices()) * self.years
    }

    /// What makes no sense about it: the field, and what is valid.
    pub fn mistake(&self) -> Option<(&'static str, String)> {
        let not_negative = |name, value: f64| {
            let is_wrong = !(value.is_finite() && value >= 0.0);
            is_wrong.then(|| (name, format!("is {value}; it must be a number from 0 on")))
        };
        let positive = |name, value: f64| {
            let is_wrong = !(value.is_finite() && value > 0.0);
            is_wrong.then(|| (name, format!("is {value}; it must be above 0")))
        };
        let Redundancy { data, parity } = self.redundancy;
        let devices = u64::from(data) + u64::from(parity);
        let is_group = data >= 1 && devices <= u64::from(DEVICES_MAX);
        let of_group = (!is_group).then(|| {
            ("redundancy", format!("is {data}+{parity}; it must be from 1+0 to {DEVICES_MAX} devices in all"))
        });
        let of_groups = (!(1..=GROUPS_MAX).contains(&self.groups))
            .then(|| ("groups", format!("is {}; it must be from 1 to {GROUPS_MAX}", self.groups)));
        let fraction = (!(0.0..=1.0).contains(&self.undetected))
            .then(|| ("undetected", format!("is {}; it must be from 0 to 1", self.undetected)));
        let burst = (!(0.0..1.0).contains(&self.continuation))
            .then(|| ("continuation", format!("is {}; it must be from 0 to below 1", self.continuation)));
        of_groups
            .or(of_group)
            .or_else(|| positive("years", self.years))
            .or_else(|| not_negative("failures_per_year", self.failures_per_year))
            .or_else(|| positive("rebuild", self.rebuild_years))
            .or_else(|| not_negative("errors_per_year", self.errors_per_year))
            .or(burst)
            .or_else(|| self.clustering.and_then(|shape| positive("clustering", shape)))
            .or_else(|| positive("scrub", self.scrub_years))
            .or(fraction)
            .or_else(|| {
                let rate = self.failures_per_year + self.errors_per_year;
                let events = f64::from(self.devices()) * self.years * rate;
                let is_too_much = events > EVENTS_MAX;
                is_too_much.then(|| {
                    (
                        "years",
                        format!("make {events:.0} events per group likely; it must be at most {EVENTS_MAX}"),
                    )
                })
            })
    }
}

impl Default for Fleet {
    /// A thousand lone disks over five years, with rates from the field: see `docs/model.md`.
    fn default() -> Self {
        Self {
            groups: 1000,
            redundancy: Redundancy { data: 1, parity: 0 },
            years: 5.0,
            // Schroeder and Gibson, FAST 2007: 2 to 4% of disks are replaced each year.
            failures_per_year: 0.03,
            rebuild_years: 86_400.0 / SECONDS_PER_YEAR,
            // Bairavasundaram et al., SIGMETRICS 2007: 3.45% of disks had latent sector errors within 32 months.
            errors_per_year: -(1.0f64 - 0.0345).ln() * 12.0 / 32.0,
            continuation: 0.0,
            clustering: None,
            scrub_years: 14.0 * 86_400.0 / SECONDS_PER_YEAR,
            undetected: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_named_with_what_is_valid() {
        let good = Fleet::default();
        assert_eq!(good.mistake(), None);
        for (fleet, field) in [
            (Fleet { groups: 0, ..good }, "groups"),
            (Fleet { redundancy: Redundancy { data: 0, parity: 1 }, ..good }, "redundancy"),
            (Fleet { redundancy: Redundancy { data: u32::MAX, parity: 1 }, ..good }, "redundancy"),
            (Fleet { years: 0.0, ..good }, "years"),
            (Fleet { failures_per_year: -1.0, ..good }, "failures_per_year"),
            (Fleet { rebuild_years: f64::NAN, ..good }, "rebuild"),
            (Fleet { errors_per_year: f64::INFINITY, ..good }, "errors_per_year"),
            (Fleet { continuation: 1.0, ..good }, "continuation"),
            (Fleet { clustering: Some(0.0), ..good }, "clustering"),
            (Fleet { scrub_years: 0.0, ..good }, "scrub"),
            (Fleet { undetected: 1.1, ..good }, "undetected"),
            (Fleet { errors_per_year: 1e9, ..good }, "years"),
        ] {
            let (found, message) = fleet.mistake().expect(field);
            assert_eq!(found, field);
            assert!(message.contains("must be"), "{message}");
        }
    }
}
