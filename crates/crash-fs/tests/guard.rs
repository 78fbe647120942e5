//! A guarded directory on ext4 and xfs below a power loss, as root. Random operations are done through the guard's library on a recorded
//! device. In every state that may be left: what was made durable is there and verifies, and nothing is accused.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rotproof_block::{Device, Error, Result};
use rotproof_crash::recording::{Header, Reader, Recorder, RecorderOptions};
use rotproof_crash::{
    Check, Contents, Crash, Exploration, ExploreOptions, FailingState, Finding, StateOptions, Way, WayLimits,
    explore, marks,
};
use rotproof_crash_fs::{Blank, MountCheck, Oracle, Scene};
use rotproof_guard::{GuardedFile, Store, StoreOptions};
use rotproof_layers::RecordDevice;
use rotproof_machine::registry::{Registry, Run};
use rotproof_subject::FileSystem;
use tempfile::TempDir;

const FILES: usize = 3;
const STEPS: usize = 24;
/// How long files become, by the seed: their sums lie in small slots, in small and medium ones, and in slots and tables.
const SIZES_MAX: [u64; 4] = [60_000, 300_000, 1_300_000, 1_300_000];
/// Of these, the one with whose seeds blocks are mostly written over and made durable, by two threads at once.
const OVER: u64 = 3;
const SET_UP: &str = "the guard is there";

/// What the files had after each step, and which step had made which file durable when it ended, or cut which to nothing before it wrote
/// it anew.
#[derive(Clone)]
struct Story {
    versions: Vec<[Option<Vec<u8>>; FILES]>,
    durable: Vec<Option<usize>>,
    emptied: Vec<Option<usize>>,
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % below.max(1)
    }
}

fn name(file: usize) -> String {
    format!("file{file}")
}

/// A file, and the descriptor by which it was opened.
type Opened = (File, Arc<GuardedFile>);

fn open(store: &Arc<Store>, root: &Path, file: usize, makes: bool) -> Result<Opened> {
    let path = root.join(name(file));
    let below = OpenOptions::new()
        .read(true)
        .write(true)
        .create(makes)
        .truncate(false)
        .open(&path)
        .map_err(|error| Error::from_io(error, "opening a file"))?;
    let guarded = GuardedFile::open(store, below.as_raw_fd(), true, &path)?;
    Ok((below, guarded))
}

/// Writes over two stretches of 2000 bytes and makes each durable, in two threads.
fn write_over((below, file): &Opened, data: &[u8], places: [usize; 2]) {
    std::thread::scope(|scope| {
        for place in places {
            scope.spawn(move || {
                file.write_at(&data[..2000], place as u64).expect("written");
                file.sync_by(Some(below.as_raw_fd()), true).expect("durable");
            });
        }
    });
}

/// Does random steps. Marks say which had begun and which was done. A canary does them in the wrong order.
fn act(root: &Path, seed: u64, is_canary: bool, mark: &dyn Fn(&str)) -> Story {
    let store = Store::init(root, None, StoreOptions::default()).expect("a guard");
    if is_canary {
        store.leave_out_marks();
    }
    // As below a program that was preloaded: what was written stays attached when it is closed.
    let keeps_written = seed / SIZES_MAX.len() as u64 % 2 == 1;
    if keeps_written {
        store.keep_written();
    }
    File::open(root).expect("the root").sync_all().expect("durable");
    // SAFETY: takes an open descriptor.
    unsafe { libc::syncfs(File::open(root).expect("the root").as_raw_fd()) };
    mark(SET_UP);
    let size_max = SIZES_MAX[seed as usize % SIZES_MAX.len()];
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut now: [Option<Vec<u8>>; FILES] = Default::default();
    let mut files: [Option<Arc<Opened>>; FILES] = Default::default();
    let is_over = seed % SIZES_MAX.len() as u64 == OVER;
    let mut story = Story { versions: vec![now.clone()], durable: vec![None], emptied: vec![None] };
    for step in 1..=STEPS {
        mark(&format!("begin {step}"));
        let at = dice.below(FILES as u64) as usize;
        let opened = || Arc::new(open(&store, root, at, true).expect("a file"));
        let opened = Arc::clone(files[at].get_or_insert_with(opened));
        let (below, file) = &*opened;
        let content = now[at].get_or_insert_default();
        let (mut durable, mut emptied) = (None, None);
        let data: Vec<u8> = {
            let (fill, length) = (dice.below(255) as u8 + 1, 1 + dice.below(size_max / 4) as usize);
            (0..length).map(|at| fill ^ (at / 4096) as u8).collect()
        };
        let data_over = [dice.below(255) as u8; 2000];
        match dice.below(9) {
            1..=6 if is_over && content.len() > 1_100_000 => {
                let places = [0, 1].map(|half| {
                    half * (content.len() / 2) + dice.below(content.len() as u64 / 2 - 2000) as usize
                });
                write_over(&opened, &data_over, places);
                places.iter().for_each(|place| content[*place..place + 2000].copy_from_slice(&data_over));
                durable = Some(at);
            }
            0 if is_over => {
                file.write_at(&[step as u8; 1_200_000], 0).expect("written");
                file.sync(false).expect("durable");
                content.resize(content.len().max(1_200_000), 0);
                content[..1_200_000].fill(step as u8);
                durable = Some(at);
            }
            0..=2 => {
                let offset = dice.below(size_max - data.len() as u64);
                file.write_at(&data, offset).expect("written");
                let end = offset as usize + data.len();
                content.resize(content.len().max(end), 0);
                content[offset as usize..end].copy_from_slice(&data);
            }
            3 if (content.len() as u64) < size_max => {
                file.append(&data, None).expect("appended");
                content.extend_from_slice(&data);
            }
            4 => {
                let size = dice.below(content.len() as u64 + 1);
                file.set_size(size).expect("cut");
                content.truncate(size as usize);
            }
            5 => {
                emptied = Some(at);
                file.set_size(0).expect("cut");
                file.write_at(&data, 0).expect("written anew");
                content.clone_from(&data);
            }
            6 => {
                if keeps_written {
                    file.rest(None);
                }
                files[at] = None;
            }
            _ => {
                file.sync_by(Some(below.as_raw_fd()), dice.below(2) == 0).expect("durable");
                durable = Some(at);
            }
        }
        story.versions.push(now.clone());
        story.durable.push(durable);
        story.emptied.push(emptied);
        mark(&format!("done {step}"));
    }
    story
}

