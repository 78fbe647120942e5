//! A YAML document as a tree whose every node knows its place.
//!
//! Made by [`crate::parse`], changed by [`crate::option`]s, read by [`crate::read`]; it does not know what it may say.

use rotproof_spec::Path;

use crate::source::Location;

/// The number of a node in its [`Tree`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeId(usize);

/// The nodes of a document and of what was set on the command line. One without nodes has no document either.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    nodes: Vec<Node>,
    root: NodeId,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where it stands; of a list or mapping, where it begins.
    pub place: Location,
    /// The key it stands under, if it does.
    pub key: Option<NodeId>,
    /// Left out because it is wrong, and reported.
    pub cut: bool,
    depth: usize,
    weight: usize,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub enum Value {
    /// A text or, if it is plain (not quoted), perhaps a number, a truth value or nothing.
    Scalar {
        /// The text, with escapes resolved.
        text: String,
        /// Whether it stands without quotes.
        plain: bool,
    },
    /// A list.
    Sequence(Vec<NodeId>),
    /// Keys and values, in the order of the file; the keys are scalars and differ.
    Mapping(Vec<(NodeId, NodeId)>),
}

impl Tree {
    /// Makes `root` the document.
    pub fn set_root(&mut self, root: NodeId) {
        self.root = root;
    }

    /// The document.
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// The node with this number.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// How many levels and nodes a node has, itself included and aliases written out.
    pub fn size(&self, id: NodeId) -> (usize, usize) {
        (self.node(id).depth, self.node(id).weight)
    }

    /// Notes the key of a value.
    pub fn put_under(&mut self, value: NodeId, key: NodeId) {
        self.nodes[value.0].key = Some(key);
    }

    /// Leaves a value or, given its key, an entry out.
    pub fn cut(&mut self, id: NodeId) {
        self.nodes[id.0].cut = true;
    }

    /// Whether something directly below was cut, so that whatever else is wrong with this node may only follow.
    pub fn is_wounded(&self, id: NodeId) -> bool {
        match &self.node(id).value {
            Value::Scalar { .. } => false,
            Value::Sequence(items) => items.iter().any(|item| self.node(*item).cut),
            Value::Mapping(entries) => {
                entries.iter().any(|(key, value)| self.node(*key).cut || self.node(*value).cut)
            }
        }
    }

    /// The elements that are left, for a list.
    pub fn items<'a>(&'a self, items: &'a [NodeId]) -> impl Iterator<Item = NodeId> + 'a {
        items.iter().copied().filter(|item| !self.node(*item).cut)
    }

