//! What can be said of a fleet without simulating it.

use super::{Fleet, Source};

/// Expected numbers in a fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedForm {
    /// Groups that lose more devices than they have parity: exact, from the Markov chain of failures and rebuilds; of
    /// devices that age or die slowly only without parity, `None` otherwise.
    pub lost_devices: Option<f64>,
    /// Damaged sectors that nobody notices: exact but for the time in which devices are failed, and for clusters that the
    /// end of the years cuts.
    pub silent: f64,
    /// Groups that lose sectors: exact without redundancy and failures; `None` otherwise.
    pub lost_sectors: Option<f64>,
}

/// The closed forms of a fleet that has no [`Fleet::mistake`].
pub fn of(fleet: &Fleet) -> ClosedForm {
    let groups = fleet.groups as f64;
    let life = f64::from(fleet.devices()) * fleet.years;
    let silent = |source: &Source| source.per_year * source.sectors() * source.undetected;
    let is_alone = fleet.redundancy.parity == 0 && fleet.hazard.first_year <= 0.0;
    ClosedForm {
        lost_devices: loss_of_devices(fleet).map(|loss| groups * loss),
        silent: groups * life * fleet.sources.iter().map(silent).sum::<f64>(),
        lost_sectors: is_alone.then(|| groups * any_noticed(fleet)),
    }
}

/// The probability that in a group without redundancy any damage is noticed.
fn any_noticed(fleet: &Fleet) -> f64 {
    let noticed = |source: &&Source| source.per_year * (1.0 - source.unnoticed());
    let lasting = fleet.sources.iter().filter(|source| !source.is_transient);
    let mean = fleet.years * lasting.map(|source| noticed(&source)).sum::<f64>();
    let devices = f64::from(fleet.devices());
    match fleet.clustering {
        None => -(-devices * mean).exp_m1(),
        Some(shape) => -(-devices * shape * (mean / shape).ln_1p()).exp_m1(),
    }
}

fn loss_of_devices(fleet: &Fleet) -> Option<f64> {
    let Fleet { hazard, death, age_years: age, years, .. } = *fleet;
    if hazard.first_year <= 0.0 {
        return Some(0.0);
    }
    let dying = death.map_or(0.0, |death| death.years);
    if fleet.redundancy.parity == 0 {
        // The first failure is the loss; it was decided as much before as dying takes.
        let suffered = hazard.between(age, age + (years - dying).max(0.0));
        return Some(-(-f64::from(fleet.devices()) * suffered).exp_m1());
    }
    (hazard.is_constant() && dying <= 0.0).then(|| beyond_parity(fleet, hazard.first_year))
}

/// The probability that a group ever has more failed devices than parity: the birth and death chain whose state is the
/// number of failed devices, absorbed beyond the parity.
///
/// The matrix of a short time is a uniformised power series (Jensen 1953), squared until the time is long. Nothing but
/// what is positive is added, so that 1e-30 is as exact as 0.5.
fn beyond_parity(fleet: &Fleet, failures_per_year: f64) -> f64 {
    let parity = fleet.redundancy.parity as usize;
    let devices = f64::from(fleet.devices());
    let failure = |failed: usize| (devices - failed as f64) * failures_per_year;
    let rebuild = |failed: usize| failed as f64 / fleet.rebuild_years;
    let rate = (0..=parity).map(|failed| failure(failed) + rebuild(failed)).fold(0.0, f64::max);
    // One step of the chain that jumps at this rate.
    let size = parity + 2;
    let mut step = Square::zero(size);
    for failed in 0..=parity {
        *step.at(failed, failed + 1) = failure(failed) / rate;
        *step.at(failed, failed) = (1.0 - (failure(failed) + rebuild(failed)) / rate).max(0.0);
        if failed > 0 {
            *step.at(failed, failed - 1) = rebuild(failed) / rate;
        }
    }
    *step.at(size - 1, size - 1) = 1.0;
    let doublings = (rate * fleet.years).log2().ceil().max(0.0);
    let mean = rate * fleet.years / doublings.exp2();
    // Poisson weights of at most one expected jump: 200 powers reach any state of 65.
    let mut short = Square::zero(size);
    let mut power = Square::one(size);
    let mut weight = (-mean).exp();
    for jumps in 1..=200 {
        short.add(&power, weight);
        power = power.times(&step);
        weight *= mean / f64::from(jumps);
    }
    for _ in 0..doublings as u32 {
        short = short.times(&short);
    }
    short.at(0, size - 1).min(1.0)
}

