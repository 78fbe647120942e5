//! What can be said of a fleet without simulating it.

use super::Fleet;

/// Expected numbers in a fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedForm {
    /// Groups that lose more devices than they have parity: exact, from the Markov chain of failures and rebuilds.
    pub lost_devices: f64,
    /// Damaged sectors that pass their checksum: exact but for the time in which devices are failed.
    pub silent: f64,
    /// Groups that lose sectors: exact without redundancy and failures; `None` otherwise.
    pub lost_sectors: Option<f64>,
}

/// The closed forms of a fleet that has no [`Fleet::mistake`].
pub fn of(fleet: &Fleet) -> ClosedForm {
    let groups = fleet.groups as f64;
    let devices = f64::from(fleet.devices());
    let events = devices * fleet.years * fleet.errors_per_year;
    let sectors = 1.0 / (1.0 - fleet.continuation);
    let is_alone = fleet.redundancy.parity == 0 && fleet.failures_per_year <= 0.0;
    ClosedForm {
        lost_devices: groups * loss_of_devices(fleet),
        silent: groups * events * sectors * fleet.undetected,
        lost_sectors: is_alone.then(|| groups * any_noticed(fleet)),
    }
}

/// The probability that in a group without redundancy any event is noticed. An event is not if all of its sectors pass, a
/// geometric sum.
fn any_noticed(fleet: &Fleet) -> f64 {
    let Fleet { undetected, continuation, .. } = *fleet;
    let unnoticed = undetected * (1.0 - continuation) / (1.0 - continuation * undetected);
    let mean = fleet.years * fleet.errors_per_year * (1.0 - unnoticed);
    let devices = f64::from(fleet.devices());
    match fleet.clustering {
        None => -(-devices * mean).exp_m1(),
        Some(shape) => -(-devices * shape * (mean / shape).ln_1p()).exp_m1(),
    }
}

/// The probability that a group ever has more failed devices than parity: the birth and death chain whose state is the
/// number of failed devices, absorbed beyond the parity.
///
/// The matrix of a short time is a uniformised power series (Jensen 1953), squared until the time is long. Nothing but
/// what is positive is added, so that 1e-30 is as exact as 0.5.
fn loss_of_devices(fleet: &Fleet) -> f64 {
    if fleet.failures_per_year <= 0.0 {
        return 0.0;
    }
    let parity = fleet.redundancy.parity as usize;
    let devices = f64::from(fleet.devices());
    let failure = |failed: usize| (devices - failed as f64) * fleet.failures_per_year;
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

    #[test]
    fn a_lone_disk_is_lost_with_its_first_failure() {
        let fleet = Fleet { groups: 1, ..Fleet::default() };
        let wanted = 1.0 - (-0.15f64).exp();
        assert!((of(&fleet).lost_devices - wanted).abs() < 1e-12);
    }

    #[test]
    fn a_mirror_is_lost_as_the_solution_of_its_two_equations_says() {
        // Angus 1988; the eigenvalues of the two transient states.
        let fleet = Fleet { groups: 1, redundancy: Redundancy { data: 1, parity: 1 }, ..Fleet::default() };
        let (l, m, t) = (fleet.failures_per_year, 1.0 / fleet.rebuild_years, fleet.years);
        let sum = 3.0 * l + m;
        let root = (sum * sum - 8.0 * l * l).sqrt();
        // The smaller eigenvalue without cancellation.
        let (fast, slow) = (f64::midpoint(sum, root), 4.0 * l * l / (sum + root));
        let survive = (fast * (-slow * t).exp() - slow * (-fast * t).exp()) / (fast - slow);
        let found = of(&fleet).lost_devices;
        assert!((found / (1.0 - survive) - 1.0).abs() < 1e-9, "{found} {}", 1.0 - survive);
    }

    #[test]
    fn the_rarest_loss_keeps_its_digits() {
        let fleet = Fleet {
            groups: 1,
            redundancy: Redundancy { data: 1, parity: 3 },
            failures_per_year: 1e-8,
            rebuild_years: 0.001,
            ..Fleet::default()
        };
        // First order: 4 l t, then three times failure against rebuild: 3 l r, 2 l r / 2, 1 l r / 3.
        let (l, r) = (1e-8, 0.001);
        let first_order = 4.0 * l * 5.0 * (3.0 * l * r) * (l * r) * (l * r / 3.0);
        let found = of(&fleet).lost_devices;
        assert!((found / first_order - 1.0).abs() < 1e-2, "{found} {first_order}");
    }

    #[test]
    fn a_rebuild_of_a_second_over_a_century_is_no_more_work() {
        let second = 1.0 / crate::SECONDS_PER_YEAR;
        let redundancy = Redundancy { data: 1, parity: 1 };
        let fleet = Fleet { groups: 1, redundancy, years: 100.0, rebuild_years: second, ..Fleet::default() };
        let first_order = 2.0 * 0.03 * 100.0 * 0.03 * second;
        assert!((of(&fleet).lost_devices / first_order - 1.0).abs() < 1e-5);
    }
}
