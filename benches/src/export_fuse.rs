//! The FUSE file under a loop device, by both ways the kernel has for requests, against the smallest server there can
//! be, nbdkit through nbdfuse, QEMU's storage daemon and a file in tmpfs: the same client, in turns.

use rotproof_block::Result;
use tempfile::TempDir;

use crate::Effort;
use crate::figure::{Bar, Figure, median};
use crate::fio::{self, Job, Target};
use crate::fuse_peers::FusePeer;
use crate::machine;

const DEVICE_BYTES: u64 = 256 << 20;

/// What is measured: fio's pattern, bytes of a request, depth, how figures call it, and the share of tmpfs that is asked
/// for.
const CELLS: [(&str, u64, u32, &str, Option<f64>); 6] = [
    ("randread", 4096, 1, "4 KiB read, depth 1", None),
    ("randwrite", 4096, 1, "4 KiB write, depth 1", None),
    ("randread", 4096, 32, "4 KiB read, depth 32", Some(0.45)),
    ("randwrite", 4096, 32, "4 KiB write, depth 32", Some(0.45)),
    ("read", 131_072, 8, "128 KiB read, depth 8", Some(0.65)),
    ("write", 131_072, 8, "128 KiB write, depth 8", Some(0.65)),
];

/// Positions of the subjects.
const DEVICE: usize = 0;
const RING: usize = 1;
const SMALLEST: usize = 2;
const TMPFS: usize = 3;
const OTHERS: usize = 4;

/// Measures every cell on every subject.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    machine::need("fio", "fio")?;
    machine::need("nbdkit", "nbdkit")?;
    machine::need("nbdfuse", "libnbd-bin")?;
    machine::need("qemu-storage-daemon", "qemu-system-common")?;
    let folder = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).map_err(machine::no_folder)?;
    let subjects = [
        FusePeer::ours(folder.path(), DEVICE_BYTES, false)?,
        FusePeer::ours(folder.path(), DEVICE_BYTES, true)?,
        FusePeer::smallest(folder.path(), DEVICE_BYTES)?,
        FusePeer::tmpfs(folder.path(), DEVICE_BYTES)?,
        FusePeer::nbdfuse(folder.path(), DEVICE_BYTES)?,
        FusePeer::qemu(folder.path(), DEVICE_BYTES)?,
    ];
    for subject in &subjects {
        fio::fill(Target::Path(subject.loop_path()), DEVICE_BYTES)?;
    }
    for (pattern, block_bytes, depth, name, of_tmpfs) in CELLS {
        let job = Job { pattern, block_bytes, depth, seconds: effort.seconds, size_bytes: DEVICE_BYTES };
        // [subject][round]: requests a second, and microseconds of the server's CPU for one.
        let mut rates = vec![Vec::new(); subjects.len()];
        let mut costs = vec![Vec::new(); subjects.len()];
        for round in 0..effort.rounds {
            for turn in 0..subjects.len() {
                // Nobody is always first.
                let index = (turn + round) % subjects.len();
                let before = subjects[index].cpu_seconds();
                let measured = fio::run(Target::Path(subjects[index].loop_path()), job)?;
                let cpu = subjects[index].cpu_seconds() - before;
                rates[index].push(measured.iops);
                costs[index].push(cpu * 1e6 / measured.requests);
            }
        }
        let cell = Cell { name, block_bytes, of_tmpfs, subjects: &subjects, rates: &rates, costs: &costs };
        cell.report(found);
    }
    Ok(())
}

/// What one cell has found.
struct Cell<'a> {
    name: &'a str,
    block_bytes: u64,
    of_tmpfs: Option<f64>,
    subjects: &'a [FusePeer],
    rates: &'a [Vec<f64>],
    costs: &'a [Vec<f64>],
}

impl Cell<'_> {
    fn report(&self, found: &mut dyn FnMut(Figure)) {
        let middle = |rounds: &Vec<f64>| median(rounds.iter().copied());
        let others = OTHERS..self.subjects.len();
        let fastest =
            others.clone().max_by(|&a, &b| middle(&self.rates[a]).total_cmp(&middle(&self.rates[b])));
        let cheapest = others.min_by(|&a, &b| middle(&self.costs[a]).total_cmp(&middle(&self.costs[b])));
        for ours in [DEVICE, RING] {
            found(self.rate(ours, SMALLEST, Some(Bar::AtLeast(0.95))));
            found(self.cost(ours, SMALLEST, None));
            if let Some(fastest) = fastest {
                found(self.rate(ours, fastest, Some(Bar::AtLeast(1.2))));
            }
            if let Some(cheapest) = cheapest {
                found(self.cost(ours, cheapest, Some(Bar::AtMost(0.8))));
            }
            found(self.rate(ours, TMPFS, self.of_tmpfs.map(Bar::AtLeast)));
        }
    }

    fn rate(&self, ours: usize, peer: usize, bar: Option<Bar>) -> Figure {
        let (unit, scale) =
            if self.block_bytes >= 65536 { ("MB/s", self.block_bytes as f64 / 1e6) } else { ("k/s", 1e-3) };
        self.figure(self.rates, "", ours, peer, unit, scale, bar)
    }

    fn cost(&self, ours: usize, peer: usize, bar: Option<Bar>) -> Figure {
        self.figure(self.costs, ", CPU", ours, peer, "us", 1.0, bar)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one line")]
    fn figure(
        &self,
        table: &[Vec<f64>],
        of_what: &str,
        ours: usize,
        peer: usize,
        unit: &'static str,
        scale: f64,
        bar: Option<Bar>,
    ) -> Figure {
        let pairs: Vec<(f64, f64)> =
            table[ours].iter().zip(&table[peer]).map(|(&ours, &peer)| (ours * scale, peer * scale)).collect();
        let (ours, peer) = (self.subjects[ours].name, self.subjects[peer].name);
        Figure::from_rounds(format!("{}{of_what}, {ours} / {peer}", self.name), unit, &pairs, bar)
    }
}
