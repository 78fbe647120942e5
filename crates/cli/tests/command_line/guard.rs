//! What a user of `rotproof guard` sees, from a directory to a block that rotted.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

fn rotproof(folder: &Path, arguments: &[&str]) -> Ended {
    let output = Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("CLICOLOR_FORCE")
        .stdin(Stdio::null())
        .output()
        .expect("the command starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ended {
        code: output.status.code().expect("an exit code"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// What is printed, with the scratch folder left out.
fn shown(folder: &Path, arguments: &[&str], code: i32) -> String {
    let ended = rotproof(folder, arguments);
    assert_eq!(ended.code, code, "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    let whole = folder.canonicalize().expect("a folder").display().to_string();
    format!("{}{}", ended.stdout, ended.stderr).replace(&whole, "[FOLDER]")
}

#[test]
fn a_directory_is_guarded_rot_is_found_and_mended_and_changes_are_accepted() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let at = scratch.path();
    for folder in ["data", "backup"] {
        fs::create_dir(at.join(folder)).expect("a folder");
        fs::write(at.join(folder).join("large"), vec![0x5a; 100_000]).expect("written");
        fs::write(at.join(folder).join("small"), b"hello").expect("written");
    }
    insta::assert_snapshot!(shown(at, &["guard", "status", "data"], 3));
    insta::assert_snapshot!(shown(at, &["guard", "init", "--quiet", "data"], 0));
    insta::assert_snapshot!(shown(at, &["guard", "check", "--quiet", "data"], 0));
    // A flip on the disk: the file's times stay.
    let large = fs::OpenOptions::new().write(true).open(at.join("data/large")).expect("the file");
    let modified = large.metadata().and_then(|metadata| metadata.modified()).expect("times");
    large.write_all_at(&[0x5b], 50_000).expect("flipped");
    large.set_modified(modified).expect("times");
    drop(large);
    insta::assert_snapshot!(shown(at, &["guard", "check", "--quiet", "data"], 1));
    insta::assert_snapshot!(shown(at, &["guard", "repair", "--quiet", "data", "--mirror", "backup"], 0));
    fs::write(at.join("data/small"), b"changed").expect("changed");
    fs::write(at.join("data/new"), b"new").expect("made");
    insta::assert_snapshot!(shown(at, &["guard", "check", "--quiet", "data"], 1));
    insta::assert_snapshot!(shown(at, &["guard", "accept", "--quiet", "data"], 0));
    let told: Value =
        serde_json::from_str(&rotproof(at, &["guard", "check", "--json", "data"]).stdout).expect("JSON");
    assert_eq!((told["rotten_count"].as_u64(), told["files"].as_u64()), (Some(0), Some(3)));
    let exported = rotproof(at, &["guard", "export", "data"]).stdout;
    assert_eq!(exported.lines().count(), 3);
    // Small files that were made one after the other may share a page of sums, or not, as their inodes are.
    let status = shown(at, &["guard", "status", "data"], 0);
    let is_of_tables = |line: &&str| line.trim_start().starts_with("tables ");
    let tables = status.lines().find(is_of_tables).expect("what the tables take");
    assert!(
        ["  8.0 KiB, ", " 12.0 KiB, ", " 16.0 KiB, "].iter().any(|size| tables.contains(size)),
        "{tables}"
    );
    insta::assert_snapshot!(status.replace(tables, "  tables     [PAGES]"));
}

#[test]
fn mistakes_say_what_to_do() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let at = scratch.path();
    fs::create_dir(at.join("data")).expect("a folder");
    fs::write(at.join("file"), b"").expect("a file");
    let all = [
        &["guard", "init", "file"][..],
        &["guard", "init", "nowhere"],
        &["guard", "init", "data", "--light", "blake3"],
        &["guard", "init", "data", "--machine", "toaster"],
    ];
    let mut texts: Vec<String> = all
        .iter()
        .map(|arguments| {
            let code = if arguments.contains(&"nowhere") { 3 } else { 2 };
            shown(at, arguments, code)
        })
        .collect();
    shown(at, &["guard", "init", "--quiet", "data", "--machine", "consumer"], 0);
    texts.push(shown(at, &["guard", "init", "--quiet", "data", "--strong", "crc32c"], 2));
    texts.push(shown(at, &["guard", "check", "--quiet", "data", "file"], 2));
    texts.push(shown(at, &["guard", "repair", "--quiet", "data", "--mirror", "nowhere"], 2));
    // Settings that rotted are told, and there is a copy.
    let settings = at.join("data/.rotproof-guard/guard");
    fs::write(&settings, [7; 4096]).expect("damaged");
    shown(at, &["guard", "check", "--quiet", "data"], 0);
    fs::write(at.join("data/.rotproof-guard/guard.copy"), [7; 4096]).expect("damaged");
    texts.push(shown(at, &["guard", "check", "--quiet", "data"], 3));
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn every_help_fits_a_terminal() {
    for verb in ["init", "check", "repair", "accept", "status", "export", "mount", "run"] {
        let ended = rotproof(Path::new("."), &["guard", verb, "--help"]);
        assert_eq!(ended.code, 0, "{verb}");
        for line in ended.stdout.lines() {
            assert!(line.chars().count() <= 80, "{verb}: {line}");
        }
    }
}

#[test]
fn a_mount_verifies_and_goes_when_it_is_told_to() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let at = scratch.path();
    for folder in ["data", "mount"] {
        fs::create_dir(at.join(folder)).expect("a folder");
    }
    fs::write(at.join("data/a"), vec![0x5a; 100_000]).expect("written");
    shown(at, &["guard", "init", "--quiet", "data"], 0);
    let inside = rotproof(at, &["guard", "mount", "data", "data"]);
    assert_eq!(inside.code, 2, "{}", inside.stderr);
    let mut server = Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .args(["guard", "mount", "data", "mount"])
        .current_dir(at)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !at.join("mount/a").exists() {
        assert!(std::time::Instant::now() < deadline, "not mounted");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(fs::read(at.join("mount/a")).expect("read") == vec![0x5a; 100_000]);
    fs::write(at.join("mount/b"), b"new").expect("written");
    let ended = Command::new("kill").args(["-TERM", &server.id().to_string()]).status().expect("kill");
    assert!(ended.success());
    assert_eq!(server.wait().expect("ended").code(), Some(143));
    assert!(!at.join("mount/a").exists());
    shown(at, &["guard", "check", "--quiet", "data"], 0);
}

/// The library that `guard run` puts in front of the C library, which cargo makes if need be, beside the command.
fn make_preload() {
    let made = Command::new(env!("CARGO"))
        .args([
            "build",
            "--package",
            "rotproof-guard-preload",
            "--package",
            "rotproof-cli",
            "--lib",
            "--quiet",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .output()
        .expect("cargo starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn a_command_runs_below_the_guard_and_ends_as_it_would_without() {
    make_preload();
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let at = scratch.path();
    for folder in ["data", "plain"] {
        fs::create_dir(at.join(folder)).expect("a folder");
    }
    insta::assert_snapshot!(shown(at, &["guard", "run", "data", "--", "true"], 3));
    rotproof(at, &["guard", "init", "--quiet", "data"]);
    insta::assert_snapshot!(shown(at, &["guard", "run", "--", "true"], 2));
    insta::assert_snapshot!(shown(at, &["guard", "run", "data", "--", "no-such-program"], 3));
    let script = "seq 20000 > a && sort -r a > b && wc -l < b";
    let inside = at.join("data");
    let ended = rotproof(&inside, &["guard", "run", "--", "sh", "-c", script]);
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (0, "20000\n", ""));
    assert_eq!(rotproof(at, &["guard", "run", "data", "--", "sh", "-c", "exit 7"]).code, 7);
    assert_eq!(rotproof(at, &["guard", "run", "data", "--", "sh", "-c", "kill -9 $$"]).code, 137);
    // What a program that is killed leaves in memory is on the disk when the command has ended.
    let script = "exec 3> data/c; echo killed >&3; kill -9 $$";
    assert_eq!(rotproof(at, &["guard", "run", "data", "--", "bash", "-c", script]).code, 137);
    insta::assert_snapshot!(shown(at, &["guard", "check", "--quiet", "data"], 0));
    let large = fs::OpenOptions::new().write(true).open(at.join("data/a")).expect("the file");
    let modified = large.metadata().and_then(|metadata| metadata.modified()).expect("times");
    large.write_all_at(b"x", 50_000).expect("flipped");
    large.set_modified(modified).expect("times");
    drop(large);
    insta::assert_snapshot!(shown(at, &["guard", "run", "data", "--", "cat", "data/a"], 1).split_off(49_000));
}

#[test]
fn a_static_program_is_refused_rather_than_run_past_the_guard() {
    make_preload();
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let at = scratch.path();
    fs::create_dir(at.join("data")).expect("a folder");
    fs::write(at.join("a.c"), "int main(void) { return 0; }\n").expect("written");
    let made =
        Command::new("cc").args(["-static", "-o", "program", "a.c"]).current_dir(at).output().expect("cc");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    rotproof(at, &["guard", "init", "--quiet", "data"]);
    insta::assert_snapshot!(shown(at, &["guard", "run", "data", "--", "./program"], 3));
}
