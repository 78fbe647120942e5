//! Small stores on a disk with a volatile cache: broken ones are caught, each by its smallest witness, and the same
//! stores done right pass in every state.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rotproof_block::{ContentHash, Result, Tag};
use rotproof_crash::recording::{Header, Reader, Recorder, RecorderOptions};
use rotproof_crash::{
    Check, Crash, Finding, ImageDevice, Point, Reference, StateDescription, StateOptions, States, Witness,
    marks, reduce, story,
};

const BLOCK: usize = 4096;

/// A disk as a store sees it. All that it is asked is recorded.
struct Disk {
    recorder: Arc<Recorder>,
    /// Acknowledges flushes and forgets them.
    lies: bool,
}

impl Disk {
    fn new(path: &Path, lies: bool) -> Self {
        let header = Header { size: 64 * BLOCK as u64, block_size: 512, atomic_write_bytes: 512, id: 3 };
        Self {
            recorder: Recorder::create(path, header, RecorderOptions::default()).expect("a new file"),
            lies,
        }
    }

    fn write(&self, block: u64, data: &[u8; BLOCK], tag: &str) {
        let request = self.recorder.write(0, block * BLOCK as u64, false, Tag::intern(tag), data);
        self.recorder.done(0, request, true);
    }

    fn flush(&self) {
        if !self.lies {
            self.recorder.done(0, self.recorder.flush(0), true);
        }
    }

    fn acknowledge(&self, version: u64) {
        self.recorder.mark(0, &format!("version {version} acknowledged"));
    }
}

/// A block of a version's data: its number, a filling, and a hash over both.
fn data_of(version: u64) -> [u8; BLOCK] {
    let mut block = [version as u8; BLOCK];
    block[..8].copy_from_slice(&version.to_le_bytes());
    let hash = ContentHash::of(&block[..BLOCK - 16]);
    block[BLOCK - 16..].copy_from_slice(&hash.0.to_le_bytes());
    block
}

/// The block that says which version counts: like a directory or a commit record it fits into one sector.
fn root_of(version: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..8].copy_from_slice(&version.to_le_bytes());
    block
}

const ROOT: u64 = 0;

fn place_of(version: u64) -> u64 {
    1 + version % 8
}

/// Opens the store as it is after a crash: the version that counts must be whole, and no older than what was promised.
struct OpenStore {
    image: Arc<ImageDevice>,
}

impl Check for OpenStore {
    fn image(&self) -> &Arc<ImageDevice> {
        &self.image
    }

    fn check(&mut self, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        let mut block = [0; BLOCK];
        self.image.read_at(ROOT * BLOCK as u64, &mut block)?;
        let version = u64::from_le_bytes(block[..8].try_into().expect("eight bytes"));
        let promised = crash.marks.last().map_or(0, |mark| {
            mark.text.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a mark names its version")
        });
        let mut findings = Vec::new();
        if version < promised {
            findings.push(Finding::new(
                "lost",
                format!("version {promised} was promised and {version} is there"),
            ));
        }
        if version > 0 {
            self.image.read_at(place_of(version) * BLOCK as u64, &mut block)?;
            if block != data_of(version) {
                findings.push(Finding::new("torn", format!("version {version} counts and is not whole")));
            }
        }
        Ok(findings)
    }
}

