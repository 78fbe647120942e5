//! What a user sees of plans and job files of other programs, and of lines in the words of fio.

use std::fs;

use insta::assert_snapshot;

use crate::folder::Folder;

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
