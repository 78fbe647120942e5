//! Mappings of files in a process of their own.
//!
//! A thread that faults on a mapping may wait for the device below the file while it holds the lock on the memory map of
//! the process that has the mapping. If that process serves the device as well, its server threads can need the same lock
//! before they can answer, and then all of them wait for ever (`docs/decisions/029-mappings-apart.md`). So a load on files
//! of a device that this process serves has its mappings in a second process: this program once more, which does nothing
//! but hold them ([`hold_mappings`]). The workers stay here. They copy to and from the memory of the other process
//! (`process_vm_readv`, `process_vm_writev`), so whoever faults waits under the lock of a process that serves nothing.
//!
//! `message` has what the two say to each other, `holder` the other side.

mod holder;
mod message;

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

pub use holder::hold_mappings;
use message::{Call, GREETING_WORD, Greeting, Reply, send_descriptor};

/// The verb of the command that calls [`hold_mappings`].
pub const VERB: &str = "hold-mappings";

/// How long the other process may take to say that it is there.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to end. It waits for nothing but to let go of its files.
const END_PATIENCE: Duration = Duration::from_secs(10);
const END_INTERVAL: Duration = Duration::from_millis(2);

/// A process that holds mappings for this one. It ends when this is dropped, when this process ends, and when the thread
/// ends that started it.
#[derive(Debug)]
pub(super) struct MappingProcess {
    /// Not waited for before the drop, so nobody else gets its number.
    child: Mutex<Child>,
    process: libc::pid_t,
    /// Takes connections.
    control: Mutex<UnixStream>,
    /// Connections that nobody uses at the moment; there are as many as there have ever been callers at once.
    idle: Mutex<Vec<UnixStream>>,
}

impl MappingProcess {
    /// Starts this program once more. Fails with [`ErrorKind::Missing`] where the kernel does not let one process copy to
    /// and from another.
    pub(super) fn start() -> Result<Self> {
        // By this name it is found also where the file has been replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("rotproof").arg(VERB);
        Self::start_as(command)
    }

    fn start_as(mut command: Command) -> Result<Self> {
        let doing = || "starting a process that maps the files of the load".to_owned();
        let (control, theirs) = UnixStream::pair().doing(doing)?;
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        // Ctrl-C in the terminal is for the run, which ends it in order.
        command.process_group(0);
        let child = command.spawn().doing(doing)?;
        // It holds the other end of the control connection, of which only the child's is to be left.
        drop(command);
        let process = child.id().cast_signed();
        let started =
            Self { child: Mutex::new(child), process, control: Mutex::new(control), idle: Mutex::default() };
        started.meet().map_err(|error| error.while_doing(doing()))?;
        Ok(started)
    }

    /// Waits until it is there, and tries whether its memory can be read.
    fn meet(&self) -> Result<()> {
        let mut greeting = [0; Greeting::BYTES];
        {
            let mut control = self.control.lock();
            let read = control
                .set_read_timeout(Some(START_PATIENCE))
                .and_then(|()| control.read_exact(&mut greeting));
            read.doing(|| "it does not say that it is there".into())?;
        }
        let Some(Greeting { address }) = Greeting::parse(&greeting) else {
            return Err(Error::new(ErrorKind::Internal, "it says what this version does not know"));
        };
        let mut word = [0; size_of::<u64>()];
        let piece =
            libc::iovec { iov_base: std::ptr::without_provenance_mut(address as usize), iov_len: word.len() };
        let own = libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: word.len() };
        // SAFETY: `own` is memory of ours that lives across the call, which fills it; the kernel checks the other place.
        let copied =
            unsafe { libc::process_vm_readv(self.process, &raw const own, 1, &raw const piece, 1, 0) };
        if copied < 0 {
            let error = io::Error::last_os_error();
            return Err(Error::new(
                ErrorKind::Missing,
                "the kernel does not let a process copy to and from the memory of its child; see \
                 /proc/sys/kernel/yama/ptrace_scope, which must be below 3, and what the container permits, or take \
                 another ioengine",
            )
            .caused_by(error));
        }
        if word != GREETING_WORD.to_le_bytes() {
            return Err(Error::new(ErrorKind::Internal, "its memory is not where it says"));
        }
        Ok(())
    }

    /// Its number, for calls that copy to and from its memory.
    pub(super) fn process(&self) -> libc::pid_t {
        self.process
    }

    /// Ok as long as it is there. An error is one of this machine, never a finding.
    pub(super) fn check(&self) -> Result<()> {
        match self.child.lock().try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Error::new(
                ErrorKind::Gone,
                format!(
                    "the process that maps the files of the load has ended while it was needed ({status})"
                ),
            )),
            Err(error) => {
                Err(error).doing(|| "looking for the process that maps the files of the load".into())
            }
        }
    }

    /// Maps the first `len` bytes of a file that is there; gives the address in the other process.
    pub(super) fn map(&self, path: &Path, len: usize, is_writable: bool) -> io::Result<usize> {
        let path = std::path::absolute(path)?;
        let address = self.call(&Call::Map { len: len as u64, is_writable, path })?;
        usize::try_from(address).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Writes back what has changed in `len` bytes from `address`, a multiple of the page size, and waits (`MS_SYNC`).
    pub(super) fn sync(&self, address: usize, len: usize) -> io::Result<()> {
        self.call(&Call::Sync { address: address as u64, len: len as u64 }).map(drop)
    }

    /// Callers do not wait for each other: each has a connection while it calls, and the other side a thread for each.
    fn call(&self, call: &Call) -> io::Result<u64> {
        // The lock is not held while it connects.
        let idle = self.idle.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let reply = call.send(&mut connection).and_then(|()| Reply::receive(&mut connection))?;
        self.idle.lock().push(connection);
        reply.0
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        send_descriptor(&self.control.lock(), &OwnedFd::from(theirs))?;
        Ok(ours)
    }
}

