//! `rotproof model compare`: several designs, on one machine or on all.

use rotproof_model::{Path, systems};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::{Output, Paint};
use crate::table::{Align, Table, clip};

use super::args::CompareArgs;
use super::designs::{self, Machine};
use super::score::{outcome_json, score_bars};
use super::{figures, text};

/// Prints a table of scores, and draws the scores against residency.
pub fn compare(args: &CompareArgs, output: Output) -> Result<Exit, CommandError> {
    let goal = args.conditions.goal.0;
    let machines = designs::machines(&args.machine)?;
    let designs = designs::open(&args.designs, &systems::WORDS, goal)?;
    let shown = match machines.as_slice() {
        [one] => on_one(&designs, one, args, output.stdout_paint()),
        all => on_all(&designs, all, args, output.stdout_paint()),
    };
    if let Some(file) = &args.plot.plot {
        let plain = match machines.as_slice() {
            [one] => on_one(&designs, one, args, Paint::OFF),
            all => on_all(&designs, all, args, Paint::OFF),
        };
        figures::write(file, &figures::residency(&designs, &machines, goal), &plain, output)?;
    }
    if args.write.json {
        output.json(&to_json(&designs, &machines, args));
    } else {
        output.result(shown);
    }
    Ok(Exit::Pass)
}

fn conditions(args: &CompareArgs) -> String {
    let residency = text::seconds(args.conditions.residency);
    format!("residency {residency}, goal {}", text::goal(args.conditions.goal.0))
}

/// A column for each machine.
fn on_all(designs: &[Path], machines: &[Machine], args: &CompareArgs, paint: Paint) -> String {
    let mut columns = vec![("score of", Align::Left)];
    columns.extend(machines.iter().map(|machine| (machine.name.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    let goal = args.conditions.goal.0;
    for design in designs {
        let mut row = vec![clip(&design.name, 24)];
        row.extend(machines.iter().map(|machine| {
            let design = design.clone().on(machine.rates.memory, machine.rates.disk);
            let undetected = design.undetected(args.conditions.residency);
            let mark = if goal.is_met_by(undetected) { " *" } else { "  " };
            format!("{}{mark}", text::score(undetected.score()))
        }));
        table.row(row);
    }
    let heading = paint.bold(conditions(args));
    format!("{heading}\n\n{}\n\n{}", table.render(paint), paint.dim("* meets the goal."))
}

/// What there is to say of one machine.
fn on_one(designs: &[Path], machine: &Machine, args: &CompareArgs, paint: Paint) -> String {
    let goal = args.conditions.goal.0;
    let mut table = Table::new(&[
        ("design", Align::Left),
        ("score", Align::Right),
        ("range", Align::Left),
        ("undetected", Align::Right),
        ("lost", Align::Right),
        ("goal", Align::Left),
    ]);
    for design in designs {
        let design = design.clone().on(machine.rates.memory, machine.rates.disk);
        let outcome = design.outcome(args.conditions.residency);
        let bars =
            score_bars(&outcome).map(|(low, high)| format!("[{}, {}]", text::score(low), text::score(high)));
        table.row([
            clip(&design.name, 24),
            text::score(outcome.value.undetected.score()),
            bars.unwrap_or_default(),
            text::probability(outcome.value.undetected),
            text::probability(outcome.value.lost),
            if goal.is_met_by(outcome.value.undetected) { "met" } else { "missed" }.to_owned(),
        ]);
    }
    format!(
        "{}\n  memory  {}\n  disk    {}\n\n{}",
        paint.bold(clip(&format!("{}: {}", machine.name, conditions(args)), 80)),
        text::memory_rate(machine.rates.memory),
        text::disk_rate(machine.rates.disk),
        table.render(paint)
    )
}

fn to_json(designs: &[Path], machines: &[Machine], args: &CompareArgs) -> Value {
    let goal = args.conditions.goal.0;
    let of_machine = |machine: &Machine| {
        let scores: Vec<Value> = designs
            .iter()
            .map(|design| {
                let design = design.clone().on(machine.rates.memory, machine.rates.disk);
                let outcome = design.outcome(args.conditions.residency);
                let mut object = outcome_json(&outcome);
                object["design"] = json!(design.name);
                object["meets_goal"] = json!(goal.is_met_by(outcome.value.undetected));
                object
            })
            .collect();
        json!({ "machine": designs::machine_json(machine), "designs": scores })
    };
    json!({
        "residency_seconds": args.conditions.residency,
        "goal": { "score": goal.score(), "probability": goal.probability().value() },
        "machines": machines.iter().map(of_machine).collect::<Vec<_>>(),
    })
}
