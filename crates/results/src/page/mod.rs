//! The page of a run, from the files in its results folder alone: what `report.html` shows, whoever made the folder and
//! whenever.
//!
//! `described` reads `run.json` and `trial.yaml`, `of_load` that of a load without a trial, `of_crash` that of a recording that was explored, `over_time` the recorded tables and the ledger, `machine` what probes
//! saw, `power_loss` the states of a power loss, `places` where faults and failures lie, `failing` what each block that failed was. How it is
//! drawn is known to `rotproof_report`.

mod described;
mod failing;
mod injections;
mod machine;
mod of_crash;
mod of_load;
mod over_time;
mod places;
mod power_loss;

use std::fs;
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_fault::{Injection, Injections};
use rotproof_machine::write_whole;
use rotproof_plot::{png, svg};
use rotproof_report::{Page, figures, html};
use serde_json::Value;

use crate::read_run;
use crate::run::{LoadRun, Run};
use injections::{Lines, Outline};
pub use over_time::moves_bytes;

/// The page in a results folder.
pub const FILE_NAME: &str = "report.html";

/// How much finer than the page a PNG is.
const PNG_SCALE: f64 = 2.0;

/// The page of the run in `folder`. Fails with [`ErrorKind::Missing`] if that holds no run, [`ErrorKind::Invalid`] if a
/// file in it is not what it should be.
pub fn read(folder: &Path) -> Result<Page> {
    read_with(folder, &Lines::<Injection>::of(folder.join("ledger.jsonl")))
}

/// The same; the ledger of the run need not be read where it is still at hand.
fn read_with(folder: &Path, ledger: &dyn Injections) -> Result<Page> {
    if !folder.join("run.json").is_file() {
        let message = format!(
            "{} holds no run (there is no run.json in it); name a folder that `rotproof run`, or `rotproof load --results`, \
             has written",
            folder.display()
        );
        return Err(Error::new(ErrorKind::Missing, message));
    }
    let run = match read_run(folder)? {
        Run::Crash(run) => return Ok(of_crash::page(&run)),
        Run::Load(run) => return of_load(folder, *run),
        Run::Trial(run) => run,
    };
    let trial: Value = yaml_file(&folder.join("trial.yaml"))?;
    let failures = Lines::<failing::Failed>::of(folder.join("failures.jsonl"));
    let outline = Outline::of(ledger)?;
    let told = failing::Told::of(&failures)?;
    let (mut hits, mut names) = (over_time::Hits::of(&outline), told.names());
    let mut sites = places::Sites::of(&outline, &run.sites);
    ledger.each(&mut |hit| {
        hits.add(hit);
        sites.add(hit);
        names.add(hit);
    })?;
    let mut page = described::page(&run, &trial);
    page.power_loss = run.crash.as_ref().map(|crash| power_loss::section(crash, run.wall_clock.crash));
    page.timeline = over_time::timeline(folder, hits.shown())?;
    machine::show(machine::charts(folder)?, &mut page.timeline);
    page.places = sites.strips();
    page.places.extend(places::objects(&run.failures.object_bytes, &failures)?);
    (page.failing, page.failing_total) = told.shown(&names);
    Ok(page)
}

/// The page of a load without a trial.
fn of_load(folder: &Path, mut run: LoadRun) -> Result<Page> {
    let mut page = of_load::page(&run);
    page.timeline = over_time::timeline(folder, Vec::new())?;
    machine::show(machine::charts(folder)?, &mut page.timeline);
    let sizes = of_load::sizes(&run);
    let failed = |failure| failing::Failed { failure, cause: None };
    let failures: Vec<_> = std::mem::take(&mut run.failures).into_iter().map(failed).collect();
    page.places = places::objects(&sizes, &failures[..])?;
    let told = failing::Told::of(&failures[..])?;
    (page.failing, page.failing_total) = told.shown(&told.names());
    Ok(page)
}

/// Writes the page of the run in `folder` into it, and says where.
pub fn write(folder: &Path) -> Result<PathBuf> {
    write_page(folder, &read(folder)?)
}

/// As [`write()`], for a run whose ledger is still at hand.
pub fn write_with(folder: &Path, ledger: &dyn Injections) -> Result<PathBuf> {
    write_page(folder, &read_with(folder, ledger)?)
}

fn write_page(folder: &Path, page: &Page) -> Result<PathBuf> {
    let path = folder.join(FILE_NAME);
    write_whole(&path, html(page))?;
    Ok(path)
}

/// Writes every chart of the run in `folder` as SVG and PNG into the folder `into`, which is made if need be; says where
/// they are.
pub fn write_figures(folder: &Path, into: &Path) -> Result<Vec<PathBuf>> {
    let page = read(folder)?;
    fs::create_dir_all(into).doing(|| format!("creating {}", into.display()))?;
    let mut written = Vec::new();
    for (name, scene) in figures(&page) {
        let picture = png(&scene, PNG_SCALE)
            .map_err(|error| Error::new(ErrorKind::Internal, format!("drawing {name}: {error}")))?;
        for (extension, bytes) in [("svg", svg(&scene).into_bytes()), ("png", picture)] {
            let path = into.join(format!("{name}.{extension}"));
            write_whole(&path, bytes)?;
            written.push(path);
        }
    }
    Ok(written)
}

fn text_file(path: &Path) -> Result<String> {
    fs::read_to_string(path).doing(|| format!("reading {}", path.display()))
}

fn broken(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Invalid, format!("{} is not what a run writes", path.display())).caused_by(error)
}

fn yaml_file(path: &Path) -> Result<Value> {
    serde_saphyr::from_str(&text_file(path)?).map_err(|error| broken(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_run_is_refused_with_its_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let error = read(folder.path()).expect_err("nothing is there");
        assert_eq!(error.kind(), ErrorKind::Missing);
        fs::write(folder.path().join("run.json"), "{").expect("written");
        let error = read(folder.path()).expect_err("no JSON");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("run.json is not what a run writes"), "{error}");
    }
}
