//! How many of the job files below a folder can be imported, and why the others cannot.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rotproof_block::{Error, Result};
use rotproof_import::Format;
use serde_json::{Value, json};

use crate::output::Paint;
use crate::table::{Align, Table};
use crate::units;

/// Folders within folders that are looked into.
const DEPTH_MAX: usize = 16;

/// What was found.
pub struct Survey {
    folder: String,
    imported: Vec<String>,
    /// By file, what is said of it.
    refused: BTreeMap<String, BTreeSet<String>>,
}

/// Tries every file whose name ends with `.fio`. Fails if the folder cannot be read.
pub fn survey(folder: &Path, format: Option<Format>) -> Result<Survey> {
    let mut files = Vec::new();
    collect(folder, DEPTH_MAX, &mut files)?;
    files.sort();
    let mut survey =
        Survey { folder: folder.display().to_string(), imported: Vec::new(), refused: BTreeMap::new() };
    for path in files {
        let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        match rotproof_import::open(&path, Some(format.unwrap_or(Format::Fio))) {
            Ok(_) => survey.imported.push(name),
            Err(mistakes) => {
                survey
                    .refused
                    .insert(name, mistakes.list.into_iter().map(|mistake| mistake.message).collect());
            }
        }
    }
    Ok(survey)
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let failed = |error| Error::from_io(error, format!("reading {}", folder.display()));
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let path = entry.path();
        if kind.is_dir() && depth > 0 {
            collect(&path, depth - 1, files)?;
        } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "fio") {
            files.push(path);
        }
    }
    Ok(())
}

impl Survey {
    /// Reasons, each with how many files have it, and how many of those it is the only one of; the most frequent first.
    fn reasons(&self) -> Vec<(&str, u64, u64)> {
        let mut reasons: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for of_file in self.refused.values() {
            for reason in of_file {
                let (files, alone) = reasons.entry(reason).or_default();
                *files += 1;
                *alone += u64::from(of_file.len() == 1);
            }
        }
        let mut reasons: Vec<_> =
            reasons.into_iter().map(|(reason, (files, alone))| (reason, files, alone)).collect();
        reasons.sort_by_key(|(reason, files, _)| (std::cmp::Reverse(*files), *reason));
        reasons
    }

    /// As JSON: the files that can be imported, and those that cannot with all reasons.
    pub fn to_json(&self) -> Value {
        json!({ "folder": self.folder, "imported": self.imported, "refused": self.refused })
    }

    /// For people.
    pub fn render(&self, paint: Paint) -> String {
        let all = self.imported.len() + self.refused.len();
        let mut lines = vec![format!(
            "{} of {} below {} can be imported",
            units::count(self.imported.len() as u64),
            units::counted(all as u64, "job file"),
            self.folder
        )];
        if !self.refused.is_empty() {
            let mut table = Table::new(&[
                ("files", Align::Right),
                ("alone", Align::Right),
                ("what has no counterpart", Align::Left),
            ]);
            for (reason, files, alone) in self.reasons() {
                table.row([units::count(files), units::count(alone), reason.to_owned()]);
            }
            lines.extend([String::new(), table.render(paint)]);
            lines.push(String::new());
            lines
                .push("A file may have several reasons; `alone` counts those with this one only.".to_owned());
        }
        lines.join("\n")
    }
}
