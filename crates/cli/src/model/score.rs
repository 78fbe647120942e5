//! `rotproof model score`: one design, stage by stage.

use rotproof_model::{Checksum, Device, Fate, Outcome, Path, Probability, Stage, Time};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::{Output, Paint};
use crate::table::{Align, Table, clip};

use super::args::ScoreArgs;
use super::designs::{self, Machine};
use super::text;

/// Prints the score, what it is made of, and whether the goal is met.
pub fn score(args: &ScoreArgs, output: Output) -> Result<Exit, CommandError> {
    let goal = args.conditions.goal.0;
    let machine = designs::machine(&args.machine)?;
    let design = designs::open(std::slice::from_ref(&args.design), &[], goal)?.remove(0);
    let design = design.on(machine.rates.memory, machine.rates.disk);
    if args.write.json {
        output.json(&to_json(&design, &machine, args));
    } else {
        output.result(render(&design, &machine, args, output.stdout_paint()));
    }
    Ok(Exit::Pass)
}

fn render(design: &Path, machine: &Machine, args: &ScoreArgs, paint: Paint) -> String {
    let (residency, goal) = (args.conditions.residency, args.conditions.goal.0);
    let outcome = design.outcome(residency);
    let undetected = outcome.value.undetected;
    let mut lines = vec![
        paint.bold(clip(&format!("{} on {}", design.name, machine.name), 80)).to_string(),
        format!("  memory     {}", text::memory_rate(machine.rates.memory)),
        format!("  disk       {}", text::disk_rate(machine.rates.disk)),
        format!("  residency  {}{}", text::seconds(residency), mode(design, &outcome)),
        String::new(),
    ];
    let bars =
        score_bars(&outcome).map(|(low, high)| format!("  [{}, {}]", text::score(low), text::score(high)));
    lines.push(format!(
        "  score      {}{}",
        paint.bold(text::score(undetected.score())),
        bars.unwrap_or_default()
    ));
    let verdict = if goal.is_met_by(undetected) {
        paint.good("met").to_string()
    } else {
        paint.bad("missed").to_string()
    };
    lines.push(format!("  goal       {}: {verdict}", text::goal(goal)));
    lines.push(String::new());
    let mut table = Table::new(&[
        ("stage", Align::Left),
        ("time", Align::Right),
        ("undetected", Align::Right),
        ("lost", Align::Right),
        ("corrupted", Align::Right),
        ("protection", Align::Left),
    ]);
    for part in design.by_stage(residency) {
        let Fate { undetected, lost, corrupted } = part.fate;
        let [undetected, lost, corrupted] = [undetected, lost, corrupted].map(text::probability);
        table.row([
            clip(&part.stage.name, 18),
            time(part.stage, residency),
            undetected,
            lost,
            corrupted,
            protection(part.stage, outcome.is_switched),
        ]);
    }
    let Fate { undetected, lost, corrupted } = outcome.value;
    let [undetected, lost, corrupted] = [undetected, lost, corrupted].map(text::probability);
    table.row(["together".to_owned(), String::new(), undetected, lost, corrupted, String::new()]);
    lines.push(table.render(paint));
    lines.push(String::new());
    lines.push(
        paint.dim("Probabilities of one block of 4 KiB; lost: noticed, but not repairable.").to_string(),
    );
    lines.join("\n")
}

fn mode(design: &Path, outcome: &Outcome) -> &'static str {
    match (design.switch, outcome.is_switched) {
        (None, _) => "",
        (Some(_), true) => ", after the switch",
        (Some(_), false) => ", before the switch",
    }
}

/// The scores at the ends of the error bars, if there are any.
pub fn score_bars(outcome: &Outcome) -> Option<(f64, f64)> {
    let ends = [outcome.high, outcome.low].map(|fate| fate.undetected.score());
    (ends[0] < ends[1]).then_some((ends[0], ends[1]))
}

fn time(stage: &Stage, residency: f64) -> String {
    let seconds = match stage.time {
        Time::Seconds(seconds) => seconds,
        Time::Residency => residency,
    };
    if seconds == 0.0 && matches!(stage.device, Device::Disk(_)) {
        return String::new();
    }
    text::seconds(seconds)
}

fn protection(stage: &Stage, is_switched: bool) -> String {
    let names = stage.protection.checksums(is_switched).iter().map(|Checksum { name, .. }| name.as_str());
    let names: Vec<_> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(" and ") }
}

fn to_json(design: &Path, machine: &Machine, args: &ScoreArgs) -> Value {
    let goal = args.conditions.goal.0;
    let outcome = design.outcome(args.conditions.residency);
    let stages: Vec<Value> = design
        .by_stage(args.conditions.residency)
        .into_iter()
        .map(|part| {
            let checksums = part.stage.protection.checksums(outcome.is_switched);
            json!({
                "name": part.stage.name,
                "checksums": checksums.iter().map(|checksum| checksum.name.as_str()).collect::<Vec<_>>(),
                "undetected": part.fate.undetected.value(),
                "lost": part.fate.lost.value(),
                "corrupted": part.fate.corrupted.value(),
            })
        })
        .collect();
    let mut object = outcome_json(&outcome);
    object["design"] = json!(design.name);
    object["machine"] = designs::machine_json(machine);
    object["residency_seconds"] = json!(args.conditions.residency);
    object["goal"] = json!({ "score": goal.score(), "probability": goal.probability().value() });
    object["meets_goal"] = json!(goal.is_met_by(outcome.value.undetected));
    object["stages"] = json!(stages);
    object
}

/// Scores and probabilities with their ranges. A score is `null` where nothing can go undetected.
pub fn outcome_json(outcome: &Outcome) -> Value {
    let range = |pick: fn(&Fate) -> Probability| {
        let [low, value, high] = [outcome.low, outcome.value, outcome.high].map(|fate| pick(&fate).value());
        json!({ "low": low, "value": value, "high": high })
    };
    json!({
        "score": {
            "low": outcome.high.undetected.score(),
            "value": outcome.value.undetected.score(),
            "high": outcome.low.undetected.score(),
        },
        "undetected": range(|fate| fate.undetected),
        "lost": range(|fate| fate.lost),
        "corrupted": range(|fate| fate.corrupted),
        "is_switched": outcome.is_switched,
    })
}
