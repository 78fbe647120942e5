//! How often which latency was met: the share of an operation's requests over time on a logarithmic axis.

use rotproof_plot::{Anchor, Axis, Color, Item, LINE_COLORS, Scene, width_of};

use crate::Unit;
use crate::chart::{AXIS, LEFT, RIGHT, TEXT, WIDTH, line, text};
use crate::page::Histogram;

const ABOVE: f64 = 30.0;
const HEIGHT: f64 = 150.0;
const BELOW: f64 = 26.0;
/// Steps of the outline in each power of ten.
const STEPS: f64 = 20.0;

/// Shares below ten to this, in percent, lie on the axis.
const LEAST_POWER: f64 = -4.0;

/// The histograms, one outline for each.
pub(crate) fn scene(histograms: &[Histogram]) -> Scene {
    let height = ABOVE + HEIGHT + BELOW;
    let bottom = ABOVE + HEIGHT;
    let mut items = vec![Item::Area { place: [0.0, 0.0, WIDTH, height], color: Color::PAPER }];
    items.push(text((LEFT, ABOVE - 11.0), "Share of requests by latency", Anchor::Start, true));
    let bounds = || histograms.iter().flat_map(|histogram| &histogram.counts).filter(|(_, count)| *count > 0);
    let least = bounds().map(|&(bound, _)| bound.max(1)).min().unwrap_or(1) as f64;
    let largest = bounds().map(|&(bound, _)| bound.max(1)).max().unwrap_or(10) as f64;
    let low = (least.log10() * STEPS).round() / STEPS - 1.0 / STEPS;
    let high = (largest.log10() * STEPS).floor() / STEPS + 2.0 / STEPS;
    let x = Axis::logarithmic("", 10f64.powf(low), 10f64.powf(high.max(low + 1.0)));
    let outlines: Vec<Vec<(f64, f64)>> = histograms.iter().map(|histogram| outline(histogram, low)).collect();
    // The tail is what matters, so a request in a thousand is seen beside half of them.
    let least_share = outlines.iter().flatten().map(|&(_, share)| share).filter(|&share| share > 0.0);
    let floor = least_share.fold(100.0, f64::min).log10().floor().clamp(LEAST_POWER, 0.0);
    let y = Axis::logarithmic("", 10f64.powf(floor - 0.3), 130.0);
    for at in named_latencies(&x) {
        let at_pixel = LEFT + x.share(at) * AXIS;
        items.push(line(vec![(at_pixel, ABOVE), (at_pixel, bottom + 4.0)], Color::FAINT, 1.0));
        items.push(text(
            (at_pixel, bottom + 6.0 + TEXT),
            &Unit::Nanoseconds.write(at),
            Anchor::Middle,
            false,
        ));
    }
    for (at, name) in y.ticks(5) {
        let at_pixel = bottom - y.share(at) * HEIGHT;
        items.push(line(vec![(LEFT, at_pixel), (WIDTH - RIGHT, at_pixel)], Color::FAINT, 1.0));
        items.push(text((LEFT - 7.0, at_pixel + 0.35 * TEXT), &format!("{name} %"), Anchor::End, false));
    }
    let mut right = WIDTH - RIGHT;
    for (number, (histogram, outline)) in histograms.iter().zip(&outlines).enumerate().rev() {
        let color = LINE_COLORS[number % LINE_COLORS.len()];
        let place = |&(at, share): &(f64, f64)| {
            (LEFT + x.share(at) * AXIS, bottom - y.share(share).clamp(0.0, 1.0) * HEIGHT)
        };
        items.push(line(outline.iter().map(place).collect(), color, 1.6));
        items.push(text((right, ABOVE - 11.0), &histogram.name, Anchor::End, false));
        right -= width_of(&histogram.name) * TEXT + 6.0;
        items.push(line(vec![(right - 18.0, ABOVE - 15.0), (right, ABOVE - 15.0)], color, 2.5));
        right -= 32.0;
    }
    items.push(line(vec![(LEFT, ABOVE), (LEFT, bottom), (WIDTH - RIGHT, bottom)], Color::INK, 1.0));
    Scene { width: WIDTH, height, items }
}

/// Powers of ten; within less than three of them also their doubles and halves.
fn named_latencies(axis: &Axis) -> Vec<f64> {
    let powers: Vec<f64> = axis.ticks(8).into_iter().map(|(at, _)| at).collect();
    if powers.len() > 2 {
        return powers;
    }
    let lowest = axis.from.log10().floor() as i32;
    let highest = axis.to.log10().ceil() as i32;
    let all = (lowest..=highest).flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10f64.powi(power)));
    all.filter(|at| (axis.from..=axis.to).contains(at)).collect()
}

/// Latency in nanoseconds and share in percent, corner after corner; `low` is the power of ten at which steps begin.
fn outline(histogram: &Histogram, low: f64) -> Vec<(f64, f64)> {
    let total = histogram.counts.iter().map(|&(_, count)| count).sum::<u64>().max(1) as f64;
    // A bound is the end of its step, rounded to a whole nanosecond.
    let step_of =
        |bound: u64| (((bound.max(1) as f64).log10() - low) * STEPS - 1.0).round().max(0.0) as usize;
    let steps = histogram.counts.iter().map(|&(bound, _)| step_of(bound)).max().map_or(0, |last| last + 1);
    let mut shares = vec![0.0; steps];
    for &(bound, count) in &histogram.counts {
        shares[step_of(bound)] += count as f64 / total * 100.0;
    }
    let at = |step: usize| 10f64.powf(low + step as f64 / STEPS);
    let mut corners = vec![(at(0), 0.0)];
    for (step, share) in shares.into_iter().enumerate() {
        corners.push((at(step), share));
        corners.push((at(step + 1), share));
    }
    corners.push((at(steps), 0.0));
    corners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_of_an_outline_hold_all_requests() {
        let histogram =
            Histogram { name: "read".into(), counts: vec![(1_000, 90), (1_100, 5), (2_000_000, 5)] };
        let outline = outline(&histogram, 2.9);
        let steps = outline[1..outline.len() - 1].chunks(2);
        assert!((steps.map(|step| step[0].1).sum::<f64>() - 100.0).abs() < 1e-9);
        assert!(outline.iter().all(|(at, share)| at.is_finite() && share.is_finite()));
        let drawn = scene(&[histogram, Histogram::default()]);
        assert!(drawn.items.len() > 10);
    }

    #[test]
    fn one_latency_is_a_picture_too() {
        let scene = scene(&[Histogram { name: "write".into(), counts: vec![(45_600, 7)] }]);
        let inside = |item: &Item| match item {
            Item::Line { points, .. } => {
                points.iter().all(|&(x, y)| (0.0..=WIDTH).contains(&x) && y.is_finite())
            }
            _ => true,
        };
        assert!(scene.items.iter().all(inside));
    }
}
