//! What past runs say of detection: their faults and fates, read from folders of results.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_results::run::VerdictWord;
use rotproof_results::{FORMAT, GUEST_ENDS, NO_REMOUNT, runs_in};
use serde::Deserialize;

/// Faults that somebody met, by whether they were noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Reported or repaired.
    pub noticed: u64,
    /// Handed out as if it were right.
    pub silent: u64,
}

/// What came of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Faults that were injected.
    pub faults: u64,
    /// Faults that were noticed, and that were not.
    pub coverage: Coverage,
    /// Blocks that could not be read or written, or a subject that gave up.
    pub failures: u64,
    /// Whether the subject did not come back after the load, or was a guest that panicked, crashed or hung.
    pub is_gone: bool,
    /// What faults in memory made of data, where all faults were there.
    pub of_memory: Option<Corruption>,
}

/// Which corrupt data there was, of faults in the memory of a subject whose device does nothing wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Corruption {
    /// Some was handed out while the load ran.
    pub read: bool,
    /// Some was on the device afterwards: the check reads after all caches were dropped. Of a subject that did not live to write all, only what
    /// cannot come from a write that it never did.
    pub written: bool,
}

/// The runs of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Each with its folder, in the order of their names.
    pub list: Vec<(PathBuf, Run)>,
    /// Runs that are not among them, as they were interrupted: what would have come of them nobody knows.
    pub interrupted: u64,
}

/// Largest `run.json` that is read, in bytes.
const SIZE_MAX: u64 = 256 << 20;

