//! Recordings written, read, cut off, and turned into logs and back.

use std::path::Path;
use std::sync::Arc;

use rotproof_block::hash::mix;
use rotproof_block::{ErrorKind, Tag};

use super::*;

const HEADER: Header = Header { size: 1 << 20, block_size: 512, atomic_write_bytes: 4096, id: 42 };

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|index| mix(seed, 0, index) as u8).collect()
}

fn recorder(path: &Path) -> Arc<Recorder> {
    Recorder::create(path, HEADER, RecorderOptions { same_bits: 8 }).expect("a new file")
}

fn all(path: &Path) -> (Vec<Event>, Ending) {
    let mut reader = Reader::open(path).expect("a recording");
    let events = std::iter::from_fn(|| reader.next_event().expect("whole records")).collect();
    (events, reader.ending().expect("at its end"))
}

/// The data of a write.
fn data_of(path: &Path, write: &Write) -> Vec<u8> {
    let data = Data::open(path).expect("the file is there");
    let mut bytes = vec![0; write.length as usize];
    for (chunk, bytes) in write.chunks.iter().zip(bytes.chunks_mut(CHUNK_BYTES)) {
        data.read_chunk(chunk, bytes).expect("unharmed");
    }
    bytes
}

/// A recording with everything in it: two requests under way at once, one that fails, equal chunks, zeros, tags, marks.
fn record_some(path: &Path) -> Summary {
    let recorder = recorder(path);
    let (a, b) = (pattern(1, 10_240), pattern(2, 4096));
    let first = recorder.write(10, 4096, false, Tag::intern("focal.img"), &a);
    let second = recorder.write(20, 65536, true, Tag::NONE, &b);
    recorder.done(30, second, true);
    recorder.done(25, first, true);
    // Equal to chunks before, in the same write too, and zeros.
    let twice = [&a[..4096], &a[..4096], &[0; 4096], &b[..]].concat();
    let third = recorder.write(40, 0, false, Tag::intern("focal.img"), &twice);
    let flush = recorder.flush(50);
    recorder.done(60, flush, true);
    recorder.done(61, third, false);
    recorder.mark(70, "fsync of file f returned");
    recorder.done(80, recorder.discard(75, 8192, 4096), true);
    recorder.done(81, recorder.write_zeroes(76, 512, 512), true);
    recorder.finish().expect("there is room")
}

#[test]
fn what_was_recorded_is_read_in_its_order_with_its_data() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r");
    let summary = record_some(&path);
    let (events, ending) = all(&path);
    assert_eq!(ending, Ending::Finished);
    assert_eq!((summary.events, summary.writes, summary.data_bytes), (14, 3, 10_240 + 4096 + 16_384));
    assert_eq!(summary.events, events.len() as u64);
    assert_eq!(summary.file_bytes, std::fs::metadata(&path).expect("it is there").len());
    assert!(events.iter().zip(0..).all(|(event, position)| event.position == position));
    let times: Vec<u64> = events.iter().map(|event| event.time_ns).collect();
    assert_eq!(times, [10, 20, 30, 30, 40, 50, 60, 61, 70, 75, 80, 80, 81, 81], "never backwards");
    let writes: Vec<&Write> = events
        .iter()
        .filter_map(|event| if let What::Write(write) = &event.what { Some(write) } else { None })
        .collect();
    let (a, b) = (pattern(1, 10_240), pattern(2, 4096));
    assert_eq!((writes[0].offset, writes[0].fua, &*writes[0].tag), (4096, false, "focal.img"));
    assert_eq!(data_of(&path, writes[0]), a);
    assert_eq!((writes[1].offset, writes[1].fua, &*writes[1].tag), (65536, true, ""));
    assert_eq!(data_of(&path, writes[1]), b);
    assert_eq!(data_of(&path, writes[2]), [&a[..4096], &a[..4096], &[0; 4096], &b[..]].concat());
    assert_eq!(&*writes[2].tag, "focal.img");
    let rest: Vec<&What> = events[5..].iter().map(|event| &event.what).collect();
    assert_eq!(
        rest,
        [
            &What::Flush,
            &What::Done { request: 5, ok: true },
            &What::Done { request: 4, ok: false },
            &What::Mark("fsync of file f returned".into()),
            &What::Discard { offset: 8192, length: 4096 },
            &What::Done { request: 9, ok: true },
            &What::WriteZeroes { offset: 512, length: 512 },
            &What::Done { request: 11, ok: true },
            &What::End,
        ]
    );
}

