//! The results folder of a run: the trial, what it found, and the tables (`docs/results.md`).

use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Phase, Result};
use rotproof_fault::{DrawnModel, Plan, Target, TargetKey, TargetReport};
use rotproof_load::personality::FileReport;
use rotproof_load::{EffortPerRequest, LoadReport};
use rotproof_measure::{summarise, summarise_files};
use rotproof_record::statistics::SteadyEnd;
use rotproof_results::folder::ResultsFolder;
use rotproof_results::run::{
    FailureSummary, ModelReport, RuleOutcome, RuleReport, Run, SiteReport, TrialRun, VerdictWord, WallClock,
};
use rotproof_results::{page, write_run};
use serde::Serialize;

use super::course::{self, Course};
use super::{Conducted, Finished, tables};
use crate::file::TrialFile;
use crate::gate;

/// What a run found out, and its results in their folder, which has its name then. Where they cannot be written, it says why.
pub(super) fn write(
    trial: &TrialFile,
    folder: &ResultsFolder,
    plan: &Plan,
    mut conducted: Conducted,
    started: SystemTime,
) -> Finished {
    let failures_written = std::mem::replace(&mut conducted.failures_written, Ok(()));
    let tables = failures_written.and_then(|()| write_tables(trial, folder.inside(), plan, &conducted));
    let (told, tables) = match tables {
        Ok(told) => (told, Ok(())),
        Err(error) => (Told::default(), Err(error)),
    };
    let mut report = report(trial, plan, &conducted, told, started);
    hold_gates(trial, &conducted, &mut report);
    let written = tables
        .and_then(|()| write_files(trial, folder.inside(), &conducted, &report))
        .map_err(|error| folder.told(error))
        .and_then(|()| folder.publish());
    let path = folder.path().to_owned();
    let failures = conducted.failures.listed;
    Finished { folder: path, report, failures, unwritten: written.err().map(Arc::new), left: None }
}

/// What the tables tell, once they are written.
#[derive(Default)]
struct Told {
    course: Course,
    errors: Vec<tables::Errors>,
}

/// Writes the tables and the ledger, and says what they tell.
fn write_tables(trial: &TrialFile, folder: &Path, plan: &Plan, conducted: &Conducted) -> Result<Told> {
    if let Some(recording) = &conducted.recording {
        recording.write_to(folder)?;
    }
    if let Some(device) = &conducted.device {
        device.write_intervals(folder)?;
    }
    if let Some(probes) = &conducted.probes {
        probes.write_to(folder)?;
    }
    let errors = tables::write_ledger(folder, &conducted.ledger)?;
    write_file(&folder.join("ledger.jsonl"), |file| Ok(conducted.ledger.write_to(file)?))?;
    let course = match &conducted.recording {
        Some(_) => course::measure(folder, &trial.record, plan)?,
        None => Course::default(),
    };
    Ok(Told { course, errors })
}

/// Writes everything else.
fn write_files(trial: &TrialFile, folder: &Path, conducted: &Conducted, report: &TrialRun) -> Result<()> {
    let resolved = TrialFile { load: conducted.spec.clone(), ..trial.clone() };
    write_file(&folder.join("trial.yaml"), |file| Ok(file.write_all(resolved.to_yaml()?.as_bytes())?))?;
    write_run(folder, report)?;
    if !conducted.memory.is_empty() {
        write_lines(&folder.join("memory.jsonl"), &conducted.memory)?;
    }
    if let Some(console) = &conducted.console {
        write_file(&folder.join("console.txt"), |file| Ok(file.write_all(console.as_bytes())?))?;
    }
    for (name, output) in conducted.external.iter().flat_map(|external| &external.output) {
        for (stream, mut file) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            write_file(&folder.join(format!("{name}.{stream}")), |into| {
                file.rewind()?;
                std::io::copy(&mut file, into)?;
                Ok(())
            })?;
        }
    }
    page::write_with(folder, &*conducted.ledger).map(drop)
}

type Written = std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn write_file(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Written) -> Result<()> {
    let doing = || format!("writing {}", path.display());
    let mut file = BufWriter::new(File::create_new(path).doing(doing)?);
    let written = write(&mut file).and_then(|()| Ok(file.flush()?));
    written.map_err(|error| match error.downcast::<std::io::Error>() {
        Ok(error) => Error::from_io(*error, doing()),
        Err(error) => Error::new(ErrorKind::Internal, doing()).caused_by(error),
    })
}

