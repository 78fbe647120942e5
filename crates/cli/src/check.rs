//! `rotproof check`: what is wrong with trial files, or what they mean.

use serde_json::{Value, json};

use crate::args::CheckArgs;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::output::Output;
use crate::{plan, trials};

/// Prints every trial as resolved, or all mistakes of all files.
pub fn check(args: &CheckArgs, output: Output) -> Result<Exit, Failure> {
    let trials = trials::open(&args.trials)?;
    if args.json {
        let trials: Vec<Value> =
            trials.iter().map(|trial| json!({ "file": trial.path, "trial": trial.file })).collect();
        output.json(&json!({ "trials": trials }));
        return Ok(Exit::Pass);
    }
    let plans: Vec<String> = trials.iter().map(|trial| plan::render(trial, output.stdout_paint())).collect();
    output.result(plans.join("\n\n"));
    Ok(Exit::Pass)
}