#[test]
fn equal_chunks_and_zeros_are_stored_once_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r");
    let recorder = recorder(&path);
    let data = [pattern(1, 4096), vec![0; 1 << 20]].concat();
    for _ in 0..100 {
        recorder.done(0, recorder.write(0, 0, false, Tag::NONE, &data[..8192]), true);
    }
    recorder.done(0, recorder.write(0, 0, false, Tag::NONE, &data[4096..]), true);
    let summary = recorder.finish().expect("there is room");
    assert_eq!(summary.data_bytes, 100 * 8192 + (1 << 20));
    assert!(summary.file_bytes < 4096 + 101 * 100 + 1000, "{summary:?}");
}

#[test]
fn a_file_cut_off_anywhere_is_read_up_to_its_last_whole_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, cut) = (folder.path().join("r"), folder.path().join("cut"));
    record_some(&path);
    let whole = std::fs::read(&path).expect("it is there");
    let (events, _) = all(&path);
    let mut seen = 0;
    // Everywhere but in the middle of data, where all places are alike.
    let places = (64..whole.len()).filter(|&at| at % 97 == 0 || whole.len() - at < 600 || at < 200);
    for length in places {
        std::fs::write(&cut, &whole[..length]).expect("there is room");
        let (found, ending) = all(&cut);
        assert_eq!(found, events[..found.len()], "{length}");
        assert!(found.len() >= seen && found.len() < events.len(), "{length}");
        seen = found.len();
        let Ending::Truncated { offset, bytes_after } = ending else { panic!("{length}: {ending:?}") };
        assert_eq!(offset + bytes_after, length as u64);
        // What is left is a recording of its own.
        std::fs::write(&cut, &whole[..offset as usize]).expect("there is room");
        assert_eq!(all(&cut).0, found);
    }
    assert_eq!(seen, events.len() - 1, "only the end is missing at last");
    for length in [0, 10, 63] {
        std::fs::write(&cut, &whole[..length]).expect("there is room");
        assert_eq!(Reader::open(&cut).expect_err("too short").kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_damaged_record_ends_the_recording_and_damaged_data_are_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r");
    record_some(&path);
    let whole = std::fs::read(&path).expect("it is there");
    let (events, _) = all(&path);
    let data = Data::open(&path).expect("it is there");
    let mut in_data = 0;
    for at in (64..whole.len()).filter(|at| at % 7 == 0) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, &damaged).expect("there is room");
        let (found, _) = all(&path);
        assert_eq!(found, events[..found.len()], "{at}: what was not hit is as it was");
        if found.len() == events.len() {
            in_data += 1;
            let chunks = found.iter().filter_map(|event| match &event.what {
                What::Write(write) => Some(write.chunks.iter().collect::<Vec<_>>()),
                _ => None,
            });
            let mut bytes = [0; CHUNK_BYTES];
            let hit = chunks.flatten().any(|chunk| {
                let read = data.read_chunk(chunk, &mut bytes[..chunk.length as usize]);
                read.is_err_and(|error| error.kind() == ErrorKind::Invalid)
            });
            assert!(hit, "{at}: the data are damaged and nobody notices");
        }
    }
    assert!((1900..2200).contains(&in_data), "only data are outside the checksums of records: {in_data}");
}

#[test]
fn threads_record_side_by_side_and_every_completion_follows_its_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r");
    let recorder = recorder(&path);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let recorder = &recorder;
            scope.spawn(move || {
                for index in 0..500 {
                    let data = pattern(thread * 1000 + index, 4096);
                    let request = recorder.write(index, thread << 16, false, Tag::NONE, &data);
                    recorder.done(index, request, true);
                }
            });
        }
    });
    let summary = recorder.finish().expect("there is room");
    assert!(summary.file_bytes > 4 << 20, "several buffers went to the file");
    let (events, ending) = all(&path);
    assert_eq!((events.len(), ending), (4001, Ending::Finished));
    let mut open = std::collections::HashSet::new();
    let mut next = [0u64; 4];
    for Event { position, what, .. } in &events {
        match what {
            What::Write(write) => {
                let thread = (write.offset >> 16) as usize;
                assert_eq!(data_of(&path, write), pattern(thread as u64 * 1000 + next[thread], 4096));
                next[thread] += 1;
                assert!(open.insert(*position));
            }
            What::Done { request, .. } => assert!(open.remove(request)),
            _ => {}
        }
    }
    assert!(open.is_empty());
}

