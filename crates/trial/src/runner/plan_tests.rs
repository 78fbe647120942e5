//! Whether what a plan names comes to pass: targets in the prefill, and traces of which little or nothing can be read.

use std::path::Path;

use rotproof_block::{ErrorKind, Result};

use super::{Finished, RunOptions, run};
use crate::file::{Overrides, TrialFile};

fn run_in(folder: &Path, yaml: &str) -> Result<Finished> {
    std::fs::write(folder.join("t.yaml"), yaml).expect("written");
    let trial = TrialFile::open(&folder.join("t.yaml"), &Overrides::default())
        .unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    let options = RunOptions {
        results: folder.join("results"),
        overwrite: false,
        replay: None,
        cancel: rotproof_machine::Cancel::default(),
        monitor: std::sync::Arc::default(),
    };
    run(&trial, &options)
}

const ANY: &str = "expect: { failures: '>= 0', silent: '>= 0', unexplained: '>= 0' }\n";

#[test]
fn a_target_in_the_prefill_is_met_also_where_the_load_writes_it_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let hits = |load: &str, rule: &str| {
        let yaml = format!(
            "runtime: simulated\nstack: [memory: {{ size: 1MiB }}]\nload: {load}\nfaults: ['{rule}: zeros']\n{ANY}"
        );
        run_in(folder.path(), &yaml).unwrap_or_else(|error| panic!("{error}")).report.counts.injections
    };
    let rewritten = "{ total: 1MiB, prefill: true }";
    assert_eq!(hits(rewritten, "write, target=file(device, block=7), during=prefill"), 1);
    assert_eq!(hits(rewritten, "write, target=last_block_of_every(128KiB), during=prefill"), 8);
    assert_eq!(hits(rewritten, "write, target=file(device, block=7), during=run"), 1, "once, in the run");
    assert_eq!(hits(rewritten, "write, target=file(device, block=7), during=prefill|run"), 2, "in both");
    assert_eq!(hits("{ reads: 100%, total: 1MiB }", "write, target=unique, during=prefill"), 1);
    // What a load by time will write nobody knows, but what was there before.
    let by_time = "{ duration: 1s, prefill: true, think_time: 100ms }";
    assert_eq!(hits(by_time, "write, target=last_block_of_every(128KiB), during=prefill"), 8);
}

#[test]
fn a_trace_with_malformed_lines_says_so_and_one_without_an_access_is_no_trial() {
    let folder = tempfile::tempdir().expect("a folder");
    let yaml =
        |load: &str| format!("runtime: simulated\nstack: [memory: {{ size: 1MiB }}]\nload: {load}\n{ANY}");
    std::fs::write(
        folder.path().join("some.spc"),
        "0,0,4096,W,0.0\nnonsense\n0,8,4096,R,0.1\n0,x,4096,R,0.2\n",
    )
    .expect("written");
    let found = run_in(folder.path(), &yaml("{ trace: { file: some.spc, format: spc } }")).expect("a run");
    let trace = found.report.trace.as_ref().expect("a trace");
    assert_eq!((trace.accesses, trace.malformed, trace.malformed_lines[0].number), (2, 2, 2));
    let page = std::fs::read_to_string(found.folder.join(rotproof_results::page::FILE_NAME)).expect("a page");
    assert!(page.contains("Of the trace 2 malformed lines could not be replayed: line 2 ("), "{page}");

    for (name, text) in [("none.spc", "nonsense\nmore of it\n"), ("empty.spc", "")] {
        std::fs::write(folder.path().join(name), text).expect("written");
        let yaml = yaml(&format!("{{ trace: {{ file: {name}, format: spc }} }}"));
        std::fs::write(folder.path().join("t.yaml"), yaml).expect("written");
        let mistakes = TrialFile::open(&folder.path().join("t.yaml"), &Overrides::default())
            .expect_err("nothing would be tried");
        assert!(mistakes.to_string().contains("there is no access in"), "{mistakes}");
    }
    std::fs::write(folder.path().join("reads.spc"), "0,0,4096,R,0.0\n0,8,4096,R,0.1\n").expect("written");
    let error = run_in(folder.path(), &yaml("{ trace: { file: reads.spc, format: spc, skip: [read] } }"))
        .expect_err("nothing was tried");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("2 accesses were left out by `skip`"), "{error}");
}
