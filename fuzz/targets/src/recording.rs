//! Recordings of a device, logs of dm-log-writes, and state files, which anybody may have written or cut off.

use std::path::{Path, PathBuf};

use rotproof_block::Tag;
use rotproof_crash::recording::{Ending, Header, Reader, Recorder, RecorderOptions, log_writes};
use rotproof_crash::{StateDescription, StateOptions, States, Way};
use tempfile::TempDir;

const OPTIONS: RecorderOptions = RecorderOptions { same_bits: 4 };
const DEVICE_BYTES: u64 = 1 << 20;

fn folder() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a folder")
}

fn record(path: &Path) {
    let header = Header { size: DEVICE_BYTES, block_size: 512, atomic_write_bytes: 4096, id: 5 };
    let recorder = Recorder::create(path, header, OPTIONS).expect("a new file");
    for index in 0..6u8 {
        let data = [index % 3 + 1; 5120];
        let write = recorder.write(1, u64::from(index) * 2048, index == 3, Tag::intern("fuzzed"), &data);
        if index % 2 == 0 {
            recorder.done(2, recorder.flush(2), true);
        }
        recorder.done(3, write, index != 4);
        recorder.mark(4, "so far");
    }
    recorder.done(5, recorder.discard(5, 0, 4096), true);
    recorder.done(6, recorder.write_zeroes(6, 8192, 512), true);
    recorder.finish().expect("there is room");
}

/// A recording is refused, or it is read up to an end that lies in it, and every state that it gives is legal.
pub fn check(bytes: &[u8]) {
    let folder = folder();
    let path = folder.path().join("r");
    std::fs::write(&path, bytes).expect("there is room");
    let Ok(mut reader) = Reader::open(&path) else { return };
    let mut position = 0;
    while let Ok(Some(event)) = reader.next_event() {
        assert_eq!(event.position, position);
        position += 1;
    }
    if let Some(Ending::Truncated { offset, bytes_after }) = reader.ending() {
        assert_eq!(offset + bytes_after, bytes.len() as u64);
    }
    let ways = vec![Way::SingleWrites, Way::Torn, Way::Subsets];
    let Ok(mut states) = States::new(StateOptions { ways, states_max: 30, ..StateOptions::new(&path, 1) })
    else {
        return;
    };
    while let Ok(Some((point, state))) = states.next_state() {
        point.check(&state.description.survivors).expect("what is given is legal");
    }
}

/// A log is refused, or it is the same after it was a recording.
pub fn check_log(bytes: &[u8]) {
    let folder = folder();
    let at = |name: &str| -> PathBuf { folder.path().join(name) };
    std::fs::write(at("log"), bytes).expect("there is room");
    if log_writes::import(&at("log"), &at("r"), Some(DEVICE_BYTES), 1, OPTIONS).is_err() {
        return;
    }
    log_writes::export(&at("r"), &at("log2")).expect("our own recording");
    log_writes::import(&at("log2"), &at("r2"), Some(DEVICE_BYTES), 1, OPTIONS).expect("our own log");
    log_writes::export(&at("r2"), &at("log3")).expect("our own recording");
    let read = |name: &str| std::fs::read(at(name)).expect("it is there");
    assert!(read("log2") == read("log3"), "the log changes on the way");
}

/// A state file is refused, or the state that it describes is legal.
pub fn check_state(bytes: &[u8]) {
    let folder = folder();
    let (path, file) = (folder.path().join("r"), folder.path().join("state"));
    std::fs::write(&file, bytes).expect("there is room");
    let Ok(state) = StateDescription::read(&file) else { return };
    assert!(!state.words().is_empty());
    record(&path);
    if let Ok((point, again)) = state.rebuild(&path, None) {
        point.check(&again.description.survivors).expect("what is rebuilt is legal");
    }
}

/// Recordings with everything in them, and with nothing.
pub fn seeds() -> Vec<Vec<u8>> {
    let folder = folder();
    let path = folder.path().join("r");
    record(&path);
    let whole = std::fs::read(&path).expect("it is there");
    vec![whole[..64].to_vec(), whole]
}

/// The log of such a recording.
pub fn log_seeds() -> Vec<Vec<u8>> {
    let folder = folder();
    let (path, log) = (folder.path().join("r"), folder.path().join("log"));
    record(&path);
    log_writes::export(&path, &log).expect("there is room");
    vec![std::fs::read(&log).expect("it is there")]
}

/// States of such a recording.
pub fn state_seeds() -> Vec<Vec<u8>> {
    let folder = folder();
    let path = folder.path().join("r");
    record(&path);
    let states =
        States::new(StateOptions { states_max: 40, ..StateOptions::new(&path, 1) }).expect("a recording");
    let descriptions = states.map(|state| state.expect("whole").description);
    descriptions.map(|state| serde_json::to_vec(&state).expect("JSON")).collect()
}
