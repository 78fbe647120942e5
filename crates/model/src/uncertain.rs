//! A number with error bars.

/// A number that is known from `low` to `high` only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uncertain {
    low: f64,
    value: f64,
    high: f64,
}

/// Which of the three numbers to reckon with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The smallest.
    Low,
    /// The best estimate.
    Value,
    /// The largest.
    High,
}

impl Uncertain {
    /// A number known exactly.
    pub const fn exact(value: f64) -> Self {
        Self { low: value, value, high: value }
    }

    /// `None` unless `low <= value <= high` and all are finite.
    pub fn new(low: f64, value: f64, high: f64) -> Option<Self> {
        (low <= value && value <= high && low.is_finite() && high.is_finite()).then_some(Self {
            low,
            value,
            high,
        })
    }

    /// One of the three.
    pub fn at(self, bound: Bound) -> f64 {
        match bound {
            Bound::Low => self.low,
            Bound::Value => self.value,
            Bound::High => self.high,
        }
    }

    /// The best estimate.
    pub fn value(self) -> f64 {
        self.value
    }

    /// Whether there is no doubt.
    pub fn is_exact(self) -> bool {
        self.low >= self.high
    }

    /// All three through a function that never falls.
    #[must_use]
    pub fn map(self, function: impl Fn(f64) -> f64) -> Self {
        Self { low: function(self.low), value: function(self.value), high: function(self.high) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_must_enclose_the_value() {
        assert!(Uncertain::new(2.0, 1.0, 3.0).is_none());
        assert!(Uncertain::new(0.0, 1.0, f64::NAN).is_none());
        let number = Uncertain::new(1.0, 2.0, 3.0).expect("in order");
        assert_eq!((number.at(Bound::Low), number.value(), number.at(Bound::High)), (1.0, 2.0, 3.0));
        assert!(!number.is_exact() && Uncertain::exact(1.0).is_exact());
    }
}
