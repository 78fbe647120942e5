//! LMDB, by its own tools: `mdb_load` puts, `mdb_dump` reads, `mdb_stat` counts, `mdb_copy` copies.
//!
//! They have no way to remove a key, nor to ask for one. What comes nearest to the latter is `mdb_load -N`, which looks each key up and leaves it
//! as it is if it is there.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_kinds::Plain;

use super::desk::{Files, Place};
use super::engine::{Bench, Engine, Sets, succeeded};
use super::program::{self, Ran, missing};
use super::rows::{LOOKED_UP, Rows, Step, body, changes, first_half, latest, name, second_half, some_again};
use crate::operation::Operation;

const PACKAGE: &str = "lmdb-utils";
/// The environment in its folder, and what it is copied to.
const DATABASE: &str = "rows.mdb";
const COPY: &str = "copy.mdb";
/// The database in it that has the rows.
const NAME: &str = "item";
/// The two metas.
const METAS_BYTES: u64 = 2 * 4096;

/// See the head of the module.
pub(crate) struct Lmdb;

/// Who answers, such as `LMDB 0.9.24`.
pub(crate) fn version() -> Result<String> {
    let output = Command::new("mdb_stat").arg("-V").stdin(Stdio::null()).output();
    let output = output.map_err(missing("mdb_stat", PACKAGE))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = text.strip_prefix("LMDB ").and_then(|rest| rest.split([':', ' ']).next());
    number
        .map(|number| format!("LMDB {number}"))
        .ok_or_else(|| Error::new(ErrorKind::Missing, "mdb_stat does not say its version"))
}

fn database(bench: &Bench) -> PathBuf {
    bench.folder.path().join(DATABASE)
}

fn run(bench: &Bench, program: &str, options: &[&str], paths: &[&str], input: &str) -> Result<Ran> {
    let mut command = Command::new(program);
    command.arg("-n").args(options).env("LC_ALL", "C");
    command.args(paths.iter().map(|name| bench.folder.path().join(name)));
    program::run(command, PACKAGE, &database(bench), input)
}

/// Rows as `mdb_load` takes them.
fn loaded(rows: impl Iterator<Item = (u64, u64)>) -> String {
    const HEAD: &str = "VERSION=3\nformat=print\ntype=btree\nmapsize=16777216\nmaxreaders=126\nHEADER=END\n";
    let mut text = HEAD.to_owned();
    for (id, version) in rows {
        text += &row(id, version);
    }
    text + "DATA=END\n"
}

/// A key, which an update does not change, and its value.
fn row(id: u64, version: u64) -> String {
    format!(" {}\n {}\n", name(id, 0), body(id, version))
}

/// What can be done with these tools.
fn puts(steps: &[Step]) -> Vec<Step> {
    steps.iter().copied().filter(|step| !matches!(step, Step::Delete(_))).collect()
}

/// One transaction, if it has less than the hundred rows after which `mdb_load` begins another.
fn put(bench: &Bench, steps: &[Step]) -> Result<Ran> {
    let pairs = steps.iter().filter_map(|step| match *step {
        Step::Insert(id, version) | Step::Update(id, version) => Some((id, version)),
        Step::Delete(_) => None,
    });
    run(bench, "mdb_load", &["-s", NAME], &[DATABASE], &loaded(pairs))
}

/// All keys and values.
fn dump(bench: &Bench, file: &str) -> Result<Ran> {
    let ran = run(bench, "mdb_dump", &["-p", "-s", NAME], &[file], "")?;
    Ok(kept(ran, |line| line.starts_with(' ') || line == "DATA=END"))
}

/// Only some lines of an answer.
fn kept(mut ran: Ran, is_kept: impl Fn(&str) -> bool) -> Ran {
    let lines = ran.answer.lines().filter(|line| is_kept(line));
    ran.answer = lines.fold(String::new(), |mut text, line| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
        text
    });
    ran
}

/// Copies it, and reads the copy: one that cannot be read is a wrong answer of who has made it.
fn copy(bench: &Bench, options: &[&str]) -> Result<Ran> {
    let made = run(bench, "mdb_copy", options, &[DATABASE, COPY], "")?;
    if made.code != Some(0) {
        return Ok(made);
    }
    let read = dump(bench, COPY)?;
    let answer = match read.code {
        Some(0) if read.halt.is_none() => read.answer,
        _ => "a copy that cannot be read".into(),
    };
    Ok(Ran { answer, ..made })
}

