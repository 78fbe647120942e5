//! `rotproof model estimate`: probabilities with 95% intervals, from numbers or from results.

use std::path::Path;

use rotproof_block::{Error, ErrorKind};
use rotproof_design::path_file::{Coverage, Run, Runs};
use rotproof_model::{Bound, Uncertain, estimate as model};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::{Output, Paint};
use crate::table::{Align, Table, clip};
use crate::units;

use super::args::EstimateArgs;
use super::text;

/// What the outcomes of runs mean, and which ones runs cannot tell.
const MEANINGS: &str = "R: corrupt data was handed out; C: the subject could not be mounted again;\n\
     E: errors only; S: none of these. Corrupt data that the subject itself wrote (W)\n\
     and crashes that end the run leave no trace in results: give their counts, W=2.";

/// The same, of faults in memory.
const MEANINGS_OF_MEMORY: &str = "R: corrupt data was handed out; W: corrupt data was written, and is on the device;\n\
     C: the machine panicked, crashed, hung, or its file system could not be mounted\n\
     again; E: errors only; S: none of these. A trial may be R and W and C.";

/// What is known of some trials.
struct Counts {
    /// Trials in all.
    trials: u64,
    /// Faults injected into each.
    faults: u32,
    /// Each outcome with its number, and whether it is survival.
    outcomes: Vec<(String, u64, bool)>,
    /// Faults by whether they were noticed, if runs were read.
    coverage: Option<Coverage>,
    /// Whether all faults were in memory.
    is_of_memory: bool,
    /// Runs that were left out, as they were interrupted.
    interrupted: u64,
}

/// Prints P_k and P_1 of each outcome.
pub fn estimate(args: &EstimateArgs, output: Output) -> Result<Exit, CommandError> {
    let counts = match args.counts.as_slice() {
        [folder] if !folder.contains('=') => from_results(Path::new(folder), args)?,
        all => from_numbers(all, args)?,
    };
    if args.write.json {
        output.json(&to_json(&counts)?);
    } else {
        output.result(render(&counts, output.stdout_paint())?);
    }
    Ok(Exit::Pass)
}

fn refuse(message: String) -> CommandError {
    Error::new(ErrorKind::Invalid, message).into()
}

/// `R=9 W=2 C=0 --trials 100 --faults 16`. Whoever suffered none of the outcomes survived: S.
fn from_numbers(texts: &[String], args: &EstimateArgs) -> Result<Counts, CommandError> {
    let mut outcomes: Vec<(String, u64, bool)> = Vec::new();
    for text in texts {
        let (name, count) = text
            .split_once('=')
            .and_then(|(name, count)| Some((name.trim(), count.trim().parse::<u64>().ok()?)))
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| {
                refuse(format!("`{text}` is no outcome with its count, from 0 on; write for example R=9"))
            })?;
        if outcomes.iter().any(|(known, ..)| known == name) {
            return Err(refuse(format!("the outcome {name} is given twice")));
        }
        outcomes.push((name.to_owned(), count, name == "S"));
    }
    let trials = args.trials.ok_or_else(|| refuse("how many trials were there? Give --trials N".into()))?;
    let faults =
        args.faults.ok_or_else(|| refuse("how many faults in each trial? Give --faults K".into()))?;
    if trials == 0 {
        return Err(refuse("no trials say nothing; --trials must be at least 1".into()));
    }
    let sum = outcomes.iter().try_fold(0u64, |sum, (_, count, _)| sum.checked_add(*count));
    let Some(left) = sum.and_then(|sum| trials.checked_sub(sum)) else {
        return Err(refuse(format!(
            "there are more outcomes than the {trials} trials; each trial has one at most"
        )));
    };
    if !outcomes.iter().any(|(.., is_survival)| *is_survival) {
        outcomes.push(("S".into(), left, true));
    }
    Ok(Counts { trials, faults, outcomes, coverage: None, is_of_memory: false, interrupted: 0 })
}

/// Each run is a trial: R if it handed out corrupt data, C if the subject did not come back, E if something could not be
/// read or written, S if none of these. Of faults in memory also W, what the subject wrote corrupt; of others nothing in a run
/// tells that from data that was corrupted below it.
fn from_results(folder: &Path, args: &EstimateArgs) -> Result<Counts, CommandError> {
    let runs = Runs::read(folder)?;
    let trials = runs.list.len() as u64;
    if args.trials.is_some_and(|asked| asked != trials) {
        return Err(refuse(format!("there are {trials} runs in {}; leave --trials out", folder.display())));
    }
    let faults = match (args.faults, runs.list.first().map(|(_, run)| run.faults)) {
        (Some(faults), _) => faults,
        (None, Some(first)) if first > 0 && runs.list.iter().all(|(_, run)| run.faults == first) => {
            u32::try_from(first).unwrap_or(u32::MAX)
        }
        _ => {
            return Err(refuse(format!(
                "the runs in {} injected different numbers of faults, or none; give --faults K",
                folder.display()
            )));
        }
    };
    let count = |is_it: fn(&Run) -> bool| runs.list.iter().filter(|(_, run)| is_it(run)).count() as u64;
    let is_of_memory = runs.list.iter().all(|(_, run)| run.of_memory.is_some());
    let mut outcomes = vec![("R".to_owned(), count(has_read), false)];
    if is_of_memory {
        outcomes.push(("W".to_owned(), count(has_written), false));
    }
    outcomes.extend([
        ("C".to_owned(), count(|run| run.is_gone), false),
        ("E".to_owned(), count(|run| run.failures > 0 && !is_worse(run)), false),
        ("S".to_owned(), count(|run| run.failures == 0 && !is_worse(run)), true),
    ]);
    let (coverage, interrupted) = (Some(runs.coverage()), runs.interrupted);
    Ok(Counts { trials, faults, outcomes, coverage, is_of_memory, interrupted })
}

