//! The page of a run that has just been made.

use std::fs;
use std::path::{Path, PathBuf};

use rotproof_results::page;

use super::{RunOptions, run};
use crate::file::{Overrides, TrialFile};

/// The folder of a run with faults of several kinds under virtual time.
fn a_run(parent: &Path) -> PathBuf {
    let yaml = "name: shown\nruntime: simulated\nseed: 3\nstack: [disk: { profile: nvme, size: 8MiB }]\n\
                load: { pattern: random, reads: 50%, total: 16MiB }\nfaults:\n\
                - 'name=slow, read, at=10ms+20ms: delay(2ms)'\n- 'name=rot, read, every=100, sticky: zeros'\n\
                expect: { silent: '>= 1' }\n";
    let trial = TrialFile::parse("t.yaml", yaml.as_bytes(), &Overrides::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let options = RunOptions {
        results: parent.to_owned(),
        overwrite: false,
        replay: None,
        cancel: rotproof_machine::Cancel::default(),
        monitor: std::sync::Arc::default(),
    };
    run(&trial, &options).unwrap_or_else(|error| panic!("{error}")).folder
}

#[test]
fn the_page_of_a_run_shows_what_its_files_hold() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = a_run(parent.path());
    let page = page::read(&folder).unwrap_or_else(|error| panic!("{error}"));
    let ledger = fs::read_to_string(folder.join("ledger.jsonl")).expect("a ledger").lines().count();
    assert!(ledger > 10);
    assert_eq!(page.timeline.hits.len(), ledger);
    assert_eq!(page.passes, Some(true));
    assert_eq!(page.faults.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["slow", "rot"]);
    assert_eq!(page.faults.iter().map(|row| row.hits).sum::<u64>(), ledger as u64);
    assert!(page.timeline.phases.iter().any(|phase| phase.name == "run"));
    assert!(page.timeline.seconds > 0.0);
    for title in ["Throughput", "Requests"] {
        let chart = page.timeline.charts.iter().find(|chart| chart.title == title);
        let lines = &chart.unwrap_or_else(|| panic!("{title}")).lines;
        assert!(lines.iter().flat_map(|line| &line.points).any(|&(_, value)| value > 0.0), "{title}");
    }
    assert_eq!(page.places[0].marks.len(), ledger, "every hit is on the map of the device");
    assert!(page.command.contains("--seed 3"), "{}", page.command);
    let text = fs::read_to_string(folder.join(page::FILE_NAME)).expect("the run has written it");
    let again = page::write(&folder).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(text, fs::read_to_string(again).expect("written"), "the same page again");
}

#[test]
fn figures_become_files_of_both_kinds() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = a_run(parent.path());
    let into = parent.path().join("figures");
    let written = page::write_figures(&folder, &into).unwrap_or_else(|error| panic!("{error}"));
    for name in ["faults.svg", "throughput.png", "latency-histogram.svg", "places.png"] {
        let file = into.join(name);
        assert!(written.contains(&file), "{written:?}");
        let bytes = fs::read(file).expect("written");
        assert!(bytes.starts_with(b"<svg") || bytes.starts_with(b"\x89PNG"), "{name}");
    }
}
