//! What a user sees: standard output, standard error and exit code of the command, together, for every kind of mistake
//! and for what is not one.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::Value;
use tempfile::TempDir;

/// A folder with files, in which the command runs.
struct Folder(TempDir);

struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Folder {
    fn with(files: &[(&str, &[u8])]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, content) in files {
            fs::write(folder.path().join(name), content).expect("a file is written");
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rotproof"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env("XDG_RUNTIME_DIR", self.0.path())
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(&mut self.command(arguments))
    }

    /// As [`Folder::run`], where nothing of this machine is served or left.
    fn run_alone(&self, arguments: &[&str]) -> Ended {
        Ended::of(self.command(arguments).env("ROTPROOF_STATE_DIR", self.path("state")))
    }
}

impl Ended {
    fn of(command: &mut Command) -> Self {
        let output = command.output().expect("the command starts");
        Self {
            code: output.status.code().expect("an exit code"),
            stdout: String::from_utf8(output.stdout).expect("UTF-8 on standard output"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8 on standard error"),
        }
    }

    /// All three, as a snapshot.
    fn all(&self) -> String {
        let mut text = format!("exit code {}\n", self.code);
        for (name, stream) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !stream.is_empty() {
                // Writing to a string cannot fail.
                let _ = write!(text, "----- {name}\n{stream}");
            }
        }
        text
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {}", self.stdout))
    }
}

/// What `rotproof check` says of a file with this content.
fn check(content: impl AsRef<[u8]>) -> String {
    Folder::with(&[("trial.yaml", content.as_ref())]).run(&["check", "trial.yaml"]).all()
}

const GOOD: &str = "\
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
fn an_imported_plan_is_printed_with_what_was_assumed_and_can_be_the_faults_of_a_trial() {
    let plan = include_bytes!("../../../../examples/import/fispdk.json");
    let folder = Folder::with(&[("plan.json", plan)]);
    let imported = folder.run(&["import", "plan.json"]);
    assert_snapshot!(imported.all());
    let trial = format!("stack: [memory: {{ size: 1GiB }}]\n{}", imported.stdout);
    fs::write(folder.path("trial.yaml"), trial).expect("a file is written");
    assert_eq!(folder.run(&["check", "trial.yaml"]).code, 0);
    let json = folder.run(&["import", "plan.json", "--as", "fispdk", "--json"]).json();
    assert_eq!(json["format"], "fispdk");
    assert_eq!(json["rules"].as_array().map(Vec::len), Some(3));
}

#[test]
fn a_plan_of_achillesbench_is_told_by_its_look_and_printed() {
    let plan = include_bytes!("../../../../examples/import/achilles.yml");
    assert_snapshot!(Folder::with(&[("plan.yml", plan)]).run(&["import", "plan.yml"]).all());
}

