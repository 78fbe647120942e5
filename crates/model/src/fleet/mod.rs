//! A fleet over years: groups of devices that fail, grow latent errors, are scrubbed and rebuilt, simulated one by one.
//!
//! The simulation is Monte Carlo over groups, each with a random stream of its own that depends on the seed and its
//! number only, so the result is the same for any number of threads. What is rare is made frequent and weighed down
//! again (importance sampling; [`Sampling`]). Where a closed form exists, [`closed_form`] has it.

pub mod closed_form;

mod group;
mod hazard;
mod race;
mod random;
mod run;
mod source;
mod stripes;
mod tally;

use crate::{Redundancy, SECONDS_PER_YEAR};

pub use hazard::{Death, Hazard};
pub use run::{Options, simulate};
pub use source::{FRONT, Source};
pub use tally::{COURSE_POINTS, Estimate, Outcome};

/// Devices that a group may have.
pub const DEVICES_MAX: u32 = 64;

/// Groups that a fleet may have.
pub const GROUPS_MAX: u64 = 100_000_000_000;

/// Events that a group may expect in its life; more are no longer a question for a simulation of events.
pub const EVENTS_MAX: f64 = 10_000.0;

/// What is simulated. Rates are per device and year.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// Groups of devices; a group survives the loss of its parity.
    pub groups: u64,
    /// Devices of a group: a lone one is 1 + 0.
    pub redundancy: Redundancy,
    /// How long each group is watched.
    pub years: f64,
    /// When whole devices fail.
    pub hazard: Hazard,
    /// Age of all devices at the beginning, in years; one that is rebuilt is new.
    pub age_years: f64,
    /// What a device that fails goes through before.
    pub death: Option<Death>,
    /// Mean years until a failed device is replaced and rebuilt, exponentially distributed.
    pub rebuild_years: f64,
    /// What damages sectors, which stay latent until the next scrub.
    pub sources: Vec<Source>,
    /// Shape of the gamma distribution of the error rates over devices; `None`: the same rates for each.
    pub clustering: Option<f64>,
    /// Years between two scrubs of a device.
    pub scrub_years: f64,
    /// Sectors of a device: damage of several devices in one stripe is counted. `None` leaves it out.
    pub sectors: Option<f64>,
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
        let within = |name, what: &str, value: f64, from: f64, to: f64| {
            let is_wrong = !(from..=to).contains(&value);
            is_wrong.then(|| (name, format!("{what} is {value}; it must be from {from} to {to}")))
        };
        let of_death = self.death.and_then(|death| {
            within("death", "its time in years", death.years, 0.0, 100.0)
                .or_else(|| within("death", "its number of errors", death.errors, 0.0, EVENTS_MAX))
                .or_else(|| within("death", "the growth of its errors", death.growth, 1.0, 1e9))
        });
        of_groups
            .or(of_group)
            .or_else(|| positive("years", self.years))
            .or_else(|| not_negative("failures", self.hazard.first_year))
            .or_else(|| within("failures", "the shape", self.hazard.shape, 0.1, 20.0))
            .or_else(|| within("age", "it", self.age_years, 0.0, 1000.0))
            .or(of_death)
            .or_else(|| positive("rebuild", self.rebuild_years))
            .or_else(|| self.sources.iter().find_map(Source::mistake).map(|message| ("errors", message)))
            .or_else(|| self.clustering.and_then(|shape| positive("clustering", shape)))
            .or_else(|| positive("scrub", self.scrub_years))
            .or_else(|| self.sectors.and_then(|sectors| within("sectors", "it", sectors, 1.0, 1e18)))
            .or_else(|| {
                let events = self.events_expected();
                (events > EVENTS_MAX).then(|| {
                    (
                        "years",
                        format!("make {events:.0} events per group likely; it must be at most {EVENTS_MAX}"),
                    )
                })
            })
    }

    /// Events that a group may expect in its life.
    fn events_expected(&self) -> f64 {
        let failures = self.hazard.between(self.age_years, self.age_years + self.years);
        let dying = self.death.map_or(0.0, |death| death.errors);
        let errors: f64 = self.sources.iter().map(|source| source.per_year * (1.0 + source.further)).sum();
        f64::from(self.devices()) * (failures * (1.0 + dying) + self.years * errors)
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
            hazard: Hazard::constant(0.03),
            age_years: 0.0,
            death: None,
            rebuild_years: 86_400.0 / SECONDS_PER_YEAR,
            // Bairavasundaram et al., SIGMETRICS 2007: 3.45% of disks had latent sector errors within 32 months.
            sources: vec![Source::singles("errors", -(1.0f64 - 0.0345).ln() * 12.0 / 32.0, 0.0)],
            clustering: None,
            scrub_years: 14.0 * 86_400.0 / SECONDS_PER_YEAR,
            sectors: None,
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
        let errors = Source::singles("errors", 0.1, 0.0);
        let sources = |source: Source| Fleet { sources: vec![source], ..good.clone() };
        let death = Death { years: 0.1, errors: 10.0, growth: 10.0, spares: 0 };
        for (fleet, field) in [
            (Fleet { groups: 0, ..good.clone() }, "groups"),
            (Fleet { redundancy: Redundancy { data: 0, parity: 1 }, ..good.clone() }, "redundancy"),
            (Fleet { redundancy: Redundancy { data: u32::MAX, parity: 1 }, ..good.clone() }, "redundancy"),
            (Fleet { years: 0.0, ..good.clone() }, "years"),
            (Fleet { hazard: Hazard::constant(-1.0), ..good.clone() }, "failures"),
            (Fleet { hazard: Hazard { first_year: 0.1, shape: 0.0 }, ..good.clone() }, "failures"),
            (Fleet { age_years: -1.0, ..good.clone() }, "age"),
            (Fleet { death: Some(Death { growth: 0.5, ..death }), ..good.clone() }, "death"),
            (Fleet { death: Some(Death { years: f64::NAN, ..death }), ..good.clone() }, "death"),
            (Fleet { rebuild_years: f64::NAN, ..good.clone() }, "rebuild"),
            (sources(Source { per_year: f64::INFINITY, ..errors.clone() }), "errors"),
            (sources(Source { further: -1.0, ..errors.clone() }), "errors"),
            (sources(Source { run: 1.0, ..errors.clone() }), "errors"),
            (sources(Source { undetected: 1.1, ..errors.clone() }), "errors"),
            (Fleet { clustering: Some(0.0), ..good.clone() }, "clustering"),
            (Fleet { scrub_years: 0.0, ..good.clone() }, "scrub"),
            (Fleet { sectors: Some(0.0), ..good.clone() }, "sectors"),
            (sources(Source { per_year: 1e9, ..errors }), "years"),
        ] {
            let (found, message) = fleet.mistake().expect(field);
            assert_eq!(found, field);
            assert!(message.contains("must be"), "{message}");
        }
    }
}
