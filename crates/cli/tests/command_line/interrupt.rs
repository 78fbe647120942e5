//! What a load or a run leaves that ends before its end: by Ctrl-C, or because its requests do not come back.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Nothing here takes longer, on the slowest machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// The command at work in a folder of its own, with `--json`.
struct Running {
    child: Child,
    /// Lines of standard error as they come.
    notes: Receiver<String>,
    stdout: Receiver<String>,
    folder: TempDir,
}

impl Running {
    fn start(arguments: &[&str], files: &[(&str, &str)]) -> Self {
        let arguments = [arguments, &["--json"]].concat();
        Self::start_program(env!("CARGO_BIN_EXE_rotproof"), &arguments, files)
    }

    fn start_program(program: &str, arguments: &[&str], files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("a file is written");
        }
        std::fs::create_dir(folder.path().join("there")).expect("a folder is made");
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(folder.path())
            .env("ROTPROOF_STATE_DIR", folder.path().join("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let (stderr, mut out) = (child.stderr.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (send, notes) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let (send, stdout) = channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = out.read_to_string(&mut text);
            let _ = send.send(text);
        });
        Self { child, notes, stdout, folder }
    }

    /// Waits for a line of standard error.
    fn wait_for(&self, what: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        let mut seen = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.notes.recv_timeout(left) {
                Ok(line) if line.contains(what) => return line,
                Ok(line) => seen.push(line),
                Err(_) => panic!("`{what}` was never told, but {seen:#?}"),
            }
        }
    }

    /// Waits until it has a thread whose name begins so, and lets that work a little.
    fn wait_for_thread(&self, name: &str) {
        let deadline = Instant::now() + DEADLINE;
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_there = || {
            let tasks = std::fs::read_dir(&tasks).expect("it runs").map_while(Result::ok);
            tasks
                .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
                .any(|comm| comm.starts_with(name))
        };
        while !is_there() {
            assert!(Instant::now() < deadline, "it never had a thread `{name}`");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(300));
    }

    /// Interrupts it at work.
    fn interrupt(&self, thread: &str) {
        self.wait_for_thread(thread);
        let process = libc::pid_t::try_from(self.child.id()).expect("a process");
        // SAFETY: sends a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(process, libc::SIGINT) }, 0);
    }

    /// Waits for the end: the exit code, and what it printed as JSON.
    fn end(&mut self) -> (Option<i32>, Value) {
        let text = self.stdout.recv_timeout(DEADLINE).expect("it ends");
        let status = self.child.wait().expect("it has ended");
        (status.code(), serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn requests(lines: &Value) -> u64 {
    lines.as_array().expect("a list").iter().filter_map(|line| line["requests"].as_u64()).sum()
}

#[test]
fn a_load_that_is_interrupted_keeps_its_figures_and_its_results() {
    let mut load = Running::start(
        &["load", "memory:16MiB", "--rw", "randrw", "--runtime", "1h", "--iodepth", "4", "--results", "kept"],
        &[],
    );
    load.interrupt("load-");
    let (code, json) = load.end();
    assert_eq!((code, &json["interrupted"]), (Some(130), &Value::Bool(true)), "{json:#}");
    assert!(requests(&json["performance"]) > 0, "{json:#}");
    assert_eq!((json["verified_blocks"].as_u64(), json["errors"].as_u64()), (Some(0), Some(0)), "{json:#}");
    load.wait_for("memory:16MiB: interrupted");
    let results = load.folder().join(json["results"].as_str().expect("a folder"));
    let written = std::fs::read_to_string(results.join("run.json")).expect("it is there");
    let written: Value = serde_json::from_str(&written).expect("JSON");
    for (key, value) in json.as_object().expect("an object") {
        assert_eq!(&written[key], value, "{key}");
    }
    assert!(results.join("intervals.parquet").is_file());
}

#[test]
fn a_load_of_files_that_is_interrupted_keeps_its_figures_and_leaves_no_files() {
    let mut load = Running::start(
        &["load", "there", "--personality", "varmail:files=40,threads=2", "--runtime", "1h"],
        &[],
    );
    load.interrupt("files-");
    let (code, json) = load.end();
    assert_eq!((code, &json["interrupted"]), (Some(130), &Value::Bool(true)), "{json:#}");
    assert!(requests(&json["performance"]) > 0, "{json:#}");
    assert_eq!(std::fs::read_dir(load.folder().join("there")).expect("a folder").count(), 0);
}

#[test]
fn a_trial_that_is_interrupted_leaves_its_results_and_no_verdict() {
    let trial = "stack: [memory: { size: 16MiB }]\nload: { pattern: random, duration: 1h, queue_depth: 4 }\n\
                 faults: ['write, every=100: bit_flip']\nexpect: { injections: '>= 0' }\n";
    let mut run = Running::start(&["run", "t.yaml", "--results", "kept"], &[("t.yaml", trial)]);
    run.interrupt("load-");
    let (code, json) = run.end();
    assert_eq!((code, json["verdict"].as_str()), (Some(130), Some("interrupted")), "{json:#}");
    assert!(requests(&json["performance"]) > 0, "{json:#}");
    assert_eq!(json["expectations"].as_array().map(Vec::len), Some(0), "{json:#}");
    let fates = &json["faults"][0]["fates"];
    assert_eq!((fates["masked"].as_u64(), fates["silent"].as_u64()), (Some(0), Some(0)), "{fates:#}");
    let results = run.folder().join(json["results"].as_str().expect("a folder"));
    for name in ["run.json", "intervals.parquet", "ledger.parquet", "report.html"] {
        assert!(results.join(name).is_file(), "{name}");
    }
    let page = std::fs::read_to_string(results.join("report.html")).expect("it is there");
    assert!(page.contains("The run was interrupted") && !page.contains("badge pass"));
}

#[test]
fn a_request_that_hangs_is_told_of_at_once_and_the_run_ends() {
    let trial = "stack: [memory: { size: 1MiB }]\nload: { queue_depth: 4, hung_after: 200ms }\n\
                 faults: [{ match: { operation: write, offset: 64KiB }, schedule: once, effect: { hang: 1h } }]\n";
    let mut run = Running::start(&["run", "t.yaml", "--results", "kept"], &[("t.yaml", trial)]);
    let told = run.wait_for("hung: ");
    assert!(told.contains("ms so far: write of 4.0 KiB at 64.0 KiB of device, worker 0 in run"), "{told}");
    let (code, json) = run.end();
    assert_eq!((code, json["verdict"].as_str()), (Some(1), Some("fail")), "{json:#}");
    let hung = &json["hung"];
    assert_eq!(hung.as_array().map(Vec::len), Some(1), "{hung:#}");
    assert_eq!((hung[0]["end"].as_str(), hung[0]["offset_bytes"].as_u64()), (Some("given_up"), Some(65536)));
    let counts = ["errors", "reported", "unexplained"].map(|name| json["counts"][name].as_u64());
    assert_eq!(counts, [Some(1), Some(1), Some(0)], "what held it up accounts for it: {json:#}");
}

#[test]
fn what_a_killed_load_of_files_left_is_cleaned() {
    let mut load = Running::start(
        &["load", "there", "--personality", "varmail:files=40,threads=2", "--runtime", "1h"],
        &[],
    );
    load.wait_for_thread("files-");
    std::fs::write(load.folder().join("there/letter"), "dear").expect("a file of somebody else's");
    load.child.kill().expect("it can be killed");
    load.child.wait().expect("it is gone");
    let there = load.folder().join("there");
    assert!(there.join("rotproof-load").is_dir(), "a killed load leaves its files");
    let clean = Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .arg("clean")
        .env("ROTPROOF_STATE_DIR", load.folder().join("state"))
        .output()
        .expect("it runs");
    assert!(clean.status.success(), "{}", String::from_utf8_lossy(&clean.stderr));
    let left: Vec<_> =
        std::fs::read_dir(&there).expect("a folder").map(|entry| entry.expect("there").file_name()).collect();
    assert_eq!(left, ["letter"], "{}", String::from_utf8_lossy(&clean.stdout));
}

#[test]
fn a_killed_run_leaves_no_folder_that_looks_whole_and_it_is_cleaned() {
    let trial = "stack: [memory: { size: 16MiB }]\nload: { pattern: random, duration: 1h, queue_depth: 4 }\n";
    let mut run = Running::start(&["run", "t.yaml", "--results", "kept"], &[("t.yaml", trial)]);
    run.wait_for_thread("load-");
    let names = |run: &Running| -> Vec<String> {
        let entries =
            std::fs::read_dir(run.folder().join("kept")).expect("it is made before the load begins");
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect()
    };
    let found = names(&run);
    assert!(found.len() == 1 && found[0].starts_with(".t-") && found[0].ends_with(".partial"), "{found:?}");
    run.child.kill().expect("it can be killed");
    run.child.wait().expect("it is gone");
    assert_eq!(names(&run), found);
    let clean = |option: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_rotproof"))
            .arg("clean")
            .args(option)
            .env("ROTPROOF_STATE_DIR", run.folder().join("state"))
            .output()
            .expect("the command starts");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (planned, done) = (clean(&["--dry-run"]), clean(&[]));
    assert!(planned.contains(&found[0]), "{planned}");
    assert_eq!(planned.replace("would be cleaned", "cleaned"), done);
    assert_eq!(names(&run), [""; 0]);
}

/// Starts a load of two seconds by a shell, which may have changed what it does on a signal.
fn hung_up(before: &str) -> (Option<i32>, Value) {
    let command = format!(
        "{before} exec '{}' load memory:1MiB --rw randwrite --runtime 2s --json",
        env!("CARGO_BIN_EXE_rotproof")
    );
    // Whoever runs the tests may have been told not to care, as by nohup.
    let mut load = Running::start_program("env", &["--default-signal=HUP", "sh", "-c", &command], &[]);
    load.wait_for_thread("load-");
    let process = libc::pid_t::try_from(load.child.id()).expect("a process");
    // SAFETY: sends a signal to our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(process, libc::SIGHUP) }, 0);
    load.end()
}

#[test]
fn a_terminal_that_goes_away_interrupts_what_nobody_has_told_not_to_care() {
    let (code, json) = hung_up("");
    assert_eq!((code, json["interrupted"].as_bool()), (Some(130), Some(true)), "{json:#}");
    // As nohup does.
    let (code, json) = hung_up("trap '' HUP;");
    assert_eq!((code, json["interrupted"].as_bool()), (Some(0), Some(false)), "{json:#}");
}
