//! Many sequences, as root: an exploration that was interrupted, and goes on, comes to what one does that was not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rotproof_block::ErrorKind;
use rotproof_crash_fs::operations::{of_length_one, sample};
use rotproof_crash_fs::{CAMPAIGN_PROGRESS, Campaign, CampaignOptions, Tally, explore_sequences};
use rotproof_machine::Cancel;
use rotproof_machine::registry::Registry;
use rotproof_subject::FileSystem;

/// Sequences of the test.
const SEQUENCES: usize = 6;

/// A registry of its own, and folders in memory.
struct Stand {
    folder: tempfile::TempDir,
    mount: Vec<String>,
}

impl Stand {
    fn new(mount: &[&str]) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("memory");
        let state = folder.path().join("state");
        fs::create_dir(&state).expect("there is room");
        fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).expect("ours");
        Self { folder, mount: mount.iter().map(|&option| option.to_owned()).collect() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn options(&self, name: &str) -> CampaignOptions {
        CampaignOptions {
            kind: FileSystem::Ext4,
            mount: self.mount.clone(),
            sequences: sample(&of_length_one(), SEQUENCES, 3),
            states_max: 12,
            workers: 2,
            checker_every: 0,
            seed: 3,
            time_max: None,
            keep: self.path(name),
        }
    }

    /// Explores until all is done, or somebody wants it to stop after so many sequences of this run. What is told comes with it.
    fn explore(&self, options: &CampaignOptions, stop_after: usize) -> (Campaign, Vec<(Tally, Tally)>) {
        let run = Registry::at(&self.path("state")).expect("a registry").begin().expect("a run");
        let (cancel, mut told) = (Cancel::new(), Vec::new());
        let mut tell = |tally: &Tally, earlier: &Tally| {
            told.push((*tally, *earlier));
            if tally.sequences - earlier.sequences == stop_after {
                cancel.cancel(libc::SIGINT);
            }
        };
        let found = explore_sequences(&run, options, &cancel, &mut tell).expect("it can be explored");
        assert!(run.finish().is_empty(), "something is left");
        (found, told)
    }
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).expect("it is there").lines().map(str::to_owned).collect()
}

/// The sequences that fail, each by its steps and what it is kept as.
fn suspects(found: &Campaign) -> Vec<(String, PathBuf)> {
    let name = |kept: &Path| PathBuf::from(kept.file_name().expect("a name"));
    found.suspects.iter().map(|suspect| (suspect.sequence.join("; "), name(&suspect.kept))).collect()
}

#[test]
fn one_that_was_interrupted_and_goes_on_comes_to_what_an_uninterrupted_one_does() {
    // Without flushes an fsync keeps nothing, so there is something to find.
    let stand = Stand::new(&["nobarrier"]);
    let (whole, told) = stand.explore(&stand.options("whole"), SEQUENCES + 1);
    assert!(whole.is_complete && !whole.suspects.is_empty(), "{whole:#?}");
    assert_eq!((told.len(), whole.earlier.sequences), (SEQUENCES, 0));

    let options = stand.options("parts");
    let progress = options.keep.join(CAMPAIGN_PROGRESS);
    let (first, _) = stand.explore(&options, 2);
    assert_eq!((first.tally.sequences, first.is_complete), (2, false));
    let after_first = lines(&progress);
    assert_eq!(after_first.len(), 3, "a head, and a line for each sequence");
    let (second, told) = stand.explore(&options, 2);
    assert_eq!(told[0], (first.tally, first.tally), "what had been done is told first");
    assert_eq!((second.earlier, second.tally.sequences), (first.tally, 4));

    // As kill -9 leaves it: in the middle of a line, with what had been kept of a sequence that is not done.
    let text = fs::read(&progress).expect("it is there");
    fs::write(&progress, &text[..text.len() - 20]).expect("there is room");
    for stale in ["ext4-s4", "ext4-s4.new", "ext4-s5"] {
        fs::create_dir_all(options.keep.join(stale)).expect("there is room");
        fs::write(options.keep.join(stale).join("stale"), "of a run that was killed").expect("there is room");
    }
    let (third, _) = stand.explore(&options, SEQUENCES);
    assert_eq!(third.earlier.sequences, 3, "the line that was cut off is none");
    let after_third = lines(&progress);
    assert_eq!(after_third[..4], lines_of(&text)[..4], "what was done is as it was");
    assert_eq!(after_third.len(), SEQUENCES + 1, "each sequence has one line");

    assert!(third.is_complete);
    assert_eq!(third.tally, whole.tally);
    assert_eq!(suspects(&third), suspects(&whole));
    for suspect in &third.suspects {
        assert!(!suspect.kept.join("stale").exists(), "{}", suspect.kept.display());
        let state = suspect.kept.join(format!("state-{}.json", suspect.failures[0].index));
        let image = stand.path("crashed.img");
        rotproof_crash_fs::write_state(&state, None, None, &image).expect("made again");
        fs::remove_file(&image).expect("it is there");
    }
    let (again, told) = stand.explore(&options, SEQUENCES);
    assert_eq!((again.earlier, again.tally, told.len()), (third.tally, third.tally, 1));
    assert_eq!(again.suspects, third.suspects);

    let mut other = options;
    other.seed = 4;
    let run = Registry::at(&stand.path("state")).expect("a registry").begin().expect("a run");
    let error = explore_sequences(&run, &other, &Cancel::new(), &mut |_, _| {}).expect_err("another one");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(run.finish().is_empty());
}

fn lines_of(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).lines().map(str::to_owned).collect()
}

#[test]
fn of_one_that_passes_nothing_is_left_once_all_of_it_is_done() {
    let stand = Stand::new(&[]);
    let mut options = stand.options("passing");
    options.sequences.truncate(2);
    let (first, _) = stand.explore(&options, 1);
    assert_eq!((first.tally.sequences, first.tally.failing, first.is_complete), (1, 0, false));
    assert!(options.keep.join(CAMPAIGN_PROGRESS).exists());
    let (second, _) = stand.explore(&options, 2);
    assert!(second.is_complete && !second.is_kept(), "{second:#?}");
    assert!(second.tally.checked > first.tally.checked);
    assert_eq!(fs::read_dir(&options.keep).expect("a folder").count(), 0, "nothing is left");
}
