//! Options of the command line that change a document.
//!
//! What the command line sets becomes part of the tree, at the end of which nobody can tell it from the file,
//! except that its mistakes are shown where they were typed.

use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::parse::append;
use crate::source::{Location, Source};
use crate::tree::{NodeId, Tree, steps};

/// `--seed 7`: the value of a key at the top of the document, which is YAML. `option` is what to call the option.
pub fn set_key(tree: &mut Tree, option: &str, key: &str, value: &str, diagnostics: &mut Vec<Diagnostic>) {
    let option = Arc::new(Source { name: option.into(), text: value.to_owned() });
    let key = tree.add_scalar(key, Location::new(&option, 0..value.len()));
    if let Some(value) = append(tree, &option, 0, diagnostics) {
        apply(tree, diagnostics, |tree| tree.set(&[key], value));
    }
}

/// `--set load.block_size=64KiB` or `--set stack[0].memory.size=1GiB`; the value is YAML, so that lists and mappings
/// can be given in brackets.
pub fn set_value(tree: &mut Tree, text: &str, diagnostics: &mut Vec<Diagnostic>) {
    let option = Arc::new(Source { name: "--set".into(), text: text.to_owned() });
    let all = Location::new(&option, 0..text.len());
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
    let way = Location::new(&option, 0..path.len());
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

/// `--fault "write: zeros"`: one more element of the list under `key` at the top of the document. A mapping in braces is
/// YAML, anything else a text. `option` is what to call the option.
pub fn push_value(tree: &mut Tree, option: &str, key: &str, value: &str, diagnostics: &mut Vec<Diagnostic>) {
    let option = Arc::new(Source { name: option.into(), text: value.to_owned() });
    let all = Location::new(&option, 0..value.len());
    let element = if value.trim_start().starts_with('{') {
        append(tree, &option, 0, diagnostics)
    } else {
        Some(tree.add_scalar(value, all.clone()))
    };
    if let Some(element) = element {
        let key = tree.add_scalar(key, all);
        apply(tree, diagnostics, |tree| tree.push(key, element));
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

fn report(diagnostics: &mut Vec<Diagnostic>, message: &str, help: &str, place: Location) {
    diagnostics.push(Diagnostic {
        message: message.into(),
        help: Some(help.into()),
        place: Some(place),
        path: String::new(),
    });
}
