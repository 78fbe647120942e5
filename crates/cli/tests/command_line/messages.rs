//! What a user sees of a trial file: standard output, standard error and exit code of the command, together, for every kind of
//! mistake and for what is not one.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::Value;

use crate::folder::Folder;

/// What `rotproof check` says of a file with this content.
pub fn check(content: impl AsRef<[u8]>) -> String {
    Folder::with(&[("trial.yaml", content.as_ref())]).run(&["check", "trial.yaml"]).all()
}

pub const GOOD: &str = "\
name: nightly
seed: 7
stack:
  - memory: { size: 1GiB }
  - faults
  - stats: { name: above_faults }
subject: { ext4: { mkfs: [\"-b\", \"4096\"], mount: [noatime] } }
load:
  pattern: random
  reads: 30%
  block_size: 64KiB
  queue_depth: 8
  workers: 2
  duration: 1.5min
  duplicates: 12.5%
  flush_every: 64
  files: { count: 4, size: 64MiB }
faults:
  - name: rot
    match: { operation: write, target: { file: a, block: 7 } }
    effect: bit_flip
  - \"read, offset=1MiB..2MiB, every=3: error\"
  - match: { operation: read, offset: [16MiB, 32MiB, 48MiB] }
    effect: { delay: 10ms }
    persistence: sticky
expect: { silent: \">= 1\", failures: 0..5 }
";

#[test]
fn a_good_file_is_shown_as_it_is_understood() {
    assert_snapshot!(check(GOOD));
}

#[test]
fn a_model_is_shown_with_what_it_is_drawn_into() {
    assert_snapshot!(check(
        "seed: 3\nstack: [memory: { size: 64MiB }]\nload: { duration: 30s }\nfaults:\n  - name: media\n    \
         model: { latent_sector_errors: { acceleration: 1e6, front: 20%, distance: 50KiB, further: 1.5 } }\n  - \
         'write, once: zeros'\n  - model: whole_disk_failure\n  - { name: worn, model: dying_disk }\n"
    ));
}

#[test]
fn what_is_wrong_with_a_model_is_shown_where_it_stands() {
    assert_snapshot!(check(
        "stack: [memory: { size: 64MiB }]\nfaults:\n  - { model: fail_slow, schedule: once }\n  - model: bitrot\n  - model: \
         { dying_disk: { eror: 3 } }\n  - 'model(whole_disk_failure, afr=2)'\n"
    ));
    assert_snapshot!(check(
        "stack: [memory: { size: 64MiB }]\nfaults:\n  - name: media\n    model:\n      latent_sector_errors:\n        \
         acceleration: 1e11\n  - model: { bit_rot: { rate: 1e13 } }\n  - model: { fail_slow: { form: transient } }\n  - model: \
         undetected_disk_errors\n  - 'model(dying_disk, growth=0.1)'\n"
    ));
}

#[test]
fn the_smallest_file_is_shown_with_every_default() {
    assert_snapshot!(check("stack: [memory: { size: 64MiB }]"));
}

#[test]
fn every_picture_fits_a_terminal() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let folder = Folder::with(&[]);
    let mut shown = 0;
    for entry in fs::read_dir(examples.join("achilles")).expect("the examples") {
        let path = entry.expect("an entry").path();
        let ended = folder.run(&["check", path.to_str().expect("UTF-8")]);
        assert_eq!(ended.code, 0, "{}", ended.all());
        for line in ended.stdout.lines().skip(1) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        shown += 1;
    }
    assert!(shown >= 9);
}

#[test]
fn an_unknown_key_names_the_nearest() {
    assert_snapshot!(check("stack:\n  - memory: { size: 1MiB }\nload:\n  blocksize: 4KiB\n  workers: 2\n"));
}

#[test]
fn an_unknown_key_without_a_near_one_names_all() {
    assert_snapshot!(check("stack:\n  - memory: { size: 1MiB }\ncolour: red\n"));
}

#[test]
fn all_mistakes_of_a_file_are_shown_at_once() {
    assert_snapshot!(check(
        "stack:\n  - memory: { size: 64 apples }\nload:\n  workers: many\n  reads: 130%\nfaults:\n  - \
         match: { operation: wirte }\n    effect: bit_flip\n  - \"read, every=three: error\"\nexpect: { silent: lots }\n"
    ));
}

#[test]
fn a_wrong_type_says_what_belongs_there() {
    assert_snapshot!(check("stack:\n  - memory: { size: [1MiB] }\nload: fast\n"));
}

#[test]
fn a_key_that_is_not_indented_enough_is_shown_how() {
    assert_snapshot!(check("stack:\n  - memory:\n    size: 64MiB\n"));
}

#[test]
fn a_fault_in_its_short_form_without_quotes_is_shown_how() {
    assert_snapshot!(check("stack:\n  - memory: { size: 64MiB }\nfaults:\n  - write, every=3: bit_flip\n"));
}

#[test]
fn a_size_without_a_known_unit_is_refused() {
    assert_snapshot!(check("stack:\n  - memory: { size: 64 apples }\n"));
}

#[test]
fn a_block_size_that_is_no_power_of_two_is_refused() {
    assert_snapshot!(check("stack:\n  - memory: { size: 64MiB }\nload:\n  block_size: 6KiB\n"));
}

#[test]
fn a_fault_beyond_the_device_is_refused_in_both_forms() {
    assert_snapshot!(check(
        "stack:\n  - memory: { size: 64MiB }\nfaults:\n  - match: { offset: 1GiB }\n    effect: error\n  - \"write, \
         offset=63MiB..65MiB: zeros\"\n"
    ));
}

#[test]
fn a_negative_duration_is_refused() {
    assert_snapshot!(check("stack:\n  - memory: { size: 64MiB }\nload:\n  duration: -10s\n"));
}

#[test]
fn faults_that_contradict_are_refused() {
    assert_snapshot!(check(
        "stack:\n  - memory: { size: 64MiB }\nfaults:\n  - \"write, offset=1MiB..2MiB: zeros\"\n  - \"write, \
         offset=1MiB: error\"\n  - \"flush: bit_flip\"\n"
    ));
}

#[test]
fn an_unknown_subject_is_refused() {
    assert_snapshot!(check("stack:\n  - memory: { size: 64MiB }\nsubject: zfz\n"));
}

#[test]
fn parts_that_do_not_fit_together_are_refused() {
    assert_snapshot!(check(
        "runtime: simulated\nstack:\n  - memory: { size: 16MiB }\n  - faults\n  - faults\nsubject: xfs\nload: { total: \
         1GiB, cool_down: 10s }\nexpect: { injections: 64 }\n"
    ));
}

#[test]
fn a_missing_file_is_a_mistake_of_the_command_line() {
    assert_snapshot!(Folder::with(&[]).run(&["check", "nowhere.yaml"]).all());
}

#[test]
fn a_folder_is_no_trial_file() {
    assert_snapshot!(Folder::with(&[]).run(&["check", "."]).all());
}

#[test]
fn an_empty_file_is_refused() {
    assert_snapshot!(check("# nothing yet\n"));
}

#[test]
fn a_file_that_is_not_utf8_is_refused_with_the_place() {
    assert_snapshot!(check(b"stack: []\nname: caf\xe9\n"));
}

#[test]
fn what_is_not_yaml_is_refused_with_the_place() {
    assert_snapshot!(check("stack: [memory: { size: 1MiB }\nload: {}\n"));
}

#[test]
fn a_tab_is_called_one() {
    assert_snapshot!(check("stack:\n\t- memory: { size: 1MiB }\n"));
}

#[test]
fn nothing_in_a_file_can_play_tricks_on_the_terminal() {
    let shown = check("stack: \"\x1b[2Jgone\"\nname: \"x\u{202e}y\u{7f}/\"\n");
    assert!(!shown.contains('\x1b') && !shown.contains('\u{7f}') && !shown.contains('\u{202e}'), "{shown}");
}

#[test]
fn a_long_line_is_cut_around_the_mistake() {
    let offsets = (0..500).map(|k| (k * 4096).to_string()).collect::<Vec<_>>().join(", ");
    assert_snapshot!(check(format!(
        "stack:\n  - memory: {{ size: 64MiB }}\nfaults:\n  - match: {{ offset: [{offsets}, 99GiB, 0] }}\n    effect: error\n"
    )));
}

#[test]
fn a_hostile_file_is_refused_at_once() {
    let mut bomb = String::from("a0: &a0 [x]\n");
    for level in 1..60 {
        bomb += &format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 9].join(", "));
    }
    for (name, hostile) in
        [("bomb", bomb), ("nesting", "[".repeat(200_000)), ("block nesting", "- ".repeat(200_000))]
    {
        let start = Instant::now();
        let ended = Folder::with(&[("trial.yaml", hostile.as_bytes())]).run(&["check", "trial.yaml"]);
        assert_eq!(ended.code, 2, "{name}");
        assert!(ended.stderr.len() < 2000, "{name}: {}", ended.stderr);
        assert!(start.elapsed() < Duration::from_secs(20), "{name} took {:?}", start.elapsed());
    }
}

#[test]
fn options_that_change_the_trial_are_part_of_it() {
    let folder = Folder::with(&[("trial.yaml", b"stack: [memory: { size: 64MiB }]\n")]);
    let arguments = ["--seed", "9", "--set", "load.block_size=64KiB", "--fault", "read, once: error"];
    assert_snapshot!(folder.run(&[&["check", "trial.yaml"], &arguments[..]].concat()).all());
}

#[test]
fn mistakes_in_options_are_shown_in_the_options() {
    let folder = Folder::with(&[("trial.yaml", b"stack: [memory: { size: 64MiB }]\n")]);
    let arguments = ["--set", "load.blocksize=64KiB", "--fault", "raed: error"];
    assert_snapshot!(folder.run(&[&["check", "trial.yaml"], &arguments[..]].concat()).all());
}

#[test]
fn mistakes_of_several_files_are_all_shown_and_nothing_runs() {
    let folder = Folder::with(&[
        ("a.yaml", b"stack: [memory: { size: 1MiB }]\n"),
        ("b.yaml", b"stack: [memory: { sise: 1MiB }]\n"),
        ("c.yaml", b"stac: []\n"),
    ]);
    assert_snapshot!(folder.run(&["run", "a.yaml", "b.yaml", "c.yaml"]).all());
    assert!(!folder.path("results").exists(), "nothing has run");
}

#[test]
fn with_json_a_program_learns_of_every_mistake_and_its_place() {
    let folder = Folder::with(&[("trial.yaml", b"stack: [memory: { size: 1MiB }]\nload:\n  blocksize: 1\n")]);
    let ended = folder.run(&["check", "--json", "trial.yaml"]);
    assert_eq!(ended.code, 2);
    assert_snapshot!(ended.stdout);
    assert_eq!(ended.json()["error"]["mistakes"][0]["line"], 3);
}

#[test]
fn with_json_a_program_learns_of_a_wrong_command_line() {
    let ended = Folder::with(&[]).run(&["run", "--json", "--sede", "3"]);
    assert_eq!((ended.code, &ended.json()["error"]["kind"]), (2, &Value::from("usage")));
}

#[test]
fn with_json_the_resolved_trial_reads_back_as_the_same() {
    let folder =
        Folder::with(&[("trial.yaml", b"stack: [memory: { size: 1MiB }]\nfaults: ['write: zeros']\n")]);
    let first = folder.run(&["check", "--json", "trial.yaml"]).json();
    let trial = &first["trials"][0]["trial"];
    assert_eq!((&trial["name"], &trial["faults"][0]["name"]), (&"trial".into(), &"fault-1".into()));
    // JSON is YAML.
    fs::write(folder.path("again.yaml"), trial.to_string()).expect("a file is written");
    let again = folder.run(&["check", "--json", "again.yaml"]).json();
    assert_eq!(&again["trials"][0]["trial"], trial);
}

#[test]
fn rules_that_can_never_hit_are_told_with_their_lines_before_a_run() {
    let trial = "runtime: simulated\nstack: [memory: { size: 1MiB }]\nload: { total: 1MiB }\nfaults:\n  \
                 - { match: { operation: write, tag: foo.db }, effect: zeros }\n  - 'discard: error'\n  \
                 - 'write, at=60s+5s: zeros'\n  - 'write, nth=300: lost_write'\n  - 'write, once: lost_write'\n";
    let folder = Folder::with(&[("t.yaml", trial.as_bytes())]);
    let checked = folder.run(&["check", "t.yaml"]);
    assert_eq!(checked.code, 0, "{}", checked.all());
    assert_snapshot!(checked.stderr);
    let json = folder.run(&["check", "--json", "t.yaml"]).json();
    let lines: Vec<_> =
        json["trials"][0]["warnings"].as_array().expect("a list").iter().map(|w| &w["line"]).collect();
    assert_eq!(lines, [5, 6, 7, 8]);
    let run = folder.run(&["run", "--quiet", "t.yaml"]);
    assert!(run.stderr.contains(&checked.stderr), "{}", run.stderr);
}
