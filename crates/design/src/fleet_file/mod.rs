//! Fleet files: the fault models of the devices of a fleet, in YAML. `docs/model.md` describes them.
//!
//! The models are those of a trial's `faults:`, read by the same parser. Owns what they mean for `model`, which itself
//! knows neither files nor faults: rates, shapes and fractions as plain numbers.

mod build;
mod form;

use std::path::Path;
use std::sync::Arc;

use rotproof_document::{Diagnostic, Diagnostics, Source, parse, read, read_source, source_from_bytes};
use rotproof_model::fleet::{Death, Hazard, Source as ErrorSource};
use rotproof_spec::Problems;
use serde_json::Value;

use form::FleetForm;

/// What the models of a fleet file say of each device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFaults {
    /// When devices fail, and their age in years; `None` if no model says so.
    pub failures: Option<(Hazard, f64)>,
    /// How a device dies that fails.
    pub death: Option<Death>,
    /// What damages sectors.
    pub sources: Vec<ErrorSource>,
    /// Blocks of a device.
    pub sectors: f64,
    /// What the models say that a fleet does not know, in words.
    pub unused: Vec<String>,
}

/// Reads the fleet file at `path`. Of damage that a device does not report, the fraction `undetected` passes its checksum.
pub fn open(path: &Path, undetected: f64) -> Result<DeviceFaults, Diagnostics> {
    from_source(&read_source(path)?, undetected)
}

/// As [`open`], from the content of a file called `name`.
pub fn parse_bytes(name: &str, bytes: &[u8], undetected: f64) -> Result<DeviceFaults, Diagnostics> {
    from_source(&source_from_bytes(name, bytes.to_vec())?, undetected)
}

/// The JSON Schema of fleet files.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(FleetForm);
    schema.insert("title".into(), "Rotproof fleet file".into());
    schema.to_value()
}

fn from_source(source: &Arc<Source>, undetected: f64) -> Result<DeviceFaults, Diagnostics> {
    let mut diagnostics = Vec::new();
    let Some(mut tree) = parse(source, &mut diagnostics) else {
        if diagnostics.is_empty() {
            let message = format!("there is nothing in {}", source.name);
            let help = "give a capacity and at least one model; see examples/fleets/nearline.yaml";
            return Err(Diagnostics::one(&source.name, message, Some(help), None));
        }
        return Err(Diagnostics::new(&source.name, diagnostics));
    };
    let form: Option<FleetForm> = read(&mut tree, &mut diagnostics);
    let faults = form.map(|form| {
        let mut problems = Problems::default();
        let faults = build::build(&form, undetected, &mut problems);
        diagnostics.extend(problems.into_iter().map(|problem| Diagnostic::at_its_place(&tree, problem)));
        faults
    });
    match faults {
        Some(faults) if diagnostics.is_empty() => Ok(faults),
        _ => Err(Diagnostics::new(&source.name, diagnostics)),
    }
}

#[cfg(test)]
mod tests;