/// The part of `run.json` that matters here.
#[derive(Debug, Deserialize)]
struct RunFile {
    format: u32,
    #[serde(default)]
    verdict: VerdictWord,
    counts: Counts,
    faults: Vec<Rule>,
    #[serde(default)]
    noticed: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Counts {
    failures: u64,
    reported: u64,
    repaired: u64,
    silent: u64,
}

#[derive(Debug, Deserialize)]
struct Rule {
    #[serde(default)]
    rule: String,
    faults: u64,
    fates: Fates,
}

#[derive(Debug, Deserialize)]
struct Fates {
    untriggered: u64,
}

impl Runs {
    /// Reads the run in `folder`, or all runs in the folders directly below it, each once.
    pub fn read(folder: &Path) -> Result<Self> {
        let (mut list, mut interrupted) = (Vec::new(), 0);
        let folders = runs_in(folder).map_err(|error| match folder.is_dir() {
            true => Error::new(
                ErrorKind::Invalid,
                format!(
                    "there is no run in {}; give the folder of a run, which has a run.json, or a folder of such",
                    folder.display()
                ),
            ),
            false => error,
        })?;
        for folder in folders {
            match read_run(&folder)? {
                Some(run) => list.push((folder, run)),
                None => interrupted += 1,
            }
        }
        if list.is_empty() {
            let context = format!("every run in {} was interrupted, so nothing came of it", folder.display());
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        Ok(Self { list, interrupted })
    }

    /// All their faults together.
    pub fn coverage(&self) -> Coverage {
        self.list.iter().fold(Coverage::default(), |sum, (_, run)| Coverage {
            noticed: sum.noticed + run.coverage.noticed,
            silent: sum.silent + run.coverage.silent,
        })
    }
}

/// `None` if it was interrupted.
fn read_run(folder: &Path) -> Result<Option<Run>> {
    let path = folder.join("run.json");
    let size = fs::metadata(&path).doing(|| format!("reading {}", path.display()))?.len();
    let refuse = |why: String| Error::new(ErrorKind::Invalid, format!("{}: {why}", path.display()));
    if size > SIZE_MAX {
        return Err(refuse("larger than any run of ours".into()));
    }
    let text = fs::read(&path).doing(|| format!("reading {}", path.display()))?;
    let Some(mut run) = parse_run(&text).map_err(refuse)? else { return Ok(None) };
    if let Some(corruption) = &mut run.of_memory {
        let path = folder.join("failures.jsonl");
        let refuse = |why: String| Error::new(ErrorKind::Invalid, format!("{}: {why}", path.display()));
        let file = fs::File::open(&path).doing(|| format!("reading {}", path.display()))?;
        for line in BufReader::new(file).lines() {
            let line = line.doing(|| format!("reading {}", path.display()))?;
            corruption.add(&line, run.is_gone).map_err(refuse)?;
        }
    }
    Ok(Some(run))
}

/// The part of a line of `failures.jsonl` that matters here.
#[derive(Debug, Deserialize)]
struct FailureLine {
    ways: Vec<WayLine>,
}

#[derive(Debug, Deserialize)]
struct WayLine {
    phase: String,
    what: WhatLine,
}

#[derive(Debug, Deserialize)]
struct WhatLine {
    kind: String,
}

/// Kinds of failures that an error has told of. All others are corrupt data.
const TOLD: [&str; 4] = ["unreadable", "unwritable", "refused", "unflushed"];

/// The kind that shows after a subject is gone that it had written corrupt data. What it never came to write leaves old content, zeros,
/// other files' blocks, and files that are missing or of another size.
const WRITTEN: &str = "flipped_bits";

impl Corruption {
    fn add(&mut self, line: &str, is_gone: bool) -> Result<(), String> {
        let failure: FailureLine =
            serde_json::from_str(line).map_err(|error| format!("no failure of ours: {error}"))?;
        for way in failure.ways.iter().filter(|way| !TOLD.contains(&way.what.kind.as_str())) {
            match way.phase == "check" {
                true => self.written |= !is_gone || way.what.kind == WRITTEN,
                false => self.read = true,
            }
        }
        Ok(())
    }
}

/// From the content of `run.json`; the error says what is wrong with it.
pub fn parse_run(text: &[u8]) -> Result<Option<Run>, String> {
    let file: RunFile = serde_json::from_slice(text).map_err(|error| format!("no run of ours: {error}"))?;
    if !(1..=FORMAT).contains(&file.format) {
        return Err(format!(
            "format {} where this program reads 1 to {FORMAT}; run the trial again",
            file.format
        ));
    }
    if file.verdict == VerdictWord::Interrupted {
        return Ok(None);
    }
    let is_on_memory = |rule: &Rule| rule.rule.split(", ").any(|condition| condition == "on=memory");
    let ends = |noticed: &String| {
        let is_guest = GUEST_ENDS.iter().any(|end| noticed.contains(end));
        noticed.starts_with(NO_REMOUNT) || is_guest
    };
    let of_memory =
        (!file.faults.is_empty() && file.faults.iter().all(is_on_memory)).then(Corruption::default);
    let injected = file.faults.iter().map(|rule| rule.faults.saturating_sub(rule.fates.untriggered));
    Ok(Some(Run {
        faults: injected.fold(0, u64::saturating_add),
        coverage: Coverage {
            noticed: file.counts.reported.saturating_add(file.counts.repaired),
            silent: file.counts.silent,
        },
        failures: file.counts.failures,
        is_gone: file.noticed.iter().any(ends),
        of_memory,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_json(reported: u64, repaired: u64, silent: u64) -> String {
        format!(
            r#"{{"format":{FORMAT},"verdict":"fail","counts":{{"failures":3,"reported":{reported},"repaired":{repaired},"silent":{silent}}},
            "faults":[{{"name":"a","faults":17,"fates":{{"untriggered":1}}}}]}}"#
        )
    }

    #[test]
    fn the_runs_of_a_folder_are_added_up() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, silent) in [("b", 2), ("a", 0)] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
            fs::write(folder.path().join(name).join("run.json"), run_json(3, 4, silent)).expect("written");
        }
        fs::create_dir(folder.path().join("other")).expect("a folder");
        let runs = Runs::read(folder.path()).expect("runs");
        assert_eq!(runs.list.len(), 2);
        assert!(runs.list[0].0.ends_with("a"));
        assert_eq!(runs.list[0].1.faults, 16);
        assert_eq!(runs.coverage(), Coverage { noticed: 14, silent: 2 });
        assert_eq!(Runs::read(&folder.path().join("b")).expect("a run").coverage().silent, 2);
    }