fn write_lines<T: Serialize>(path: &Path, lines: &[T]) -> Result<()> {
    write_file(path, |file| {
        for line in lines {
            serde_json::to_writer(&mut *file, line).map_err(std::io::Error::from)?;
            file.write_all(b"\n")?;
        }
        Ok(())
    })
}

fn report(
    trial: &TrialFile,
    plan: &Plan,
    conducted: &Conducted,
    Told { course, errors }: Told,
    started: SystemTime,
) -> TrialRun {
    let verdict = &conducted.verdict;
    let mut failures = FailureSummary {
        by_kind: verdict.kinds.iter().map(|(&kind, &count)| (kind.into(), count)).collect(),
        ..FailureSummary::default()
    };
    failures.by_object.clone_from(&conducted.failures.by_object);
    failures.object_bytes.clone_from(&conducted.object_bytes);
    let shares_blocks = trial.whole_stack().shares_blocks();
    let faults = conducted
        .rules
        .iter()
        .zip(&verdict.rules)
        .enumerate()
        .map(|(index, (rule, outcome))| RuleReport {
            name: rule.name.clone(),
            rule: rule.rule.to_string(),
            model: plan.model_of(index).map(|model| model.name.clone()),
            outcome: outcome.clone(),
            note: note(rule, outcome, errors.get(index).copied().unwrap_or_default())
                .or_else(|| (outcome.fates.unknown > 0).then(|| why_unknown(conducted).to_owned()))
                .or_else(|| shares_blocks.then(|| sharing_note(outcome)).flatten()),
        })
        .collect();
    TrialRun {
        format: rotproof_results::FORMAT,
        rotproof: env!("CARGO_PKG_VERSION").into(),
        name: trial.name.clone(),
        seed: trial.seed,
        runtime: trial.runtime.word().into(),
        subject: conducted.subject.clone(),
        verdict: match (conducted.is_interrupted, verdict.passes()) {
            (true, _) => VerdictWord::Interrupted,
            (false, true) => VerdictWord::Pass,
            (false, false) => VerdictWord::Fail,
        },
        expectations: verdict.expectations.clone(),
        gates: Vec::new(),
        counts: verdict.counts,
        faults,
        sites: conducted
            .stack
            .sites
            .list()
            .0
            .into_iter()
            .map(|(name, bytes)| SiteReport { name, bytes })
            .collect(),
        models: plan.models.iter().map(drawn).collect(),
        failures,
        noticed: conducted.noticed.clone(),
        content: conducted.content,
        trace: conducted.load.iter().find_map(|report| report.trace.clone()),
        external: conducted.external.as_ref().map(|external| external.report.clone()),
        performance: match (&conducted.external, &conducted.files) {
            (Some(external), _) => external.performance.clone(),
            (None, Some(files)) => summarise_files(&files.reports),
            (None, None) => summarise(&conducted.load),
        },
        hung: {
            let of_files = conducted.files.iter().flat_map(|files| &files.reports);
            let of_files = of_files.flat_map(|report| report.hung.clone());
            conducted.load.iter().flat_map(|report| report.hung.clone()).chain(of_files).collect()
        },
        degradation: course.degradation,
        windows: course.windows,
        steady_state: course.steady_state,
        until_steady: until_steady(conducted),
        throughput_variation: course.variation,
        layers: conducted.stack.reports(),
        ledger_digest: (!conducted.ledger_digest.is_empty()).then(|| conducted.ledger_digest.clone()),
        crash: conducted.crash.clone(),
        replay: conducted.replayed.clone(),
        wall_clock: WallClock {
            started_unix_seconds: started.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
            usage: Some(conducted.usage),
            load: effort(conducted),
            probes: conducted
                .probes
                .as_ref()
                .zip(trial.probes_spec())
                .map(|(probes, spec)| probes.report(spec)),
            crash: conducted.crash_pace,
            environment: Some(rotproof_machine::environment()),
            kernel_messages: conducted.kernel_messages.clone(),
        },
    }
}

