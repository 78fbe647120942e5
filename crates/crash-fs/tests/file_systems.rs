//! Real file systems below a power loss, as root: sequences are done on a recorded device, and the states that may be left
//! are mounted and looked at. They pass, and a cache that lies about flush is found out.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rotproof_block::Result;
use rotproof_crash::{Check, Contents, Exploration, ExploreOptions, StateOptions, Way, WayLimits, explore};
use rotproof_crash_fs::operations::{Operation, Persist, Step, of_length_one, of_length_two, sample};
use rotproof_crash_fs::{Blank, MountCheck, Promise, SequenceOptions, TreeOracle, run_sequence};
use rotproof_machine::registry::{Registry, Run};
use rotproof_subject::FileSystem;

/// A run with a registry of its own, and a folder in memory.
struct Stand {
    run: Option<Run>,
    folder: tempfile::TempDir,
    blank: Blank,
    mount: Vec<String>,
    next: u32,
}

impl Stand {
    fn new(kind: FileSystem) -> Self {
        Self::mounted(kind, &[])
    }

    fn mounted(kind: FileSystem, mount: &[&str]) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("memory");
        let state = folder.path().join("state");
        std::fs::create_dir(&state).expect("there is room");
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).expect("ours");
        let run = Registry::at(&state).expect("a registry").begin().expect("a run");
        let blank = Blank::make(kind, folder.path()).expect("the file system's programs are installed");
        let mount = mount.iter().map(|&option| option.to_owned()).collect();
        Self { run: Some(run), folder, blank, mount, next: 0 }
    }

    fn run(&self) -> &Run {
        self.run.as_ref().expect("until the end")
    }

    /// Does a sequence and looks at its states.
    fn explore(&mut self, steps: &[Step], states_max: u64, runs_checker: bool) -> Exploration {
        self.next += 1;
        let name = format!("s{}", self.next);
        let options = SequenceOptions {
            folder: self.folder.path(),
            name: &name,
            id: self.next.into(),
            mount: &self.mount,
        };
        let done = run_sequence(self.run(), &self.blank, steps, options).expect("the sequence can be done");
        let states = StateOptions {
            base: Some(self.blank.image.clone()),
            begin: done.begin,
            states_max,
            ways: vec![
                Way::PrefixAtBarrier,
                Way::PersistencePoints,
                Way::Adversarial,
                Way::SingleWrites,
                Way::Torn,
                Way::Subsets,
            ],
            limits: WayLimits { per_point_max: 20, subsets_drawn: 20, ..WayLimits::default() },
            ..StateOptions::new(&done.recording, 1)
        };
        let found = self.explore_states(states, &name, steps, runs_checker);
        std::fs::remove_file(&done.recording).expect("it is there");
        found
    }

    fn explore_states(
        &self,
        states: StateOptions,
        name: &str,
        steps: &[Step],
        runs_checker: bool,
    ) -> Exploration {
        let kind = self.blank.kind;
        let make = |worker: usize, contents: &Arc<Contents>| -> Result<Box<dyn Check>> {
            let oracle = Box::new(TreeOracle::new(steps, Promise::of(kind, &self.mount)));
            let name = format!("{name}-{worker}");
            let check = MountCheck::new(self.run(), &name, Arc::clone(contents), kind, runs_checker, oracle)?;
            Ok(Box::new(check.with_mount_options(&self.mount)))
        };
        let options = ExploreOptions { workers: 2, ..ExploreOptions::new(states) };
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

/// More than there are of one step.
const ALL: usize = 1000;

fn is_root() -> bool {
    Path::new("/dev/loop-control").exists() && std::fs::File::open("/dev/loop-control").is_ok()
}

/// So many sequences of one step and of two; `ROTPROOF_CRASH_TIMES` times as many, if that is set.
fn pass(kind: FileSystem, mount: &[&str], of_one: usize, of_two: usize) {
    assert!(is_root(), "run as root: states are mounted");
    let mut stand = Stand::mounted(kind, mount);
    let (began, mut checked) = (Instant::now(), 0);
    let times = std::env::var("ROTPROOF_CRASH_TIMES").map_or(1, |times| times.parse().expect("a number"));
    let sequences =
        [sample(&of_length_one(), of_one * times, 1), sample(&of_length_two(), of_two * times, 1)].concat();
    for (index, steps) in sequences.iter().enumerate() {
        let words: Vec<String> = steps.iter().map(ToString::to_string).collect();
        let found = stand.explore(steps, 40, index % 5 == 0);
        let stories: Vec<&str> = found.witnesses.iter().map(|told| told.story.as_str()).collect();
        assert!(
            found.failures.is_empty(),
            "{kind:?} {words:?}: {:#?}\n{}",
            found.failures[0],
            stories.join("\n")
        );
        assert!(found.unknown.is_empty(), "{kind:?} {words:?}: {:?}", found.unknown[0]);
        checked += found.checked;
    }
    assert!(checked > 10 * sequences.len() as u64, "{checked} states of {} sequences", sequences.len());
    let seconds = began.elapsed().as_secs_f64();
    #[expect(clippy::print_stderr, reason = "shown with --nocapture, for a look")]
    {
        eprintln!("{kind:?}: {checked} states of {} sequences in {seconds:.1} s", sequences.len());
    }
}

#[test]
fn ext4_keeps_what_it_promises() {
    pass(FileSystem::Ext4, &[], ALL, 20);
}

#[test]
fn ext4_keeps_what_each_of_its_modes_promises() {
    pass(FileSystem::Ext4, &["data=journal"], 20, 20);
    pass(FileSystem::Ext4, &["data=writeback"], 20, 10);
}

#[test]
fn xfs_keeps_what_it_promises() {
    pass(FileSystem::Xfs, &[], ALL, 10);
}

#[test]
fn btrfs_keeps_what_it_promises() {
    pass(FileSystem::Btrfs, &[], ALL, 20);
}

#[test]
fn a_disk_that_lies_about_flush_is_found_out_below_ext4() {
    assert!(is_root(), "run as root: states are mounted");
    let mut stand = Stand::new(FileSystem::Ext4);
    let steps = [Step { operation: Operation::Append("A/foo"), persist: Persist::Fsync("A/foo") }];
    let found = stand.explore(&steps, 60, false);
    assert!(found.failures.is_empty(), "an honest disk: {:#?}", found.failures);
    let name = "lies";
    let options = SequenceOptions { folder: stand.folder.path(), name, id: 99, mount: &[] };
    let done = run_sequence(stand.run(), &stand.blank, &steps, options).expect("the sequence can be done");
    // The same requests as a disk has them that acknowledges flushes and forgets them: no flush is recorded.
    let lying = stand.folder.path().join("lying");
    let begin = forget_flushes(&done.recording, &lying, done.begin);
    let states = StateOptions {
        base: Some(stand.blank.image.clone()),
        begin,
        states_max: 200,
        ways: vec![Way::PersistencePoints, Way::SingleWrites],
        ..StateOptions::new(&lying, 1)
    };
    let found = stand.explore_states(states, name, &steps, false);
    assert!(!found.failures.is_empty(), "nothing is durable on this disk");
    assert!(found.witnesses.iter().any(|told| told.story.contains("step 1 is persisted")), "{found:#?}");
}

/// Copies a recording without its flushes; what came before `begin` is made durable in one. Gives where that ends.
fn forget_flushes(from: &Path, to: &Path, begin: u64) -> u64 {
    use rotproof_crash::recording::{Data, Reader, Recorder, RecorderOptions, What};
    let mut reader = Reader::open(from).expect("a recording");
    let data = Data::open(from).expect("a recording");
    let recorder = Recorder::create(to, reader.header(), RecorderOptions::default()).expect("a new file");
    let mut names = std::collections::HashMap::new();
    let mut new_begin = 0;
    while let Some(event) = reader.next_event().expect("whole") {
        let name = match event.what {
            What::Write(write) => {
                let mut bytes = vec![0; write.length as usize];
                for (chunk, bytes) in write.chunks.iter().zip(bytes.chunks_mut(4096)) {
                    data.read_chunk(chunk, bytes).expect("whole");
                }
                recorder.write(0, write.offset, write.fua, rotproof_block::Tag::NONE, &bytes)
            }
            What::Discard { offset, length } => recorder.discard(0, offset, length),
            What::WriteZeroes { offset, length } => recorder.write_zeroes(0, offset, length),
            What::Flush if event.position < begin => recorder.flush(0),
            What::Flush | What::End => continue,
            What::Mark(text) => {
                if event.position + 1 == begin {
                    recorder.done(0, recorder.flush(0), true);
                }
                recorder.mark(0, &text);
                if event.position + 1 == begin {
                    let mut so_far = Reader::open(from).expect("a recording");
                    while so_far.next_event().expect("whole").is_some_and(|one| one.position < event.position)
                    {
                    }
                    // Two events more than there: the flush.
                    new_begin = begin + 2;
                }
                continue;
            }
            What::Done { request, ok } => {
                if let Some(name) = names.get(&request) {
                    recorder.done(0, *name, ok);
                }
                continue;
            }
        };
        names.insert(event.position, name);
    }
    recorder.finish().expect("there is room");
    new_begin
}

#[test]
fn a_state_that_was_kept_can_be_made_again() {
    assert!(is_root(), "run as root: a file system is mounted");
    let stand = Stand::new(FileSystem::Ext4);
    let steps = [Step { operation: Operation::Append("A/foo"), persist: Persist::Nothing }];
    let options = SequenceOptions { folder: stand.folder.path(), name: "kept", id: 5, mount: &[] };
    let done = run_sequence(stand.run(), &stand.blank, &steps, options).expect("the sequence can be done");
    let base = Some(stand.blank.image.clone());
    let states = StateOptions { base, begin: done.begin, ..StateOptions::new(&done.recording, 1) };
    let mut states = rotproof_crash::States::new(states).expect("a recording");
    let kept = stand.folder.path().join("kept-states");
    std::fs::create_dir(&kept).expect("there is room");
    std::fs::copy(&done.recording, kept.join("recording")).expect("there is room");
    std::fs::copy(&stand.blank.image, kept.join("base.img")).expect("there is room");
    for number in 0..5 {
        let (_, state) = states.next_state().expect("readable").expect("so many states");
        let (file, image, wanted) =
            (kept.join(format!("{number}.json")), kept.join("again.img"), kept.join("wanted.img"));
        state.description.write(&file).expect("there is room");
        states.contents().write_image(&state.image.snapshot, &wanted).expect("there is room");
        let words = rotproof_crash_fs::write_state(&file, None, None, &image).expect("made again");
        assert_eq!(words, state.description.words());
        assert!(std::fs::read(&image).expect("an image") == std::fs::read(&wanted).expect("an image"));
        [image, wanted].iter().for_each(|image| std::fs::remove_file(image).expect("it is there"));
    }
}
