//! Takes marks from a command that is the load, over a socket: a line is a mark, and is answered when it is recorded. So
//! whatever the command does after the answer comes after the mark in the recording.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rotproof_block::Result;
use rotproof_block::error::IoContext;

/// Where a mark goes.
pub(super) type SetMark = Arc<dyn Fn(&str) + Send + Sync>;

/// Name of the socket in the scratch folder.
const SOCKET: &str = "marks.sock";
/// What is answered.
const ANSWER: &[u8] = b"ok\n";
/// How often it is looked whether it is to end.
const POLL: Duration = Duration::from_millis(20);
/// A longer line is cut.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// See the head of the module. Dropped, it ends.
pub(super) struct MarkServer {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MarkServer {
    /// Listens in a folder.
    pub(super) fn start(folder: &Path, set: SetMark) -> Result<Self> {
        let path = folder.join(SOCKET);
        let doing = || format!("listening for marks on {}", path.display());
        let listener = UnixListener::bind(&path).doing(doing)?;
        listener.set_nonblocking(true).doing(doing)?;
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("marks".into())
            .spawn(move || serve(&listener, &set, &ends))
            .doing(|| "starting a thread for marks".into())?;
        Ok(Self { path, stop, thread: Some(thread) })
    }

    /// Its socket.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MarkServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Nobody is left to be told.
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(listener: &UnixListener, set: &SetMark, stop: &Arc<AtomicBool>) {
    let mut clients: Vec<JoinHandle<()>> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((client, _)) => {
                let (set, stop) = (Arc::clone(set), Arc::clone(stop));
                let client =
                    std::thread::Builder::new().name("mark".into()).spawn(move || take(client, &set, &stop));
                clients.extend(client);
                clients.retain(|client| !client.is_finished());
            }
            // Also where descriptors are short for a moment.
            Err(_) => std::thread::sleep(POLL.min(Duration::from_millis(2))),
        }
    }
    for client in clients {
        let _ = client.join();
    }
}

/// Serves one client until it ends, or nobody wants marks any more.
fn take(client: UnixStream, set: &SetMark, stop: &AtomicBool) {
    // A client that is silent must not outlast the load.
    if client.set_nonblocking(false).and_then(|()| client.set_read_timeout(Some(POLL))).is_err() {
        return;
    }
    let Ok(mut answers) = client.try_clone() else { return };
    let mut lines = BufReader::new(client);
    let mut line = Vec::new();
    loop {
        let mut limited =
            std::io::Read::take(&mut lines, LINE_BYTES_MAX.saturating_sub(line.len() as u64).max(1));
        match limited.read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) if line.ends_with(b"\n") || line.len() as u64 >= LINE_BYTES_MAX => {
                let text = String::from_utf8_lossy(&line);
                set(text.trim_end_matches('\n'));
                line.clear();
                if answers.write_all(ANSWER).is_err() {
                    return;
                }
            }
            Ok(_) => {}
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
            {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::io::Read;

    #[test]
    fn a_mark_is_set_before_it_is_answered() {
        let folder = tempfile::tempdir().expect("a folder");
        let marks: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&marks);
        let set: SetMark = Arc::new(move |text: &str| kept.lock().push(text.to_owned()));
        let server = MarkServer::start(folder.path(), set).expect("it listens");
        for client in 0..3 {
            let mut stream = UnixStream::connect(server.path()).expect("it listens");
            for number in 0..5 {
                stream.write_all(format!("transaction {client}.{number}\n").as_bytes()).expect("it reads");
                let mut answer = [0; 3];
                stream.read_exact(&mut answer).expect("it answers");
                assert_eq!(&answer, ANSWER);
                assert_eq!(marks.lock().last(), Some(&format!("transaction {client}.{number}")));
            }
        }
        let silent = UnixStream::connect(server.path()).expect("it listens");
        drop(server);
        drop(silent);
        assert_eq!(marks.lock().len(), 15);
        assert!(std::fs::read_dir(folder.path()).expect("a folder").next().is_none());
    }
}
