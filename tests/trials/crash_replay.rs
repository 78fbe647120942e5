//! A recording of a trial, exported by the command and replayed by readers of another hand: at every mark, and after any number of
//! entries, what they make of it is what our states are.
//!
//! One reader is a script of ours. With `ROTPROOF_REPLAY_LOG` it is also the program that this variable names: `replay-log` of xfstests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rotproof_crash::recording::{Reader, RecorderOptions, What, log_writes};
use rotproof_crash::{Contents, Survivor, marks, point_at};

use super::rig::{Rig, Trial};

const BYTES: u64 = 48 << 20;

/// How far a log is replayed.
enum Until {
    Mark(String),
    Entries(usize),
}

/// Replays a log by each reader that there is, and gives their names and images.
fn replayed(rig: &Rig, log: &Path, until: &Until) -> Vec<(&'static str, Vec<u8>)> {
    let image = rig.path("replayed.img");
    let mut images = Vec::new();
    if let Until::Mark(mark) = until {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crash/tests/replay_log.py");
        let size = BYTES.to_string();
        let status =
            Command::new("python3").arg("-B").arg(script).args([log, &image]).args([&size, mark]).status();
        assert!(status.expect("python3 is here").success(), "{mark}");
        images.push(("the script", std::fs::read(&image).expect("an image")));
    }
    if let Some(program) = std::env::var_os("ROTPROOF_REPLAY_LOG") {
        std::fs::File::create(&image).and_then(|file| file.set_len(BYTES)).expect("there is room");
        let mut command = Command::new(PathBuf::from(program));
        command.arg("--log").arg(log).arg("--replay").arg(&image);
        match until {
            Until::Mark(mark) => command.args(["--end-mark", mark]),
            Until::Entries(count) => command.args(["--limit", &count.to_string()]),
        };
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        images.push(("replay-log", std::fs::read(&image).expect("an image")));
    }
    images
}

/// The image of a recording at an event: what is durable, or all that has completed.
fn ours(recording: &Path, position: u64, all: bool) -> Vec<u8> {
    let reader = Reader::open(recording).expect("a recording");
    let contents = Arc::new(Contents::open(recording, reader.header(), None).expect("a recording"));
    let point = point_at(reader, Arc::clone(&contents), position, 512).expect("so long");
    let completed = point.volatile().iter().filter(|write| all && write.completed.is_some());
    let survivors: Vec<Survivor> = completed.map(|write| Survivor::whole(write.position)).collect();
    let mut image = vec![0; BYTES as usize];
    contents.read(&point.build(&survivors).snapshot, 0, &mut image).expect("readable");
    image
}

fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    one.chunks(512).zip(other.chunks(512)).position(|(one, other)| one != other)
}

#[test]
fn what_other_readers_replay_of_a_trials_recording_is_what_our_states_are() {
    let rig = Rig::new();
    let run = rig.run(&Trial::new(
        "seed: 2\nstack: [memory: { size: 48MiB }, record]\nsubject: ext4\nload: { personality: { varmail: { files: 16, threads: 2, \
         loops: 6, directory_width: 8, file_size: 6KiB, append: 6KiB } } }\ncrash: { states: 10, workers: 1, ways: [prefix_at_barrier] }\n",
    ));
    run.assert_passed();
    let recording = run.file("recording");
    let log = rig.path("exported.log");
    let output = Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .args(["crash", "--json", "--recording"])
        .arg(&recording)
        .arg("--export-log")
        .arg(&log)
        .output()
        .expect("rotproof starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let entries = said["entries"].as_u64().expect("a number") as usize;
    let again = Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .args(["crash", "--recording"])
        .arg(&log)
        .arg("--export-log")
        .arg(rig.path("twice.log"))
        .output()
        .expect("rotproof starts");
    assert!(
        !again.status.success() && String::from_utf8_lossy(&again.stderr).contains("already"),
        "{again:?}"
    );

    // At marks: of the recording itself, what is durable.
    let all = marks(Reader::open(&recording).expect("a recording")).expect("whole");
    assert!(all.len() > 20, "an fsync each: {}", all.len());
    let (mut at_marks, mut open) = (0, 0);
    for mark in all.iter().step_by(all.len() / 12) {
        let reader = Reader::open(&recording).expect("a recording");
        let contents = Arc::new(Contents::open(&recording, reader.header(), None).expect("a recording"));
        let point = point_at(reader, contents, mark.position, 512).expect("so long");
        if !point.open().is_empty() {
            // Which of two durable writes is on top is open, and the log has chosen one.
            open += 1;
            continue;
        }
        let wanted = ours(&recording, mark.position, false);
        for (reader, image) in replayed(&rig, &log, &Until::Mark(mark.text.clone())) {
            assert_eq!(first_difference(&wanted, &image), None, "{reader} at {}", mark.text);
            at_marks += 1;
        }
    }
    assert!(at_marks >= 6, "{at_marks} images at marks, {open} with an open order");

    // After so many entries: of what we import of the log, all that has completed.
    let imported = rig.path("imported.recording");
    log_writes::import(&log, &imported, Some(BYTES), 1, RecorderOptions::default()).expect("a log");
    let mut reader = Reader::open(&imported).expect("a recording");
    let mut ends = Vec::new();
    while let Some(event) = reader.next_event().expect("whole") {
        // Each entry is one request with its completion, or one mark.
        if matches!(event.what, What::Done { .. } | What::Mark(_)) {
            ends.push(event.position + 1);
        }
    }
    assert_eq!(ends.len(), entries, "one after the other");
    for count in [1, entries / 7, entries / 3, entries / 2, entries - entries / 9, entries] {
        let wanted = ours(&imported, ends[count - 1], true);
        for (reader, image) in replayed(&rig, &log, &Until::Entries(count)) {
            assert_eq!(first_difference(&wanted, &image), None, "{reader} after {count} entries");
        }
    }
}
