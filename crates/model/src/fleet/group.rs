//! One fleet made ready to be simulated group by group.

use super::race::Race;
use super::random::Stream;
use super::source::Source;
use super::stripes::Parts;
use super::tally::GroupFate;
use super::{DEVICES_MAX, Fleet, Sampling};

/// A fleet made ready: everything that is the same for all groups.
#[derive(Clone, Debug)]
pub struct Model {
    pub(super) fleet: Fleet,
    pub(super) devices: u32,
    /// By how much the hazard of failures is raised while the group is whole.
    pub(super) failure_raise: f64,
    /// Sources of errors with what is drawn of them.
    pub(super) sources: Vec<Drawn>,
    /// Clusters of errors per device and year: as they come, and as drawn.
    pub(super) errors: [f64; 2],
    /// Least share of failures among the ends of a degraded state, as drawn.
    pub(super) failure_share_min: f64,
    /// The parts of a device, if its size is known.
    pub(super) parts: Option<Parts>,
    /// Minus the logarithm of the probability that nothing at all happens to a group in all years, as drawn.
    suffered: f64,
    /// That probability.
    nothing: f64,
}

/// A source of errors, and by how much its rate is raised.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub source: Source,
    pub raise: f64,
}

/// Events of a kind to expect in a group's life once rates are raised.
const EVENTS_WANTED: f64 = 1.0;

impl Model {
    pub fn new(fleet: &Fleet, sampling: Sampling) -> Self {
        let devices = fleet.devices();
        let count = f64::from(devices);
        let raise = |expected: f64, wanted: f64| match sampling {
            Sampling::Importance if expected > 0.0 => (wanted / expected).max(1.0),
            _ => 1.0,
        };
        let hazard = fleet.hazard.between(fleet.age_years, fleet.age_years + fleet.years);
        let failure_raise = raise(count * hazard, EVENTS_WANTED);
        let active: Vec<&Source> = fleet.sources.iter().filter(|source| source.per_year > 0.0).collect();
        let wanted = EVENTS_WANTED / active.len().max(1) as f64;
        let sources: Vec<Drawn> = active
            .into_iter()
            .map(|source| {
                let raise = raise(count * fleet.years * source.per_year, wanted);
                Drawn { source: source.clone(), raise }
            })
            .collect();
        let sum = |rate: fn(&Drawn) -> f64| sources.iter().map(rate).sum::<f64>();
        let errors = [sum(|drawn| drawn.source.per_year), sum(|drawn| drawn.source.per_year * drawn.raise)];
        // Each degraded state adds about this share to the variance of the weights, so that many of them ask for less.
        let degraded = (count * hazard * failure_raise).max(1.0);
        let failure_share_min = match sampling {
            Sampling::Importance => 0.5 / degraded,
            Sampling::Plain => 0.0,
        };
        let suffered = count * (hazard * failure_raise + errors[1] * fleet.years);
        Self {
            fleet: fleet.clone(),
            devices,
            failure_raise,
            sources,
            errors,
            failure_share_min,
            parts: fleet.sectors.map(Parts::of),
            suffered,
            nothing: (-suffered).exp(),
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
        let wait = self.first_event(-first.ln(), f64::from(self.devices) * self.errors[1]);
        Some(Race::new(self, stream, None).run(wait))
    }

    #[cold]
    fn live_clustered(&self, stream: &mut Stream) -> Option<GroupFate> {
        let shape = self.fleet.clustering?;
        let mut factors = [0.0; DEVICES_MAX as usize];
        for factor in factors.iter_mut().take(self.devices as usize) {
            *factor = stream.gamma(shape);
        }
        let errors = self.errors[1] * factors.iter().sum::<f64>();
        let wait = self.first_event(stream.exponential(), errors);
        (wait < self.fleet.years).then(|| Race::new(self, stream, Some(factors)).run(wait))
    }

    /// When the first event of a group comes, as drawn: once the group has suffered so much. `errors` is what comes in a
    /// year.
    fn first_event(&self, needed: f64, errors: f64) -> f64 {
        let Fleet { hazard, age_years: age, years, .. } = self.fleet;
        let raised = f64::from(self.devices) * self.failure_raise;
        if hazard.is_constant() {
            return needed / (raised * hazard.first_year + errors);
        }
        let suffered = |time: f64| raised * hazard.between(age, age + time) + errors * time;
        if suffered(years) <= needed {
            // Rounding may leave the very end on the far side of it.
            return if needed < self.suffered { years * (1.0 - 1e-12) } else { f64::INFINITY };
        }
        // It only rises, so halving finds the place.
        let (mut from, mut to) = (0.0, years);
        for _ in 0..60 {
            let middle = f64::midpoint(from, to);
            if suffered(middle) < needed {
                from = middle;
            } else {
                to = middle;
            }
        }
        to
    }
}
