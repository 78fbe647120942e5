//! What was done to files, and what of it may be found: by hand, and by a load on a real folder.

use std::path::Path;
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;
use rotproof_block::Phase;
use rotproof_block::runtime::Clock;

use super::super::data::fill;
use super::super::{FileOracle, FileRunOptions, run};
use super::*;
use crate::BLOCK_BYTES;

const ORDERED: Kept = Kept { names: true, names_in_order: true, own_data: true };

/// A history of files of a plan whose first is changed by hand, with the marks that were set.
struct Rig {
    history: Arc<FileHistory>,
    marks: Arc<Mutex<Vec<String>>>,
    folder: tempfile::TempDir,
}

impl Rig {
    fn new(text: &str) -> Self {
        let plan = FilePlan::new(&text.parse().expect(text), 1);
        let marks: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&marks);
        let history = FileHistory::new(&plan, Arc::new(move |mark: &str| told.lock().push(mark.to_owned())));
        Self { history, marks, folder: tempfile::tempdir().expect("a folder") }
    }

    /// What is found when so many marks had been set.
    fn look(&self, marks: usize, kept: Kept) -> Vec<&'static str> {
        let told = self.marks.lock();
        let marks = told[..marks].iter().map(String::as_str);
        let losses = self.history.look(self.folder.path(), marks, kept).expect("it can be looked at");
        losses.into_iter().map(|loss| loss.kind).collect()
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("f0")
    }

    /// Puts the first file there, with so much of a version and zeros behind it.
    fn put(&self, version: u32, bytes: usize, size: usize) {
        let mut data = vec![0; bytes];
        fill(&self.history.plan.content, 0, version, 0, &mut data);
        data.resize(size, 0);
        std::fs::write(self.path(), data).expect("there is room");
    }

    fn remove(&self) {
        std::fs::remove_file(self.path()).expect("it is there");
    }
}

fn durable(version: u32, bytes: u64) -> FileState {
    let mut state = FileState::MISSING;
    for _ in 0..version {
        state.created(true);
    }
    state.appended(0, bytes, true);
    state
}

#[test]
fn a_file_is_what_was_durable_or_anything_that_had_begun_since() {
    let rig = Rig::new("varmail:files=2,threads=1,directory_width=2");
    let history = &rig.history;
    assert_eq!(rig.look(0, ORDERED), [""; 0], "nothing was made");
    history.makes(0, 1, false);
    history.grows(0, 10_000);
    // Not durable: nothing, some, all, or a length without data.
    assert_eq!(rig.look(0, ORDERED), [""; 0]);
    for (bytes, size) in [(0, 0), (0, 700), (4096, 4096), (4096, 10_000), (10_000, 10_000), (512, 6000)] {
        rig.put(1, bytes, size);
        assert_eq!(rig.look(0, ORDERED), [""; 0], "{bytes} of {size}");
    }
    rig.put(1, 10_000, 10_001);
    assert_eq!(rig.look(0, ORDERED), ["content"], "longer than it ever was");
    rig.put(1, 700, 10_000);
    assert_eq!(rig.look(0, ORDERED), ["content"], "no append ended in the middle of that sector");
    history.synced(0, &durable(1, 10_000));
    history.grows(0, 14_500);
    for (bytes, size, found) in [
        (10_000, 10_000, None),
        (14_500, 14_500, None),
        (10_000, 14_500, None),
        (10_000 + 240, 14_500, None),
        (10_000 + 240 + 512, 12_000, None),
        (10_100, 14_500, Some("content")),
        (9_999, 14_500, Some("lost")),
        (4096, 10_000, Some("lost")),
        (9_999, 9_999, Some("lost")),
    ] {
        rig.put(1, bytes, size);
        assert_eq!(rig.look(1, ORDERED), Vec::from_iter(found), "{bytes} of {size}");
    }
    rig.remove();
    assert_eq!(rig.look(1, ORDERED), ["lost file"]);
    assert_eq!(rig.look(0, ORDERED), [""; 0], "the power went before the fsync had returned");
    // The deletion had not begun, or it had.
    history.deletes(0);
    assert_eq!(rig.look(1, ORDERED), ["lost file"]);
    assert_eq!(rig.look(2, ORDERED), [""; 0]);
    history.makes(0, 2, false);
    history.grows(0, 5000);
    rig.put(1, 14_500, 14_500);
    assert_eq!(rig.look(2, ORDERED), [""; 0], "the old one is back");
    rig.put(2, 5000, 5000);
    assert_eq!(rig.look(2, ORDERED), [""; 0]);
    assert_eq!(rig.look(1, ORDERED), ["lost"], "nobody had begun the new one");
    history.synced(0, &durable(2, 5000));
    assert_eq!(rig.look(3, ORDERED), [""; 0]);
    rig.put(1, 14_500, 14_500);
    assert_ne!(rig.look(3, ORDERED), [""; 0], "the new one was durable");
    rig.remove();
    assert_eq!(rig.look(3, ORDERED), ["lost file"]);
    assert_eq!(rig.look(3, Kept { names: false, ..ORDERED }), [""; 0], "where an fsync keeps no name");
}

