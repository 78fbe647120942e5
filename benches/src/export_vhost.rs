//! The vhost-user-blk server against that of QEMU's storage daemon: the driver of the tests as the client of both, in
//! turns, one ring.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::hash::mix;
use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_export::{VhostExport, VhostOptions, VhostServer};
use tempfile::TempDir;

use crate::Effort;
use crate::driver::{Attached, FLUSH, RING_SIZE, SPDK_FEATURES, kind, status};
use crate::figure::{Bar, Figure};
use crate::machine;
use crate::served::{Cell, Of, Run};
use crate::server::PATIENCE;

const DEVICE_BYTES: u64 = 256 << 20;
/// Bytes of configuration that every server has.
const CONFIG_BYTES: u32 = 60;
const SECTOR: u64 = 512;
/// What SPDK's initiator uses, and the modern layout, which QEMU insists on.
const FEATURES: u64 = SPDK_FEATURES | 1 << 32;

/// What is measured: kind of request, bytes, depth, whether the places are random, and how figures call it.
const CELLS: [(u32, u32, u16, bool, &str); 6] = [
    (kind::READ, 4096, 1, true, "4 KiB read, depth 1"),
    (kind::WRITE, 4096, 1, true, "4 KiB write, depth 1"),
    (kind::READ, 4096, 32, true, "4 KiB read, depth 32"),
    (kind::WRITE, 4096, 32, true, "4 KiB write, depth 32"),
    (kind::READ, 131_072, 8, false, "128 KiB read, depth 8"),
    (kind::WRITE, 131_072, 8, false, "128 KiB write, depth 8"),
];

/// A server at a socket.
struct Peer {
    name: &'static str,
    /// Whether it keeps what is written.
    stores: bool,
    socket: PathBuf,
    serving: Serving,
}

enum Serving {
    Ours { _server: VhostServer },
    Process(Child),
}

/// Measures every cell against every peer.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    machine::need("qemu-storage-daemon", "qemu-system-common")?;
    let folder = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).map_err(machine::no_folder)?;
    let image = folder.path().join("image");
    machine::make_file(&image, DEVICE_BYTES)?;
    let null = format!("driver=null-co,node-name=disk,read-zeroes=off,size={DEVICE_BYTES}");
    let file = format!("driver=file,node-name=disk,filename={}", image.display());
    let peers = [
        Peer::ours(folder.path())?,
        Peer::qemu("qemu null", folder.path(), &null)?,
        Peer::qemu("qemu tmpfs", folder.path(), &file)?,
    ];
    let mut clients: Vec<Attached> =
        peers.iter().map(|peer| Attached::with_config(&peer.socket, 1, FEATURES, CONFIG_BYTES)).collect();
    for client in &mut clients {
        fill(client)?;
    }
    let names: Vec<&'static str> = peers.iter().map(|peer| peer.name).collect();
    for (kind, bytes, depth, is_random, name) in CELLS {
        let cell = Cell::measure(name, u64::from(bytes), names.clone(), effort.rounds, |index| {
            let span = Duration::from_secs_f64(effort.seconds);
            let (server, client) = (peers[index].cpu_seconds(), machine::thread_cpu());
            let (requests, seconds) = drive(&mut clients[index], kind, bytes, depth, is_random, span)?;
            let client = machine::thread_cpu() - client;
            let requests = requests as f64;
            Ok(Run {
                rate: requests / seconds,
                server_us: (peers[index].cpu_seconds() - server) * 1e6 / requests,
                client_us: client.as_secs_f64() * 1e6 / requests,
            })
        })?;
        for (index, peer) in peers.iter().enumerate().skip(1) {
            // Against one that stores nothing there is nothing to be asked for: it shows what a request itself costs.
            let bar = |bar| peer.stores.then_some(bar);
            found(cell.figure(Of::Rate, 0, index, bar(Bar::AtLeast(1.0))));
            found(cell.figure(Of::Server, 0, index, bar(Bar::AtMost(0.8))));
            found(cell.figure(Of::Client, 0, index, None));
            found(cell.figure(Of::Both, 0, index, None));
        }
    }
    durable(&peers[0], effort, found)
}

