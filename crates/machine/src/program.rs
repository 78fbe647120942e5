//! Programs of the machine that a subject needs: finding them, and running them so that none stays behind.
//!
//! A program that is missing is an error that names the package to install. A running one is killed by the kernel
//! if Rotproof dies, ended if the user cancels, and its words are in the error if it fails.

use std::ffi::OsStr;
use std::io::{PipeReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::cancel::Cancel;
use crate::process::ProcessIdentity;
use crate::start_thread;

/// Where distributions keep what administrators use; not always in the `PATH` of others.
const MORE_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// How often a running program is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How often it is asked whether a running program waits in the kernel.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a killed program may take to end.
const KILL_MAX: Duration = Duration::from_secs(5);
/// How much of a program's output an error quotes.
const QUOTED_BYTES_MAX: usize = 2000;

/// A program that exists on this machine.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// Looks `name` up in `PATH` and where administrators' programs are. `package` is the package that has it, by
    /// the name that Debian and Fedora share. Fails with [`ErrorKind::Missing`].
    pub fn find(name: &str, package: &str) -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .chain(MORE_FOLDERS.iter().map(PathBuf::from))
            .map(|folder| folder.join(name))
            .find(|candidate| is_executable(candidate))
            .map(|path| Self { path })
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Missing,
                    format!(
                        "the program {name} is not on this machine; install it with \
                         `apt install {package}` (Debian, Ubuntu) or `dnf install {package}` (Fedora)"
                    ),
                )
            })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first line that the program prints when it is called with `argument`, if it does.
    pub fn version(&self, argument: &str) -> Option<String> {
        let running = self.start([argument]).ok()?;
        let (_, output) = running.finish(&Cancel::new()).ok()?;
        output.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    }

    /// Starts it, without input.
    pub fn start(&self, arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Result<RunningProgram> {
        self.start_with(arguments, &[])
    }

    /// Starts it, without input, with further variables in its environment.
    pub fn start_with(
        &self,
        arguments: impl IntoIterator<Item: AsRef<OsStr>>,
        variables: &[(&str, &str)],
    ) -> Result<RunningProgram> {
        let doing = || format!("starting {}", self.path.display());
        let (mut reader, writer) = std::io::pipe().doing(doing)?;
        let mut command = Command::new(&self.path);
        command.args(arguments).env("LC_ALL", "C").envs(variables.iter().copied()).stdin(Stdio::null());
        // Its own process group, so that Ctrl-C in the terminal reaches only us, and we end it in order.
        command.process_group(0);
        command.stdout(writer.try_clone().doing(doing)?).stderr(writer);
        // SAFETY: between fork and exec only `prctl`, which is async-signal-safe, is called.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let child = command.spawn().doing(doing)?;
        // The command owns our copies of the pipe's writing end; without this the reader would never see its end.
        drop(command);
        let mut running = RunningProgram { program: self.clone(), child, output: None };
        running.output = Some(start_thread("program", move || read_all(&mut reader))?);
        Ok(running)
    }
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn read_all(reader: &mut PipeReader) -> String {
    let mut bytes = Vec::new();
    // What could be read before an error is still worth showing.
    let _ = reader.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A program under way. Dropped before its end, it is killed and waited for.
///
/// The kernel kills it when the thread that started it ends, so that thread must wait for it.
#[derive(Debug)]
pub struct RunningProgram {
    program: Program,
    child: Child,
    output: Option<JoinHandle<String>>,
}

impl RunningProgram {
    /// Which process it is.
    pub fn identity(&self) -> Result<ProcessIdentity> {
        ProcessIdentity::of(self.child.id())
    }

    /// Waits for its end, and gives what it printed. Fails with [`ErrorKind::Missing`] if it failed (this machine does
    /// not do what was needed), with what it printed in the text, and with [`ErrorKind::Cancelled`] if the user did
    /// not want to wait.
    pub fn wait(self, cancel: &Cancel) -> Result<String> {
        self.wait_while(cancel, |_| Ok(()))
    }

    /// The same, as long as `may_wait` does not fail. That is told now and then how long the program has been waiting in the
    /// kernel, where no signal reaches it.
    pub fn wait_while(self, cancel: &Cancel, may_wait: impl Fn(Duration) -> Result<()>) -> Result<String> {
        let name = self.program.path.display().to_string();
        let (status, output) = self.finish_while(cancel, may_wait)?;
        if status.success() {
            return Ok(output);
        }
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "unknown end".to_owned(),
        };
        let said = quoted(&output);
        let said = if said.is_empty() { "it said nothing" } else { &said };
        Err(Error::new(ErrorKind::Missing, format!("{name} failed ({how}): {said}")))
    }

    /// Waits for its end, whatever that is, and gives it with what it printed.
    pub(crate) fn finish(self, cancel: &Cancel) -> Result<(ExitStatus, String)> {
        self.finish_while(cancel, |_| Ok(()))
    }

    fn finish_while(
        mut self,
        cancel: &Cancel,
        may_wait: impl Fn(Duration) -> Result<()>,
    ) -> Result<(ExitStatus, String)> {
        let mut in_kernel_since: Option<Instant> = None;
        let mut looked = Instant::now();
        let status = loop {
            cancel.check()?;
            if looked.elapsed() >= LOOK_INTERVAL {
                looked = Instant::now();
                let waits = is_in_kernel(self.child.id());
                in_kernel_since = waits.then(|| in_kernel_since.unwrap_or(looked));
                if let Some(since) = in_kernel_since {
                    may_wait(since.elapsed())?;
                }
            }
            match self.child.try_wait().doing(|| format!("waiting for {}", self.program.path.display()))? {
                Some(status) => break status,
                None => std::thread::sleep(POLL_INTERVAL),
            }
        };
        let output = self.output.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        Ok((status, output))
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // Fails only if the program has ended already.
        let _ = self.child.kill();
        wait_for_end(&mut self.child, KILL_MAX);
    }
}

/// Waits for the end of a process that was killed, but not for ever: one that waits in the kernel for a device that does not
/// answer ends only when that does.
pub(crate) fn wait_for_end(child: &mut Child, most: Duration) {
    let deadline = Instant::now() + most;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Whether the process waits where no signal reaches it.
fn is_in_kernel(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit_once(')').is_some_and(|(_, fields)| fields.trim_start().starts_with('D'))
    })
}

