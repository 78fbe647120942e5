//! The registry without mounts and devices: those are in `tests/`, as they need root.

use super::*;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::journal::Line;

fn registry() -> (tempfile::TempDir, Registry) {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let registry = Registry::at(&parent.path().join("rotproof")).expect("created");
    (parent, registry)
}

fn names(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder)
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8"))
        .collect()
}

/// The identity of a process that has ended.
fn dead_process() -> ProcessIdentity {
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep exists");
    let identity = ProcessIdentity::of(child.id()).expect("it runs");
    child.kill().expect("our child");
    child.wait().expect("our child");
    identity
}

/// The record of a run as a killed process leaves it.
fn dead_run(registry: &Registry, id: &str, boot_id: &str, resources: &[&dyn Resource]) {
    let header = Header::new(id.to_owned(), dead_process(), boot_id.to_owned());
    let journal = Journal::create(registry.folder(), header).expect("created");
    for (id, &resource) in (1..).zip(resources) {
        let line = Line::create(id, resource).expect("UTF-8");
        journal.append(&line).expect("written");
    }
}

fn directory(path: &Path) -> Directory {
    Directory { path: path.to_owned() }
}

/// Something that is never there, of a kind that is brought.
#[derive(Debug, Serialize, Deserialize)]
struct Absent {
    name: String,
}

static ABSENT: Kind =
    Kind { word: "absent", read: read_as::<Absent>, kept_by: Keeper::Kernel, goes_first: false, finds: &[] };

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the absent {}", self.name)
    }
}

impl Resource for Absent {
    fn kind(&self) -> &'static Kind {
        &ABSENT
    }

    fn exists(&self) -> Result<bool> {
        Ok(false)
    }

    fn remove(&self, _made: Option<FileIdentity>) -> Result<()> {
        Ok(())
    }
}

fn absent(name: &str) -> Absent {
    Absent { name: name.to_owned() }
}

/// A step that only notes that it was undone.
fn note(stack: &mut CleanupStack, notes: &Arc<Mutex<Vec<u32>>>, number: u32) {
    let resource = absent(&number.to_string());
    let notes = Arc::clone(notes);
    let undo: Undo = Box::new(move || {
        notes.lock().push(number);
        Ok(())
    });
    stack.create(resource, || Ok(((), undo))).expect("recorded");
}

#[test]
fn a_run_that_ends_in_order_leaves_nothing() {
    let (_parent, registry) = registry();
    let run = registry.begin().expect("begun");
    assert!(run.scratch().is_dir());
    let mut stack = CleanupStack::new(&run);
    let folder = run.scratch().join("mount");
    stack.create_directory(&folder).expect("created");
    stack.create_file(&folder.join("file")).expect("created");
    assert!(stack.undo_all().is_empty());
    assert!(!folder.exists());
    let failures = run.finish();
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(names(registry.folder()), [""; 0]);
}

#[test]
fn steps_are_undone_in_reverse_order_down_to_a_mark() {
    let (_parent, registry) = registry();
    let run = registry.begin().expect("begun");
    let notes = Arc::new(Mutex::new(Vec::new()));
    let mut stack = CleanupStack::new(&run);
    note(&mut stack, &notes, 1);
    let mark = stack.height();
    note(&mut stack, &notes, 2);
    note(&mut stack, &notes, 3);
    assert!(stack.undo_to(mark).is_empty());
    assert_eq!(*notes.lock(), [3, 2]);
    drop(stack);
    assert_eq!(*notes.lock(), [3, 2, 1]);
    assert!(run.finish().is_empty());
}

#[test]
fn a_failing_step_is_reported_and_does_not_stop_the_others() {
    let (_parent, registry) = registry();
    let run = registry.begin().expect("begun");
    let notes = Arc::new(Mutex::new(Vec::new()));
    let mut stack = CleanupStack::new(&run);
    note(&mut stack, &notes, 1);
    let undo: Undo = Box::new(|| Err(Error::medium()));
    stack.create(absent("fails"), || Ok(((), undo))).expect("recorded");
    note(&mut stack, &notes, 3);
    let failures = stack.undo_all();
    assert_eq!(failures.len(), 1);
    assert!(failures[0].to_string().contains("absent fails"), "{failures:?}");
    assert_eq!(*notes.lock(), [3, 1]);
    assert!(run.finish().is_empty(), "the second attempt found it gone");
}

