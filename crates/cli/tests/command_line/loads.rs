//! What a user sees of a load: its figures, and that what it wrote is right.

use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;

use crate::folder::Folder;

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
