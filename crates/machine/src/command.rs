//! A command of the user's: runs it with its output in files, ends it with everything that it has started, and says how
//! it ended.
//!
//! As root it gets a PID namespace of its own (by `unshare` of util-linux), so that whatever it has put into the
//! background ends with it, and also if Rotproof is killed. Others have no such thing to start: there its process group
//! is ended.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::Cancel;
use crate::program::wait_for_end;

/// How often a running command is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long a command that was asked to end may take to do so, before it is killed.
pub const GRACE: Duration = Duration::from_secs(5);
/// How long a killed command may take to end: longer only if it waits for a device that does not answer.
const KILL_MAX: Duration = Duration::from_secs(40);
/// How long one that is left on the way out of an error may take.
const DROP_MAX: Duration = Duration::from_secs(5);
/// More output than this ends a command.
const OUTPUT_BYTES_MAX: u64 = 1 << 30;

/// What to run and how.
pub struct CommandRun<'a> {
    /// The program and its arguments.
    pub words: &'a [String],
    /// Where.
    pub folder: &'a Path,
    /// Further variables of its environment.
    pub variables: &'a [(&'a str, String)],
    /// Where its output goes.
    pub output: &'a mut CommandFiles,
    /// How long it may take.
    pub timeout: Duration,
    /// Anything but zero asks to end it: killed at once, unless the user is who asks.
    pub stop: &'a AtomicUsize,
    /// The user's wish to stop. It is then asked to end (SIGTERM), and killed if it does not, or if the user is in haste.
    pub cancel: &'a Cancel,
    /// How long it may take to end then.
    pub grace: Duration,
    /// Called before it is asked to end.
    pub before_end: &'a dyn Fn(),
}

/// The output of a command, in files without a name.
#[derive(Debug)]
pub struct CommandFiles {
    /// Standard output.
    pub stdout: File,
    /// Standard error.
    pub stderr: File,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    /// Its exit code as a shell tells it: 128 and the signal's number if one ended it, 124 if its time was over.
    pub exit: u64,
    /// Its time was over.
    pub is_timed_out: bool,
    /// The user did not want to wait for its end.
    pub is_interrupted: bool,
    /// How long it ran.
    pub took: Duration,
}

/// The first process of a PID namespace is deaf to signals, so the command is made its child.
const FIRST_PROCESS: &str = "\"$@\"; exit $?";

/// The code that timeout(1) gives.
const TIMED_OUT: u64 = 124;

impl CommandFiles {
    /// Files in `folder`, which have lost their names already.
    pub fn new(folder: &Path) -> Result<Self> {
        let new = || tempfile_in(folder);
        Ok(Self { stdout: new()?, stderr: new()? })
    }

    /// The last lines of what was printed, errors if there are any, of at most `bytes` bytes.
    pub fn last_words(&mut self, bytes: u64) -> String {
        let errors = tail(&mut self.stderr, bytes);
        if errors.trim().is_empty() { tail(&mut self.stdout, bytes) } else { errors }
    }

    fn bytes(&self) -> u64 {
        [&self.stdout, &self.stderr]
            .iter()
            .filter_map(|file| file.metadata().ok())
            .map(|file| file.len())
            .sum()
    }
}

fn tempfile_in(folder: &Path) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let doing = || format!("making a file for the output of a command in {}", folder.display());
    for number in 0..1000u32 {
        let path = folder.join(format!(".output-{}-{number}", std::process::id()));
        match File::options().read(true).append(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path).doing(doing)?;
                return Ok(file);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).doing(doing),
        }
    }
    Err(Error::new(ErrorKind::Internal, doing()))
}

/// The end of a file, from the beginning of a line.
fn tail(file: &mut File, bytes: u64) -> String {
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let start = length.saturating_sub(bytes);
    let mut text = Vec::new();
    let read = file.seek(SeekFrom::Start(start)).and_then(|_| file.take(bytes).read_to_end(&mut text));
    if read.is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    match text.split_once('\n') {
        Some((_, rest)) if start > 0 => rest.to_owned(),
        _ => text,
    }
}