#[test]
fn what_a_panic_interrupts_is_undone_and_its_failures_are_kept() {
    let (_parent, registry) = registry();
    let run = registry.begin().expect("begun");
    let folder = run.scratch().join("folder");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut stack = CleanupStack::new(&run);
        stack.create_directory(&folder).expect("created");
        stack
            .create::<()>(absent("x"), || {
                std::fs::write(folder.join("stray"), "unrecorded").expect("written");
                panic!("in the middle of a creation")
            })
            .expect("never returns");
    }));
    assert!(panicked.is_err());
    assert!(folder.join("stray").exists(), "a folder with unrecorded files is left alone");
    std::fs::remove_file(folder.join("stray")).expect("removed");
    let record = registry.folder().join(format!("{}.jsonl", run.id()));
    let failures = run.finish();
    assert!(failures.iter().any(|error| error.to_string().contains("did not record")), "{failures:?}");
    assert!(failures.iter().any(|error| error.to_string().contains("rotproof clean")), "{failures:?}");
    assert!(record.exists(), "what is left stays recorded");
    let reports = registry.clean(&[&ABSENT], false).expect("cleaned");
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].outcome, Outcome::Cleaned, "the process lives, but has let go: {reports:?}");
    assert_eq!(names(registry.folder()), [""; 0]);
}

#[test]
fn a_creation_that_fails_leaves_neither_resource_nor_record() {
    let (_parent, registry) = registry();
    let run = registry.begin().expect("begun");
    let mut stack = CleanupStack::new(&run);
    let taken = run.scratch().join("taken");
    std::fs::write(&taken, "of somebody else").expect("written");
    assert!(stack.create_file(&taken).is_err());
    assert!(stack.create_directory(&taken).is_err());
    assert!(stack.create::<()>(absent("x"), || Err(Error::medium())).is_err());
    assert_eq!(stack.height(), 0);
    assert!(taken.exists(), "what was there before is untouched");
    std::fs::remove_file(&taken).expect("removed");
    assert!(run.finish().is_empty());
}

#[test]
fn a_living_run_is_named_and_left_alone() {
    let (_parent, registry) = registry();
    let run = registry.begin().expect("begun");
    for dry_run in [true, false] {
        let reports = registry.clean(&[], dry_run).expect("looked");
        assert_eq!(reports.len(), 1);
        assert_eq!((reports[0].run.as_str(), &reports[0].outcome), (run.id(), &Outcome::Living));
    }
    assert!(run.scratch().is_dir());
    assert!(run.finish().is_empty());
}

#[test]
fn what_a_dead_run_left_is_removed_and_nothing_else() {
    let (parent, registry) = registry();
    let ours = parent.path().join("ours");
    let inner = ours.join("inner");
    let foreign = parent.path().join("foreign");
    for folder in [&ours, &inner, &foreign] {
        std::fs::create_dir(folder).expect("created");
    }
    let boot = boot_id().expect("proc is mounted");
    let gone = parent.path().join("never-created");
    dead_run(&registry, "dead", &boot, &[&directory(&ours), &directory(&inner), &directory(&gone)]);
    let living = registry.begin().expect("begun");

    let reports = registry.clean(&[], true).expect("looked");
    let dead = reports.iter().find(|report| report.run == "dead").expect("found");
    assert_eq!(dead.outcome, Outcome::WouldClean);
    assert_eq!(dead.resources.len(), 2, "what is not there is not named: {dead:?}");
    assert!(inner.exists(), "a dry run removes nothing");

    let reports = registry.clean(&[], false).expect("cleaned");
    let dead = reports.iter().find(|report| report.run == "dead").expect("found");
    assert_eq!(dead.outcome, Outcome::Cleaned, "{dead:?}");
    assert!(dead.resources[0].what.ends_with("inner"), "the last created goes first: {dead:?}");
    assert!(!ours.exists() && foreign.exists() && living.scratch().exists());
    assert!(
        registry.clean(&[], false).expect("cleaned").iter().all(|report| report.outcome == Outcome::Living)
    );
    assert!(living.finish().is_empty());
}

#[test]
fn what_cannot_be_removed_is_reported_and_stays_recorded() {
    let (parent, registry) = registry();
    let folder = parent.path().join("folder");
    std::fs::create_dir(&folder).expect("created");
    std::fs::write(folder.join("letter"), "dear").expect("written");
    dead_run(&registry, "dead", &boot_id().expect("proc is mounted"), &[&directory(&folder)]);
    let reports = registry.clean(&[], false).expect("cleaned");
    assert_eq!(reports[0].outcome, Outcome::Incomplete);
    assert!(reports[0].resources[0].error.as_ref().is_some_and(|error| error.contains("left alone")));
    std::fs::remove_file(folder.join("letter")).expect("removed");
    assert_eq!(registry.clean(&[], false).expect("cleaned")[0].outcome, Outcome::Cleaned);
    assert!(!folder.exists());
}

#[test]
fn after_a_reboot_only_files_and_folders_can_be_left() {
    let (parent, registry) = registry();
    let folder = parent.path().join("folder");
    std::fs::create_dir(&folder).expect("created");
    // Of this process, which must survive: its number means another process than in the boot before.
    let this = Process(ProcessIdentity::current().expect("proc is mounted"));
    dead_run(&registry, "dead", "another boot", &[&directory(&folder), &this]);
    let reports = registry.clean(&[], false).expect("cleaned");
    assert_eq!(reports[0].outcome, Outcome::Cleaned);
    assert_eq!(reports[0].resources.len(), 1);
    assert!(!folder.exists());
}

