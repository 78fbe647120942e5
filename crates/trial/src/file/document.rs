//! From bytes and command line options to one tree.
//!
//! What the command line sets becomes part of the tree, at the end of which nobody can tell it from the file,
//! except that its mistakes are shown where they were typed.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rotproof_fault::{Rule, RuleEntry, validate_all};
use rotproof_spec::{Path as ProblemPath, Problems};
use serde::Deserialize;

use super::diagnostic::{Diagnostic, Diagnostics};
use super::parse::{append, parse};
use super::read::read;
use super::served::validate_rule_to_serve;
use super::source::{Place, Source};
use super::tree::{NodeId, Tree, steps};

/// A trial file is refused beyond this size in bytes: 10,000 rules of a hundred bytes each take a sixteenth.
const SIZE_MAX: u64 = 16 << 20;

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

/// Reads the file at `path` as text.
pub fn read_source(path: &Path) -> Result<Arc<Source>, Diagnostics> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(SIZE_MAX + 1).read_to_end(&mut bytes)).map_err(|error| {
        let help = match error.kind() {
            std::io::ErrorKind::NotFound => {
                "check the path; `rotproof help run` shows how to name a trial file"
            }
            _ => "give a trial file that you may read",
        };
        Diagnostics::one(&name, format!("cannot read {name}: {}", plain(&error)), Some(help), None)
    })?;
    if bytes.len() as u64 > SIZE_MAX {
        let message = format!("{name} is larger than {} MiB, which no trial file is", SIZE_MAX >> 20);
        return Err(Diagnostics::one(&name, message, Some("give a trial file"), None));
    }
    source_from_bytes(&name, bytes)
}

/// The text of `bytes`, which must be UTF-8.
pub fn source_from_bytes(name: &str, bytes: Vec<u8>) -> Result<Arc<Source>, Diagnostics> {
    let valid = |text: &str| Arc::new(Source { name: name.to_owned(), text: text.to_owned() });
    match String::from_utf8(bytes) {
        Ok(text) => Ok(valid(text.strip_prefix('\u{feff}').unwrap_or(&text))),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let shown = valid(&String::from_utf8_lossy(error.as_bytes()));
            let place = Place::new(&shown, at..at + 1);
            let message = format!("byte {at} (0x{:02x}) is not UTF-8", error.as_bytes()[at]);
            Err(Diagnostics::one(name, message, Some("save the file as UTF-8 text"), Some(place)))
        }
    }
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
        let option = Arc::new(Source { name: "--seed".into(), text: seed.to_string() });
        let key = tree.add_scalar("seed", Place::new(&option, 0..option.text.len()));
        let value = append(&mut tree, &option, 0, diagnostics)?;
        apply(&mut tree, diagnostics, |tree| tree.set(&[key], value));
    }
    for text in &overrides.values {
        set_value(&mut tree, text, diagnostics);
    }
    for rule in &overrides.faults {
        add_fault(&mut tree, "--fault", rule, diagnostics);
    }
    Some(tree)
}

/// A file with rules and nothing else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "the key faults with a list of rules")]
struct RulesFile {
    #[serde(default)]
    faults: Vec<RuleEntry>,
}

/// Rules that are not part of a trial: those under `faults:` of the file at `path`, if there is one, and then those
/// of the command line, each in its short form or as a mapping in braces. What takes a device to know is not checked.
pub fn rules_of_arguments(path: Option<&Path>, rules: &[String]) -> Result<Vec<Rule>, Diagnostics> {
    let source = match path {
        Some(path) => read_source(path)?,
        None => Arc::new(Source { name: "RULE".into(), text: "{}".into() }),
    };
    let mut diagnostics = Vec::new();
    let found = parse(&source, &mut diagnostics).and_then(|mut tree| {
        for rule in rules {
            add_fault(&mut tree, "RULE", rule, &mut diagnostics);
        }
        let RulesFile { faults } = read(&mut tree, &mut diagnostics)?;
        let rules: Vec<Rule> = faults.into_iter().map(Rule::from).collect();
        let (mut problems, root) = (Problems::default(), ProblemPath::root().key("faults"));
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

/// `--set load.block_size=64KiB` or `--set stack[0].memory.size=1GiB`; the value is YAML, so that lists and mappings
/// can be given in brackets.
fn set_value(tree: &mut Tree, text: &str, diagnostics: &mut Vec<Diagnostic>) {
    let option = Arc::new(Source { name: "--set".into(), text: text.to_owned() });
    let all = Place::new(&option, 0..text.len());
    let Some((path, value)) = text.split_once('=').filter(|(path, _)| steps(path).next().is_some()) else {
        report(
            diagnostics,
            "this sets nothing",
            "write a path and a value: --set load.block_size=64KiB",
            all,
        );
        return;
    };
    let start = text.len() - value.len();
    let way = Place::new(&option, 0..path.len());
    let path: Vec<_> = steps(path).map(|word| tree.add_scalar(word, way.clone())).collect();
    let reported = diagnostics.len();
    match append(tree, &option, start, diagnostics) {
        Some(value) => apply(tree, diagnostics, |tree| tree.set(&path, value)),
        None if diagnostics.len() == reported => {
            report(
                diagnostics,
                "no value stands here",
                "write a path and a value: --set load.workers=4",
                all,
            );
        }
        None => {}
    }
}

/// A rule of the command line: a mapping in braces is YAML, anything else the short form.
fn add_fault(tree: &mut Tree, option: &str, rule: &str, diagnostics: &mut Vec<Diagnostic>) {
    let option = Arc::new(Source { name: option.into(), text: rule.to_owned() });
    let all = Place::new(&option, 0..rule.len());
    let value = if rule.trim_start().starts_with('{') {
        append(tree, &option, 0, diagnostics)
    } else {
        Some(tree.add_scalar(rule, all.clone()))
    };
    if let Some(value) = value {
        let key = tree.add_scalar("faults", all);
        apply(tree, diagnostics, |tree| tree.push(key, value));
    }
}

/// Changes the tree; where something in it is in the way, says so.
fn apply(
    tree: &mut Tree,
    diagnostics: &mut Vec<Diagnostic>,
    change: impl FnOnce(&mut Tree) -> Result<(), NodeId>,
) {
    if let Err(in_the_way) = change(tree) {
        let place = tree.mark(in_the_way);
        let message = "an option of the command line cannot be set inside this";
        report(diagnostics, message, "set the whole value, or change the file", place);
    }
}

fn report(diagnostics: &mut Vec<Diagnostic>, message: &str, help: &str, place: Place) {
    diagnostics.push(Diagnostic {
        message: message.into(),
        help: Some(help.into()),
        place: Some(place),
        path: String::new(),
    });
}

/// The words of the operating system, without its number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}
