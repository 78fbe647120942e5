//! The devices that a block passes, and their error rates in every unit that is in use.

use crate::{Arrival, BLOCK_BITS, BitErrors, Bound, Uncertain};

/// Seconds of a year of 365.25 days.
pub const SECONDS_PER_YEAR: f64 = 365.25 * 86_400.0;

/// Errors per second and bit of one FIT/Mbit: one failure in 10^9 hours per 2^20 bits.
pub fn fit_per_mbit(fit: f64) -> f64 {
    fit / (1e9 * 3600.0) / 1_048_576.0
}

/// The index of a rate: -log10 of errors per second and bit (memory), or of the bit error rate (disk).
pub fn index_of(rate: f64) -> f64 {
    -rate.log10()
}

/// The rate that an index stands for.
pub fn rate_of_index(index: f64) -> f64 {
    10f64.powf(-index)
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Device {
    /// On a disk.
    Disk(Disk),
    /// In memory.
    Memory(Memory),
}

/// Memory by its rate: P(i) = e^(-b l t) (b l t)^i / i! after t seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Errors per second and bit, l.
    pub rate: Uncertain,
    /// How errors come.
    pub arrival: Arrival,
}

impl Memory {
    /// Memory whose errors are independent.
    pub fn independent(rate: Uncertain) -> Self {
        Self { rate, arrival: Arrival::Independent }
    }

    /// What has gone wrong after `seconds`.
    pub fn after(&self, seconds: f64, bound: Bound) -> BitErrors {
        let mean = f64::from(BLOCK_BITS) * self.rate.at(bound) * seconds;
        BitErrors::Arrivals { mean, arrival: self.arrival }
    }
}

/// A disk by the rate of bit errors that its own code does not see: P(i) = C(b, i) u^i (1 - u)^(b - i), however long the
/// block was there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disk {
    /// Probability of an undetected error of each bit read, u.
    pub bit_error_rate: Uncertain,
    /// What time adds, if that is to be reckoned with.
    pub rot: Option<Rot>,
}

impl Disk {
    /// A disk that does not age: the framework's.
    pub fn ageless(bit_error_rate: Uncertain) -> Self {
        Self { bit_error_rate, rot: None }
    }

    /// What is wrong when the block is read, but for what time has added.
    pub fn on_read(&self, bound: Bound) -> BitErrors {
        BitErrors::Binomial { rate: self.bit_error_rate.at(bound) }
    }
}

/// Errors that come to a block while it lies on the disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rot {
    /// Errors per second and bit.
    pub rate: Uncertain,
    /// How they come.
    pub arrival: Arrival,
    /// Seconds between two scrubs: everything is read, checked, and repaired where the check fails. `None`: never.
    pub scrub_interval: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fit_per_mbit_is_converted_as_published() {
        for (fit, rate, index) in
            [(0.56, 1.48e-19, 18.8), (167_066.0, 4.42e-14, 13.4), (25_000.0, 6.62e-15, 14.2)]
        {
            let found = fit_per_mbit(fit);
            assert!((found / rate - 1.0).abs() < 0.003, "{fit} FIT/Mbit: {found}");
            assert!((index_of(found) - index).abs() < 0.05, "{fit} FIT/Mbit: {}", index_of(found));
        }
        assert!((rate_of_index(index_of(1e-12)) / 1e-12 - 1.0).abs() < 1e-12);
    }
}