/// Looks at all states of what a store did; the first that fails, made as small as can be.
fn look(folder: &Path, name: &str, lies: bool, store: impl Fn(&Disk)) -> (u64, Option<(Witness, String)>) {
    let path: PathBuf = folder.join(name);
    let disk = Disk::new(&path, lies);
    store(&disk);
    disk.recorder.finish().expect("there is room");
    let mut states = States::new(StateOptions::new(&path, 1)).expect("a recording");
    let all_marks = marks(Reader::open(&path).expect("a recording")).expect("whole");
    let mut check = OpenStore { image: ImageDevice::new(Arc::clone(states.contents()), 1 << 20) };
    let mut checked = 0;
    while let Some((point, state)) = states.next_state().expect("whole") {
        checked += 1;
        let point: Arc<Point> = point;
        check.image.show(state.image.snapshot.clone());
        let before: Vec<_> =
            all_marks.iter().filter(|mark| mark.position < point.position()).cloned().collect();
        let findings =
            check.check(&Crash { state: &state.description, marks: &before }).expect("it can be read");
        if !findings.is_empty() {
            let witness = reduce(&point, &state.description, &findings, &all_marks, &mut check, 1000)
                .expect("it can be read");
            assert!(!witness.findings.is_empty(), "the witness fails too");
            // What is written down fails as well.
            let file = folder.join(format!("{name}.state"));
            witness.state.write(&file).expect("there is room");
            let (again, state) =
                StateDescription::read(&file).expect("a state").rebuild(&path, None).expect("a legal state");
            check.image.show(state.image.snapshot);
            let before: Vec<_> =
                all_marks.iter().filter(|mark| mark.position < again.position()).cloned().collect();
            let found =
                check.check(&Crash { state: &witness.state, marks: &before }).expect("it can be read");
            assert_eq!(found, witness.findings);
            let words = story(&witness, &again, &all_marks);
            return (checked, Some((witness, words)));
        }
    }
    (checked, None)
}

/// New data beside the old, then the root: `fsync_data` is what a store that renames without fsync leaves out.
fn replace(disk: &Disk, fsync_data: bool) {
    for version in 1..=20 {
        disk.write(place_of(version), &data_of(version), "data");
        if fsync_data {
            disk.flush();
        }
        disk.write(ROOT, &root_of(version), "root");
        disk.flush();
        disk.acknowledge(version);
    }
}

#[test]
fn a_store_that_flushes_where_it_must_passes_in_every_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let (checked, failure) = look(folder.path(), "right", false, |disk| replace(disk, true));
    assert!(checked > 200, "{checked}");
    assert!(failure.is_none(), "{failure:?}");
}

#[test]
fn a_store_that_renames_without_fsync_is_caught_by_one_lost_write() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, failure) = look(folder.path(), "rename", false, |disk| replace(disk, false));
    let (witness, story) = failure.expect("the data may be missing when the name is there");
    assert_eq!(witness.findings[0].kind, "torn", "{story}");
    assert_eq!(witness.difference.len(), 1, "{story}");
    // Nothing survives but the root: or all but the data, or one of their sectors. One of eight sectors is the least.
    assert!(witness.state.survivors.len() <= 2, "{story}");
    assert!(story.contains("tag root") && story.contains("Found:"), "{story}");
}

#[test]
fn a_store_that_commits_before_its_data_is_caught() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, failure) = look(folder.path(), "commit", false, |disk| {
        for version in 1..=20 {
            disk.write(ROOT, &root_of(version), "commit");
            disk.flush();
            disk.write(place_of(version), &data_of(version), "data");
            disk.flush();
            disk.acknowledge(version);
        }
    });
    let (witness, story) = failure.expect("committed data may be missing");
    assert_eq!(witness.findings[0].kind, "torn", "{story}");
    // It is durable that the version counts: losing the data is no choice of the crash but where it comes.
    assert!(witness.difference.len() <= 1, "{story}");
}

#[test]
fn a_cache_that_lies_about_flush_is_caught_below_a_store_that_does_everything_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, failure) = look(folder.path(), "lies", true, |disk| replace(disk, true));
    let (witness, story) = failure.expect("what was acknowledged is volatile");
    assert!(["lost", "torn"].contains(&witness.findings[0].kind.as_str()), "{story}");
    assert!(story.contains("version 1 acknowledged"), "{story}");
}

#[test]
fn a_witness_is_the_smallest_difference_whatever_else_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    // Much that does not matter beside what does.
    let store = |disk: &Disk| {
        for other in 0..40 {
            disk.write(20 + other, &[7; BLOCK], "other");
        }
        disk.write(place_of(1), &data_of(1), "data");
        disk.write(ROOT, &root_of(1), "root");
        for other in 0..3 {
            disk.write(20 + other, &[8; BLOCK], "other");
        }
    };
    let (_, failure) = look(folder.path(), "noise", false, store);
    let (witness, story) = failure.expect("the data may be missing");
    assert_eq!(witness.difference.len(), 1, "{story}");
    assert_ne!(witness.reference, Reference::Neither, "{story}");
    assert!(witness.checked < 200, "{}", witness.checked);
}
