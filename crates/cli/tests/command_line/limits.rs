//! Few descriptors, little memory, small files, a full disk: every verb ends, by itself, with what it could do and a message
//! that says what is missing.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Nothing here takes longer, on the slowest machine.
const DEADLINE: Duration = Duration::from_secs(120);

const TRIAL: &str = "stack: [memory: { size: 1MiB }]\nload: { workers: 8, total: 1MiB }\n";

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// A folder with a trial in it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("t.yaml"), TRIAL).expect("written");
    folder
}

/// Runs the command as a shell does after `ulimit` with these words, and waits for its end.
fn limited(folder: &Path, limit: &str, arguments: &[&str]) -> Ended {
    let outputs = ["out", "err"].map(|name| folder.join(name));
    let files = outputs.clone().map(|path| std::fs::File::create(path).expect("a file for what it prints"));
    let [out, err] = files;
    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -c 0; ulimit {limit} && exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_rotproof"))
        .args(arguments)
        .current_dir(folder)
        .env("ROTPROOF_STATE_DIR", folder.join("state"))
        // A thread for which there is no memory while the standard library prints a backtrace waits for itself for ever: the handler of that
        // wants the same lock (seen once in some 2,000 runs under such a limit).
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()
        .expect("sh starts");
    let deadline = Instant::now() + DEADLINE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("our child") {
            break status;
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            panic!("{arguments:?} hangs with ulimit {limit}");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let [stdout, stderr] = outputs.map(|path| std::fs::read_to_string(path).expect("it is there"));
    Ended { code: status.code(), stdout, stderr }
}

/// It did what was asked, or said what is missing, and left nothing.
fn assert_clear(folder: &Path, what: &str, ended: &Ended, advice: &[&str]) {
    let Ended { code, stdout, stderr } = ended;
    assert!(matches!(code, Some(0 | 3)), "{what}: {code:?}\n{stdout}\n{stderr}");
    // The standard library has no other word where a thread that has been started finds no memory for its signal stack.
    let is_of_ours =
        stderr.contains("panicked") && !stderr.contains("failed to allocate an alternative stack");
    assert!(!is_of_ours && !stderr.contains("defect"), "{what}: {stderr}");
    if *code == Some(3) {
        assert!(advice.iter().any(|advice| stderr.contains(advice)), "{what}: {stderr}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.join("state"))
        .map(|entries| entries.flatten().map(|entry| entry.file_name()).collect())
        .unwrap_or_default();
    assert!(left.is_empty(), "{what}: {left:?}");
    let partial = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".partial");
    let results = std::fs::read_dir(folder.join("kept")).into_iter().flatten().flatten();
    assert!(results.filter(partial).count() == 0, "{what}");
}

#[test]
fn with_few_descriptors_it_says_so() {
    let folder = folder();
    let verbs: [&[&str]; 4] = [
        &["run", "t.yaml", "--results", "kept", "-q"],
        &["load", "memory:1MiB", "--rw", "randwrite", "--numjobs", "8", "-q", "--results", "kept"],
        &["load", ".", "--personality", "varmail:files=20,threads=4", "--runtime", "100ms", "-q"],
        &["clean"],
    ];
    let mut refused = 0;
    for descriptors in [5, 6, 7, 8, 9, 10, 12, 16, 20, 32] {
        for arguments in verbs {
            let ended = limited(folder.path(), &format!("-n {descriptors}"), arguments);
            let what = format!("{arguments:?} with {descriptors} descriptors");
            assert_clear(folder.path(), &what, &ended, &["ulimit -n"]);
            assert!(!folder.path().join("rotproof-load").exists(), "{what}");
            refused += u32::from(ended.code == Some(3));
        }
    }
    assert!(refused >= 10, "only {refused}: the limits are not in force");
}

#[test]
fn with_little_memory_it_says_so() {
    let folder = folder();
    // With less, the loader of the system dies, or the standard library before it calls anything of ours.
    let says_so_itself = |kilobytes: &u64| {
        let ended = limited(folder.path(), &format!("-v {kilobytes}"), &["--version"]);
        matches!(ended.code, Some(0 | 3))
    };
    let least = (40_000..200_000).step_by(64).find(says_so_itself).expect("it begins with so much");
    let mut refused = 0;
    let close = (least..least + 3_000).step_by(250);
    for kilobytes in close.chain((least + 5_000..least + 50_000).step_by(5_000)).chain([200_000, 400_000]) {
        for workers in ["1", "8"] {
            let workers = format!("load.workers={workers}");
            let arguments = ["run", "t.yaml", "--results", "kept", "-q", "--set", &workers];
            let ended = limited(folder.path(), &format!("-v {kilobytes}"), &arguments);
            let what = format!("{kilobytes} kB, {workers}");
            if ended.stderr.contains("`rotproof clean` removes what it had created") {
                // There was not even room for what is kept for the end.
                assert_eq!(limited(folder.path(), "-n 256", &["clean"]).code, Some(0), "{what}");
            }
            let advice = ["Cannot allocate memory", "starting the thread", "no memory "];
            assert_clear(folder.path(), &what, &ended, &advice);
            refused += u32::from(ended.code == Some(3));
        }
    }
    assert!(refused >= 1, "the limits are not in force");
}

#[test]
fn a_limit_of_file_sizes_costs_the_results_and_not_the_figures() {
    let folder = folder();
    // In units of 512 bytes: enough for the record of what is created, and for nothing of the results.
    let limit = "-f 3";
    let ended = limited(folder.path(), limit, &["run", "t.yaml", "--results", "kept"]);
    assert_clear(folder.path(), "run", &ended, &["ulimit -f"]);
    assert_eq!(ended.code, Some(3));
    assert!(ended.stdout.contains("PASS  every expectation holds"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("Results:"), "{}", ended.stdout);
    assert!(ended.stderr.contains("there are no results"), "{}", ended.stderr);
    let arguments = ["load", "memory:1MiB", "--rw", "randwrite", "-q", "--results", "kept"];
    let ended = limited(folder.path(), limit, &arguments);
    assert_clear(folder.path(), "load", &ended, &["ulimit -f"]);
    assert_eq!(ended.code, Some(3));
    assert!(ended.stdout.contains("blocks written, read back and right"), "{}", ended.stdout);
    // What is printed is a file here, with a limit of its own.
    let ended = limited(folder.path(), "-f 16", &[&arguments[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert!(json["results"].is_null(), "{json:#}");
    assert!(json["results_error"].as_str().is_some_and(|text| text.contains("kept/load-1-")), "{json:#}");
    assert!(json["performance"][0]["requests"].as_u64() > Some(0), "{json:#}");
    // Neither is a file to blame that is there and larger, nor are those of a load of files.
    std::fs::File::create(folder.path().join("disk.img"))
        .and_then(|file| file.set_len(1 << 20))
        .expect("a sparse file");
    let loads: [&[&str]; 3] = [
        &["load", "new.img", "--size", "1MiB", "--rw", "write", "-q"],
        &["load", "disk.img", "--overwrite", "--rw", "write", "-q"],
        &["load", ".", "--personality", "varmail:files=20,threads=4", "--runtime", "100ms", "-q"],
    ];
    for arguments in loads {
        let ended = limited(folder.path(), limit, arguments);
        assert_clear(folder.path(), arguments[1], &ended, &["ulimit -f"]);
        assert_eq!(ended.code, Some(3));
    }
    assert_eq!(std::fs::read_dir(folder.path().join("kept")).expect("a folder").count(), 0);
}

#[test]
fn a_place_where_no_results_can_be_is_known_before_the_run() {
    let folder = folder();
    std::fs::write(folder.path().join("file"), "of somebody else").expect("written");
    // Two by two digits of a time and a seed make that name longer than any file system takes.
    let name = format!("name={}", "x".repeat(240));
    let cases: [&[&str]; 4] = [
        &["run", "t.yaml", "--results", "file"],
        &["run", "t.yaml", "--results", "/proc/self"],
        &["run", "t.yaml", "--results", "kept", "--set", &name],
        &["load", "memory:1MiB", "--rw", "randwrite", "--results", "/proc/self"],
    ];
    for arguments in cases {
        let ended = limited(folder.path(), "-n 64", arguments);
        assert!(matches!(ended.code, Some(2 | 3)), "{arguments:?}: {:?} {}", ended.code, ended.stderr);
        for phase in ["run ", "prefill"] {
            assert!(!ended.stderr.contains(phase), "{arguments:?}: {}", ended.stderr);
        }
        assert!(ended.stdout.is_empty(), "{}", ended.stdout);
    }
}
