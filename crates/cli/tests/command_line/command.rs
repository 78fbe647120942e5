//! What a user sees of the command itself: its options, help, colours and schema, and the verbs that serve, control and clean.

use std::fs;
use std::process::Stdio;

use insta::assert_snapshot;

use crate::folder::Folder;
use crate::messages::check;

#[test]
fn a_wrong_command_line_is_exit_2_and_help_is_no_mistake() {
    let folder = Folder::with(&[]);
    for wrong in
        [&["chek"][..], &["run"], &[], &["check", "--colour=never", "x"], &["run", "x", "--seed", "-1"]]
    {
        let ended = folder.run(wrong);
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{wrong:?}");
        assert!(!ended.stderr.is_empty(), "{wrong:?}");
    }
    assert_snapshot!(folder.run(&["--help"]).all());
    for arguments in [
        &["--help"][..],
        &["run", "-h"],
        &["check", "-h"],
        &["import", "-h"],
        &["schema", "-h"],
        &["clean", "--help"],
    ] {
        let ended = folder.run(arguments);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    }
}

#[test]
fn colours_come_only_where_they_are_wanted() {
    let folder =
        Folder::with(&[("trial.yaml", b"stack: []\n"), ("good.yaml", b"stack: [memory: { size: 1MiB }]\n")]);
    let is_colored = |arguments: &[&str], no_color: bool| {
        let mut command = folder.command(arguments);
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let output = command.output().expect("the command starts");
        [output.stdout, output.stderr].concat().contains(&0x1b)
    };
    for file in ["trial.yaml", "good.yaml"] {
        assert!(!is_colored(&["check", file], false), "a pipe gets none");
        assert!(is_colored(&["check", file, "--color", "always"], false));
        assert!(
            is_colored(&["--color=always", "check", file], true),
            "the option goes before the environment"
        );
        assert!(!is_colored(&["check", file, "--color=never"], false));
    }
    assert!(is_colored(&["--color=always", "chek"], false), "also where the command line is wrong");
    assert!(!is_colored(&["chek"], true));
}

#[test]
fn the_schema_begins_as_an_editor_wants_it_and_can_be_written_to_a_file() {
    let folder = Folder::with(&[]);
    let ended = folder.run(&["schema"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    let schema = ended.json();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let head = serde_json::json!({ "title": schema["title"], "type": schema["type"], "required": schema["required"] });
    assert_snapshot!(format!("{head:#}"));
    assert_snapshot!(folder.run(&["schema", "--output", "rotproof.schema.json"]).all());
    assert_eq!(fs::read_to_string(folder.path("rotproof.schema.json")).expect("it is written"), ended.stdout);
    let ended = folder.run(&["schema", "--output", "nowhere/rotproof.schema.json"]);
    assert_eq!(ended.code, 3, "{}", ended.all());
}

#[test]
fn clean_says_what_it_finds_for_people_and_programs() {
    let folder = Folder::with(&[]);
    let ended = folder.run_alone(&["clean", "--dry-run", "--json"]);
    assert_eq!((ended.code, &ended.json()["dry_run"]), (0, &true.into()), "{}", ended.all());
    assert!(ended.json()["runs"].is_array());
    let ended = folder.run_alone(&["clean", "--dry-run"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    assert!(!ended.stdout.is_empty());
}

#[test]
fn serving_and_control_explain_themselves_in_80_columns() {
    let folder = Folder::with(&[]);
    let mut text = String::new();
    for arguments in [&["serve", "-h"][..], &["ctl", "-h"], &["ctl", "add", "-h"], &["ctl", "hits", "-h"]] {
        let ended = folder.run(arguments);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
        text += &ended.stdout;
        text.push('\n');
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_snapshot!(text);
}

#[test]
fn what_cannot_be_served_is_refused_with_its_place() {
    let stack = b"stack: [memory: { size: 1MiB }]\nruntime: simulated\nfaults:\n  - 'write, target=unique: zeros'\n  - 'read, during=check: hang'\n";
    let folder = Folder::with(&[("disk.yaml", stack)]);
    let text: String = [&["serve", "disk.yaml"][..], &["serve", "disk.yaml", "--as", "devise"], &["serve"]]
        .map(|arguments| folder.run_alone(arguments).all())
        .join("\n");
    assert_snapshot!(text);
}

#[test]
fn a_trial_in_which_something_would_hang_for_ever_is_refused() {
    assert_snapshot!(check("stack: [memory: { size: 64MiB }]\nfaults:\n  - 'read, once: hang'\n"));
}

#[test]
fn control_without_anything_served_and_with_mistakes_says_what_to_do() {
    let folder = Folder::with(&[("rules.yaml", b"faults:\n  - read: zeros\n  - { effect: zeroes }\n")]);
    let text: String = [
        &["ctl", "list"][..],
        &["ctl", "list", "--name", "disk"],
        &["ctl", "list", "--socket", "no.sock"],
        &["ctl", "add", "wirte: zeros", "{ effect: bit_flip, schedule: { evry: 3 } }"],
        &["ctl", "add", "--file", "rules.yaml"],
        &["ctl", "add", "target=unique: zeros"],
        &["ctl", "status", "--json"],
    ]
    .map(|arguments| folder.run_alone(arguments).all())
    .join("\n");
    assert_snapshot!(text);
}

#[test]
fn a_reader_that_goes_away_changes_nothing_and_a_full_disk_is_told() {
    let folder = Folder::with(&[]);
    let mut child = folder.command(&["schema"]).stdout(Stdio::piped()).spawn().expect("the command starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has one");
    let output = folder.command(&["schema"]).stdout(full).output().expect("the command starts");
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left on device"));
}