fn drawn(model: &DrawnModel) -> ModelReport {
    ModelReport { name: model.name.clone(), model: model.model.clone(), rules: model.rules.len() as u64 }
}

/// Holds the gates against what the report says, which has all figures but them.
fn hold_gates(trial: &TrialFile, conducted: &Conducted, report: &mut TrialRun) {
    if conducted.is_interrupted || trial.expect.gates.is_empty() {
        return;
    }
    let run = Run::Trial(Box::new(report.clone()));
    report.gates = gate::hold_against(&run, &trial.expect.gates);
    if report.verdict == VerdictWord::Pass && !report.gates.iter().all(|gate| gate.passes) {
        report.verdict = VerdictWord::Fail;
    }
}

/// How a load ended that was to end when it is steady.
fn until_steady(conducted: &Conducted) -> Option<SteadyEnd> {
    let of_files = conducted.files.iter().flat_map(|files| &files.reports);
    let of_blocks = conducted.load.iter().filter_map(|report| report.until_steady);
    of_blocks.chain(of_files.filter_map(|report| report.until_steady)).next()
}

/// What the load's own threads took for each request.
fn effort(conducted: &Conducted) -> Option<EffortPerRequest> {
    let of_files = conducted.files.iter().flat_map(|files| &files.reports);
    let of_files = of_files.filter(|report| report.phase == Phase::Run);
    let of_blocks = conducted.load.iter().filter(|report| report.phase == Phase::Run);
    let mut found =
        of_blocks.map(LoadReport::effort_per_request).chain(of_files.map(FileReport::effort_per_operation));
    found.next().flatten()
}

fn why_unknown(conducted: &Conducted) -> &'static str {
    match (&conducted.external, conducted.is_interrupted) {
        (Some(_), _) => NO_ORACLE,
        (None, true) => NOT_READ_BACK,
        (None, false) => NOT_SEEN,
    }
}

/// Goes with faults on what the load does not know.
const NOT_SEEN: &str = "unknown are faults that happened where the load could not look, such as the metadata of a file \
                        system, and that nothing was seen to fail of; `unknown: any` allows them";

/// Goes with faults of a run that was interrupted.
const NOT_READ_BACK: &str = "the run was interrupted before everything was read back, so nobody can say what became of \
                             these faults";

/// Goes with faults below a command.
const NO_ORACLE: &str = "the load is a program that Rotproof knows nothing of, so nobody can say whether it saw these \
                         faults; its exit code, its output and its `check` tell what it noticed";

/// Explains what may surprise: an error that spread beyond its block, or contents that never came by.
fn note(aims: &rotproof_fault::RuleReport, outcome: &RuleOutcome, errors: tables::Errors) -> Option<String> {
    let chooses = matches!(aims.rule.matching.target, Some(Target::Seen(_)));
    if chooses && aims.targets.is_empty() {
        return Some(
            "it chose no block: its moment did not come, or by then and later nothing was written that it could choose"
                .to_owned(),
        );
    }
    let by_content = |target: &TargetReport| matches!(target.target, TargetKey::Content { .. });
    if outcome.hits == 0 && aims.targets.iter().any(by_content) {
        return Some(
            "no request carried what it aims at; a content is met only where its 4 KiB reach the device as one \
             aligned block, not changed on the way (smaller blocks, compression, encryption)"
                .to_owned(),
        );
    }
    let tables::Errors { requests, blocks } = errors;
    (outcome.failing_blocks > outcome.faults && blocks > requests).then(|| {
        format!(
            "an error fails its whole request; these had been merged to {:.1} blocks on average, so the \
             neighbours of {} bad {} failed too",
            blocks as f64 / requests as f64,
            outcome.faults,
            if outcome.faults == 1 { "block" } else { "blocks" }
        )
    })
}

/// Explains how few bad blocks of a store that deduplicates become many wrong ones.
fn sharing_note(outcome: &RuleOutcome) -> Option<String> {
    (outcome.failing_blocks > outcome.faults && outcome.fates.silent == outcome.faults).then(|| {
        format!(
            "the stack stores equal blocks once; each of the {} bad {} was handed out in {:.1} places on average",
            outcome.faults,
            if outcome.faults == 1 { "block" } else { "blocks" },
            outcome.failing_blocks as f64 / outcome.faults as f64
        )
    })
}
