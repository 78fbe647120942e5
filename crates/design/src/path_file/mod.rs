//! Path files: a design of the reliability model, in YAML. `docs/model.md` describes them.
//!
//! Read by the same parser as trial files, so that every mistake has its place. Owns the words of the file and what they
//! mean for `model`, which itself knows no files.

mod build;
mod coverage;
mod form;
mod rates;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rotproof_document::{Diagnostic, Diagnostics, Source, parse, read, read_source, source_from_bytes};
use rotproof_model as model;
use rotproof_spec::Problems;
use serde_json::Value;

use form::PathForm;

pub use build::parse_redundancy;
pub use coverage::{Coverage, Run, Runs};
pub use rates::{DiskRate, Fraction, GoalText, MemoryRate, SwitchText, residency};

/// Where the coverage of a checksum that a file takes from results is looked up.
pub type Lookup<'a> = dyn Fn(&Path) -> Result<Coverage, String> + 'a;

/// Reads the path file at `path`. Folders of results that it names are looked for beside it. Stages without a rate of
/// their own get that of `machine`.
pub fn open(path: &Path, machine: model::systems::Configuration) -> Result<model::Path, Diagnostics> {
    let beside: PathBuf = path.parent().map(Path::to_owned).unwrap_or_default();
    let stem = path.file_stem().map_or_else(|| "path".into(), |stem| stem.to_string_lossy());
    let lookup = |folder: &Path| {
        let runs = Runs::read(&beside.join(folder)).map_err(|error| error.to_string())?;
        Ok(runs.coverage())
    };
    from_source(&read_source(path)?, &stem, machine, &lookup)
}

/// As [`open`], from the content of a file called `name`; results are asked of `lookup`.
pub fn parse_bytes(
    name: &str,
    bytes: &[u8],
    machine: model::systems::Configuration,
    lookup: &Lookup<'_>,
) -> Result<model::Path, Diagnostics> {
    let stem = Path::new(name).file_stem().map_or_else(|| "path".into(), |stem| stem.to_string_lossy());
    from_source(&source_from_bytes(name, bytes.to_vec())?, &stem, machine, lookup)
}

/// The JSON Schema of path files.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(PathForm);
    schema.insert("title".into(), "Rotproof path file".into());
    // Only the parser takes a file without stages, to tell what else is wrong with it.
    schema.insert("required".into(), serde_json::json!(["stages"]));
    if let Some(stages) = schema.pointer_mut("/properties/stages").and_then(Value::as_object_mut) {
        stages.insert("minItems".into(), 1.into());
        stages.remove("default");
    }
    schema.to_value()
}

fn from_source(
    source: &Arc<Source>,
    stem: &str,
    machine: model::systems::Configuration,
    lookup: &Lookup<'_>,
) -> Result<model::Path, Diagnostics> {
    let mut diagnostics = Vec::new();
    let Some(mut tree) = parse(source, &mut diagnostics) else {
        if diagnostics.is_empty() {
            let message = format!("there is nothing in {}", source.name);
            let help = "describe at least one stage; see examples/paths/zfs.yaml";
            return Err(Diagnostics::one(&source.name, message, Some(help), None));
        }
        return Err(Diagnostics::new(&source.name, diagnostics));
    };
    let form: Option<PathForm> = read(&mut tree, &mut diagnostics);
    let path = form.map(|form| {
        let mut problems = Problems::default();
        let path = build::build(&form, stem, machine, lookup, &mut problems);
        diagnostics.extend(problems.into_iter().map(|problem| Diagnostic::at_its_place(&tree, problem)));
        path
    });
    match path {
        Some(path) if diagnostics.is_empty() => Ok(path),
        _ => Err(Diagnostics::new(&source.name, diagnostics)),
    }
}

#[cfg(test)]
mod tests;
