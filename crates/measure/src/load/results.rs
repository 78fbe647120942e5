//! What a load without a trial leaves beside its tables: `run.json`, and the page.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_record::RunFolder;
use rotproof_record::statistics::{series, variation};
use rotproof_results::folder::ResultsFolder;
use rotproof_results::page;
use serde_json::{Value, json};

/// Writes both into the folder of the results, and gives it its name: `found` is what the load found, a map; `command` repeats
/// it.
pub fn write_results(folder: &ResultsFolder, found: Value, command: &str, started: SystemTime) -> Result<()> {
    write_into(folder.inside(), found, command, started).map_err(|error| folder.told(error))?;
    folder.publish()
}

fn write_into(folder: &Path, found: Value, command: &str, started: SystemTime) -> Result<()> {
    let Value::Object(mut run) = found else {
        return Err(Error::new(ErrorKind::Internal, "what a load found is a map"));
    };
    let started = started.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let varies = variation(&series(&RunFolder::open(folder)?.intervals()?));
    let effort =
        ["effort_per_request", "effort_per_operation"].into_iter().find_map(|key| run.get(key)).cloned();
    let more = [
        ("format", rotproof_results::FORMAT.into()),
        ("rotproof", env!("CARGO_PKG_VERSION").into()),
        ("command", command.into()),
        ("throughput_variation", json!(varies)),
        (
            "wall_clock",
            json!({
                "started_unix_seconds": started,
                "load": effort,
                "environment": rotproof_machine::environment(),
            }),
        ),
    ];
    run.extend(more.map(|(key, value)| (key.to_owned(), value)));
    let path = folder.join("run.json");
    File::create_new(&path)
        .and_then(|mut file| file.write_all(format!("{:#}\n", Value::Object(run)).as_bytes()))
        .doing(|| format!("writing {}", path.display()))?;
    page::write(folder).map(drop)
}
