//! Every subject on this machine's kernel: made, used, remounted, taken down. These tests need root, FUSE and loop
//! devices, and the programs that make file systems; without them they fail.

mod sandbox;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rotproof_block::{Device, ErrorKind, Phase};
use rotproof_subject::{Attached, Destination, FileSystem, FileSystemSpec, Prepared, SubjectSpec};

use sandbox::{Behaviour, Rigged, Sandbox, file_system, prepare_on, stack_for};

fn folder(subject: &dyn Prepared) -> PathBuf {
    match subject.place() {
        Destination::Folder(path) => path,
        other => panic!("not a folder but {other:?}"),
    }
}

fn block_device(subject: &dyn Prepared) -> PathBuf {
    match subject.place() {
        Destination::BlockDevice(path) => path,
        other => panic!("not a block device but {other:?}"),
    }
}

/// Content that no other file has.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64 / 8).flat_map(|index| rotproof_block::hash::mix(seed, 1, index).to_le_bytes()).collect()
}

fn remounted(subject: &mut dyn Prepared) -> usize {
    let reported = subject.detach().expect("the machine can take it down");
    match subject.attach().expect("the machine can bring it up") {
        Attached::Up => reported.len(),
        Attached::Refused(error) => panic!("not mounted again: {error}"),
    }
}

fn teardown(subject: Box<dyn Prepared>) {
    let failures = subject.teardown();
    assert!(failures.is_empty(), "{failures:?}");
}

#[test]
fn raw_is_the_stack_itself() {
    let sandbox = Sandbox::new();
    let environment = sandbox.environment(1);
    let mut subject = prepare_on(&SubjectSpec::Raw, Rigged::new(1 << 20), &environment).expect("prepared");
    let Destination::Device(device) = subject.place() else { panic!("the stack itself is a device") };
    assert_eq!(device.info().size, 1 << 20);
    assert_eq!(remounted(&mut *subject), 0);
    teardown(subject);
    assert!(environment.run.finish().is_empty());
    sandbox.assert_nothing_left();
}

#[test]
fn a_device_gives_back_what_was_written_and_asks_the_stack_after_a_remount() {
    let sandbox = Sandbox::new();
    let environment = sandbox.environment(1);
    let stack = Rigged::new(16 << 20);
    let mut subject = prepare_on(&SubjectSpec::Device, stack.clone(), &environment).expect("prepared");
    environment.phase.store(Phase::Run as u8, Ordering::SeqCst);
    let data = content(1, 1 << 20);
    let device = File::options().write(true).open(block_device(&*subject)).expect("opened");
    // Through the page cache, and not synced: the remount must write it.
    device.write_all_at(&data, 4 << 20).expect("written");
    drop(device);
    assert_eq!(remounted(&mut *subject), 0);
    assert!(stack.writes(Phase::Run) > 0, "what the cache held was written in the load's phase");
    environment.phase.store(Phase::Check as u8, Ordering::SeqCst);
    let mut back = vec![0; data.len()];
    let device = File::open(block_device(&*subject)).expect("opened");
    device.read_exact_at(&mut back, 4 << 20).expect("read");
    drop(device);
    assert!(back == data);
    assert!(stack.reads(Phase::Check) > 0, "a cache answered");
    teardown(subject);
    assert!(environment.run.finish().is_empty());
    sandbox.assert_nothing_left();
}

