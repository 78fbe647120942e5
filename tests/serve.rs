//! `rotproof serve` and `rotproof ctl` as scripts use them: a program writes through a served stack while its faults
//! come and go. They need root.

mod stage;

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use stage::{PATIENCE, Stage, address};

const BLOCK: usize = 4096;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("it opens")
}

fn block(file: &File, index: u64) -> std::io::Result<Vec<u8>> {
    let mut data = vec![0; BLOCK];
    file.read_exact_at(&mut data, index * BLOCK as u64).map(|()| data)
}

/// Waits until so many requests hang.
fn wait_for_hanging(stage: &Stage, count: u64) {
    let began = Instant::now();
    while stage.ctl_json(&["status"])["hanging"] != count {
        assert!(began.elapsed() < PATIENCE, "nothing hangs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_program_meets_the_faults_that_are_there_while_it_works() {
    let mut stage = Stage::new();
    let (index, ready) = stage.serve(&["--ledger", "ledger.jsonl", "--name", "first"]);
    assert_eq!(
        (&ready["ready"], &ready["name"], &ready["size_bytes"]),
        (&true.into(), &"first".into(), &(1 << 20).into())
    );
    let control = PathBuf::from(ready["control"].as_str().expect("a path"));
    assert_eq!(std::fs::metadata(&control).expect("is there").permissions().mode() & 0o777, 0o600);
    let file = open(&address(&ready, "file"));
    file.write_all_at(&[7; BLOCK], 0).expect("written");
    assert_eq!(block(&file, 0).expect("read"), [7; BLOCK]);
    assert_eq!(stage.ctl(&["list"]), "No rules: the stack does nothing wrong.\n");

    assert_eq!(stage.ctl(&["add", "name=rot, read, offset=0: bit_flip"]), "added rot\n");
    assert_eq!(
        stage.ctl(&["add", "{ match: { operation: write, offset: 4KiB }, effect: lost_write }"]),
        "added fault-2\n"
    );
    assert_eq!(block(&file, 0).expect("read")[0], 6, "the lie");
    file.write_all_at(&[9; BLOCK], BLOCK as u64).expect("acknowledged");
    assert_eq!(block(&file, 1).expect("read"), [0; BLOCK], "and lost");
    assert_eq!(
        stage.ctl(&["list"]),
        "  name     state   matches  hits  rule\n  \
         rot      active        1     1  read, offset=0: bit_flip(byte=0, bit=0)\n  \
         fault-2  active        1     1  write, offset=4KiB: lost_write\n"
    );

    assert_eq!(stage.ctl(&["pause", "rot"]), "paused rot\n");
    assert_eq!(block(&file, 0).expect("read")[0], 7, "the truth");
    assert_eq!(stage.ctl(&["resume", "rot"]), "resumed rot\n");
    assert_eq!(block(&file, 0).expect("read")[0], 6);
    assert_eq!(stage.ctl(&["remove", "rot", "fault-2"]), "removed rot, fault-2\n");
    assert_eq!(block(&file, 0).expect("read")[0], 7);
    let injections = stage.ctl_json(&["injections", "rot", "--last", "1"]);
    assert_eq!(
        (&injections["total"], injections["injections"].as_array().map(Vec::len)),
        (&3.into(), Some(1))
    );
    let table = stage.ctl(&["injections"]);
    assert!(table.ends_with("\n\n3 of 3.\n") && table.contains("bit_flip(byte=0, bit=0)"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");

    drop(file);
    assert_eq!(stage.end(index, libc::SIGINT), Some(130), "{}", stage.stderr());
    let ledger = File::open(stage.path("ledger.jsonl")).expect("it was written");
    let records = rotproof_fault::read_ledger(BufReader::new(ledger)).expect("it is a ledger");
    let names: Vec<&str> = records.iter().map(|record| &*record.name).collect();
    assert_eq!(names, ["rot", "fault-2", "rot"]);
    stage.assert_nothing_left();
}

#[test]
fn the_ledger_file_has_every_hit_though_the_server_keeps_only_the_last() {
    let mut stage = Stage::new();
    let rules = [
        "--fault",
        "name=rot, write, offset=0, once: bit_flip",
        "--fault",
        "name=many, read, offset=8KiB: zeros",
    ];
    let (index, ready) = stage.serve(&[&["--ledger", "ledger.jsonl"], &rules[..]].concat());
    let file = open(&address(&ready, "file"));
    file.write_all_at(&[7; BLOCK], 0).expect("written");
    let reads = 20_000;
    for _ in 0..reads {
        block(&file, 2).expect("read");
    }
    let injections = stage.ctl_json(&["injections", "--last", "20"]);
    assert_eq!(
        (&injections["total"], injections["injections"].as_array().map(Vec::len)),
        (&(reads + 1).into(), Some(20))
    );
    let control = UnixStream::connect(ready["control"].as_str().expect("a path")).expect("it listens");
    control.set_read_timeout(Some(PATIENCE)).expect("set");
    let (mut requests, mut answers) = (&control, BufReader::new(&control));
    answers.read_line(&mut String::new()).expect("it begins");
    let began = Instant::now();
    loop {
        requests.write_all(b"{\"id\":1,\"do\":\"hits\",\"from\":0,\"count\":1}\n").expect("asked");
        let mut line = String::new();
        answers.read_line(&mut line).expect("answered");
        let answer: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        if answer["ok"]["from"].as_u64().expect("a number") > 0 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the first are kept for ever");
        std::thread::sleep(Duration::from_millis(5));
    }
    file.write_all_at(&[7; BLOCK], 0).expect("put right");
    drop(file);
    assert_eq!(stage.end(index, libc::SIGINT), Some(130), "{}", stage.stderr());
    let ledger = File::open(stage.path("ledger.jsonl")).expect("it was written");
    let records = rotproof_fault::read_ledger(BufReader::new(ledger)).expect("it is a ledger");
    assert!(records.iter().map(|record| record.sequence).eq(0..=reads), "all of them, in their order");
    assert_eq!(records[0].name.as_ref(), "rot");
    assert!(records[0].repaired_at_ns.is_some(), "repaired after it was dropped");
    assert!(!stage.path("ledger.rewriting").exists());
    stage.assert_nothing_left();
}

#[test]
fn one_stack_is_a_file_and_a_device_at_once() {
    let mut stage = Stage::new();
    let (index, ready) =
        stage.serve(&["--as", "device", "--as", "file", "--fault", "name=bad, read, offset=8KiB: error"]);
    let file = open(&address(&ready, "file"));
    let device = address(&ready, "device");
    assert!(device.starts_with("/dev/"), "{ready}");
    let direct =
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&device).expect("the device opens");
    file.write_all_at(&[5; BLOCK], 4096).expect("written");
    let mut buffer = vec![0u8; 2 * BLOCK];
    let start = buffer.as_ptr().align_offset(BLOCK);
    let place = &mut buffer[start..start + BLOCK];
    direct.read_exact_at(place, 4096).expect("read");
    assert_eq!(place, [5; BLOCK], "what was written to the one is read from the other");
    let error = direct.read_exact_at(place, 8192).expect_err("the rule acts on both");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    assert!(block(&file, 2).is_err());
    drop((file, direct));
    assert_eq!(stage.end(index, libc::SIGTERM), Some(143), "{}", stage.stderr());
    stage.assert_nothing_left();
}

#[test]
fn a_stack_is_served_over_nbd_beside_a_file() {
    let mut stage = Stage::new();
    let (index, ready) =
        stage.serve(&["--as", "nbd", "--as", "file", "--fault", "name=bad, read, offset=8KiB: error"]);
    let exports = ready["exports"].as_array().expect("a list");
    let uri = exports[0]["address"].as_str().expect("a text");
    assert!(uri.starts_with("nbd+unix:"), "{uri}");
    open(&address(&ready, "file")).write_all_at(&[5; BLOCK], 0).expect("written");
    // Our own client: a stack that stands on that server.
    let far = format!("stack: [nbd: {{ uri: '{uri}' }}]\n");
    std::fs::write(stage.path("far.yaml"), far).expect("written");
    let mut far = Stage { folder: tempfile::tempdir().expect("a folder"), served: Vec::new() };
    std::fs::copy(stage.path("far.yaml"), far.path("disk.yaml")).expect("copied");
    let (far_index, far_ready) = far.serve(&["--overwrite"]);
    let file = open(&address(&far_ready, "file"));
    assert_eq!(block(&file, 0).expect("read"), [5; BLOCK]);
    assert!(block(&file, 2).is_err(), "the rule acts on what comes over NBD");
    drop(file);
    assert_eq!(far.end(far_index, libc::SIGTERM), Some(143), "{}", far.stderr());
    far.assert_nothing_left();
    assert_eq!(stage.end(index, libc::SIGTERM), Some(143), "{}", stage.stderr());
    stage.assert_nothing_left();
}

#[test]
fn a_stack_is_served_as_the_disk_of_a_virtual_machine() {
    let mut stage = Stage::new();
    let (index, ready) = stage.serve(&["--as", "vhost"]);
    let socket = address(&ready, "vhost");
    let mut client = UnixStream::connect(&socket).expect("it listens");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    // "Which features are there?", version 1, no body.
    client.write_all([1u32, 1, 0].map(u32::to_ne_bytes).as_flattened()).expect("sent");
    let mut reply = [0; 20];
    Read::read_exact(&mut client, &mut reply).expect("it answers");
    let features = u64::from_ne_bytes(reply[12..].try_into().expect("eight bytes"));
    assert_ne!(features & 1 << 32, 0, "a device of virtio 1");
    drop(client);
    assert_eq!(stage.end(index, libc::SIGTERM), Some(143), "{}", stage.stderr());
    stage.assert_nothing_left();
}

#[test]
fn what_hangs_comes_back_when_it_is_released_and_when_serving_ends() {
    let mut stage = Stage::new();
    let (index, ready) = stage.serve(&["--fault", "name=stuck, read, offset=0: hang"]);
    let path = address(&ready, "file");
    let read_in_background = || {
        let path = path.clone();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(block(&open(&path), 0).map(drop).is_ok()));
        receiver
    };
    let first = read_in_background();
    wait_for_hanging(&stage, 1);
    assert!(stage.ctl(&["list"]).contains("hanging"));
    assert_eq!(block(&open(&path), 1).expect("others are served"), [0; BLOCK]);
    assert_eq!(stage.ctl(&["release"]), "released 1 request\n");
    assert!(first.recv_timeout(PATIENCE).expect("it comes back"));
    let second = read_in_background();
    wait_for_hanging(&stage, 1);
    assert_eq!(stage.ctl(&["release", "stuck"]), "released 1 request\n");
    assert!(second.recv_timeout(PATIENCE).expect("it comes back"));
    let third = read_in_background();
    wait_for_hanging(&stage, 1);
    assert_eq!(stage.end(index, libc::SIGTERM), Some(143), "{}", stage.stderr());
    third.recv_timeout(PATIENCE).expect("it comes back, with data or an error");
    stage.assert_nothing_left();
}

#[test]
fn what_a_killed_one_left_is_cleaned_and_its_name_is_free_again() {
    let mut stage = Stage::new();
    let (index, _) = stage.serve(&[
        "--as",
        "file",
        "--as",
        "device",
        "--ledger",
        "ledger.jsonl",
        "--fault",
        "read: error",
    ]);
    // Until the ledger file has what the kernel's look for partitions, or ours, has met.
    let began = Instant::now();
    let status = || stage.ctl_json(&["status"]);
    let path = PathBuf::from(status()["exports"][0]["address"].as_str().expect("a path"));
    assert!(block(&open(&path), 3).is_err());
    while std::fs::metadata(stage.path("ledger.jsonl")).expect("is there").len() == 0 {
        assert!(began.elapsed() < PATIENCE, "the ledger is not written while it is served");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(stage.end(index, libc::SIGKILL), None);
    let orphan = stage.run(&["ctl", "--name", "disk", "list"]);
    assert_eq!(orphan.code, 3, "{}", orphan.stderr);
    assert!(orphan.stderr.contains("rotproof clean"), "{}", orphan.stderr);
    let again = stage.run(&["serve", "disk.yaml"]);
    assert_eq!(again.code, 2, "{}", again.stderr);
    assert!(again.stderr.contains("rotproof clean"), "{}", again.stderr);
    let cleaned = stage.run(&["clean"]);
    assert_eq!(cleaned.code, 0, "{}{}", cleaned.stdout, cleaned.stderr);
    assert!(cleaned.stdout.contains("the socket "), "{}", cleaned.stdout);
    stage.assert_nothing_left();
    let (index, _) = stage.serve(&[]);
    assert_eq!(stage.end(index, libc::SIGTERM), Some(143));
    stage.assert_nothing_left();
}

#[test]
fn several_are_told_apart_by_their_names_and_sockets() {
    let mut stage = Stage::new();
    let (one, _) = stage.serve(&["--name", "one"]);
    let (two, _) = stage.serve(&["--name", "two"]);
    let taken = stage.run(&["serve", "disk.yaml", "--name", "one"]);
    assert_eq!((taken.code, taken.stderr.contains("--name")), (2, true), "{}", taken.stderr);
    let ambiguous = stage.run(&["ctl", "list"]);
    assert_eq!((ambiguous.code, ambiguous.stderr.contains("one, two")), (2, true), "{}", ambiguous.stderr);
    assert_eq!(stage.ctl(&["--name", "two", "add", "name=x, read: error"]), "added x\n");
    assert!(stage.ctl(&["list", "--name", "one"]).starts_with("No rules"));
    assert_eq!(stage.end(two, libc::SIGTERM), Some(143));
    assert!(stage.ctl(&["list"]).starts_with("No rules"), "the only one needs no name");
    let (far, ready) = stage.serve(&["--socket", "here.sock", "--name", "far"]);
    assert!(ready["control"].as_str().is_some_and(|path| path.starts_with('/')), "{ready}");
    assert_eq!(stage.ctl_json(&["status", "--socket", "here.sock"])["name"], "far");
    assert!(stage.ctl(&["status"]).starts_with("one  1MiB, blocks of 4KiB, process "));
    for index in [one, far] {
        assert_eq!(stage.end(index, libc::SIGTERM), Some(143));
    }
    assert!(!stage.path("here.sock").exists());
    stage.assert_nothing_left();
}

#[test]
fn what_cannot_be_served_leaves_nothing_behind() {
    let stage = Stage::new();
    // The mark of Reiser4 where it stands.
    let mut dear = vec![0u8; 128 << 10];
    dear[65536..65543].copy_from_slice(b"ReIsEr4");
    std::fs::write(stage.path("dear.img"), dear).expect("written");
    std::fs::write(stage.path("dear.yaml"), "stack: [file: { path: dear.img }]\n").expect("written");
    std::fs::write(stage.path("there.jsonl"), "").expect("written");
    for (arguments, code, part) in [
        (&["serve", "disk.yaml", "--ledger", "there.jsonl"][..], 2, "never overwritten"),
        (&["serve", "disk.yaml", "--socket", "no/such/folder.sock"], 3, "no such"),
        (&["serve", "disk.yaml", "--name", "a/b"], 2, "a name has"),
        (&["serve", "dear.yaml"], 2, "--overwrite"),
        (&["serve", "disk.yaml", "--recover", "/dev/ublkb0"], 2, "add `--as ublk`"),
        (&["serve", "disk.yaml", "--recover", "/dev/loop0"], 2, "/dev/ublkb0 or so"),
        (&["serve", "disk.yaml", "--fault", "read: erorr"], 2, "did you mean"),
    ] {
        let ended = stage.run(arguments);
        assert!(ended.stderr.to_lowercase().contains(part), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.stderr);
    }
    assert!(stage.run(&["clean"]).stdout.starts_with("Nothing to clean"));
}
