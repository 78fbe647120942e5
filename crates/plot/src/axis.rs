//! An axis: how numbers become places, and which of them are named.

/// How numbers are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// Evenly.
    Linear,
    /// Each power of ten takes the same room.
    Logarithmic,
}

/// One axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it shows, with its unit.
    pub title: String,
    /// Number at its beginning.
    pub from: f64,
    /// Number at its end.
    pub to: f64,
    /// How numbers are spread.
    pub scaling: Scaling,
}

impl Axis {
    /// An even axis.
    pub fn linear(title: impl Into<String>, from: f64, to: f64) -> Self {
        Self { title: title.into(), from, to, scaling: Scaling::Linear }
    }

    /// A logarithmic axis; both ends must be above 0.
    pub fn logarithmic(title: impl Into<String>, from: f64, to: f64) -> Self {
        Self { title: title.into(), from, to, scaling: Scaling::Logarithmic }
    }

    /// Where a number is, from 0 at the beginning to 1 at the end; outside for numbers beyond. Not finite where the number
    /// has no place.
    pub fn share(&self, number: f64) -> f64 {
        let scale = |number: f64| match self.scaling {
            Scaling::Linear => number,
            Scaling::Logarithmic => number.log10(),
        };
        let (from, to) = (scale(self.from), scale(self.to));
        (scale(number) - from) / (to - from)
    }

    /// The numbers that are named, about `count` of them, with their names.
    pub fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        match self.scaling {
            Scaling::Linear => {
                let step = nice_step((self.to - self.from) / count.max(1) as f64);
                let (first, last) = ((self.from / step - 1e-9).ceil(), (self.to / step + 1e-9).floor());
                let many = (last - first).clamp(0.0, 1000.0) as usize;
                let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
                (0..=many)
                    .map(|number| (first + number as f64) * step)
                    .map(|at| (at, format!("{:.decimals$}", at + 0.0)))
                    .collect()
            }
            Scaling::Logarithmic => {
                let (first, last) = ((self.from.log10() - 1e-9).ceil(), (self.to.log10() + 1e-9).floor());
                let step = ((last - first) / count.max(1) as f64).ceil().max(1.0);
                let many = ((last - first) / step).clamp(0.0, 1000.0) as usize;
                (0..=many)
                    .map(|number| first + number as f64 * step)
                    .map(|power| (10f64.powf(power), name_of_power(power, (first, last))))
                    .collect()
            }
        }
    }
}

/// Powers of ten with a letter; below each come three without.
const LETTERS: [&str; 5] = ["", " k", " M", " G", " T"];

/// All names of an axis, which has powers from `first` to `last`, are of one form: numbers as they are, with the letters for
/// thousands and so on, or powers.
fn name_of_power(power: f64, (first, last): (f64, f64)) -> String {
    if first >= -3.0 && last <= 3.0 {
        return format!("{}", 10f64.powf(power));
    }
    let thousands = (power / 3.0).floor();
    match LETTERS.get(thousands as usize) {
        Some(letter) if first >= 0.0 && last < 15.0 => {
            format!("{}{letter}", 10f64.powf(power - 3.0 * thousands).round())
        }
        _ => format!("1e{power}"),
    }
}

/// The smallest of 1, 2, 5 times a power of ten that is at least `step`.
pub fn nice_step(step: f64) -> f64 {
    if !(step.is_finite() && step > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|&nice| nice >= step * (1.0 - 1e-9))
        .unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(axis: &Axis, count: usize) -> Vec<String> {
        axis.ticks(count).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn ticks_are_round_numbers_within_the_axis() {
        assert_eq!(names(&Axis::linear("", 10.0, 20.0), 5), ["10", "12", "14", "16", "18", "20"]);
        assert_eq!(names(&Axis::linear("", 0.0, 1.0), 4), ["0.0", "0.5", "1.0"]);
        assert_eq!(names(&Axis::logarithmic("", 0.1, 1e7), 4), ["1e-1", "1e1", "1e3", "1e5", "1e7"]);
        assert_eq!(names(&Axis::logarithmic("", 1.0, 1e7), 4), ["1", "100", "10 k", "1 M"]);
        assert_eq!(names(&Axis::logarithmic("", 1e9, 1e18), 3), ["1e9", "1e12", "1e15", "1e18"]);
        assert_eq!(names(&Axis::logarithmic("", 1.0, 1000.0), 6), ["1", "10", "100", "1000"]);
        assert!(Axis::linear("", 1.0, 1.0).ticks(5).len() < 1002, "an empty axis ends too");
    }

    #[test]
    fn a_share_is_the_place_on_the_axis() {
        assert!((Axis::logarithmic("", 1.0, 100.0).share(10.0) - 0.5).abs() < 1e-12);
        assert!((Axis::linear("", 10.0, 20.0).share(25.0) - 1.5).abs() < 1e-12);
        assert!(!Axis::logarithmic("", 1.0, 100.0).share(0.0).is_finite());
    }
}
