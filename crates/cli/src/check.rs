//! `rotproof check`: what is wrong with trial files, or what they mean.

use serde_json::{Value, json};

use crate::args::CheckArgs;
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;
use crate::{plan, trials};

/// Prints every trial as resolved, with what it permits but will hardly have been meant, or all mistakes of all files.
pub fn check(args: &CheckArgs, output: Output) -> Result<Exit, CommandError> {
    let trials = trials::open(&args.trials)?;
    trials.iter().for_each(|trial| trial.tell_warnings(output));
    if args.json {
        let trials: Vec<Value> = trials
            .iter()
            .map(|trial| json!({ "file": trial.path, "trial": trial.file, "warnings": trial.warnings.list }))
            .collect();
        output.json(&json!({ "trials": trials }));
        return Ok(Exit::Pass);
    }
    let plans: Vec<String> = trials.iter().map(|trial| plan::render(trial, output.stdout_paint())).collect();
    output.result(plans.join("\n\n"));
    Ok(Exit::Pass)
}
