//! Courses whose truth is known.

use super::*;
use crate::statistics::Range;
use rotproof_block::Time;
use rotproof_block::hash::mix;

const SECOND: u64 = 1_000_000_000;

/// A point a second with so many bytes.
fn course(levels: &[u64]) -> Vec<Point> {
    (0..)
        .zip(levels)
        .map(|(second, &bytes)| Point {
            start_ns: second * SECOND,
            end_ns: (second + 1) * SECOND,
            bytes,
            requests: bytes / 10,
            first_error: None,
            latency_sum_ns: 0.0,
            p99_ns: 1000,
        })
        .collect()
}

fn window(from: u64, until: u64) -> Window {
    Window { fault: "slow".into(), from_ns: from * SECOND, until_ns: until * SECOND }
}

#[test]
fn a_dip_to_a_half_and_a_slow_return_are_measured() {
    let mut points = course(&[100, 100, 100, 100, 100, 100, 100, 50, 50, 40, 80, 96, 100, 100]);
    points[7].p99_ns = 1300;
    let found = degradation(&points, &[window(7, 10)], 0);
    let during = found.throughput.during.expect("three intervals");
    assert_eq!((found.throughput.before.expect("three").summary.mean, during.summary.count), (100.0, 3));
    assert!((during.ratio.expect("a base") - 140.0 / 300.0).abs() < 1e-12);
    assert!((found.depth.expect("a base") - 0.6).abs() < 1e-12);
    assert_eq!(found.recovered_after_ns, Some(SECOND), "the interval of 80 came first");
    assert_eq!(found.lost_bytes, Some(50.0 + 50.0 + 60.0 + 20.0));
    assert_eq!((found.detected_by, found.detected_after_ns), (Some(DetectedBy::Latency), Some(SECOND)));
    assert_eq!(found.throughput.after.expect("three").summary.count, 3);
}

#[test]
fn a_window_that_opens_a_moment_after_an_interval_begins_has_that_interval() {
    let mut points = course(&[100, 100, 100, 100, 100, 100, 100, 50, 50, 50, 100, 100, 100]);
    points[7].p99_ns = 1300;
    let exact = degradation(&points, &[window(7, 10)], 0);
    for moment in [109_000, -109_000] {
        let shift = |time_ns: u64| time_ns.saturating_add_signed(moment);
        let Window { fault, from_ns, until_ns } = window(7, 10);
        let moved = Window { fault, from_ns: shift(from_ns), until_ns: shift(until_ns) };
        let found = degradation(&points, &[moved], 0);
        let levels = |of: &Degradation| [of.throughput.before, of.throughput.during, of.throughput.after];
        assert_eq!(levels(&found), levels(&exact));
        assert_eq!(found.detected_after_ns, Some(SECOND.saturating_add_signed(-moment)));
        assert_eq!(found.recovered_after_ns, Some(0u64.saturating_add_signed(-moment)));
    }
    let Window { fault, from_ns, until_ns } = window(7, 10);
    let late = Window { fault, from_ns: from_ns + SECOND / 20, until_ns };
    assert_eq!(degradation(&points, &[late], 0).throughput.during.expect("two").summary.count, 2);
}

#[test]
fn an_error_is_noticed_at_its_moment_and_a_stop_without_end_is_never_recovered_from() {
    let mut points = course(&[100, 100, 100, 100, 100, 100, 100, 0, 0, 0]);
    points[7].first_error = Some(Time(7 * SECOND + 7));
    let found = degradation(&points, &[window(7, 10)], 0);
    assert_eq!((found.detected_by, found.detected_after_ns), (Some(DetectedBy::Error), Some(7)));
    assert_eq!((found.recovered_after_ns, found.depth, found.lost_bytes), (None, Some(1.0), Some(300.0)));
    let during = found.throughput.during.expect("three");
    assert_eq!((during.ratio, during.ratio_confidence), (Some(0.0), Some(Range { low: 0.0, high: 0.0 })));
    assert_eq!((found.effect, found.recovery), (Effect::Degraded, Some(Recovery::NotSeen)));
    points[7].first_error = None;
    let found = degradation(&points, &[window(7, 10)], 0);
    assert_eq!((found.detected_by, found.detected_after_ns), (Some(DetectedBy::Stall), Some(SECOND)));
}

#[test]
fn within_the_window_of_another_fault_levels_are_those_beside_it() {
    let points = course(&[100, 100, 100, 50, 50, 50, 50, 50, 50, 50, 40, 40, 40, 50, 50, 50, 100, 100, 100]);
    let windows = [window(3, 16), window(10, 13)];
    let found = degradation(&points, &windows, 1);
    let [before, during, after] = [found.throughput.before, found.throughput.during, found.throughput.after]
        .map(|level| level.expect("two"));
    assert_eq!((before.summary.mean, during.ratio, after.ratio), (50.0, Some(0.8), Some(1.0)));
    assert_eq!((found.recovered_after_ns, found.lost_bytes), (Some(0), Some(30.0)));
    // Two that begin and end together are told apart by nothing.
    let found = degradation(&points, &[window(3, 16), window(3, 16)], 1);
    assert_eq!(found.throughput.before.expect("two").summary.mean, 100.0);
    assert_eq!(found.throughput.after.expect("two").summary.mean, 100.0);
}

