//! `rotproof schema`: prints the JSON Schema of trial files.

use rotproof_block::error::IoContext;
use rotproof_trial::file::TrialFile;

use crate::args::SchemaArgs;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::output::Output;

/// Prints it, or writes it to a file and says how an editor finds it.
pub fn schema(args: &SchemaArgs, output: Output) -> Result<Exit, Failure> {
    let schema = TrialFile::schema();
    let Some(path) = &args.output else {
        output.json(&schema);
        return Ok(Exit::Pass);
    };
    std::fs::write(path, format!("{schema:#}\n")).doing(|| format!("writing {}", path.display()))?;
    output.note(format_args!(
        "Wrote {}. In a trial file, tell editors of it with a first line such as\n\
         # yaml-language-server: $schema={}",
        path.display(),
        path.display()
    ));
    Ok(Exit::Pass)
}
