//! Gates, as whoever runs a trial sees them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A trial in virtual time, whose disk is slow for a moment.
const TRIAL: &str = "\
runtime: simulated
stack: [disk: { profile: ssd, size: 16MiB }, faults]
load: { pattern: random, reads: 100%, queue_depth: 4, duration: 1s, prefill: true }
faults: [\"name=slow, read, at=500ms+200ms: delay(1ms)\"]
record: { interval: 50ms }
expect:
  failures: 0
  gates:
";

fn run(folder: &Path, name: &str, gates: &[&str], options: &[&str]) -> (i32, String) {
    let lines: String = gates.iter().map(|gate| format!("    - {gate}\n")).collect();
    std::fs::write(folder.join(format!("{name}.yaml")), format!("{TRIAL}{lines}")).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .args(["run", &format!("{name}.yaml")])
        .args(options)
        .current_dir(folder)
        .env("XDG_RUNTIME_DIR", folder)
        .output()
        .expect("the command starts");
    (output.status.code().expect("an exit code"), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn gates_decide_and_what_is_not_known_fails_unless_it_is_allowed() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |name: &str, gates: &[&str]| run(folder.path(), name, gates, &[]);
    let (code, text) =
        run("holds", &["{ throughput: '>= 1MiB/s', p99.9: '<= 5ms' }", "{ fault: slow, p99: '<= 2ms' }"]);
    assert_eq!(code, 0, "{text}");
    let (code, text) = run("fails", &["{ fault: slow, throughput: '>= 90% of before' }"]);
    assert!(code == 1 && text.contains("1 gate not met"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80 || line.contains("rotproof run")), "{text}");
    // Nothing is written in the run.
    let (code, text) = run("unknown", &["{ operation: write, p99: '<= 1s' }"]);
    assert!(code == 1 && text.contains("unknown: there is no write in the phase run"), "{text}");
    let (code, text) = run("allowed", &["{ operation: write, p99: '<= 1s', unknown: allowed }"]);
    assert!(code == 0 && text.contains("unknown (allowed)"), "{text}");
}

#[test]
fn a_run_is_held_against_another_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let against =
        ["{ throughput: '>= 95% of base', unknown: fails }", "{ fault: slow, p50: '<= 110% of base' }"];
    let (code, text) = run(folder.path(), "first", &against, &["--results", "base"]);
    assert!(code == 1 && text.contains("base holds no run"), "there is no base yet: {text}");
    let (code, text) = run(folder.path(), "same", &against, &[]);
    assert_eq!(code, 0, "{text}");
    let (code, text) =
        run(folder.path(), "slower", &against, &["--set", "stack[0].disk.profile=hdd", "--json"]);
    assert_eq!(code, 1, "{text}");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["gates"][0]["outcome"], "fails", "{report:#}");
    assert_eq!(
        (report["verdict"].as_str(), report["gates"][0]["passes"].as_bool()),
        (Some("fail"), Some(false))
    );
}
