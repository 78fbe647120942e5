//! The program `sqlite3`, started anew for each script, and what it answered.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::stage::tempfile;

/// How long a script may take; the longest that was seen to end took a second.
pub(crate) const SCRIPT_MAX: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(1);

/// How a script ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// It was ended after [`SCRIPT_MAX`].
    pub(crate) is_hung: bool,
    pub(crate) answer: String,
    /// What it said of errors, and into its log.
    pub(crate) words: Vec<String>,
}

/// Who answers, such as `SQLite 3.40.1`.
pub(crate) fn version() -> Result<String> {
    let output = Command::new("sqlite3").arg("--version").stdin(Stdio::null()).output().map_err(missing)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = text.split_whitespace().next();
    number
        .map(|number| format!("SQLite {number}"))
        .ok_or_else(|| Error::new(ErrorKind::Missing, "sqlite3 does not say its version"))
}

fn missing(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Missing, "sqlite3 cannot be started; install the package sqlite3").caused_by(error)
}

/// The program on a database, with its log among its words. With a write-ahead log it leaves that as it is when it ends.
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

fn whole(script: &str, is_wal: bool) -> String {
    let keep = if is_wal { ".dbconfig no_ckpt_on_close on\n" } else { "" };
    format!(".log stderr\n{keep}{script}")
}

/// Runs a script to its end.
pub(crate) fn run(database: &Path, script: &str, is_wal: bool) -> Result<Ran> {
    let doing = || "running sqlite3".to_owned();
    // In files, so that long texts block nobody.
    let (mut input, mut told, mut answer) = (tempfile()?, tempfile()?, tempfile()?);
    input.write_all(whole(script, is_wal).as_bytes()).and_then(|()| input.rewind()).doing(doing)?;
    let mut child = command(database)
        .stdin(input)
        .stdout(answer.try_clone().doing(doing)?)
        .stderr(told.try_clone().doing(doing)?)
        .spawn()
        .map_err(missing)?;
    let (status, is_hung) = wait(&mut child)?;
    let text = |file: &mut std::fs::File| -> Result<String> {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).doing(doing)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    // Where it lies is of no interest to anybody.
    let folder = database.parent().map_or_else(String::new, |folder| format!("{}/", folder.display()));
    let words = text(&mut told)?.lines().map(|line| line.replace(&folder, "")).collect();
    let answer = text(&mut answer)?;
    let kept = answer.lines().filter(|line| line.split_whitespace().next() != Some("no_ckpt_on_close"));
    Ok(Ran { code: status.code(), is_hung, answer: kept.map(|line| format!("{line}\n")).collect(), words })
}

fn wait(child: &mut Child) -> Result<(std::process::ExitStatus, bool)> {
    let doing = || "waiting for sqlite3".to_owned();
    let deadline = Instant::now() + SCRIPT_MAX;
    loop {
        match child.try_wait().doing(doing)? {
            Some(status) => return Ok((status, false)),
            None if Instant::now() >= deadline => {
                child.kill().doing(doing)?;
                return Ok((child.wait().doing(doing)?, true));
            }
            None => std::thread::sleep(POLL),
        }
    }
}

/// Runs a script until it has answered a line, does `then`, and ends the program without a word.
pub(crate) fn cut_off<T>(database: &Path, script: &str, is_wal: bool, then: impl FnOnce() -> T) -> Result<T> {
    let doing = || "running sqlite3 until it is cut off".to_owned();
    let mut child = command(database)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(missing)?;
    let done = (|| {
        let (Some(input), Some(output)) = (child.stdin.as_mut(), child.stdout.as_mut()) else {
            return Err(Error::new(ErrorKind::Internal, "sqlite3 has no pipes"));
        };
        input.write_all(whole(script, is_wal).as_bytes()).and_then(|()| input.flush()).doing(doing)?;
        let mut lines = BufReader::new(output).lines();
        loop {
            match lines.next() {
                Some(Ok(line)) if line == "there" => return Ok(then()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Error::from_io(error, doing())),
                None => return Err(Error::new(ErrorKind::Internal, "sqlite3 ended before it was cut off")),
            }
        }
    })();
    child.kill().and_then(|()| child.wait().map(|_| ())).doing(doing)?;
    done
}