#[test]
fn a_job_file_of_fios_becomes_a_load_and_what_has_no_counterpart_is_shown() {
    let jobs = include_bytes!("../../../../examples/import/jobs.fio");
    let mistakes = b"[a]\nrw=randread\nsize=1g\nstonewall\nzonemode=zbd\n";
    let folder = Folder::with(&[("jobs.fio", jobs), ("other.fio", mistakes)]);
    let imported = folder.run(&["import", "jobs.fio"]);
    assert_snapshot!(imported.all());
    let trial = format!("stack: [memory: {{ size: 16GiB }}]\n{}", imported.stdout);
    fs::write(folder.path("trial.yaml"), trial).expect("a trial");
    assert_eq!(folder.run(&["check", "trial.yaml"]).code, 0);
    assert_snapshot!(folder.run(&["import", "other.fio"]).all());
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

#[test]
fn a_verdict_tells_of_malformed_lines_of_its_trace() {
    let trial = "runtime: simulated\nstack: [memory: { size: 1MiB }]\nload: { trace: { file: t.spc, format: spc } }\n";
    let trace = "0,0,4096,W,0.0\nnonsense\n0,8,4096,R,0.1\n0,x,4096,R,0.2\n";
    let folder = Folder::with(&[("t.yaml", trial.as_bytes()), ("t.spc", trace.as_bytes())]);
    let run = folder.run(&["run", "t.yaml"]);
    let told: Vec<&str> =
        run.stdout.lines().filter(|line| line.contains("trace") || line.contains("line")).collect();
    assert_eq!(
        told[..2],
        ["  2 accesses of the trace replayed", "  2 lines were malformed and passed over:"],
        "{}",
        run.all()
    );
    assert!(told[2].starts_with("    line 2: ") && told[2].ends_with(": nonsense"), "{}", told[2]);
}

#[test]
fn a_line_of_fios_is_taken_with_what_it_means_otherwise() {
    let line = "load memory:1MiB --name=x --rate_iops=100000 --ioengine=io_uring --direct=1 --numjobs=2 --iodepth=2 --no-verify --quiet";
    let ended = Folder::with(&[]).run(&line.split(' ').collect::<Vec<_>>());
    assert!(ended.stderr.lines().all(|line| line.chars().count() <= 80), "{}", ended.stderr);
    assert_eq!(
        ended.stderr.split_whitespace().collect::<Vec<_>>().join(" "),
        "note: each of the 2 workers has its own part of the target, and --rate_iops is of all together, where fio's is of each"
    );
    assert!(ended.stdout.contains("run read") && !ended.stdout.contains("run write"), "{}", ended.stdout);
}

#[test]
fn what_cannot_be_imported_is_shown_where_it_stands() {
    let plan = "{\n  \"write\": { \"files\": [\n    { \"fileName\": \"a.img\", \"faultInjection\": {\n      \"frequency\": \"ALWAYS\",\n      \"faultType\": { \"type\": \"CORRUPT_CONTENT\", \"corruptionPattern\": \"BITFLIP_CUSTOM_INDEX\", \"offset\": 5000 } } }\n  ] }\n}\n";
    let folder = Folder::with(&[("plan.json", plan.as_bytes()), ("other.json", b"{ \"a\": 1 }")]);
    assert_snapshot!(folder.run(&["import", "plan.json"]).all());
    assert_snapshot!(folder.run(&["import", "other.json"]).all());
}

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

#[test]
fn a_load_shows_its_figures_and_that_what_it_wrote_is_right() {
    let arguments = [
        "load",
        "disk:ssd:4MiB",
        "--rw",
        "randrw",
        "--bssplit",
        "4k/60:16k/40",
        "--iodepth",
        "8",
        "--numjobs",
        "2",
        "--number-ios",
        "2000",
        "--ramp-time",
        "100 requests",
        "--quiet",
    ];
    let folder = Folder::with(&[]);
    assert_snapshot!(folder.run(&arguments).all());
    let json = folder.run(&[&arguments[..], &["--json"]].concat()).json();
    assert_eq!(json["load"]["block_size"]["16KiB"], "40%");
    assert_eq!((&json["errors"], &json["verified"]), (&Value::from(0), &Value::Bool(true)));
    let requests: u64 = json["performance"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|line| line["phase"] == "run" && line["operation"] != "flush")
        .map(|line| line["requests"].as_u64().expect("a number"))
        .sum();
    assert_eq!(requests, 2000, "the ramp-up does not count");
}

#[test]
fn a_load_ends_once_it_is_steady_and_says_so_also_in_the_words_of_fio() {
    let arguments = [
        "load",
        "disk:hdd:64MiB",
        "--runtime=100",
        "--steadystate=iops:20%",
        "--ss_dur=5",
        "--ss_ramp=2s",
        "--quiet",
    ];
    let folder = Folder::with(&[]);
    assert_snapshot!(folder.run(&arguments).all());
    assert_snapshot!(folder.run(&[&arguments[..], &["--number-ios=100"]].concat()).all());
    let json = folder.run(&[&arguments[..], &["--json", "--results=kept"]].concat()).json();
    let end = &json["until_steady"];
    assert_eq!((&end["attained"], &end["since_ns"]), (&Value::Bool(true), &Value::from(2_000_000_000_u64)));
    let kept = json["results"].as_str().expect("a folder");
    let page = folder.run(&["report", kept, "--page"]);
    assert!(page.stdout.contains("report.html"), "{}", page.stderr);
    let compared = folder.run(&["report", kept, kept]);
    assert!(compared.stdout.contains("run read IOPS"), "{}", compared.stdout);
    folder.run(&["report", kept, "--fio", "fio"]);
    let fio = fs::read(folder.path("fio/randread-iodepth-1-numjobs-1.json")).expect("written");
    let fio: Value = serde_json::from_slice(&fio).expect("JSON");
    let steady = &fio["jobs"][0]["steadystate"];
    assert_eq!((&steady["ss"], &steady["attained"]), (&Value::from("iops:20.000000%"), &Value::from(1)));
    assert_eq!(steady["data"]["iops"].as_array().map(Vec::len), Some(5));
}

#[test]
fn a_trace_is_replayed_and_what_it_wrote_is_right() {
    let trace = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/traces/mail.spc"));
    let mut text = trace.expect("the example");
    text.extend(b"the machine was switched off here\n");
    let folder = Folder::with(&[("mail.spc", &text)]);
    let arguments =
        ["load", "disk:ssd:4MiB", "--trace", "mail.spc", "--speed", "2", "--numjobs", "2", "--quiet"];
    assert_snapshot!(folder.run(&arguments).all());
    let line =
        "load disk:ssd:4MiB --read_iolog=mail.spc --replay_time_scale=200 --replay_skip=read,trim --json";
    let json = folder.run(&line.split(' ').chain(["--quiet"]).collect::<Vec<_>>()).json();
    assert_eq!((&json["trace"]["malformed"], &json["errors"]), (&Value::from(1), &Value::from(0)));
    let sum = |key: &str| json["trace"][key].as_u64().expect("a number");
    assert_eq!(sum("accesses") + sum("skipped"), 400);
    for arguments in [
        &["load", "memory:4MiB", "--trace", "nothing.spc"][..],
        &["load", "memory:4MiB", "--trace", "mail.spc", "--rw", "write"],
        &["load", "memory:4MiB", "--trace", "mail.spc", "--pace", "slow"],
        &["load", "memory:4MiB", "--speed", "2"],
        &["load", "memory:4MiB", "--trace", "mail.spc", "--iodepth", "0"],
        &["load", "memory:4MiB", "--trace", "mail.spc", "--malformed-max", "0", "--quiet"],
    ] {
        assert_snapshot!(folder.run(arguments).all());
    }
}

#[test]
fn a_load_writes_only_where_it_is_told_to() {
    let folder = Folder::with(&[("precious", &[7; 8192])]);
    let run = |arguments: &[&str]| folder.run(&[&["load", "--quiet", "--buffered"], arguments].concat());
    let refused = run(&["precious", "--rw=write"]);
    assert_snapshot!(refused.all());
    assert_eq!(fs::read(folder.path("precious")).expect("still there"), [7; 8192]);
    assert_eq!(run(&["precious"]).code, 0, "reading is the default");
    assert_eq!(fs::read(folder.path("precious")).expect("still there"), [7; 8192]);
    assert_eq!(run(&["precious", "--rw=write", "--overwrite"]).code, 0);
    assert_ne!(fs::read(folder.path("precious")).expect("still there"), [7; 8192]);
    assert_snapshot!(run(&["missing"]).all());
    assert_snapshot!(run(&["missing", "--rw=write"]).all());
    assert_eq!(run(&["missing", "--rw=write", "--size=1m"]).code, 0);
    assert_eq!(folder.path("missing").metadata().expect("made").len(), 1 << 20);
}

#[test]
fn a_load_on_what_keeps_no_data_says_that_it_verified_nothing() {
    let ended = Folder::with(&[]).run(&["load", "null:4MiB", "--rw=randrw", "--number-ios=100", "--quiet"]);
    assert_eq!(ended.code, 0);
    assert!(ended.stdout.contains("Not verified: this target keeps no data."), "{}", ended.stdout);
}

#[test]
fn mistakes_in_a_load_name_the_option() {
    let folder = Folder::with(&[]);
    for arguments in [
        &["load", "memory:1MiB", "--bs=6k"][..],
        &["load", "memory:1MiB", "--numjobs=300"],
        &["load", "memory:4KiB", "--rw=write", "--numjobs=3"],
        &["load", "disk:tape:1GiB"],
    ] {
        assert_snapshot!(folder.run(&[arguments, &["--quiet"]].concat()).all());
    }
}

/// A trial of virtual time, so that its figures are the same on every machine.
fn swinging(folder: &Folder, more: &[&str]) -> Ended {
    let yaml = "name: short\nruntime: simulated\nseed: 3\nstack: [disk: { profile: hdd, size: 8MiB }, faults]\nload: { \
                pattern: random, block_size: 16KiB, reads: 50%, duration: 6s }\nfaults: [{ name: slow, schedule: { at: 2s, \
                for: 2s }, effect: { delay: 40ms } }]\n";
    fs::write(folder.path("short.yaml"), yaml).expect("written");
    let ended = folder.run_alone(&[&["run", "short.yaml"], more].concat());
    // Without what it shows meanwhile, which tells the time.
    Ended { stderr: String::new(), ..ended }
}

/// Without the folder of the results, which tells the time of day.
fn without_times(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_inclusive(char::is_whitespace) {
        match word.find("short-3-") {
            Some(at) => {
                let rest = &word[at + 8..];
                let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                let _ = write!(out, "{}TIME{}", &word[..at + 8], &rest[digits..]);
            }
            None => out.push_str(word),
        }
    }
    out
}

#[test]
fn a_repeated_trial_shows_its_figures_with_how_sure_they_are() {
    let folder = Folder::with(&[]);
    let run = swinging(&folder, &["--set", "repeat=3", "--results", "r"]);
    assert_snapshot!(without_times(&run.all()));
}

#[test]
fn two_set_ups_are_compared_figure_by_figure_and_a_single_run_is_warned_of() {
    let folder = Folder::with(&[]);
    for (results, set) in [("a", "repeat=3"), ("b", "repeat=3"), ("c", "repeat=1")] {
        let size = if results == "a" { "load.block_size=16KiB" } else { "load.block_size=64KiB" };
        let run = swinging(&folder, &["--set", set, "--set", size, "--results", results]);
        assert_eq!(run.code, 0, "{}", run.all());
    }
    let runs = |results: &str| {
        // Beside it is the link to the latest one.
        let mut entries = fs::read_dir(folder.path(results)).expect("results").map_while(Result::ok);
        let entry = entries.find(|entry| !entry.path().is_symlink()).expect("one folder");
        format!("{results}/{}", entry.file_name().to_string_lossy())
    };
    let (a, b, c) = (runs("a"), runs("b"), runs("c"));
    assert_snapshot!(without_times(&folder.run(&["report", &a, &b]).all()));
    assert_snapshot!(without_times(&folder.run(&["report", &a, &c]).all()));
    assert_snapshot!(without_times(&folder.run(&["report", &c]).all()));
}
