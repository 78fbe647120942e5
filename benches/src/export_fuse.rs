//! The FUSE file under a loop device, by both ways the kernel has for requests, against the smallest server there can
//! be, nbdkit through nbdfuse, QEMU's storage daemon and a file in tmpfs: the same client, in turns.

use rotproof_block::Result;
use tempfile::TempDir;

use crate::Effort;
use crate::figure::{Bar, Figure};
use crate::fio::{self, Job, Target};
use crate::fuse_peers::FusePeer;
use crate::machine;
use crate::served::{Cell, Of};

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
    let names: Vec<&'static str> = subjects.iter().map(|subject| subject.name).collect();
    for (pattern, block_bytes, depth, name, of_tmpfs) in CELLS {
        let job = Job {
            pattern,
            block_bytes,
            depth,
            seconds: effort.seconds,
            size_bytes: DEVICE_BYTES,
            processor: None,
        };
        let cell = Cell::measure(name, block_bytes, names.clone(), effort.rounds, |subject| {
            subjects[subject].measure(job)
        })?;
        let others = OTHERS..subjects.len();
        for ours in [DEVICE, RING] {
            found(cell.figure(Of::Rate, ours, SMALLEST, Some(Bar::AtLeast(0.95))));
            for of in [Of::Server, Of::Client, Of::Both] {
                found(cell.figure(of, ours, SMALLEST, None));
            }
            let bars = [(Of::Rate, Some(Bar::AtLeast(1.2))), (Of::Server, Some(Bar::AtMost(0.8)))];
            for (of, bar) in bars.into_iter().chain([(Of::Client, None), (Of::Both, None)]) {
                cell.against_best(of, ours, others.clone(), bar).into_iter().for_each(&mut *found);
            }
            found(cell.figure(Of::Rate, ours, TMPFS, of_tmpfs.map(Bar::AtLeast)));
        }
    }
    Ok(())
}