/// Makes `kind`, writes, remounts, reads back, takes it down.
fn round(kind: FileSystem, seed: u64) {
    let sandbox = Sandbox::new();
    let environment = sandbox.environment(seed);
    let stack = stack_for(kind);
    let spec = file_system(kind, &[], &["noatime"]);
    let mut subject = prepare_on(&spec, stack.clone(), &environment).expect("prepared");
    let description = subject.describe();
    assert_eq!(description.name, kind.name());
    assert!(description.tool.is_some() && description.mkfs.is_some(), "{description:?}");
    assert!(description.mount_options_in_force.is_some_and(|options| options.contains("noatime")));

    environment.phase.store(Phase::Run as u8, Ordering::SeqCst);
    let data = content(seed, 4 << 20);
    // Not synced: the unmount must write it.
    fs::write(folder(&*subject).join("a"), &data).expect("written");
    let writes_before = stack.writes(Phase::Run);
    let setup_reads_before = stack.reads(Phase::Setup);
    assert_eq!(remounted(&mut *subject), 0);
    assert!(stack.writes(Phase::Run) > writes_before, "what the cache held was written in the load's phase");
    assert!(stack.reads(Phase::Setup) > setup_reads_before, "mounting is setup");
    assert_eq!(environment.phase.load(Ordering::SeqCst), Phase::Run as u8, "the phase is set back");

    environment.phase.store(Phase::Check as u8, Ordering::SeqCst);
    assert!(fs::read(folder(&*subject).join("a")).expect("readable") == data);
    assert!(stack.reads(Phase::Check) > 0, "a cache answered");
    teardown(subject);
    assert!(environment.run.finish().is_empty());
    sandbox.assert_nothing_left();
}

#[test]
fn ext4_gives_back_what_was_written_and_leaves_nothing() {
    round(FileSystem::Ext4, 11);
}

#[test]
fn xfs_gives_back_what_was_written_and_leaves_nothing() {
    round(FileSystem::Xfs, 12);
}

#[test]
fn btrfs_gives_back_what_was_written_and_leaves_nothing() {
    round(FileSystem::Btrfs, 13);
}

#[test]
fn two_runs_of_one_seed_live_side_by_side() {
    let sandbox = Sandbox::new();
    let spec = file_system(FileSystem::Xfs, &[], &[]);
    let environments = [sandbox.environment(31), sandbox.environment(31)];
    let subjects: Vec<_> = environments
        .iter()
        .map(|environment| prepare_on(&spec, stack_for(FileSystem::Xfs), environment).expect("prepared"))
        .collect();
    assert_eq!(subjects[0].describe().mkfs, subjects[1].describe().mkfs, "the same identifier");
    assert_ne!(folder(&*subjects[0]), folder(&*subjects[1]));
    subjects.into_iter().for_each(teardown);
    for environment in environments {
        assert!(environment.run.finish().is_empty());
    }
    sandbox.assert_nothing_left();
}

#[test]
fn a_failing_mkfs_is_quoted_and_cleaned_up() {
    for kind in FileSystem::ALL {
        let sandbox = Sandbox::new();
        let environment = sandbox.environment(41);
        let spec = file_system(kind, &["--no-such-option"], &[]);
        let error = prepare_on(&spec, stack_for(kind), &environment).err().expect("mkfs refuses the option");
        assert_eq!(error.kind(), ErrorKind::Missing);
        let text = error.to_string();
        assert!(text.contains(&format!("mkfs.{kind}")) && text.contains("option"), "{text}");
        assert!(environment.run.finish().is_empty());
        sandbox.assert_nothing_left();
    }
}

#[test]
fn a_wrong_mount_option_is_named_and_cleaned_up() {
    for kind in FileSystem::ALL {
        let sandbox = Sandbox::new();
        let environment = sandbox.environment(51);
        let spec = file_system(kind, &[], &["no_such_option"]);
        let text = prepare_on(&spec, stack_for(kind), &environment).err().expect("refused").to_string();
        assert!(text.contains("no_such_option"), "{text}");
        assert!(environment.run.finish().is_empty());
        sandbox.assert_nothing_left();
    }
}

#[test]
fn a_stack_that_is_too_small_is_refused_before_anything_is_created() {
    let sandbox = Sandbox::new();
    let environment = sandbox.environment(61);
    let error = prepare_on(&file_system(FileSystem::Xfs, &[], &[]), Rigged::new(64 << 20), &environment)
        .err()
        .expect("XFS needs more");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("300MiB"), "{error}");
    assert!(environment.run.finish().is_empty());
    sandbox.assert_nothing_left();
}

