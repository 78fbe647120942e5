//! `rotproof probe`, and runs that look at another machine with it: here that machine is this one, behind a command.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use rotproof_record::table::TableReader;
use serde_json::Value;
use tempfile::TempDir;

/// Nothing here takes longer, on the slowest machine.
const DEADLINE: Duration = Duration::from_secs(60);

const PROGRAM: &str = env!("CARGO_BIN_EXE_rotproof");

fn command(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .current_dir(folder)
        .env("ROTPROOF_STATE_DIR", folder.join("state"))
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The command under way; dropped, it is killed.
struct Running {
    child: Child,
    /// Lines of standard output as they come, to its end.
    lines: Receiver<String>,
    stderr: Receiver<String>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("the command starts");
        let (stdout, mut stderr) =
            (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let (send, told) = channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            let _ = send.send(text);
        });
        Self { child, lines, stderr: told }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(DEADLINE).expect("a line comes")
    }

    /// Waits for its end: the exit code, and the rest of what it printed.
    fn end(&mut self) -> (Option<i32>, String, String) {
        let stderr = self.stderr.recv_timeout(DEADLINE).expect("it ends");
        let mut stdout = String::new();
        while let Ok(line) = self.lines.recv_timeout(DEADLINE) {
            stdout += &line;
            stdout.push('\n');
        }
        (self.child.wait().expect("it has ended").code(), stdout, stderr)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder with a trial of so long that looks at a machine through this command.
fn trial(duration: &str, machine: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = format!(
        "stack: [memory: {{ size: 16MiB }}]\nload: {{ pattern: random, duration: {duration}, rate: 500 }}\n\
         probes: {{ interval: 100ms, machines: {{ target: {machine:?} }} }}\n"
    );
    std::fs::write(folder.path().join("trial.yaml"), text).expect("a file is written");
    folder
}

fn run(folder: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let arguments = [&["run", "trial.yaml"][..], more].concat();
    Running::start(&mut command(&arguments, folder)).end()
}

/// The folder of the only run.
fn results(folder: &Path) -> PathBuf {
    // Beside it is the link to the latest one.
    let mut entries = std::fs::read_dir(folder.join("results")).expect("results").map_while(Result::ok);
    entries.find(|entry| !entry.path().is_symlink()).expect("a run").path()
}

fn probes_of(folder: &Path) -> Value {
    let text = std::fs::read_to_string(results(folder).join("run.json")).expect("a file");
    let mut report: Value = serde_json::from_str(&text).expect("JSON");
    report["wall_clock"]["probes"].take()
}

#[test]
fn a_machine_says_who_it_is_and_then_what_it_does_until_its_input_ends() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let arguments =
        ["probe", "--json", "--interval", "100ms", "--without=network,pressure", "--processes=rot%70roof"];
    let mut running = Running::start(command(&arguments, folder.path()).stdin(Stdio::piped()));
    let hello: Value = serde_json::from_str(&running.line()).expect("JSON");
    assert_eq!(
        (&hello["rotproof_probe"], &hello["interval_ns"]),
        (&1.into(), &100_000_000.into()),
        "{hello}"
    );
    assert_eq!(hello["version"], env!("CARGO_PKG_VERSION"));
    let mut stdin = running.child.stdin.take().expect("a pipe");
    let sample = || -> Value { serde_json::from_str(&running.line()).expect("JSON") };
    let first = sample();
    let names: Vec<&str> =
        first["values"].as_array().expect("values").iter().filter_map(|value| value[0].as_str()).collect();
    assert!(names.contains(&"cpu.utilisation") && names.contains(&"memory.available"), "{first}");
    assert!(!names.iter().any(|name| name.starts_with("network") || name.starts_with("pressure")), "{first}");
    assert_eq!(first["phase"], 0);
    stdin.write_all(b"\n").expect("it reads");
    while sample()["phase"] == 0 {}
    drop(stdin);
    let (code, _, stderr) = running.end();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

#[test]
fn people_see_a_line_for_each_sample_and_mistakes_say_what_to_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let arguments = ["probe", "--interval", "100ms"];
    let mut running = Running::start(command(&arguments, folder.path()).stdin(Stdio::piped()));
    let lines: Vec<String> = (0..6).map(|_| running.line()).collect();
    assert!(lines[0].contains("every 100ms; Ctrl-C ends it") && lines[4].contains('%'), "{lines:#?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    // A terminal's signal.
    let process = libc::pid_t::try_from(running.child.id()).expect("a process");
    // SAFETY: sends a signal to our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(process, libc::SIGINT) }, 0);
    assert_eq!(running.end().0, Some(130));
    let mut text = String::new();
    for wrong in [
        &["probe", "--interval", "1ms"][..],
        &["probe", "--without", "gpu"],
        &["probe", "--processes", "/bin/sh"],
        &["probe", "--processes", "50%"],
        &["load", "memory:1MiB", "--probe", "target"],
        &["load", "memory:1MiB", "--probe", "local=x"],
        &["load", "memory:1MiB", "--probe", "a=x", "--probe", "a=y"],
        &["load", "memory:1MiB", "--probe", "a=x", "--probes=off"],
    ] {
        let (code, stdout, stderr) = Running::start(&mut command(wrong, folder.path())).end();
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{wrong:?}");
        text += &format!("$ {}\n{stderr}\n", wrong.join(" "));
    }
    let (code, help, _) = Running::start(&mut command(&["probe", "-h"], folder.path())).end();
    assert_eq!(code, Some(0));
    text += &help;
    assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    assert_snapshot!(text);
}

#[test]
fn another_machine_stands_beside_this_one_in_everything_that_a_run_leaves() {
    let folder = trial("1500ms", &format!("'{PROGRAM}'"));
    let (code, stdout, stderr) = run(folder.path(), &[]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("Machine target ("), "{stdout}");
    let (_, shown) = stdout.split_once("\nMachine  ").expect("this machine comes first");
    let (shown, _) = shown.split_once("\nExpected").expect("and then the verdict");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let probes = probes_of(folder.path());
    let machine = &probes["machines"][0];
    assert_eq!(machine["name"], "target");
    assert!(
        machine["run_samples"].as_u64() >= Some(2) && machine["processors"].as_u64() >= Some(1),
        "{machine}"
    );
    let series = probes["series"].as_array().expect("a list");
    let of = |name: &str| {
        series.iter().filter(|one| one["machine"] == name && one["metric"] == "cpu.user").count()
    };
    assert_eq!((of("local"), of("target")), (1, 1));
    let results = results(folder.path());
    let table =
        TableReader::open(&results.join("probes.parquet"), "probes").expect("a table").read().expect("whole");
    let machines = table.texts("machine").expect("a column");
    for name in ["local", "target"] {
        let times: Vec<i64> = (0..table.rows())
            .filter(|&row| {
                *machines[row] == *name && *table.texts("metric").expect("a column")[row] == *"cpu.user"
            })
            .map(|row| table.integers("time_ns").expect("a column")[row])
            .collect();
        assert!(times.len() >= 4 && times.is_sorted(), "{name}: {times:?}");
    }
    let page = std::fs::read_to_string(results.join("report.html")).expect("a page");
    assert!(page.contains("target: Processors") && page.contains("target: Memory"));
}

#[test]
fn a_load_without_a_trial_looks_at_another_machine_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let machine = format!("other='{PROGRAM}'");
    let load = [
        "load",
        "memory:16MiB",
        "--runtime=1",
        "--rate_iops=500",
        "--probes=100ms",
        "--json",
        "--probe",
        &machine,
    ];
    let (code, stdout, stderr) = Running::start(&mut command(&load, folder.path())).end();
    assert_eq!(code, Some(0), "{stderr}");
    let report: Value = serde_json::from_str(&stdout).expect("JSON");
    let machine = &report["probes"]["machines"][0];
    assert!(machine["name"] == "other" && machine["run_samples"].as_u64() >= Some(2), "{machine}");
    let failing =
        ["load", "memory:16MiB", "--json", "--probe", "other=echo Connection refused >&2; exit 255;"];
    let (code, stdout, stderr) = Running::start(&mut command(&failing, folder.path())).end();
    assert_eq!(code, Some(3), "{stderr}");
    assert!(
        stdout.contains("no probes on the machine other") && stderr.contains("\n  Connection refused"),
        "{stderr}"
    );
}

