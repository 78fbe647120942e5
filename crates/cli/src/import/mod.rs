//! `rotproof import`: the fault plan of another injector as the `faults:` of a trial file, fio's jobs as its `load:`.

mod survey;

use serde_json::json;

use crate::args::ImportArgs;
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;

/// Of a folder, says how many of fio's job files below it can be imported. Prints the rules or the load with what was assumed, or everything in the file that cannot be carried.
pub fn import(args: &ImportArgs, output: Output) -> Result<Exit, CommandError> {
    let format = args.format.map(rotproof_import::Format::from);
    if args.file.is_dir() {
        let survey = survey::survey(&args.file, format)?;
        if args.json {
            output.json(&survey.to_json());
        } else {
            output.result(survey.render(output.stdout_paint()));
        }
        return Ok(Exit::Pass);
    }
    let imported = rotproof_import::open(&args.file, format)
        .map_err(|mistakes| CommandError::Mistakes(vec![mistakes]))?;
    if args.json {
        output.json(&json!(imported));
    } else {
        output.result(imported);
    }
    Ok(Exit::Pass)
}
