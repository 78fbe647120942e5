//! The file of a campaign: what goes on, what is refused, and what is left of a line that was cut off.

use rotproof_crash::{Finding, StateDescription, Way};
use rotproof_subject::FileSystem;

use super::*;
use crate::operations::of_length_one;

fn options(folder: &Path) -> CampaignOptions {
    CampaignOptions {
        kind: FileSystem::Ext4,
        mount: Vec::new(),
        sequences: of_length_one(),
        states_max: 40,
        workers: 1,
        checker_every: 0,
        seed: 1,
        time_max: None,
        keep: folder.join("results"),
    }
}

fn head(options: &CampaignOptions) -> CampaignHead {
    CampaignHead::of(options).expect("a kernel")
}

fn begin(options: &CampaignOptions) -> Result<(Progress, Vec<Done>)> {
    Progress::begin(&options.keep, &head(options), [options.keep.join("ext4-s1")])
}

fn done(sequence: usize) -> Done {
    let state = StateDescription {
        recording: "0".into(),
        way: Way::Torn,
        position: 7,
        epoch: 1,
        marks: 2,
        unit_bytes: 4096,
        volatile: 1,
        survivors: Vec::new(),
    };
    let mut done = Done { sequence, checked: 30, failures: vec![], unknown: vec![], stories: vec![] };
    if sequence == 2 {
        let findings = vec![Finding::new("lost", "A/foo\nis not there")];
        done.failures.push(FailingState { index: 3, state: state.clone(), findings });
        done.unknown.push(Unknown { index: 4, state, why: "nobody could look".into() });
        done.stories.push("The power goes.\nFound: lost".into());
    }
    done
}

/// Three sequences, in a file that nobody writes to any more.
fn three(options: &CampaignOptions) -> Vec<Done> {
    let (mut progress, known) = begin(options).expect("a new folder");
    assert_eq!(known, []);
    let all: Vec<Done> = (1..=3).map(done).collect();
    all.iter().for_each(|done| progress.note(done).expect("there is room"));
    all
}

#[test]
fn what_is_done_is_known_again_and_what_comes_next_is_written_behind_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path());
    let mut all = three(&options);
    let (mut progress, known) = begin(&options).expect("the same");
    assert_eq!(known, all);
    let error = begin(&options).expect_err("somebody is at work");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    all.push(done(4));
    progress.note(&all[3]).expect("there is room");
    drop(progress);
    let (progress, known) = begin(&options).expect("the same");
    assert_eq!(known, all);
    progress.remove().expect("it is there");
    assert_eq!(begin(&options).expect("a new one").1, []);
}

#[test]
fn wherever_the_last_line_was_cut_off_the_whole_ones_before_it_are_known() {
    // In memory, as each line is made durable.
    let folder = tempfile::tempdir_in("/dev/shm").expect("memory");
    let options = options(folder.path());
    let all = three(&options);
    let path = options.keep.join(CAMPAIGN_PROGRESS);
    let whole = std::fs::read(&path).expect("it is there");
    for length in 0..=whole.len() {
        std::fs::write(&path, &whole[..length]).expect("there is room");
        let (mut progress, known) = begin(&options).expect("what is whole can go on");
        let lines = whole[..length].iter().filter(|&&byte| byte == b'\n').count();
        assert_eq!(known, all[..lines.saturating_sub(1)], "{length} bytes");
        // What comes next is no part of the line that was cut off.
        all[known.len()..].iter().for_each(|done| progress.note(done).expect("there is room"));
        drop(progress);
        assert_eq!(std::fs::read(&path).expect("it is there"), whole, "{length} bytes");
    }
    // Zeros at the end are what a file system may leave of a line after a loss of power.
    std::fs::write(&path, [&whole[..], &[0; 100]].concat()).expect("there is room");
    assert_eq!(begin(&options).expect("they are no line").1, all);
}

#[test]
fn the_progress_of_another_campaign_is_refused_and_the_difference_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let ours = options(folder.path());
    three(&ours);
    let path = ours.keep.join(CAMPAIGN_PROGRESS);
    let text = std::fs::read_to_string(&path).expect("text");
    let refused = |options: &CampaignOptions, part: &str| {
        let error = begin(options).map(drop).expect_err(part);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let words = error.to_string();
        assert!(words.contains(part) && words.contains("--results"), "{part}: {words}");
    };
    let other = |change: &dyn Fn(&mut CampaignOptions)| {
        let mut options = options(folder.path());
        change(&mut options);
        options
    };
    refused(&other(&|one| one.seed = 2), "its seed is 1, and here it is 2");
    refused(&other(&|one| one.kind = FileSystem::Xfs), "its file system is ext4, and here it is xfs");
    refused(&other(&|one| one.states_max = 50), "its states of each sequence is 40");
    refused(&other(&|one| one.checker_every = 1), "its fsck is off, and here it is on");
    refused(&other(&|one| one.mount = vec!["data=journal".into()]), "its mount options is none");
    refused(&other(&|one| one.sequences.truncate(5)), "here it is 5");
    refused(&other(&|one| one.sequences.reverse()), "its sequences are others");
    // How fast it goes, and how long, changes nothing of what is found.
    let faster = other(&|one| (one.workers, one.time_max) = (4, Some(std::time::Duration::ZERO)));
    assert_eq!(begin(&faster).expect("the same").1.len(), 3);
    let name = |options: &CampaignOptions| head(options).folder_name().expect("a name");
    assert_eq!(name(&faster), name(&ours));
    assert!(name(&ours).starts_with("ext4-"), "{}", name(&ours));
    assert_ne!(name(&other(&|one| one.seed = 2)), name(&ours));

    let rotproof = format!("\"rotproof\":\"{}\"", env!("CARGO_PKG_VERSION"));
    for (from, to, part) in [
        (rotproof.as_str(), "\"rotproof\":\"99.0\"", "its Rotproof is 99.0, and here it is"),
        ("\"kernel\":\"", "\"kernel\":\"Other ", "its kernel is Other"),
        ("\"format\":1", "\"format\":2", "has form 2, and this Rotproof knows form 1"),
        ("\"format\":1,", "\"format\":1,\"more\":0,", "is damaged"),
        ("{\"format\":1", "no progress", "is not the progress of an exploration"),
        ("\"sequence\":3", "\"sequence\":4", "line 4 of"),
        ("\"checked\"", "\"seen\"", "line 2 of"),
    ] {
        assert!(text.contains(from), "{from}: {text}");
        std::fs::write(&path, text.replacen(from, to, 1)).expect("there is room");
        refused(&ours, part);
    }
}

#[test]
fn what_somebody_else_has_kept_is_not_taken_for_that_of_a_campaign() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path());
    std::fs::create_dir_all(options.keep.join("ext4-s1")).expect("a folder");
    let error = begin(&options).map(drop).expect_err("it is not known whose that is");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(!options.keep.join(CAMPAIGN_PROGRESS).exists(), "a second try is refused, too");
}
