//! What `kill -9` leaves, and that `clean` removes exactly that. Needs root, FUSE and loop devices.

mod sandbox;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rotproof_attach::KINDS;
use rotproof_block::Phase;
use rotproof_export::{LoopDevice, LoopOptions, find_by_backing_file};
use rotproof_machine::registry::{CleanReport, Outcome, Registry};
use rotproof_subject::{Destination, FileSystem, SubjectSpec};

use sandbox::{
    Behaviour, Rigged, Sandbox, environment, file_system, leftovers, mounts_and_loops, prepare_on, stack_for,
};

/// Tells the child the folder of its registry, and what to do.
const FOLDER: &str = "ROTPROOF_TEST_REGISTRY";
const TASK: &str = "ROTPROOF_TEST_TASK";
/// The file beside the registry by which the child says that it is where it shall be killed.
const READY: &str = "ready";

/// The other half of the tests below, in a process of its own: makes a subject, says so, and goes on until it is
/// killed.
#[test]
#[ignore = "never ends; the other tests start it as a process that they kill"]
fn holds_a_subject_until_it_is_killed() {
    let folder = std::env::var_os(FOLDER).expect("started by another test, which names a registry");
    // Where the kernel writes cores, one of this would only be in the way.
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads the structure, which lives across the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) }, 0);
    let folder = Path::new(&folder);
    let task = std::env::var(TASK).expect("started by another test, which names a task");
    let environment = environment(Registry::at(folder).expect("there").begin().expect("begun"), 1);
    let (kind, how) = task.split_once(' ').expect("a file system and what to do with it");
    let kind = FileSystem::ALL.into_iter().find(|candidate| candidate.name() == kind).expect("a file system");
    let stack = stack_for(kind);
    if how == "mkfs" {
        stack.behave(Behaviour::SilentToWrites);
    }
    let subject = loop {
        match prepare_on(&file_system(kind, &[], &[]), stack.clone(), &environment) {
            Ok(subject) => break subject,
            // The tests beside this one leave dead mounts for a moment, over which mkfs.btrfs stumbles.
            Err(error) if error.to_string().contains("rotproof clean") => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    };
    environment.phase.store(Phase::Run as u8, Ordering::SeqCst);
    let Destination::Folder(mountpoint) = subject.place() else { panic!("a file system is a folder") };
    let mut writers = Vec::new();
    if how != "idle" {
        for name in ["a", "b"] {
            let mut file = File::create(mountpoint.join(name)).expect("created");
            writers.push(std::thread::spawn(move || {
                loop {
                    file.write_all(&[7; 1 << 20])
                        .and_then(|()| file.sync_all())
                        .expect("written until killed");
                    file.set_len(0).expect("emptied");
                }
            }));
        }
    }
    if how == "silent" {
        stack.behave(Behaviour::Silent);
        while stack.unanswered() == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    fs::write(folder.with_file_name(READY), "").expect("written");
    std::thread::sleep(Duration::from_secs(300));
    panic!("nobody killed this process");
}

/// A process that does not outlive the test, even if that fails.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have been killed already. Not waited for: it may be unable to end before the sandbox is cleaned.
        let _ = self.0.kill();
    }
}

