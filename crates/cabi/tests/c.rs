//! The interface as C sees it: the header is that of the code, and the example in C compiles without a warning, runs,
//! and does nothing undefined with memory.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_header_is_that_of_the_code() {
    let folder = crate_folder();
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("a configuration");
    // File by file: what a whole crate depends on is none of its business.
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in ["status", "engine", "queue", "request"] {
        builder = builder.with_src(folder.join(format!("src/{name}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().expect("it can be told in C").write(&mut made);
    let made = String::from_utf8(made).expect("UTF-8");
    let path = folder.join("include/rotproof_fault.h");
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    let kept = std::fs::read_to_string(&path).expect("the header is there");
    assert!(kept == made, "write it anew: UPDATE_HEADER=1 cargo test -p rotproof-cabi\n{made}");
}

/// The static library, which cargo makes if need be. The command is named beside it because it asks for the features of
/// dependencies that a build of the whole workspace has; with others cargo would make everything below once more.
fn library() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--package", "rotproof-cabi", "--package", "rotproof-cli", "--lib"])
        .args(["--message-format=json", "--quiet"])
        .current_dir(crate_folder())
        .stdin(Stdio::null())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).expect("UTF-8");
    let files = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| {
            message["reason"] == "compiler-artifact" && message["target"]["name"] == "rotproof_fault"
        })
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default());
    let library = files
        .filter_map(|file| file.as_str().map(PathBuf::from))
        .find(|file| file.ends_with("librotproof_fault.a"));
    library.expect("cargo says where the library is")
}

/// Waits for the end, or kills.
fn run(command: &mut Command) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let began = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if began.elapsed() >= PATIENCE {
            let _ = child.kill();
            panic!("it does not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.wait_with_output().expect("it has ended")
}

#[test]
fn the_example_in_c_compiles_and_meets_its_faults_also_under_the_sanitizers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = library();
    let source = crate_folder().join("../../examples/c/faulty_disk.c");
    for (name, flags) in [
        ("plain", &["-O2"][..]),
        ("sanitized", &["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]),
    ] {
        let program = folder.path().join(name);
        let compiled = run(Command::new("cc")
            .args(["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
            .args(flags)
            .arg("-I")
            .arg(crate_folder().join("include"))
            .arg(&source)
            .arg(&library)
            .args(["-lpthread", "-ldl", "-lm", "-o"])
            .arg(&program));
        assert!(compiled.status.success(), "{name}: {}", String::from_utf8_lossy(&compiled.stderr));
        let ledger = folder.path().join(format!("{name}.jsonl"));
        let ended = run(Command::new(&program).arg(&ledger));
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{name}: {:?}: {stderr}", ended.status);
        assert_eq!(
            (String::from_utf8_lossy(&ended.stdout).as_ref(), &*stderr),
            ("every fault was met\n", ""),
            "{name}"
        );
        let records = std::fs::File::open(&ledger).expect("it has written its ledger");
        let records = fault::read_ledger(std::io::BufReader::new(records)).expect("it is a ledger");
        let hits = |name: &str| records.iter().filter(|record| *record.name == *name).count();
        assert_eq!(["flip", "lost", "bad", "slow", "full", "stuck"].map(hits), [2, 1, 1, 1, 1, 1], "{name}");
    }
}