impl Engine for Lmdb {
    fn make(&self, bench: &Bench) -> Result<Sets> {
        let mut rows = Rows::default();
        bench.desk.show(&Files::new());
        let mut write = |steps: &[Step]| -> Result<()> {
            let steps = puts(steps);
            rows.apply(&steps);
            put(bench, &steps).and_then(succeeded).map(|_| ())
        };
        write(&first_half())?;
        write(&some_again())?;
        let early = bench.files();
        write(&second_half())?;
        latest().iter().try_for_each(|steps| write(steps))?;
        let (clean, clean_rows) = (bench.files(), rows);
        bench.desk.show(&clean);
        let figures = succeeded(run(bench, "mdb_stat", &["-e", "-f", "-a"], &[DATABASE], "")?)?;
        // The power is cut when a transaction has written all its pages, and not yet the meta that makes it count.
        bench.desk.show(&clean);
        bench.desk.cut_before(Place { file: DATABASE.into(), bytes: 0..METAS_BYTES });
        put(bench, &changes(Operation::Update)).and_then(succeeded)?;
        let mut crashed = bench.desk.cut_off().ok_or_else(|| {
            Error::new(ErrorKind::Internal, "a transaction of LMDB has written none of its metas")
        })?;
        crashed.retain(|name, _| !self.is_passing(name));
        Ok(Sets { early, clean, clean_rows: clean_rows.clone(), crashed, crashed_rows: clean_rows, figures })
    }

    fn perform(&self, bench: &Bench, operation: Operation, rows: &Rows) -> Result<Ran> {
        match operation {
            Operation::Open => run(bench, "mdb_dump", &["-l"], &[DATABASE], ""),
            Operation::Recover => {
                let ran = run(bench, "mdb_stat", &["-s", NAME], &[DATABASE], "")?;
                Ok(kept(ran, |line| line.trim_start().starts_with("Entries:")))
            }
            Operation::Get => {
                let pairs = LOOKED_UP.into_iter().filter_map(|id| rows.get(id));
                run(bench, "mdb_load", &["-N", "-s", NAME], &[DATABASE], &loaded(pairs))
            }
            Operation::Select => dump(bench, DATABASE),
            Operation::Stat => run(bench, "mdb_stat", &["-e", "-f", "-a"], &[DATABASE], ""),
            Operation::Copy => copy(bench, &[]),
            Operation::Compact => copy(bench, &["-c"]),
            _ => put(bench, &changes(operation)),
        }
    }

    fn expected(&self, sets: &Sets, operation: Operation, rows: &Rows) -> String {
        match operation {
            Operation::Open => format!("{NAME}\n"),
            Operation::Recover => format!("  Entries: {}\n", rows.count()),
            Operation::Select | Operation::Copy | Operation::Compact => self.all(rows),
            Operation::Stat => sets.figures.clone(),
            _ => String::new(),
        }
    }

    fn look(&self, bench: &Bench) -> Result<Ran> {
        dump(bench, DATABASE)
    }

    /// By their keys, as they are stored.
    fn all(&self, rows: &Rows) -> String {
        let mut lines: Vec<String> = rows.each().map(|(id, version)| row(id, version)).collect();
        lines.sort_unstable();
        lines.concat() + "DATA=END\n"
    }

    fn is_passing(&self, name: &str) -> bool {
        name != DATABASE
    }

    /// All of them: it reads through a mapping.
    fn is_mapped(&self, _: &str) -> bool {
        true
    }

    fn victim(&self) -> Plain {
        Plain::LmdbLeaf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_their_keys_and_an_update_keeps_the_key() {
        let mut rows = Rows::default();
        rows.apply(&puts(&second_half()));
        let before = Lmdb.all(&rows);
        let keys: Vec<&str> = before.lines().step_by(2).filter(|line| line.starts_with(' ')).collect();
        assert_eq!(keys.len(), rows.count());
        assert!(keys.is_sorted());
        rows.apply(&[Step::Update(2, 9)]);
        let after = Lmdb.all(&rows);
        assert_ne!(before, after);
        assert_eq!(before.lines().count(), after.lines().count());
        assert_eq!(puts(&[Step::Delete(1)]), []);
    }
}
