//! A second cut while recovery is under way, as root: a store on ext4 whose recovery removes its log before it has done what the log
//! says. One power loss never harms it. A second one during its recovery does, and is found; a store with the right order passes.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rotproof_block::error::IoContext;
use rotproof_block::{Device, Result};
use rotproof_crash::recording::{Header, Reader, Recorder, RecorderOptions};
use rotproof_crash::{
    Check, Contents, Crash, Exploration, ExploreOptions, Finding, StateOptions, Way, explore, marks,
};
use rotproof_crash_fs::{Blank, MountCheck, Oracle, Scene};
use rotproof_layers::RecordDevice;
use rotproof_machine::registry::{Registry, Run};
use rotproof_subject::FileSystem;

const VALUE_BYTES: usize = 4096;
const TRANSACTIONS: u8 = 4;
const SET_UP: &str = "the store is there";

/// In which order a store recovers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Recovery {
    /// The log is removed first: a cut after that leaves neither log nor value.
    ForgetsFirst,
    WritesFirst,
}

fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).doing(|| format!("syncing {}", path.display()))
}

fn write(path: &Path, byte: u8) -> Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let written = file.and_then(|file| {
        file.write_all_at(&[byte; VALUE_BYTES], 0)?;
        file.sync_all()
    });
    written.doing(|| format!("writing {}", path.display()))
}

/// The value of a file; none if it is not there or not whole.
fn value(path: &Path) -> Option<u8> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.read_to_end(&mut bytes).ok()?;
    let first = *bytes.first()?;
    (bytes.len() == VALUE_BYTES && bytes.iter().all(|byte| *byte == first)).then_some(first)
}

fn forget_log(root: &Path) -> Result<()> {
    std::fs::remove_file(root.join("log")).doing(|| "removing the log".into())?;
    sync(root)
}

/// A transaction is acknowledged when its log is durable. What it says is then done, and the log removed.
fn load(root: &Path, mark: &dyn Fn(&str)) -> Result<()> {
    write(&root.join("data"), 1)?;
    sync(root)?;
    mark(SET_UP);
    for number in 2..2 + TRANSACTIONS {
        write(&root.join("log"), number)?;
        sync(root)?;
        mark(&format!("{number} acknowledged"));
        write(&root.join("data"), number)?;
        forget_log(root)?;
    }
    Ok(())
}

struct Store(Recovery);

impl Store {
    fn recover(&self, root: &Path) -> Result<()> {
        let log = root.join("log");
        if !log.exists() {
            return Ok(());
        }
        let Some(logged) = value(&log) else { return forget_log(root) };
        if self.0 == Recovery::ForgetsFirst {
            forget_log(root)?;
            return write(&root.join("data"), logged);
        }
        write(&root.join("data"), logged)?;
        forget_log(root)
    }
}

impl Oracle for Store {
    fn look(&mut self, mountpoint: &Path, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        self.recover(mountpoint)?;
        let number = |text: &str| text.strip_suffix(" acknowledged")?.parse::<u8>().ok();
        let acknowledged = crash.marks.iter().filter_map(|mark| number(&mark.text)).max().unwrap_or(1);
        Ok(match value(&mountpoint.join("data")) {
            Some(found) if (acknowledged..=acknowledged + 1).contains(&found) => Vec::new(),
            found => {
                let words = format!("transaction {acknowledged} was acknowledged, and {found:?} is there");
                vec![Finding::new("lost", words)]
            }
        })
    }
}

struct Stand {
    run: Option<Run>,
    folder: tempfile::TempDir,
    blank: Blank,
    begin: u64,
}

impl Stand {
    /// Records the load.
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("memory");
        let state = folder.path().join("state");
        std::fs::create_dir(&state).expect("there is room");
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).expect("ours");
        let run = Registry::at(&state).expect("a registry").begin().expect("a run");
        let blank = Blank::make(FileSystem::Ext4, folder.path()).expect("e2fsprogs are installed");
        let path = folder.path().join("recording");
        let header = Header { size: blank.size, block_size: 512, atomic_write_bytes: 4096, id: 7 };
        let recorder = Recorder::create(&path, header, RecorderOptions::default()).expect("a new file");
        let device: Arc<dyn Device> = blank.device().expect("a device");
        let recorded = RecordDevice::new(device, Arc::clone(&recorder));
        let mut scene = Scene::new(&run, "load", recorded, FileSystem::Ext4).expect("as root");
        scene.mount(&[]).expect("a file system");
        load(scene.mountpoint(), &|text| recorder.mark(recorder.time_ns(), text)).expect("there is room");
        scene.unmount().expect("nobody uses it");
        recorder.finish().expect("there is room");
        assert!(scene.end().is_empty());
        let marks = marks(Reader::open(&path).expect("a recording")).expect("whole");
        let begin = marks.iter().find(|mark| mark.text == SET_UP).expect("it was set").position + 1;
        Self { run: Some(run), folder, blank, begin }
    }

    fn explore(&self, name: &str, recovery: Recovery, second_cuts: u32) -> Exploration {
        let run = self.run.as_ref().expect("until the end");
        let states = StateOptions {
            base: Some(self.blank.image.clone()),
            begin: self.begin,
            ways: vec![Way::PersistencePoints, Way::PrefixAtBarrier],
            ..StateOptions::new(&self.folder.path().join("recording"), 1)
        };
        let make = |worker: usize, contents: &Arc<Contents>| -> Result<Box<dyn Check>> {
            let name = format!("{name}-{worker}");
            let oracle = Box::new(Store(recovery));
            let contents = Arc::clone(contents);
            let check = MountCheck::new(run, &name, contents, FileSystem::Ext4, false, oracle)?;
            Ok(Box::new(check.with_second_cuts(second_cuts, 1)))
        };
        let options = ExploreOptions { workers: 2, witness_checks_max: 0, ..ExploreOptions::new(states) };
        explore(&options, &make, &|_| {}, &AtomicBool::new(false)).expect("it can be explored")
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let failures = self.run.take().map_or_else(Vec::new, Run::finish);
        if !std::thread::panicking() {
            assert!(failures.is_empty(), "something is left: {failures:?}");
        }
    }
}

#[test]
fn a_store_that_forgets_its_log_before_it_has_recovered_is_found_by_a_second_cut_alone() {
    let stand = Stand::new();
    let explored = |name: &str, recovery: Recovery, second_cuts: u32| {
        let found = stand.explore(name, recovery, second_cuts);
        assert!(found.checked > 10, "{found:?}");
        assert_eq!(found.unknown, [], "{recovery:?}");
        found
    };
    let once = explored("once", Recovery::ForgetsFirst, 0);
    assert_eq!(once.failures, [], "one power loss does not harm it");
    let twice = explored("twice", Recovery::ForgetsFirst, 12);
    let kinds: Vec<&str> = twice.failures.iter().map(|failure| failure.findings[0].kind.as_str()).collect();
    assert!(!kinds.is_empty() && kinds.iter().all(|kind| *kind == "lost after a second cut"), "{kinds:?}");
    let right = explored("right", Recovery::WritesFirst, 12);
    assert_eq!(right.failures, [], "this order survives every cut");
}