#[test]
fn a_machine_that_says_something_else_ends_the_run_before_it_begins() {
    for (machine, why) in [
        ("echo Last login: today;", "but with `Last login: today`"),
        ("no-such-program-here rotproof", "no-such-program-here"),
        (
            "sleep 0.1; printf '{\"rotproof_probe\":1,\"version\":\"99.0.0\",\"host\":\"h\",\"boot\":\"b\",\"processors\":1,\"interval_ns\":1}\\n';",
            "it has Rotproof `99.0.0`",
        ),
    ] {
        let folder = trial("60s", machine);
        let (code, stdout, stderr) = run(folder.path(), &[]);
        assert_eq!((code, stdout.as_str()), (Some(3), ""), "{stderr}");
        assert!(stderr.contains("no probes on the machine target") && stderr.contains(why), "{stderr}");
    }
}

#[test]
fn a_machine_that_is_killed_in_the_middle_is_told_and_the_run_goes_on() {
    let folder = trial("1500ms", &format!("sh -c '\"{PROGRAM}\" \"$@\" | head -n 3; kill -KILL $$' sh"));
    let (code, stdout, stderr) = run(folder.path(), &[]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("target: ended ") && stdout.contains(" into the run"), "{stdout}");
    let probes = probes_of(folder.path());
    assert_eq!(probes["machines"][0]["samples"], 2);
    assert!(probes["samples"].as_u64() > Some(2), "the other goes on: {probes}");
}

#[test]
fn ctrl_c_ends_the_other_machine_too() {
    let folder = trial("50s", &format!("sh -c 'echo $$ >process; exec \"{PROGRAM}\" \"$@\"' sh"));
    let file = folder.path().join("process");
    let mut running = Running::start(&mut command(&["run", "trial.yaml", "--quiet"], folder.path()));
    let deadline = Instant::now() + DEADLINE;
    let number = loop {
        match std::fs::read_to_string(&file) {
            Ok(text) if text.ends_with('\n') => break text.trim().to_owned(),
            _ => assert!(Instant::now() < deadline, "the other machine is never asked"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    std::thread::sleep(Duration::from_millis(500));
    let process = libc::pid_t::try_from(running.child.id()).expect("a process");
    // SAFETY: sends a signal to our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(process, libc::SIGINT) }, 0);
    assert_eq!(running.end().0, Some(130));
    let name = std::fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
    assert_ne!(name.trim(), "rotproof", "it has ended before the run has");
}