#[test]
fn errors_that_came_before_too_are_no_sign() {
    let mut points = course(&[100, 100, 100, 100, 100]);
    for (second, point) in (0..).zip(&mut points) {
        point.first_error = Some(Time(second * SECOND + 5));
    }
    assert_eq!(degradation(&points, &[window(2, 4)], 0).detected_by, None);
}

#[test]
fn other_faults_do_not_count_as_the_level_before_or_after() {
    let points = course(&[100, 20, 100, 50, 100, 100, 30, 100]);
    let windows = [window(1, 2), window(3, 4), window(6, 7)];
    let found = degradation(&points, &windows, 1);
    assert_eq!(found.throughput.before.expect("two").summary.count, 2);
    assert_eq!(found.throughput.during.expect("one").ratio, Some(0.5));
    let after = found.throughput.after.expect("some").summary;
    assert_eq!((after.count, after.mean), (3, 100.0));
    assert_eq!(degradation(&points, &[window(0, 8)], 0).throughput.before, None, "there is nothing before");
    assert_eq!(degradation(&[], &[window(0, 8)], 0).throughput.during, None);
}

/// Between 0 and 1, equal for equal seeds.
fn uniform(seed: u64, number: u64) -> f64 {
    (mix(seed, 7, number) >> 11) as f64 / (1u64 << 53) as f64
}

/// Intervals of a second with about so many bytes and such latencies, all of which vary by themselves.
fn noisy(seed: u64, length: u64, bytes: impl Fn(u64) -> f64, latency_ns: impl Fn(u64) -> f64) -> Vec<Point> {
    (0..length)
        .map(|second| {
            let vary = |number: u64, by: f64| 1.0 + by * (2.0 * uniform(seed, second * 8 + number) - 1.0);
            let requests = (bytes(second) * vary(0, 0.05) / 4096.0) as u64;
            Point {
                start_ns: second * SECOND,
                end_ns: (second + 1) * SECOND,
                bytes: requests * 4096,
                requests,
                first_error: None,
                latency_sum_ns: requests as f64 * latency_ns(second) * vary(1, 0.05),
                p99_ns: (latency_ns(second) * 3.0 * vary(2, 0.2)) as u64,
            }
        })
        .collect()
}

/// A load at a rate: after a stall it does what it owes. The first fault leaves an interval in which it catches up, and
/// that lies before the second, which does nothing.
#[test]
fn a_load_at_a_rate_that_catches_up_before_a_window_is_not_told_to_be_worse_in_it() {
    let points = course(&[100, 100, 100, 0, 200, 100, 100, 100, 100, 100, 100, 100]);
    let windows = [window(3, 4), window(7, 10)];
    let found = degradation(&points, &windows, 1);
    let before = found.throughput.before.expect("steady ones").summary;
    assert_eq!((before.mean, before.count), (100.0, 5), "{before:?}");
    assert_eq!((found.effect, found.throughput.change), (Effect::None, Change::None));
    assert_eq!((found.recovery, found.depth, found.lost_bytes), (None, None, None));
    assert_eq!(found.throughput.during.and_then(|during| during.ratio), Some(1.0));
    // The window after which it caught up: nothing is lost but time.
    let points = course(&[100, 100, 100, 100, 100, 100, 100, 0, 0, 0, 400, 100, 100, 100, 100]);
    let found = degradation(&points, &[window(7, 10)], 0);
    assert_eq!((found.effect, found.recovery), (Effect::Degraded, Some(Recovery::Recovered)));
    assert_eq!((found.recovered_after_ns, found.lost_bytes), (Some(0), Some(0.0)));
    let after = found.throughput.after.expect("steady ones");
    assert_eq!((after.summary.mean, after.ratio), (100.0, Some(1.0)));
}

#[test]
fn a_window_in_which_nothing_happens_has_no_measurable_effect_in_nearly_all_of_many_loads() {
    const LOADS: u64 = 2_000;
    let mut alarms = 0;
    for seed in 0..LOADS {
        let points = noisy(seed, 30, |_| 1e8, |_| 2e5);
        let found = degradation(&points, &[window(10, 15)], 0);
        let is_alarm = found.effect != Effect::None;
        alarms += u64::from(is_alarm);
        if !is_alarm {
            assert_eq!((found.recovery, found.recovered_after_ns, found.lost_bytes), (None, None, None));
            assert_eq!((found.depth, found.detected_by), (None, None), "{found:?}");
        }
    }
    // One of twenty, and three standard errors.
    assert!(alarms as f64 <= LOADS as f64 * 0.05 + 3.0 * (LOADS as f64 * 0.05 * 0.95).sqrt(), "{alarms}");
}