    /// The entries that are left, for a mapping.
    pub fn entries<'a>(
        &'a self,
        entries: &'a [(NodeId, NodeId)],
    ) -> impl Iterator<Item = (NodeId, NodeId)> + 'a {
        entries.iter().copied().filter(|(key, value)| !self.node(*key).cut && !self.node(*value).cut)
    }

    /// The text of a scalar; empty for anything else.
    pub fn text(&self, id: NodeId) -> &str {
        match &self.node(id).value {
            Value::Scalar { text, .. } => text,
            Value::Sequence(_) | Value::Mapping(_) => "",
        }
    }

    /// The entry under `key`, if `id` is a mapping that has it.
    fn entry(&self, id: NodeId, key: &str) -> Option<(NodeId, NodeId)> {
        match &self.node(id).value {
            Value::Mapping(entries) => entries.iter().copied().find(|(entry, _)| self.text(*entry) == key),
            Value::Scalar { .. } | Value::Sequence(_) => None,
        }
    }

    /// The value under `key`, if `id` is a mapping that has it.
    pub fn get(&self, id: NodeId, key: &str) -> Option<NodeId> {
        self.entry(id, key).map(|(_, value)| value)
    }

    /// The node of the key `key`, if `id` is a mapping that has it.
    pub fn key(&self, id: NodeId, key: &str) -> Option<NodeId> {
        self.entry(id, key).map(|(key, _)| key)
    }

    /// Where to point for a mistake in this node: at a scalar itself; at the key of a list or mapping, as its
    /// lines are many, or at its beginning where it has no key.
    pub fn mark(&self, id: NodeId) -> Location {
        let node = self.node(id);
        match (&node.value, node.key) {
            (Value::Scalar { text, .. }, Some(key)) if text.is_empty() => self.node(key).place.clone(),
            (Value::Scalar { .. }, _) => node.place.clone(),
            (_, Some(key)) => self.node(key).place.clone(),
            (Value::Mapping(entries), None) => {
                entries.first().map_or_else(|| node.place.clone(), |(key, _)| self.node(*key).place.clone())
            }
            (Value::Sequence(_), None) => node.place.clone(),
        }
    }

    /// The node at `path`, or the deepest one on the way to it: a value that stands nowhere is a default, and its
    /// parent the best place to speak of it. `None` for the document itself. With it what of the path a text there says
    /// by itself, in a form of its own; nothing of it where keys and values could stand.
    pub fn locate<'a>(&self, path: &'a Path) -> Option<(NodeId, Vec<&'a str>)> {
        let mut node = self.root;
        let mut below: Vec<&str> = steps(path.as_str()).collect();
        while let Some(next) = below.first().and_then(|step| self.child(node, step)) {
            node = next;
            below.remove(0);
        }
        if !matches!(self.node(node).value, Value::Scalar { .. }) {
            below.clear();
        }
        (node != self.root).then_some((node, below))
    }

    /// The path of `wanted`, as in `faults[2].match`; empty for the document. That of a key is that of its value.
    pub fn path(&self, wanted: NodeId) -> Path {
        let mut walk = vec![(self.root, Path::root())];
        while let Some((id, path)) = walk.pop() {
            if id == wanted {
                return path;
            }
            match &self.node(id).value {
                Value::Scalar { .. } => {}
                Value::Sequence(items) => {
                    walk.extend(items.iter().enumerate().map(|(index, item)| (*item, path.index(index))));
                }
                Value::Mapping(entries) => {
                    for (key, value) in entries {
                        let path = path.key(self.text(*key));
                        if *key == wanted {
                            return path;
                        }
                        walk.push((*value, path));
                    }
                }
            }
        }
        Path::root()
    }

    /// Puts `value` at `path`, given as keys and positions, making the mappings on the way. Where something else
    /// is in the way, that is the error.
    pub fn set(&mut self, path: &[NodeId], value: NodeId) -> Result<(), NodeId> {
        let Some((&last, way)) = path.split_last() else { return Ok(()) };
        let mut at = self.root;
        for &word in way {
            at = match self.child(at, self.text(word)) {
                Some(next) => next,
                None => {
                    let place = self.node(word).place.clone();
                    let next = self.add(Value::Mapping(Vec::new()), place, (1, 1));
                    self.insert(at, word, next)?;
                    next
                }
            };
        }
        self.insert(at, last, value)
    }

    /// Puts `value` at the end of the list under the first-level key `key`, making the list if need be.
    pub fn push(&mut self, key: NodeId, value: NodeId) -> Result<(), NodeId> {
        let list = match self.get(self.root, self.text(key)) {
            Some(list) => list,
            None => {
                let place = self.node(key).place.clone();
                let list = self.add(Value::Sequence(Vec::new()), place, (1, 1));
                self.insert(self.root, key, list)?;
                list
            }
        };
        match &mut self.nodes[list.0].value {
            Value::Sequence(items) => items.push(value),
            Value::Scalar { .. } | Value::Mapping(_) => return Err(list),
        }
        Ok(())
    }

    /// Adds a text that stands at `place`.
    pub fn add_scalar(&mut self, text: &str, place: Location) -> NodeId {
        self.add(Value::Scalar { text: text.to_owned(), plain: false }, place, (1, 1))
    }

    /// The value under a key or at a position.
    fn child(&self, id: NodeId, word: &str) -> Option<NodeId> {
        match &self.node(id).value {
            Value::Sequence(items) => items.get(word.parse::<usize>().ok()?).copied(),
            Value::Scalar { .. } | Value::Mapping(_) => self.get(id, word),
        }
    }

    /// Replaces a value, or adds an entry to a mapping. Where neither can be done, `parent` is the error.
    fn insert(&mut self, parent: NodeId, word: NodeId, value: NodeId) -> Result<(), NodeId> {
        let existing = self.child(parent, self.text(word));
        self.put_under(value, word);
        match (&mut self.nodes[parent.0].value, existing) {
            (Value::Mapping(entries), None) => entries.push((word, value)),
            (Value::Mapping(entries), Some(existing)) => {
                entries
                    .iter_mut()
                    .filter(|entry| entry.1 == existing)
                    .for_each(|entry| *entry = (word, value));
            }
            (Value::Sequence(items), Some(existing)) => {
                items.iter_mut().filter(|item| **item == existing).for_each(|item| *item = value);
            }
            (Value::Scalar { .. } | Value::Sequence(_), _) => return Err(parent),
        }
        Ok(())
    }

    /// Adds a node of so many levels and nodes; see [`Tree::size`].
    pub fn add(&mut self, value: Value, place: Location, (depth, weight): (usize, usize)) -> NodeId {
        self.nodes.push(Node { value, place, key: None, cut: false, depth, weight });
        NodeId(self.nodes.len() - 1)
    }
}

/// Takes `faults[2].match`, or `faults.2.match`, apart.
pub fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[']).map(|step| step.strip_suffix(']').unwrap_or(step)).filter(|step| !step.is_empty())
}
