//! The picture of a fleet: what it has lost by when.

use rotproof_model::SECONDS_PER_YEAR;
use rotproof_model::fleet::{COURSE_POINTS, Estimate, Fleet, Outcome, closed_form};
use rotproof_plot::{Axis, Color, Curve, Figure, LINE_COLORS, Legend, Panel};

use super::text;

/// Points of a closed form, each of which is a Markov chain.
const CLOSED_POINTS: usize = 25;

/// Powers of ten below the largest number that are shown.
const DECADES: f64 = 6.0;

const CLOSED: Color = Color::INK;

/// Groups that lost something against the years, with the error of the simulation and the closed form.
pub fn figure(fleet: &Fleet, outcome: &Outcome) -> Figure {
    let kinds = [
        ("lose too many devices", &outcome.lost_devices_course, LINE_COLORS[0]),
        ("lose sectors", &outcome.lost_sectors_course, LINE_COLORS[1]),
    ];
    let closed: [Vec<(f64, f64)>; 2] = closed_forms(fleet);
    let values = kinds.iter().flat_map(|(_, course, _)| course.iter().map(|estimate| estimate.value));
    let values: Vec<f64> = values.chain(closed.iter().flatten().map(|point| point.1)).collect();
    let highest = values.iter().copied().fold(0.0, f64::max);
    let highest = if highest > 0.0 { highest } else { 1.0 };
    let lowest = values.iter().copied().filter(|value| *value > 0.0).fold(highest, f64::min);
    let to = 10f64.powf(highest.log10().ceil());
    let to = if to < highest * 1.05 { to * 10.0 } else { to };
    let from = 10f64.powf(lowest.log10().floor().clamp(to.log10() - DECADES, to.log10() - 1.0));
    let mut curves = Vec::new();
    let mut legend = Vec::new();
    for (name, course, color) in kinds {
        let line = |bound: f64, width: f64| Curve {
            points: points(fleet, course, bound),
            color,
            width,
            dashed: false,
            label: None,
        };
        curves.extend([line(0.0, 2.4), line(-2.0, 0.8), line(2.0, 0.8)]);
        legend.push((color, false, format!("groups that {name}")));
    }
    for points in closed.into_iter().filter(|points| !points.is_empty()) {
        curves.push(Curve { points, color: CLOSED, width: 1.4, dashed: true, label: None });
        if legend.len() == kinds.len() {
            legend.push((CLOSED, true, "closed form".to_owned()));
        }
    }
    Figure {
        title: "What a fleet loses over the years".into(),
        subtitle: format!(
            "{} groups of {}+{}, scrubbed every {}, rebuilt in {}; thin lines: 95% of the simulation",
            text::number(fleet.groups as f64),
            fleet.redundancy.data,
            fleet.redundancy.parity,
            text::seconds(fleet.scrub_years * SECONDS_PER_YEAR),
            text::seconds(fleet.rebuild_years * SECONDS_PER_YEAR),
        ),
        panels: vec![Panel {
            title: String::new(),
            x: Axis::linear("years", 0.0, fleet.years),
            y: Axis::logarithmic("groups, expected", from, to),
            tiles: Vec::new(),
            curves,
        }],
        columns: 1,
        legend: Legend::Lines(legend),
    }
}

/// A course as points, so many standard errors away from its value.
fn points(fleet: &Fleet, course: &[Estimate], errors: f64) -> Vec<(f64, f64)> {
    let point = |(number, estimate): (f64, &Estimate)| {
        let value = estimate.value + errors * estimate.standard_error;
        (fleet.years * number / COURSE_POINTS as f64, if value > 0.0 { value } else { f64::NAN })
    };
    (1..).map(f64::from).zip(course).map(point).collect()
}

/// Of lost devices and lost sectors, where there is one.
fn closed_forms(fleet: &Fleet) -> [Vec<(f64, f64)>; 2] {
    let mut courses = [Vec::new(), Vec::new()];
    for number in 1..=CLOSED_POINTS {
        let years = fleet.years * number as f64 / CLOSED_POINTS as f64;
        let closed = closed_form::of(&Fleet { years, ..fleet.clone() });
        for (course, value) in courses.iter_mut().zip([closed.lost_devices, closed.lost_sectors]) {
            course.extend(value.filter(|value| *value > 0.0).map(|value| (years, value)));
        }
    }
    courses
}