fn start(sandbox: &Sandbox, task: &str) -> Holder {
    let program = std::env::current_exe().expect("this program");
    let child = Command::new(program)
        .args(["--exact", "holds_a_subject_until_it_is_killed", "--ignored", "--nocapture"])
        .env(FOLDER, sandbox.registry.folder())
        .env(TASK, task)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    Holder(child)
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn report_of(reports: &[CleanReport], pid: u32) -> &CleanReport {
    reports.iter().find(|report| report.pid == Some(pid)).expect("the killed run is named")
}

/// Kills a child that does `task` and cleans; everything is gone, soon.
fn kill_and_clean(task: &str) {
    let sandbox = Sandbox::new();
    let mut holder = start(&sandbox, task);
    wait_until("the child is ready", || sandbox.path().join(READY).exists());
    holder.0.kill().expect("our child");
    let began = Instant::now();
    // Before the child is waited for: it may be unable to end until it is cleaned after.
    let reports = sandbox.registry.clean(&KINDS, false).expect("cleaned");
    assert!(began.elapsed() < Duration::from_secs(30), "took {:?}", began.elapsed());
    let report = report_of(&reports, holder.0.id());
    assert_eq!(report.outcome, Outcome::Cleaned, "{report:#?}");
    holder.0.wait().expect("our child");
    sandbox.assert_nothing_left();
    assert_eq!(sandbox.registry.clean(&KINDS, false).expect("cleaned"), [], "nothing is left to clean");
}

#[test]
fn a_run_killed_while_idle_is_cleaned() {
    kill_and_clean("ext4 idle");
}

#[test]
fn a_run_killed_while_it_writes_to_ext4_is_cleaned() {
    kill_and_clean("ext4 busy");
}

#[test]
fn a_run_killed_while_it_writes_to_xfs_is_cleaned() {
    kill_and_clean("xfs busy");
}

#[test]
fn a_run_killed_while_it_writes_to_btrfs_is_cleaned() {
    kill_and_clean("btrfs busy");
}

/// A thread waits in the kernel, uninterruptibly, for the process's own FUSE server, which the kill has ended: the
/// process cannot end until somebody ends the connection.
#[test]
fn a_run_killed_while_its_stack_does_not_answer_is_cleaned() {
    kill_and_clean("ext4 silent");
}

/// After other signals than SIGKILL the kernel keeps the process for its core, and nothing about it says that it was
/// killed. Until it is cleaned after, every `sync` of the machine waits for its device.
#[test]
fn a_run_that_has_crashed_and_is_stuck_is_cleaned_and_a_dry_run_says_what_is_ended() {
    let sandbox = Sandbox::new();
    let mut holder = start(&sandbox, "ext4 silent");
    wait_until("the child is ready", || sandbox.path().join(READY).exists());
    let pid = holder.0.id();
    // SAFETY: sends a signal to our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(pid.cast_signed(), libc::SIGTRAP) }, 0);
    wait_until("it is stuck", || !sandbox.registry.stuck(&KINDS).is_empty());
    assert_eq!(holder.0.try_wait().expect("our child"), None, "it waits for its own device");
    let plan = sandbox.registry.clean(&KINDS, true).expect("looked");
    let done = sandbox.registry.clean(&KINDS, false).expect("cleaned");
    let (plan, done) = (report_of(&plan, pid), report_of(&done, pid));
    assert_eq!((&plan.outcome, &done.outcome), (&Outcome::WouldClean, &Outcome::Cleaned), "{done:#?}");
    assert!(plan.resources[0].what.starts_with("the FUSE connection of "), "{plan:#?}");
    assert_eq!(plan.resources, done.resources);
    assert_eq!(holder.0.wait().expect("our child").signal(), Some(libc::SIGTRAP));
    sandbox.assert_nothing_left();
}

/// mkfs.btrfs reads from every loop device that there is, and so waits for one that nobody serves any more.
#[test]
fn a_run_that_is_killed_and_stuck_does_not_hang_the_next_one_which_names_it() {
    let sandbox = Sandbox::new();
    let mut holder = start(&sandbox, "btrfs silent");
    wait_until("the child is ready", || sandbox.path().join(READY).exists());
    assert_eq!(sandbox.registry.stuck(&KINDS), [], "it lives");
    holder.0.kill().expect("our child");
    wait_until("it is stuck", || !sandbox.registry.stuck(&KINDS).is_empty());
    let stuck = sandbox.registry.stuck(&KINDS).remove(0);
    assert_eq!(stuck.pid, holder.0.id());
    for what in ["the btrfs mount", "the loop device", "the FUSE mount"] {
        assert!(stuck.holds.iter().any(|held| held.starts_with(what)), "{stuck:?}");
    }
    let environment = sandbox.environment(2);
    let next =
        prepare_on(&file_system(FileSystem::Btrfs, &[], &[]), stack_for(FileSystem::Btrfs), &environment);
    match next {
        // Where this mkfs does not look at others.
        Ok(subject) => assert!(subject.teardown().is_empty()),
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("rotproof clean") && text.contains(&stuck.run), "{text}");
        }
    }
    drop(environment);
    let reports = sandbox.registry.clean(&KINDS, false).expect("cleaned");
    assert_eq!(report_of(&reports, holder.0.id()).outcome, Outcome::Cleaned, "{reports:#?}");
    holder.0.wait().expect("our child");
    assert_eq!(sandbox.registry.stuck(&KINDS), []);
    sandbox.registry.clean(&KINDS, false).expect("cleaned");
    sandbox.assert_nothing_left();
}

#[test]
fn a_run_killed_during_mkfs_leaves_no_process() {
    let sandbox = Sandbox::new();
    let mut holder = start(&sandbox, "ext4 mkfs");
    let mut mkfs = None;
    wait_until("mkfs is recorded", || {
        mkfs = recorded_process(sandbox.registry.folder());
        mkfs.is_some()
    });
    let mkfs = mkfs.expect("just found");
    assert!(Path::new(&format!("/proc/{mkfs}")).exists(), "mkfs waits for the stack");
    holder.0.kill().expect("our child");
    let reports = sandbox.registry.clean(&KINDS, false).expect("cleaned");
    assert_eq!(report_of(&reports, holder.0.id()).outcome, Outcome::Cleaned, "{reports:#?}");
    holder.0.wait().expect("our child");
    wait_until("mkfs is gone", || !Path::new(&format!("/proc/{mkfs}")).exists());
    sandbox.assert_nothing_left();
}

