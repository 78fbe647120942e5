//! PostgreSQL, by its program in single-user mode: one process that starts, does what it is told, writes everything down and ends.
//!
//! It refuses to be root, and nobody but root may enter the folders of a run; so it sees its files at `/mnt`, in a mount namespace of its own.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_kinds::{Map, Plain, ReadOptions, read_cluster_files};

use super::desk::Files;
use super::engine::{Bench, Engine, Sets, succeeded};
use super::program::{self, Ran, missing};
use super::rows::{LOOKED_UP, Rows, Step, body, changes, first_half, latest, name, second_half, some_again};
use crate::operation::Operation;

const PACKAGE: &str = "postgresql";
/// Where Debian has the programs of this version.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// How long making a cluster may take: it writes a thousand files.
const MAKING_MAX: Duration = Duration::from_secs(120);
/// What a prompt looks like, which is before whatever is answered.
const PROMPT: &str = "backend> ";

/// The table, its index, and what checks them. Values are not made smaller, so that long ones lie elsewhere.
const SCHEMA: &str = "CREATE EXTENSION amcheck;
CREATE TABLE item(id int PRIMARY KEY, name text NOT NULL, body text NOT NULL);
ALTER TABLE item ALTER body SET STORAGE EXTERNAL;
CREATE INDEX item_name ON item(name);
";

/// Everything is frozen, so that reading leaves no marks in the pages, and written down.
const SETTLED: &str = "VACUUM FREEZE;\nCHECKPOINT;\n";

/// All rows by the table, then all by the index.
const LOOK: &str = "SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SET enable_bitmapscan = off;
COPY (SELECT '~' || id || '|' || name || '|' || body FROM item ORDER BY id) TO STDOUT;
RESET enable_indexscan;
SET enable_seqscan = off;
SET enable_sort = off;
COPY (SELECT '~' || name || '|' || id FROM item ORDER BY name) TO STDOUT;
";

/// With checksums in its pages, or without.
pub(crate) struct Postgres {
    pub(crate) has_checksums: bool,
}

/// Who answers, such as `PostgreSQL 15.18`.
pub(crate) fn version() -> Result<String> {
    let program = format!("{PROGRAMS}/postgres");
    let output = Command::new(&program).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(missing(&program, PACKAGE))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = text.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    number
        .map(|number| format!("PostgreSQL {number}"))
        .ok_or_else(|| Error::new(ErrorKind::Missing, "postgres does not say its version"))
}

/// User and group of the name `postgres`, which the package makes.
fn user_of_package() -> Option<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find_map(|line| line.strip_prefix("postgres:"))?;
    let mut parts = line.split(':').skip(1);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A program of PostgreSQL's on the files of `folder`.
fn command(folder: &Path, program: &str, arguments: &[&str]) -> Command {
    const INSIDE: &str = "mount --bind \"$1\" /mnt && shift && cd /mnt && exec setpriv --reuid postgres --regid postgres --init-groups \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", INSIDE, "sh"])
        .arg(folder)
        .arg(format!("{PROGRAMS}/{program}"))
        .args(arguments)
        .env_clear()
        .env("LC_ALL", "C")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// The server in single-user mode.