/// What it costs that a driver without flush has every write made durable, where nothing is volatile: the same writes over the
/// same server by a driver that flushes when it likes.
fn durable(ours: &Peer, effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let attach = |features| Attached::with_config(&ours.socket, 1, features, CONFIG_BYTES);
    let mut clients = [attach(FEATURES), attach(FEATURES | FLUSH)];
    for client in &mut clients {
        client.ring().put(0, &vec![0x5a; 1 << 20]);
    }
    for (depth, name) in [(1, "4 KiB write, depth 1"), (32, "4 KiB write, depth 32")] {
        let names = vec!["all durable", "as flushed"];
        let cell = Cell::measure(name, 4096, names, effort.rounds * 2, |index| {
            let span = Duration::from_secs_f64(effort.seconds / 2.0);
            let (server, client) = (ours.cpu_seconds(), machine::thread_cpu());
            let (requests, seconds) = drive(&mut clients[index], kind::WRITE, 4096, depth, true, span)?;
            let (client, requests) = (machine::thread_cpu() - client, requests as f64);
            Ok::<_, Error>(Run {
                rate: requests / seconds,
                server_us: (ours.cpu_seconds() - server) * 1e6 / requests,
                client_us: client.as_secs_f64() * 1e6 / requests,
            })
        })?;
        found(cell.figure(Of::Rate, 0, 1, Some(Bar::AtLeast(0.95))));
        found(cell.figure(Of::Server, 0, 1, Some(Bar::AtMost(1.05))));
    }
    Ok(())
}

impl Peer {
    fn ours(folder: &Path) -> Result<Self> {
        let socket = folder.join("ours.sock");
        let device = MemoryDevice::new(DEVICE_BYTES, 512)?;
        let export = VhostExport { name: "bench".into(), socket: socket.clone(), device };
        let server = VhostServer::start(&[export], VhostOptions::default())?;
        Ok(Self { name: "rotproof", stores: true, socket, serving: Serving::Ours { _server: server } })
    }

    fn qemu(name: &'static str, folder: &Path, node: &str) -> Result<Self> {
        let socket = folder.join(format!("{}.sock", name.replace(' ', "-")));
        let mut command = Command::new("qemu-storage-daemon");
        command.args(["--blockdev", node, "--export"]);
        let address = format!("addr.type=unix,addr.path={}", socket.display());
        command.arg(format!("type=vhost-user-blk,id=export,node-name=disk,writable=on,{address}"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.doing(|| format!("starting {name}"))?;
        let peer = Self { name, stores: !node.contains("null-co"), socket, serving: Serving::Process(child) };
        let deadline = Instant::now() + PATIENCE;
        while !peer.socket.exists() {
            if Instant::now() > deadline {
                return Err(Error::new(ErrorKind::TimedOut, format!("{name} does not listen")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(peer)
    }

    /// Seconds of CPU that serving has taken so far.
    fn cpu_seconds(&self) -> f64 {
        match &self.serving {
            // The client is the thread that asks, in this same process.
            Serving::Ours { .. } => {
                machine::cpu_of_process(std::process::id()) - machine::thread_cpu().as_secs_f64()
            }
            Serving::Process(child) => machine::cpu_of_process(child.id()),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Serving::Process(child) = &mut self.serving {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_file(&self.socket);
    }
}

/// Writes everything once, so that no measurement meets memory for the first time.
fn fill(client: &mut Attached) -> Result<()> {
    let ring = client.ring();
    ring.put(0, &vec![0x5a; 1 << 20]);
    for offset in (0..DEVICE_BYTES).step_by(1 << 20) {
        if ring.run(kind::WRITE, offset / SECTOR, 1 << 20) != status::OK {
            return Err(Error::new(ErrorKind::Internal, "a server refused a write"));
        }
    }
    Ok(())
}

/// Keeps `depth` requests under way for a while; how many there were, and in how many seconds.
fn drive(
    client: &mut Attached,
    kind: u32,
    bytes: u32,
    depth: u16,
    is_random: bool,
    span: Duration,
) -> Result<(u64, f64)> {
    let ring = client.ring();
    let places = DEVICE_BYTES / u64::from(bytes);
    let mut asked = 0u64;
    let mut submit = |ring: &mut crate::driver::Ring, slot: u16| {
        let place = if is_random { mix(7, 0, asked) % places } else { asked % places };
        asked += 1;
        let data = usize::from(slot) * bytes as usize;
        // Three descriptors a request.
        ring.submit(slot * 3, kind, place * u64::from(bytes) / SECTOR, data, bytes, false);
    };
    debug_assert!(depth * 3 <= RING_SIZE);
    let began = Instant::now();
    (0..depth).for_each(|slot| submit(ring, slot));
    let (mut done, mut in_flight) = (0u64, depth);
    while in_flight > 0 {
        let (head, _) = ring.done();
        if ring.status(head) != status::OK {
            return Err(Error::new(ErrorKind::Internal, "a server failed a request"));
        }
        done += 1;
        if began.elapsed() < span {
            submit(ring, head / 3);
        } else {
            in_flight -= 1;
        }
    }
    Ok((done, began.elapsed().as_secs_f64()))
}
