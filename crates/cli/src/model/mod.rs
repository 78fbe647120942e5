//! `rotproof model`: the reliability model, one file per verb. How anything is reckoned is known in the crates `model` and
//! `trial` (files); how it is drawn, in `plot`.

mod args;
mod compare;
mod contour;
mod designs;
mod estimate;
mod figures;
mod fleet;
mod fleet_course;
mod score;
mod switch_time;
mod text;

use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;

pub use args::{ModelArgs, Verb};

/// Calls the verb.
pub fn model(args: &ModelArgs, output: Output) -> Result<Exit, CommandError> {
    match &args.verb {
        Verb::Score(args) => score::score(args, output),
        Verb::Compare(args) => compare::compare(args, output),
        Verb::SwitchTime(args) => switch_time::switch_time(args, output),
        Verb::Contour(args) => contour::contour(args, output),
        Verb::Fleet(args) => fleet::fleet(args, output),
        Verb::Estimate(args) => estimate::estimate(args, output),
    }
}
