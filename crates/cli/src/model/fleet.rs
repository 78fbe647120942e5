//! `rotproof model fleet`: what a fleet loses over years.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rotproof_block::{Error, ErrorKind};
use rotproof_design::fleet_file;
use rotproof_model::SECONDS_PER_YEAR;
use rotproof_model::fleet::{
    Estimate, Fleet, Hazard, Options, Outcome, Sampling, Source, closed_form, simulate,
};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::{Output, Paint};
use crate::progress::{Progress, Snapshot};
use crate::signals::cancel_on_signals;
use crate::table::{Align, Table, clip};
use crate::units;

use super::args::{FleetArgs, SamplingWord};
use super::{figures, fleet_course, text};

/// Simulates, and prints what is to be expected beside the closed form.
pub fn fleet(args: &FleetArgs, output: Output) -> Result<Exit, CommandError> {
    let (fleet, unused) = described(args)?;
    if let Some((field, message)) = fleet.mistake() {
        return Err(Error::new(ErrorKind::Invalid, format!("{field} {message}")).into());
    }
    let cancel = cancel_on_signals()?;
    let done = Arc::new(AtomicU64::new(0));
    let threads = args
        .threads
        .map_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get), usize::from);
    let sampling = match args.sampling {
        SamplingWord::Importance => Sampling::Importance,
        SamplingWord::Plain => Sampling::Plain,
    };
    let outcome = {
        let done = Arc::clone(&done);
        let groups = fleet.groups;
        let shown = Arc::clone(&done);
        let _progress = Progress::start(output, args.quiet || args.write.json, move || Snapshot {
            phase: "simulate".to_owned(),
            position: shown.load(Ordering::Relaxed),
            length: groups,
            ..Snapshot::default()
        });
        let is_cancelled = || cancel.is_cancelled();
        simulate(
            &fleet,
            &Options { seed: args.seed, threads, sampling, done: &done, is_cancelled: &is_cancelled },
        )
    };
    let Some(outcome) = outcome else {
        output.note("interrupted; a part of a fleet says nothing");
        return Ok(cancel.signal().map_or(Exit::Interrupted, Exit::of_signal));
    };
    let numbers = to_json(&fleet, &outcome, &unused, args);
    if let Some(file) = &args.plot.plot {
        let table = render(&fleet, &outcome, &unused, args, Paint::OFF);
        figures::write(file, &fleet_course::figure(&fleet, &outcome), &table, output)?;
    }
    if args.write.json {
        output.json(&numbers);
    } else {
        output.result(render(&fleet, &outcome, &unused, args, output.stdout_paint()));
    }
    Ok(Exit::Pass)
}

/// The fleet, and what its file says that is not used.
fn described(args: &FleetArgs) -> Result<(Fleet, Vec<String>), CommandError> {
    let undetected = args.undetected.0.value();
    let mut fleet = Fleet {
        groups: args.groups,
        redundancy: args.redundancy,
        years: args.years,
        hazard: Hazard::constant(args.failures),
        age_years: 0.0,
        death: None,
        rebuild_years: args.rebuild,
        sources: Vec::new(),
        clustering: args.clustering,
        scrub_years: args.scrub,
        sectors: None,
    };
    let Some(file) = &args.faults else {
        if !(0.0..1.0).contains(&args.bursts) {
            let message = format!("--bursts is {}; it must be from 0 to below 1", args.bursts);
            return Err(Error::new(ErrorKind::Invalid, message).into());
        }
        fleet.sources = vec![Source::singles("errors", args.errors, undetected).with_bursts(args.bursts)];
        return Ok((fleet, Vec::new()));
    };
    let faults =
        fleet_file::open(file, undetected).map_err(|mistakes| CommandError::Mistakes(vec![mistakes]))?;
    let (hazard, age_years) = faults.failures.unwrap_or((Hazard::constant(0.0), 0.0));
    fleet = Fleet {
        hazard,
        age_years,
        death: faults.death,
        sources: faults.sources,
        sectors: Some(faults.sectors),
        ..fleet
    };
    Ok((fleet, faults.unused))
}

/// What is counted, with its words.
fn lines(fleet: &Fleet, outcome: &Outcome) -> [(&'static str, &'static str, Estimate, Option<f64>); 5] {
    let closed = closed_form::of(fleet);
    [
        ("failures", "devices that fail", outcome.failures, None),
        ("errors", "events that damage sectors", outcome.errors, None),
        ("lost_devices", "groups that lose too many devices", outcome.lost_devices, closed.lost_devices),
        ("lost_sectors", "groups that lose sectors", outcome.lost_sectors, closed.lost_sectors),
        ("silent", "sectors corrupt and unnoticed", outcome.silent, Some(closed.silent)),
    ]
}

