//! Servers of block devices that ours is measured against, as processes of their own, and ours beside them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_export::{NbdAddress, NbdExport, NbdOptions, NbdServer};

use crate::fio::{self, Job, Target};
use crate::machine;
use crate::served::Run;

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server at a Unix socket.
pub struct NbdPeer {
    /// How figures call it.
    pub name: &'static str,
    socket: PathBuf,
    serving: Serving,
}

enum Serving {
    Ours { _server: NbdServer },
    Process(Child),
}

impl NbdPeer {
    /// Our server over `device`.
    pub fn ours(name: &'static str, folder: &Path, device: Arc<dyn Device>) -> Result<Self> {
        let socket = folder.join(format!("{}.sock", name.replace(' ', "-")));
        let export = NbdExport { name: String::new(), description: String::new(), device };
        let address = NbdAddress::Unix(socket.clone());
        let server = NbdServer::start(vec![export], &[address], NbdOptions::default())?;
        Ok(Self { name, socket, serving: Serving::Ours { _server: server } })
    }

    /// nbdkit with its sparse memory.
    pub fn nbdkit(folder: &Path, size_bytes: u64) -> Result<Self> {
        let socket = folder.join("nbdkit.sock");
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--exit-with-parent", "--unix"]).arg(&socket);
        command.args(["memory", &size_bytes.to_string()]);
        Self::start("nbdkit memory", command, socket)
    }

    /// QEMU's storage daemon; `node` is the block device it serves, as `--blockdev` takes it, under the name `disk`.
    pub fn qemu(name: &'static str, folder: &Path, node: &str) -> Result<Self> {
        let socket = folder.join(format!("{}.sock", name.replace(' ', "-")));
        let mut command = Command::new("qemu-storage-daemon");
        command.args(["--blockdev", node]);
        command.args(["--nbd-server", &format!("addr.type=unix,addr.path={}", socket.display())]);
        command.args(["--export", "type=nbd,id=export,node-name=disk,name=,writable=on"]);
        Self::start(name, command, socket)
    }

    fn start(name: &'static str, mut command: Command, socket: PathBuf) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .doing(|| format!("starting {name}"))?;
        let peer = Self { name, socket, serving: Serving::Process(child) };
        let deadline = Instant::now() + PATIENCE;
        while !peer.socket.exists() {
            if Instant::now() > deadline {
                return Err(Error::new(ErrorKind::TimedOut, format!("{name} does not listen")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(peer)
    }

    /// Where clients find its one export.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Runs `job` on it.
    pub fn measure(&self, job: Job<'_>) -> Result<Run> {
        let uri = self.uri();
        let before = self.cpu_seconds();
        let measured = fio::run(Target::Nbd(&uri), job)?;
        let server_us = (self.cpu_seconds() - before) * 1e6 / measured.requests;
        Ok(Run { rate: measured.iops, server_us, client_us: measured.cpu_us })
    }

    /// Has it run on these processors only, in the form of taskset(1): those of its threads that are there, and those that they
    /// begin.
    pub fn pin(&self, processors: &str) -> Result<()> {
        let process = match &self.serving {
            Serving::Ours { .. } => std::process::id(),
            Serving::Process(child) => child.id(),
        };
        let output = Command::new("taskset")
            .args(["--all-tasks", "--cpu-list", "--pid", processors, &process.to_string()])
            .output()
            .doing(|| "starting taskset".into())?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::new(ErrorKind::Internal, format!("taskset failed: {said}")))
    }

    /// Seconds of CPU that serving has taken so far.
    fn cpu_seconds(&self) -> f64 {
        match &self.serving {
            // Apart from its server this process only waits for fio.
            Serving::Ours { .. } => machine::cpu_of_process(std::process::id()),
            Serving::Process(child) => machine::cpu_of_process(child.id()),
        }
    }
}

impl Drop for NbdPeer {
    fn drop(&mut self) {
        if let Serving::Process(child) = &mut self.serving {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
