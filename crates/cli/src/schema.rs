//! `rotproof schema`: prints the JSON Schema of trial files, of those of the reliability model, or of results.

use rotproof_block::error::IoContext;
use rotproof_design::{fleet_file, path_file};
use rotproof_trial::file::TrialFile;

use crate::args::{SchemaArgs, SchemaKind};
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;

/// Prints it, or writes it to a file and says how an editor finds it.
pub fn schema(args: &SchemaArgs, output: Output) -> Result<Exit, CommandError> {
    let (schema, what) = match args.kind {
        SchemaKind::Trial => (TrialFile::schema(), "trial"),
        SchemaKind::Path => (path_file::schema(), "path"),
        SchemaKind::Fleet => (fleet_file::schema(), "fleet"),
        SchemaKind::Run => (rotproof_results::run::schema(), "run"),
    };
    let Some(path) = &args.output else {
        output.json(&schema);
        return Ok(Exit::Pass);
    };
    std::fs::write(path, format!("{schema:#}\n")).doing(|| format!("writing {}", path.display()))?;
    if args.kind == SchemaKind::Run {
        output.note(format_args!("Wrote {}.", path.display()));
        return Ok(Exit::Pass);
    }
    output.note(format_args!(
        "Wrote {}. In a {what} file, tell editors of it with a first line such as\n\
         # yaml-language-server: $schema={}",
        path.display(),
        path.display()
    ));
    Ok(Exit::Pass)
}
