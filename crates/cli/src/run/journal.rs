//! Which cells of a matrix have a verdict already, so that a command that was stopped can go on (`--resume`).
//!
//! `matrix.jsonl` in the folder of the results has a line for each cell that came to a verdict: a hash of all that its
//! trial says and of the program's version, the verdict, and the folder. A cell counts as done only where that hash is
//! the same and the folder still holds that verdict.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::hash::ContentHash;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_results::read_run;
use rotproof_results::run::Run;
use rotproof_trial::file::TrialFile;
use serde::{Deserialize, Serialize};

use super::outcome::{Outcome, Word};
use crate::exit::Exit;

/// A cell with a verdict.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
    /// [`key_of`] its trial.
    key: String,
    verdict: String,
    /// What was not met.
    #[serde(default)]
    why: String,
    seconds: f64,
    /// The name of its folder, beside the journal.
    results: String,
}

/// What is known of earlier commands, and where new lines go.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    known: Vec<Line>,
}

/// What tells one cell from another: all that its trial says, and which program would run it.
pub fn key_of(trial: &TrialFile) -> Result<String> {
    let text = format!("{}\n{}", crate::version::LONG, trial.to_yaml()?);
    Ok(ContentHash::of(text.as_bytes()).to_string())
}

impl Journal {
    /// That of this folder of results; one that is not there is empty. Without `resume` nothing counts as known.
    pub fn open(folder: &Path, resume: bool) -> Result<Self> {
        let path = folder.join("matrix.jsonl");
        let mut known = Vec::new();
        match File::open(&path) {
            Ok(file) if resume => {
                for line in BufReader::new(file).lines() {
                    let line = line.doing(|| format!("reading {}", path.display()))?;
                    // A run that was killed may have left half a line; that cell is run once more.
                    known.extend(serde_json::from_str::<Line>(&line));
                }
            }
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::from_io(error, format!("reading {}", path.display()))),
        }
        Ok(Self { folder: folder.to_owned(), known })
    }

    /// What came of this cell before, if that is still there.
    pub fn find(&self, key: &str) -> Option<Outcome> {
        let line = self.known.iter().rev().find(|line| line.key == key)?;
        // A name, not a way out of the folder.
        let is_name = Path::new(&line.results).file_name().is_some_and(|name| *name == *line.results);
        let folder = self.folder.join(&line.results);
        let Some(Run::Trial(run)) = is_name.then(|| read_run(&folder).ok()).flatten() else { return None };
        if run.verdict.word() != line.verdict {
            return None;
        }
        let (word, exit) = match line.verdict.as_str() {
            "pass" => (Word::Pass, Exit::Pass),
            "fail" => (Word::Fail, Exit::VerdictFailed),
            _ => return None,
        };
        Some(Outcome {
            exit,
            why: line.why.clone(),
            json: serde_json::to_value(&run).ok()?,
            folder: Some(folder),
            seconds: line.seconds,
            is_from_before: true,
            ..Outcome::of_word(word)
        })
    }

    /// Keeps what came of a cell; only a verdict counts.
    pub fn keep(&self, key: &str, outcome: &Outcome) -> Result<()> {
        let verdict = match outcome.word {
            Word::Pass => "pass",
            Word::Fail => "fail",
            _ => return Ok(()),
        };
        let Some(name) = outcome.folder.as_deref().and_then(Path::file_name) else { return Ok(()) };
        let line = Line {
            key: key.to_owned(),
            verdict: verdict.to_owned(),
            why: outcome.why.clone(),
            seconds: outcome.seconds,
            results: name.to_string_lossy().into_owned(),
        };
        let text = serde_json::to_string(&line).map_err(|error| {
            Error::new(ErrorKind::Internal, "writing a line of a journal").caused_by(error)
        })?;
        let path = self.folder.join("matrix.jsonl");
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .doing(|| format!("opening {}", path.display()))?;
        // In one piece, so that two commands in one folder do not mix their lines.
        file.write_all(format!("{text}\n").as_bytes()).doing(|| format!("writing {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cell_is_known_as_long_as_its_results_say_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let results = folder.path().join("t-1-0");
        std::fs::create_dir(&results).expect("made");
        let verdict = |word: &str| {
            std::fs::write(results.join("run.json"), json!({ "verdict": word }).to_string())
                .expect("written");
        };
        verdict("pass");
        let journal = Journal::open(folder.path(), true).expect("none yet");
        assert!(journal.find("a").is_none());
        let outcome = Outcome { folder: Some(results.clone()), seconds: 2.0, ..Outcome::of_word(Word::Pass) };
        journal.keep("a", &outcome).expect("written");
        journal
            .keep("b", &Outcome { folder: Some(results.clone()), ..Outcome::of_word(Word::Error) })
            .expect("nothing");
        OpenOptions::new()
            .append(true)
            .open(folder.path().join("matrix.jsonl"))
            .and_then(|mut file| file.write_all(b"{\"key\":\"c\",\"verd"))
            .expect("half a line");
        let again = Journal::open(folder.path(), true).expect("readable");
        let found = again.find("a").expect("known");
        assert!(found.word == Word::Pass && found.is_from_before && again.find("b").is_none());
        assert!(Journal::open(folder.path(), false).expect("readable").find("a").is_none());
        verdict("fail");
        assert!(again.find("a").is_none(), "somebody has changed it");
        std::fs::remove_dir_all(&results).expect("it was there");
        assert!(again.find("a").is_none(), "its results are gone");
    }
}
