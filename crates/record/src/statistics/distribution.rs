//! The two distributions that the tests need.

use rotproof_model::estimate::incomplete_beta;

/// The probability that Student's t with so many degrees of freedom exceeds `t`.
///
/// By the incomplete beta function (Abramowitz and Stegun, 26.7.1): P(|T| > t) = I(df / (df + t^2); df/2, 1/2).
pub fn student_survival(t: f64, degrees: f64) -> f64 {
    if t.is_infinite() {
        return if t > 0.0 { 0.0 } else { 1.0 };
    }
    let tail = incomplete_beta(degrees / (degrees + t * t), degrees / 2.0, 0.5) / 2.0;
    if t >= 0.0 { tail } else { 1.0 - tail }
}

/// The t that Student's t with so many degrees of freedom exceeds with the probability `tail`, below 1/2. By bisection.
pub fn student_quantile(tail: f64, degrees: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while student_survival(high, degrees) > tail && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if student_survival(middle, degrees) > tail { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// The probability that a standard normal variable exceeds `z`.
pub fn normal_survival(z: f64) -> f64 {
    0.5 * libm::erfc(z / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // Abramowitz and Stegun, table 26.10.
        for (degrees, tail, t) in [
            (1.0, 0.025, 12.706),
            (4.0, 0.025, 2.776),
            (9.0, 0.025, 2.262),
            (30.0, 0.005, 2.750),
            (1e6, 0.025, 1.960),
        ] {
            let found = student_quantile(tail, degrees);
            assert!((found - t).abs() < 6e-4, "{found} for {t}");
            assert!((student_survival(found, degrees) - tail).abs() < 1e-9);
            assert!((student_survival(-found, degrees) - (1.0 - tail)).abs() < 1e-9);
        }
        assert!((normal_survival(1.959_963_984_540_054) - 0.025).abs() < 1e-12);
    }
}
