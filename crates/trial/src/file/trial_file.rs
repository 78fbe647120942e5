//! The trial file as a type: read, written, and described by a schema.

use std::path::Path;
use std::sync::Arc;

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_fault::{Rule, RuleEntry};
use rotproof_layers::StackSpec;
use rotproof_load::LoadSpec;
use rotproof_spec::Problems;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::diagnostic::{Diagnostic, Diagnostics};
use super::document::{self, Overrides};
use super::read::read;
use super::source::Source;
use super::subject_spec::SubjectSpec;
use super::tree::Tree;
use crate::expect::Expect;

/// A trial: a storage stack, what is built on it, the load, the faults, and what is expected of the verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "keys such as stack, load and faults")]
pub struct TrialFile {
    /// How results call the trial. Default: the name of the file, without its extension.
    #[serde(default)]
    pub name: String,
    /// Root of everything random; a run repeats from it. Default 1.
    #[serde(default = "seed_default")]
    pub seed: u64,
    /// Where time and I/O come from. Default io_uring.
    #[serde(default)]
    pub runtime: RuntimeKind,
    /// Devices, bottom to top: a leaf, then layers.
    // Needed, but asked for by `StackSpec::validate`, so that a mistake in it hides none further down.
    #[serde(default)]
    pub stack: StackSpec,
    /// What is on trial. Default raw.
    #[serde(default)]
    pub subject: SubjectSpec,
    /// What is written and read. Default: the whole target is written once, in order.
    #[serde(default)]
    pub load: LoadSpec,
    /// What goes wrong, each a map or its short form. Default: nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<RuleEntry>,
    /// What decides between pass and fail. Default: nothing silent, failed or unexplained.
    #[serde(default)]
    pub expect: Expect,
}

fn seed_default() -> u64 {
    1
}

/// Where time and I/O come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeKind {
    /// The kernel's io_uring, and its clock.
    #[default]
    IoUring,
    /// Virtual time: thousands of trials in seconds, identical every time. Subject raw only.
    Simulated,
}

impl RuntimeKind {
    /// The word it is written with.
    pub fn word(self) -> &'static str {
        match self {
            RuntimeKind::IoUring => "io_uring",
            RuntimeKind::Simulated => "simulated",
        }
    }
}

impl TrialFile {
    /// Reads the trial file at `path` with what the command line changes of it, and checks that it makes sense as a
    /// whole. Every default that does not depend on the running stack is filled in. Creates and touches nothing.
    pub fn open(path: &Path, overrides: &Overrides) -> Result<Self, Diagnostics> {
        let stem = path.file_stem().map_or_else(|| "trial".into(), |stem| stem.to_string_lossy());
        Self::from_source(&document::read_source(path)?, overrides, &stem)
    }

    /// As [`TrialFile::open`], from the content of a file called `name`.
    pub fn parse(name: &str, bytes: &[u8], overrides: &Overrides) -> Result<Self, Diagnostics> {
        let stem = Path::new(name).file_stem().map_or_else(|| "trial".into(), |stem| stem.to_string_lossy());
        Self::from_source(&document::source_from_bytes(name, bytes.to_vec())?, overrides, &stem)
    }

    fn from_source(source: &Arc<Source>, overrides: &Overrides, stem: &str) -> Result<Self, Diagnostics> {
        let mut diagnostics = Vec::new();
        let trial = document::build(source, overrides, &mut diagnostics).and_then(|mut tree| {
            let mut trial: Self = read(&mut tree, &mut diagnostics)?;
            trial.fill_in(stem);
            let mut problems = Problems::default();
            trial.validate(&mut problems);
            diagnostics.extend(problems.into_iter().map(|problem| placed(&tree, problem)));
            Some(trial)
        });
        match trial {
            Some(trial) if diagnostics.is_empty() => Ok(trial),
            _ => Err(Diagnostics::new(&source.name, diagnostics)),
        }
    }

    /// Gives the trial and its rules the names they have by default.
    fn fill_in(&mut self, stem: &str) {
        if self.name.is_empty() {
            stem.clone_into(&mut self.name);
        }
        for (index, RuleEntry(rule)) in self.faults.iter_mut().enumerate() {
            let name = rule.name_or_default(index).into_owned();
            rule.name = Some(name);
        }
    }

    /// The fault plan.
    pub fn rules(&self) -> Vec<Rule> {
        self.faults.iter().map(|RuleEntry(rule)| rule.clone()).collect()
    }

    /// As YAML that [`TrialFile::parse`] reads back as the same trial: the `trial.yaml` of the results.
    pub fn to_yaml(&self) -> Result<String> {
        serde_saphyr::to_string(self)
            .map_err(|error| Error::new(ErrorKind::Internal, "writing the trial as YAML").caused_by(error))
    }

    /// The JSON Schema (2020-12) of trial files.
    pub fn schema() -> Value {
        let mut schema = schemars::schema_for!(TrialFile);
        schema.insert("title".into(), "Rotproof trial file".into());
        schema.to_value()
    }
}

/// A problem with the place in the file where it stands.
fn placed(tree: &Tree, problem: rotproof_spec::Problem) -> Diagnostic {
    Diagnostic {
        place: tree.locate(&problem.path).map(|node| tree.mark(node)),
        path: problem.path.as_str().to_owned(),
        message: problem.message,
        help: problem.help,
    }
}
