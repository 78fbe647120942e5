//! Whether two sets of measurements differ, and by how much.
//!
//! Welch's t test asks whether the means differ where deviations may, too (B. L. Welch, Biometrika 34, 1947); Mann and
//! Whitney's U test asks the same without taking anything for normal (Annals of Mathematical Statistics 18, 1947). A
//! mean of few runs is best told by the first, numbers with outliers by the second.

use serde::Serialize;

use super::distribution::{normal_survival, student_quantile, student_survival};
use super::summary::{Range, Summary, TAIL};

/// Two sets of measurements side by side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The first, which the other is compared with.
    pub base: Summary,
    /// The other.
    pub other: Summary,
    /// The other mean divided by the first; absent if the first is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Where that ratio lies with 95% confidence; absent without two measurements on both sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_confidence: Option<Range>,
    /// Whether the means differ; absent without two measurements on both sides, or where nothing varies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub welch: Option<Welch>,
    /// Whether one is larger more often than not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mann_whitney: Option<MannWhitney>,
}

/// Welch's t test, two-sided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Welch {
    /// The other mean less the first, in standard errors.
    pub t: f64,
    /// Degrees of freedom, by Welch and Satterthwaite.
    pub degrees: f64,
    /// How probable such a difference would be if there were none.
    pub p: f64,
}

/// Mann and Whitney's U test, two-sided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MannWhitney {
    /// Pairs in which the first is larger, equal ones half.
    pub u: f64,
    /// How probable such a U would be if there were no difference: exact for few values without ties, else by the normal
    /// distribution with corrections for ties and continuity.
    pub p: f64,
}

/// Compares two sets of measurements; `None` if one is empty.
pub fn compare(base: &[f64], other: &[f64]) -> Option<Comparison> {
    let (first, second) = (Summary::of(base)?, Summary::of(other)?);
    let ratio = ratio_of_means(&first, &second);
    Some(Comparison {
        base: first,
        other: second,
        ratio: ratio.map(|(ratio, _)| ratio),
        ratio_confidence: ratio.and_then(|(_, confidence)| confidence),
        welch: welch(&first, &second),
        mann_whitney: mann_whitney(base, other),
    })
}

/// Welch's t test of two means; `None` with fewer than two measurements on a side, or where neither varies.
pub fn welch(base: &Summary, other: &Summary) -> Option<Welch> {
    let (a, b) = (base.variance_of_mean(), other.variance_of_mean());
    if base.count < 2 || other.count < 2 || a + b <= 0.0 {
        return None;
    }
    let t = (other.mean - base.mean) / (a + b).sqrt();
    let degrees = satterthwaite((a, base.count), (b, other.count));
    Some(Welch { t, degrees, p: (2.0 * student_survival(t.abs(), degrees)).min(1.0) })
}

fn satterthwaite((a, n): (f64, u64), (b, m): (f64, u64)) -> f64 {
    (a + b).powi(2) / (a * a / (n - 1) as f64 + b * b / (m - 1) as f64)
}

/// The other mean divided by the first, and where that lies with 95% confidence: by the delta method on its logarithm,
/// with Student's t. `None` if the first is not above 0; no interval without two measurements on both sides.
pub fn ratio_of_means(base: &Summary, other: &Summary) -> Option<(f64, Option<Range>)> {
    if base.mean <= 0.0 {
        return None;
    }
    let ratio = other.mean / base.mean;
    if base.count < 2 || other.count < 2 {
        return Some((ratio, None));
    }
    if other.mean <= 0.0 {
        // What is never above 0 has no logarithm; its own interval is the best there is.
        let confidence = other.confidence.map(|range| Range {
            low: (range.low / base.mean).min(ratio),
            high: (range.high / base.mean).max(ratio),
        });
        return Some((ratio, confidence));
    }
    let a = base.variance_of_mean() / base.mean.powi(2);
    let b = other.variance_of_mean() / other.mean.powi(2);
    if a + b <= 0.0 {
        return Some((ratio, Some(Range { low: ratio, high: ratio })));
    }
    let degrees = satterthwaite((a, base.count), (b, other.count));
    let reach = (student_quantile(TAIL, degrees) * (a + b).sqrt()).exp();
    Some((ratio, Some(Range { low: ratio / reach, high: ratio * reach })))
}

/// So many values on the smaller side are few enough to count all orders, if none are equal.
const EXACT_MAX: usize = 8;
/// And so many on the larger.
const EXACT_OTHER_MAX: usize = 500;

