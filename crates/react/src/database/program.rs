//! A program that is started anew for each question, and what it answered.

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::tools::tempfile;

/// How long a program may take; the longest that was seen to end took a second.
pub(crate) const SCRIPT_MAX: Duration = Duration::from_secs(15);
/// How much it may answer, or write into a file: some fifty times what there is. A damaged tree can be read without end.
pub(crate) const ANSWER_BYTES_MAX: u64 = 64 << 20;
const POLL: Duration = Duration::from_millis(1);

/// Why a program was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// After [`SCRIPT_MAX`].
    Time,
    /// After [`ANSWER_BYTES_MAX`].
    Answer,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// It has said itself that it cannot go on.
    pub(crate) is_stopped: bool,
    /// It would not have ended.
    pub(crate) halt: Option<Halt>,
    pub(crate) answer: String,
    /// What it said of errors, and into its log.
    pub(crate) words: Vec<String>,
}

/// A program that cannot be started.
pub(crate) fn missing(program: &str, package: &str) -> impl FnOnce(std::io::Error) -> Error {
    let what = format!("{program} cannot be started; install the package {package}");
    move |error| Error::new(ErrorKind::Missing, what).caused_by(error)
}

/// Runs a program of `package` on a file to its end, with this as its input.
pub(crate) fn run(command: Command, package: &str, file: &Path, input: &str) -> Result<Ran> {
    run_within(command, package, file, input, SCRIPT_MAX)
}

/// The same, for so long at most.
pub(crate) fn run_within(
    mut command: Command,
    package: &str,
    file: &Path,
    input: &str,
    time_max: Duration,
) -> Result<Ran> {
    let program = command.get_program().to_string_lossy().into_owned();
    let doing = || format!("running {program}");
    // In files, so that long texts block nobody.
    let (mut given, mut told, mut answer) = (tempfile()?, tempfile()?, tempfile()?);
    given.write_all(input.as_bytes()).and_then(|()| given.rewind()).doing(doing)?;
    command.stdin(given).stdout(answer.try_clone().doing(doing)?).stderr(told.try_clone().doing(doing)?);
    // SAFETY: `setrlimit` is safe to be called between fork and exec, and the limits lie on the stack.
    unsafe {
        command.pre_exec(|| {
            let most = libc::rlimit { rlim_cur: ANSWER_BYTES_MAX, rlim_max: ANSWER_BYTES_MAX };
            // What crashes leaves nothing behind.
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            match libc::setrlimit(libc::RLIMIT_FSIZE, &most) | libc::setrlimit(libc::RLIMIT_CORE, &none) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let mut child = command.spawn().map_err(missing(&program, package))?;
    let (status, is_late) = wait(&mut child, &program, time_max)?;
    let bytes = |of: &mut std::fs::File| -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        of.seek(SeekFrom::Start(0)).and_then(|_| of.read_to_end(&mut bytes)).doing(doing)?;
        Ok(bytes)
    };
    // Where it lies is of no interest to anybody.
    let folder = file.parent().map_or_else(String::new, |folder| format!("{}/", folder.display()));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let words = text(bytes(&mut told)?).lines().map(|line| line.replace(&folder, "")).collect();
    let halt = match status.signal() {
        _ if is_late => Some(Halt::Time),
        Some(libc::SIGXFSZ) => Some(Halt::Answer),
        _ => None,
    };
    let answer = if halt.is_some() { String::new() } else { text(bytes(&mut answer)?) };
    Ok(Ran { code: status.code(), signal: status.signal(), is_stopped: false, halt, answer, words })
}

fn wait(child: &mut Child, program: &str, time_max: Duration) -> Result<(ExitStatus, bool)> {
    let doing = || format!("waiting for {program}");
    let deadline = Instant::now() + time_max;
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
