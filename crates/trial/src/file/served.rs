//! What makes no sense in a stack that is to be served to other programs: there is no load, and time is real.

use std::path::Path as FilePath;
use std::sync::Arc;

use rotproof_document::{Diagnostic, Diagnostics, Source, parse, push_value, read, read_source};
use rotproof_fault::{EnabledPhase, Rule, RuleEntry, Target, validate_all, validate_plan};
use rotproof_spec::{Path, Problems};
use serde::Deserialize;

use super::trial_file::{RuntimeKind, TrialFile};
use super::validate::bytes_of_file;

impl TrialFile {
    /// Reports everything in the stack and the faults that makes no sense where they are served.
    pub(super) fn validate_to_serve(&self, problems: &mut Problems) {
        let root = Path::root();
        self.stack.validate(&root.key("stack"), problems);
        self.validate_volume(&root, problems);
        if self.runtime == RuntimeKind::Simulated {
            problems.add_with_help(
                &root.key("runtime"),
                "other programs know no virtual time",
                "to serve, leave `runtime` out",
            );
        }
        self.validate_backing_files(&root.key("stack"), problems);
        let path = root.key("faults");
        validate_plan(&self.faults, &path, &self.stack.sites(&bytes_of_file), problems);
        for (index, entry) in self.faults.iter().enumerate() {
            if let Some(rule) = entry.rule() {
                validate_rule_to_serve(rule, &path.index(index), problems);
            }
        }
    }
}

/// Reports what a rule cannot mean where a stack is served, however much sense it makes in a trial. `path` is where
/// it stands in the document.
pub fn validate_rule_to_serve(rule: &Rule, path: &Path, problems: &mut Problems) {
    if rule.matching.target.as_ref().is_some_and(Target::needs_trial) {
        problems.add_with_help(
            &path.key("match").key("target"),
            "this target is worked out from the load of a trial, and what is served has none",
            "match by `offset`, `content` or `tag`, or by what has passed the device",
        );
    }
    if !rule.during.is_empty() && !rule.during.iter().any(|phase| *phase == EnabledPhase::Run) {
        problems.add_with_help(
            &path.key("during"),
            "what is served is in the phase run all the time, so the rule is never enabled",
            "leave `during` out",
        );
    }
}

/// A file with rules and nothing else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "the key faults with a list of rules")]
struct RulesFile {
    #[serde(default)]
    faults: Vec<RuleEntry>,
}

/// Rules that are not part of a trial: those under `faults:` of the file at `file`, if there is one, and then those
/// of the command line, each in its short form or as a mapping in braces. What takes a device to know is not checked.
pub fn rules_of_arguments(file: Option<&FilePath>, rules: &[String]) -> Result<Vec<Rule>, Diagnostics> {
    let source = match file {
        Some(file) => read_source(file)?,
        None => Arc::new(Source { name: "RULE".into(), text: "{}".into() }),
    };
    let mut diagnostics = Vec::new();
    let found = parse(&source, &mut diagnostics).and_then(|mut tree| {
        for rule in rules {
            push_value(&mut tree, "RULE", "faults", rule, &mut diagnostics);
        }
        let RulesFile { faults } = read(&mut tree, &mut diagnostics)?;
        let rules: Vec<Rule> = faults.into_iter().map(Rule::from).collect();
        let (mut problems, root) = (Problems::default(), Path::root().key("faults"));
        validate_all(&rules, &root, None, &mut problems);
        for (index, rule) in rules.iter().enumerate() {
            validate_rule_to_serve(rule, &root.index(index), &mut problems);
        }
        diagnostics.extend(problems.into_iter().map(|problem| Diagnostic::at_its_place(&tree, problem)));
        Some(rules)
    });
    match found {
        Some(rules) if diagnostics.is_empty() && !rules.is_empty() => Ok(rules),
        _ if diagnostics.is_empty() => {
            let help = "give one, such as \"write, once: zeros\", or a file with a list under `faults:`";
            Err(Diagnostics::one(&source.name, "there is no rule here", Some(help), None))
        }
        _ => Err(Diagnostics::new(&source.name, diagnostics)),
    }
}

#[cfg(test)]
mod tests {
    use crate::file::{Overrides, TrialFile};

    fn mistakes(yaml: &str) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("stack.yaml");
        std::fs::write(&path, yaml).expect("written");
        match TrialFile::open_to_serve(&path, &Overrides::default()) {
            Ok(_) => Vec::new(),
            Err(found) => found.list.into_iter().map(|d| format!("{}: {}", d.path, d.message)).collect(),
        }
    }

    const STACK: &str = "stack: [memory: { size: 1MiB }]\n";

    #[test]
    fn a_stack_and_its_faults_are_enough_and_the_rest_of_a_trial_is_not_looked_at() {
        assert_eq!(mistakes(&format!("{STACK}faults: ['read: hang']\n")), [""; 0]);
        let trial = "subject: xfs\nload: { workers: 3000, files: { count: 99, size: 1GiB } }\n";
        assert_eq!(mistakes(&format!("{STACK}{trial}")), [""; 0]);
    }

    #[test]
    fn what_only_a_trial_can_mean_is_refused_at_its_place() {
        let rules = "runtime: simulated\nfaults: ['write, target=unique: zeros', 'read, during=check|prefill: error']\n";
        let found = mistakes(&format!("{STACK}{rules}"));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("runtime: "), "{found:?}");
        assert!(found[1].starts_with("faults[0].match.target: "), "{found:?}");
        assert!(found[2].starts_with("faults[1].during: "), "{found:?}");
        assert!(mistakes("faults: ['read: error']")[0].contains("empty"));
    }
}
