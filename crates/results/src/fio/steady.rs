//! fio's `steadystate`: whether a job ended because it was steady, and the window that showed it.
//!
//! Keys and units are those that fio 3.33 prints for a job with `steadystate`: bandwidth in bytes a second, the slope for
//! each second. A job has one criterion there; here a load has two, so the one that says more is told.

use rotproof_record::Interval;
use rotproof_record::statistics::{Point, SteadyEnd, SteadyMeasure, SteadySpec, SteadyState, series};
use serde_json::{Value, json};

/// The section, of a load that was to end when it is steady: as steady as `spec` says, and how it ended.
pub(super) fn section(spec: &SteadySpec, end: &SteadyEnd, intervals: &[Interval]) -> Value {
    let points = window(&series(intervals), spec, end);
    let iops: Vec<f64> = points.iter().map(Point::requests_per_second).collect();
    let bandwidth: Vec<f64> = points.iter().map(Point::bytes_per_second).collect();
    let (word, values) = match spec.of {
        SteadyMeasure::Throughput => ("bw", bandwidth.clone()),
        SteadyMeasure::Iops => ("iops", iops.clone()),
        SteadyMeasure::Latency => ("lat", points.iter().map(Point::latency_mean_ns).collect()),
    };
    let average = mean(&values);
    let deviation = values.iter().map(|value| (value - average).abs()).fold(0.0, f64::max);
    let state = end.state.unwrap_or(SteadyState { since_ns: None, mean: 0.0, range: 0.0, slope: 0.0 });
    // From the middle of the first interval to that of the last.
    let seconds = points.iter().skip(1).map(Point::seconds).sum::<f64>().max(f64::MIN_POSITIVE);
    let slope = state.slope * state.mean / seconds;
    let (asked, criterion) = if spec.range.0 < 1.0 {
        let share = if average > 0.0 { deviation / average } else { 0.0 };
        (format!("{word}:{:.6}%", spec.range.0 / 2.0 * 100.0), share)
    } else {
        (format!("{word}_slope:{:.6}%", spec.slope.0 / seconds * 100.0), state.slope / seconds)
    };
    let whole = |values: &[f64]| -> Vec<u64> { values.iter().map(|value| value.round() as u64).collect() };
    json!({
        "ss": asked,
        "duration": spec.window.0.as_secs(),
        "attained": u8::from(end.attained),
        "criterion": format!("{:.6}%", criterion * 100.0),
        "max_deviation": deviation,
        "slope": slope,
        "data": {
            "bw_mean": mean(&bandwidth).round() as u64,
            "iops_mean": mean(&iops).round() as u64,
            "iops": whole(&iops),
            "bw": whole(&bandwidth),
        },
    })
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The window that showed it, or the last one.
fn window(points: &[Point], spec: &SteadySpec, end: &SteadyEnd) -> Vec<Point> {
    let last = points.last().map_or(0, |point| point.end_ns);
    let window_ns = u64::try_from(spec.window.0.as_nanos()).unwrap_or(u64::MAX);
    let since = end.state.and_then(|state| state.since_ns).unwrap_or(last.saturating_sub(window_ns));
    let until = end.at_ns.unwrap_or(last);
    points.iter().filter(|point| point.start_ns >= since && point.end_ns <= until).copied().collect()
}

#[cfg(test)]
mod tests {
    use rotproof_block::Time;
    use rotproof_record::Latencies;

    use super::*;

    #[test]
    fn the_window_that_showed_it_is_told_as_fio_tells_it() {
        const SECOND: u64 = 1_000_000_000;
        let interval = |second: u64, requests: u64| Interval {
            phase: "run".into(),
            start: Time(second * SECOND),
            length_ns: SECOND,
            worker: None,
            operation: "read".into(),
            requests,
            bytes: requests * 4096,
            errors: 0,
            retries: 0,
            first_error: None,
            latency_ns: Latencies::default(),
            histogram: None,
        };
        let intervals: Vec<Interval> = [900, 494, 500, 506, 500, 500]
            .into_iter()
            .zip(0..)
            .map(|(requests, n)| interval(n, requests))
            .collect();
        let spec = |json: Value| serde_json::from_value::<SteadySpec>(json).expect("a spec");
        let wanted = spec(json!({ "window": "5s", "range": "20%", "slope": "10%", "of": "iops" }));
        let end = |json: Value| serde_json::from_value::<SteadyEnd>(json).expect("an end");
        let steady = end(
            json!({ "attained": true, "at_ns": 6 * SECOND, "since_ns": SECOND, "mean": 500.0, "range": 0.024,
                                 "slope": 0.008 }),
        );
        let found = section(&wanted, &steady, &intervals);
        assert_eq!((&found["ss"], &found["attained"]), (&json!("iops:10.000000%"), &json!(1)));
        assert_eq!((&found["criterion"], &found["max_deviation"]), (&json!("1.200000%"), &json!(6.0)));
        assert_eq!((&found["duration"], &found["slope"]), (&json!(5), &json!(1.0)));
        assert_eq!(found["data"]["iops"], json!([494, 500, 506, 500, 500]));
        assert_eq!(found["data"]["bw_mean"], json!(500 * 4096));
        let never = end(json!({ "attained": false }));
        assert_eq!(never.state, None);
        let found = section(&wanted, &never, &intervals);
        assert_eq!((&found["attained"], found["data"]["bw"].as_array().map(Vec::len)), (&json!(0), Some(5)));
        let wanted = spec(json!({ "range": "100%", "slope": "4%", "window": "5s" }));
        assert_eq!(section(&wanted, &never, &intervals)["ss"], json!("bw_slope:1.000000%"));
    }
}
