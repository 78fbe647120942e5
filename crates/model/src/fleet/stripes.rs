//! Damage of several devices in one stripe: how many such stripes are to be expected.

use super::source::FRONT;

/// The two parts of a device: its first tenth, and the rest. Within each, damage lies anywhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Parts([f64; 2]);

impl Parts {
    /// Of a device of so many sectors.
    pub fn of(sectors: f64) -> Self {
        Self([sectors * FRONT, sectors * (1.0 - FRONT)])
    }

    /// Stripes to be expected in which `sectors` damaged sectors of one device meet damage of `others_needed` other
    /// devices; `others` has the damaged sectors of each of them in the same part.
    pub fn met_by(self, is_front: bool, sectors: f64, others: &[f64], others_needed: u32) -> f64 {
        let size = self.0[usize::from(!is_front)];
        sectors * subsets(others, size, others_needed)
    }

    /// Stripes to be expected in which `needed` devices are damaged; each has its damaged sectors in front and in the
    /// rest.
    pub fn met(self, devices: &[[f64; 2]], needed: u32) -> f64 {
        [0, 1]
            .map(|part| {
                let damaged: Vec<f64> = devices.iter().map(|device| device[part]).collect();
                self.0[part] * subsets(&damaged, self.0[part], needed)
            })
            .iter()
            .sum()
    }
}

/// The sum, over all subsets of so many devices, of the product of their damaged shares: the elementary symmetric
/// polynomial.
fn subsets(damaged: &[f64], size: f64, count: u32) -> f64 {
    let count = count as usize;
    if count > damaged.len() {
        return 0.0;
    }
    let mut sums = vec![0.0; count + 1];
    sums[0] = 1.0;
    for sectors in damaged.iter().filter(|sectors| **sectors > 0.0) {
        for number in (1..=count).rev() {
            sums[number] += sums[number - 1] * (sectors / size).min(1.0);
        }
    }
    sums[count]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_with_several_damaged_devices_are_the_sum_over_all_their_subsets() {
        let parts = Parts::of(1000.0);
        // Two of three devices, in the rest of 900 sectors.
        let wanted = 2.0 * (3.0 + 5.0) / 900.0;
        assert!((parts.met_by(false, 2.0, &[3.0, 5.0], 1) - wanted).abs() < 1e-12);
        let wanted = 2.0 * 3.0 * 5.0 / (900.0 * 900.0);
        assert!((parts.met_by(false, 2.0, &[3.0, 5.0], 2) - wanted).abs() < 1e-12);
        assert_eq!(parts.met_by(true, 2.0, &[3.0, 5.0], 3), 0.0);
        let devices = [[1.0, 2.0], [3.0, 0.0], [0.0, 4.0]];
        let wanted = 100.0 * (3.0 / 1e4) + 900.0 * (8.0 / 81e4);
        assert!((parts.met(&devices, 2) - wanted).abs() < 1e-12);
    }
}