struct GuardOracle(Story);

impl GuardOracle {
    /// The version that a file has at least, and the last one that it may have.
    fn legal(&self, file: usize, crash: &Crash<'_>) -> (Option<usize>, usize) {
        let number = |text: &str, word: &str| text.strip_prefix(word)?.trim().parse::<usize>().ok();
        let done = crash.marks.iter().filter_map(|mark| number(&mark.text, "done")).max().unwrap_or(0);
        let begun = crash.marks.iter().filter_map(|mark| number(&mark.text, "begin")).max().unwrap_or(0);
        let floor = (1..=done).rev().find(|step| self.0.durable[*step] == Some(file));
        (floor, begun)
    }
}

impl Oracle for GuardOracle {
    fn look(&mut self, mountpoint: &Path, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        // The machine is on again: no session of before lives. Of which machine start it was, is in the file.
        let session = mountpoint.join(".rotproof-guard/session");
        if session.exists() {
            std::fs::remove_file(&session)
                .map_err(|error| Error::from_io(error, "forgetting the session"))?;
        }
        let store = Store::open(mountpoint, None)?;
        let mut findings = Vec::new();
        for file in 0..FILES {
            let (floor, last) = self.legal(file, crash);
            if !mountpoint.join(name(file)).exists() {
                if floor.is_some() {
                    findings.push(Finding::new("lost", format!("{} was durable and is gone", name(file))));
                }
                continue;
            }
            let (_below, guarded) = open(&store, mountpoint, file, false)?;
            let mut data = vec![0; guarded.size() as usize];
            let read = guarded.read_at(&mut data, 0);
            if !matches!(read, Ok(count) if count == data.len()) {
                let words = format!("{} of {} bytes cannot be read: {read:?}", name(file), data.len());
                findings.push(Finding::new("accused", words));
                continue;
            }
            let Some(floor) = floor else { continue };
            let nothing = Vec::new();
            let emptied = (floor + 1..=last).filter(|step| self.0.emptied[*step] == Some(file));
            let versions: Vec<&Vec<u8>> = (floor..=last)
                .filter_map(|step| self.0.versions[step][file].as_ref())
                .chain(emptied.map(|_| &nothing))
                .collect();
            let Some((first, others)) = versions.split_first() else { continue };
            if others.iter().all(|other| other == first) {
                if data != **first {
                    findings
                        .push(Finding::new("lost", format!("{} is not as it was made durable", name(file))));
                }
                let counts = store.counts.now();
                // Other files may be torn; this one is whole, so nothing of it was taken in unverified.
                let torn = store.journal().read()?.0;
                if torn.iter().any(|event| event.inode == guarded.inode()) || counts.refused > 0 {
                    findings
                        .push(Finding::new("accused", format!("{} is called torn: {torn:?}", name(file))));
                }
            }
            for (block, bytes) in first.chunks(4096).enumerate() {
                let at = block * 4096..block * 4096 + bytes.len();
                let is_same = others.iter().all(|other| other.get(at.clone()) == Some(bytes));
                if is_same && data.get(at) != Some(bytes) {
                    let words = format!("block {block} of {} was durable, and is another", name(file));
                    findings.push(Finding::new("lost", words));
                }
            }
        }
        Ok(findings)
    }
}

