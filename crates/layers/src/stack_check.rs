//! What makes no sense in the description of a stack, wherever in its tree.

use std::collections::HashSet;

use rotproof_spec::{Path, Problems};

use crate::device_spec::DeviceSpec;
use crate::faults::FaultsSpec;
use crate::stack_spec::{Chain, Legs, StackSpec};

/// Looks for what makes no sense in a tree.
pub(crate) struct Check<'a> {
    problems: &'a mut Problems,
    sites: HashSet<String>,
    stats: Vec<String>,
}

const BEGIN: &str = "begin with a leaf: - memory: { size: 256MiB }";

impl<'a> Check<'a> {
    pub(crate) fn new(problems: &'a mut Problems) -> Self {
        Self { problems, sites: HashSet::new(), stats: Vec::new() }
    }

    /// Reports everything; `path` is where the stack stands in the document.
    pub(crate) fn stack(&mut self, stack: &StackSpec, path: &Path) {
        for (name, chain) in &stack.0.0 {
            let path = name.as_ref().map_or_else(|| path.clone(), |name| path.key(name));
            self.name(name.as_deref(), &path);
            self.chain(chain, &path);
        }
        if stack.0.0.is_empty() {
            self.problems.add_with_help(path, "the stack has no device", BEGIN);
        }
    }

    fn name(&mut self, name: Option<&str>, path: &Path) {
        if let Some(name) = name
            && (name.is_empty()
                || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter)))
        {
            self.problems.add_with_help(
                path,
                format!("`{name}` is no name for a device"),
                "a name has letters, digits and . _ - only",
            );
        }
    }

    /// Gives the size of the chain, as far as it is known.
    fn chain(&mut self, chain: &Chain, path: &Path) -> Option<u64> {
        let Some(first) = chain.0.first() else {
            self.problems.add_with_help(path, "the stack is empty", BEGIN);
            return None;
        };
        if !first.begins() {
            self.problems.add_with_help(
                &path.index(0),
                format!("a stack begins with a leaf, and {} is none", first.word()),
                format!("begin with {}", DeviceSpec::beginnings()),
            );
        }
        let mut size = None;
        let mut once: Vec<(&str, usize)> = Vec::new();
        for (index, device) in chain.0.iter().enumerate() {
            let place = path.index(index);
            if index > 0 && device.begins() {
                self.problems.add_with_help(
                    &place,
                    format!("{} can only be at the bottom", device.word()),
                    "a list begins with its leaf; several leaves stand side by side under concat, stripe or mirror",
                );
            }
            if let Some(reason) = device.once() {
                match once.iter().find(|(word, _)| *word == device.word()) {
                    Some((word, before)) => self.problems.add_with_help(
                        &place,
                        format!("{word} stands at entry {} already", before + 1),
                        reason,
                    ),
                    None => once.push((device.word(), index)),
                }
            }
            let place = place.key(device.word());
            let below: Vec<Option<u64>> = match device.legs() {
                Some(legs) => self.legs(legs, &place.key("of")),
                None => vec![size],
            };
            device.validate(&below, &place, self.problems);
            self.unique(device, &place);
            size = device.size(&below);
        }
        size
    }

    fn legs(&mut self, legs: &Legs, path: &Path) -> Vec<Option<u64>> {
        let mut sizes = Vec::new();
        for (index, (name, leg)) in legs.0.iter().enumerate() {
            let path = match name {
                Some(name) => path.key(name),
                None => path.index(index),
            };
            self.name(name.as_deref(), &path);
            sizes.push(self.chain(leg, &path));
        }
        sizes
    }

    /// What has a name in results has one of its own.
    fn unique(&mut self, device: &DeviceSpec, place: &Path) {
        match device {
            DeviceSpec::Stats(stats) => {
                let name = stats.name_or_default(self.stats.len());
                if self.stats.contains(&name) {
                    let message = format!("another stats layer is called `{name}` too");
                    self.problems.add(&place.key("name"), message);
                }
                self.stats.push(name);
            }
            DeviceSpec::Faults(FaultsSpec { name: Some(name) }) if !self.sites.insert(name.clone()) => {
                let message = format!("another place for faults is called `{name}` too");
                self.problems.add(&place.key("name"), message);
            }
            _ => {}
        }
    }
}
