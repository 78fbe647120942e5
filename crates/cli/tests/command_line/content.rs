//! What a user of `rotproof content` sees, from data to a trial that writes the like.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

/// Runs `rotproof` in a folder.
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

fn good(folder: &Path, arguments: &[&str]) -> String {
    let ended = rotproof(folder, arguments);
    assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.stderr);
    for line in ended.stdout.lines().filter(|_| !arguments.contains(&"--json")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    ended.stdout
}

/// A folder with a file of one block three times, another twice, and eleven blocks of their own.
fn data() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let block = |number: u8| {
        let mut block = vec![number; 4096];
        block[0] = 0xff;
        block
    };
    let blocks = [1, 1, 1, 2, 2].into_iter().chain(3..14).flat_map(block);
    fs::create_dir(folder.path().join("data")).expect("a folder");
    fs::write(folder.path().join("data/file"), blocks.collect::<Vec<u8>>()).expect("written");
    folder
}

#[test]
fn what_is_scanned_is_shown_and_a_trial_writes_the_like() {
    let folder = data();
    let at = folder.path();
    let shown = good(at, &["content", "scan", "--quiet", "--output", "data.dist", "data"]);
    insta::assert_snapshot!(shown);
    let file = fs::read_to_string(at.join("data.dist")).expect("it is written");
    assert!(file.ends_with("0 11\n1 1\n2 1\n"), "{file}");
    let printed = good(at, &["content", "scan", "--quiet", "data"]);
    assert_eq!(printed.replace("FILE", "data.dist"), file);
    fs::write(
        at.join("trial.yaml"),
        "stack: [memory: { size: 64MiB }]\nruntime: simulated\nload: { duplicates: { file: data.dist }, compressible: 20% }\n",
    )
    .expect("written");
    let check = good(at, &["check", "trial.yaml"]);
    assert!(check.contains("18.8% duplicates by a distribution, compressible by 20%"), "{check}");
    let ended = rotproof(at, &["run", "trial.yaml"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let results =
        fs::read_dir(at.join("results")).expect("results").next().expect("a run").expect("an entry");
    let run: Value =
        serde_json::from_slice(&fs::read(results.path().join("run.json")).expect("run.json")).expect("JSON");
    let content = &run["content"];
    assert_eq!(content["written_blocks"], 16_384);
    let number = |key: &str| content[key].as_f64().expect("a number");
    assert!((number("duplicates_wanted") - 0.1875).abs() < 1e-9, "{content}");
    assert!((number("duplicates") - 0.1875).abs() < 0.01, "{content}");
    // What was resolved names no file any more, and runs anywhere.
    good(at, &["check", results.path().join("trial.yaml").to_str().expect("UTF-8")]);
}

#[test]
fn distributions_are_merged() {
    let folder = data();
    let at = folder.path();
    fs::write(at.join("a.dist"), "0 10\n1 5\n").expect("written");
    fs::write(at.join("b.dist"), "# of b\n1 1\n300 2\n").expect("written");
    assert!(good(at, &["content", "merge", "a.dist", "b.dist"]).ends_with("0 10\n1 6\n300 2\n"));
    let json: Value =
        serde_json::from_str(&good(at, &["content", "merge", "--json", "a.dist", "b.dist"])).expect("JSON");
    assert_eq!(json["distribution"][2]["duplicates"], 300);
    good(at, &["content", "merge", "--output", "c.dist", "a.dist", "b.dist"]);
    assert!(fs::read_to_string(at.join("c.dist")).expect("written").ends_with("300 2\n"));
}

#[test]
fn programs_get_what_was_found() {
    let folder = data();
    let json: Value =
        serde_json::from_str(&good(folder.path(), &["content", "scan", "data", "--json"])).expect("JSON");
    assert_eq!((&json["blocks"], &json["files"], &json["sampled"]), (&16.into(), &1.into(), &1.into()));
    assert!((json["savable"].as_f64().expect("a number") - 0.1875).abs() < 1e-9);
}

#[test]
fn mistakes_are_refused_with_what_to_do() {
    let folder = data();
    let at = folder.path();
    fs::write(at.join("bad.dist"), "1\n").expect("written");
    fs::write(
        at.join("bad.yaml"),
        "stack: [memory: { size: 64MiB }]\nload: { duplicates: { file: bad.dist } }\n",
    )
    .expect("written");
    for (arguments, wanted) in [
        (&["content", "scan", "nowhere"][..], "looking at nowhere"),
        (&["content", "scan", "/dev/null"], "no file, folder or block device"),
        (&["content", "scan"], "<PATH>"),
        (&["content", "merge", "bad.dist"], "bad.dist: line 1"),
        (&["content", "merge", "nowhere.dist"], "nowhere.dist"),
        (&["check", "bad.yaml"], "bad.dist: line 1"),
    ] {
        let ended = rotproof(at, arguments);
        assert!(matches!(ended.code, 2 | 3), "{arguments:?}: {} {}", ended.code, ended.stderr);
        assert!(ended.stderr.contains(wanted), "{arguments:?}: {}", ended.stderr);
    }
    for arguments in
        [&["content", "--help"][..], &["content", "scan", "--help"], &["content", "merge", "--help"]]
    {
        good(at, arguments);
    }
}

#[test]
fn blocks_are_named_by_the_hashes_that_rules_take() {
    let folder = data();
    let at = folder.path();
    let all = good(at, &["content", "hash", "data/file"]);
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(lines.len(), 16);
    assert_eq!(lines[0][..32], lines[2][..32], "equal blocks");
    assert_eq!(
        good(at, &["content", "hash", "data/file", "--blocks", "15,0..2"]),
        format!("{}\n{}\n{}\n", lines[15], lines[0], lines[1])
    );
    // What the last block lacks is zeros.
    fs::write(at.join("short"), [0; 5000]).expect("written");
    let zeros = rotproof_block::ContentHash::of(&[0; 4096]);
    assert_eq!(good(at, &["content", "hash", "short"]), format!("{zeros}  0\n{zeros}  1\n"));
    let json: Value =
        serde_json::from_str(&good(at, &["content", "hash", "short", "--blocks", "1", "--json"]))
            .expect("JSON");
    assert_eq!(json["blocks"][0]["content"], zeros.to_string());
    assert_eq!(json["blocks"][0]["offset"], 4096);
    let rule = format!("read, content={}: error", &lines[7][..32]);
    fs::write(at.join("trial.yaml"), "stack: [memory: { size: 1MiB }, faults]\n").expect("written");
    assert!(good(at, &["check", "trial.yaml", "--fault", &rule]).contains(&lines[7][..32]));

    fs::write(at.join("empty"), []).expect("written");
    for (arguments, why) in [
        (&["short", "--blocks", "2"][..], "there is no block 2; short has blocks 0 to 1"),
        (&["empty", "--blocks", "0"], "empty is empty"),
        (&["data"], "data is a folder; give one of its files"),
        (&["short", "--blocks", "4..2"], "the end of a range is not in it"),
    ] {
        let ended = rotproof(at, &[&["content", "hash"], arguments].concat());
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
    assert_eq!(rotproof(at, &["content", "hash", "nowhere"]).code, 3);
    assert_eq!(good(at, &["content", "hash", "empty"]), "");
}
