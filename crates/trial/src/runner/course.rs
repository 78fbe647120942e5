//! What the intervals of a run say as a whole: what each fault took away from the load, and when it became steady.

use std::path::Path;

use rotproof_fault::{Persistence, Plan, Rule, Schedule};
use rotproof_record::statistics::{
    Degradation, SteadyState, Window, WindowFigures, degradation, series, steady_state, variation,
    window_figures,
};
use rotproof_record::{Mark, MarkKind, RecordSpec, RunFolder};

use rotproof_block::Result;

/// What was measured.
#[derive(Default)]
pub(super) struct Course {
    pub(super) degradation: Vec<Degradation>,
    pub(super) windows: Vec<WindowFigures>,
    pub(super) steady_state: Option<SteadyState>,
    pub(super) variation: Option<f64>,
}

/// Faults that are measured one by one; a plan of more is told by its models.
const FAULTS_MAX: usize = 100;

/// Reads the intervals and marks of the run in `folder`, and measures.
pub(super) fn measure(folder: &Path, spec: &RecordSpec, plan: &Plan) -> Result<Course> {
    let run = RunFolder::open(folder)?;
    let mut intervals = run.intervals()?;
    let mut points = series(&intervals);
    if points.is_empty() {
        // Of a program only what it does to its device is known.
        intervals = run.device_intervals()?;
        points = series(&intervals);
    }
    let windows = windows(&run.marks()?, plan);
    let degradation = (0..windows.len().min(FAULTS_MAX))
        .map(|index| degradation(&points, &windows, index))
        .filter(|found| found.throughput.before.is_some() && found.throughput.during.is_some())
        .collect();
    let variation = variation(&points);
    let measured = windows.len().min(FAULTS_MAX);
    Ok(Course {
        degradation,
        windows: (0..measured).map(|index| window_figures(&intervals, &points, &windows, index)).collect(),
        variation,
        steady_state: spec.steady.and_then(|steady| steady_state(&points, &steady)),
    })
}

/// When each fault that hit the load was at work, in the order of the plan: a rule with a schedule in time while that was
/// open, any other from its first hit to its last, or to the end of the load if what it hits stays bad.
fn windows(marks: &[Mark], plan: &Plan) -> Vec<Window> {
    let run = marks.iter().find(|mark| mark.kind == MarkKind::Phase && &*mark.name == "run");
    let Some((run_from, run_until)) = run.and_then(|run| Some((run.from_ns, run.until_ns?))) else {
        return Vec::new();
    };
    let mut windows: Vec<Window> = Vec::new();
    for (index, rule) in plan.rules.iter().enumerate() {
        let model = plan.model_of(index);
        let name = model.map_or_else(|| rule.name_or_default(index).into_owned(), |model| model.name.clone());
        if windows.iter().any(|known| known.fault == name) {
            continue;
        }
        let name = name.as_str();
        let of_it = |kind: MarkKind, text: Option<&str>| {
            let fits = |mark: &&Mark| {
                mark.kind == kind && &*mark.name == name && text.is_none_or(|text| &*mark.text == text)
            };
            marks.iter().find(fits)
        };
        let Some(hits) = of_it(MarkKind::Injections, Some("run")) else { continue };
        let is_timed = model.is_none() && rule.schedule.window().is_some();
        let span = of_it(MarkKind::Window, None)
            .filter(|_| is_timed)
            .and_then(|mark| Some((mark.from_ns, mark.until_ns?)));
        let stays =
            |rule: &Rule| rule.persistence != Persistence::Transient || rule.schedule == Schedule::All;
        let of_model = model.map_or(std::slice::from_ref(rule), |model| plan.rules_of(model));
        let until =
            if of_model.iter().any(stays) { run_until } else { hits.until_ns.unwrap_or(hits.from_ns) };
        let (from_ns, until_ns) = span.unwrap_or((hits.from_ns, until));
        let (from_ns, until_ns) = (from_ns.max(run_from), until_ns.min(run_until));
        if from_ns < until_ns {
            windows.push(Window { fault: hits.name.to_string(), from_ns, until_ns });
        }
    }
    windows
}
