//! The runs of one set-up, read from their folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use serde_json::Value;

use super::figures::{self, Figure};

/// One set-up and the figures of its runs.
#[derive(Clone, Debug)]
pub struct SetUp {
    /// How it is called: as its folder.
    pub name: String,
    runs: Vec<BTreeMap<Figure, f64>>,
}

impl SetUp {
    /// Reads the folder of one run, or one with the folders of several in it. Fails with [`ErrorKind::Missing`] if there
    /// is no run, and with [`ErrorKind::Invalid`] if one cannot be read.
    pub fn open(folder: &Path) -> Result<Self> {
        // A link such as `latest` is called by what it means now.
        let real = fs::read_link(folder);
        let named = real.as_deref().unwrap_or(folder);
        let name =
            named.file_name().map_or_else(|| folder.display().to_string(), |n| n.to_string_lossy().into());
        if folder.join("run.json").is_file() {
            return Ok(Self { name, runs: vec![read(folder)?] });
        }
        if !folder.is_dir() {
            let message = format!(
                "there is no folder {}; name one that `rotproof run` has written, such as results/latest",
                folder.display()
            );
            return Err(Error::new(ErrorKind::Missing, message));
        }
        let mut folders = Vec::new();
        for entry in fs::read_dir(folder).doing(|| format!("opening {}", folder.display()))? {
            let entry = entry.doing(|| format!("reading {}", folder.display()))?;
            // The link to the latest of them is none of its own.
            if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                continue;
            }
            let path = entry.path();
            // One that is hidden is not whole.
            let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if !is_hidden && path.join("run.json").is_file() {
                folders.push(path);
            }
        }
        if folders.is_empty() {
            let message =
                format!("{} holds no run; give the folder of one, or of a repeated trial", folder.display());
            return Err(Error::new(ErrorKind::Missing, message));
        }
        folders.sort();
        Ok(Self { name, runs: folders.iter().map(|path| read(path)).collect::<Result<_>>()? })
    }

    /// One run, from the content of its `run.json`. Fails with [`ErrorKind::Invalid`] if that is none.
    pub fn of_run(name: &str, content: &[u8]) -> Result<Self> {
        let runs = vec![parse(content, || format!("`{name}` is no result of a run"))?];
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

fn read(folder: &Path) -> Result<BTreeMap<Figure, f64>> {
    let path = folder.join("run.json");
    let text = fs::read(&path).doing(|| format!("reading {}", path.display()))?;
    parse(&text, || format!("{} is no result of a run", path.display()))
}

fn parse(content: &[u8], complaint: impl FnOnce() -> String) -> Result<BTreeMap<Figure, f64>> {
    let run: Value = serde_json::from_slice(content)
        .map_err(|error| Error::new(ErrorKind::Invalid, complaint()).caused_by(error))?;
    Ok(figures::figures(&run))
}
