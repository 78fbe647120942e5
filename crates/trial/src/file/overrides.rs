//! What the command line changes of a trial file.

use std::sync::Arc;

use rotproof_document::{Diagnostic, Source, Tree, parse, push_value, set_key, set_value};

/// What the command line changes of a trial file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--seed`: another seed.
    pub seed: Option<u64>,
    /// `--fault`: further rules, each in its short form or as a mapping in braces.
    pub faults: Vec<String>,
    /// `--set`: values by their path, such as `load.block_size=64KiB`.
    pub values: Vec<String>,
}

/// The tree of `source` with everything of `overrides` in it; `None` where there is none.
pub fn build(source: &Arc<Source>, overrides: &Overrides, diagnostics: &mut Vec<Diagnostic>) -> Option<Tree> {
    let mut tree = match parse(source, diagnostics) {
        Some(tree) => tree,
        None if diagnostics.is_empty() => {
            diagnostics.push(Diagnostic {
                message: format!("there is nothing in {}", source.name),
                help: Some("describe at least a stack; see examples/first-trial.yaml".into()),
                place: None,
                path: String::new(),
            });
            return None;
        }
        None => return None,
    };
    if let Some(seed) = overrides.seed {
        set_key(&mut tree, "--seed", "seed", &seed.to_string(), diagnostics);
    }
    for text in &overrides.values {
        set_value(&mut tree, text, diagnostics);
    }
    for rule in &overrides.faults {
        push_value(&mut tree, "--fault", "faults", rule, diagnostics);
    }
    Some(tree)
}
