//! What the numbers of a chart are, and how they are written.

/// A unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Bytes a second.
    BytesPerSecond,
    /// Things a second.
    PerSecond,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// Hundredths of a whole.
    Percent,
    /// Things.
    #[default]
    Count,
}

const KIB: f64 = 1024.0;

impl Unit {
    /// By what numbers up to `largest` are divided, and how the quotient is called.
    pub fn scale(self, largest: f64) -> (f64, &'static str) {
        let pick = |steps: &[(f64, &'static str)]| {
            steps.iter().copied().rev().find(|&(factor, _)| largest >= factor).unwrap_or(steps[0])
        };
        match self {
            // As the terminal has them.
            Self::BytesPerSecond => {
                pick(&[(1.0, "B/s"), (KIB, "KiB/s"), (KIB * KIB, "MiB/s"), (KIB * KIB * KIB, "GiB/s")])
            }
            Self::PerSecond => pick(&[(1.0, "per second"), (1e3, "thousand/s"), (1e6, "million/s")]),
            Self::Nanoseconds => pick(&[(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")]),
            Self::Bytes => {
                let tib = KIB * KIB * KIB * KIB;
                pick(&[(1.0, "B"), (KIB, "KiB"), (KIB * KIB, "MiB"), (KIB * KIB * KIB, "GiB"), (tib, "TiB")])
            }
            Self::Percent => (1.0, "%"),
            Self::Count => pick(&[(1.0, ""), (1e3, "thousand"), (1e6, "million"), (1e9, "billion")]),
        }
    }

    /// A number with its unit, to three digits.
    pub fn write(self, number: f64) -> String {
        let (factor, name) = self.scale(number.abs());
        let value = number / factor;
        let decimals = match value.abs() {
            value if value < 1e-9 || value.fract().abs() < 1e-9 && factor <= 1.0 => 0,
            value if value < 9.995 => 2,
            value if value < 99.95 => 1,
            _ => 0,
        };
        format!("{value:.decimals$} {name}").trim_end().to_owned()
    }
}

/// Seconds with as many decimals as tell one moment from the next on a time line of `span` seconds.
pub(crate) fn seconds(at: f64, span: f64) -> String {
    let decimals = (2.0 - span.max(1e-9).log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{at:.decimals$} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_largest_unit_in_which_they_are_at_least_one() {
        assert_eq!(Unit::BytesPerSecond.write(215_300_000.0), "205 MiB/s");
        assert_eq!(Unit::Bytes.write(1536.0), "1.50 KiB");
        assert_eq!(Unit::Nanoseconds.write(1_480.0), "1.48 us");
        assert_eq!(Unit::Nanoseconds.write(850.0), "850 ns");
        assert_eq!(Unit::Percent.write(12.34), "12.3 %");
        assert_eq!(Unit::Count.write(0.0), "0");
        assert_eq!(Unit::Count.write(7.0), "7");
        assert_eq!(Unit::PerSecond.write(999_900.0), "1000 thousand/s");
    }

    #[test]
    fn short_runs_have_times_with_more_decimals() {
        assert_eq!(seconds(1.4, 100.0), "1 s");
        assert_eq!(seconds(1.5, 10.0), "1.5 s");
        assert_eq!(seconds(0.0015, 0.01), "0.0015 s");
    }
}
