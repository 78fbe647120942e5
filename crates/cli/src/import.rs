//! `rotproof import`: the fault plan of another injector as the `faults:` of a trial file, fio's jobs as its `load:`.

use serde_json::json;

use crate::args::ImportArgs;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::output::Output;

/// Prints the rules or the load with what was assumed, or everything in the file that cannot be carried.
pub fn import(args: &ImportArgs, output: Output) -> Result<Exit, Failure> {
    let format = args.format.map(rotproof_import::Format::from);
    let imported =
        rotproof_import::open(&args.file, format).map_err(|mistakes| Failure::Mistakes(vec![mistakes]))?;
    if args.json {
        output.json(&json!(imported));
    } else {
        output.result(imported);
    }
    Ok(Exit::Pass)
}
