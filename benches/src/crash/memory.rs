//! The memory that a recording and its states take, by how long the recording is. A tenth of the blocks differ, so that ten
//! gibibytes that were written take a file of one. The shorter one writes all of its device once, the longer one ten times: what is
//! known of each sector takes the same memory.

use std::path::Path;

use rotproof_block::{Error, ErrorKind, Result, Tag};
use rotproof_crash::recording::{Header, Reader, Recorder, RecorderOptions};
use rotproof_crash::{StateOptions, States, Way};
use tempfile::TempDir;

use crate::figure::{Bar, Figure};
use crate::{Effort, machine};

const GIB: u64 = 1 << 30;
const BLOCK_BYTES: u64 = 4096;
/// Writes between two flushes.
const EPOCH: u64 = 256;
const GROWTH_MAX: f64 = 1.1;

/// Measures one gibibyte and ten; with little effort an eighth of that.
pub(super) fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let unit = if effort.is_quick { GIB / 8 } else { GIB };
    let folder = TempDir::new_in("/dev/shm").map_err(machine::no_folder)?;
    let path = folder.path().join("recording");
    // Once before, so that the allocator has what it wants.
    peak(&path, unit / 4, unit)?;
    let once = peak(&path, unit, unit)?;
    let ten = peak(&path, 10 * unit, unit)?;
    let name =
        format!("memory of {:.1} GiB recorded, against a tenth of it", 10.0 * unit as f64 / GIB as f64);
    found(Figure::from_rounds(name, "MiB", &[(ten, once)], Some(Bar::AtMost(GROWTH_MAX))));
    Ok(())
}

/// Records so many bytes, reads them, makes states of them; the most memory that this process had meanwhile, in MiB.
fn peak(path: &Path, bytes: u64, device_bytes: u64) -> Result<f64> {
    // 5 lets the kernel forget the most so far (proc(5)).
    std::fs::write("/proc/self/clear_refs", "5").map_err(machine::no_folder)?;
    let header = Header { size: device_bytes, block_size: 512, atomic_write_bytes: 4096, id: 1 };
    let recorder = Recorder::create(path, header, RecorderOptions::default())?;
    let mut data = [1; BLOCK_BYTES as usize];
    for index in 0..bytes / BLOCK_BYTES {
        // Each content comes ten times in a row, so that the table finds it whatever else it has forgotten.
        data[..8].copy_from_slice(&(index / 10).to_le_bytes());
        let offset = index % (device_bytes / BLOCK_BYTES) * BLOCK_BYTES;
        recorder.done(0, recorder.write(0, offset, false, Tag::NONE, &data), true);
        if index % EPOCH == EPOCH - 1 {
            recorder.done(0, recorder.flush(0), true);
        }
    }
    recorder.finish()?;
    let mut reader = Reader::open(path)?;
    while reader.next_event()?.is_some() {}
    let options = StateOptions {
        ways: vec![Way::PrefixAtBarrier, Way::SingleWrites],
        states_max: 4000,
        is_shared: true,
        ..StateOptions::new(path, 1)
    };
    for state in States::new(options)? {
        state?;
    }
    std::fs::remove_file(path).map_err(machine::no_folder)?;
    peak_mib()
}

/// The most resident memory of this process since it was last forgotten.
fn peak_mib() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(machine::no_folder)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0)
        .ok_or_else(|| Error::new(ErrorKind::Missing, "the kernel does not tell VmHWM"))
}
