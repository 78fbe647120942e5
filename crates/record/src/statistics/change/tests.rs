//! Series whose truth is known: noise of several kinds in which nothing happens, and real changes in noise.

use rotproof_block::hash::mix;

use super::*;

/// Numbers that look random.
struct Draws(u64, u64);

impl Draws {
    /// Between 0 and 1.
    fn uniform(&mut self) -> f64 {
        self.1 += 1;
        ((mix(self.0, 0xc0de, self.1) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

const KINDS: [&str; 9] = [
    "normal",
    "lognormal",
    "spikes",
    "two levels",
    "counts",
    "heavy tails",
    "weakly correlated",
    "correlated",
    "catching up",
];

/// Intervals around 100 in which nothing happens.
fn noise(kind: &str, length: usize, seed: u64) -> Vec<f64> {
    let mut draws = Draws(seed, 0);
    let mut correlated = |share: f64| -> Vec<f64> {
        let mut state = draws.normal();
        (0..length)
            .map(|_| {
                state = share * state + (1.0 - share * share).sqrt() * draws.normal();
                100.0 + 10.0 * state
            })
            .collect()
    };
    match kind {
        "weakly correlated" => return correlated(0.3),
        "correlated" => return correlated(0.6),
        _ => {}
    }
    let mut owed = 0.0;
    (0..length)
        .map(|_| match kind {
            "normal" => 100.0 + 10.0 * draws.normal(),
            "lognormal" => 100.0 * (0.5 * draws.normal()).exp(),
            "spikes" if draws.uniform() < 0.1 => 300.0 + draws.normal(),
            "spikes" => 100.0 + draws.normal(),
            "two levels" if draws.uniform() < 0.5 => 60.0 + draws.normal(),
            "two levels" => 140.0 + draws.normal(),
            // Few requests an interval.
            "counts" => (0..20).filter(|_| draws.uniform() < 0.25).count() as f64 * 20.0,
            // Pareto's, without a variance.
            "heavy tails" => 50.0 * draws.uniform().powf(-0.5),
            // A rate that is kept: what one interval lacks the next one has.
            _ => {
                let moved = if draws.uniform() < 0.1 { 40.0 } else { 100.0 + owed };
                owed += 100.0 - moved;
                moved
            }
        })
        .collect()
}

fn judged(values: &[f64], from: usize, until: usize) -> Change {
    Base::of(values[..from].to_vec()).test(&values[from..until]).alone()
}

#[test]
fn noise_of_no_kind_is_told_as_a_change_more_often_than_the_confidence_allows() {
    const SERIES: u64 = 1_000;
    for kind in KINDS {
        for (before, during) in [(4, 4), (10, 2), (10, 5), (10, 20), (30, 10), (100, 30)] {
            let changed = |seed: &u64| {
                let values = noise(kind, before + during, mix(*seed, before as u64, during as u64));
                matches!(judged(&values, before, before + during), Change::Lower | Change::Higher)
            };
            let alarms = (0..SERIES).filter(changed).count();
            let share = alarms as f64 / SERIES as f64;
            // And three standard errors of a count of so many.
            let limit = 0.05 + 3.0 * (0.05 * 0.95 / SERIES as f64).sqrt();
            assert!(share <= limit, "{kind}, {before} before, {during} during: {share}");
        }
    }
}

#[test]
fn real_changes_are_found_in_noise() {
    const SERIES: u64 = 200;
    // How much is left, how much the intervals vary, how many there are, and in how many series it must be found.
    for (left, deviation, (before, during), least) in [
        (0.95, 0.01, (10, 5), 0.95),
        (0.95, 0.02, (30, 10), 0.95),
        (0.95, 0.03, (60, 30), 0.95),
        (0.8, 0.03, (10, 5), 0.95),
        (0.8, 0.08, (30, 10), 0.95),
        (0.5, 0.1, (10, 5), 0.95),
        (0.5, 0.02, (40, 1), 0.95),
        (0.5, 0.02, (4, 4), 0.95),
        (0.0, 0.1, (10, 2), 0.95),
        (1.2, 0.03, (10, 5), 0.95),
        (8.0, 0.2, (10, 5), 0.95),
    ] {
        let is_found = |seed: &u64| {
            let mut draws = Draws(*seed, 0);
            let mut values: Vec<f64> =
                (0..before + during).map(|_| 100.0 * (1.0 + deviation * draws.normal())).collect();
            values[before..].iter_mut().for_each(|value| *value *= left);
            let wanted = if left < 1.0 { Change::Lower } else { Change::Higher };
            judged(&values, before, before + during) == wanted
        };
        let found = (0..SERIES).filter(is_found).count() as f64 / SERIES as f64;
        assert!(found >= least, "{left} with {deviation}, {before} and {during}: found in {found}");
    }
}

#[test]
fn one_interval_that_catches_up_is_not_part_of_a_level() {
    let before = [100.0, 101.0, 99.0, 350.0, 100.0, 100.0];
    let base = Base::of(before.to_vec());
    assert_eq!(base.summary.map(|level| (level.mean, level.count)), Some((100.0, 5)));
    assert_eq!(base.test(&[100.0, 99.0, 101.0, 100.0]).alone(), Change::None);
    assert_eq!(base.test(&[50.0, 49.0, 51.0, 50.0]).alone(), Change::Lower);
    assert_eq!(steady(&[100.0, 100.0, 300.0]), [100.0, 100.0]);
    assert_eq!(steady(&[100.0, 300.0]), [100.0, 300.0], "who knows which of them");
    let swings = [10.0, 200.0, 10.0, 200.0, 12.0, 190.0];
    assert_eq!(steady(&swings), swings, "that is how it is");
}

#[test]
fn latencies_that_pile_up_are_a_change_however_much_they_differ() {
    let base = Base::of(vec![95e3, 95.1e3, 94.9e3, 95.2e3, 94.8e3, 95e3, 95.1e3, 95e3]);
    let pile = [0.26e9, 0.7e9, 1.2e9, 1.7e9, 2.1e9, 2.6e9];
    assert_eq!(base.test(&pile).alone(), Change::Higher);
    assert!(base.test(&pile).p < SURE);
}

#[test]
fn too_few_intervals_tell_nothing() {
    let told = |before: &[f64], during: &[f64]| Base::of(before.to_vec()).test(during).alone();
    assert_eq!(told(&[100.0, 100.0], &[0.0; 9]), Change::Unknown, "two are no level");
    assert_eq!(told(&[100.0; 10], &[]), Change::Unknown);
    assert_eq!(told(&[], &[100.0; 10]), Change::Unknown);
    // One of ten orders of three and three has the smaller ones first or last.
    assert_eq!(told(&[100.0; 3], &[0.0; 3]), Change::Unknown);
    assert_eq!(told(&[100.0; 10], &[0.0]), Change::Unknown);
    assert_eq!(told(&[100.0; 10], &[0.0, 0.0]), Change::Lower);
    assert_eq!(told(&[100.0; 9], &[99.5; 9]), Change::None, "less than a percent");
    assert_eq!(told(&[0.0; 9], &[0.0; 9]), Change::Unknown, "nothing ever moved");
}

#[test]
fn one_measure_alone_has_to_be_surer_than_two_that_agree() {
    let test = |seems, p| Test { seems, p, is_surest: false };
    let together = |p: f64, other: f64, seems| {
        Test::together([
            (test(Change::Lower, p), true),
            (test(seems, other), false),
            (test(Change::None, 1.0), false),
        ])
    };
    assert_eq!(together(0.01, 0.5, Change::Higher)[0], Change::Lower);
    assert_eq!(together(0.03, 0.5, Change::Higher)[0], Change::None);
    assert_eq!(together(0.03, 0.04, Change::Higher)[..2], [Change::Lower, Change::Higher]);
    assert_eq!(
        together(0.03, 0.04, Change::Lower)[..2],
        [Change::None, Change::None],
        "one better, one worse"
    );
    assert_eq!(together(0.06, 0.01, Change::Higher)[..2], [Change::None, Change::Higher]);
    let few = Test { is_surest: true, ..test(Change::Lower, 0.03) };
    assert_eq!(Test::together([(few, true), (test(Change::None, 1.0), false)])[0], Change::Unknown);
}

#[test]
fn a_level_that_varies_is_back_within_what_it_varies() {
    let base = Base::of(vec![100.0, 80.0, 120.0, 90.0, 110.0]);
    assert!(base.is_back(&[84.0, 97.0, 104.0], 0.95, true));
    assert!(!base.is_back(&[60.0, 70.0, 65.0], 0.95, true));
    assert!(!base.is_back(&[150.0, 160.0, 170.0], 0.95, false), "of latencies less is better");
    assert!(base.is_back(&[1.0, 2.0, 3.0], 0.95, false));
    let exact = Base::of(vec![100.0; 5]);
    assert!(exact.is_back(&[96.0; 3], 0.95, true) && !exact.is_back(&[96.0, 94.0, 100.0], 0.95, true));
}