/// The end of what a program said: there is the reason.
fn quoted(output: &str) -> String {
    let output = output.trim();
    let mut start = output.len().saturating_sub(QUOTED_BYTES_MAX);
    while !output.is_char_boundary(start) {
        start += 1;
    }
    output[start..].lines().map(str::trim_end).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell() -> Program {
        Program::find("sh", "dash").expect("every machine has a shell")
    }

    #[test]
    fn a_missing_program_names_its_package() {
        let error = Program::find("mkfs.nonexistent", "nonexistent-progs").expect_err("does not exist");
        assert_eq!(error.kind(), ErrorKind::Missing);
        assert!(error.to_string().contains("apt install nonexistent-progs"));
    }

    #[test]
    fn a_failing_program_is_quoted_with_its_exit_code() {
        let running = shell().start(["-c", "echo to stdout; echo to stderr >&2; exit 3"]).expect("starts");
        let error = running.wait(&Cancel::new()).expect_err("exit code 3").to_string();
        for part in ["exit code 3", "to stdout", "to stderr"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_program_that_says_a_lot_does_not_block() {
        let script =
            "i=0; while [ $i -lt 4000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done";
        let running = shell().start(["-c", script]).expect("starts");
        assert_eq!(running.wait(&Cancel::new()).expect("succeeds").lines().count(), 4000);
    }

    #[test]
    fn cancelling_ends_the_program() {
        let cancel = Cancel::new();
        let running = shell().start(["-c", "exec sleep 60"]).expect("starts");
        let identity = running.identity().expect("it runs");
        cancel.cancel(libc::SIGINT);
        assert_eq!(running.wait(&cancel).expect_err("cancelled").kind(), ErrorKind::Cancelled);
        assert_eq!(identity.liveness(), crate::process::Liveness::Gone);
    }

    #[test]
    fn the_version_is_the_first_line_that_says_something() {
        let program = Program::find("bash", "bash").expect("the test script needs bash");
        assert!(program.version("--version").expect("has a version").contains("bash"));
    }
}
