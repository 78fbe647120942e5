//! The runs of one set-up, read from their folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rotproof_block::Result;

use super::figures::{self, Figure};
use crate::{parse_run, read_run, runs_in};

/// One set-up and the figures of its runs.
#[derive(Clone, Debug)]
pub struct SetUp {
    /// How it is called: as its folder.
    pub name: String,
    runs: Vec<BTreeMap<Figure, f64>>,
}

impl SetUp {
    /// Reads the folder of one run, or one with the folders of several in it. Fails with [`ErrorKind::Missing`](rotproof_block::ErrorKind) if there
    /// is no run, and with [`ErrorKind::Invalid`](rotproof_block::ErrorKind) if one cannot be read.
    pub fn open(folder: &Path) -> Result<Self> {
        // A link such as `latest` is called by what it means now.
        let real = fs::read_link(folder);
        let named = real.as_deref().unwrap_or(folder);
        let name =
            named.file_name().map_or_else(|| folder.display().to_string(), |n| n.to_string_lossy().into());
        let runs = runs_in(folder)?.into_iter().map(|run| Ok(figures::figures(&read_run(&run)?)));
        Ok(Self { name, runs: runs.collect::<Result<_>>()? })
    }

    /// One run, from the content of its `run.json`. Fails with [`ErrorKind::Invalid`](rotproof_block::ErrorKind) if that is none.
    pub fn of_run(name: &str, content: &[u8]) -> Result<Self> {
        let runs = vec![figures::figures(&parse_run(content, &format!("`{name}`"))?)];
        Ok(Self { name: name.to_owned(), runs })
    }

    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// The figures that all runs have, in the order of the first.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let Some(first) = self.runs.first() else { return Vec::new() };
        let shared = first.keys().filter(|figure| self.runs.iter().all(|run| value(run, figure).is_some()));
        shared.cloned().collect()
    }

    /// The values of one figure, one for each run.
    pub(super) fn values(&self, figure: &Figure) -> Vec<f64> {
        self.runs.iter().filter_map(|run| value(run, figure)).collect()
    }
}

/// By name: where it stands among the others may differ.
fn value(run: &BTreeMap<Figure, f64>, figure: &Figure) -> Option<f64> {
    run.iter().find(|(known, _)| known.name == figure.name).map(|(_, value)| *value)
}
