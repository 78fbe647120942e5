//! Undoing what was created, in reverse order, on every way out of the process: success, error, cancellation, panic.
//!
//! Owns the objects behind the resources by way of the closures that undo them. Where a closure fails or is missing
//! (its maker failed half-way), the resource is removed by what the record says of it, as `rotproof clean` would.

use std::fs::{DirBuilder, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, Result};

use super::kind::{Kind, Resource};
use super::paths::{Directory, File, Socket, Tree};
use super::run::{Entry, Run};

/// How to undo one creation the regular way.
pub type Undo = Box<dyn FnOnce() -> Result<()> + Send>;

/// What has been created so far, the last on top. Dropping it undoes everything.
#[derive(Debug)]
pub struct CleanupStack {
    run: Run,
    steps: Vec<Step>,
}

struct Step {
    /// Nothing, if it ends with the process and has left nothing.
    entry: Option<Entry>,
    what: String,
    kind: Option<&'static Kind>,
    undo: Option<Undo>,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl CleanupStack {
    /// Nothing yet; what comes is recorded with `run`.
    pub fn new(run: &Run) -> Self {
        Self { run: run.clone(), steps: Vec::new() }
    }

    /// Records `resource`, then creates it with `make`, which also says how to undo it. If `make` fails, whatever it
    /// left of the resource is removed.
    pub fn create<T>(
        &mut self,
        resource: impl Resource + 'static,
        make: impl FnOnce() -> Result<(T, Undo)>,
    ) -> Result<T> {
        let what = resource.to_string();
        let kind = Some(resource.kind());
        let entry = self.run.record(resource)?;
        let height = self.steps.len();
        // On the stack before it is made, so that a panic in `make` is cleaned up too.
        self.steps.push(Step { entry: Some(entry), what, kind, undo: None });
        match make() {
            Ok((made, undo)) => {
                self.steps[height].undo = Some(undo);
                Ok(made)
            }
            Err(error) => {
                let failures = self.undo_to(height);
                self.run.add_failures(failures);
                Err(error)
            }
        }
    }

    /// Puts on the stack what leaves nothing behind when this process is gone, but is to be ended in its turn.
    pub fn end_with(&mut self, what: &str, undo: Undo) {
        self.steps.push(Step { entry: None, what: what.to_owned(), kind: None, undo: Some(undo) });
    }

    /// Creates a folder that only this user may enter. It is removed when it is empty.
    pub fn create_directory(&mut self, path: &Path) -> Result<()> {
        let resource = Directory { path: path.to_owned() };
        self.create_path(resource, path, || DirBuilder::new().mode(0o700).create(path))
    }

    /// Creates a folder that only this user may enter. It is removed with all that has come to be in it.
    pub fn create_tree(&mut self, path: &Path) -> Result<()> {
        let resource = Tree { path: path.to_owned() };
        self.create_path(resource, path, || DirBuilder::new().mode(0o700).create(path))
    }

    /// Creates a file that did not exist, for reading and writing by this user only.
    pub fn create_file(&mut self, path: &Path) -> Result<std::fs::File> {
        let resource = File { path: path.to_owned() };
        self.create_path(resource, path, || {
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
        })
    }

    /// Creates a Unix socket that only this user may connect to, and listens on it. Fails with
    /// [`ErrorKind::Os`](rotproof_block::ErrorKind::Os) of `EADDRINUSE` if something has that name.
    pub fn create_socket(&mut self, path: &Path) -> Result<UnixListener> {
        let resource = Socket { path: path.to_owned() };
        self.create_path(resource, path, || private_listener(path))
    }

    fn create_path<T>(
        &mut self,
        resource: impl Resource + 'static,
        path: &Path,
        make: impl FnOnce() -> std::io::Result<T>,
    ) -> Result<T> {
        let (what, kind) = (resource.to_string(), Some(resource.kind()));
        let entry = self.run.record(resource)?;
        match make() {
            Ok(made) => {
                let identified = self.run.created(&entry, path);
                self.steps.push(Step { entry: Some(entry), what, kind, undo: None });
                identified.map(|()| made)
            }
            Err(error) => {
                // What is there now is not ours: `make` creates or fails, never half.
                self.run.gone(entry)?;
                Err(error).doing(|| format!("creating {what}"))
            }
        }
    }

    /// How many creations it holds: a mark for [`CleanupStack::undo_to`].
    pub fn height(&self) -> usize {
        self.steps.len()
    }

    /// Undoes everything above the mark, the last first. Goes on after a failure, and gives all of them; what
    /// could not be removed stays in the run's record.
    #[must_use = "failures of the clean-up are to be reported"]
    pub fn undo_to(&mut self, height: usize) -> Vec<Error> {
        let mut failures = Vec::new();
        let mut staying: Vec<&Kind> = Vec::new();
        while self.steps.len() > height {
            let Some(step) = self.steps.pop() else { break };
            if step.kind.is_some_and(|kind| kind.finds_any(staying.iter().copied())) {
                // By this alone what stays can be told for ours; without it the record would be of nothing that is there.
                // Both stay in it.
                std::mem::forget(step.undo);
                continue;
            }
            let doing = format!("removing {}", step.what);
            let regular = step.undo.map_or(Ok(()), |undo| undo());
            failures.extend(regular.err().map(|error| error.while_doing(&doing)));
            // Finds nothing if the regular way has done its work; if not, it is the second attempt, with force.
            let again = step.entry.map_or(Ok(()), |entry| self.run.undo(entry));
            staying.extend(step.kind.filter(|_| again.is_err()));
            failures.extend(again.err().map(|error| error.while_doing(&doing)));
        }
        failures
    }

    /// Undoes everything.
    #[must_use = "failures of the clean-up are to be reported"]
    pub fn undo_all(&mut self) -> Vec<Error> {
        self.undo_to(0)
    }
}

/// A listening socket that never was open to others, not even for a moment.
fn private_listener(path: &Path) -> std::io::Result<UnixListener> {
    let check = |answer: libc::c_int| {
        if answer < 0 { Err(std::io::Error::last_os_error()) } else { Ok(answer) }
    };
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(std::io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers only, and what it gives belongs to nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_UNIX, kind, 0))?) };
    // SAFETY: a descriptor and a number. The mode of an unbound socket becomes that of its name (unix(7)).
    check(unsafe { libc::fchmod(socket.as_raw_fd(), 0o600) })?;
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address lives across the call and is as long as told.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    // SAFETY: takes numbers only.
    check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) }).inspect_err(|_| {
        let _ = std::fs::remove_file(path);
    })?;
    Ok(UnixListener::from(socket))
}

/// Connections that wait to be accepted.
const BACKLOG: libc::c_int = 64;

impl Drop for CleanupStack {
    fn drop(&mut self) {
        let failures = self.undo_all();
        self.run.add_failures(failures);
    }
}
