//! A recording exported as a log of dm-log-writes, and replayed by a reader of another hand, gives the images that we make of
//! the recording.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rotproof_block::Tag;
use rotproof_block::hash::mix;
use rotproof_crash::recording::{Header, Reader, Recorder, RecorderOptions, log_writes};
use rotproof_crash::{Contents, marks, point_at};

const SIZE: u64 = 1 << 20;
const SECTOR: u64 = 512;

/// A random history: overlapping writes, some under way together, flushes, FUA, discards, a mark now and then.
fn record(path: &Path, seed: u64) {
    let header = Header { size: SIZE, block_size: SECTOR as u32, atomic_write_bytes: 512, id: seed.into() };
    let recorder = Recorder::create(path, header, RecorderOptions::default()).expect("a new file");
    let mut open = Vec::new();
    for step in 0..300 {
        let draw = |what| mix(seed, what, step);
        let (first, sectors) = (draw(1) % 200 * SECTOR, (1 + draw(2) % 24) * SECTOR);
        match draw(3) % 20 {
            0 | 1 => {
                let flush = recorder.flush(0);
                recorder.done(0, flush, true);
            }
            2 => open.push(recorder.discard(0, first, sectors)),
            3 => open.push(recorder.write_zeroes(0, first, sectors)),
            4 => recorder.mark(0, &format!("mark {step}")),
            _ => {
                let data: Vec<u8> = (0..sectors).map(|at| (mix(seed, step, at / 8) >> 3) as u8).collect();
                open.push(recorder.write(0, first, draw(4).is_multiple_of(7), Tag::NONE, &data));
            }
        }
        // Mostly one after the other: the log knows no other order.
        while open.len() > usize::from(draw(5).is_multiple_of(30)) {
            recorder.done(0, open.remove(0), true);
        }
    }
    open.into_iter().for_each(|request| recorder.done(0, request, true));
    recorder.mark(0, "the end");
    recorder.finish().expect("there is room");
}

#[test]
fn another_reader_replays_an_exported_recording_to_the_same_images() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/replay_log.py");
    let mut compared = 0;
    for seed in 0..3 {
        let path = folder.path().join(format!("r{seed}"));
        record(&path, seed);
        let log = folder.path().join(format!("log{seed}"));
        log_writes::export(&path, &log).expect("it can be exported");
        let reader = Reader::open(&path).expect("a recording");
        let contents = Arc::new(Contents::open(&path, reader.header(), None).expect("a recording"));
        for mark in marks(reader).expect("whole") {
            let image = folder.path().join("replayed");
            let status = Command::new("python3")
                .arg("-B")
                .arg(&script)
                .args([&log, &image])
                .args([SIZE.to_string(), mark.text.clone()])
                .status()
                .expect("python3 is here");
            assert!(status.success(), "{}", mark.text);
            let replayed = std::fs::read(&image).expect("an image");
            // What is durable, and nothing of what is not.
            let point = point_at(
                Reader::open(&path).expect("a recording"),
                Arc::clone(&contents),
                mark.position,
                512,
            )
            .expect("so long");
            if !point.open().is_empty() {
                // Which of two durable writes is on top is open; the log has chosen one.
                continue;
            }
            let mut ours = vec![0; SIZE as usize];
            contents.read(&point.build(&[]).snapshot, 0, &mut ours).expect("readable");
            let differs = ours.chunks(512).zip(replayed.chunks(512)).position(|(a, b)| a != b);
            assert_eq!(differs, None, "seed {seed}, {}", mark.text);
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared}");
}
