//! Power loss under the personalities: every file is judged, by what was fsynced.

use super::rig::{Rig, Run, Trial};

/// A small load of files, and the states that a power loss during it may leave.
fn trial(subject: &str, size: &str, above: &str, personality: &str, crash: &str, expect: &str) -> Trial {
    Trial::new(format!(
        "seed: 5\nstack: [memory: {{ size: {size} }}, record{above}]\nsubject: {subject}\n\
         load: {{ personality: {{ {personality} }} }}\ncrash: {{ workers: 2, {crash} }}\n{expect}"
    ))
}

const VARMAIL: &str =
    "varmail: { files: 24, threads: 2, loops: 15, directory_width: 8, file_size: 6KiB, append: 6KiB }";

fn kinds(run: &Run) -> Vec<String> {
    let failures = run.json["crash"]["failures"].as_array().expect("failures");
    let kind = |failure: &serde_json::Value| failure["findings"][0]["kind"].as_str().map(str::to_owned);
    failures.iter().filter_map(kind).collect()
}

#[test]
fn what_varmail_has_fsynced_is_there_whole_in_every_state() {
    let rig = Rig::new();
    // As many as differ; how many that are depends on how many writes the kernel makes of the load.
    for (subject, size, states, least) in [
        ("ext4", "48MiB", 300, 120),
        ("{ ext4: { mount: [data=journal] } }", "48MiB", 100, 30),
        ("xfs", "320MiB", 100, 40),
        ("btrfs", "160MiB", 100, 40),
    ] {
        let run = rig.run(&trial(subject, size, "", VARMAIL, &format!("states: {states}"), ""));
        run.assert_passed();
        assert!(run.count("states") >= least, "{subject}: {}", run.text);
        assert!(run.text.contains("the load's oracle"), "{}", run.text);
        assert!(run.json["crash"]["not_shown"].is_null(), "all of it is judged: {}", run.json["crash"]);
        let marks = run.json["crash"]["recording"]["marks"].as_u64().expect("a number");
        assert!(marks > 60, "an fsync or deletion each: {marks}");
    }
}

#[test]
fn a_cache_that_lies_about_flush_loses_mail_and_the_smallest_witness_says_whose() {
    let rig = Rig::new();
    let crash = "states: 60, ways: [persistence_points, prefix_at_write, single_writes]";
    // XFS writes little beside its log.
    for (subject, size, cache) in
        [("ext4", "48MiB", "1MiB"), ("btrfs", "160MiB", "1MiB"), ("xfs", "320MiB", "64KiB")]
    {
        let lying = format!(", {{ write_cache: {{ size: {cache}, ignores: both }} }}");
        let expect = "expect: { failing_states: \">= 1\" }";
        let run = rig.run(&trial(subject, size, &lying, VARMAIL, crash, expect));
        run.assert_passed();
        let kinds = kinds(&run);
        assert!(
            kinds.iter().any(|kind| ["lost", "lost file"].contains(&kind.as_str())),
            "{subject}: {kinds:?}"
        );
        let witnesses = run.json["crash"]["witnesses"].as_array().expect("witnesses");
        let stories: Vec<&str> = witnesses.iter().filter_map(|told| told["story"].as_str()).collect();
        let tells = |story: &&str| story.contains("has returned") && story.contains("f");
        assert!(stories.iter().any(tells), "{subject}: {stories:?}");
        for told in witnesses {
            // The first finding is what the failure is called by.
            let found = told["witness"]["findings"].as_array().expect("findings");
            assert!(found.iter().any(|finding| finding["kind"] == told["kind"]), "{subject}: {told}");
        }
        let page = std::fs::read_to_string(run.file("report.html")).expect("a page");
        assert!(page.contains("\nFound:\n"), "the page tells the story line by line");
    }
    let honest = ", { write_cache: { size: 1MiB } }";
    rig.run(&trial("ext4", "48MiB", honest, VARMAIL, crash, "")).assert_passed();
}

#[test]
fn what_is_not_judged_of_a_load_of_files_is_named() {
    let rig = Rig::new();
    for (personality, not_shown) in [
        ("fileserver: { files: 12, threads: 2, loops: 4, file_size: 8KiB, append: 4KiB }", None),
        ("webserver: { files: 12, threads: 2, loops: 2, log_size: 4MiB }", Some("the log of the load")),
        (
            "mail_store: { files: 4, threads: 2, loops: 30, file_size: 64KiB, log_size: 4MiB }",
            Some("in place"),
        ),
    ] {
        let run_with = |expect| rig.run(&trial("ext4", "64MiB", "", personality, "states: 40", expect));
        let run = run_with("expect: { unknown_states: any }");
        // What is judged in part has not passed, and fails unless just that is expected.
        let (states, part) = (run.count("states"), run.count("partly_judged_states"));
        assert_eq!(part, if not_shown.is_some() { states } else { 0 }, "{personality}: {}", run.text);
        let words = format!("0 failing, 0 unknown, {part} partly judged");
        let page = std::fs::read_to_string(run.file("report.html")).expect("a page");
        // A terminal breaks lines.
        let printed = run.text.split_whitespace().collect::<Vec<_>>().join(" ");
        for text in [&page, &printed] {
            assert_eq!(text.contains(&words), not_shown.is_some(), "{personality}: {words}");
        }
        assert_eq!(run.json["crash"]["partly_judged"], part, "{personality}");
        assert_eq!(run.json["crash"]["passed"], states - part, "{personality}");
        match not_shown {
            None => run.assert_passed(),
            Some(_) => {
                assert_eq!(run.json["verdict"], "fail", "{}", run.text);
                run_with("expect: { partly_judged_states: any }").assert_passed();
            }
        }
        let told = run.json["crash"]["not_shown"][0].as_str();
        assert_eq!(told.is_some(), not_shown.is_some(), "{personality}: {told:?}");
        assert!(not_shown.is_none_or(|part| told.is_some_and(|told| told.contains(part))), "{told:?}");
    }
}