/// The process id in the last `process` entry of a record in `folder`.
fn recorded_process(folder: &Path) -> Option<u32> {
    let record = fs::read_dir(folder)
        .ok()?
        .filter_map(Result::ok)
        .find(|entry| entry.path().extension().is_some_and(|extension| extension == "jsonl"))?;
    let text = fs::read_to_string(record.path()).ok()?;
    let line: serde_json::Value = serde_json::from_str(text.lines().last()?).ok()?;
    line.pointer("/create/resource/process/pid")?.as_u64()?.try_into().ok()
}

#[test]
fn only_what_the_dead_run_created_is_removed() {
    let sandbox = Sandbox::new();
    let foreign_image = sandbox.path().join("foreign.img");
    File::create(&foreign_image).and_then(|file| file.set_len(1 << 20)).expect("a sparse image");
    let options = LoopOptions { direct_io: false, ..LoopOptions::default() };
    let foreign = LoopDevice::attach(&foreign_image, options).expect("attached");

    let living = sandbox.environment(2);
    let subject = prepare_on(&SubjectSpec::Device, Rigged::new(1 << 20), &living).expect("prepared");
    let Destination::BlockDevice(living_device) = subject.place() else {
        panic!("a device is a block device")
    };

    let mut holder = start(&sandbox, "ext4 idle");
    wait_until("the child is ready", || sandbox.path().join(READY).exists());
    let reports = sandbox.registry.clean(&KINDS, false).expect("looked");
    assert!(reports.iter().all(|report| report.outcome == Outcome::Living), "{reports:#?}");
    holder.0.kill().expect("our child");
    holder.0.wait().expect("our child");

    let before = leftovers(sandbox.registry.folder());
    let reports = sandbox.registry.clean(&KINDS, true).expect("looked");
    let report = report_of(&reports, holder.0.id());
    assert_eq!(report.outcome, Outcome::WouldClean);
    let found: Vec<_> = report.resources.iter().map(|resource| resource.what.as_str()).collect();
    let kinds =
        ["the ext4 mount", "the loop device", "the FUSE mount", "the folder", "the folder", "the folder"];
    assert_eq!(found.len(), kinds.len(), "{found:#?}");
    for (found, kind) in found.iter().zip(kinds) {
        assert!(found.starts_with(kind), "{found} is no {kind}");
    }
    assert_eq!(leftovers(sandbox.registry.folder()), before, "a dry run changes nothing");

    let reports = sandbox.registry.clean(&KINDS, false).expect("cleaned");
    let report = report_of(&reports, holder.0.id());
    assert_eq!(report.outcome, Outcome::Cleaned, "{report:#?}");
    assert_eq!(report.resources.len(), kinds.len(), "{report:#?}");
    let named = reports.iter().find(|report| report.pid == Some(std::process::id())).expect("the living run");
    assert_eq!(named.outcome, Outcome::Living);

    assert_eq!(find_by_backing_file(&foreign_image).len(), 1, "the loop device of somebody else");
    let mut sector = [0; 512];
    File::open(&living_device)
        .and_then(|device| device.read_exact_at(&mut sector, 0))
        .expect("the living run is unharmed");
    assert!(subject.teardown().is_empty());
    assert!(living.run.finish().is_empty());
    foreign.detach().expect("detached");
    sandbox.assert_nothing_left();
}

#[test]
fn a_mount_of_somebody_else_on_a_recorded_path_is_left_alone() {
    let sandbox = Sandbox::new();
    let mut holder = start(&sandbox, "ext4 idle");
    wait_until("the child is ready", || sandbox.path().join(READY).exists());
    holder.0.kill().expect("our child");
    holder.0.wait().expect("our child");
    let mountpoint = mounts_and_loops(sandbox.registry.folder())
        .iter()
        .find_map(|left| left.strip_prefix("mount ")?.strip_suffix(" (ext4)").map(str::to_owned))
        .expect("the ext4 mount is left");
    let on_top = |mount: bool| {
        let mut command = Command::new(if mount { "mount" } else { "umount" });
        if mount {
            command.args(["-t", "tmpfs", "foreign"]);
        }
        assert!(command.arg(&mountpoint).status().expect("a program of every machine").success());
    };
    on_top(true);
    let reports = sandbox.registry.clean(&KINDS, false).expect("cleaned");
    assert_eq!(reports[0].outcome, Outcome::Incomplete, "{reports:#?}");
    let left = mounts_and_loops(sandbox.registry.folder());
    on_top(false);
    assert!(left.iter().any(|left| left.ends_with("(tmpfs)")), "{left:#?}");
    let reports = sandbox.registry.clean(&KINDS, false).expect("cleaned");
    assert_eq!(reports[0].outcome, Outcome::Cleaned, "{reports:#?}");
    sandbox.assert_nothing_left();
}
