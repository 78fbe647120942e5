//! The interface as C sees it: the header is that of the code, and the example in C compiles without a warning, runs, and
//! does nothing undefined with memory.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_header_is_that_of_the_code() {
    let folder = crate_folder();
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("a configuration");
    // File by file: what a whole crate depends on is none of its business.
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in ["status", "directory", "file"] {
        builder = builder.with_src(folder.join(format!("src/{name}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().expect("it can be told in C").write(&mut made);
    let made = String::from_utf8(made).expect("UTF-8");
    let path = folder.join("include/rotproof_guard.h");
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    let kept = std::fs::read_to_string(&path).expect("the header is there");
    assert!(kept == made, "write it anew: UPDATE_HEADER=1 cargo test -p rotproof-guard-c\n{made}");
}

/// The static library, which cargo makes if need be. The command is named beside it because it asks for the features of
/// dependencies that a build of the whole workspace has; with others cargo would make everything below once more.
fn library() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--package", "rotproof-guard-c", "--package", "rotproof-cli", "--lib"])
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
        .filter(|message| message["reason"] == "compiler-artifact")
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default());
    let library = files
        .filter_map(|file| file.as_str().map(PathBuf::from))
        .find(|file| file.ends_with("librotproof_guard.a"));
    library.expect("cargo says where the library is")
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("it starts")
}

#[test]
fn the_example_in_c_compiles_and_sees_every_flip_also_under_the_sanitizers() {
    let folder = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let library = library();
    let source = crate_folder().join("../../examples/c/guarded_file.c");
    for (name, flags) in [
        ("plain", &["-O2"][..]),
        ("sanitized", &["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]),
    ] {
        let program = folder.path().join(name);
        let compiled = run(Command::new("timeout")
            .args(["60", "cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L"])
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"])
            .args(flags)
            .arg("-I")
            .arg(crate_folder().join("include"))
            .arg(&source)
            .arg(&library)
            .args(["-lpthread", "-ldl", "-lm", "-o"])
            .arg(&program));
        assert!(compiled.status.success(), "{name}: {}", String::from_utf8_lossy(&compiled.stderr));
        let guarded = folder.path().join(format!("{name}.d"));
        std::fs::create_dir(&guarded).expect("a folder");
        drop(guard::Store::init(&guarded, None, guard::StoreOptions::default()).expect("a guard"));
        let ended = run(Command::new("timeout").arg("60").arg(&program).arg(&guarded));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(ended.status.success(), "{name}: {:?}: {}", ended.status, text(&ended.stderr));
        assert_eq!(
            (text(&ended.stdout).as_str(), text(&ended.stderr).as_str()),
            ("every flip was seen\n", "")
        );
    }
}
