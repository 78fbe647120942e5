//! What a load without a trial leaves beside its tables: `run.json`, and the page.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rotproof_block::Result;
use rotproof_record::RunFolder;
use rotproof_record::statistics::{series, variation};
use rotproof_results::folder::ResultsFolder;
use rotproof_results::run::{LoadRun, LoadWallClock};
use rotproof_results::{page, write_run};

/// Writes both into the folder of the results, and gives it its name: `found` is what the load found; `command` repeats it.
pub fn write_results(
    folder: &ResultsFolder,
    found: LoadRun,
    command: &str,
    started: SystemTime,
) -> Result<()> {
    write_into(folder.inside(), found, command, started).map_err(|error| folder.told(error))?;
    folder.publish()
}

fn write_into(folder: &Path, found: LoadRun, command: &str, started: SystemTime) -> Result<()> {
    let since = started.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let run = LoadRun {
        format: Some(rotproof_results::FORMAT),
        rotproof: Some(env!("CARGO_PKG_VERSION").into()),
        command: Some(command.to_owned()),
        throughput_variation: variation(&series(&RunFolder::open(folder)?.intervals()?)),
        wall_clock: Some(LoadWallClock {
            started_unix_seconds: since,
            load: found.effort_per_request.or(found.effort_per_operation),
            environment: Some(rotproof_machine::environment()),
        }),
        ..found
    };
    write_run(folder, &run)?;
    page::write(folder).map(drop)
}