/// Mann and Whitney's U test; `None` if a side is empty, or all values are equal.
pub fn mann_whitney(base: &[f64], other: &[f64]) -> Option<MannWhitney> {
    if base.is_empty() || other.is_empty() {
        return None;
    }
    let (n, m) = (base.len() as f64, other.len() as f64);
    let mut all: Vec<(f64, bool)> =
        base.iter().map(|&value| (value, true)).chain(other.iter().map(|&value| (value, false))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut rank_sum, mut ties, mut start) = (0.0, 0.0, 0);
    while start < all.len() {
        let length = all[start..].iter().take_while(|entry| entry.0 == all[start].0).count();
        let rank = start as f64 + (length as f64 + 1.0) / 2.0;
        rank_sum += rank * all[start..start + length].iter().filter(|entry| entry.1).count() as f64;
        ties += (length as f64).powi(3) - length as f64;
        start += length;
    }
    let u = rank_sum - n * (n + 1.0) / 2.0;
    let larger = u.max(n * m - u);
    let (few, many) = (base.len().min(other.len()), base.len().max(other.len()));
    if ties == 0.0 && few <= EXACT_MAX && many <= EXACT_OTHER_MAX {
        return Some(MannWhitney { u, p: (2.0 * exact_tail(few, many, larger)).min(1.0) });
    }
    let total = n + m;
    let variance = n * m / 12.0 * ((total + 1.0) - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return None;
    }
    let z = (larger - n * m / 2.0 - 0.5) / variance.sqrt();
    Some(MannWhitney { u, p: (2.0 * normal_survival(z)).min(1.0) })
}

/// The probability of a U of at least `u` if every order is equally likely: the number of ways to a sum of places, by
/// counting.
fn exact_tail(few: usize, many: usize, u: f64) -> f64 {
    // ways[k][s]: k of the values so far belong to the smaller side, and they were larger s times.
    let sums = few * many + 1;
    let mut ways = vec![vec![0.0; sums]; few + 1];
    ways[0][0] = 1.0;
    for place in 0..few + many {
        for k in (1..=few.min(place + 1)).rev() {
            let smaller_others = place + 1 - k;
            if smaller_others > many {
                continue;
            }
            for sum in (smaller_others..sums).rev() {
                let more = ways[k - 1][sum - smaller_others];
                ways[k][sum] += more;
            }
        }
    }
    let all: f64 = ways[few].iter().sum();
    let at_least = u.ceil() as usize;
    ways[few].iter().skip(at_least).sum::<f64>() / all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The U of every way to deal the places out.
    fn exact_by_enumeration(few: usize, many: usize, u: f64) -> f64 {
        let (mut at_least, mut all) = (0u32, 0u32);
        for set in 0u32..1 << (few + many) {
            if set.count_ones() as usize != few {
                continue;
            }
            let larger: u32 = (0..few + many)
                .filter(|place| set >> place & 1 == 1)
                .map(|place| (0..place).filter(|other| set >> other & 1 == 0).count() as u32)
                .sum();
            all += 1;
            at_least += u32::from(f64::from(larger) >= u);
        }
        f64::from(at_least) / f64::from(all)
    }

    #[test]
    fn the_exact_tail_is_that_of_all_orders() {
        for few in 1..5 {
            for many in few..7 {
                for u in 0..=few * many {
                    let (found, wanted) =
                        (exact_tail(few, many, u as f64), exact_by_enumeration(few, many, u as f64));
                    assert!((found - wanted).abs() < 1e-12, "{few} {many} {u}: {found} for {wanted}");
                }
            }
        }
    }

    #[test]
    fn the_same_runs_do_not_differ_and_very_different_ones_do() {
        let (a, b) = ([10.0, 11.0, 9.0, 10.5, 9.5], [5.0, 5.5, 4.5, 5.2, 4.8]);
        let same = compare(&a, &a).expect("values");
        assert_eq!((same.ratio, same.welch.expect("varies").p), (Some(1.0), 1.0));
        assert!(same.mann_whitney.expect("values").p > 0.99);
        let halved = compare(&a, &b).expect("values");
        let range = halved.ratio_confidence.expect("several");
        assert!((halved.ratio.expect("not 0") - 0.5).abs() < 1e-12 && range.low < 0.5 && range.high < 0.56);
        assert!(halved.welch.expect("varies").p < 1e-4);
        // 2 / C(10, 5): the most extreme of all orders, from both sides.
        assert!((halved.mann_whitney.expect("values").p - 2.0 / 252.0).abs() < 1e-12);
        let nothing = compare(&a, &[0.0, 0.0]).expect("values");
        assert_eq!(
            (nothing.ratio, nothing.ratio_confidence),
            (Some(0.0), Some(Range { low: 0.0, high: 0.0 }))
        );
        assert_eq!(compare(&a, &[]), None);
        assert_eq!(compare(&[3.0, 3.0], &[3.0, 3.0]).expect("values").welch, None, "nothing varies");
    }

    proptest! {
        #[test]
        fn u_counts_pairs_and_both_directions_agree(
            a in prop::collection::vec(0u8..20, 1..12), b in prop::collection::vec(0u8..20, 1..12),
        ) {
            let a: Vec<f64> = a.into_iter().map(f64::from).collect();
            let b: Vec<f64> = b.into_iter().map(f64::from).collect();
            let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (x, y)));
            let wanted: f64 =
                pairs.map(|(x, y)| if x > y { 1.0 } else if x == y { 0.5 } else { 0.0 }).sum();
            if let (Some(one), Some(back)) = (mann_whitney(&a, &b), mann_whitney(&b, &a)) {
                prop_assert!((one.u - wanted).abs() < 1e-9);
                prop_assert!((one.p - back.p).abs() < 1e-9 && (0.0..=1.0).contains(&one.p));
                prop_assert!((one.u + back.u - (a.len() * b.len()) as f64).abs() < 1e-9);
            }
        }
    }
}
