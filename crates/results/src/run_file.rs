//! `run.json`: what a run, or a load without a trial, says that it found. Everybody who reads one reads it here.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::FORMAT;
use crate::run::Run;

/// The file in a results folder.
pub const RUN_FILE: &str = "run.json";

/// What tells which form and which kind of run it is.
#[derive(Deserialize)]
struct Head {
    format: Option<Value>,
    rotproof: Option<String>,
    explored: Option<IgnoredAny>,
    target: Option<IgnoredAny>,
    subject: Option<IgnoredAny>,
}

/// What the run in `folder` says. Fails with [`ErrorKind::Missing`] if there is none, [`ErrorKind::Invalid`] if it is none of ours
/// or of a form that this program does not know.
pub fn read_run(folder: &Path) -> Result<Run> {
    let path = folder.join(RUN_FILE);
    let content = fs::read(&path).doing(|| format!("reading {}", path.display()))?;
    parse_run(&content, &path.display().to_string())
}

/// The same from the content of a file that the reader knows as `called`.
pub fn parse_run(content: &[u8], called: &str) -> Result<Run> {
    let is_none = |error: serde_json::Error| {
        Error::new(ErrorKind::Invalid, format!("{called} is not what a run writes")).caused_by(error)
    };
    let head: Head = serde_json::from_slice(content).map_err(is_none)?;
    match &head.format {
        // Loads without a trial have not always said it.
        None => {}
        Some(format) if format.as_u64().is_some_and(|form| (1..=FORMAT.into()).contains(&form)) => {}
        Some(format) => {
            let by = head.rotproof.map_or_else(String::new, |version| format!(", by version {version}"));
            let context = format!(
                "{called} was written in form {format}{by}; this program reads forms 1 to {FORMAT}: read it with the version that wrote \
                 it, or run the trial again"
            );
            return Err(Error::new(ErrorKind::Invalid, context));
        }
    }
    let run = match head {
        Head { explored: Some(_), .. } => serde_json::from_slice(content).map(Run::Crash),
        Head { target: Some(_), subject: None, .. } => serde_json::from_slice(content).map(Run::Load),
        _ => serde_json::from_slice(content).map(Run::Trial),
    };
    run.map_err(is_none)
}

/// Writes what a run found into its folder, where there is none yet.
pub fn write_run(folder: &Path, run: &impl Serialize) -> Result<()> {
    let path = folder.join(RUN_FILE);
    let doing = || format!("writing {}", path.display());
    let mut text = serde_json::to_vec_pretty(run)
        .map_err(|error| Error::new(ErrorKind::Internal, doing()).caused_by(error))?;
    text.push(b'\n');
    fs::File::create_new(&path).and_then(|mut file| file.write_all(&text)).doing(doing)
}

/// The folders of the runs in `folder`: that itself, or those directly in it, by name. Runs that are not whole and links to others
/// are none. Fails with [`ErrorKind::Missing`] if there is no run.
pub fn runs_in(folder: &Path) -> Result<Vec<PathBuf>> {
    if folder.join(RUN_FILE).is_file() {
        return Ok(vec![folder.to_owned()]);
    }
    if !folder.is_dir() {
        let message = format!(
            "there is no folder {}; name one that `rotproof run` has written, such as results/latest",
            folder.display()
        );
        return Err(Error::new(ErrorKind::Missing, message));
    }
    let mut runs = Vec::new();
    for entry in fs::read_dir(folder).doing(|| format!("opening {}", folder.display()))? {
        let entry = entry.doing(|| format!("reading {}", folder.display()))?;
        // One that is hidden is not whole; the link to the latest of them is none of its own.
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        let path = entry.path();
        if !is_hidden && !is_link && path.join(RUN_FILE).is_file() {
            runs.push(path);
        }
    }
    if runs.is_empty() {
        let message =
            format!("{} holds no run; give the folder of one, or of a repeated trial", folder.display());
        return Err(Error::new(ErrorKind::Missing, message));
    }
    runs.sort();
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_that_is_not_known_is_refused_with_the_version_that_wrote_it() {
        let refused = |content: &str| {
            let error = parse_run(content.as_bytes(), "a/run.json").expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Invalid);
            error.to_string()
        };
        let newer = refused(r#"{ "format": 3, "rotproof": "9.1.0" }"#);
        assert!(
            newer.starts_with(
                "a/run.json was written in form 3, by version 9.1.0; this program reads forms 1 to 2"
            ),
            "{newer}"
        );
        assert!(refused(r#"{ "format": "two" }"#).contains("form \"two\";"));
        assert!(refused("{").starts_with("a/run.json is not what a run writes"));
        for known in [r#"{ "format": 2 }"#, r#"{ "format": 1 }"#, r#"{ "seed": 3 }"#] {
            parse_run(known.as_bytes(), "a").unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn the_words_of_the_first_form_are_still_read() {
        let run = parse_run(br#"{ "format": 1, "counts": { "hits": 7 } }"#, "a").expect("read");
        let Run::Trial(run) = run else { panic!("a trial") };
        assert_eq!(run.counts.injections, 7);
        let cause: crate::run::CauseRecord = serde_json::from_str(r#"{ "hit": 3 }"#).expect("a cause");
        assert_eq!(cause, crate::run::CauseRecord::Injection(3));
    }

    #[test]
    fn the_runs_of_a_folder_are_the_whole_ones_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(runs_in(folder.path()).expect_err("no run").kind(), ErrorKind::Missing);
        for name in ["b", "a", ".c.partial", "none"] {
            fs::create_dir(folder.path().join(name)).expect("made");
            if name != "none" {
                fs::write(folder.path().join(name).join(RUN_FILE), "{}").expect("written");
            }
        }
        std::os::unix::fs::symlink("a", folder.path().join("latest")).expect("linked");
        let runs = runs_in(folder.path()).expect("two");
        assert_eq!(runs, [folder.path().join("a"), folder.path().join("b")]);
        assert_eq!(runs_in(&runs[1]).expect("one"), runs[1..]);
        let error = runs_in(&folder.path().join("gone")).expect_err("no folder");
        assert!(error.to_string().contains("there is no folder"), "{error}");
    }
}
