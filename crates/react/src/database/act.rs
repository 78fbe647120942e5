//! One operation on one database with one thing wrong: what was answered, at once and when the program was started anew.

use std::sync::Arc;

use rotproof_block::{Error, ErrorKind, Result};

use super::desk::{Desk, FileTouch, Files, Harm};
use super::mount::Folder;
use super::program::{self, Ran, SCRIPT_MAX};
use super::rows::{CUT_OFF, Rows, SCHEMA, changes, first_half, latest, second_half, some_again, transaction};
use crate::operation::Operation;
use crate::tree::Look;

/// The database in its folder.
pub(crate) const DATABASE: &str = "rows.db";

/// Where a program works on files, and what it must find there.
pub(crate) struct Bench {
    pub(crate) desk: Arc<Desk>,
    pub(crate) folder: Folder,
    pub(crate) is_wal: bool,
}

/// What every cell begins with.
pub(crate) struct Sets {
    /// When half of the rows were there: what is stale later.
    pub(crate) early: Files,
    clean: Files,
    clean_rows: Rows,
    crashed: Files,
    crashed_rows: Rows,
}

/// What an operation led to.
pub(crate) struct DatabaseActed {
    pub(crate) during: Look,
    pub(crate) is_crashed: bool,
    pub(crate) words: Vec<String>,
    pub(crate) touches: Vec<FileTouch>,
    /// What the files hold right after it, and what those held that ended meanwhile.
    pub(crate) files: Files,
    pub(crate) after: Look,
    pub(crate) is_crashed_after: bool,
    pub(crate) words_after: Vec<String>,
}

/// How an operation ended.
pub(crate) enum Ended {
    Acted(Box<DatabaseActed>),
    Hung(String),
}

impl Bench {
    fn run(&self, script: &str) -> Result<Ran> {
        program::run(&self.folder.path().join(DATABASE), script, self.is_wal)
    }

    /// What is there now, but for the index of a log, which is made anew from that.
    fn files(&self) -> Files {
        let mut files = self.desk.files();
        files.retain(|name, _| !name.ends_with("-shm"));
        files
    }

    /// Runs what must succeed.
    fn must(&self, script: &str) -> Result<()> {
        let ran = self.run(script)?;
        match ran.code {
            Some(0) => Ok(()),
            _ => {
                let what = format!("making a database, with nothing wrong: {}", ran.words.join("; "));
                Err(Error::new(ErrorKind::Internal, what))
            }
        }
    }
}

impl Sets {
    /// Makes the database, and keeps what its files hold at several moments.
    pub(crate) fn make(bench: &Bench) -> Result<Self> {
        let mut rows = Rows::default();
        bench.desk.show(&Files::new());
        let mut write = |steps: &[_]| -> Result<()> {
            rows.apply(steps);
            bench.must(&transaction(steps))
        };
        bench.must(SCHEMA)?;
        if bench.is_wal {
            bench.must("PRAGMA journal_mode = wal;\n")?;
        }
        // What was written so far goes into the database, and the log begins anew.
        let settle = || if bench.is_wal { bench.must("PRAGMA wal_checkpoint(TRUNCATE);\n") } else { Ok(()) };
        write(&first_half())?;
        settle()?;
        write(&some_again())?;
        let early = bench.files();
        settle()?;
        write(&second_half())?;
        settle()?;
        if bench.is_wal {
            latest().iter().try_for_each(|steps| write(steps))?;
        }
        let (clean, clean_rows) = (bench.files(), rows.clone());
        let late = changes(Operation::Update);
        bench.must(&transaction(&late))?;
        rows.apply(&late);
        let database = bench.folder.path().join(DATABASE);
        let crashed = program::cut_off(&database, CUT_OFF, bench.is_wal, || bench.files())?;
        Ok(Self { early, clean, clean_rows, crashed, crashed_rows: rows })
    }

    pub(crate) fn before(&self, operation: Operation) -> &Files {
        if operation == Operation::Recover { &self.crashed } else { &self.clean }
    }

