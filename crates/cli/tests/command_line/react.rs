//! What a user of `rotproof react` sees.

use std::process::Command;

use serde_json::Value;

fn react(folder: &std::path::Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .current_dir(folder)
        .arg("react")
        .args(arguments)
        .output()
        .expect("the command starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("an exit code"), text(output.stdout), text(output.stderr))
}

#[test]
fn cells_are_a_table_json_and_a_folder_that_says_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let asked =
        ["--subject=ext4", "--kinds=data", "--effects=flip,read_error", "--operations=read", "--results=out"];
    let (code, stdout, stderr) = react(folder.path(), &asked);
    assert_eq!((code, &*stderr), (0, "  2 of 2 cells\n"));
    let rows: Vec<&str> = stdout.lines().filter(|line| line.starts_with("data ")).collect();
    assert_eq!(rows.len(), 2, "{stdout}");
    assert!(rows[0].ends_with(" B") && rows[1].ends_with(" E"), "{stdout}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 80), "{stdout}");
    // It goes on where it stood: nothing is left to do.
    let (code, stdout, stderr) = react(folder.path(), &[&asked[..], &["--json", "--quiet"]].concat());
    assert_eq!((code, &*stderr), (0, ""));
    let told: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((&told["subject"], &told["is_complete"]), (&"ext4".into(), &true.into()));
    assert_eq!(told["cells"][0]["outcome"]["reached"]["letters"], "B");
    assert_eq!(told["cells"][1]["outcome"]["reached"]["noticed"], "error_code");
    for name in ["react.json", "cells.jsonl", "reactions.parquet", "table.txt", "table.html", "page.md"] {
        assert!(folder.path().join("out").join(name).exists(), "{name}");
    }
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for (arguments, part) in [
        (&["--subject=ext4", "--kinds=nonsense"][..], "there is no kind of block `nonsense`"),
        (&["--subject=ext4", "--effects=nonsense"], "effects are flip, zeros"),
        (&["--subject=ext4", "--operations=nonsense"], "operations are mount, recover"),
        (&["--subject=fat"], "fat"),
        (&["--subject=ext4", "--machine=cray"], "cray"),
        (
            &["--subject=lmdb", "--machine=uml"],
            "lmdb is a program and no part of a kernel: leave --machine out",
        ),
        (&[], "--subject"),
    ] {
        let (code, _, stderr) = react(folder.path(), arguments);
        assert_eq!(code, 2, "{arguments:?}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
    assert!(std::fs::read_dir(folder.path()).expect("readable").next().is_none(), "nothing was made");
    let (code, _, stderr) =
        react(folder.path(), &["--subject=ext4", "--kinds=agf", "--operations=read", "--results=out"]);
    assert!(code == 2 && stderr.contains("no cell of ext4"), "{stderr}");
}
