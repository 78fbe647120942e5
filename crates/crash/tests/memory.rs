//! The memory that recording, reading and making states take does not grow with the recording. Alone in its process,
//! because it looks at the most that the process has ever had.

use std::path::Path;

use rotproof_block::Tag;
use rotproof_crash::recording::{Header, Reader, Recorder, RecorderOptions};
use rotproof_crash::{StateOptions, States, Way};

/// Kibibytes of memory that this process has had at most.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
    let line = status.lines().find(|line| line.starts_with("VmHWM")).expect("Linux tells it");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// Records so many MiB of blocks that all differ, a flush for each, reads them, and makes states of them.
fn use_recording(path: &Path, mebibytes: u64) -> usize {
    let header = Header { size: 32 << 20, block_size: 512, atomic_write_bytes: 4096, id: 1 };
    let recorder = Recorder::create(path, header, RecorderOptions::default()).expect("a new file");
    let mut data = [1; 4096];
    for index in 0..mebibytes << 8 {
        data[..8].copy_from_slice(&index.to_le_bytes());
        let request = recorder.write(0, index % (8 << 10) * 4096, false, Tag::NONE, &data);
        recorder.done(0, request, true);
        if index % 256 == 255 {
            recorder.done(0, recorder.flush(0), true);
        }
    }
    let summary = recorder.finish().expect("there is room");
    assert!(summary.file_bytes > mebibytes << 20, "no two blocks are equal");
    let mut reader = Reader::open(path).expect("a recording");
    while reader.next_event().expect("whole").is_some() {}
    let mut states = 0;
    for (way, most) in [(Way::PrefixAtBarrier, u64::MAX), (Way::SingleWrites, 2000)] {
        let options = StateOptions { ways: vec![way], states_max: most, ..StateOptions::new(path, 1) };
        states += States::new(options)
            .expect("a recording")
            .inspect(|state| assert!(state.is_ok(), "{state:?}"))
            .count();
    }
    std::fs::remove_file(path).expect("it is there");
    states
}

/// Pages that the allocator may keep or not.
const ALLOCATOR_KIB: u64 = 8 << 10;

#[test]
fn four_times_the_recording_takes_no_more_than_a_tenth_more_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r");
    assert_eq!(use_recording(&path, 64), 64 + 2000);
    let once = peak_kib();
    assert_eq!(use_recording(&path, 256), 256 + 2000);
    let four_times = peak_kib();
    // At so small a size the allocator's own pages count too; what grows with the recording would be 192 MiB.
    let most = once * 11 / 10 + ALLOCATOR_KIB;
    assert!(four_times <= most, "{once} KiB for 64 MiB, {four_times} KiB for 256 MiB");
}