impl Drop for MappingProcess {
    fn drop(&mut self) {
        // It ends when nobody can send it connections any more. Its files must be closed when this returns, since what they
        // are on is to be unmounted.
        let _ = self.control.get_mut().shutdown(std::net::Shutdown::Both);
        let child = self.child.get_mut();
        let deadline = Instant::now() + END_PATIENCE;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                // It waits for the device. It goes once that answers or is taken away.
                let _ = child.kill();
                let _ = child.try_wait();
                return;
            }
            std::thread::sleep(END_INTERVAL);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Set where this test program is started as the other process.
    const MARK: &str = "ROTPROOF_TEST_HOLDS_MAPPINGS";

    /// The other process as a test of this program, which has no verbs.
    pub(in crate::driver) fn start_here() -> MappingProcess {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let name = "driver::mapping::tests::the_other_process";
        command.args(["--exact", name, "--include-ignored"]).env(MARK, "1");
        MappingProcess::start_as(command).expect("it starts")
    }

    #[test]
    #[ignore = "not a test: what other tests start as a second process"]
    fn the_other_process() {
        if std::env::var_os(MARK).is_some() {
            hold_mappings().expect("its standard input is a socket");
        }
    }

    #[test]
    fn a_program_that_does_not_answer_is_an_error() {
        let error = MappingProcess::start_as(Command::new("true")).expect_err("it says nothing");
        assert!(error.to_string().contains("starting a process that maps"), "{error}");
    }

    #[test]
    fn it_ends_with_the_last_use_and_its_own_end_is_no_finding() {
        let process = start_here();
        let number = process.process();
        process.check().expect("it is there");
        drop(process);
        assert!(!Path::new(&format!("/proc/{number}")).exists(), "it is gone, and its files are closed");
        let process = start_here();
        // SAFETY: a child of this test that has not been waited for.
        assert_eq!(unsafe { libc::kill(process.process(), libc::SIGKILL) }, 0);
        let deadline = Instant::now() + Duration::from_secs(60);
        let error = loop {
            match process.check() {
                Err(error) => break error,
                Ok(()) => assert!(Instant::now() < deadline, "a killed process never ended"),
            }
            std::thread::sleep(END_INTERVAL);
        };
        assert_eq!(error.kind(), ErrorKind::Gone);
        process.sync(4096, 4096).expect_err("nobody answers");
    }

    #[test]
    fn callers_do_not_wait_for_each_other_and_their_errors_are_told() {
        let process = start_here();
        let folder = tempfile::tempdir().expect("a folder");
        let missing = process.map(&folder.path().join("missing"), 4096, true).expect_err("it is not there");
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
        assert_eq!(
            process.sync(4096, 4096).expect_err("nothing is there").raw_os_error(),
            Some(libc::ENOMEM)
        );
        std::thread::scope(|scope| {
            for number in 0..8 {
                let (process, folder) = (&process, folder.path());
                scope.spawn(move || {
                    let path = folder.join(format!("{number}"));
                    std::fs::write(&path, vec![number; 8192]).expect("written");
                    for _ in 0..20 {
                        let address = process.map(&path, 8192, true).expect("mapped");
                        process.sync(address, 8192).expect("synchronised");
                    }
                });
            }
        });
        assert!((1..=8).contains(&process.idle.lock().len()), "one connection for each caller at once");
    }
}