/// Runs it to its end, or until the user does not want to wait. Fails with [`ErrorKind::Missing`] if it cannot be started,
/// with [`ErrorKind::Cancelled`] if it was to stop for another reason, and in every case nothing of it is left.
pub fn run_command(run: &mut CommandRun<'_>) -> Result<CommandEnd> {
    let Some(program) = run.words.first() else {
        return Err(Error::new(ErrorKind::Invalid, "a command without a program"));
    };
    let mut running = Running(start(run).map_err(|error| {
        Error::from_io(error, format!("starting `{program}`; is it installed, and in PATH?"))
    })?);
    let began = Instant::now();
    let mut is_timed_out = false;
    // When it was asked to end.
    let mut asked: Option<Instant> = None;
    loop {
        if let Some(status) = running.0.try_wait().doing(|| format!("waiting for `{program}`"))? {
            running.signal_group(libc::SIGKILL);
            let exit = if is_timed_out { TIMED_OUT } else { exit_of(status) };
            let is_interrupted = asked.is_some();
            return Ok(CommandEnd { exit, is_timed_out, is_interrupted, took: began.elapsed() });
        }
        match asked {
            None if run.cancel.is_cancelled() => {
                asked = Some(Instant::now());
                (run.before_end)();
                running.signal_group(libc::SIGTERM);
            }
            None if run.stop.load(Ordering::Relaxed) != 0 => {
                running.kill(program)?;
                return Err(Error::new(ErrorKind::Cancelled, format!("`{program}` was to stop")));
            }
            Some(asked) if asked.elapsed() >= run.grace || run.cancel.is_in_haste() => {
                running.kill(program)?;
            }
            _ => {}
        }
        if run.output.bytes() > OUTPUT_BYTES_MAX {
            running.kill(program)?;
            return Err(Error::new(ErrorKind::NoSpace, format!("`{program}` has printed more than 1 GiB")));
        }
        if !is_timed_out && asked.is_none() && began.elapsed() >= run.timeout {
            is_timed_out = true;
            running.kill(program)?;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A command under way; dropped, it is killed.
struct Running(Child);

impl Running {
    /// Sends a signal to all of its process group.
    fn signal_group(&self, signal: libc::c_int) {
        if let Ok(group) = libc::pid_t::try_from(self.0.id()) {
            // SAFETY: takes numbers only. The group has the number of its leader, which is not reused while it has
            // members; without any, nothing happens.
            unsafe { libc::kill(-group, signal) };
        }
    }

    /// Kills it with all that it has started, and waits for its end.
    fn kill(&mut self, program: &str) -> Result<()> {
        self.signal_group(libc::SIGKILL);
        let deadline = Instant::now() + KILL_MAX;
        while self.0.try_wait().doing(|| format!("waiting for `{program}`"))?.is_none() {
            if Instant::now() >= deadline {
                return Err(Error::new(
                    ErrorKind::TimedOut,
                    format!("`{program}` was killed but does not end: it waits for the device"),
                ));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.signal_group(libc::SIGKILL);
            wait_for_end(&mut self.0, DROP_MAX);
        }
    }
}

fn start(run: &CommandRun<'_>) -> std::io::Result<Child> {
    // SAFETY: takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let mut command = if is_root {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child=KILL", "--", "sh", "-c", FIRST_PROCESS, "sh"]);
        command.args(run.words);
        command
    } else {
        let mut command = Command::new(&run.words[0]);
        command.args(&run.words[1..]);
        command
    };
    command.current_dir(run.folder).envs(run.variables.iter().map(|(name, value)| (name, value)));
    command
        .stdin(Stdio::null())
        .stdout(run.output.stdout.try_clone()?)
        .stderr(run.output.stderr.try_clone()?);
    // Its own group, so that Ctrl-C in the terminal reaches only us, and all of it can be ended.
    command.process_group(0);
    // SAFETY: between fork and exec only `prctl`, which is async-signal-safe, is called.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command.spawn()
}

fn exit_of(status: ExitStatus) -> u64 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u64::try_from(code).ok()).unwrap_or(255)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a line of the shell, and what it said.
    fn run(line: &str, timeout: Duration, stop: &AtomicUsize) -> (Result<CommandEnd>, String, String) {
        run_until(line, timeout, (stop, &Cancel::new()), &|| {})
    }

    fn run_until(
        line: &str,
        timeout: Duration,
        (stop, cancel): (&AtomicUsize, &Cancel),
        before_end: &dyn Fn(),
    ) -> (Result<CommandEnd>, String, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut output = CommandFiles::new(folder.path()).expect("files");
        let words = ["sh", "-c", line].map(str::to_owned);
        let end = run_command(&mut CommandRun {
            words: &words,
            folder: folder.path(),
            variables: &[("ROTPROOF_TEST", "a value".into())],
            output: &mut output,
            timeout,
            stop,
            cancel,
            // Who is not in haste waits for longer than any command here takes.
            grace: Duration::from_secs(3600),
            before_end,
        });
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "no file has a name");
        (end, tail(&mut output.stdout, 1000), tail(&mut output.stderr, 1000))
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn exit_codes_and_output_are_those_of_the_command() {
        let stop = AtomicUsize::new(0);
        let (end, out, errors) = run("echo \"$ROTPROOF_TEST\"; echo no >&2; exit 3", LONG, &stop);
        assert_eq!(end.expect("it ends").exit, 3);
        assert_eq!((out.as_str(), errors.as_str()), ("a value\n", "no\n"));
        let (end, ..) = run("sh -c 'kill -9 $$'", LONG, &stop);
        assert_eq!(end.expect("it ends").exit, 137);
    }

    /// Whether a process lives whose arguments contain `mark`.
    fn lives(mark: &str) -> bool {
        std::fs::read_dir("/proc").expect("proc").flatten().any(|entry| {
            let path = entry.path().join("cmdline");
            let is_process = entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
            is_process
                && std::fs::read(path)
                    .is_ok_and(|line| String::from_utf8_lossy(&line).split('\0').any(|word| word == mark))
        })
    }

    fn wait_until_gone(mark: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while lives(mark) {
            assert!(Instant::now() < deadline, "something of the command is left");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_command_that_takes_too_long_ends_with_all_that_it_has_started() {
        let stop = AtomicUsize::new(0);
        let (end, ..) = run("sleep 61.0625 & sleep 61.0625", Duration::from_millis(100), &stop);
        let end = end.expect("it ends");
        assert_eq!((end.exit, end.is_timed_out), (124, true));
        wait_until_gone("61.0625");
    }

    #[test]
    fn what_a_command_leaves_in_the_background_ends_with_it() {
        let stop = AtomicUsize::new(0);
        let (end, ..) = run("sleep 61.125 & exit 0", LONG, &stop);
        assert_eq!(end.expect("it ends").exit, 0);
        wait_until_gone("61.125");
    }

    #[test]
    fn a_command_that_is_to_stop_without_a_user_ends_at_once() {
        let stop = AtomicUsize::new(2);
        let (end, ..) = run("sleep 61.1875", LONG, &stop);
        assert_eq!(end.expect_err("stopped").kind(), ErrorKind::Cancelled);
        wait_until_gone("61.1875");
    }

    /// Interrupts a line of the shell once it has said `ready`, and again at once if that is wanted.
    fn interrupted(line: &str, is_in_haste: bool) -> (CommandEnd, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let ready = folder.path().join("ready");
        let line = line.replace("READY", &ready.display().to_string());
        let (cancel, told) = (Cancel::new(), AtomicUsize::new(0));
        let asking = cancel.clone();
        let asker = std::thread::spawn(move || {
            let deadline = Instant::now() + Duration::from_secs(20);
            while !ready.exists() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            (0..=i32::from(is_in_haste)).for_each(|_| asking.cancel(libc::SIGINT));
        });
        let before_end = || {
            told.fetch_add(1, Ordering::Relaxed);
        };
        let (end, out, _) = run_until(&line, LONG, (&cancel.signal_cell(), &cancel), &before_end);
        asker.join().expect("it only waits");
        assert_eq!(told.load(Ordering::Relaxed), 1);
        let end = end.expect("it ends");
        assert!(end.is_interrupted && !end.is_timed_out, "{end:?}");
        (end, out)
    }

    #[test]
    fn a_command_that_is_interrupted_may_end_in_order() {
        let line = "trap 'echo bye; exit 5' TERM; sleep 61.25 & echo begun; touch READY; wait";
        let (end, out) = interrupted(line, false);
        assert_eq!((end.exit, out.as_str()), (5, "begun\nbye\n"));
        wait_until_gone("61.25");
    }

    #[test]
    fn a_command_that_is_deaf_is_killed_at_once_if_the_user_is_in_haste() {
        // Left alone it would end by itself, with another exit code.
        let line = "trap '' TERM; echo begun; touch READY; sleep 21.3125";
        let (end, out) = interrupted(line, true);
        assert_eq!((end.exit, out.as_str()), (137, "begun\n"));
        wait_until_gone("21.3125");
    }

    #[test]
    fn the_last_words_are_whole_lines_and_errors_come_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut output = CommandFiles::new(folder.path()).expect("files");
        use std::io::Write;
        output.stdout.write_all(b"first\nsecond\nthird\n").expect("written");
        assert_eq!(output.last_words(12), "third\n");
        assert_eq!(output.last_words(1000), "first\nsecond\nthird\n");
        output.stderr.write_all(b"oh no\n").expect("written");
        assert_eq!(output.last_words(1000), "oh no\n");
    }
}
