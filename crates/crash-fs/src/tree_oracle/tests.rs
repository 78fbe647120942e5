//! The oracle against folders that are no file system after a crash, but look like one.

use super::*;
use crate::doer::{perform, set_up};
use crate::operations::{Operation, of_length_one, of_length_two, sample};
use rotproof_crash::{Mark, StateDescription, Way};

fn look(root: &Path, steps: &[Step], marks: &[String]) -> Vec<Finding> {
    look_in("data=ordered", root, steps, marks)
}

fn look_in(mode: &str, root: &Path, steps: &[Step], marks: &[String]) -> Vec<Finding> {
    let state = StateDescription {
        recording: String::new(),
        way: Way::Subsets,
        position: 0,
        epoch: 0,
        marks: 0,
        unit_bytes: 512,
        volatile: 0,
        survivors: Vec::new(),
    };
    let marks: Vec<Mark> =
        (0..).zip(marks).map(|(position, text)| Mark { position, time_ns: 0, text: text.clone() }).collect();
    let promise = Promise::of(rotproof_subject::FileSystem::Ext4, &[mode.to_owned()]);
    TreeOracle::new(steps, promise)
        .look(root, &Crash { state: &state, marks: &marks })
        .expect("it can be looked at")
}

/// A folder in which so many of the steps were done.
fn folder(steps: &[Step]) -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").expect("memory");
    set_up(folder.path()).expect("files");
    for (number, step) in (1..).zip(steps) {
        perform(folder.path(), &step.operation, number).unwrap_or_else(|error| panic!("{step}: {error}"));
    }
    folder
}

fn all_marks(steps: usize) -> Vec<String> {
    (1..=steps).flat_map(|step| [begin_mark(step), persisted_mark(step)]).collect()
}

#[test]
fn whatever_had_begun_may_be_there_and_what_was_persisted_is_there() {
    for steps in of_length_one().into_iter().chain(sample(&of_length_two(), 300, 1)) {
        for done in 0..=steps.len() {
            let folder = folder(&steps[..done]);
            let mut marks = all_marks(done);
            for mode in ["data=ordered", "data=journal", "data=writeback"] {
                assert_eq!(look_in(mode, folder.path(), &steps, &marks), [], "{steps:?} {done} {mode}");
            }
            if done < steps.len() {
                marks.push(begin_mark(done + 1));
                assert_eq!(look(folder.path(), &steps, &marks), [], "{steps:?}: the next had begun");
            }
        }
    }
}

#[test]
fn a_step_that_a_sync_made_durable_is_missed() {
    for steps in of_length_one().into_iter().filter(|steps| steps[0].persist == Persist::Sync) {
        let folder = folder(&[]);
        let findings = look(folder.path(), &steps, &all_marks(1));
        assert!(!findings.is_empty(), "{} is not there", steps[0]);
    }
}

#[test]
fn what_an_fsync_made_durable_is_missed() {
    let step = |operation, persist| Step { operation, persist };
    for steps in [
        step(Operation::Append("A/foo"), Persist::Fsync("A/foo")),
        step(Operation::Overwrite("A/foo"), Persist::Fdatasync("A/foo")),
        step(Operation::Truncate("A/foo"), Persist::Fsync("A/foo")),
        step(Operation::SetXattr("A/foo"), Persist::Fsync("A/foo")),
        step(Operation::Create("A/new"), Persist::Fsync("A/new")),
        step(Operation::Rename("A/foo", "B/foo"), Persist::Fsync("B/foo")),
        step(Operation::Unlink("A/bar"), Persist::FsyncFolder("A")),
        step(Operation::Mkdir("A/dir"), Persist::FsyncFolder("A")),
    ] {
        let folder = folder(&[]);
        let findings = look(folder.path(), std::slice::from_ref(&steps), &all_marks(1));
        assert!(!findings.is_empty(), "{steps} is not there");
    }
}

