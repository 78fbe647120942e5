//! `rotproof model switch-time`: how long the protection before the switch is enough.

use rotproof_model::{Bound, Goal, Path};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::{Output, Paint};
use crate::table::{Align, Table, clip};

use super::args::SwitchTimeArgs;
use super::designs::{self, Machine};
use super::{figures, text};

/// Prints a table of times, and draws them against the memory index.
pub fn switch_time(args: &SwitchTimeArgs, output: Output) -> Result<Exit, CommandError> {
    let goal = args.goal.0;
    let machines = designs::machines(&args.machine)?;
    let designs = designs::open(&args.designs, &["z2-static"], goal)?;
    if let Some(file) = &args.plot.plot {
        let disk = designs::machine(&args.machine)?.rates.disk;
        let figure = figures::switch_times(&designs, disk, goal);
        figures::write(file, &figure, &render(&designs, &machines, goal, Paint::OFF), output)?;
    }
    if args.write.json {
        output.json(&to_json(&designs, &machines, goal));
    } else {
        output.result(render(&designs, &machines, goal, output.stdout_paint()));
    }
    Ok(Exit::Pass)
}

/// `None` where even a block that is used at once misses the goal, infinity where none ever does.
fn time(design: &Path, machine: &Machine, goal: Goal, bound: Bound) -> Option<f64> {
    let design = design.clone().on(machine.rates.memory, machine.rates.disk);
    let seconds = rotproof_model::switch_time(&design, goal, bound);
    (seconds > 0.0).then_some(seconds)
}

fn show(seconds: Option<f64>) -> String {
    match seconds {
        None => "never".into(),
        Some(seconds) if seconds.is_infinite() => "always".into(),
        Some(seconds) => text::seconds_down(seconds),
    }
}

fn render(designs: &[Path], machines: &[Machine], goal: Goal, paint: Paint) -> String {
    let mut columns = vec![("enough for", Align::Left)];
    columns.extend(machines.iter().map(|machine| (machine.name.as_str(), Align::Right)));
    let has_bars =
        machines.iter().any(|machine| !(machine.rates.memory.is_exact() && machine.rates.disk.is_exact()));
    if has_bars {
        columns.push(("from", Align::Right));
        columns.push(("to", Align::Right));
    }
    let mut table = Table::new(&columns);
    for design in designs {
        let mut row = vec![clip(&design.name, 24)];
        for machine in machines {
            row.push(show(time(design, machine, goal, Bound::Value)));
            if has_bars {
                row.push(show(time(design, machine, goal, Bound::High)));
                row.push(show(time(design, machine, goal, Bound::Low)));
            }
        }
        table.row(row);
    }
    let heading = paint.bold(format!("Residency up to which the goal is met: {}", text::goal(goal)));
    let note = paint.dim("never: missed at once; always: met for a thousand years.");
    format!("{heading}\n\n{}\n\n{note}", table.render(paint))
}

fn to_json(designs: &[Path], machines: &[Machine], goal: Goal) -> Value {
    let times: Vec<Value> = designs
        .iter()
        .flat_map(|design| machines.iter().map(move |machine| (design, machine)))
        .map(|(design, machine)| {
            let seconds = |bound| {
                let found = time(design, machine, goal, bound);
                json!({ "seconds": found.filter(|seconds| seconds.is_finite()), "reach": match found {
                    None => "never",
                    Some(seconds) if seconds.is_infinite() => "always",
                    Some(_) => "limited",
                }})
            };
            json!({
                "design": design.name,
                "machine": designs::machine_json(machine),
                "low": seconds(Bound::High),
                "value": seconds(Bound::Value),
                "high": seconds(Bound::Low),
            })
        })
        .collect();
    json!({ "goal": { "score": goal.score(), "probability": goal.probability().value() }, "times": times })
}