#[test]
fn an_older_file_comes_back_only_where_names_have_no_order_and_the_newer_one_was_deleted() {
    let rig = Rig::new("varmail:files=2,threads=1,directory_width=2");
    let history = &rig.history;
    let without_order = Kept { names_in_order: false, ..ORDERED };
    history.makes(0, 1, false);
    history.grows(0, 3000);
    let mut files = [(0, durable(1, 3000))];
    history.synced_all(files.iter().map(|(file, state)| (*file, state)));
    history.deletes(0);
    history.makes(0, 2, false);
    history.grows(0, 700);
    history.synced(0, &durable(2, 700));
    rig.put(1, 3000, 3000);
    for kept in [ORDERED, without_order] {
        assert_eq!(rig.look(2, kept), [""; 0], "the fsync had not returned");
        assert_eq!(rig.look(3, kept), ["content"], "an fsync has given the name to the newer one");
    }
    history.deletes(0);
    history.makes(0, 3, false);
    assert_eq!(rig.look(3, without_order), ["content"], "the deletion had not begun");
    assert_eq!(rig.look(4, without_order), [""; 0], "btrfs takes the newer name out of its log");
    assert_eq!(rig.look(4, ORDERED), ["content"]);
    rig.put(1, 2000, 2000);
    assert_eq!(rig.look(4, without_order), ["content"], "it comes back whole");
    files[0].1 = durable(3, 0);
    history.synced_all(files.iter().map(|(file, state)| (*file, state)));
    history.deletes(0);
    rig.put(1, 3000, 3000);
    assert_ne!(rig.look(6, without_order), [""; 0], "not beyond a sync");
}

#[test]
fn bytes_of_somebody_else_are_found_unless_nothing_is_promised_of_new_blocks() {
    let rig = Rig::new("varmail:files=2,threads=1,directory_width=2");
    rig.history.makes(0, 1, false);
    rig.history.grows(0, 4096);
    rig.history.synced(0, &durable(1, 4096));
    rig.history.grows(0, 12_288);
    let whole = || {
        let mut data = vec![0; 12_288];
        fill(&rig.history.plan.content, 0, 1, 0, &mut data);
        data
    };
    let other = |version, file| {
        let mut data = vec![0; BLOCK_BYTES];
        fill(&rig.history.plan.content, file, version, 4096, &mut data);
        data
    };
    for (what, at, bytes, in_writeback) in [
        ("another file's", 4096, other(1, 1), false),
        ("another version's", 4096, other(7, 0), false),
        ("nobody's", 8192 + 512, vec![0x5a; 512], false),
        ("nobody's, over what is durable", 512, vec![0x5a; 512], true),
        ("zeros over what is durable", 512, vec![0; 512], true),
        ("a flipped bit", 4095, vec![whole()[4095] ^ 1], true),
    ] {
        let mut data = whole();
        data[at..at + bytes.len()].copy_from_slice(&bytes);
        std::fs::write(rig.path(), data).expect("there is room");
        let found = rig.look(1, ORDERED);
        assert_eq!(found.len(), 1, "{what}: {found:?}");
        assert_eq!(found[0] == "lost", in_writeback, "{what}: {found:?}");
        let found = rig.look(1, Kept { own_data: false, ..ORDERED });
        assert_eq!(found.len(), usize::from(in_writeback), "{what}: {found:?}");
    }
}

fn options(phase: Phase) -> FileRunOptions {
    FileRunOptions {
        phase,
        clock: Clock::start(),
        duration: None,
        cancel: Arc::new(AtomicUsize::new(0)),
        progress: Arc::default(),
        recording: None,
        until_steady: None,
        hung_after: None,
        let_go: None,
    }
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn after_a_load_every_personality_finds_its_files_and_misses_what_is_harmed() {
    for (text, is_judged) in [
        ("varmail:files=30,threads=3,loops=20", true),
        ("fileserver:files=20,threads=2,loops=8,file_size=16KiB", true),
        ("webserver:files=20,threads=2,loops=3", true),
        ("metadata:files=20,threads=2,loops=1,file_size=6000B,keep=true", true),
        ("mail_store:files=4,threads=2,loops=40,file_size=64KiB", false),
        ("oltp:files=2,threads=2,writers=2,loops=40,file_size=64KiB", false),
    ] {
        let rig = Rig::new(text);
        let mut oracle = FileOracle::new(&rig.history.plan);
        oracle.keep_history(&rig.history);
        for phase in [Phase::Prefill, Phase::Run] {
            run(&rig.history.plan, rig.folder.path(), &mut oracle, &options(phase)).expect("it runs");
        }
        let marks = rig.marks.lock().len();
        assert!(marks >= 2, "{text}: {marks}");
        assert_eq!(rig.look(marks, ORDERED), [""; 0], "{text}");
        let log = rig.history.plan.kind.has_log();
        assert_eq!(rig.history.not_judged().is_some(), log || text.starts_with("metadata"), "{text}");
        let victim = files(rig.folder.path())
            .into_iter()
            .find(|path| !path.ends_with("log") && path.metadata().expect("it is there").len() > 0)
            .expect("a file");
        let bytes = std::fs::read(&victim).expect("readable");
        let mut harmed = bytes.clone();
        harmed[bytes.len() / 2] ^= 0x10;
        std::fs::write(&victim, &harmed).expect("there is room");
        assert_eq!(rig.look(marks, ORDERED), Vec::from_iter(is_judged.then_some("lost")), "{text}");
        std::fs::write(&victim, &bytes[..bytes.len() - 1]).expect("there is room");
        assert_eq!(rig.look(marks, ORDERED), Vec::from_iter(is_judged.then_some("lost")), "{text}");
        std::fs::write(&victim, &bytes).expect("there is room");
        std::fs::write(rig.folder.path().join("stray"), "").expect("there is room");
        assert_eq!(rig.look(marks, ORDERED), ["stray name"], "{text}");
        std::fs::remove_file(&victim).expect("it is there");
        assert_eq!(rig.look(marks, ORDERED), ["lost file", "stray name"], "{text}");
    }
}