#[test]
fn a_panic_leaves_nothing() {
    let sandbox = Sandbox::new();
    let environment = sandbox.environment(71);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let kind = FileSystem::Ext4;
        let subject =
            prepare_on(&file_system(kind, &[], &[]), stack_for(kind), &environment).expect("prepared");
        fs::write(folder(&*subject).join("a"), content(1, 1 << 20)).expect("written");
        panic!("in the middle of a load");
    }));
    assert!(panicked.is_err());
    let failures = environment.run.finish();
    assert!(failures.is_empty(), "{failures:?}");
    sandbox.assert_nothing_left();
}

#[test]
fn a_file_system_that_gave_up_is_remounted_and_its_error_reported() {
    for kind in FileSystem::ALL {
        let sandbox = Sandbox::new();
        let environment = sandbox.environment(81);
        let stack = stack_for(kind);
        let mut subject =
            prepare_on(&file_system(kind, &[], &[]), stack.clone(), &environment).expect("prepared");
        let before = content(2, 1 << 20);
        fs::write(folder(&*subject).join("before"), &before).expect("written");
        File::open(folder(&*subject).join("before")).and_then(|file| file.sync_all()).expect("durable");
        stack.behave(Behaviour::FailsToWrite);
        let mut file = File::create(folder(&*subject).join("after")).expect("created in memory");
        file.write_all(&content(3, 1 << 20)).expect("written to memory");
        assert!(file.sync_all().is_err(), "{kind} did not notice that nothing can be written");
        drop(file);
        stack.behave(Behaviour::Good);
        remounted(&mut *subject);
        assert!(fs::read(folder(&*subject).join("before")).expect("readable") == before, "{kind}");
        assert!(!subject.kernel_messages().is_empty(), "the kernel has said something about {kind}");
        teardown(subject);
        assert!(environment.run.finish().is_empty());
        sandbox.assert_nothing_left();
    }
}

#[test]
fn a_kill_takes_what_was_not_flushed_and_nothing_else() {
    for kind in FileSystem::ALL {
        let sandbox = Sandbox::new();
        let environment = sandbox.environment(83);
        let mut subject =
            prepare_on(&file_system(kind, &[], &[]), stack_for(kind), &environment).expect("prepared");
        let (durable, volatile) = (content(4, 1 << 20), content(5, 1 << 20));
        let path = |subject: &dyn Prepared, name: &str| folder(subject).join(name);
        fs::write(path(&*subject, "durable"), &durable).expect("written");
        File::open(path(&*subject, "durable")).and_then(|file| file.sync_all()).expect("durable");
        fs::write(path(&*subject, "volatile"), &volatile).expect("written to memory");
        subject.kill().expect("the machine can drop it");
        assert!(subject.disks().is_empty(), "{kind} still lies on a device");
        match subject.attach().expect("the machine can bring it up") {
            Attached::Up => {}
            Attached::Refused(error) => panic!("{kind} does not come back: {error}"),
        }
        assert!(fs::read(path(&*subject, "durable")).expect("readable") == durable, "{kind}");
        let left = fs::read(path(&*subject, "volatile")).unwrap_or_default();
        assert!(left != volatile, "{kind} has written what nobody had flushed: it was not killed");
        teardown(subject);
        assert!(environment.run.finish().is_empty());
        sandbox.assert_nothing_left();
    }
}

