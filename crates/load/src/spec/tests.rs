//! What a load says, and what makes no sense in it.

use std::time::Duration;

use rotproof_spec::{Path, Problems};

use super::*;

fn problems_of(spec: &LoadSpec) -> Vec<String> {
    let mut problems = Problems::default();
    spec.validate(&Path::root().key("load"), &mut problems);
    problems.iter().map(|problem| problem.path.to_string()).collect()
}

#[test]
fn the_default_load_makes_sense_and_survives_its_text() {
    let spec = LoadSpec::default();
    assert!(problems_of(&spec).is_empty());
    let text = serde_json::to_string(&spec).expect("a load can be written");
    assert_eq!(serde_json::from_str::<LoadSpec>(&text).expect("and read"), spec);
    assert_eq!(serde_json::from_str::<LoadSpec>("{}").expect("everything has a default"), spec);
}

#[test]
fn a_full_description_reads_as_in_the_documentation() {
    let spec: LoadSpec = serde_json::from_str(
        r#"{ "pattern": "random", "reads": "30%", "block_size": "64KiB", "queue_depth": 8, "workers": 2,
             "duration": "10s", "duplicates": 0.3, "flush_every": 64, "prefill": false,
             "files": { "count": 4, "size": "64MiB" } }"#,
    )
    .expect("well-formed");
    assert!(problems_of(&spec).is_empty());
    assert_eq!(spec.duration, Some(Span(Duration::from_secs(10))));
    assert!(spec.has_end() && !LoadSpec::default().has_end());
    assert_eq!(spec.files_in(1), FilesSpec { count: 4, size: Bytes(64 << 20) });
    assert!(serde_json::from_str::<LoadSpec>(r#"{ "blocksize": 4096 }"#).is_err());
}

#[test]
fn every_senseless_value_is_reported_at_its_place() {
    let spec = LoadSpec {
        block_size: Bytes(3 << 10).into(),
        queue_depth: 0,
        workers: 1000,
        total: Some(Bytes(0)),
        requests: Some(0),
        flush_every: Some(0),
        files: Some(FilesSpec { count: 0, size: Bytes(1000) }),
        ..LoadSpec::default()
    };
    assert_eq!(
        problems_of(&spec),
        [
            "load.block_size",
            "load.queue_depth",
            "load.workers",
            "load.flush_every",
            "load.total",
            "load.requests",
            "load.files.count",
            "load.files.size"
        ]
    );
}

#[test]
fn jobs_and_paces_that_make_no_sense_are_reported_at_their_places() {
    for (json, places) in [
        (r#"{ "sequential": "20%" }"#, &["load.sequential"][..]),
        (r#"{ "align": "5KiB" }"#, &["load.align"]),
        (r#"{ "rate": 0 }"#, &["load.rate"]),
        (r#"{ "rate": 5, "think_time": "1ms" }"#, &["load.think_time"]),
        (r#"{ "think_time": { "pause": "1s", "after": "0s" } }"#, &["load.think_time.after"]),
        (r#"{ "think_time": { "pause": "1s", "after": "10s" } }"#, &[]),
        (
            r#"{ "rate": 5, "burst": { "requests": 0, "every": "1ms" } }"#,
            &["load.burst.requests", "load.burst"],
        ),
        (r#"{ "fua": "5%", "reads": "100%" }"#, &["load.fua"]),
        (r#"{ "ramp_up": "5s" }"#, &["load.ramp_up"]),
        (r#"{ "ramp_up": "5s", "duration": "5s" }"#, &[]),
        (r#"{ "until_steady": {}, "duration": "10s" }"#, &[]),
        (r#"{ "until_steady": { "after": "1s" }, "duration": "10s" }"#, &["load.until_steady.window"]),
        (
            r#"{ "until_steady": { "range": "0%" }, "cool_down": 5 }"#,
            &["load.until_steady.range", "load.cool_down"],
        ),
        (r#"{ "ramp_up": 5 }"#, &[]),
        (r#"{ "ramp_up": "1MiB", "cool_down": "1MiB" }"#, &[]),
        (r#"{ "total": "1GiB", "requests": 9, "duration": "5s", "ramp_up": "5s" }"#, &[]),
        (r#"{ "total": "1GiB", "requests": 9, "cool_down": 5 }"#, &[]),
        (r#"{ "total": "1GiB", "duration": "5s", "cool_down": "5s" }"#, &[]),
        (r#"{ "requests": 9, "duration": "5s", "cool_down": 5 }"#, &["load.cool_down"]),
        (r#"{ "total": "1GiB", "cool_down": "5s" }"#, &["load.cool_down"]),
        (r#"{ "duration": "5s", "cool_down": "1MiB" }"#, &["load.cool_down"]),
        (r#"{ "retry": 0 }"#, &["load.retry"]),
        (r#"{ "hung_after": "0s" }"#, &["load.hung_after"]),
        (r#"{ "hung_after": "90s" }"#, &[]),
        (r#"{ "block_size": { "4KiB": "50%", "8KiB": "40%" } }"#, &["load.block_size"]),
        (
            r#"{ "pattern": { "strided": { "by": "8KiB" } }, "block_size": "16KiB" }"#,
            &["load.pattern.strided.by"],
        ),
        (r#"{ "jobs": [{ "workers": 0 }], "reads": "5%" }"#, &["load.jobs", "load.jobs[0].workers"]),
        (r#"{ "jobs": [{ "workers": 200 }, { "workers": 57 }] }"#, &["load.jobs"]),
        (r#"{ "jobs": [{ "space": "60%" }, { "space": "50%" }] }"#, &["load.jobs"]),
        (r#"{ "jobs": [{ "space": "100%" }, {}] }"#, &["load.jobs"]),
        (r#"{ "jobs": [{ "space": "0%" }, {}] }"#, &["load.jobs[0].space"]),
        (r#"{ "jobs": [{ "space": "60%" }, {}] }"#, &[]),
    ] {
        let spec: LoadSpec = serde_json::from_str(json).expect(json);
        assert_eq!(problems_of(&spec), places, "{json}");
    }
    for json in
        [r#"{ "jobs": [{ "total": "1GiB" }] }"#, r#"{ "name": "x" }"#, r#"{ "jobs": [{ "jobs": [] }] }"#]
    {
        serde_json::from_str::<LoadSpec>(json).expect_err(json);
    }
}

#[test]
fn a_command_may_be_given_in_short() {
    let command = |json: &str| serde_json::from_str::<LoadSpec>(json).map(|spec| spec.command);
    let long = |json: &str| command(json).expect(json).expect("there is one");
    for (short, keys) in [
        (r#"{ "command": "true" }"#, r#"{ "command": { "run": "true" } }"#),
        (r#"{ "command": ["dd", "if=x"] }"#, r#"{ "command": { "run": ["dd", "if=x"] } }"#),
    ] {
        assert_eq!(long(short), long(keys));
        let spec = LoadSpec { command: Some(long(short)), ..LoadSpec::default() };
        let text = serde_json::to_string(&spec).expect("can be written");
        assert_eq!(serde_json::from_str::<LoadSpec>(&text).expect("and read"), spec);
    }
    assert_eq!(command(r#"{ "command": null }"#).expect("none"), None);
    for json in [r#"{ "command": 5 }"#, r#"{ "command": { "line": "x" } }"#, r#"{ "command": [["a"]] }"#] {
        command(json).expect_err(json);
    }
}

#[test]
fn a_block_size_below_a_content_block_is_refused() {
    for (block_size, is_refused) in [(0, true), (512, true), (4096, false), (4 << 20, false), (8 << 20, true)]
    {
        let spec = LoadSpec { block_size: Bytes(block_size).into(), ..LoadSpec::default() };
        assert_eq!(!problems_of(&spec).is_empty(), is_refused, "{block_size}");
    }
}

#[test]
fn defaults_that_depend_on_the_target_are_filled_in() {
    let objects = [ObjectInfo::new("a", 10_000), ObjectInfo::new("b", 8192)];
    let resolved = LoadSpec::default().resolve(&objects);
    assert_eq!(resolved.total, Some(Bytes(16_384)), "only whole content blocks count");
    assert_eq!(resolved.prefill, Some(false));
    let reading = LoadSpec { reads: Percent(0.1), requests: Some(7), ..LoadSpec::default() };
    let resolved = reading.resolve(&objects);
    assert_eq!((resolved.total, resolved.requests, resolved.prefill), (None, Some(7), Some(true)));
    assert_eq!(reading.files_in(100 << 20), FilesSpec { count: 4, size: Bytes(20 << 20) });
}
