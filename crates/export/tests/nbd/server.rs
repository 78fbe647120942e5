//! A server on a socket in a folder of its own, gone at the end of the test.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rotproof_block::Device;
use rotproof_block::leaf::MemoryDevice;
use rotproof_export::{NbdAddress, NbdExport, NbdOptions, NbdServer};
use tempfile::TempDir;

/// Far more than anything here takes, even on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Served {
    pub server: NbdServer,
    pub folder: TempDir,
}

impl Served {
    pub fn new(exports: Vec<NbdExport>, options: NbdOptions) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let address = NbdAddress::Unix(folder.path().join("nbd.sock"));
        let server = NbdServer::start(exports, &[address], options).expect("starts");
        Self { server, folder }
    }

    pub fn one(device: Arc<dyn Device>) -> Self {
        Self::new(vec![export("disk", device)], NbdOptions::default())
    }

    pub fn memory(size: u64) -> Self {
        Self::one(MemoryDevice::new(size, 512).expect("sizes that fit"))
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("nbd.sock")
    }

    pub fn uri(&self) -> String {
        self.server.uris().swap_remove(0)
    }
}

pub fn export(name: &str, device: Arc<dyn Device>) -> NbdExport {
    NbdExport { name: name.into(), description: format!("the export {name}"), device }
}

/// Runs a program to its end, but not for ever.
pub fn output(program: &str, arguments: &[&str]) -> Output {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} is needed for this test: {error}"));
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().expect("our child").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("our child");
            let output = child.wait_with_output().expect("our child");
            panic!("{program} {arguments:?} does not end: {}", String::from_utf8_lossy(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("our child")
}

/// What a program that must succeed prints.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = output(program, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}
