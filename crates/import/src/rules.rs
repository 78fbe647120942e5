//! What an import brings: rules, each with what had to be assumed for it.

use rotproof_document::NodeId;
use rotproof_fault::{Rule, validate_all};
use rotproof_spec::{Path, Problems};
use serde::Serialize;

use crate::Format;
use crate::reader::Reader;

/// A fault plan that was written for another injector.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Imported {
    /// What it was read as.
    pub format: Format,
    /// The file it came from.
    pub file: String,
    /// What was assumed for all of it.
    pub notes: Vec<String>,
    /// Its rules, in the order of the file.
    pub rules: Vec<ImportedRule>,
}

/// One rule of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImportedRule {
    /// The line on which it stands, from 1.
    pub line: usize,
    /// The rule.
    pub rule: Rule,
    /// What was assumed for it.
    pub notes: Vec<String>,
}

/// What no other injector distinguishes.
const PHASES: &str = "Rules act, and count, in the phases run and check of a trial; there faults act from the first request on. \
                      For those of the prefill add `during: [prefill, run, check]`.";

/// An import under way.
#[derive(Debug, Default)]
pub struct Import {
    notes: Vec<String>,
    rules: Vec<(NodeId, ImportedRule)>,
}

impl Import {
    /// Says once what was assumed for all of the file.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Adds the rule that stands at `node`.
    pub fn add(&mut self, reader: &Reader<'_>, node: NodeId, rule: Rule, notes: Vec<String>) {
        let line = reader.line(node);
        self.rules.push((node, ImportedRule { line, rule, notes }));
    }

    /// What was imported, once it is known to be a plan that a trial can have: what makes no sense in it is reported at
    /// the entry that it comes from.
    pub fn finish(mut self, format: Format, file: &str, reader: &mut Reader<'_>) -> Imported {
        if !self.rules.is_empty() {
            self.note(PHASES);
        }
        let rules: Vec<Rule> = self.rules.iter().map(|(_, imported)| imported.rule.clone()).collect();
        let mut problems = Problems::default();
        validate_all(&rules, &Path::root(), None, &mut problems);
        for problem in problems {
            let index = problem.path.as_str().trim_start_matches('[').split(']').next();
            let index = index.and_then(|index| index.parse::<usize>().ok());
            let node = index.and_then(|index| self.rules.get(index)).map_or(reader.root(), |(node, _)| *node);
            let help = problem.help.unwrap_or_else(|| "change it, or leave it out".to_owned());
            reader.report(node, format!("as a rule this makes no sense: {}", problem.message), help);
        }
        let rules = self.rules.into_iter().map(|(_, imported)| imported).collect();
        Imported { format, file: file.to_owned(), notes: self.notes, rules }
    }
}