#[test]
fn nothing_is_overwritten_and_no_senseless_device_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r");
    recorder(&path).finish().expect("an empty one");
    assert!(Recorder::create(&path, HEADER, RecorderOptions::default()).is_err(), "nothing is overwritten");
    let senseless = Header { size: 1, ..HEADER };
    let other = folder.path().join("other");
    let error = Recorder::create(&other, senseless, RecorderOptions::default()).expect_err("no device");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(!other.exists());
}

/// A reader of logs as plain as can be, from the description in the kernel: what each entry does to an image.
fn replay(log: &[u8], image: &mut [u8]) -> Vec<(u64, u64, u64, String)> {
    let number = |at: usize| u64::from_le_bytes(log[at..at + 8].try_into().expect("eight bytes"));
    assert_eq!(&log[0..8], &[0x72, 0x68, 0x73, 0x77, 0x66, 0x73, 0x6a, 0x00], "rhswfsj");
    assert_eq!(number(8), 1);
    let sector = u32::from_le_bytes(log[24..28].try_into().expect("four bytes")) as usize;
    let (mut at, mut entries) = (sector, Vec::new());
    for _ in 0..number(16) {
        let (first, count, flags, text) = (number(at), number(at + 8), number(at + 16), number(at + 24));
        let mark = String::from_utf8(log[at + 32..at + 32 + text as usize].to_vec()).expect("a text");
        at += sector;
        let range = first as usize * sector..(first + count) as usize * sector;
        if flags & 4 != 0 {
            image[range].fill(0);
        } else {
            let bytes = range.len();
            image[range].copy_from_slice(&log[at..at + bytes]);
            at += bytes;
        }
        entries.push((first, count, flags, mark));
    }
    assert_eq!(at, log.len(), "nothing follows the last entry");
    entries
}

#[test]
fn a_recording_becomes_a_log_in_the_order_in_which_it_was_durable() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, log) = (folder.path().join("r"), folder.path().join("log"));
    record_some(&path);
    assert_eq!(log_writes::export(&path, &log).expect("there is room"), 6);
    let mut image = vec![0xcc; HEADER.size as usize];
    let bytes = std::fs::read(&log).expect("it is there");
    let entries = replay(&bytes, &mut image);
    let entry = |first, count, flags, mark: &str| (first, count, flags, mark.to_owned());
    assert_eq!(
        entries,
        [
            entry(128, 8, 2, ""),
            entry(8, 20, 0, ""),
            entry(0, 0, 1, ""),
            entry(0, 0, 8, "fsync of file f returned"),
            entry(16, 8, 4, ""),
            entry(1, 1, 0, ""),
        ],
        "the FUA write when it completed, the other with the flush, none that failed, the rest at the end"
    );
    let mut expected = vec![0xcc; HEADER.size as usize];
    expected[4096..4096 + 10_240].copy_from_slice(&pattern(1, 10_240));
    expected[65536..65536 + 4096].copy_from_slice(&pattern(2, 4096));
    expected[8192..12_288].fill(0);
    expected[512..1024].fill(0);
    assert!(image == expected);
    // The whole of a small log, byte for byte.
    assert_eq!(
        bytes[512..544],
        [[128, 0, 0, 0, 0, 0, 0, 0], [8, 0, 0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0], [0; 8]].concat()
    );
}

#[test]
fn a_log_becomes_a_recording_and_the_same_log_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    record_some(&at("r"));
    log_writes::export(&at("r"), &at("log")).expect("there is room");
    let options = RecorderOptions::default();
    let summary =
        log_writes::import(&at("log"), &at("r2"), Some(1 << 20), 9, options).expect("a log of ours");
    assert_eq!(summary.writes, 3, "the zeros are data now");
    assert_eq!(Reader::open(&at("r2")).expect("a recording").header().id, 9);
    log_writes::export(&at("r2"), &at("log2")).expect("there is room");
    assert!(std::fs::read(at("log")).expect("there") == std::fs::read(at("log2")).expect("there"));
    // Without a size, the last byte that is touched.
    log_writes::import(&at("log"), &at("r3"), None, 9, options).expect("a log of ours");
    assert_eq!(Reader::open(&at("r3")).expect("a recording").header().size, 65536 + 4096);
    let error = log_writes::import(&at("log"), &at("r4"), Some(65536), 9, options).expect_err("too small");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    // A kernel that was cut off while it wrote.
    let log = std::fs::read(at("log")).expect("there");
    for length in [512, 600, 1024, 5000, 6000, log.len() - 1] {
        std::fs::write(at("cut"), &log[..length]).expect("there is room");
        let _ = std::fs::remove_file(at("r5"));
        log_writes::import(&at("cut"), &at("r5"), Some(1 << 20), 9, options).expect("as far as it goes");
    }
}