    #[test]
    fn a_run_counts_once_and_one_that_was_interrupted_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str, run: &str| {
            fs::create_dir(folder.path().join(name)).expect("a folder");
            fs::write(folder.path().join(name).join("run.json"), run).expect("written");
        };
        let interrupted = run_json(0, 0, 0).replace("\"fail\"", "\"interrupted\"");
        put("b", &interrupted);
        let error = Runs::read(folder.path()).expect_err("nothing came of it");
        assert!(error.to_string().contains("was interrupted"), "{error}");
        put("a", &run_json(3, 4, 2));
        std::os::unix::fs::symlink("a", folder.path().join("latest")).expect("linked");
        let runs = Runs::read(folder.path()).expect("runs");
        assert_eq!((runs.list.len(), runs.interrupted, runs.coverage().silent), (1, 1, 2));
    }

    #[test]
    fn faults_in_memory_are_told_by_who_got_the_corrupt_data() {
        let folder = tempfile::tempdir().expect("a folder");
        let on_memory = r#""rule":"name=rot, on=memory, places=16, at=1s: bit_flip(random)","faults":16"#;
        let run = run_json(0, 0, 2).replace("\"faults\":17", on_memory);
        fs::write(folder.path().join("run.json"), &run).expect("written");
        let of = |lines: &str| {
            fs::write(folder.path().join("failures.jsonl"), lines).expect("written");
            Runs::read(folder.path()).expect("a run").list[0].1.of_memory.expect("of memory")
        };
        let line = |phase: &str, kind: &str| {
            format!("{{\"ways\":[{{\"phase\":\"{phase}\",\"what\":{{\"kind\":\"{kind}\"}}}}]}}\n")
        };
        let told = line("run", "unreadable") + &line("check", "refused") + &line("check", "unflushed");
        assert_eq!(of(&told), Corruption::default());
        let read = told.clone() + &line("run", "flipped_bits");
        assert_eq!(of(&read), Corruption { read: true, written: false });
        let both = read + &line("check", "wrong_size");
        assert_eq!(of(&both), Corruption { read: true, written: true });
        // What a guest that is gone never wrote is not what it wrote wrong.
        let gone =
            run.replacen('{', &format!("{{\"noticed\":[\"unmount: {}: Segfault\"],", GUEST_ENDS[0]), 1);
        fs::write(folder.path().join("run.json"), gone).expect("written");
        let unwritten = ["stale", "zeroed", "lost", "wrong_size", "torn", "misdirected"];
        let unwritten: String = unwritten.into_iter().map(|kind| line("check", kind)).collect();
        assert_eq!(of(&unwritten), Corruption::default());
        assert!(of(&(unwritten + &line("check", "flipped_bits"))).written);
        fs::write(folder.path().join("failures.jsonl"), "{}").expect("written");
        assert!(
            Runs::read(folder.path()).expect_err("no failure").to_string().contains("no failure of ours")
        );
        // Of faults elsewhere nobody can say who made the data corrupt.
        fs::write(folder.path().join("run.json"), run_json(0, 0, 2)).expect("written");
        assert_eq!(Runs::read(folder.path()).expect("a run").list[0].1.of_memory, None);
    }

    #[test]
    fn a_subject_that_did_not_come_back_is_known_by_what_it_noticed() {
        let noticed = |what: &str| {
            let text = run_json(0, 0, 0).replacen('{', &format!("{{\"noticed\":[\"{what}\"],"), 1);
            parse_run(text.as_bytes()).expect("a run").expect("whole").is_gone
        };
        assert!(noticed(&format!("{NO_REMOUNT}: structure needs cleaning")));
        assert!(noticed(&format!("unmount: {}: Segfault", GUEST_ENDS[0])));
        assert!(!noticed("unmount: input/output error"));
        assert!(!parse_run(run_json(0, 0, 0).as_bytes()).expect("a run").expect("whole").is_gone);
    }

    #[test]
    fn what_is_no_run_is_refused_with_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = |folder: &Path| Runs::read(folder).expect_err("no run").to_string();
        assert!(refused(folder.path()).contains("there is no run in"));
        fs::write(folder.path().join("run.json"), "{}").expect("written");
        assert!(refused(folder.path()).contains("run.json: no run of ours"));
        fs::write(
            folder.path().join("run.json"),
            run_json(0, 0, 0).replace(&format!("\"format\":{FORMAT}"), "\"format\":99"),
        )
        .expect("written");
        assert!(refused(folder.path()).contains("format 99"));
        assert!(refused(&folder.path().join("nowhere")).contains("there is no folder"));
    }
}
