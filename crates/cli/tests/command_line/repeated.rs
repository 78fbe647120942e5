//! What a user sees of repeated trials and of two that are compared.

use std::fmt::Write;
use std::fs;

use insta::assert_snapshot;

use crate::folder::{Ended, Folder};

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
