//! The NBD server against nbdkit and QEMU's storage daemon: the same client, the same socket, in turns.
//!
//! Like against like: a server over a device that stores nothing copies the data once less, so ours over the null leaf
//! stands against QEMU's over `null-co`, ours over memory against nbdkit's memory and QEMU's over a file in tmpfs. And
//! ours over memory with a thousand fault rules that never match, against the same without.

use std::path::Path;
use std::sync::Arc;

use rotproof_block::Result;
use rotproof_block::leaf::{MemoryDevice, NullDevice};
use tempfile::TempDir;

use crate::Effort;
use crate::figure::{Bar, Figure};
use crate::fio::{self, Job, Target};
use crate::idle_rules::{Rules, Switch};
use crate::machine;
use crate::nbd_peers::NbdPeer;
use crate::served::{Cell, Of};

const DEVICE_BYTES: u64 = 256 << 20;
const RULES: u64 = 1_000;

/// What is measured: fio's pattern, bytes of a request, depth, and how figures call it.
const CELLS: [(&str, u64, u32, &str); 6] = [
    ("randread", 4096, 1, "4 KiB read, depth 1"),
    ("randwrite", 4096, 1, "4 KiB write, depth 1"),
    ("randread", 4096, 32, "4 KiB read, depth 32"),
    ("randwrite", 4096, 32, "4 KiB write, depth 32"),
    ("read", 131_072, 8, "128 KiB read, depth 8"),
    ("write", 131_072, 8, "128 KiB write, depth 8"),
];

/// Measures every cell of every match; the figures are against the peer that is best in them.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    machine::need("fio", "fio")?;
    machine::need("nbdkit", "nbdkit")?;
    machine::need("qemu-storage-daemon", "qemu-system-common")?;
    let folder = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).map_err(machine::no_folder)?;
    let folder = folder.path();
    let image = folder.join("image");
    machine::make_file(&image, DEVICE_BYTES)?;
    let file = format!("driver=file,node-name=disk,filename={}", image.display());
    let nothing = format!("driver=null-co,node-name=disk,read-zeroes=off,size={DEVICE_BYTES}");
    let stores = [
        NbdPeer::ours("memory", folder, MemoryDevice::new(DEVICE_BYTES, 512)?)?,
        NbdPeer::nbdkit(folder, DEVICE_BYTES)?,
        NbdPeer::qemu("qemu tmpfs", folder, &file)?,
    ];
    let stores_nothing = [
        NbdPeer::ours("null", folder, NullDevice::new(DEVICE_BYTES)?)?,
        NbdPeer::qemu("qemu null", folder, &nothing)?,
    ];
    for server in &stores {
        fio::fill(Target::Nbd(&server.uri()), DEVICE_BYTES)?;
    }
    measure(&stores, effort, found)?;
    placed(&stores, effort, found)?;
    measure(&stores_nothing, effort, found)?;
    drop((stores, stores_nothing));
    idle_rules(folder, effort, found)
}

/// Measures every cell on all `servers` in turns; the first one is ours.
fn measure(servers: &[NbdPeer], effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let names: Vec<&'static str> = servers.iter().map(|server| server.name).collect();
    for (pattern, block_bytes, depth, name) in CELLS {
        let job = Job {
            pattern,
            block_bytes,
            depth,
            seconds: effort.seconds,
            size_bytes: DEVICE_BYTES,
            processor: None,
        };
        let cell = Cell::measure(name, block_bytes, names.clone(), effort.rounds, |server| {
            servers[server].measure(job)
        })?;
        let bars = [(Of::Rate, Some(Bar::AtLeast(1.0))), (Of::Server, Some(Bar::AtMost(0.8)))];
        for (of, bar) in bars.into_iter().chain([(Of::Client, None), (Of::Both, None)]) {
            cell.against_best(of, 0, 1..servers.len(), bar).into_iter().for_each(&mut *found);
        }
    }
    Ok(())
}

/// One request after the other, with client and server on one processor and on two: which of both it is the scheduler decides, and
/// the rates are far apart.
fn placed(servers: &[NbdPeer], effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors < 2 {
        return Ok(());
    }
    let names: Vec<&'static str> = servers.iter().map(|server| server.name).collect();
    for (place, of_server) in [("one processor", "0"), ("two processors", "1")] {
        for server in servers {
            server.pin(of_server)?;
        }
        for (pattern, block_bytes, depth, name) in CELLS.into_iter().filter(|&(_, _, depth, _)| depth == 1) {
            let (seconds, size_bytes) = (effort.seconds, DEVICE_BYTES);
            let job = Job { pattern, block_bytes, depth, seconds, size_bytes, processor: Some(0) };
            let name = format!("{name}, {place}");
            let cell = Cell::measure(name, block_bytes, names.clone(), effort.rounds, |server| {
                servers[server].measure(job)
            })?;
            for (of, bar) in [(Of::Rate, Bar::AtLeast(1.0)), (Of::Server, Bar::AtMost(1.0))] {
                cell.against_best(of, 0, 1..servers.len(), Some(bar)).into_iter().for_each(&mut *found);
            }
        }
    }
    servers.iter().try_for_each(|server| server.pin(&format!("0-{}", processors - 1)))
}

/// What rules cost that are loaded and never match, against the same server without them.
fn idle_rules(folder: &Path, effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let variants = [
        ("1,000 rules by offset", Rules::Offset(RULES)),
        ("1,000 rules by target", Rules::Target(RULES)),
        ("1,000 rules by hash", Rules::Hash(RULES)),
    ];
    for (with_rules, rules) in variants {
        let switch = Switch::new(MemoryDevice::new(DEVICE_BYTES, 512)?, rules)?;
        let server = NbdPeer::ours(with_rules, folder, Arc::clone(&switch) as _)?;
        fio::fill(Target::Nbd(&server.uri()), DEVICE_BYTES)?;
        for (pattern, block_bytes, depth, name) in CELLS {
            // Rules by offset lie in the other half. Shorter turns and more of them, for a difference this small.
            let (seconds, size_bytes) = (effort.seconds / 2.0, DEVICE_BYTES / 2);
            let job = Job { pattern, block_bytes, depth, seconds, size_bytes, processor: None };
            let cell =
                Cell::measure(name, block_bytes, vec![with_rules, "none"], effort.rounds * 2, |which| {
                    switch.set(which == 0);
                    server.measure(job)
                })?;
            found(cell.figure(Of::Rate, 0, 1, Some(Bar::AtLeast(0.95))));
            found(cell.figure(Of::Server, 0, 1, None));
        }
    }
    Ok(())
}
