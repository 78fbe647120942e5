//! The NBD server against nbdkit and QEMU's storage daemon: the same client, the same socket, in turns.
//!
//! Like against like: a server over a device that stores nothing copies the data once less, so ours over the null leaf
//! stands against QEMU's over `null-co`, ours over memory against nbdkit's memory and QEMU's over a file in tmpfs.

use rotproof_block::Result;
use rotproof_block::leaf::{MemoryDevice, NullDevice};
use tempfile::TempDir;

use crate::Effort;
use crate::figure::{Bar, Figure, median};
use crate::fio::{self, Job, Target};
use crate::machine;
use crate::nbd_peers::NbdPeer;

const DEVICE_BYTES: u64 = 256 << 20;

/// What is measured: fio's pattern, bytes of a request, depth, and how figures call it.
const CELLS: [(&str, u64, u32, &str); 6] = [
    ("randread", 4096, 1, "4 KiB read, depth 1"),
    ("randwrite", 4096, 1, "4 KiB write, depth 1"),
    ("randread", 4096, 32, "4 KiB read, depth 32"),
    ("randwrite", 4096, 32, "4 KiB write, depth 32"),
    ("read", 131_072, 8, "128 KiB read, depth 8"),
    ("write", 131_072, 8, "128 KiB write, depth 8"),
];

/// Measures every cell of every match; the figure is against the best peer.
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
    measure(&stores_nothing, effort, found)
}

/// Measures every cell on all `servers` in turns; the first one is ours.
fn measure(servers: &[NbdPeer], effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    for (pattern, block_bytes, depth, name) in CELLS {
        let job = Job { pattern, block_bytes, depth, seconds: effort.seconds, size_bytes: DEVICE_BYTES };
        // [server][round]: requests a second, and microseconds of the server's CPU for one.
        let mut rates = vec![Vec::new(); servers.len()];
        let mut costs = vec![Vec::new(); servers.len()];
        for round in 0..effort.rounds {
            for turn in 0..servers.len() {
                // Nobody is always first.
                let index = (turn + round) % servers.len();
                let uri = servers[index].uri();
                let before = servers[index].cpu_seconds();
                let measured = fio::run(Target::Nbd(&uri), job)?;
                let cpu = servers[index].cpu_seconds() - before;
                rates[index].push(measured.iops);
                costs[index].push(cpu * 1e6 / measured.requests);
            }
        }
        let name = format!("{}, {name}", servers[0].name);
        report(&name, servers, &rates, &costs, block_bytes, found);
    }
    Ok(())
}

fn report(
    name: &str,
    servers: &[NbdPeer],
    rates: &[Vec<f64>],
    costs: &[Vec<f64>],
    block_bytes: u64,
    found: &mut dyn FnMut(Figure),
) {
    let medians = |table: &[Vec<f64>]| -> Vec<f64> {
        table.iter().map(|rounds| median(rounds.iter().copied())).collect()
    };
    let (rate, cost) = (medians(rates), medians(costs));
    let pick = |table: &[f64], better: fn(f64, f64) -> bool| {
        (1..table.len()).fold(1, |best, index| if better(table[index], table[best]) { index } else { best })
    };
    let fastest = pick(&rate, |a, b| a > b);
    let cheapest = pick(&cost, |a, b| a < b);
    let (unit, scale) = if block_bytes >= 65536 { ("MB/s", block_bytes as f64 / 1e6) } else { ("k/s", 1e-3) };
    let pairs = |table: &[Vec<f64>], peer: usize, scale: f64| -> Vec<(f64, f64)> {
        table[0].iter().zip(&table[peer]).map(|(&ours, &peer)| (ours * scale, peer * scale)).collect()
    };
    found(Figure::from_rounds(
        format!("{name} / {}", servers[fastest].name),
        unit,
        &pairs(rates, fastest, scale),
        Some(Bar::AtLeast(1.0)),
    ));
    found(Figure::from_rounds(
        format!("{name}, CPU / {}", servers[cheapest].name),
        "us",
        &pairs(costs, cheapest, 1.0),
        Some(Bar::AtMost(0.8)),
    ));
}
