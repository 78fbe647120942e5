//! One load from several machines, which here are processes of this one.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rotproof_record::RunFolder;
use serde_json::Value;

const ROTPROOF: &str = env!("CARGO_BIN_EXE_rotproof");

struct Ended {
    code: i32,
    json: Value,
    stdout: String,
    stderr: String,
}

fn load(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(ROTPROOF);
    command.arg("load").args(arguments).current_dir(folder).stdin(Stdio::null());
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Ended {
    let output = load(folder, arguments).output().expect("the command starts");
    let stdout = String::from_utf8(output.stdout).expect("UTF-8");
    Ended {
        code: output.status.code().expect("an exit code"),
        json: serde_json::from_str(&stdout).unwrap_or_default(),
        stdout,
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// A client with a name of its own.
fn client(folder: &Path, name: &str) -> String {
    let path = folder.join(name);
    std::os::unix::fs::symlink(ROTPROOF, &path).expect("a link");
    path.display().to_string()
}

fn requests(figures: &Value, operation: &str) -> u64 {
    let lines = figures["performance"].as_array().expect("figures");
    let run = lines.iter().filter(|line| line["phase"] == "run" && line["operation"] == operation);
    run.map(|line| line["requests"].as_u64().expect("a number")).sum()
}

#[test]
fn what_clients_do_is_what_one_machine_does_and_the_totals_are_their_sums() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let (a, b) = (client(at, "a"), client(at, "b"));
    let common = [
        "--rw",
        "randrw",
        "--bs",
        "8k",
        "--iodepth",
        "4",
        "--number-ios",
        "3000",
        "--buffered",
        "--size",
        "16m",
        "--json",
        "-q",
    ];
    let one = run(at, &[&["one.img", "--numjobs", "4"][..], &common].concat());
    let many = run(
        at,
        &[
            &[
                "many.img",
                "--numjobs",
                "2",
                "--client",
                &a,
                "--client",
                &b,
                "--results",
                "results",
                "--interval",
                "50ms",
            ][..],
            &common,
        ]
        .concat(),
    );
    assert_eq!((one.code, many.code), (0, 0), "{}{}", one.stderr, many.stderr);
    assert!(
        fs::read(at.join("one.img")).expect("written") == fs::read(at.join("many.img")).expect("written")
    );
    let clients = many.json["clients"].as_array().expect("two of them");
    for operation in ["read", "write"] {
        let each: Vec<u64> = clients.iter().map(|client| requests(client, operation)).collect();
        assert!(each.iter().all(|count| *count > 100), "{each:?}");
        assert_eq!(each.iter().sum::<u64>(), requests(&many.json, operation));
        assert_eq!(requests(&one.json, operation), requests(&many.json, operation));
    }
    assert_eq!(one.json["verified_blocks"], many.json["verified_blocks"]);
    assert_eq!(clients[1]["workers"], serde_json::json!([2, 4]));
    assert!(one.json["clients"].is_null());

    let results =
        fs::read_dir(at.join("results")).expect("results").next().expect("a folder").expect("an entry");
    let kept = RunFolder::open(&results.path()).expect("tables");
    let rows = kept.intervals().expect("intervals");
    let of = |worker: Option<u16>| -> u64 {
        let rows = rows
            .iter()
            .filter(|row| row.worker == worker && &*row.phase == "run" && &*row.operation != "flush");
        rows.map(|row| row.requests).sum()
    };
    assert_eq!(of(None), 3000);
    let each: Vec<u64> = (0..4).map(|worker| of(Some(worker))).collect();
    assert_eq!(each, [750; 4]);
    let names: Vec<String> = kept.marks().expect("marks").iter().map(|mark| mark.name.to_string()).collect();
    assert_eq!(names, ["run", "check"]);
}

#[test]
fn a_table_says_which_client_did_what_and_whose_a_wrong_block_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let socket = at.join("nbd");
    fs::write(
        at.join("stack.yaml"),
        "stack: [memory: { size: 8MiB }, faults]\nfaults: ['write, offset=6MiB, once, sticky: zeros']\n",
    )
    .expect("written");
    let serve = Command::new(ROTPROOF)
        .args(["serve", "stack.yaml", "--as", "nbd", "--listen"])
        .arg(format!("unix:{}", socket.display()))
        .arg("--socket")
        .arg(at.join("control"))
        .current_dir(at)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let _serve = Killed(serve);
    wait_for(|| socket.exists());
    let (a, b) = (client(at, "a"), client(at, "b"));
    let target = format!("nbd+unix:///?socket={}", socket.display());
    // A link in the folder of the test has a long name; one without a place is a host.
    let (a, b) = (a.replace(&at.display().to_string(), "."), b.replace(&at.display().to_string(), "."));
    let ended = run(at, &[&target, "--rw", "write", "--client", &a, "--client", &b, "-q"]);
    assert_eq!(ended.code, 1, "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("zeros (./b)"), "{}", ended.stdout);
    assert!(ended.stdout.contains("1 block wrong"), "{}", ended.stdout);
    for line in ended.stdout.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for name in ["./a", "./b"] {
        assert!(ended.stdout.lines().any(|line| line.trim().starts_with(name)), "{}", ended.stdout);
    }
}

#[test]
fn a_client_that_fails_is_named_and_the_others_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let a = client(at, "a");
    for (other, code, why) in [
        ("./nowhere", 3, "./nowhere: "),
        ("echo hello", 3, "echo hello: this is no message of rotproof"),
        ("sh -c 'echo overslept >&2; exit 1'", 3, "it said: overslept"),
        ("printf '{\"hello\":{\"rotproof\":\"0.0.0\",\"host\":\"x\"}}\\n%.0s'", 3, "both must be the same"),
        ("sh -c 'echo {\\\"end\\\":7}'", 3, "this is no message"),
    ] {
        let ended = run(
            at,
            &["f", "--rw", "write", "--size", "1m", "--buffered", "--client", &a, "--client", other, "-q"],
        );
        assert_eq!(ended.code, code, "{other}: {}", ended.stderr);
        assert!(ended.stderr.contains(why), "{other}: {}", ended.stderr);
    }
    // What a client refuses, the load does.
    fs::write(at.join("precious"), [1; 1 << 20]).expect("written");
    let ended = run(at, &["precious", "--rw", "write", "--buffered", "--client", &a, "-q"]);
    assert!(ended.code != 0 && ended.stderr.contains("holds data"), "{}", ended.stderr);
    for (arguments, why) in [
        (&["disk:ssd:1MiB"][..], "simulated"),
        (&["f", "--rw", "write", "--results", "r", "--samples"], "--samples"),
        (&["f", "--steadystate=iops:5%", "--runtime=1h"], "--steadystate"),
        (&["f", "--client", ""], "a host belongs here"),
    ] {
        let ended = run(at, &[arguments, &["--client", &a]].concat());
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
}

#[test]
fn an_interrupted_load_keeps_what_its_clients_did_and_a_killed_client_ends_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let (a, b) = (client(at, "a"), client(at, "b"));
    let arguments = [
        "f",
        "--rw",
        "randwrite",
        "--size",
        "4m",
        "--buffered",
        "--runtime",
        "1h",
        "--client",
        &a,
        "--client",
        &b,
        "--json",
        "-q",
        "--overwrite",
    ];
    let start = || {
        let mut child =
            load(at, &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        wait_for(|| {
            assert!(matches!(child.try_wait(), Ok(None)), "it runs");
            children(child.id()).len() == 2 && fs::metadata(at.join("f")).is_ok()
        });
        std::thread::sleep(Duration::from_millis(300));
        child
    };
    let child = start();
    let clients = children(child.id());
    // SAFETY: a child of this test that has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(json["interrupted"] == true && requests(&json, "write") > 0, "{json}");
    wait_for(|| clients.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));

    let child = start();
    let clients = children(child.id());
    // SAFETY: the group of a process that the child of this test has started and not waited for: a shell, and a client.
    unsafe { libc::kill(-(clients[1] as i32), libc::SIGKILL) };
    let output = child.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("it ended before the load did"), "{said}");
    wait_for(|| clients.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
}

/// Killed when the test is over, however it ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "it never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}
