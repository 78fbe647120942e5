//! What `run.json` of a load without a trial says (`rotproof load --results`), in the words of a page.

use rotproof_report::{Device, Page, Row};
use serde_json::{Value, json};

use super::described::{
    counted, date, environment, latencies, list, load_facts, malformed, number, performance, steadiness,
    text, variation,
};

/// Whether it is that of a load.
pub(super) fn is_one(run: &Value) -> bool {
    run["target"].is_string() && run["subject"].is_null()
}

/// Everything but what happened when and where.
pub(super) fn page(run: &Value) -> Page {
    let seed = run["seed"].as_u64().unwrap_or_default();
    let is_interrupted = run["interrupted"] == true;
    let mut notes: Vec<String> = malformed(&run["trace"]).into_iter().chain(variation(run)).collect();
    notes.extend(steadiness(&run["until_steady"]));
    if run["virtual_time"] == true {
        notes.push("All times are virtual: the load is the same to the byte every time.".to_owned());
    }
    if is_interrupted {
        notes.push("The load was interrupted: what is here is what was done up to then.".to_owned());
    }
    let hung = run["hung"].as_array().map_or(0, Vec::len) as u64;
    if hung > 0 {
        notes.push(format!("{} took longer than the load's limit.", counted(hung, "request")));
    }
    let started = run["wall_clock"]["started_unix_seconds"].as_f64();
    let version = text(&run["rotproof"]);
    let told = [
        Some(format!("a load, seed {seed}")),
        (!version.is_empty()).then(|| format!("rotproof {version}")),
        started.map(date),
    ];
    Page {
        name: text(&run["target"]),
        subtitle: told.into_iter().flatten().collect::<Vec<_>>().join(", "),
        passes: passes(run).filter(|_| !is_interrupted),
        summary: summary(run),
        stack: stack(run),
        load: load_facts(&what_it_did(run)),
        performance: list(&run["performance"], performance).into_iter().chain(of_clients(run)).collect(),
        latencies: latencies(&run["performance"]),
        environment: environment(run),
        command: text(&run["command"]),
        notes,
        ..Page::default()
    }
}

/// What each client did in the run, if the load had any.
fn of_clients(run: &Value) -> Vec<Row> {
    let clients = run["clients"].as_array().into_iter().flatten();
    clients
        .flat_map(|client| {
            let lines = client["performance"].as_array().into_iter().flatten();
            lines.filter(|line| line["phase"] == "run").map(|line| {
                let row = performance(line);
                Row { name: format!("{}: {}", text(&client["client"]), row.name), ..row }
            })
        })
        .collect()
}

fn failures(run: &Value) -> u64 {
    run["failures"].as_array().map_or(0, Vec::len) as u64
}

/// None where nothing was verified, and nothing went wrong either.
fn passes(run: &Value) -> Option<bool> {
    let went_wrong = failures(run) > 0 || number(&run["errors"]) > 0;
    let was_verified = number(&run["verified_blocks"]) > 0 || number(&run["verified_bytes"]) > 0;
    if went_wrong { Some(false) } else { was_verified.then_some(true) }
}

fn summary(run: &Value) -> String {
    let (failures, errors) = (failures(run), number(&run["errors"]));
    let (blocks, files) = (number(&run["verified_blocks"]), number(&run["files"]));
    let is_of_files = !run["personality"].is_null();
    let mut sentences = Vec::new();
    if errors > 0 {
        let thing = if is_of_files { "operation" } else { "request" };
        sentences.push(format!("{} ended with an error.", counted(errors, thing)));
    }
    if failures > 0 {
        let whose = if is_of_files { " of files" } else { "" };
        sentences.push(format!("{}{whose} wrong, unreadable or unwritable.", counted(failures, "block")));
    }
    if sentences.is_empty() {
        sentences.push(match (is_of_files, run["verified"] == false) {
            _ if run["interrupted"] == true => "What was written was not all read back.".to_owned(),
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
fn stack(run: &Value) -> Vec<Device> {
    let size = run["size_bytes"].as_f64().map(|bytes| rotproof_report::Unit::Bytes.write(bytes));
    let (name, oracle) = match (run["personality"].is_null(), run["verified"] == false) {
        (false, _) => ("load of files", "every file known"),
        (true, false) => ("load", "with its oracle"),
        (true, true) => ("load", "without verification"),
    };
    let device =
        |name: &str, detail: &str| Device { name: name.into(), detail: detail.into(), has_faults: false };
    vec![device(&text(&run["target"]), &size.unwrap_or_default()), device(name, oracle)]
}

/// As the load of a trial says it.
fn what_it_did(run: &Value) -> Value {
    if run["personality"].is_null() {
        return run["load"].clone();
    }
    json!({ "personality": run["personality"], "duration": run["duration"] })
}

/// What the map of failures takes from `run.json` of a trial: how large the objects are.
pub(super) fn sizes(run: &Value) -> Value {
    let mut sizes = serde_json::Map::new();
    // A load of blocks has one object, its target.
    if run["personality"].is_null() {
        for failure in run["failures"].as_array().into_iter().flatten() {
            sizes.insert(text(&failure["object"]), run["size_bytes"].clone());
        }
    }
    json!({ "failures": { "object_bytes": sizes } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_client_did_stands_below_what_all_did() {
        let line =
            |phase: &str, requests: u64| json!({ "phase": phase, "operation": "read", "requests": requests });
        let client = |name: &str, requests: u64| json!({ "client": name, "performance": [line("run", requests), line("check", 1)] });
        let run = json!({ "performance": [line("run", 7)], "clients": [client("a", 3), client("b", 4)] });
        let rows = page(&run).performance;
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
                json!({ "verified": true, "errors": 1, "failures": [{}, {}] }),
                "1 request ended with an error. 2 blocks wrong, unreadable or unwritable.",
                Some(false),
            ),
            (
                json!({ "personality": "varmail", "files": 1, "verified_bytes": 9 }),
                "1 file there in the end, read back and right.",
                Some(true),
            ),
            (
                json!({ "interrupted": true, "verified": true, "verified_blocks": 0 }),
                "What was written was not all read back.",
                None,
            ),
        ] {
            assert_eq!((summary(&run).as_str(), passes(&run)), (wanted, judged), "{run}");
        }
    }

    #[test]
    fn an_empty_file_makes_a_page_without_a_panic() {
        let page = page(&json!({ "target": "x" }));
        assert_eq!((page.name.as_str(), page.subtitle.as_str()), ("x", "a load, seed 0"));
        assert!(page.command.is_empty() && page.load.is_empty());
    }
}
