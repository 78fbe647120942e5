//! What `run.json` of a load without a trial says (`rotproof load --results`), in the words of a page.

use std::collections::BTreeMap;

use rotproof_load::Failure;
use rotproof_report::{Device, Page, Row};
use serde_json::{Value, json};

use super::described::{
    counted, date, environment, latencies, load_facts, malformed, performance, steadiness, variation,
};
use crate::run::LoadRun;

/// Everything but what happened when and where.
pub(super) fn page(run: &LoadRun) -> Page {
    let mut notes: Vec<String> = run.trace.iter().filter_map(|trace| malformed(&trace.read)).collect();
    notes.extend(run.throughput_variation.map(variation));
    notes.extend(run.until_steady.as_ref().map(steadiness));
    if run.virtual_time {
        notes.push("All times are virtual: the load is the same to the byte every time.".to_owned());
    }
    if run.interrupted {
        notes.push("The load was interrupted: what is here is what was done up to then.".to_owned());
    }
    if !run.hung.is_empty() {
        notes.push(format!(
            "{} took longer than the load's limit.",
            counted(run.hung.len() as u64, "request")
        ));
    }
    let told = [
        Some(format!("a load, seed {}", run.seed)),
        run.rotproof.as_ref().map(|version| format!("rotproof {version}")),
        run.wall_clock.as_ref().map(|clock| date(clock.started_unix_seconds)),
    ];
    let clock = run.wall_clock.as_ref();
    let machine = clock.and_then(|clock| clock.environment.as_ref());
    let effort = clock.and_then(|clock| clock.load.as_ref());
    Page {
        name: run.target.clone(),
        subtitle: told.into_iter().flatten().collect::<Vec<_>>().join(", "),
        passes: passes(run).filter(|_| !run.interrupted),
        summary: summary(run),
        stack: stack(run),
        load: load_facts(&what_it_did(run)),
        performance: run.performance.iter().map(performance).chain(of_clients(run)).collect(),
        latencies: latencies(&run.performance),
        environment: environment((machine, None, effort), []),
        command: run.command.clone().unwrap_or_default(),
        notes,
        ..Page::default()
    }
}

/// What each client did in the run, if the load had any.
fn of_clients(run: &LoadRun) -> impl Iterator<Item = Row> {
    run.clients.iter().flatten().flat_map(|client| {
        client.performance.iter().filter(|line| line.phase == "run").map(|line| {
            let row = performance(line);
            Row { name: format!("{}: {}", client.client, row.name), ..row }
        })
    })
}

/// None where nothing was verified, and nothing went wrong either.
fn passes(run: &LoadRun) -> Option<bool> {
    let went_wrong = !run.failures.is_empty() || run.errors > 0;
    let was_verified = run.verified_blocks > Some(0) || run.verified_bytes > Some(0);
    if went_wrong { Some(false) } else { was_verified.then_some(true) }
}

fn summary(run: &LoadRun) -> String {
    let (blocks, files) = (run.verified_blocks.unwrap_or(0), run.files.unwrap_or(0));
    let is_of_files = run.is_of_files();
    let mut sentences = Vec::new();
    if run.errors > 0 {
        let thing = if is_of_files { "operation" } else { "request" };
        sentences.push(format!("{} ended with an error.", counted(run.errors, thing)));
    }
    if !run.failures.is_empty() {
        let whose = if is_of_files { " of files" } else { "" };
        let failures = counted(run.failures.len() as u64, "block");
        sentences.push(format!("{failures}{whose} wrong, unreadable or unwritable."));
    }
    if sentences.is_empty() {
        sentences.push(match (is_of_files, run.verified == Some(false)) {
            _ if run.interrupted => "What was written was not all read back.".to_owned(),
            (true, _) => format!("{} there in the end, read back and right.", counted(files, "file")),
            (false, true) => "What was written was not verified.".to_owned(),
            (false, false) if blocks == 0 => {
                "Nothing was written, so what was read could not be verified.".to_owned()
            }
            (false, false) => format!("{} written, read back and right.", counted(blocks, "block")),
        });
    }
    sentences.join(" ")
}

/// The target, and the load on it.
fn stack(run: &LoadRun) -> Vec<Device> {
    let size = run.size_bytes.map(|bytes| rotproof_report::Unit::Bytes.write(bytes as f64));
    let (name, oracle) = match (run.is_of_files(), run.verified == Some(false)) {
        (true, _) => ("load of files", "every file known"),
        (false, false) => ("load", "with its oracle"),
        (false, true) => ("load", "without verification"),
    };
    let device =
        |name: &str, detail: &str| Device { name: name.into(), detail: detail.into(), has_faults: false };
    vec![device(&run.target, &size.unwrap_or_default()), device(name, oracle)]
}

/// As the load of a trial says it.
fn what_it_did(run: &LoadRun) -> Value {
    match &run.personality {
        Some(personality) => json!({ "personality": personality, "duration": run.duration }),
        None => json!(run.load),
    }
}

/// How large the objects with failures are, as far as that is known.
pub(super) fn sizes(run: &LoadRun) -> BTreeMap<String, u64> {
    // A load of blocks has one object, its target.
    let size = run.size_bytes.filter(|_| !run.is_of_files());
    let of = |failure: &Failure| Some((failure.object.clone(), size?));
    run.failures.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(said: &Value) -> LoadRun {
        serde_json::from_value(said.clone()).expect("a load")
    }

    #[test]
    fn what_each_client_did_stands_below_what_all_did() {
        let line =
            |phase: &str, requests: u64| json!({ "phase": phase, "operation": "read", "requests": requests });
        let client = |name: &str, requests: u64| json!({ "client": name, "performance": [line("run", requests), line("check", 1)] });
        let run = json!({ "performance": [line("run", 7)], "clients": [client("a", 3), client("b", 4)] });
        let rows = page(&load(&run)).performance;
        let told: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.cells[0].as_str())).collect();
        assert_eq!(told, [("run read", "7"), ("a: run read", "3"), ("b: run read", "4")]);
    }

    #[test]
    fn what_a_load_found_is_told_in_a_sentence_and_judged_only_where_something_was_verified() {
        for (run, wanted, judged) in [
            (
                json!({ "verified": true, "verified_blocks": 3 }),
                "3 blocks written, read back and right.",
                Some(true),
            ),
            (
                json!({ "verified": true, "verified_blocks": 0 }),
                "Nothing was written, so what was read could not be verified.",
                None,
            ),
            (json!({ "verified": false }), "What was written was not verified.", None),
            (
                json!({ "verified": true, "errors": 1, "verified_blocks": 2 }),
                "1 request ended with an error.",
                Some(false),
            ),
            (
                json!({ "personality": { "varmail": {} }, "files": 1, "verified_bytes": 9 }),
                "1 file there in the end, read back and right.",
                Some(true),
            ),
            (
                json!({ "interrupted": true, "verified": true, "verified_blocks": 0 }),
                "What was written was not all read back.",
                None,
            ),
        ] {
            let told = load(&run);
            assert_eq!((summary(&told).as_str(), passes(&told)), (wanted, judged), "{run}");
        }
    }

    #[test]
    fn an_empty_file_makes_a_page_without_a_panic() {
        let page = page(&load(&json!({ "target": "x" })));
        assert_eq!((page.name.as_str(), page.subtitle.as_str()), ("x", "a load, seed 0"));
        assert!(page.command.is_empty() && page.load.is_empty());
    }
}
