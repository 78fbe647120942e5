//! SQLite, by the program `sqlite3`.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_kinds::Plain;

use super::desk::Files;
use super::engine::{Bench, Engine, Sets, succeeded};
use super::program::{self, Ran, missing};
use super::rows::{LOOKED_UP, Rows, Step, body, changes, first_half, latest, name, second_half, some_again};
use crate::operation::Operation;

const PACKAGE: &str = "sqlite3";
/// The database in its folder.
const DATABASE: &str = "rows.db";

/// The table and its index.
const SCHEMA: &str = "PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL;
CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX item_name ON item(name);
";

/// A transaction that is cut off by the crash: larger than the cache that it is done with.
const CUT_OFF: &str =
    "PRAGMA cache_size = 5; BEGIN; UPDATE item SET body = body || 'z' WHERE id % 3 = 0; SELECT 'there';\n";

/// What has all rows handed out, by the table and by the index.
const LOOK: &str = "SELECT id, name, body FROM item NOT INDEXED ORDER BY id;
SELECT name, id FROM item INDEXED BY item_name ORDER BY name;
";

/// With one of its two kinds of journal.
pub(crate) struct Sqlite {
    pub(crate) is_wal: bool,
}

/// Who answers, such as `SQLite 3.40.1`.
pub(crate) fn version() -> Result<String> {
    let output = Command::new("sqlite3").arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(missing("sqlite3", PACKAGE))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = text.split_whitespace().next();
    number
        .map(|number| format!("SQLite {number}"))
        .ok_or_else(|| Error::new(ErrorKind::Missing, "sqlite3 does not say its version"))
}

fn database(bench: &Bench) -> PathBuf {
    bench.folder.path().join(DATABASE)
}

/// The program on a database.
fn command(database: &Path) -> Command {
    let mut command = Command::new("sqlite3");
    // Nobody's settings.
    command
        .args(["-batch", "-bail", "-init", "/dev/null"])
        .arg(database)
        .env("LC_ALL", "C")
        .env_remove("HOME");
    command
}

fn statement(step: Step) -> String {
    match step {
        Step::Insert(id, version) => {
            format!("INSERT INTO item VALUES({id}, '{}', '{}');\n", name(id, version), body(id, version))
        }
        Step::Update(id, version) => format!(
            "UPDATE item SET name = '{}', body = '{}' WHERE id = {id};\n",
            name(id, version),
            body(id, version)
        ),
        Step::Delete(id) => format!("DELETE FROM item WHERE id = {id};\n"),
    }
}

/// One transaction.
fn transaction(steps: &[Step]) -> String {
    format!("BEGIN;\n{}COMMIT;\n", steps.iter().copied().map(statement).collect::<String>())
}

impl Sqlite {
    /// A script with its log among its words. With a write-ahead log the program leaves that as it is when it ends.
    fn whole(&self, script: &str) -> String {
        let keep = if self.is_wal { ".dbconfig no_ckpt_on_close on\n" } else { "" };
        format!(".log stderr\n{keep}{script}")
    }

    fn run(&self, bench: &Bench, script: &str) -> Result<Ran> {
        let database = database(bench);
        let mut ran = program::run(command(&database), PACKAGE, &database, &self.whole(script))?;
        let kept = |line: &&str| line.split_whitespace().next() != Some("no_ckpt_on_close");
        let lines: Vec<&str> = ran.answer.lines().filter(kept).collect();
        ran.answer = lines.iter().fold(String::new(), |mut text, line| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
            text
        });
        Ok(ran)
    }

    /// Runs a script until it has answered a line, looks at the files, and ends the program without a word.
    fn cut_off(&self, bench: &Bench) -> Result<Files> {
        let doing = || "running sqlite3 until it is cut off".to_owned();
        let mut child = command(&database(bench))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(missing("sqlite3", PACKAGE))?;
        let done = (|| {
            let (Some(input), Some(output)) = (child.stdin.as_mut(), child.stdout.as_mut()) else {
                return Err(Error::new(ErrorKind::Internal, "sqlite3 has no pipes"));
            };
            input.write_all(self.whole(CUT_OFF).as_bytes()).and_then(|()| input.flush()).doing(doing)?;
            let mut lines = BufReader::new(output).lines();
            loop {
                match lines.next() {
                    Some(Ok(line)) if line == "there" => return Ok(bench.files()),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(Error::from_io(error, doing())),
                    None => {
                        return Err(Error::new(ErrorKind::Internal, "sqlite3 ended before it was cut off"));
                    }
                }
            }
        })();
        child.kill().and_then(|()| child.wait().map(|_| ())).doing(doing)?;
        done
    }

    fn script(&self, operation: Operation, rows: &Rows) -> String {
        match operation {
            Operation::Open => "SELECT name FROM sqlite_schema ORDER BY name;\n".into(),
            Operation::Recover => "SELECT count(*) FROM item NOT INDEXED;\n".into(),
            Operation::Select => "SELECT id, name, body FROM item NOT INDEXED ORDER BY id;\n".into(),
            Operation::IndexLookup => {
                let ask = |(id, version)| {
                    let name = name(id, version);
                    format!("SELECT id, name, body FROM item INDEXED BY item_name WHERE name = '{name}';\n")
                };
                LOOKED_UP.into_iter().filter_map(|id| rows.get(id)).map(ask).collect()
            }
            Operation::IntegrityCheck => "PRAGMA integrity_check;\n".into(),
            Operation::Vacuum => "VACUUM;\n".into(),
            Operation::Checkpoint => "PRAGMA wal_checkpoint(TRUNCATE);\n".into(),
            _ => transaction(&changes(operation)),
        }
    }
}