fn server(folder: &Path) -> Command {
    let settings = [
        "exit_on_error=on",
        "dynamic_shared_memory_type=mmap",
        "log_line_prefix=",
        "log_min_messages=warning",
        "log_min_error_statement=panic",
        "max_wal_size=2MB",
        "min_wal_size=2MB",
    ];
    let mut arguments = vec!["--single", "-D", "/mnt"];
    settings.iter().for_each(|setting| arguments.extend(["-c", setting]));
    arguments.push("postgres");
    command(folder, "postgres", &arguments)
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

fn run(bench: &Bench, script: &str) -> Result<Ran> {
    let folder = bench.folder.path();
    let mut ran = program::run(server(folder), PACKAGE, &folder.join("base"), script)?;
    ran.answer = answers(&ran.answer);
    ran.words.iter_mut().for_each(|line| *line = line.replace("/mnt/", ""));
    // It has ended itself in order, with a signal as the last word: there is no going on.
    if ran.signal == Some(libc::SIGABRT) && ran.words.iter().any(|line| line.contains("PANIC:")) {
        (ran.code, ran.signal, ran.is_stopped) = (Some(1), None, true);
    }
    Ok(ran)
}

/// What was asked for, of all that is printed: it is marked.
fn answers(text: &str) -> String {
    let unprompted = text.lines().map(|line| line.rsplit(PROMPT).next().unwrap_or(line));
    unprompted.filter_map(|line| line.strip_prefix('~')).map(|line| format!("{line}\n")).collect()
}

impl Postgres {
    fn script(operation: Operation, rows: &Rows) -> String {
        match operation {
            Operation::Open => {
                "COPY (SELECT '~' || relname FROM pg_class WHERE relname ~ '^item' ORDER BY relname) TO STDOUT;\n".into()
            }
            Operation::Recover => "COPY (SELECT '~' || count(*) FROM item) TO STDOUT;\n".into(),
            Operation::Select => LOOK.lines().take(4).map(|line| format!("{line}\n")).collect(),
            Operation::IndexLookup => {
                let ask = |(id, version)| {
                    let name = name(id, version);
                    format!("COPY (SELECT '~' || id || '|' || name || '|' || body FROM item WHERE name = '{name}') TO STDOUT;\n")
                };
                let asked: String = LOOKED_UP.into_iter().filter_map(|id| rows.get(id)).map(ask).collect();
                format!("SET enable_seqscan = off;\n{asked}")
            }
            Operation::IntegrityCheck => "COPY (SELECT '~' || msg FROM verify_heapam('item', check_toast := true)) TO STDOUT;
SELECT bt_index_check('item_pkey', true);
SELECT bt_index_check('item_name', true);
COPY (SELECT '~ok') TO STDOUT;
"
            .into(),
            Operation::Vacuum => "VACUUM FULL item;\n".into(),
            _ => transaction(&changes(operation)),
        }
    }

    /// Commits a transaction, begins another, looks at the files, and ends the program without a word.
    fn cut_off(bench: &Bench, committed: &[Step]) -> Result<Files> {
        let doing = || "running postgres until it is cut off".to_owned();
        let mut child = server(bench.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(missing("unshare", "util-linux"))?;
        let script = format!(
            "{}BEGIN;\nUPDATE item SET body = body || 'z' WHERE id % 3 = 0;\nCOPY (SELECT '~there') TO STDOUT;\n",
            transaction(committed)
        );
        let done = (|| {
            let (Some(input), Some(output)) = (child.stdin.as_mut(), child.stdout.as_mut()) else {
                return Err(Error::new(ErrorKind::Internal, "postgres has no pipes"));
            };
            input.write_all(script.as_bytes()).and_then(|()| input.flush()).doing(doing)?;
            for line in BufReader::new(output).lines() {
                if line.doing(doing)?.ends_with("~there") {
                    return Ok(bench.files());
                }
            }
            Err(Error::new(ErrorKind::Internal, "postgres ended before it was cut off"))
        })();
        child.kill().and_then(|()| child.wait().map(|_| ())).doing(doing)?;
        done
    }
}

impl Engine for Postgres {
    fn make(&self, bench: &Bench) -> Result<Sets> {
        if user_of_package().is_none() {
            return Err(Error::new(
                ErrorKind::Missing,
                "there is no user postgres; install the package postgresql",
            ));
        }
        let mut rows = Rows::default();
        bench.desk.show(&Files::new());
        let mut arguments =
            vec!["-D", "/mnt", "-A", "trust", "-U", "postgres", "-E", "SQL_ASCII", "--locale=C", "--no-sync"];
        arguments.push("--wal-segsize=1");
        if self.has_checksums {
            arguments.push("--data-checksums");
        }
        let folder = bench.folder.path();
        let making = command(folder, "initdb", &arguments);
        program::run_within(making, PACKAGE, &folder.join("base"), "", MAKING_MAX).and_then(succeeded)?;
        // In single-user mode numbers are those of the catalog until they are beyond them.
        let numbering = command(folder, "pg_resetwal", &["-D", "/mnt", "-o", "20000"]);
        program::run(numbering, PACKAGE, &folder.join("base"), "").and_then(succeeded)?;
        let must = |script: &str| run(bench, script).and_then(succeeded).map(|_| ());
        must(SCHEMA)?;
        let mut write = |steps: &[Step]| -> Result<()> {
            rows.apply(steps);
            must(&transaction(steps))
        };
        write(&first_half())?;
        write(&some_again())?;
        must(SETTLED)?;
        let early = bench.files();
        write(&second_half())?;
        latest().iter().try_for_each(|steps| write(steps))?;
        must(SETTLED)?;
        // Freezing has changed the catalog.
        must(SETTLED)?;
        let (clean, clean_rows) = (bench.files(), rows.clone());
        let late = changes(Operation::Update);
        rows.apply(&late);
        let crashed = Self::cut_off(bench, &late)?;
        Ok(Sets { early, clean, clean_rows, crashed, crashed_rows: rows, figures: String::new() })
    }

    fn perform(&self, bench: &Bench, operation: Operation, rows: &Rows) -> Result<Ran> {
        run(bench, &Self::script(operation, rows))
    }

    fn expected(&self, _: &Sets, operation: Operation, rows: &Rows) -> String {
        match operation {
            Operation::Open => "item\nitem_name\nitem_pkey\n".into(),
            Operation::Recover => format!("{}\n", rows.count()),
            Operation::Select => rows.lines(rows.ids()).collect(),
            Operation::IndexLookup => rows.lines(LOOKED_UP).collect(),
            Operation::IntegrityCheck => "ok\n".into(),
            _ => String::new(),
        }
    }

    fn look(&self, bench: &Bench) -> Result<Ran> {
        run(bench, LOOK)
    }

    fn all(&self, rows: &Rows) -> String {
        rows.both_ways()
    }

    fn is_passing(&self, name: &str) -> bool {
        name == "postmaster.pid" || self.is_mapped(name)
    }

    fn is_mapped(&self, name: &str) -> bool {
        name.starts_with("pg_dynshmem/") && !name.ends_with('/')
    }

    fn user(&self) -> (u32, u32) {
        user_of_package().unwrap_or((0, 0))
    }

    fn victim(&self) -> Plain {
        Plain::PgHeap
    }

    fn maps(&self, files: &Files, touched: &HashSet<&str>) -> Result<Vec<(String, Map)>> {
        let cluster = read_cluster_files(files, &|path| touched.contains(path), ReadOptions::default())?;
        Ok(cluster.files.into_iter().map(|file| (file.path, file.map)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_an_answer() {
        let text = "\nPostgreSQL stand-alone backend 15.18\nbackend> backend> ~1|a|b\n~2|~|c\nbackend> \t 1: x\nbackend> ~ok\n";
        assert_eq!(answers(text), "1|a|b\n2|~|c\nok\n");
    }

    #[test]
    fn every_statement_is_one_line() {
        let mut rows = Rows::default();
        rows.apply(&first_half());
        rows.apply(&second_half());
        for operation in Operation::DATABASE {
            let script = Postgres::script(operation, &rows);
            assert!(script.lines().all(|line| line.ends_with(';')), "{script}");
        }
    }
}
