//! `rotproof model fleet`: what a fleet loses over years.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rotproof_block::{Error, ErrorKind};
use rotproof_model::SECONDS_PER_YEAR;
use rotproof_model::fleet::{Estimate, Fleet, Options, Outcome, Sampling, closed_form, simulate};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::fail::Failure;
use crate::output::{Output, Paint};
use crate::progress::{Progress, Snapshot};
use crate::signals::cancel_on_signals;
use crate::table::{Align, Table};
use crate::units;

use super::args::{FleetArgs, SamplingWord};
use super::text;

/// Simulates, and prints what is to be expected beside the closed form.
pub fn fleet(args: &FleetArgs, output: Output) -> Result<Exit, Failure> {
    let fleet = described(args);
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
    if args.write.json {
        output.json(&to_json(&fleet, &outcome, args));
    } else {
        output.result(render(&fleet, &outcome, args, output.stdout_paint()));
    }
    Ok(Exit::Pass)
}

fn described(args: &FleetArgs) -> Fleet {
    Fleet {
        groups: args.groups,
        redundancy: args.redundancy,
        years: args.years,
        failures_per_year: args.failures,
        rebuild_years: args.rebuild,
        errors_per_year: args.errors,
        continuation: args.bursts,
        clustering: args.clustering,
        scrub_years: args.scrub,
        undetected: args.undetected.0.value(),
    }
}

/// What is counted, with its words.
fn lines(fleet: &Fleet, outcome: &Outcome) -> [(&'static str, &'static str, Estimate, Option<f64>); 5] {
    let closed = closed_form::of(fleet);
    [
        ("failures", "devices that fail", outcome.failures, None),
        ("errors", "events that damage sectors", outcome.errors, None),
        (
            "lost_devices",
            "groups that lose too many devices",
            outcome.lost_devices,
            Some(closed.lost_devices),
        ),
        ("lost_sectors", "groups that lose sectors", outcome.lost_sectors, closed.lost_sectors),
        ("silent", "sectors corrupt and unnoticed", outcome.silent, Some(closed.silent)),
    ]
}

fn render(fleet: &Fleet, outcome: &Outcome, args: &FleetArgs, paint: Paint) -> String {
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
    let clustering =
        fleet.clustering.map_or(String::new(), |shape| format!(", clustered with shape {shape}"));
    let bursts = if fleet.continuation > 0.0 {
        format!(", bursts of {:.2} sectors", 1.0 / (1.0 - fleet.continuation))
    } else {
        String::new()
    };
    format!(
        "{}\n  failures  {} a device and year, rebuilt in {}\n  errors    {} a device and year{bursts}{clustering}\n  \
         scrub     every {}; {} of damaged sectors pass their checksum\n\n{}\n\n{}",
        paint.bold(format!(
            "{} of {}+{} over {}: {} device-years",
            units::counted(fleet.groups, "group"),
            fleet.redundancy.data,
            fleet.redundancy.parity,
            span(fleet.years),
            text::number(fleet.device_years()),
        )),
        text::number(fleet.failures_per_year),
        span(fleet.rebuild_years),
        text::number(fleet.errors_per_year),
        span(fleet.scrub_years),
        text::number(fleet.undetected),
        table.render(paint),
        paint.dim(format!("+- covers the truth in 95 of 100 seeds; this was seed {}.", args.seed)),
    )
}

fn to_json(fleet: &Fleet, outcome: &Outcome, args: &FleetArgs) -> Value {
    let mut found = serde_json::Map::new();
    for (key, _, estimate, closed) in lines(fleet, outcome) {
        found.insert(
            key.to_owned(),
            json!({ "value": estimate.value, "standard_error": estimate.standard_error, "closed_form": closed }),
        );
    }
    json!({
        "seed": args.seed,
        "sampling": match args.sampling { SamplingWord::Importance => "importance", SamplingWord::Plain => "plain" },
        "groups": fleet.groups,
        "redundancy": { "data": fleet.redundancy.data, "parity": fleet.redundancy.parity },
        "years": fleet.years,
        "device_years": fleet.device_years(),
        "failures_per_device_year": fleet.failures_per_year,
        "rebuild_years": fleet.rebuild_years,
        "errors_per_device_year": fleet.errors_per_year,
        "continuation": fleet.continuation,
        "clustering": fleet.clustering,
        "scrub_years": fleet.scrub_years,
        "undetected": fleet.undetected,
        "expected": found,
    })
}