#[test]
fn true_drops_are_measured_in_noise_and_their_end_is_seen() {
    for (left, length, from, until) in
        [(0.95, 300, 100, 200), (0.8, 30, 10, 15), (0.5, 30, 10, 15), (0.5, 24, 10, 12)]
    {
        let mut found_back = 0;
        for seed in 0..100 {
            let slow = |second| if (from..until).contains(&second) { left } else { 1.0 };
            let points = noisy(seed, length, |second| 1e8 * slow(second), |second| 2e5 / slow(second));
            let found = degradation(&points, &[window(from, until)], 0);
            assert_eq!(found.effect, Effect::Degraded, "{left}, {seed}: {found:?}");
            assert_eq!(found.throughput.change, Change::Lower, "{left}, {seed}: {found:?}");
            let ratio = found.throughput.during.and_then(|during| during.ratio).expect("a level");
            assert!((ratio - left).abs() < 0.04, "{left}, {seed}: {ratio}");
            assert_ne!(found.recovery, Some(Recovery::Never), "{left}, {seed}");
            found_back += u32::from(found.recovered_after_ns.is_some_and(|after| after <= 2 * SECOND));
            let lost = found.lost_bytes.expect("it fell") / (1e8 * (1.0 - left) * (until - from) as f64);
            assert!(left > 0.9 || (0.7..1.3).contains(&lost), "{left}, {seed}: {lost}");
        }
        assert!(found_back >= 95, "{left}: {found_back}");
    }
}

#[test]
fn a_load_at_a_rate_whose_latency_alone_suffers_is_degraded() {
    let mut found_back = 0;
    for seed in 0..100 {
        let is_slow = |second: u64| (10..15).contains(&second);
        let points = noisy(seed, 30, |_| 1e8, |second| if is_slow(second) { 5e5 } else { 2e5 });
        let found = degradation(&points, &[window(10, 15)], 0);
        assert_eq!(found.effect, Effect::Degraded);
        assert_eq!(found.latency_mean_ns.change, Change::Higher);
        assert_eq!(found.latency_p99_ns.change, Change::Higher);
        let ratio = found.latency_mean_ns.during.and_then(|during| during.ratio).expect("a level");
        assert!((2.3..2.7).contains(&ratio), "{ratio}");
        assert_ne!(found.recovery, Some(Recovery::Never));
        found_back += u32::from(found.recovered_after_ns.is_some_and(|after| after <= 2 * SECOND));
        assert_eq!(found.detected_by, Some(DetectedBy::Latency));
        if found.throughput.change == Change::None {
            assert_eq!((found.lost_bytes, found.depth), (None, None));
        }
    }
    assert!(found_back >= 95, "{found_back}");
    // Only the slowest of the requests are slower.
    let mut points = noisy(1, 30, |_| 1e8, |_| 2e5);
    points[10..15].iter_mut().for_each(|point| point.p99_ns *= 8);
    let found = degradation(&points, &[window(10, 15)], 0);
    assert_eq!((found.effect, found.latency_mean_ns.change), (Effect::Degraded, Change::None));
    assert_eq!(found.latency_p99_ns.change, Change::Higher);
}

#[test]
fn never_is_told_only_of_what_is_seen_to_be_worse_still() {
    // Worse to the end.
    let points = course(&[100, 101, 99, 100, 101, 100, 99, 50, 51, 49, 60, 61, 59, 60, 60]);
    let found = degradation(&points, &[window(7, 10)], 0);
    assert_eq!((found.recovery, found.recovered_after_ns), (Some(Recovery::Never), None));
    // One interval after, which may be anything.
    let points = course(&[100, 110, 90, 105, 95, 20, 21, 19, 84]);
    let found = degradation(&points, &[window(5, 8)], 0);
    assert_ne!(found.recovery, Some(Recovery::Never), "{found:?}");
    // Up and down as before, though hardly three in a row reach 95% of the mean.
    let points = course(&[100, 80, 120, 90, 110, 85, 115, 30, 35, 25, 100, 85, 120, 90, 110, 80, 115]);
    let found = degradation(&points, &[window(7, 10)], 0);
    assert_eq!((found.effect, found.recovery), (Effect::Degraded, Some(Recovery::Recovered)));
}

#[test]
fn errors_that_come_at_once_are_no_slower_load() {
    let mut points = noisy(3, 30, |second| if second < 15 { 1e8 } else { 1.5e8 }, |_| 2e5);
    points.truncate(25);
    let found = degradation(&points, &[window(15, 25)], 0);
    assert_eq!((found.effect, found.recovery, found.lost_bytes), (Effect::Improved, None, None));
}