fn render(fleet: &Fleet, outcome: &Outcome, unused: &[String], args: &FleetArgs, paint: Paint) -> String {
    let span = |years: f64| text::seconds(years * SECONDS_PER_YEAR);
    let mut table = Table::new(&[
        ("expected in the fleet", Align::Left),
        ("number", Align::Right),
        ("+-", Align::Right),
        ("closed form", Align::Right),
        ("a year", Align::Right),
    ]);
    for (_, words, estimate, closed) in lines(fleet, outcome) {
        table.row([
            words.to_owned(),
            text::number(estimate.value),
            text::number(2.0 * estimate.standard_error),
            closed.map(text::number).unwrap_or_default(),
            text::number(estimate.value / fleet.years),
        ]);
    }
    let mut notes: Vec<String> = unused.iter().map(|note| format!("not used: {note}")).collect();
    notes.push(format!("+- covers the truth in 95 of 100 seeds; this was seed {}.", args.seed));
    let notes: Vec<String> = notes.iter().map(|note| paint.dim(note).to_string()).collect();
    format!(
        "{}\n{}  scrub     every {}\n\n{}\n\n{}",
        paint.bold(format!(
            "{} of {}+{} over {}: {} device-years",
            units::counted(fleet.groups, "group"),
            fleet.redundancy.data,
            fleet.redundancy.parity,
            span(fleet.years),
            text::number(fleet.device_years()),
        )),
        rates(fleet),
        span(fleet.scrub_years),
        table.render(paint),
        notes.join("\n"),
    )
}

/// What is known of the devices, in lines.
fn rates(fleet: &Fleet) -> String {
    let span = |years: f64| text::seconds(years * SECONDS_PER_YEAR);
    let Fleet { hazard, age_years: age, .. } = *fleet;
    let mut lines = vec![format!(
        "  failures  {} a device and year, rebuilt in {}",
        text::number(hazard.between(age, age + fleet.years) / fleet.years),
        span(fleet.rebuild_years)
    )];
    if !hazard.is_constant() {
        let old = if age > 0.0 { format!("{} old", span(age)) } else { "new".to_owned() };
        lines.push(format!("            of shape {}, all {old} at first", hazard.shape));
    }
    if let Some(death) = fleet.death {
        lines.push(format!(
            "            each after dying for {}, with {} bad sectors",
            span(death.years),
            text::number(death.errors)
        ));
    }
    for source in &fleet.sources {
        let name = clip(&source.name, 24);
        let heading = if fleet.sectors.is_some() { format!(", {name}") } else { String::new() };
        let mut line = format!("  errors    {} a device and year{heading}", text::number(source.per_year));
        if source.sectors() > 1.0 {
            line.push_str(&format!("; {:.2} sectors each", source.sectors()));
        }
        if source.is_transient {
            line.push_str("; gone with the next read");
        }
        lines.push(line);
        if source.undetected > 0.0 {
            lines.push(format!(
                "            {} of the sectors pass unnoticed",
                text::number(source.undetected)
            ));
        }
    }
    if let Some(shape) = fleet.clustering {
        lines.push(format!("            clustered over devices with shape {shape}"));
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

fn to_json(fleet: &Fleet, outcome: &Outcome, unused: &[String], args: &FleetArgs) -> Value {
    let mut found = serde_json::Map::new();
    for (key, _, estimate, closed) in lines(fleet, outcome) {
        found.insert(
            key.to_owned(),
            json!({ "value": estimate.value, "standard_error": estimate.standard_error, "closed_form": closed }),
        );
    }
    let source = |source: &Source| {
        json!({
            "name": source.name,
            "per_device_year": source.per_year,
            "further": source.further,
            "spread_years": source.spread_years,
            "single": source.single,
            "run": source.run,
            "front": source.front,
            "undetected": source.undetected,
            "transient": source.is_transient,
        })
    };
    let course = |estimates: &[Estimate]| -> Vec<Value> {
        let point = |(number, estimate): (f64, &Estimate)| {
            json!({
                "years": fleet.years * number / estimates.len() as f64,
                "value": estimate.value,
                "standard_error": estimate.standard_error,
            })
        };
        (1..).map(f64::from).zip(estimates).map(point).collect()
    };
    json!({
        "seed": args.seed,
        "sampling": match args.sampling { SamplingWord::Importance => "importance", SamplingWord::Plain => "plain" },
        "groups": fleet.groups,
        "redundancy": { "data": fleet.redundancy.data, "parity": fleet.redundancy.parity },
        "years": fleet.years,
        "device_years": fleet.device_years(),
        "failures": {
            "first_year": fleet.hazard.first_year,
            "shape": fleet.hazard.shape,
            "age_years": fleet.age_years,
            "dying": fleet.death.map(|death| json!({
                "years": death.years, "errors": death.errors, "growth": death.growth, "spares": death.spares,
            })),
        },
        "rebuild_years": fleet.rebuild_years,
        "errors": fleet.sources.iter().map(source).collect::<Vec<_>>(),
        "clustering": fleet.clustering,
        "scrub_years": fleet.scrub_years,
        "sectors": fleet.sectors,
        "not_used": unused,
        "expected": found,
        "course": {
            "lost_devices": course(&outcome.lost_devices_course),
            "lost_sectors": course(&outcome.lost_sectors_course),
        },
    })
}