/// Does the steps of a seed on a recorded device and looks at so many states.
fn explore_seed(ground: &Ground, blank: &Blank, seed: u64, states_max: u64, is_canary: bool) -> Exploration {
    let Ground { run, folder } = ground;
    let folder = folder.path();
    let recording = folder.join(format!("guard-{seed}"));
    let header = Header { size: blank.size, block_size: 512, atomic_write_bytes: 4096, id: seed.into() };
    let recorder =
        Recorder::create(&recording, header, RecorderOptions { same_bits: 14 }).expect("a recording");
    let device: Arc<dyn Device> = blank.device().expect("a device");
    let recorded = RecordDevice::new(device, Arc::clone(&recorder));
    let mut scene = Scene::new(run, &format!("guard-{seed}"), recorded, blank.kind).expect("a scene");
    scene.mount(&[]).expect("mounted");
    let story = act(scene.mountpoint(), seed, is_canary, &|text| recorder.mark(recorder.time_ns(), text));
    scene.unmount().expect("unmounted");
    recorder.finish().expect("recorded");
    assert!(scene.end().is_empty(), "something is left");
    let all = marks(Reader::open(&recording).expect("a recording")).expect("marks");
    let begin = all.iter().find(|mark| mark.text == SET_UP).map_or(0, |mark| mark.position + 1);
    let states = StateOptions {
        base: Some(blank.image.clone()),
        begin,
        states_max,
        ways: vec![
            Way::PrefixAtBarrier,
            Way::PersistencePoints,
            Way::Adversarial,
            Way::SingleWrites,
            Way::Subsets,
        ],
        limits: WayLimits { per_point_max: 6, subsets_drawn: 6, ..WayLimits::default() },
        ..StateOptions::new(&recording, seed)
    };
    let make = |worker: usize, contents: &Arc<Contents>| -> Result<Box<dyn Check>> {
        let name = format!("guard-{seed}-{worker}");
        let oracle = Box::new(GuardOracle(story.clone()));
        Ok(Box::new(MountCheck::new(run, &name, Arc::clone(contents), blank.kind, false, oracle)?))
    };
    let options = ExploreOptions { workers: 2, ..ExploreOptions::new(states) };
    let found = explore(&options, &make, &|_| {}, &AtomicBool::new(false)).expect("explored");
    std::fs::remove_file(&recording).expect("it is there");
    found
}

/// Where it happens.
struct Ground {
    run: Run,
    folder: TempDir,
}

impl Ground {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir_in("/dev/shm").expect("memory");
        let state = folder.path().join("state");
        std::fs::create_dir(&state).expect("there is room");
        std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).expect("ours");
        let run = Registry::at(&state).and_then(|registry| registry.begin()).expect("a run, as root");
        Self { run, folder }
    }

    fn blank(&self, kind: FileSystem) -> Blank {
        Blank::make(kind, self.folder.path()).expect("mkfs")
    }

    fn end(self) {
        let left = self.run.finish();
        assert!(left.is_empty(), "something is left: {left:?}");
    }
}

fn assert_nothing_found(found: &Exploration, seed: u64) -> u64 {
    let stories: Vec<&str> = found.witnesses.iter().map(|told| told.story.as_str()).collect();
    assert!(found.failures.is_empty(), "seed {seed}: {:#?}\n{}", found.failures[0], stories.join("\n"));
    assert!(found.unknown.is_empty(), "seed {seed}: {:?}", found.unknown[0]);
    found.checked
}

/// `ROTPROOF_CRASH_TIMES=10` looks at more than a thousand states.
#[test]
fn a_guard_on_ext4_and_xfs_keeps_what_is_durable_and_accuses_nothing() {
    let ground = Ground::new();
    let times: u64 =
        std::env::var("ROTPROOF_CRASH_TIMES").map_or(1, |times| times.parse().expect("a number"));
    for (kind, seeds, states_max) in [(FileSystem::Ext4, 4, 60), (FileSystem::Xfs, 1, 20)] {
        let blank = ground.blank(kind);
        let look = |seed| assert_nothing_found(&explore_seed(&ground, &blank, seed, states_max, false), seed);
        let checked: u64 = (1..=seeds * times).map(look).sum();
        assert!(checked >= seeds * times * states_max / 2, "{kind}: {checked} states");
    }
    ground.end();
}

/// A guard that changes blocks in place without having said so before accuses what a crash has torn. That this is seen shows
/// that the test above would see it.
#[test]
fn a_guard_with_the_wrong_order_of_writing_is_caught() {
    let ground = Ground::new();
    let blank = ground.blank(FileSystem::Ext4);
    let is_accused =
        |failure: &FailingState| failure.findings.iter().any(|finding| finding.kind == "accused");
    let is_caught = |seed| {
        let found = explore_seed(&ground, &blank, seed, 80, true);
        found.failures.iter().any(is_accused)
    };
    assert!((1..=12).any(is_caught), "nobody is accused");
    ground.end();
}
