//! How a volume is reached: through whoever serves it, or by its members where nobody does.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Error, ErrorKind, Runtime};
use rotproof_machine::{Claim, Filled, Use};
use rotproof_serve::control::{Action, Client};
use rotproof_serve::sockets;
use rotproof_serve::volume::{Doer, VolumeTask, candidate};
use rotproof_volume::volume::{Candidate, Inspection, OpenOptions, Volume, Without, inspect};
use serde_json::Value;

use crate::output::Output;
use crate::units::bytes;

/// How long a member may take to answer while nobody else uses the volume.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a server is asked how far a task has come.
const INTERVAL: Duration = Duration::from_millis(50);

pub fn runtime() -> Result<Runtime, Error> {
    Runtime::uring(RuntimeOptions::new(0))
}

pub fn candidates(paths: &[PathBuf], read_only: bool) -> Result<Vec<Candidate>, Error> {
    paths.iter().map(|path| candidate(path, read_only)).collect()
}

/// The right to use these alone, for as long as it is kept.
pub fn claim(paths: &[PathBuf], overwrite: bool) -> Result<Vec<Claim>, Error> {
    paths.iter().map(|path| Claim::of_path(path, &Use::fill(Filled::ByClients, overwrite))).collect()
}

/// What is on record, with nothing written.
pub fn on_record(members: &[PathBuf], runtime: &Runtime) -> Result<Inspection, Error> {
    runtime.block_on(inspect(candidates(members, true)?, runtime))?
}

/// A server of a volume.
pub struct Server {
    client: Client,
    /// What the volume is like.
    pub status: Value,
}

/// Who serves the volume of this number, if somebody does.
pub fn server_of(found: &Inspection) -> Option<Server> {
    let id = format!("{:032x}", found.status.id);
    sockets().into_iter().find_map(|(_, socket)| {
        let mut client = Client::connect(&socket).ok()?;
        let status = client.ask(&Action::VolumeStatus {}).ok()?;
        (status["id"] == id.as_str()).then_some(Server { client, status })
    })
}

impl Server {
    /// What the volume is like now.
    pub fn look(&mut self) -> Result<Value, Error> {
        self.client.ask(&Action::VolumeStatus {})
    }

    /// Has a task done, and waits for its end. What came of it.
    pub fn perform(&mut self, task: VolumeTask, output: Output) -> Result<Value, Error> {
        let number = self.client.ask(&Action::VolumeTask { task })?["task"].as_u64().unwrap_or(0);
        let told = Told::default();
        loop {
            let mut report = self.client.ask(&Action::VolumeProgress { task: number })?;
            match report["state"].as_str() {
                Some("done") => return Ok(report["result"].take()),
                Some("failed") => {
                    let why = report["error"].as_str().unwrap_or("it could not be done").to_owned();
                    return Err(Error::new(ErrorKind::Invalid, why));
                }
                _ => {
                    let count = |key: &str| report[key].as_u64().unwrap_or(0);
                    told.tell(output, count("done_bytes"), count("of_bytes"));
                    std::thread::sleep(INTERVAL);
                }
            }
        }
    }
}

/// Tells how far something has come, each tenth.
#[derive(Default)]
struct Told(Cell<u64>);

impl Told {
    fn tell(&self, output: Output, done: u64, of: u64) {
        let tenth = (done * 10).checked_div(of).unwrap_or(10);
        if tenth > self.0.get() && tenth < 10 {
            self.0.set(tenth);
            output.note(format_args!("  {} of {}", bytes(done), bytes(of)));
        }
    }
}

/// Has a task done, by the server of the volume or here. What came of it.
pub fn perform(
    members: &[PathBuf],
    without: Without,
    task: VolumeTask,
    output: Output,
) -> Result<Value, Error> {
    let runtime = runtime()?;
    let found = on_record(members, &runtime)?;
    if let Some(mut server) = server_of(&found) {
        return server.perform(task, output);
    }
    with_volume(members, without, &runtime, output, async |volume, claims| {
        let told = Told::default();
        let doer = Doer {
            volume,
            runtime: &runtime,
            progress: &|done, of| told.tell(output, done, of),
            stops: &AtomicBool::new(false),
            claims,
            rebuild_rate: None,
        };
        doer.perform(task).await
    })
}

/// Opens a volume that nobody else uses, has something done to it, and closes it. What comes to the claims is given up after it.
pub fn with_volume<T>(
    members: &[PathBuf],
    without: Without,
    runtime: &Runtime,
    output: Output,
    work: impl AsyncFnOnce(&Volume, &Mutex<Vec<Claim>>) -> Result<T, Error>,
) -> Result<T, Error> {
    let claims = Mutex::new(claim(members, true)?);
    let members = candidates(members, false)?;
    runtime.block_on(async {
        // Nothing is written before it is clear that these are a volume.
        inspect(members.clone(), runtime).await?;
        let options = OpenOptions { without, ..OpenOptions::with_patience(PATIENCE) };
        let volume: Arc<Volume> = Volume::open(members, options, runtime).await?;
        for note in volume.notes() {
            output.note(note);
        }
        let done = work(&volume, &claims).await?;
        volume.close(runtime).await?;
        Ok(done)
    })?
}