/// A square matrix of numbers that are not negative.
#[derive(Clone, Debug)]
struct Square {
    size: usize,
    cells: Vec<f64>,
}

impl Square {
    fn zero(size: usize) -> Self {
        Self { size, cells: vec![0.0; size * size] }
    }

    fn one(size: usize) -> Self {
        let mut one = Self::zero(size);
        (0..size).for_each(|at| *one.at(at, at) = 1.0);
        one
    }

    fn at(&mut self, row: usize, column: usize) -> &mut f64 {
        &mut self.cells[row * self.size + column]
    }

    fn add(&mut self, other: &Self, weight: f64) {
        for (cell, theirs) in self.cells.iter_mut().zip(&other.cells) {
            *cell += weight * theirs;
        }
    }

    fn times(&self, other: &Self) -> Self {
        let mut product = Self::zero(self.size);
        let (rows, size) = (self.cells.chunks_exact(self.size), self.size);
        for (row, into) in rows.zip(product.cells.chunks_exact_mut(size)) {
            for (&cell, theirs) in row.iter().zip(other.cells.chunks_exact(size)) {
                for (sum, &their) in into.iter_mut().zip(theirs) {
                    *sum += cell * their;
                }
            }
        }
        product
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Redundancy;
    use crate::fleet::Hazard;

    fn lost_devices(fleet: &Fleet) -> f64 {
        of(fleet).lost_devices.expect("there is a closed form")
    }

    #[test]
    fn a_lone_disk_is_lost_with_its_first_failure() {
        let fleet = Fleet { groups: 1, ..Fleet::default() };
        let wanted = 1.0 - (-0.15f64).exp();
        assert!((lost_devices(&fleet) - wanted).abs() < 1e-12);
    }

    #[test]
    fn a_mirror_is_lost_as_the_solution_of_its_two_equations_says() {
        // Angus 1988; the eigenvalues of the two transient states.
        let fleet = Fleet { groups: 1, redundancy: Redundancy { data: 1, parity: 1 }, ..Fleet::default() };
        let (l, m, t) = (fleet.hazard.first_year, 1.0 / fleet.rebuild_years, fleet.years);
        let sum = 3.0 * l + m;
        let root = (sum * sum - 8.0 * l * l).sqrt();
        // The smaller eigenvalue without cancellation.
        let (fast, slow) = (f64::midpoint(sum, root), 4.0 * l * l / (sum + root));
        let survive = (fast * (-slow * t).exp() - slow * (-fast * t).exp()) / (fast - slow);
        let found = lost_devices(&fleet);
        assert!((found / (1.0 - survive) - 1.0).abs() < 1e-9, "{found} {}", 1.0 - survive);
    }

    #[test]
    fn the_rarest_loss_keeps_its_digits() {
        let fleet = Fleet {
            groups: 1,
            redundancy: Redundancy { data: 1, parity: 3 },
            hazard: Hazard::constant(1e-8),
            rebuild_years: 0.001,
            ..Fleet::default()
        };
        // First order: 4 l t, then three times failure against rebuild: 3 l r, 2 l r / 2, 1 l r / 3.
        let (l, r) = (1e-8, 0.001);
        let first_order = 4.0 * l * 5.0 * (3.0 * l * r) * (l * r) * (l * r / 3.0);
        let found = lost_devices(&fleet);
        assert!((found / first_order - 1.0).abs() < 1e-2, "{found} {first_order}");
    }

    #[test]
    fn a_rebuild_of_a_second_over_a_century_is_no_more_work() {
        let second = 1.0 / crate::SECONDS_PER_YEAR;
        let redundancy = Redundancy { data: 1, parity: 1 };
        let fleet = Fleet { groups: 1, redundancy, years: 100.0, rebuild_years: second, ..Fleet::default() };
        let first_order = 2.0 * 0.03 * 100.0 * 0.03 * second;
        assert!((lost_devices(&fleet) / first_order - 1.0).abs() < 1e-5);
    }
}
