//! What a user of `rotproof model` sees, and the commands of its documentation as they stand there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use insta::assert_snapshot;
use serde_json::Value;

struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

/// Runs `rotproof model` in the workspace, where the examples are.
fn model(arguments: &[&str]) -> Ended {
    let output = Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .arg("model")
        .args(arguments)
        .current_dir(root())
        .env_remove("NO_COLOR")
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

fn good(arguments: &[&str]) -> String {
    let ended = model(arguments);
    assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.stderr);
    for line in ended.stdout.lines().filter(|_| !arguments.contains(&"--json")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    ended.stdout
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&good(&[arguments, &["--json"]].concat())).expect("JSON")
}

#[test]
fn every_help_fits_a_terminal() {
    for verb in ["score", "compare", "switch-time", "contour", "fleet", "estimate"] {
        good(&[verb, "--help"]);
    }
    good(&["--help"]);
}

#[test]
fn one_design_is_shown_stage_by_stage() {
    assert_snapshot!(good(&["score", "z2-dynamic", "--residency", "5min"]));
}

#[test]
fn error_bars_go_from_the_rates_to_the_score() {
    assert_snapshot!(good(&["score", "examples/paths/mirror-archive.yaml", "--residency", "1h"]));
}

#[test]
fn all_systems_on_all_machines_are_one_table() {
    assert_snapshot!(good(&["compare"]));
}

#[test]
fn several_designs_on_one_machine_are_told_more_of() {
    assert_snapshot!(good(&[
        "compare",
        "zfs",
        "e2e-crc32c",
        "examples/paths/z2-static.yaml",
        "--memory",
        "25000 [20000..70000] FIT/Mbit",
        "--disk",
        "index 12",
    ]));
}

#[test]
fn switching_times_are_rounded_down_as_they_are_promises() {
    assert_snapshot!(good(&["switch-time"]));
}

#[test]
fn a_plane_of_scores_fits_a_terminal() {
    assert_snapshot!(good(&["contour", "zfs", "--memory-index", "13..20", "--disk-index", "10..20"]));
}

#[test]
fn a_fleet_is_the_same_for_a_seed_whatever_the_threads() {
    let fleet = ["fleet", "--groups", "20000", "--redundancy", "1+1", "--undetected", "1e-9", "--quiet"];
    let alone = good(&[&fleet[..], &["--threads", "1"]].concat());
    assert_eq!(alone, good(&[&fleet[..], &["--threads", "3"]].concat()));
    assert_snapshot!(alone);
}

#[test]
fn a_fleet_with_fault_models_says_what_it_takes_from_them() {
    let shown = good(&[
        "fleet",
        "--faults",
        "examples/fleets/nearline.yaml",
        "--redundancy",
        "4+1",
        "--groups",
        "2000",
        "--undetected",
        "1e-3",
        "--quiet",
    ]);
    assert_snapshot!(shown);
}

#[test]
fn a_mistake_in_a_fleet_file_is_shown_where_it_stands() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("wrong.yaml");
    fs::write(
        &file,
        "capacity: 16TiB\nfaults:\n  - 'write: zeros'\n  - model: dying_disk\n  - model: { undetected_disk_errors: { read: 1e-9 } }\n",
    )
    .expect("written");
    let ended = model(&["fleet", "--faults", file.to_str().expect("UTF-8")]);
    assert_eq!(ended.code, 2);
    let text = ended.stderr.replace(&format!("{}/", folder.path().display()), "");
    assert_snapshot!(text);
}

#[test]
fn the_published_estimate_comes_out() {
    assert_snapshot!(good(&["estimate", "R=9", "W=2", "C=0", "--trials", "100", "--faults", "16"]));
}

#[test]
fn programs_get_every_digit() {
    let score = json(&["score", "nc", "--machine", "consumer"]);
    assert!((score["score"]["value"].as_f64().expect("a number") - 7.4035).abs() < 1e-4, "{score}");
    assert_eq!(score["meets_goal"], false);
    let times = json(&["switch-time", "--machine", "consumer"]);
    let seconds = times["times"][0]["value"]["seconds"].as_f64().expect("a number");
    assert!((seconds - 92.45).abs() < 0.05, "{times}");
    let plane = json(&["contour", "nc", "--points", "3"]);
    assert_eq!(plane["designs"][0]["scores"].as_array().expect("rows").len(), 3);
    let fleet = json(&["fleet", "--groups", "1000"]);
    assert!(fleet["expected"]["lost_devices"]["closed_form"].as_f64().expect("a number") > 100.0);
    let estimate = json(&["estimate", "R=0", "--trials", "100", "--faults", "1"]);
    assert_eq!(estimate["outcomes"][0]["p_k"]["value"], 0.0);
    let compare = json(&["compare"]);
    assert_eq!(compare["machines"].as_array().expect("machines").len(), 4);
}

