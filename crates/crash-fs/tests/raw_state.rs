//! States that are files, as root: a file that does not show the state any more makes the state unknown, wherever it differs.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rotproof_block::{ErrorKind, Result, Tag};
use rotproof_crash::recording::{Header, Recorder, RecorderOptions};
use rotproof_crash::{Check, Contents, Crash, Finding, Point, StateDescription, Way, point_at};
use rotproof_crash_fs::{Oracle, RawCheck};
use rotproof_machine::registry::Registry;

const SIZE: u64 = 1 << 20;

/// Puts another file in the place of the state's while it looks.
struct Swaps {
    other: Option<PathBuf>,
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero byte")
}

impl Oracle for Swaps {
    fn look(&mut self, file: &Path, _: &Crash<'_>) -> Result<Vec<Finding>> {
        if let Some(other) = &self.other {
            // SAFETY: both texts end with zero and live across the call.
            let answer = unsafe {
                libc::mount(
                    c(other).as_ptr(),
                    c(file).as_ptr(),
                    std::ptr::null(),
                    libc::MS_BIND,
                    std::ptr::null(),
                )
            };
            assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
        }
        Ok(Vec::new())
    }
}

#[test]
fn a_state_whose_file_shows_something_else_in_the_end_is_unknown() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("memory");
    let run = Registry::at(&folder.path().join("state")).expect("a registry").begin().expect("a run");
    let recording = folder.path().join("recording");
    let header = Header { size: SIZE, block_size: 512, atomic_write_bytes: 4096, id: 1 };
    let recorder = Recorder::create(&recording, header, RecorderOptions::default()).expect("a new file");
    for offset in [0, 64 << 10] {
        recorder.done(0, recorder.write(0, offset, true, Tag::NONE, &[7; 4096]), true);
    }
    recorder.finish().expect("it is whole");
    let contents = Arc::new(Contents::open(&recording, header, None).expect("a recording"));
    let reader = rotproof_crash::recording::Reader::open(&recording).expect("a recording");
    let point: Point = point_at(reader, Arc::clone(&contents), 4, 4096).expect("so long");
    let snapshot = point.build(&[]).snapshot;
    let mut bytes = vec![0; SIZE as usize];
    contents.read(&snapshot, 0, &mut bytes).expect("readable");
    assert_eq!((bytes[0], bytes[64 << 10]), (7, 7), "both writes are durable");
    let state = StateDescription {
        recording: String::new(),
        way: Way::PersistencePoints,
        position: 0,
        epoch: 0,
        marks: 0,
        unit_bytes: 4096,
        volatile: 0,
        survivors: Vec::new(),
    };
    // Nothing instead of it, an equal one, and files that differ in the first block, and where btrfs has its superblock.
    for (number, changed) in
        [None, Some(None), Some(Some(100)), Some(Some((64 << 10) + 100))].into_iter().enumerate()
    {
        let other = changed.map(|changed: Option<usize>| {
            let mut bytes = bytes.clone();
            changed.iter().for_each(|&at| bytes[at] ^= 1);
            let path = folder.path().join(format!("other-{number}"));
            fs::write(&path, bytes).expect("there is room");
            path
        });
        let name = format!("raw-{number}");
        let oracle = Box::new(Swaps { other });
        let mut check = RawCheck::new(&run, &name, Arc::clone(&contents), 1 << 20, oracle).expect("as root");
        check.image().show(snapshot.clone());
        let looked = check.check(&Crash { state: &state, marks: &[] });
        if changed.is_some() {
            let file = run.scratch().join(&name).join("disk");
            // SAFETY: the text ends with zero and lives across the call.
            assert_eq!(unsafe { libc::umount2(c(&file).as_ptr(), libc::MNT_DETACH) }, 0);
        }
        match changed.flatten() {
            None => assert_eq!(looked.expect("the file shows the state"), [], "{number}"),
            Some(at) => {
                let error = looked.expect_err("another file was looked at");
                assert_eq!(error.kind(), ErrorKind::Gone, "a change at {at}: {error}");
            }
        }
        drop(check);
    }
    assert!(run.finish().is_empty(), "something is left");
}
