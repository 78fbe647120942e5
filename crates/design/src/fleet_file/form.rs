//! The YAML of a fleet file.

use rotproof_fault::{FaultEntry, ModelEntry};
use rotproof_spec::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;

/// The devices of a fleet: how large they are, how much they are used, and how they go wrong.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "keys such as capacity and faults")]
pub struct FleetForm {
    /// Of each device: rates of models are for each TiB.
    pub capacity: Bytes,
    /// What is written to each device in a year. `undetected_disk_errors` of writes need it.
    pub written_per_year: Option<Bytes>,
    /// What is read from each device in a year. `undetected_disk_errors` of reads need it.
    pub read_per_year: Option<Bytes>,
    /// Fault models, as in a trial file.
    #[schemars(with = "Vec<ModelForm>")]
    pub faults: Vec<FaultEntry>,
}

/// A fault model, as a map or in its short form.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "it is the schema of an entry that is no rule")]
enum ModelForm {
    /// A model with its parameters.
    Map(ModelEntry),
    /// The short form: "name=rot: model(bit_rot, rate=2)".
    Text(String),
}