#[test]
fn every_mistake_is_refused_with_what_is_valid() {
    for (arguments, wanted) in [
        (&["score", "nc", "--memory", "-1 FIT/Mbit"][..], "from 0 to"),
        (&["score", "nc", "--memory", "25 apples"], "FIT/Mbit, errors/s/bit or index"),
        (&["score", "nc", "--memory", "14.2"], "needs a unit"),
        (&["score", "nc", "--disk", "2 errors/bit"], "from 0 to 1"),
        (&["score", "nc", "--residency", "-1s"], "from 0s on"),
        (&["score", "nc", "--residency", "1"], "write for example"),
        (&["score", "nc", "--goal", "yottabyte"], "zettabyte"),
        (&["score", "nc", "--machine", "consumr"], "did you mean consumer?"),
        (&["score", "zsf"], "did you mean zfs?"),
        (&["score", "nowhere.yaml"], "cannot read nowhere.yaml"),
        (&["contour", "--disk-index", "-1..3"], "from 0 to 60"),
        (&["contour", "--points", "1"], "2..=2000"),
        (&["compare", "--plot", "x.pdf"], ".svg, .png or .html"),
        (&["fleet", "--undetected", "1.1"], "from 0 to 1"),
        (&["fleet", "--bursts", "1"], "from 0 to below 1"),
        (&["fleet", "--clustering", "-1"], "above 0"),
        (&["fleet", "--failures", "-1 /year"], "from 0 on"),
        (&["fleet", "--years", "0s"], "above 0"),
        (&["fleet", "--redundancy", "60+60"], "from 1+0 to 64"),
        (&["fleet", "--errors", "1e9 /year"], "at most 10000"),
        (&["fleet", "--faults", "nowhere.yaml"], "cannot read nowhere.yaml"),
        (&["fleet", "--faults", "x.yaml", "--failures", "1 %/year"], "cannot be used with"),
        (&["estimate", "R=3", "--trials", "2", "--faults", "1"], "more outcomes than the 2 trials"),
        (&["estimate", "R=-3", "--trials", "2", "--faults", "1"], "from 0 on"),
        (&["estimate", "R=3", "--faults", "1"], "--trials"),
        (&["estimate", "examples"], "there is no run in examples"),
    ] {
        let ended = model(arguments);
        assert_eq!(ended.code, 2, "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(wanted), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_mistake_in_a_path_file_is_shown_where_it_stands() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("wrong.yaml");
    fs::write(
        &file,
        "stages:\n  - device: { memory: { rate: 14.2 } }\n    time: residency\n    protection: crc32\n",
    )
    .expect("written");
    let ended = model(&["score", file.to_str().expect("UTF-8")]);
    assert_eq!(ended.code, 2);
    let text = ended.stderr.replace(&format!("{}/", folder.path().display()), "");
    assert_snapshot!(text);
}

#[test]
fn pictures_are_drawn_in_every_format() {
    let folder = tempfile::tempdir().expect("a folder");
    for verb in ["compare", "switch-time", "contour", "fleet"] {
        for (extension, begin) in [("svg", &b"<svg"[..]), ("png", b"\x89PNG"), ("html", b"<!doctype html>")] {
            let file = folder.path().join(format!("{verb}.{extension}"));
            let quick: &[&str] = match verb {
                "contour" => &["--points", "40"],
                "fleet" => &["--groups", "10000", "--redundancy", "1+1", "--quiet"],
                _ => &[],
            };
            good(&[&[verb, "--plot", file.to_str().expect("UTF-8")][..], quick].concat());
            let content = fs::read(&file).expect("it is written");
            assert!(content.starts_with(begin) && content.len() > 2000, "{verb}.{extension}");
        }
    }
    let ended = model(&["compare", "--plot", "/nowhere/x.svg"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
}

#[test]
fn results_become_estimates_and_coverage() {
    let folder = tempfile::tempdir().expect("a folder");
    for (number, silent) in [0, 0, 1, 0].into_iter().enumerate() {
        let run = folder.path().join(format!("run-{number}"));
        fs::create_dir(&run).expect("a folder");
        let text = format!(
            r#"{{"format":1,"noticed":[{}],"counts":{{"failures":{silent},"reported":9,"repaired":0,"silent":{silent}}},"faults":[{{"faults":10,"fates":{{"untriggered":0}}}}]}}"#,
            if number == 3 { "\"it could not be mounted again: no superblock\"" } else { "" }
        );
        fs::write(run.join("run.json"), text).expect("written");
    }
    let path = folder.path().to_str().expect("UTF-8");
    assert_snapshot!(good(&["estimate", path]));
    let found = json(&["estimate", path]);
    assert_eq!((&found["faults_per_trial"], &found["coverage"]["silent"]), (&10.into(), &1.into()));
}

#[test]
fn the_commands_of_the_documentation_work_as_they_stand_there() {
    let text = fs::read_to_string(root().join("docs/model.md")).expect("the page");
    let mut found = 0;
    let mut inside = false;
    let folder = tempfile::tempdir().expect("a folder");
    for line in text.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ => {}
        }
        let Some(command) = line.strip_prefix("$ rotproof model ").filter(|_| inside) else { continue };
        // Pictures go to a folder of the test.
        let command = command.replace("--plot ", &format!("--plot {}/", folder.path().display()));
        let output = Command::new("bash")
            .args(["-c", &format!("\"$0\" model {command}"), env!("CARGO_BIN_EXE_rotproof")])
            .current_dir(root())
            .stdin(Stdio::null())
            .output()
            .expect("bash starts");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        found += 1;
    }
    assert!(found >= 8, "the page shows its commands");
}
