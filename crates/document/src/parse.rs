//! From text to a [`Tree`], through the events of the YAML parser, in one pass.
//!
//! Bounded on purpose: a file cannot nest, or grow by aliases, beyond what any trial needs, so that a hostile one is
//! refused in the time it takes to read it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use serde_saphyr::granit_parser::{self as granit, Event, Parser, ScalarStyle, ScanError};

use crate::diagnostic::Diagnostic;
use crate::read::MISTAKES_MAX;
use crate::source::{Location, Source};
use crate::tree::{NodeId, Tree, Value};

/// Levels that a file may nest; a trial needs seven.
const DEPTH_MAX: usize = 32;

/// Nodes that a file may have once its aliases are written out.
const NODES_MAX: usize = 1_000_000;

/// Reads `source`. The tree is all of it, but for the parts that are reported in `diagnostics`; `None` where nothing
/// can be made of it, or where there is nothing.
pub fn parse(source: &Arc<Source>, diagnostics: &mut Vec<Diagnostic>) -> Option<Tree> {
    let mut tree = Tree::default();
    let root = append(&mut tree, source, 0, diagnostics)?;
    tree.set_root(root);
    Some(tree)
}

/// Reads the part of `source` from byte `start` on as a value beside the document, for [`Tree::set`].
pub fn append(
    tree: &mut Tree,
    source: &Arc<Source>,
    start: usize,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<NodeId> {
    let options = granit::options! {
        emit_comments: false,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    let (open, anchors) = (Vec::new(), HashMap::new());
    let mut builder = Builder { tree, source, start, diagnostics, open, anchors, nodes: 0 };
    let mut document = None;
    for event in Parser::new_from_str_with_options(&source.text[start..], options) {
        let finished = event.map_err(|error| builder.syntax_error(&error)).and_then(|(event, span)| {
            let bytes = span.byte_range().unwrap_or(0..0);
            builder.event(event, start + bytes.start..start + bytes.end)
        });
        match finished {
            Ok(Some(node)) if document.is_none() => document = Some(node),
            Ok(Some(node)) => {
                let place = builder.tree.mark(node);
                builder.report(place, "a second document in one file", "give each trial a file of its own");
                return None;
            }
            Ok(None) => {}
            Err(Refused) => return None,
        }
    }
    document
}

/// Nothing can be made of the text; the reason is in the diagnostics.
struct Refused;

/// A list or mapping whose end has not come yet.
struct Open {
    anchor: usize,
    place: Location,
    mapping: bool,
    /// Elements, or keys and values in turn.
    children: Vec<NodeId>,
}

/// Turns events into nodes.
struct Builder<'a> {
    tree: &'a mut Tree,
    source: &'a Arc<Source>,
    start: usize,
    diagnostics: &'a mut Vec<Diagnostic>,
    open: Vec<Open>,
    anchors: HashMap<usize, NodeId>,
    /// So far, aliases written out.
    nodes: usize,
}

impl Builder<'_> {
    /// Takes one event; returns the node that it finishes at the top.
    fn event(&mut self, event: Event<'_>, bytes: Range<usize>) -> Result<Option<NodeId>, Refused> {
        let place = Location::new(self.source, bytes);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let as_text = tag.as_ref().is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
                if !as_text {
                    self.refuse_tag(tag.is_some(), &place)?;
                }
                self.count(1, &place)?;
                let plain = style == ScalarStyle::Plain && !as_text;
                // The parser writes `~` for a value that is not there.
                let text = if plain && place.bytes.is_empty() { String::new() } else { text.into_owned() };
                let node = self.tree.add(Value::Scalar { text, plain }, place, (1, 1));
                self.finish(node, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.count(1, &place)?;
                self.refuse_tag(tag.is_some(), &place)?;
                self.open.push(Open { anchor, place, mapping: false, children: Vec::new() });
                Ok(None)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.count(1, &place)?;
                self.refuse_tag(tag.is_some(), &place)?;
                self.open.push(Open { anchor, place, mapping: true, children: Vec::new() });
                Ok(None)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => {
                let Some(target) = self.anchors.get(&anchor).copied() else {
                    return Err(self.report(
                        place,
                        "an alias within what it stands for",
                        "write the value out",
                    ));
                };
                let (depth, weight) = self.tree.size(target);
                self.count(weight, &place)?;
                let value = self.tree.node(target).value.clone();
                let node = self.tree.add(value, place, (depth, weight));
                self.finish(node, 0)
            }
            _ => Ok(None),
        }
    }

    /// Ends the innermost list or mapping.
    fn close(&mut self) -> Result<Option<NodeId>, Refused> {
        let Some(Open { anchor, place, mapping, children }) = self.open.pop() else { return Ok(None) };
        let sizes = children.iter().map(|child| self.tree.size(*child));
        let (depth, weight) = sizes.fold((1, 1), |(depth, weight): (usize, usize), child| {
            (depth.max(child.0.saturating_add(1)), weight.saturating_add(child.1))
        });
        if depth > DEPTH_MAX {
            let message = format!("nested more than {DEPTH_MAX} levels deep");
            return Err(self.report(place, message, "a trial needs seven at most"));
        }
        let value = if mapping { Value::Mapping(self.entries(&children)) } else { Value::Sequence(children) };
        let node = self.tree.add(value, place, (depth, weight));
        self.finish(node, anchor)
    }

    /// Pairs keys and values, and leaves out what is no key or is one already.
    fn entries(&mut self, children: &[NodeId]) -> Vec<(NodeId, NodeId)> {
        let mut entries: Vec<(NodeId, NodeId)> = Vec::with_capacity(children.len() / 2);
        let mut seen: HashMap<String, NodeId> = HashMap::new();
        for pair in children.chunks_exact(2) {
            let (key, value) = (pair[0], pair[1]);
            let place = self.tree.node(key).place.clone();
            let Value::Scalar { text, .. } = &self.tree.node(key).value else {
                self.report(place, "a key must be a word", "write `key: value`");
                continue;
            };
            let text = text.clone();
            if let Some(first) = seen.get(&text) {
                // Finding a line takes a walk through the text, so not for a million of them.
                if self.diagnostics.len() < MISTAKES_MAX {
                    let line = self.tree.node(*first).place.line();
                    let help = format!("it stands on line {line} already; remove one of them");
                    self.report(place, format!("`{text}` is given twice"), help);
                }
                continue;
            }
            seen.insert(text, key);
            self.tree.put_under(value, key);
            entries.push((key, value));
        }
        entries
    }

    /// Hands a finished node to what it is in; returns it if that is the document.
    fn finish(&mut self, node: NodeId, anchor: usize) -> Result<Option<NodeId>, Refused> {
        if anchor != 0 {
            self.anchors.insert(anchor, node);
        }
        match self.open.last_mut() {
            Some(open) => {
                open.children.push(node);
                Ok(None)
            }
            None => Ok(Some(node)),
        }
    }

    /// Adds to the number of nodes, which is bounded before they take memory.
    fn count(&mut self, nodes: usize, place: &Location) -> Result<(), Refused> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > NODES_MAX {
            let message = format!("more than {NODES_MAX} values, aliases written out");
            return Err(self.report(place.clone(), message, "use fewer aliases, or ranges instead of lists"));
        }
        Ok(())
    }

    fn refuse_tag(&mut self, tagged: bool, place: &Location) -> Result<(), Refused> {
        if tagged {
            return Err(self.report(
                place.clone(),
                "a tag has no meaning in a trial file",
                "remove the `!` word",
            ));
        }
        Ok(())
    }

    fn report(&mut self, place: Location, message: impl Into<String>, help: impl Into<String>) -> Refused {
        self.diagnostics.push(Diagnostic {
            message: message.into(),
            help: Some(help.into()),
            place: Some(place),
            path: String::new(),
        });
        Refused
    }

    fn syntax_error(&mut self, error: &ScanError) -> Refused {
        let at = self.start + error.marker().byte_offset().unwrap_or(0);
        let help = match error.kind() {
            granit::ErrorKind::UnknownAnchor => "define it with `&name` further up, or quote the text",
            _ if self.source.text.lines().any(|line| line.trim_start_matches(' ').starts_with('\t')) => {
                "YAML indents with spaces; a line here begins with a tab"
            }
            _ if looks_like_fio(&self.source.text) => {
                "this looks like a job file of fio; `rotproof import FILE` makes a load of it"
            }
            _ => "check indentation, colons, quotes and brackets here and on the line before",
        };
        self.report(
            Location::new(self.source, at..at + 1),
            format!("this is not YAML: {}", error.info()),
            help,
        )
    }
}
/// Whether the first line that says something is a section, and a later one sets what jobs of fio have.
fn looks_like_fio(text: &str) -> bool {
    let mut lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    let is_section = |line: &str| line.starts_with('[') && line.ends_with(']');
    let is_option = |line: &str| {
        line.split_once('=').is_some_and(|(key, _)| {
            ["rw", "readwrite", "bs", "blocksize", "ioengine", "filename", "size", "iodepth", "runtime"]
                .contains(&key.trim())
        })
    };
    lines.next().is_some_and(is_section) && lines.any(is_option)
}
