//! What goes beside the intervals of a run: when the faults of its plan were enabled and hit.

use std::collections::BTreeMap;
use std::time::Duration;

use rotproof_block::{Phase, Result, Time};
use rotproof_fault::{Injections as _, Ledger, Plan, Rule};
use rotproof_record::{Mark, MarkKind, Recording};

/// Marks the windows and the hits of all faults; those of a model as of one.
///
/// A window is the span in which the rule could hit by time: for a rule with a schedule in time what that says, counted
/// from `began`, the first request of the load; for any other the phases in which it is enabled. Both end with the phase.
/// Fails where the ledger cannot be read.
pub(super) fn mark_faults(
    recording: &Recording,
    plan: &Plan,
    ledger: &Ledger,
    began: Option<Time>,
) -> Result<()> {
    let phases: Vec<Mark> =
        recording.marks().into_iter().filter(|mark| mark.kind == MarkKind::Phase).collect();
    let mut marks: BTreeMap<(usize, MarkKind, u64), Mark> = BTreeMap::new();
    let mut add = |rule: usize, number: u64, mark: Mark| {
        // A model counts as its first rule.
        let first =
            plan.models.iter().find(|model| model.rules.contains(&rule)).map_or(rule, |m| m.rules.start);
        match marks.get_mut(&(first, mark.kind, number)) {
            Some(known) => {
                known.from_ns = known.from_ns.min(mark.from_ns);
                known.until_ns = known.until_ns.max(mark.until_ns);
                known.count = known.count.zip(mark.count).map(|(a, b)| a + b);
            }
            None => {
                marks.insert((first, mark.kind, number), mark);
            }
        }
    };
    let name_of = |rule: usize| match plan.model_of(rule) {
        Some(model) => model.name.clone(),
        None => plan.rules.get(rule).map_or_else(String::new, |own| own.name_or_default(rule).into_owned()),
    };
    for (index, rule) in plan.rules.iter().enumerate() {
        for (number, (from, until)) in (0..).zip(windows(rule, &phases, began)) {
            let text = rule.to_string().into();
            let mark = Mark { text, ..Mark::span(MarkKind::Window, &name_of(index), from, until) };
            add(index, number, mark);
        }
    }
    let mut hits: BTreeMap<(usize, Phase), (u64, u64, u64)> = BTreeMap::new();
    ledger.each(&mut |record| {
        if record.phase != Phase::Setup {
            let at = record.time_ns;
            let (from, until, count) =
                hits.entry((record.rule as usize, record.phase)).or_insert((at, at, 0));
            (*from, *until, *count) = ((*from).min(at), (*until).max(at), *count + 1);
        }
    })?;
    for ((rule, phase), (from, until, count)) in hits {
        let mark = Mark::span(MarkKind::Injections, &name_of(rule), Time(from), Time(until));
        add(rule, phase as u64, Mark { count: Some(count), text: phase.word().into(), ..mark });
    }
    marks.into_values().for_each(|mark| recording.mark(mark));
    Ok(())
}

fn windows(rule: &Rule, phases: &[Mark], began: Option<Time>) -> Vec<(Time, Time)> {
    let span_of = |name: &str| {
        let phase = phases.iter().find(|phase| &*phase.name == name)?;
        Some((Time(phase.from_ns), Time(phase.until_ns.unwrap_or(phase.from_ns))))
    };
    let enabled = rule.during.iter().filter_map(|phase| span_of(Phase::from(*phase).word()));
    let Some((at, lasts)) = rule.schedule.window() else { return enabled.collect() };
    let Some(began) = began else { return Vec::new() };
    let from = began.after(at.0);
    let until = from.after(lasts.map_or(Duration::MAX, |lasts| lasts.0));
    enabled
        .map(|(start, end)| (from.max(start), until.min(end)))
        .filter(|(from, until)| from < until)
        .collect()
}