#[test]
fn a_record_that_is_not_ours_to_read_is_left_alone() {
    let (_parent, registry) = registry();
    let strange = registry.folder().join("strange.jsonl");
    std::fs::write(&strange, "{\"from\":\"the future\"}\n").expect("written");
    let empty = registry.folder().join("empty.jsonl");
    std::fs::write(&empty, "{\"run\":").expect("written");
    let reports = registry.clean(&[], false).expect("looked");
    assert_eq!(reports.len(), 1);
    assert!(matches!(&reports[0].outcome, Outcome::Unreadable(_)), "{reports:?}");
    assert!(!reports[0].is_settled());
    assert!(strange.exists());
    assert!(!empty.exists(), "killed before it created anything");
}

#[test]
fn many_runs_begin_while_others_clean() {
    let (_parent, registry) = registry();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let run = registry.begin().expect("begun");
                    assert!(run.scratch().is_dir(), "a clean took a living run for dead");
                    assert!(run.finish().is_empty());
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..40 {
                    let reports = registry.clean(&[], false).expect("cleaned");
                    assert!(reports.iter().all(CleanReport::is_settled), "{reports:?}");
                }
            });
        }
    });
    assert_eq!(names(registry.folder()), [""; 0]);
}

#[test]
fn a_folder_that_is_open_to_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = parent.path().join("rotproof");
    std::fs::create_dir(&folder).expect("created");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("changed");
    assert_eq!(Registry::at(&folder).expect_err("open to all").kind(), ErrorKind::Refused);
    let link = parent.path().join("link");
    std::os::unix::fs::symlink("/", &link).expect("linked");
    assert!(Registry::at(&link).is_err(), "a link is no folder of ours");
}

#[test]
fn a_dry_run_says_what_a_clean_then_does() {
    let (parent, registry) = registry();
    let boot_id = boot_id().expect("proc is mounted");
    let path = |name: &str| parent.path().join(name);
    let made = |name: &str| {
        std::fs::create_dir(path(name)).expect("created");
        path(name)
    };
    // One folder in another, one with something strange in it and what lies above that, a tree that is known and one that
    // is not, a file that another has replaced, and what was never made.
    let (outer, inner) = (made("outer"), made("outer/inner"));
    let (above, full) = (made("above"), made("above/full"));
    std::fs::write(full.join("letter"), "dear").expect("written");
    let (known, strange) = (made("known"), made("strange"));
    std::fs::write(known.join("x"), "").expect("written");
    std::fs::write(strange.join("x"), "").expect("written");
    std::fs::write(path("file"), "of somebody else").expect("written");
    let tree = |path: &Path| Tree { path: path.into() };
    let resources: [&dyn Resource; 8] = [
        &directory(&outer),
        &directory(&inner),
        &directory(&above),
        &directory(&full),
        &tree(&known),
        &tree(&strange),
        &File { path: path("file") },
        &File { path: path("never-made") },
    ];
    dead_run(&registry, "dead", &boot_id, &resources);
    let journal = Journal::try_open(&registry.folder().join("dead.jsonl")).expect("opened").expect("free");
    let identity = FileIdentity::of(&known).expect("it is there");
    journal.append(&Line::Created { id: 5, identity }).expect("written");
    drop(journal);
    let planned = registry.clean(&[], true).expect("looked");
    assert!([&inner, &full, &known, &strange].iter().all(|path| path.exists()), "nothing is touched");
    let done = registry.clean(&[], false).expect("cleaned");
    assert_eq!(planned[0].resources, done[0].resources);
    let outcomes = (&planned[0].outcome, &done[0].outcome);
    assert_eq!(outcomes, (&Outcome::WouldBeIncomplete, &Outcome::Incomplete));
    assert!(!planned[0].is_settled());
    let failed = |name: &str| {
        done[0].resources.iter().any(|found| found.what.ends_with(name) && found.error.is_some())
    };
    assert!(failed("/full") && failed("/file") && failed("/above"), "{done:#?}");
    assert!(!outer.exists() && !known.exists() && full.join("letter").exists() && strange.exists());
}

/// What a program leaves in its folder is its own, and the folder is the run's.
#[test]
fn a_folder_that_others_fill_is_removed_with_what_they_left() {
    let (_parent, registry) = registry();
    let run = registry.begin().expect("begun");
    let folder = run.scratch().join("work");
    let mut stack = CleanupStack::new(&run);
    stack.create_tree(&folder).expect("created");
    std::fs::create_dir(folder.join("deep")).expect("created");
    std::fs::write(folder.join("deep/letter"), "dear").expect("written");
    assert!(stack.undo_all().is_empty());
    assert!(run.finish().is_empty());
    assert_eq!(names(registry.folder()), [""; 0]);
}