#[test]
fn what_exists_is_mounted_as_it_is() {
    for kind in FileSystem::ALL {
        let sandbox = Sandbox::new();
        let stack = stack_for(kind);
        let existing =
            SubjectSpec::FileSystem(FileSystemSpec { existing: true, ..FileSystemSpec::new(kind) });
        let nothing = sandbox.environment(85);
        let refused = prepare_on(&existing, stack.clone(), &nothing).map(drop).expect_err("nothing is there");
        assert!(refused.to_string().contains(kind.name()), "{refused}");
        assert!(nothing.run.finish().is_empty());
        let making = sandbox.environment(86);
        let subject = prepare_on(&file_system(kind, &[], &[]), stack.clone(), &making).expect("prepared");
        fs::write(folder(&*subject).join("kept"), "since before").expect("written");
        teardown(subject);
        assert!(making.run.finish().is_empty());
        let later = sandbox.environment(87);
        let subject = prepare_on(&existing, stack, &later).expect("it exists");
        assert_eq!(fs::read(folder(&*subject).join("kept")).expect("there"), b"since before");
        assert_eq!(subject.describe().mkfs, None, "nothing was made");
        teardown(subject);
        assert!(later.run.finish().is_empty());
        sandbox.assert_nothing_left();
    }
}

#[test]
fn a_file_system_that_cannot_be_mounted_again_is_a_finding() {
    for kind in FileSystem::ALL {
        let sandbox = Sandbox::new();
        let environment = sandbox.environment(91);
        let stack = stack_for(kind);
        let mut subject =
            prepare_on(&file_system(kind, &[], &[]), stack.clone(), &environment).expect("prepared");
        fs::write(folder(&*subject).join("a"), "data").expect("written");
        stack.behave(Behaviour::Blank);
        subject.detach().expect("the machine can take it down");
        match subject.attach().expect("the machine can bring it up") {
            Attached::Refused(error) => assert!(error.to_string().contains(kind.name()), "{error}"),
            Attached::Up => panic!("{kind} was mounted from zeros"),
        }
        assert!(!folder(&*subject).join("a").exists(), "its data is out of reach");
        teardown(subject);
        assert!(environment.run.finish().is_empty());
        sandbox.assert_nothing_left();
    }
}

#[test]
fn a_cancelled_run_ends_soon_though_the_stack_never_answers() {
    let sandbox = Sandbox::new();
    let environment = sandbox.environment(101);
    let stack = stack_for(FileSystem::Ext4);
    let spec = file_system(FileSystem::Ext4, &[], &[]);
    let subject = prepare_on(&spec, stack.clone(), &environment).expect("prepared");
    let mut file = File::create(folder(&*subject).join("a")).expect("created");
    stack.behave(Behaviour::Silent);
    let writer = std::thread::spawn(move || {
        file.write_all(&content(4, 1 << 20)).expect("written to memory");
        file.sync_all()
    });
    let began = Instant::now();
    while stack.unanswered() == 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "nothing arrives");
        std::thread::sleep(Duration::from_millis(5));
    }
    environment.cancel.cancel(libc::SIGINT);
    let began = Instant::now();
    subject.abort();
    assert!(writer.join().expect("no panic").is_err(), "the data was never stored");
    let failures = subject.teardown();
    assert!(failures.is_empty(), "{failures:?}");
    assert!(began.elapsed() < Duration::from_secs(30), "took {:?}", began.elapsed());
    assert!(environment.run.finish().is_empty());
    sandbox.assert_nothing_left();
}

#[test]
fn a_size_is_passed_through_to_the_loop_device() {
    let sandbox = Sandbox::new();
    let environment = sandbox.environment(111);
    let stack = Rigged::new(10 << 20);
    let size = stack.info().size;
    let subject = prepare_on(&SubjectSpec::Device, stack, &environment).expect("prepared");
    let name = block_device(&*subject);
    let name = name.file_name().and_then(|name| name.to_str()).expect("a name");
    let sectors = fs::read_to_string(format!("/sys/block/{name}/size")).expect("in sysfs");
    assert_eq!(sectors.trim().parse::<u64>().expect("a number") * 512, size);
    teardown(subject);
    assert!(environment.run.finish().is_empty());
    sandbox.assert_nothing_left();
}
