//! The hits of a ledger of any length, gone through twice: how many there are and where, then what is shown of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

use rotproof_block::Result;
use rotproof_block::error::IoContext;
use rotproof_fault::{Injection, Injections};
use serde::de::DeserializeOwned;

use super::broken;

/// Things that can be gone through as often as one likes.
pub(super) trait Each<T> {
    /// Hands out each, in their order. Fails where they cannot be read.
    fn each(&self, take: &mut dyn FnMut(&T)) -> Result<()>;
}

impl<T> Each<T> for [T] {
    fn each(&self, take: &mut dyn FnMut(&T)) -> Result<()> {
        self.iter().for_each(take);
        Ok(())
    }
}

/// A file of JSON Lines.
pub(super) struct Lines<T> {
    path: PathBuf,
    of: PhantomData<T>,
}

impl<T> Lines<T> {
    pub(super) fn of(path: PathBuf) -> Self {
        Self { path, of: PhantomData }
    }
}

impl<T: DeserializeOwned> Each<T> for Lines<T> {
    fn each(&self, take: &mut dyn FnMut(&T)) -> Result<()> {
        let doing = || format!("reading {}", self.path.display());
        let mut lines = BufReader::new(File::open(&self.path).doing(doing)?);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).doing(doing)? > 0 {
            take(&serde_json::from_slice(&line).map_err(|error| broken(&self.path, error))?);
            line.clear();
        }
        Ok(())
    }
}

impl Injections for Lines<Injection> {
    fn each(&self, take: &mut dyn FnMut(&Injection)) -> Result<()> {
        Each::each(self, take)
    }
}

/// How many hits there are, where and until when.
#[derive(Debug, Default)]
pub(super) struct Outline {
    pub(super) count: usize,
    /// When the last came.
    pub(super) end_ns: u64,
    /// Of each place for faults, how many hits it had, and where the last of them ends.
    pub(super) sites: BTreeMap<Arc<str>, (usize, u64)>,
}

impl Outline {
    pub(super) fn of(ledger: &(impl Injections + ?Sized)) -> Result<Self> {
        let mut outline = Self::default();
        ledger.each(&mut |hit| {
            outline.count += 1;
            outline.end_ns = outline.end_ns.max(hit.time_ns);
            if !outline.sites.contains_key(&hit.on) {
                outline.sites.insert(Arc::clone(&hit.on), (0, 0));
            }
            if let Some((count, end)) = outline.sites.get_mut(&hit.on) {
                (*count, *end) = (*count + 1, (*end).max(hit.offset.saturating_add(hit.length)));
            }
        })?;
        Ok(outline)
    }
}

/// The names of the rules whose hits are asked for by number.
#[derive(Debug, Default)]
pub(super) struct Names {
    wanted: BTreeSet<u64>,
    known: BTreeMap<u64, Arc<str>>,
}

impl Names {
    pub(super) fn wanted(numbers: impl Iterator<Item = u64>) -> Self {
        Self { wanted: numbers.collect(), known: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, hit: &Injection) {
        if self.wanted.contains(&hit.sequence) {
            self.known.insert(hit.sequence, Arc::clone(&hit.name));
        }
    }

    pub(super) fn get(&self, number: u64) -> Option<&str> {
        self.known.get(&number).map(|name| &**name)
    }
}
