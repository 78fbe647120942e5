//! The export and the leaf together keep the contract of a device, over both kinds of sockets.

use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::conformance::{On, check};
use rotproof_block::leaf::{MemoryDevice, NbdDevice};
use rotproof_block::{Device, DeviceInfo, ErrorKind, Queue, Result, Runtime};
use rotproof_export::{NbdAddress, NbdOptions, NbdServer};

use crate::scripted::{Action, Scripted};
use crate::server::{Served, export};

/// A device reached through its export.
struct Reached {
    leaf: Arc<NbdDevice>,
    _server: NbdServer,
    _folder: Option<tempfile::TempDir>,
}

impl Device for Reached {
    fn info(&self) -> DeviceInfo {
        self.leaf.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        self.leaf.open_queue(runtime)
    }
}

fn over_unix(device: Arc<dyn Device>) -> Result<Arc<dyn Device>> {
    let Served { server, folder } = Served::one(device);
    let leaf = NbdDevice::connect(&server.uris()[0].parse()?)?;
    Ok(Arc::new(Reached { leaf, _server: server, _folder: Some(folder) }))
}

fn over_tcp(device: Arc<dyn Device>) -> Result<Arc<dyn Device>> {
    let anywhere: NbdAddress = "127.0.0.1:0".parse()?;
    let server = NbdServer::start(vec![export("a b/ü", device)], &[anywhere], NbdOptions::default())?;
    let leaf = NbdDevice::connect(&server.uris()[0].parse()?)?;
    Ok(Arc::new(Reached { leaf, _server: server, _folder: None }))
}

#[test]
fn a_device_behind_a_unix_socket_keeps_the_contract() {
    check(On::Uring, &|| over_unix(MemoryDevice::new(4 << 20, 512)?)).expect("every clause holds");
    check(On::Simulated, &|| over_unix(MemoryDevice::new(4 << 20, 512)?)).expect("every clause holds");
}

#[test]
fn a_device_behind_tcp_keeps_the_contract() {
    check(On::Uring, &|| over_tcp(MemoryDevice::new(4 << 20, 512)?)).expect("every clause holds");
}

#[test]
fn a_device_of_large_blocks_is_a_device_of_bytes_to_its_clients() {
    check(On::Uring, &|| over_unix(MemoryDevice::new(4 << 20, 4096)?)).expect("every clause holds");
}

#[test]
fn a_read_only_device_without_features_is_one_through_its_export_too() {
    let plain = || {
        let device = Scripted::new(1 << 20, 512, |_| Action::Pass).with(|info| {
            info.read_only = true;
            info.features.discard = false;
            info.features.write_zeroes = false;
        });
        over_unix(Arc::new(device))
    };
    let info = plain().expect("opens").info();
    assert!(info.read_only && !info.features.discard && !info.features.write_zeroes);
    check(On::Uring, &plain).expect("every clause holds");
}

#[test]
fn errors_arrive_at_the_leaf_as_kinds_and_the_leaf_remembers_the_first() {
    for (given, seen) in [
        (ErrorKind::Medium, ErrorKind::Medium),
        (ErrorKind::NoSpace, ErrorKind::NoSpace),
        (ErrorKind::Unsupported, ErrorKind::Unsupported),
        (ErrorKind::TimedOut, ErrorKind::Medium),
    ] {
        let served = Served::one(Arc::new(Scripted::new(1 << 20, 512, move |_| Action::Fail(given))));
        let leaf = NbdDevice::connect(&served.uri().parse().expect("a URI")).expect("connects");
        let runtime = Runtime::simulated(1);
        let queue = leaf.open_queue(&runtime).expect("opens");
        let request = rotproof_block::Request::read(
            0,
            rotproof_block::Buffer::zeroed(512),
            rotproof_block::Context::default(),
        );
        let completion = runtime.block_on(queue.submit(request)).expect("completes");
        assert_eq!(completion.result.expect_err("fails").kind(), seen);
        assert_eq!(completion.buffer.len(), 512);
        assert_eq!(leaf.check().is_err(), seen != ErrorKind::Unsupported);
    }
}

#[test]
fn a_leaf_whose_server_is_gone_says_so() {
    let served = Served::memory(1 << 20);
    let leaf = NbdDevice::connect(&served.uri().parse().expect("a URI")).expect("connects");
    let runtime = Runtime::simulated(1);
    let queue = leaf.open_queue(&runtime).expect("opens");
    leaf.check().expect("the server is there");
    served.server.stop().expect("ends");
    let flush = rotproof_block::Request::write(
        0,
        rotproof_block::Buffer::zeroed(512),
        rotproof_block::Context::default(),
    );
    let completion = runtime.block_on(queue.submit(flush)).expect("completes");
    assert_eq!(completion.result.expect_err("nobody is there").kind(), ErrorKind::Gone);
    assert_eq!(leaf.check().expect_err("remembered").kind(), ErrorKind::Gone);
    let uri = served.uri().parse().expect("a URI");
    assert_eq!(NbdDevice::connect(&uri).expect_err("nobody listens").kind(), ErrorKind::Missing);
}

#[test]
fn a_server_of_one_connection_is_shared_by_all_queues() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    let socket_text = socket.to_str().expect("UTF-8");
    // nbdkit's pattern of one connection at a time, without multi-conn.
    let mut nbdkit = std::process::Command::new("nbdkit")
        .args(["--foreground", "--exit-with-parent", "--unix", socket_text, "--filter=multi-conn"])
        .args(["memory", "16M", "multi-conn-mode=disable"])
        .spawn()
        .expect("nbdkit is needed for this test");
    let deadline = std::time::Instant::now() + crate::server::PATIENCE;
    while !socket.exists() {
        assert!(std::time::Instant::now() < deadline, "nbdkit does not listen");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let uri = format!("nbd+unix:///?socket={socket_text}");
    let result = check(On::Uring, &|| {
        let leaf = NbdDevice::connect(&uri.parse()?)?;
        // Every clause wants a device of zeros.
        let runtime = Runtime::simulated(1);
        let size = leaf.info().size;
        let zero = rotproof_block::Request::write_zeroes(0, size, rotproof_block::Context::default());
        runtime.block_on(leaf.open_queue(&runtime)?.submit(zero))?.result?;
        Ok(leaf)
    });
    nbdkit.kill().expect("our child");
    nbdkit.wait().expect("our child");
    result.expect("every clause holds");
}