fn has_read(run: &Run) -> bool {
    run.of_memory.map_or(run.coverage.silent > 0, |corruption| corruption.read)
}

fn has_written(run: &Run) -> bool {
    run.of_memory.is_some_and(|corruption| corruption.written)
}

/// Whether there was more than errors.
fn is_worse(run: &Run) -> bool {
    run.is_gone || run.coverage.silent > 0 || has_read(run) || has_written(run)
}

fn shares(counts: &Counts) -> Result<Vec<(&str, u64, Uncertain, Uncertain)>, CommandError> {
    let each = counts.outcomes.iter().map(|(name, count, is_survival)| {
        let share = model::share(*count, counts.trials)
            .ok_or_else(|| refuse(format!("{count} of {} trials is no share", counts.trials)))?;
        let one = if *is_survival {
            model::of_surviving_one_fault(share, counts.faults)
        } else {
            model::of_one_fault(share, counts.faults)
        };
        Ok((name.as_str(), *count, share, one))
    });
    each.collect()
}

/// `9.0% [4.1, 16.4]`: the ends rounded outwards, so that the interval keeps its promise.
fn percent(number: Uncertain) -> String {
    let [low, value, high] = [Bound::Low, Bound::Value, Bound::High].map(|bound| number.at(bound) * 100.0);
    // Enough decimals for two digits of the value.
    let size = if value > 0.0 { value } else { high };
    let decimals = if size > 0.0 { (1.0 - size.log10().floor()).clamp(1.0, 9.0) } else { 1.0 };
    let step = 10f64.powf(decimals);
    let (low, high) =
        ((low * step + 1e-9).floor() / step, ((high * step - 1e-9).ceil() / step).min(100.0) + 0.0);
    let places = decimals as usize;
    format!("{value:.places$}% [{low:.places$}, {high:.places$}]")
}

fn render(counts: &Counts, paint: Paint) -> Result<String, CommandError> {
    let k = counts.faults;
    let headings = [format!("P_{k}"), "P_1".to_owned()];
    let mut table = Table::new(&[
        ("outcome", Align::Left),
        ("trials", Align::Right),
        (&headings[0], Align::Left),
        (&headings[1], Align::Left),
    ]);
    for (name, count, share, one) in shares(counts)? {
        table.row([clip(name, 24), units::count(count), percent(share), percent(one)]);
    }
    let heading =
        format!("{}, {} in each", units::counted(counts.trials, "trial"), units::counted(k.into(), "fault"));
    let mut text = format!("{}\n\n{}", paint.bold(heading), table.render(paint));
    if counts.interrupted > 0 {
        let interrupted = units::counted(counts.interrupted, "run");
        text.push_str(&format!("\n\n  {interrupted} not counted, as what was interrupted says nothing"));
    }
    if let Some(Coverage { noticed, silent }) = counts.coverage {
        text.push_str(&match model::undetected_fraction(silent, noticed + silent) {
            None => "\n\nNo fault was ever met, so nothing is known of what would be noticed.".to_owned(),
            Some(fraction) => format!(
                "\n\n  {} met: {} noticed, {} silent\n  undetected fraction  {}",
                units::counted(noticed + silent, "fault"),
                units::count(noticed),
                units::count(silent),
                percent(fraction)
            ),
        });
        text.push_str("\n\n");
        let meanings = if counts.is_of_memory { MEANINGS_OF_MEMORY } else { MEANINGS };
        text.push_str(&paint.dim(meanings).to_string());
    }
    text.push('\n');
    text.push_str(&paint.dim("95% intervals of Clopper and Pearson, rounded outwards.").to_string());
    Ok(text)
}

fn to_json(counts: &Counts) -> Result<Value, CommandError> {
    let outcomes: Vec<Value> = shares(counts)?
        .into_iter()
        .map(|(name, count, share, one)| {
            json!({
                "outcome": name,
                "trials": count,
                "p_k": text::uncertain_json(share),
                "p_1": text::uncertain_json(one),
            })
        })
        .collect();
    let coverage = counts.coverage.map(|Coverage { noticed, silent }| {
        let fraction = model::undetected_fraction(silent, noticed + silent).map(text::uncertain_json);
        json!({ "noticed": noticed, "silent": silent, "undetected_fraction": fraction })
    });
    Ok(json!({
        "trials": counts.trials,
        "faults_per_trial": counts.faults,
        "confidence": 0.95,
        "outcomes": outcomes,
        "coverage": coverage,
        "interrupted": counts.interrupted,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_rounded_outwards() {
        let share = model::share(9, 100).expect("a share");
        assert_eq!(percent(share), "9.0% [4.1, 16.4]");
        assert_eq!(percent(Uncertain::exact(0.0)), "0.0% [0.0, 0.0]");
        assert_eq!(percent(Uncertain::exact(1.0)), "100.0% [100.0, 100.0]");
    }
}