    fn rows(&self, operation: Operation) -> &Rows {
        if operation == Operation::Recover { &self.crashed_rows } else { &self.clean_rows }
    }
}

/// Does it.
pub(crate) fn act(bench: &Bench, sets: &Sets, operation: Operation, harm: Option<Harm>) -> Result<Ended> {
    let old = sets.rows(operation);
    let mut new = old.clone();
    new.apply(&changes(operation));
    let (script, expected) = old.question(operation);
    bench.desk.show(sets.before(operation));
    bench.desk.arm(harm);
    let ran = bench.run(&script)?;
    let touches = bench.desk.rest();
    let mut files = bench.files();
    files.extend(bench.desk.ended());
    if ran.is_hung {
        return Ok(Ended::Hung(format!("it did not come back within {} s", SCRIPT_MAX.as_secs())));
    }
    let during = match answered(&ran, &[expected]) {
        // A checker that finds something has reported it.
        Look::Wrong(_) if operation == Operation::IntegrityCheck => {
            Look::Failed(format!("integrity_check: {}", ran.answer.lines().next().unwrap_or("nothing")))
        }
        look => look,
    };
    // What failed is not done, or all of it is.
    let mut allowed = vec![new.all()];
    if during != Look::Right {
        allowed.push(old.all());
    }
    let looked = bench.run(Rows::LOOK)?;
    if looked.is_hung {
        return Ok(Ended::Hung(format!(
            "reading it all afterwards did not end within {} s",
            SCRIPT_MAX.as_secs()
        )));
    }
    Ok(Ended::Acted(Box::new(DatabaseActed {
        is_crashed: ran.code.is_none(),
        during,
        words: ran.words,
        touches,
        files,
        after: answered(&looked, &allowed),
        is_crashed_after: looked.code.is_none(),
        words_after: looked.words,
    })))
}

/// How an answer compares with those that are right.
fn answered(ran: &Ran, allowed: &[String]) -> Look {
    match ran.code {
        Some(0) if allowed.contains(&ran.answer) => Look::Right,
        Some(0) => {
            let expected = allowed.first().map_or("", String::as_str);
            let (found, should) = differing(&ran.answer, expected);
            Look::Wrong(format!("`{found}` where it should be `{should}`"))
        }
        Some(code) => {
            let error = ran.words.iter().rev().find(|line| line.to_lowercase().contains("error"));
            Look::Failed(error.cloned().unwrap_or_else(|| format!("exit code {code}")))
        }
        None => Look::Failed("a signal ended it".into()),
    }
}

/// How two texts go on from where they differ, a few characters of each. Both are ASCII, but for what rotted.
fn differing(one: &str, other: &str) -> (String, String) {
    let from = one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let of = |text: &str| text.chars().skip(from).take_while(|&c| c != '\n').take(30).collect();
    (of(one), of(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(code: Option<i32>, answer: &str, words: &[&str]) -> Ran {
        Ran {
            code,
            is_hung: false,
            answer: answer.into(),
            words: words.iter().map(|&word| word.to_owned()).collect(),
        }
    }

    #[test]
    fn an_answer_is_right_wrong_or_none() {
        let allowed = ["1|new\n".to_owned(), "1|old\n".to_owned()];
        assert_eq!(answered(&ran(Some(0), "1|old\n", &[]), &allowed), Look::Right);
        let wrong = answered(&ran(Some(0), "1|nex\n", &[]), &allowed);
        assert_eq!(wrong, Look::Wrong("`x` where it should be `w`".into()));
        let words = ["(11) database corruption", "Runtime error: malformed", "more"];
        assert_eq!(
            answered(&ran(Some(1), "1|new\n", &words), &allowed),
            Look::Failed("Runtime error: malformed".into())
        );
        assert!(matches!(answered(&ran(None, "1|new\n", &[]), &allowed), Look::Failed(_)));
    }
}
