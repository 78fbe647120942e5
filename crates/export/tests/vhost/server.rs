//! A server on a socket in a folder of its own, gone at the end of the test.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::Device;
use rotproof_block::leaf::MemoryDevice;
use rotproof_export::{VhostExport, VhostOptions, VhostServer};
use tempfile::TempDir;

/// Far more than anything here takes, even on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Served {
    pub server: VhostServer,
    pub folder: TempDir,
}

impl Served {
    pub fn one(device: Arc<dyn Device>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("s");
        let export = VhostExport { name: "a disk of some kind, or another".into(), socket, device };
        let server = VhostServer::start(&[export], VhostOptions::default()).expect("starts");
        Self { server, folder }
    }

    pub fn memory(size: u64) -> Self {
        Self::one(MemoryDevice::new(size, 512).expect("sizes that fit"))
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    /// Waits until so many clients are left.
    pub fn wait_for_clients(&self, count: usize) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while self.server.connections() != count {
            assert!(std::time::Instant::now() < deadline, "connections outlive their clients");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