impl Engine for Sqlite {
    fn make(&self, bench: &Bench) -> Result<Sets> {
        let mut rows = Rows::default();
        bench.desk.show(&Files::new());
        let must = |script: &str| self.run(bench, script).and_then(succeeded).map(|_| ());
        let mut write = |steps: &[_]| -> Result<()> {
            rows.apply(steps);
            must(&transaction(steps))
        };
        must(SCHEMA)?;
        if self.is_wal {
            must("PRAGMA journal_mode = wal;\n")?;
        }
        // What was written so far goes into the database, and the log begins anew.
        let settle = || if self.is_wal { must("PRAGMA wal_checkpoint(TRUNCATE);\n") } else { Ok(()) };
        write(&first_half())?;
        settle()?;
        write(&some_again())?;
        let early = bench.files();
        settle()?;
        write(&second_half())?;
        settle()?;
        if self.is_wal {
            latest().iter().try_for_each(|steps| write(steps))?;
        }
        let (clean, clean_rows) = (bench.files(), rows.clone());
        let late = changes(Operation::Update);
        must(&transaction(&late))?;
        rows.apply(&late);
        let crashed = self.cut_off(bench)?;
        Ok(Sets { early, clean, clean_rows, crashed, crashed_rows: rows, figures: String::new() })
    }

    fn perform(&self, bench: &Bench, operation: Operation, rows: &Rows) -> Result<Ran> {
        self.run(bench, &self.script(operation, rows))
    }

    fn expected(&self, _: &Sets, operation: Operation, rows: &Rows) -> String {
        match operation {
            Operation::Open => "item\nitem_name\n".into(),
            Operation::Recover => format!("{}\n", rows.count()),
            Operation::Select => rows.lines(rows.ids()).collect(),
            Operation::IndexLookup => rows.lines(LOOKED_UP).collect(),
            Operation::IntegrityCheck => "ok\n".into(),
            Operation::Checkpoint => "0|0|0\n".into(),
            _ => String::new(),
        }
    }

    fn look(&self, bench: &Bench) -> Result<Ran> {
        self.run(bench, LOOK)
    }

    fn all(&self, rows: &Rows) -> String {
        rows.both_ways()
    }

    fn is_passing(&self, name: &str) -> bool {
        name.ends_with("-shm")
    }

    fn is_mapped(&self, name: &str) -> bool {
        name.ends_with("-shm")
    }

    fn victim(&self) -> Plain {
        Plain::TableLeaf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_for_is_there_to_be_found_and_changes_show() {
        let sqlite = Sqlite { is_wal: true };
        let mut rows = Rows::default();
        rows.apply(&first_half());
        rows.apply(&second_half());
        assert_eq!(rows.lines(LOOKED_UP).count(), LOOKED_UP.len());
        assert_eq!(sqlite.script(Operation::IndexLookup, &rows).lines().count(), LOOKED_UP.len());
        for operation in [Operation::Insert, Operation::Update, Operation::Delete] {
            let mut changed = rows.clone();
            changed.apply(&changes(operation));
            assert_ne!(sqlite.all(&changed), sqlite.all(&rows));
        }
    }
}