#[test]
fn zeros_are_no_version_of_a_block_that_is_written_again() {
    let steps = [Step { operation: Operation::Overwrite("A/foo"), persist: Persist::Nothing }];
    for mode in ["data=ordered", "data=journal", "data=writeback"] {
        let folder = folder(&[]);
        let path = folder.path().join("A/foo");
        let size = std::fs::metadata(&path).expect("it is there").len() as usize;
        std::fs::write(&path, vec![0; size]).expect("there is room");
        let findings = look_in(mode, folder.path(), &steps, &[begin_mark(1)]);
        assert!(findings.iter().any(|finding| finding.kind == "content"), "{mode}: {findings:?}");
    }
}

#[test]
fn what_nobody_did_is_found() {
    let steps = [Step { operation: Operation::Rename("A/foo", "B/foo"), persist: Persist::Nothing }];
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 7] = [
        ("lost name", |root| std::fs::remove_file(root.join("A/bar")).expect("it is there")),
        ("stray name", |root| std::fs::write(root.join("B/stray"), b"").expect("there is room")),
        ("content", |root| std::fs::write(root.join("A/bar"), [0x33; 4096]).expect("there is room")),
        ("content", |root| std::fs::write(root.join("A/bar"), b"").expect("there is room")),
        ("lost file", |root| std::fs::remove_file(root.join("A/foo")).expect("it is there")),
        ("order of names", |root| {
            std::fs::hard_link(root.join("A/foo"), root.join("B/foo")).expect("a link");
        }),
        ("content", |root| {
            std::fs::remove_file(root.join("A/bar")).expect("it is there");
            std::fs::create_dir(root.join("A/bar")).expect("there is room");
        }),
    ];
    for (kind, harm) in harms {
        let folder = folder(&[]);
        harm(folder.path());
        let kinds: Vec<String> =
            look(folder.path(), &steps, &[begin_mark(1)]).into_iter().map(|finding| finding.kind).collect();
        assert!(kinds.iter().any(|found| found == kind), "{kind}: {kinds:?}");
    }
}

#[test]
fn a_mode_that_promises_more_is_asked_for_more() {
    let step = |operation| Step { operation, persist: Persist::Nothing };
    let begun = [begin_mark(1), begin_mark(2)];
    let kinds = |mode: &str, root: &Path, steps: &[Step]| -> Vec<String> {
        // The first names what is wrong; others may follow from it.
        look_in(mode, root, steps, &begun).into_iter().take(1).map(|finding| finding.kind).collect()
    };
    // The second of two changes is there, and the data of the first are not.
    for second in [Operation::Link("A/foo", "A/link"), Operation::Unlink("A/bar"), Operation::Append("A/bar")]
    {
        let steps = [step(Operation::Overwrite("A/foo")), step(second.clone())];
        let folder = folder(&[]);
        perform(folder.path(), &second, 2).expect("it can be done");
        assert_eq!(kinds("data=ordered", folder.path(), &steps), [""; 0], "{second}");
        assert_eq!(kinds("data=journal", folder.path(), &steps), ["order of data"], "{second}");
    }
    // What another file had, in a block that is new, and in one that was there.
    for (operation, block, in_writeback) in
        [(Operation::Append("A/bar"), 1, &[][..]), (Operation::Overwrite("A/bar"), 0, &["content"])]
    {
        let steps = [step(operation.clone()), step(Operation::SetXattr("A/foo"))];
        let folder = folder(&steps[..1]);
        let file = File::options().write(true).open(folder.path().join("A/bar")).expect("it is there");
        std::os::unix::fs::FileExt::write_all_at(&file, &[0x11; 4096], block * 4096).expect("there is room");
        assert_eq!(kinds("data=ordered", folder.path(), &steps), ["content"], "{operation}");
        assert_eq!(kinds("data=writeback", folder.path(), &steps), in_writeback, "{operation}");
    }
}
